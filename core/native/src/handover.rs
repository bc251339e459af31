//! A connection that goes on in another process: its state as data, and what is held against such data.
//!
//! The owner serialises a [`Connection`] whole, hands the socket over, and the other process reads it back
//! ([`Connection::take_up`]). Nothing is told to the peer, which cannot notice. Tokens and tags are the owner's names
//! and mean what they meant.
//!
//! What is read back may be anything. Whatever could make a later step panic or count wrong (sums that do not add up,
//! windows beyond the format's, ids that occur twice) is refused here, so that the rest of the room need not know.

use crate::caller::CALLERS_MAX;
use crate::connection::{Connection, Reading};
use crate::outgoing::WINDOW_SUM_MAX;
use crate::stream::{Partial, Stream};
use crate::table::Streams;
use crate::{Config, INPUT_BYTES_MIN};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::sync::Arc;

/// The state that was handed over contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of a connection is unsound: {0}")]
pub struct Unsound(pub &'static str);

/// More streams than the limits of both directions allow.
const STREAMS_MAX: usize = 2 * crate::Limits::STREAMS_MAX as usize;

impl Connection {
    /// Goes on with a connection that was read back, under the settings of this process. What was announced to the peer
    /// stays.
    ///
    /// # Errors
    /// [`Unsound`] if the state cannot be that of a connection.
    pub fn take_up(mut self, config: Arc<Config>) -> Result<Self, Unsound> {
        self.keepalive.set_times(config.keepalive_ns, config.keepalive_timeout_ns);
        self.config = config;
        self.audit().map_or(Ok(()), |why| Err(Unsound(why)))?;
        Ok(self)
    }

    /// Whether it can go on elsewhere: it has not failed.
    pub fn can_move(&self) -> bool {
        self.failed.is_none()
    }

    /// What is wrong with it: which count disagrees with what it counts, or is none a connection can have.
    pub fn audit(&self) -> Option<&'static str> {
        let limits = self.limits == self.limits.within_bounds();
        let windows = self.receive_window.left <= WINDOW_SUM_MAX
            && u64::from(self.receive_window.unreturned) <= WINDOW_SUM_MAX;
        let checks = [
            (limits, "limits"),
            (self.hello.is_some() != self.peer.is_some(), "handshake"),
            (windows, "receive window"),
            (self.carry.len() < INPUT_BYTES_MIN, "cut frame"),
            (self.outgoing.is_sound(&self.streams), "queues"),
            (self.streams.iter().all(is_sound), "stream"),
            (self.opened <= u64::MAX / 4, "streams opened"),
            (self.callers_made.max(self.callers_taken) <= CALLERS_MAX, "callers"),
            (self.reading_is_sound(), "message under way"),
        ];
        checks.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what)
    }

    fn reading_is_sound(&self) -> bool {
        let Reading::Body { stream, left } = self.reading else { return true };
        let partial = self.streams.find(stream).and_then(|stream| stream.partial);
        // All that is to hold is asked at once: here it may be that more was received than there is.
        let rest = |partial: Partial| partial.total.checked_sub(partial.received);
        partial.is_none_or(|partial| rest(partial).is_some_and(|rest| left <= rest))
    }
}

fn is_sound(stream: &Stream) -> bool {
    stream.id.0 != 0
        && stream.send_window <= WINDOW_SUM_MAX
        && stream.receive_window <= WINDOW_SUM_MAX
        && stream.ungranted <= u32::MAX / 2
        && stream.partial.is_none_or(|partial| partial.received <= partial.total)
}

impl Serialize for Streams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Streams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<Stream>::deserialize(deserializer)?;
        if list.len() > STREAMS_MAX {
            return Err(D::Error::custom("more streams than a connection can have"));
        }
        let mut streams = Self::new();
        for stream in list {
            if streams.find(stream.id).is_some() {
                return Err(D::Error::custom("two streams with one id"));
            }
            streams.insert(stream);
        }
        Ok(streams)
    }
}
