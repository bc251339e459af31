//! Flow control on the receiving side: what the peer may still send on the connection, and giving it back.

use crate::ProtocolError;
use crate::frame::Arrival;
use crate::wire::WINDOW_SUM_MAX;

/// What the peer may still send on the connection, and what it has not been told it may.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct ReceiveWindow {
    pub left: u64,
    pub unreturned: u32,
}

/// Message bytes the connection's windows hold, apart from the streams' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// This side may send.
    pub send_bytes: u64,
    /// The peer may send.
    pub receive_bytes: u64,
    /// Handed up, and not yet given back to the peer.
    pub unreturned_bytes: u32,
}

impl ReceiveWindow {
    pub fn new(bytes: u32) -> Self {
        Self { left: bytes.into(), unreturned: 0 }
    }

    /// Takes a message frame's bytes off, whether its stream is wanted or not.
    pub fn charge(&mut self, arrival: &Arrival<'_>) -> Result<(), ProtocolError> {
        let left = self.left.checked_sub(arrival.cost_bytes());
        self.left =
            left.ok_or_else(|| overrun(arrival, "cost against the connection's window", self.left))?;
        Ok(())
    }

    /// Gives bytes back that have been handed up, or dropped. Returns what the peer is to be told it may send: nothing
    /// until that is worth a frame, a quarter of a window of `bytes_max`.
    #[must_use]
    pub fn give_back(&mut self, bytes: u32, bytes_max: u32) -> Option<u32> {
        self.unreturned += bytes;
        if self.unreturned < bytes_max / 4 {
            return None;
        }
        let told = std::mem::take(&mut self.unreturned);
        self.left += u64::from(told);
        Some(told)
    }

    /// Whether it is one a connection can have.
    pub fn is_sound(&self) -> bool {
        self.left <= WINDOW_SUM_MAX && u64::from(self.unreturned) <= WINDOW_SUM_MAX
    }
}

/// A frame costs more than its window has left.
pub(crate) fn overrun(arrival: &Arrival<'_>, field: &'static str, left: u64) -> ProtocolError {
    let (frame, stream) = (arrival.header.frame, arrival.header.stream);
    ProtocolError::Limit { frame, stream, field, value: arrival.cost_bytes(), limit: left }
}
