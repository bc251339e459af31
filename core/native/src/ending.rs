//! How a connection comes to its end: GO-AWAY of either side, CLOSE, or a fault.

use crate::ProtocolError;
use trunkline_call::Instant;

/// How far the connection is on its way out.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ending {
    /// This side said GO-AWAY: calls opened above this stream are not taken; open ones end by the instant.
    said: Option<(u32, Instant)>,
    /// The peer said it.
    heard: bool,
    /// CLOSE is queued, or came: nothing follows.
    closed: bool,
    /// What every later piece of input is answered with.
    #[serde(skip)]
    failed: Option<ProtocolError>,
}

impl Ending {
    /// This side says GO-AWAY; `false` if it has said so, or CLOSE.
    pub fn leave(&mut self, newest: u32, until: Instant) -> bool {
        if self.said.is_some() || self.closed {
            return false;
        }
        self.said = Some((newest, until));
        true
    }

    /// The peer said GO-AWAY.
    pub fn heard_go_away(&mut self) {
        self.heard = true;
    }

    /// CLOSE is said, here or there; `false` if it was before.
    pub fn close(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.closed, true);
        if is_first {
            self.failed = Some(ProtocolError::Closed);
        }
        is_first
    }

    /// The peer's CLOSE is the last that is told of it.
    pub fn heard_close(&mut self) {
        self.closed = true;
        self.failed = Some(ProtocolError::Closed);
    }

    /// The connection is of no use any more.
    pub fn fail(&mut self, error: ProtocolError) {
        self.failed = Some(error);
    }

    /// The socket is gone. A fault that was there before stays.
    pub fn lost(&mut self) {
        self.failed.get_or_insert(ProtocolError::Closed);
    }

    /// Why nothing is taken any more.
    pub fn failed(&self) -> Option<&ProtocolError> {
        self.failed.as_ref()
    }

    /// Whether nothing may be said any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether this side has said that it takes no new calls.
    pub fn has_said_go_away(&self) -> bool {
        self.said.is_some()
    }

    /// Whether one of the two has said that it takes no new calls.
    pub fn is_going_away(&self) -> bool {
        self.said.is_some() || self.heard
    }

    /// Whether no new call is opened or taken.
    pub fn is_draining(&self) -> bool {
        self.failed.is_some() || self.closed || self.is_going_away()
    }

    /// When the streams that are open must have ended.
    pub fn give_up_at(&self) -> Option<Instant> {
        self.said.map(|(_, until)| until)
    }
}
