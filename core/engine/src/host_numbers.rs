//! Which numbers in reports are in use, by connections of other hosts, and when those that are not are given back.

use std::collections::BTreeMap;
use trunkline_call::Instant;
use trunkline_telemetry::{PeerIndex, Telemetry};

/// Where reports have no number left for another method or host, so many are given back at once: each time, all calls
/// that are kept one by one are looked through.
pub(crate) const NUMBERS_AT_ONCE: usize = 64;
/// Numbers of hosts are not given back more often than this: anybody may open and close connections.
const HOSTS_PAUSE_NS: u64 = 1_000_000_000;

/// The hosts with connections, by their numbers in reports. Bounded by `Telemetry::PEERS_MAX`.
#[derive(Debug, Default)]
pub(crate) struct HostNumbers {
    connections: BTreeMap<PeerIndex, u32>,
    /// When numbers of hosts may be given back again.
    rests_until: Instant,
}

impl HostNumbers {
    /// A connection of a host with this number is there.
    pub fn join(&mut self, number: PeerIndex) {
        if number > PeerIndex::LOCAL {
            *self.connections.entry(number).or_default() += 1;
        }
    }

    /// It is over.
    pub fn leave(&mut self, number: PeerIndex) {
        if let Some(count) = self.connections.get_mut(&number) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.connections.remove(&number);
            }
        }
    }

    /// Whether so many hosts have a number and no connection that it is time to give theirs to others. If so, it is not
    /// for a while.
    pub fn is_due(&mut self, now: Instant, telemetry: &Telemetry) -> bool {
        let is_due = telemetry.has_all_peers()
            && telemetry.peers_named() >= self.connections.len() + NUMBERS_AT_ONCE
            && now >= self.rests_until;
        if is_due {
            self.rests_until = now.plus_ns(HOSTS_PAUSE_NS);
        }
        is_due
    }

    /// The numbers of those that are connected.
    pub fn connected(&self) -> impl Iterator<Item = PeerIndex> {
        self.connections.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    //! Shows when numbers of hosts are given back: when as many have no connection, and not all the time.
    use super::*;

    #[test]
    fn what_is_in_use_is_no_reason_to_look_for_what_is_not() {
        let (mut telemetry, mut numbers) = (Telemetry::new(), HostNumbers::default());
        let all: Vec<PeerIndex> = (0..2_000).map(|at| telemetry.peer(&format!("web-{at}"), false)).collect();
        all.iter().for_each(|number| numbers.join(*number));
        assert!(telemetry.has_all_peers());
        // Connections of hosts that have another, or no number, come and go.
        for _ in 0..1_000 {
            numbers.join(all[0]);
            numbers.leave(all[0]);
            numbers.join(PeerIndex::OTHER);
            numbers.leave(PeerIndex::OTHER);
        }
        assert!(!numbers.is_due(Instant(5), &telemetry));
        all[..NUMBERS_AT_ONCE - 1].iter().for_each(|number| numbers.leave(*number));
        assert!(!numbers.is_due(Instant(5), &telemetry));
        numbers.leave(all[500]);
        assert!(numbers.is_due(Instant(5), &telemetry));
        let next = Instant(5).plus_ns(HOSTS_PAUSE_NS);
        assert!(!numbers.is_due(Instant(next.0 - 1), &telemetry) && numbers.is_due(next, &telemetry));
    }
}
