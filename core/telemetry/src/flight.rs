//! A finished call as it is kept and counted: 80 bytes.

use crate::component::{Component, Components, Coverage, StampSet};
use crate::record::{Record, Side};
use crate::{MethodIndex, PeerIndex};
use trunkline_call::{Code, Instant};

/// One recorded call, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightRow {
    /// When it ended.
    pub at: Instant,
    /// Which end this host was.
    pub side: Side,
    /// The method.
    pub method: MethodIndex,
    /// The other host.
    pub peer: PeerIndex,
    /// How it ended.
    pub code: Code,
    /// Where its time went. A part of a call longer than 4.29 s is exact to one in 2³¹ of the call.
    pub components: Components,
    /// Request message bytes, at most `u32::MAX`.
    pub request_bytes: u32,
    /// Response message bytes, at most `u32::MAX`.
    pub response_bytes: u32,
    /// Processor time of the handler, at most 4.29 s; 0 if it told none.
    pub cpu_ns: u32,
    /// Calls below this one, itself included; 0 if nobody told.
    pub subtree: u32,
    /// How much the two wires may have to give each other; `u32::MAX` if nothing is known of the other clock.
    pub half_width_ns: u32,
    /// It was among the slowest twentieth of its method when it ended.
    pub slow: bool,
    /// It streamed.
    pub is_stream: bool,
    /// Calls it stands for, itself included: others that came too fast to be written down.
    pub stands_for: u16,
}

/// A row as it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub at: u64,
    /// Nine components and their sum, nanoseconds >> `shift`; then the bytes of request and response.
    pub amounts: [u32; Self::AMOUNTS],
    pub method: u32,
    /// Bits 0…16 stand-ins, 17 kernel sent, 18 slow, 19 clipped, 20 stream, 21…25 code, 26…31 shift.
    pub bits: u32,
    pub cpu_ns: u32,
    pub subtree: u32,
    pub half_width_ns: u32,
    pub peer: u16,
    /// Bits 0…2 coverage, 3…4 side, 5…15 calls it stands for beside itself.
    pub ends: u16,
}

const _: () = assert!(size_of::<Flight>() == 80);

impl Flight {
    /// Where among the amounts the completion time is.
    pub const TOTAL: usize = Component::COUNT;
    /// Where the bytes of the request are.
    pub const REQUEST_BYTES: usize = Self::TOTAL + 1;
    /// Where the bytes of the response are.
    pub const RESPONSE_BYTES: usize = Self::TOTAL + 2;
    /// How many there are.
    pub const AMOUNTS: usize = Self::TOTAL + 3;

    pub const KERNEL_SENT: u32 = 1 << 17;
    pub const SLOW: u32 = 1 << 18;
    pub const CLIPPED: u32 = 1 << 19;
    pub const STREAM: u32 = 1 << 20;
    /// Zero for OK.
    pub const CODE: u32 = 31 << 21;
    const OTHERS_SHIFT: u32 = 5;
    const OTHERS_MAX: u32 = u16::MAX as u32 >> Self::OTHERS_SHIFT;
    const ENDS: u16 = (1 << Self::OTHERS_SHIFT) - 1;

    /// One that says nothing.
    #[cfg(test)]
    pub const VACANT: Self = Self {
        at: 0,
        amounts: [0; Self::AMOUNTS],
        method: 0,
        bits: 0,
        cpu_ns: 0,
        subtree: 0,
        half_width_ns: 0,
        peer: 0,
        ends: 0,
    };

    /// Packs a call, and says whether nothing of it was cut off. `half_width_ns` is how well the other host's clock is
    /// known.
    #[inline]
    pub fn pack(
        at: Instant,
        record: &Record,
        parts: &Components,
        total_ns: u64,
        half_width_ns: u64,
    ) -> (Self, bool) {
        let (cpu_ns, subtree) = record.server.as_ref().map_or((0, 0), |told| (told.cpu_ns, told.subtree));
        let (request_bytes, response_bytes) = (record.request_bytes, record.response_bytes);
        let wide = (total_ns | request_bytes | response_bytes | cpu_ns | half_width_ns) >> u32::BITS;
        let mut amounts = [0; Self::AMOUNTS];
        for (amount, ns) in amounts.iter_mut().zip(parts.ns) {
            *amount = ns as u32;
        }
        amounts[Self::TOTAL] = total_ns as u32;
        amounts[Self::REQUEST_BYTES] = request_bytes as u32;
        amounts[Self::RESPONSE_BYTES] = response_bytes as u32;
        let bits = parts.stand_ins.bits()
            | (u32::from(parts.kernel_sent) * Self::KERNEL_SENT)
            | (u32::from(parts.clipped) * Self::CLIPPED)
            | (u32::from(record.is_stream) * Self::STREAM)
            | u32::from(record.code.number()) << 21;
        let mut flight = Self {
            at: at.0,
            amounts,
            method: record.method.0,
            bits,
            cpu_ns: cpu_ns as u32,
            subtree,
            half_width_ns: half_width_ns as u32,
            peer: record.peer.0 as u16,
            ends: parts.coverage as u16 | (record.side as u16) << 3,
        };
        if wide != 0 {
            flight.cut(record, parts, total_ns, half_width_ns);
        }
        (flight, wide == 0)
    }

    /// Something of the call does not fit: durations lose their last bits, all of them as many.
    #[cold]
    fn cut(&mut self, record: &Record, parts: &Components, total_ns: u64, half_width_ns: u64) {
        let shift = (u64::BITS - total_ns.leading_zeros()).saturating_sub(u32::BITS);
        for (amount, ns) in self.amounts.iter_mut().zip(parts.ns.into_iter().chain([total_ns])) {
            *amount = (ns >> shift) as u32;
        }
        self.amounts[Self::REQUEST_BYTES] = narrow(record.request_bytes);
        self.amounts[Self::RESPONSE_BYTES] = narrow(record.response_bytes);
        self.bits |= shift << 26;
        self.cpu_ns = narrow(record.server.map_or(0, |server| server.cpu_ns));
        self.half_width_ns = narrow(half_width_ns);
    }

    /// The same, standing for so many calls, itself included.
    pub fn standing_for(self, calls: u32) -> Self {
        let others = calls.saturating_sub(1).min(Self::OTHERS_MAX);
        Self { ends: self.ends & Self::ENDS | (others as u16) << Self::OTHERS_SHIFT, ..self }
    }

    /// Calls it stands for, itself included.
    pub fn stands_for(&self) -> u16 {
        (self.ends >> Self::OTHERS_SHIFT) + 1
    }

    /// A row that was one before.
    pub fn of(row: &FlightRow) -> Self {
        let parts = &row.components;
        let total_ns = parts.total_ns();
        let shift = (u64::BITS - total_ns.leading_zeros()).saturating_sub(u32::BITS);
        let mut amounts = [0; Self::AMOUNTS];
        for (amount, ns) in amounts.iter_mut().zip(parts.ns.into_iter().chain([total_ns])) {
            *amount = (ns >> shift) as u32;
        }
        amounts[Self::REQUEST_BYTES] = row.request_bytes;
        amounts[Self::RESPONSE_BYTES] = row.response_bytes;
        let bits = parts.stand_ins.bits()
            | (u32::from(parts.kernel_sent) * Self::KERNEL_SENT)
            | (u32::from(row.slow) * Self::SLOW)
            | (u32::from(parts.clipped) * Self::CLIPPED)
            | (u32::from(row.is_stream) * Self::STREAM)
            | u32::from(row.code.number()) << 21
            | shift << 26;
        Self {
            at: row.at.0,
            amounts,
            method: row.method.0,
            bits,
            cpu_ns: row.cpu_ns,
            subtree: row.subtree,
            half_width_ns: row.half_width_ns,
            peer: row.peer.0 as u16,
            ends: parts.coverage as u16 | (row.side as u16) << 3,
        }
        .standing_for(row.stands_for.into())
    }

    /// The number of its status.
    pub fn code(&self) -> u16 {
        ((self.bits & Self::CODE) >> 21) as u16
    }

    pub fn unpack(&self) -> FlightRow {
        let shift = self.bits >> 26;
        let components = Components {
            ns: std::array::from_fn(|part| u64::from(self.amounts[part]) << shift),
            coverage: of(&Coverage::ALL, self.ends & 7),
            kernel_sent: self.bits & Self::KERNEL_SENT != 0,
            stand_ins: StampSet::from_bits(self.bits),
            clipped: self.bits & Self::CLIPPED != 0,
            ..Components::default()
        };
        FlightRow {
            at: Instant(self.at),
            side: of(&Side::ALL, (self.ends & Self::ENDS) >> 3),
            method: MethodIndex(self.method),
            peer: PeerIndex(self.peer.into()),
            code: Code::from_number(self.code()),
            components,
            request_bytes: self.amounts[Self::REQUEST_BYTES],
            response_bytes: self.amounts[Self::RESPONSE_BYTES],
            cpu_ns: self.cpu_ns,
            subtree: self.subtree,
            half_width_ns: self.half_width_ns,
            slow: self.bits & Self::SLOW != 0,
            stands_for: self.stands_for(),
            is_stream: self.bits & Self::STREAM != 0,
        }
    }
}

/// The value with this number.
fn of<T: Copy>(all: &[T], number: u16) -> T {
    all[usize::from(number).min(all.len() - 1)]
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that a row comes back as it went in, and that it says when something was cut off.
    use super::*;
    use crate::component::Stamp;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back(
            ns in prop::array::uniform9(0..=u64::MAX / 9),
            small in any::<bool>(),
            code in 0..17_u16,
            clipped in any::<bool>(),
            side in prop::sample::select(&Side::ALL),
            coverage in prop::sample::select(&Coverage::ALL),
            request_bytes in prop::sample::select(&[7, 1 << 40]),
        ) {
            let ns = if small { ns.map(|ns| ns % (1 << 28)) } else { ns };
            let mut stand_ins = StampSet::default();
            stand_ins.insert(Stamp::A0);
            stand_ins.insert(Stamp::A18);
            let kernel_sent = !clipped;
            let parts = Components { ns, coverage, clipped, kernel_sent, stand_ins, ..Components::default() };
            let record = Record {
                side,
                method: MethodIndex(7),
                peer: PeerIndex(9),
                code: Code::from_number(code),
                request_bytes,
                response_bytes: 8,
                client: Default::default(),
                server: None,
                is_stream: small,
            };
            let total = parts.total_ns();
            let (flight, is_exact) = Flight::pack(Instant(5), &record, &parts, total, 3);
            prop_assert_eq!(is_exact, total < 1 << 32 && request_bytes == 7);
            let row = flight.unpack();
            prop_assert_eq!((row.side, row.code, row.at), (side, Code::from_number(code), Instant(5)));
            prop_assert_eq!((row.method, row.peer), (MethodIndex(7), PeerIndex(9)));
            prop_assert_eq!((row.request_bytes, row.response_bytes), (narrow(request_bytes), 8));
            prop_assert_eq!((row.half_width_ns, row.slow, row.is_stream), (3, false, small));
            prop_assert_eq!(Flight::of(&row).unpack(), row, "and once more");
            let back = row.components;
            prop_assert_eq!((back.coverage, back.clipped, back.stand_ins), (coverage, clipped, stand_ins));
            prop_assert_eq!(back.kernel_sent, kernel_sent);
            for (kept, exact) in back.ns.into_iter().zip(ns) {
                prop_assert!(exact - kept <= total >> 31, "{} for {}", kept, exact);
                prop_assert!(!small || kept == exact);
            }
        }
    }
}
