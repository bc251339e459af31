//! The fixed points at which a call is timed (seed 004 §3.1; docs/telemetry.md).

use crate::Instant;

/// The client host's stamps of one call. Zero means *not taken*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClientStamps {
    /// Stub entered.
    pub a0: Instant,
    /// Submission published.
    pub a1: Instant,
    /// Submission taken out of the ring by the daemon.
    pub d2: Instant,
    /// Policy done, endpoint picked, credit there.
    pub d3: Instant,
    /// The part of d2…d3 spent waiting (credit, pacing, a held queue), in nanoseconds.
    pub wait_ns: u64,
    /// Framed and queued at the connection.
    pub d4: Instant,
    /// Last byte left the host, by the kernel, which is asked of one write in a thousand.
    pub k6: Instant,
    /// Response first seen by the daemon, before it is read.
    pub k15: Instant,
    /// Response complete in the daemon.
    pub d16: Instant,
    /// Completion published.
    pub d17: Instant,
    /// Completion taken by the application.
    pub a18: Instant,
}

/// The server host's stamps of one call, on the server's clock. Zero means *not taken*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ServerStamps {
    /// Last segment first seen by the daemon, before it is read.
    pub k7: Instant,
    /// Message complete.
    pub d8: Instant,
    /// Checked and published to the application.
    pub d9: Instant,
    /// Taken by the application.
    pub a10: Instant,
    /// Response published by the application.
    pub a11: Instant,
    /// Response taken out of the ring by the daemon.
    pub d12: Instant,
    /// The part of d12…k14 spent waiting before admission, in nanoseconds.
    pub wait_ns: u64,
    /// Framed and queued at the connection.
    pub k14: Instant,
    /// Calls in the subtree the handler started, itself included.
    pub subtree: u32,
    /// CPU time the handler reported, in nanoseconds; 0 if unknown.
    pub cpu_ns: u64,
}

/// Size of the encoded [`ServerStamps`] in a response.
pub const SERVER_TRAILER_BYTES: usize = 64;

impl ServerStamps {
    /// Writes the trailer: k7 absolute, the rest as intervals so that they need few bytes.
    ///
    /// Layout, little endian: `u64 k7, u64 a10−d9, u64 a11−a10, u64 d12−a11, u64 wait, u64 cpu, u32 d8−k7, u32 d9−d8,
    /// u32 k14−d12−wait, u32 subtree`. An interval that does not fit its u32 (4.29 s inside the daemon) saturates; what
    /// is cut off is booked as wire time, and the nine components still sum to the completion time.
    pub fn encode(&self) -> [u8; SERVER_TRAILER_BYTES] {
        let mut out = [0; SERVER_TRAILER_BYTES];
        let longs = [
            self.k7.0,
            self.a10.since_ns(self.d9),
            self.a11.since_ns(self.a10),
            self.d12.since_ns(self.a11),
            self.wait_ns,
            self.cpu_ns,
        ];
        let work_ns = self.k14.since_ns(self.d12).saturating_sub(self.wait_ns);
        let shorts = [
            short(self.d8.since_ns(self.k7)),
            short(self.d9.since_ns(self.d8)),
            short(work_ns),
            self.subtree,
        ];
        let (long_bytes, short_bytes) = out.split_at_mut(48);
        for (slot, value) in long_bytes.chunks_exact_mut(8).zip(longs) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        for (slot, value) in short_bytes.chunks_exact_mut(4).zip(shorts) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Moves k14 of a trailer to `k14`, when it leaves. Earlier than what it says before it, it cannot be.
    pub fn sent_at(trailer: &mut [u8; SERVER_TRAILER_BYTES], k14: Instant) {
        let stamps = Self::decode(trailer);
        let work_ns = k14.since_ns(stamps.d12).saturating_sub(stamps.wait_ns);
        trailer[WORK_AT..WORK_AT + 4].copy_from_slice(&short(work_ns).to_le_bytes());
    }

    /// Reads a trailer. Any 64 bytes decode; wild values saturate and are clipped by whoever adds them up.
    pub fn decode(bytes: &[u8; SERVER_TRAILER_BYTES]) -> Self {
        let long = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| bytes[i * 8 + k]));
        let short = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| bytes[48 + i * 4 + k]));
        let k7 = Instant(long(0));
        let d8 = k7.plus_ns(short(0).into());
        let d9 = d8.plus_ns(short(1).into());
        let a10 = d9.plus_ns(long(1));
        let a11 = a10.plus_ns(long(2));
        let d12 = a11.plus_ns(long(3));
        let k14 = d12.plus_ns(long(4)).plus_ns(short(2).into());
        Self { k7, d8, d9, a10, a11, d12, wait_ns: long(4), k14, subtree: short(3), cpu_ns: long(5) }
    }
}

/// Where k14−d12−wait lies in a trailer.
const WORK_AT: usize = 56;

fn short(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that a trailer carries every stamp and that hostile trailers decode.
    use super::*;

    #[test]
    fn trailer_round_trip() {
        let at = |ns: u64| Instant(1_000_000 + ns);
        let stamps = ServerStamps {
            k7: at(0),
            d8: at(10),
            d9: at(25),
            a10: at(60_000),
            a11: at(9_000_000_000),
            d12: at(9_000_000_100),
            wait_ns: 5_000_000,
            k14: at(9_005_000_400),
            subtree: 3,
            cpu_ns: 777,
        };
        assert_eq!(ServerStamps::decode(&stamps.encode()), stamps);
    }

    #[test]
    fn a_trailer_leaves_later_than_it_was_written() {
        let at = |ns: u64| Instant(1_000_000 + ns);
        let (k7, a10, a11, d12) = (at(0), at(50), at(70), at(75));
        let stamps = ServerStamps {
            k7,
            d8: k7,
            d9: k7,
            a10,
            a11,
            d12,
            wait_ns: 5,
            k14: at(90),
            subtree: 1,
            cpu_ns: 2,
        };
        let mut trailer = stamps.encode();
        ServerStamps::sent_at(&mut trailer, at(7_000));
        assert_eq!(ServerStamps::decode(&trailer), ServerStamps { k14: at(7_000), ..stamps });
        ServerStamps::sent_at(&mut trailer, at(3));
        assert_eq!(ServerStamps::decode(&trailer), ServerStamps { k14: at(80), ..stamps }, "behind its wait");
        let mut wild = [0xff; SERVER_TRAILER_BYTES];
        ServerStamps::sent_at(&mut wild, at(0));
    }

    #[test]
    fn wild_trailers_decode() {
        let wild = ServerStamps::decode(&[0xff; SERVER_TRAILER_BYTES]);
        assert_eq!(wild.k14, Instant(u64::MAX));
    }
}
