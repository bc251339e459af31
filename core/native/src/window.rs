//! Flow control on the receiving side: what the peer may still send, and giving it back.

use crate::connection::Connection;
use crate::frame_type::FrameType;
use crate::outgoing::WINDOW_SUM_MAX;
use crate::receive::Arrival;
use crate::stream::{State, cost_bytes};
use crate::{Limits, ProtocolError, StreamId};

impl Connection {
    /// Lets the peer send `bytes` more on a stream: what the application has consumed.
    ///
    /// A message costs its bytes, and [`crate::MESSAGE_COST_BYTES`] more if it is not the call's first or the result.
    /// Small grants are collected: the peer is told when they are a quarter of the initial window. On a stream that is
    /// gone, or whose peer has sent all it will, this does nothing.
    pub fn grant(&mut self, stream: StreamId, bytes: u32) {
        let threshold = self.limits.stream_window_bytes / 4;
        let Some(found) = self.streams.find_mut(stream) else { return };
        if matches!(found.state, State::Received | State::Finishing) {
            return;
        }
        let room = WINDOW_SUM_MAX - found.receive_window - u64::from(found.ungranted);
        found.ungranted +=
            (u64::from(bytes).min(room) as u32).min(Limits::WINDOW_BYTES_MAX - found.ungranted);
        if found.ungranted >= threshold.max(1) {
            let told = std::mem::take(&mut found.ungranted);
            found.receive_window += u64::from(told);
            self.control(FrameType::Window, 0, stream.0, &told.to_le_bytes());
        }
    }

    /// Lets the peer finish a long message of which at most `bytes` have yet to come, however little it may send: what
    /// is missing is granted and told at once, for nothing is consumed before the message is complete.
    ///
    /// Returns how much was granted ahead. It is not to be granted again when the message has been consumed; else long
    /// messages would be under no flow control at all.
    #[must_use]
    pub fn make_room(&mut self, stream: StreamId, bytes: u32) -> u32 {
        let Some(found) = self.streams.find_mut(stream) else { return 0 };
        let bytes = bytes.min(Limits::WINDOW_BYTES_MAX);
        let missing = u64::from(bytes).saturating_sub(found.receive_window) as u32;
        if missing == 0 || matches!(found.state, State::Received | State::Finishing) {
            return 0;
        }
        let ahead = missing.saturating_sub(found.ungranted);
        let told = ahead + std::mem::take(&mut found.ungranted);
        found.receive_window += u64::from(told);
        self.control(FrameType::Window, 0, stream.0, &told.to_le_bytes());
        ahead
    }

    /// Takes a message frame's bytes off the connection's window, whether its stream is wanted or not.
    pub(crate) fn charge_connection(&mut self, arrival: &Arrival<'_>) -> Result<(), ProtocolError> {
        let bytes = arrival.cost_bytes();
        let left = self.receive_window.left;
        self.receive_window.left =
            left.checked_sub(bytes).ok_or_else(|| overrun(arrival, "connection", left))?;
        Ok(())
    }

    /// Takes a message frame's bytes off its stream's window.
    pub(crate) fn charge_stream(&mut self, arrival: &Arrival<'_>) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.find_mut(StreamId(arrival.header.stream)) else { return Ok(()) };
        let left = stream.receive_window;
        stream.receive_window =
            left.checked_sub(arrival.cost_bytes()).ok_or_else(|| overrun(arrival, "stream", left))?;
        Ok(())
    }

    /// Gives bytes back to the connection's window: they have been handed up, or dropped.
    pub(crate) fn give_back(&mut self, bytes: u32) {
        self.receive_window.unreturned += bytes;
        if self.receive_window.unreturned >= self.limits.connection_window_bytes / 4 {
            let told = std::mem::take(&mut self.receive_window.unreturned);
            self.receive_window.left += u64::from(told);
            self.control(FrameType::Window, 0, 0, &told.to_le_bytes());
        }
    }
}

impl Arrival<'_> {
    /// What the frame costs the windows it is under.
    fn cost_bytes(&self) -> u64 {
        u64::from(self.body_bytes) + u64::from(cost_bytes(self.header.frame))
    }
}

fn overrun(arrival: &Arrival<'_>, whose: &'static str, left: u64) -> ProtocolError {
    let field = if whose == "stream" {
        "cost against the stream's window"
    } else {
        "cost against the connection's window"
    };
    let (frame, stream) = (arrival.header.frame, arrival.header.stream);
    ProtocolError::Limit { frame, stream, field, value: arrival.cost_bytes(), limit: left }
}
