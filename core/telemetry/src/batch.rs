//! Calls that are counted together.
//!
//! A call touches some fifty cache lines in fifteen histograms; one call after the other they would be fetched for each
//! anew, from caches that carry messages meanwhile. So many calls as a batch has fit the innermost.

use crate::component::Coverage;
use crate::flight::Flight;

/// What of a call that waits to be counted is not in its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uncounted {
    /// Its series, whether it streamed, and coverage: calls that have all in common are counted together.
    pub kind: u32,
    /// The parts of request and response stack between kernel and daemon.
    pub wakeups_ns: [u32; 2],
    /// Calls it is counted for.
    pub weight: u32,
    /// One of them is itself, and not counted yet.
    pub counts_itself: bool,
}

/// Calls that wait to be counted, oldest first.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'c> {
    pub flights: &'c [Flight],
    pub pending: &'c [Uncounted],
}

/// What some calls come to, each taken as often as it is counted; bytes are those of the calls themselves.
pub(crate) struct BatchSums {
    pub amounts: [u64; Flight::AMOUNTS],
    pub wakeups_ns: [u64; 2],
    pub half_width_ns: u64,
    /// Calls they are counted for.
    pub calls: u64,
    /// The bits of all.
    pub bits: u32,
    /// Zero if no handler said anything but that it made no calls.
    pub handlers: u32,
}

impl Uncounted {
    /// Coverage, and whether it streamed, as its kind has them.
    pub fn coverage(&self) -> (Coverage, bool) {
        (Coverage::ALL[(self.kind & 7) as usize % Coverage::ALL.len()], self.kind & 8 != 0)
    }
}

impl Batch<'_> {
    /// Most calls in one.
    pub const CALLS: usize = 64;
    /// Where among the amounts the parts between kernel and daemon are: behind those of a flight.
    pub const REQUEST_WAKEUP: usize = Flight::AMOUNTS;
    pub const RESPONSE_WAKEUP: usize = Flight::AMOUNTS + 1;
    /// How many amounts there are with these.
    pub const AMOUNTS: usize = Flight::AMOUNTS + 2;

    pub fn flight(&self, call: u8) -> Option<&Flight> {
        self.flights.get(usize::from(call))
    }

    /// Whether its status is OK.
    pub fn has_ended_well(&self, call: u8) -> bool {
        self.flight(call).is_some_and(|flight| flight.bits & Flight::CODE == 0)
    }

    /// Calls that this one is counted for.
    pub fn weight(&self, call: u8) -> u64 {
        self.pending.get(usize::from(call)).map_or(0, |call| call.weight).into()
    }

    /// How long a call took, in nanoseconds.
    pub fn total_ns(&self, call: u8) -> u64 {
        self.flight(call).map_or(0, |flight| flight.amounts[Flight::TOTAL]).into()
    }

    /// The parts of a call between kernel and daemon, in nanoseconds.
    pub fn wakeup_ns(&self, call: u8, wakeup: usize) -> u64 {
        let wakeups_ns = self.pending.get(usize::from(call)).map_or([0; 2], |call| call.wakeups_ns);
        wakeups_ns.get(wakeup).copied().unwrap_or_default().into()
    }

    pub fn sums(&self, calls: impl Iterator<Item = u8>) -> BatchSums {
        let mut amounts = [0; Flight::AMOUNTS];
        let (mut wakeups_ns, mut half_width_ns, mut bits, mut handlers) = ([0; 2], 0, 0, 0);
        let mut counted = 0;
        for call in calls.map(usize::from) {
            let (Some(flight), Some(pending)) = (self.flights.get(call), self.pending.get(call)) else {
                continue;
            };
            let weight = u64::from(pending.weight);
            let (times, bytes) = flight.amounts.split_at(Flight::REQUEST_BYTES);
            let (times_sums, bytes_sums) = amounts.split_at_mut(Flight::REQUEST_BYTES);
            for (sum, amount) in times_sums.iter_mut().zip(times) {
                *sum += u64::from(*amount) * weight;
            }
            for (sum, amount) in bytes_sums.iter_mut().zip(bytes) {
                *sum += u64::from(*amount) * u64::from(pending.counts_itself);
            }
            for (sum, amount) in wakeups_ns.iter_mut().zip(pending.wakeups_ns) {
                *sum += u64::from(amount) * weight;
            }
            half_width_ns += u64::from(flight.half_width_ns) * weight;
            counted += weight;
            bits |= flight.bits;
            handlers |= flight.cpu_ns | flight.subtree >> 1;
        }
        BatchSums { amounts, wakeups_ns, half_width_ns, calls: counted, bits, handlers }
    }
}
