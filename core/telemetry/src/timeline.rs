//! Stamps put in order: what is missing is filled in, what is out of order is moved, so that differences are never
//! negative and always add up.
//!
//! Whose word counts: the daemon reads its own clock and is the frame; an application's stamps and kernel stamps are
//! moved into it. A missing stamp takes its neighbour's value *towards the daemon*, so that time nobody stamped is
//! booked where the daemon was: before the wire on the way out, after it on the way in.

use crate::component::{Stamp, StampSet};
use trunkline_call::{ClientStamps, Instant, ServerStamps};

/// A client's stamps, all present and in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLine {
    pub stamps: ClientStamps,
    pub stand_ins: StampSet,
    /// The call ended before it was admitted: nothing left this host.
    pub stayed: bool,
}

impl ClientLine {
    /// Stamps of which none is later than `until`. Nearly always all are there and in order, but for the kernel's word
    /// on the way out, which few calls have.
    #[inline]
    pub fn of(raw: &ClientStamps, until: Instant) -> Self {
        let mut stamps = ClientStamps { a18: raw.a18.min(until), ..*raw };
        let mut stand_ins = StampSet::default();
        if !taken(raw.k6) {
            stamps.k6 = raw.d4;
            stand_ins.insert(Stamp::K6);
        }
        let ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 } = stamps;
        if are_in_order([a0, a1, d2, d3, d4, k6, k15, d16, d17, a18]) {
            stamps.wait_ns = wait_ns.min(d3.since_ns(d2));
            return Self { stamps, stand_ins, stayed: false };
        }
        Self::put_in_order(&ClientStamps { a18, ..*raw })
    }

    #[cold]
    fn put_in_order(raw: &ClientStamps) -> Self {
        let mut set = StampSet::default();
        let d2 = first([raw.d2, raw.d3, raw.d4, raw.a1, raw.a0, raw.d16, raw.d17, raw.a18]);
        let d17 = first([raw.d17, raw.d16, raw.k15, raw.a18, d2]).max(d2);
        let a1 = fit(&mut set, Stamp::A1, raw.a1, d2, FLOOR, d2);
        let a0 = fit(&mut set, Stamp::A0, raw.a0, a1, FLOOR, a1);
        let a18 = fit(&mut set, Stamp::A18, raw.a18, d17, d17, CEILING);
        note(&mut set, Stamp::D2, raw.d2, d2);
        note(&mut set, Stamp::D17, raw.d17, d17);
        let stayed = !taken(raw.d3) && !taken(raw.d4) && !taken(raw.k15);
        if stayed {
            let wait_ns = d17.since_ns(d2);
            let (d3, d4, k6, k15, d16) = (d17, d17, d17, d17, d17);
            let stamps = ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 };
            return Self { stamps, stand_ins: set, stayed };
        }
        let d3 = fit(&mut set, Stamp::D3, raw.d3, d2, d2, d17);
        let d4 = fit(&mut set, Stamp::D4, raw.d4, d3, d3, d17);
        let d16 = fit(&mut set, Stamp::D16, raw.d16, d17, d4, d17);
        let k15 = fit(&mut set, Stamp::K15, raw.k15, d16, d4, d16);
        let k6 = fit(&mut set, Stamp::K6, raw.k6, d4, d4, k15);
        let wait_ns = raw.wait_ns.min(d3.since_ns(d2));
        let stamps = ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 };
        Self { stamps, stand_ins: set, stayed }
    }

    /// Nanoseconds between the last byte out and the first byte back: what wires and server share.
    pub fn away_ns(&self) -> u64 {
        self.stamps.k15.since_ns(self.stamps.k6)
    }
}

/// A server's stamps, all present and in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLine {
    pub stamps: ServerStamps,
    pub stand_ins: StampSet,
}

impl ServerLine {
    #[inline]
    pub fn of(raw: &ServerStamps) -> Self {
        let ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns, k14, .. } = *raw;
        if are_in_order([k7, d8, d9, a10, a11, d12, k14]) {
            let wait_ns = wait_ns.min(k14.since_ns(d12));
            return Self { stamps: ServerStamps { wait_ns, ..*raw }, stand_ins: StampSet::default() };
        }
        Self::put_in_order(raw)
    }

    #[cold]
    fn put_in_order(raw: &ServerStamps) -> Self {
        let mut set = StampSet::default();
        let d9 = first([raw.d9, raw.d8, raw.k7, raw.a10, raw.a11, raw.d12, raw.k14]);
        let d12 = first([raw.d12, raw.k14, raw.a11, raw.a10, d9]).max(d9);
        note(&mut set, Stamp::D9, raw.d9, d9);
        note(&mut set, Stamp::D12, raw.d12, d12);
        let d8 = fit(&mut set, Stamp::D8, raw.d8, d9, FLOOR, d9);
        let k7 = fit(&mut set, Stamp::K7, raw.k7, d8, FLOOR, d8);
        let a10 = fit(&mut set, Stamp::A10, raw.a10, d9, d9, d12);
        let a11 = fit(&mut set, Stamp::A11, raw.a11, d12, a10, d12);
        let k14 = fit(&mut set, Stamp::K14, raw.k14, d12, d12, CEILING);
        let wait_ns = raw.wait_ns.min(k14.since_ns(d12));
        Self { stamps: ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns, k14, ..*raw }, stand_ins: set }
    }
}

/// The server's stamps as they should travel: complete and in order, so that the trailer's intervals mean what they
/// say.
///
/// A handler that does not stamp, or stamps nonsense, moves time between its own two queues and nowhere else.
pub fn settle(server: &ServerStamps) -> ServerStamps {
    ServerLine::of(server).stamps
}

const FLOOR: Instant = Instant(0);
const CEILING: Instant = Instant(u64::MAX);

/// The stamp within its bounds, or its stand-in if it was not taken.
fn fit(
    set: &mut StampSet,
    stamp: Stamp,
    raw: Instant,
    stand_in: Instant,
    low: Instant,
    high: Instant,
) -> Instant {
    let wanted = if taken(raw) { raw } else { stand_in };
    let fitted = wanted.clamp(low, high);
    note(set, stamp, raw, fitted);
    fitted
}

fn note(set: &mut StampSet, stamp: Stamp, raw: Instant, settled: Instant) {
    if raw != settled || !taken(raw) {
        set.insert(stamp);
    }
}

fn first<const N: usize>(stamps: [Instant; N]) -> Instant {
    stamps.into_iter().find(|&stamp| taken(stamp)).unwrap_or_default()
}

#[inline]
fn taken(stamp: Instant) -> bool {
    stamp != Instant::default()
}

/// Whether all are taken, and none is earlier than the one before it: by their differences, which whoever divides the
/// call needs anyway. Of years between two of them, or centuries before the first, the long way judges.
#[inline]
pub(crate) fn are_in_order<const N: usize>(stamps: [Instant; N]) -> bool {
    // So many steps of less than nine years do not lead from the first half of the numbers over their end.
    const STEP_BITS: u32 = 58;
    let steps = stamps.windows(2).fold(0, |steps, pair| steps | pair[1].0.wrapping_sub(pair[0].0));
    taken(stamps[0]) && stamps[0].0 >> 63 == 0 && steps >> STEP_BITS == 0
}

#[cfg(test)]
mod tests {
    //! Shows that stamps in order come out as the long way puts them.
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_way_agrees_with_the_long_one(
            steps in prop::array::uniform10(0..3_u64),
            first in 0..2_u64,
            wait_ns in 0..4_u64,
            unsaid in prop::option::of(0..10_usize),
            swapped in prop::option::of(0..9_usize),
        ) {
            let mut at = first;
            let mut stamps = steps.map(|step| {
                at += step;
                Instant(at)
            });
            if let Some(unsaid) = unsaid {
                stamps[unsaid] = Instant(0);
            }
            if let Some(swapped) = swapped {
                stamps.swap(swapped, swapped + 1);
            }
            let [a0, a1, d2, d3, d4, k6, k15, d16, d17, a18] = stamps;
            let client = ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 };
            let (short, long) = (ClientLine::of(&client, CEILING), ClientLine::put_in_order(&client));
            prop_assert_eq!(short.stamps, long.stamps);
            prop_assert_eq!((short.stand_ins, short.stayed), (long.stand_ins, long.stayed));
            let [k7, d8, d9, a10, a11, d12, k14, ..] = stamps;
            let server = ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns, k14, ..ServerStamps::default() };
            let (short, long) = (ServerLine::of(&server), ServerLine::put_in_order(&server));
            prop_assert_eq!((short.stamps, short.stand_ins), (long.stamps, long.stand_ins));
        }
    }
}
