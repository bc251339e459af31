//! How many requests a worker may have outstanding: given, or measured.

/// The n of JBSQ(n).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// As given.
    Fixed(u32),
    /// As measured.
    Auto,
}

impl Bound {
    /// Largest. At this the policy is join-shortest-queue.
    pub const MAX: u32 = 65_536;
    /// Largest below that: loads from here on are not told apart.
    pub const FIXED_MAX: u32 = 1024;
    /// Before anything is measured; the paper's choice for services of some microseconds.
    pub const DEFAULT: u32 = 3;
    /// Largest that is chosen by measuring: the paper uses 20 for services below a microsecond.
    pub const AUTO_MAX: u32 = 32;
}

/// Measures the time word of a finished request and the next request are on their way, against the time one takes.
///
/// While both travel a worker with nothing in stock stands idle. With r = travel ÷ service, one more request covers the
/// gap of a worker whose requests take as long as the mean; those that take less need another for each gap they fall
/// short of. n = 1 + ⌈2r⌉ is what the simulator shows to lose nothing for exponential times
/// (docs/measured/history/simulated.md); below r = 1/5 the loss is smaller than what a second request costs that stands
/// behind a long one, as long as the queue is short; when it is not, [`crate::Dispatcher`] gives out one more. Where
/// there are no long ones nothing is lost by a second request behind the one that ends the soonest, and the gap is
/// gained ([`BoundEstimate::is_second_free`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct BoundEstimate {
    travel_ns: f64,
    service_ns: f64,
    /// Mean of the services' squares.
    service_square: f64,
    samples: u32,
}

/// Weight of a sample once there are many.
const WEIGHT: f64 = 1.0 / 256.0;
/// Samples before the measure is used.
const SAMPLES_MIN: u32 = 32;
/// Travel by service below which a worker gets its next request only when it is idle.
const SINGLE_MAX: f64 = 0.2;
/// Travel by service from which a gap is worth a second request to requests that are alike.
const GAP_MIN: f64 = 0.005;
/// Variance by the mean's square up to which requests are alike, a deviation of a sixth. With one of a quarter a second
/// request gains at 90 % of load what it loses at 70 %.
const ALIKE_MAX: f64 = 0.03;

impl BoundEstimate {
    /// One request: `travel_ns` from hand-over to word of its end, less what the worker had it for; `service_ns` in
    /// work.
    pub fn note(&mut self, travel_ns: u64, service_ns: u64) {
        self.samples = self.samples.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.samples));
        self.travel_ns += (travel_ns as f64 - self.travel_ns) * weight;
        self.service_ns += (service_ns as f64 - self.service_ns) * weight;
        self.service_square += ((service_ns as f64).powi(2) - self.service_square) * weight;
    }

    /// The bound that follows.
    pub fn bound(&self) -> u32 {
        if self.samples < SAMPLES_MIN {
            return Bound::DEFAULT;
        }
        let ratio = self.travel_ns / self.service_ns.max(1.0);
        if ratio <= SINGLE_MAX {
            return 1;
        }
        (1.0 + (2.0 * ratio).ceil()).min(f64::from(Bound::AUTO_MAX)) as u32
    }

    /// Whether a worker with nothing in stock stands idle for long enough that a second request is worth it.
    pub fn has_gap(&self) -> bool {
        self.samples >= SAMPLES_MIN && self.travel_ns >= GAP_MIN * self.service_ns
    }

    /// Whether the gap is worth a second request, and requests take so much as long as each other that none is a long
    /// one. One in hundreds that takes far longer is enough that they do not.
    pub fn is_second_free(&self) -> bool {
        self.has_gap() && self.service_square <= (1.0 + ALIKE_MAX) * self.service_ns.powi(2)
    }

    /// Mean travel time as measured.
    pub fn travel_ns(&self) -> f64 {
        self.travel_ns
    }

    /// Mean service time as measured.
    pub fn service_ns(&self) -> f64 {
        self.service_ns
    }
}

#[cfg(test)]
mod tests {
    //! Shows what follows from what is measured.
    use super::*;

    /// After a hundred requests of these services by turns.
    fn after(travel_ns: u64, services_ns: [u64; 2]) -> BoundEstimate {
        let mut estimate = BoundEstimate::default();
        assert_eq!((estimate.bound(), estimate.is_second_free()), (Bound::DEFAULT, false));
        (0..100).for_each(|index| estimate.note(travel_ns, services_ns[index % 2]));
        estimate
    }

    #[test]
    fn bound_follows_travel_by_service() {
        let table = [((10, 1_000_000), 1), ((15_000, 1_000_000), 1), ((300_000, 1_000_000), 2)];
        let more = [((15_000, 25_000), 3), ((15_000, 10_000), 4), ((15_000, 700), 32)];
        for ((travel, service), bound) in table.into_iter().chain(more) {
            let found = after(travel, [service, service]).bound();
            assert_eq!(found, bound, "{travel} ns of travel, {service} ns of service");
        }
    }

    #[test]
    fn a_second_is_free_where_requests_are_alike() {
        let alike = [900_000, 1_100_000];
        assert!(after(15_000, alike).is_second_free());
        assert!(!after(1_000, alike).is_second_free(), "a gap that small is not worth it");
        assert!(!after(15_000, [500_000, 1_500_000]).is_second_free(), "one is a long one");

        let mut estimate = after(15_000, alike);
        estimate.note(15_000, 20_000_000);
        (0..200).for_each(|_| estimate.note(15_000, 1_000_000));
        assert!(!estimate.is_second_free(), "one took far longer");
    }
}
