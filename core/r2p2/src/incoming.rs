//! A message on its way in: packets put in order, whatever order they come in.

use crate::extension::AckPart;
use crate::wire::{Header, Malformed, PACKETS_MAX_EXTENDED, field};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;

/// Packets of one message.
///
/// What comes in order is appended; what is ahead waits beside. Memory follows what has come, never what a header
/// claims.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Incoming {
    #[serde(with = "serde_bytes")]
    message: Vec<u8>,
    /// Packets appended: the index of the next.
    next: u16,
    ahead: BTreeMap<u16, ByteBuf>,
    #[serde(skip)]
    ahead_bytes: usize,
    /// Known once the first or the last has come.
    count: Option<u16>,
    /// Packets since the last ACK.
    unacked: u16,
}

/// What a packet was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// New.
    New,
    /// Here already.
    Duplicate,
    /// Too far ahead to be kept.
    Beyond,
}

/// Packets ahead of the next that are kept: what an ACK can name.
const AHEAD_MAX: u16 = AckPart::BEYOND;
/// As many packets of the authors' endpoints may overtake each other: all of a message.
const AHEAD_MAX_COMPATIBLE: u16 = 254;
/// What one of those takes beside its bytes: its place in the tree, and an allocation.
const AHEAD_BYTES: usize = 64;
/// An ACK for so many packets in order.
const ACK_EVERY: u16 = 4;

impl Incoming {
    /// Takes a packet.
    ///
    /// # Errors
    /// [`Malformed`] if it contradicts the others.
    pub fn handle(&mut self, header: &Header, payload: &[u8], extended: bool) -> Result<Taken, Malformed> {
        let index = header.index();
        self.learn_count(header)?;
        if index < self.next || self.ahead.contains_key(&index) {
            self.unacked = ACK_EVERY;
            return Ok(Taken::Duplicate);
        }
        let most = if extended { AHEAD_MAX } else { AHEAD_MAX_COMPATIBLE };
        if index - self.next > most {
            return Ok(Taken::Beyond);
        }
        if index == self.next {
            self.append(payload);
            if !self.ahead.is_empty() {
                self.append_waiting();
            }
        } else {
            self.ahead_bytes += payload.len();
            self.ahead.insert(index, ByteBuf::from(payload));
            self.unacked = ACK_EVERY;
        }
        Ok(Taken::New)
    }

    /// Whether this first packet is, as far as anybody can tell, the one the message begins with.
    pub fn begins_with(&self, header: &Header, payload: &[u8]) -> bool {
        self.count == header.count() && self.message.starts_with(payload)
    }

    /// Whether every packet is there.
    pub fn is_complete(&self) -> bool {
        self.count == Some(self.next)
    }

    /// The message; leaves nothing.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.message)
    }

    /// Bytes of the message that are here.
    pub fn bytes(&self) -> usize {
        self.message.len() + self.ahead_bytes
    }

    /// Bytes held for it: packets that are ahead take room of their own.
    pub fn held_bytes(&self) -> usize {
        self.bytes() + self.ahead.len() * AHEAD_BYTES
    }

    /// Packets here in order.
    pub fn packets(&self) -> u16 {
        self.next
    }

    /// What to say to the sender, if it is time to.
    pub fn poll_ack(&mut self, of_reply: bool) -> Option<AckPart> {
        if self.unacked < ACK_EVERY && !self.is_complete() {
            return None;
        }
        Some(self.ack(of_reply))
    }

    /// What has arrived.
    pub fn ack(&mut self, of_reply: bool) -> AckPart {
        self.unacked = 0;
        let beyond = self.ahead.keys().filter_map(|index| {
            let bit = index.checked_sub(self.next)?.checked_sub(1)?;
            (bit < AckPart::BEYOND).then_some(1u128 << bit)
        });
        AckPart { of_reply, done: self.is_complete(), next: self.next, beyond: beyond.sum() }
    }

    /// Goes on with what another process had of it. `false` if that contradicts itself.
    pub fn take_up(&mut self) -> bool {
        self.ahead_bytes = self.ahead.values().map(|payload| payload.len()).sum();
        self.unacked = self.unacked.min(ACK_EVERY);
        let in_order = self.ahead.first_key_value().is_none_or(|(first, _)| *first > self.next);
        let packets_max = self.count.map_or(PACKETS_MAX_EXTENDED, usize::from);
        let within = self.ahead.last_key_value().is_none_or(|(last, _)| usize::from(*last) < packets_max);
        in_order
            && within
            && usize::from(self.next) <= packets_max
            && (self.next == 0 || self.count.is_some())
    }

    fn learn_count(&mut self, header: &Header) -> Result<(), Malformed> {
        let told = header.count();
        if let (Some(known), Some(told)) = (self.count, told)
            && known != told
        {
            return Err(field("packet count", told.into(), "what the message's other end says"));
        }
        let count = self.count.or(told);
        if count.is_some_and(|count| header.index() >= count || self.reached() > count) {
            return Err(field("packet index", header.index().into(), "below the packet count"));
        }
        self.count = count;
        Ok(())
    }

    /// One more than the highest index here.
    fn reached(&self) -> u16 {
        self.ahead.last_key_value().map_or(self.next, |(index, _)| index + 1)
    }

    fn append(&mut self, payload: &[u8]) {
        if self.message.is_empty() {
            // Most messages are one packet.
            self.message = payload.to_vec();
        } else {
            self.message.extend_from_slice(payload);
        }
        self.next += 1;
        self.unacked += 1;
    }

    fn append_waiting(&mut self) {
        while let Some(payload) = self.ahead.remove(&self.next) {
            self.ahead_bytes -= payload.len();
            self.append(&payload);
        }
    }
}
