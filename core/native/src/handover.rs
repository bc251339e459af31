//! A connection that goes on in another process: its state as data.
//!
//! The owner serialises a [`Connection`] whole, hands the socket over, and the other process reads it back
//! ([`Connection::take_up`]). Nothing is told to the peer, which cannot notice. Tokens and tags are the owner's names
//! and mean what they meant.
//!
//! What is written is one list of fields, whoever owns them: another build may have other owners, and reads the same.
//!
//! What is read back may be anything. Whatever could make a later step panic or count wrong (sums that do not add up,
//! windows beyond the format's, ids that occur twice) is refused, here or by [`Connection::audit`], so that the rest of
//! the room need not know.

use crate::announced::AnnouncedNames;
use crate::checksum::Check;
use crate::connection::Connection;
use crate::ending::Ending;
use crate::handshake::Handshake;
use crate::hello::{AwaitHello, Peer};
use crate::keepalive::Keepalive;
use crate::methods::Methods;
use crate::outgoing::Outgoing;
use crate::reader::{FrameReader, Reading};
use crate::stream::Stream;
use crate::stream_id::StreamIds;
use crate::table::Streams;
use crate::window::ReceiveWindow;
use crate::{Config, Limits, Notice, Side};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::collections::VecDeque;
use std::sync::Arc;

/// More streams than the limits of both directions allow.
const STREAMS_MAX: usize = 2 * Limits::STREAMS_MAX as usize;

/// What is written of a connection.
#[derive(Serialize)]
struct Written<'a> {
    limits: &'a Limits,
    side: Side,
    hello: Option<&'a AwaitHello>,
    peer: Option<&'a Peer>,
    streams: &'a Streams,
    opened: u64,
    newest_taken: u32,
    methods_made: &'a Methods,
    methods_taken: &'a Methods,
    callers_made: u16,
    callers_taken: u16,
    outgoing: &'a Outgoing,
    receive_window: &'a ReceiveWindow,
    reading: Reading,
    check: &'a Option<Check>,
    #[serde(with = "serde_bytes")]
    carry: &'a [u8],
    notices: &'a VecDeque<Notice>,
    queue_refused: bool,
    keepalive: &'a Keepalive,
    ending: &'a Ending,
    ignored_frames: u64,
}

/// What is read of it.
#[derive(Deserialize)]
struct Read {
    limits: Limits,
    side: Side,
    hello: Option<AwaitHello>,
    peer: Option<Peer>,
    streams: Vec<Stream>,
    opened: u64,
    newest_taken: u32,
    methods_made: Methods,
    methods_taken: Methods,
    #[serde(default)]
    callers_made: u16,
    #[serde(default)]
    callers_taken: u16,
    outgoing: Outgoing,
    receive_window: ReceiveWindow,
    reading: Reading,
    check: Option<Check>,
    #[serde(with = "serde_bytes")]
    carry: Vec<u8>,
    notices: VecDeque<Notice>,
    queue_refused: bool,
    keepalive: Keepalive,
    ending: Ending,
    ignored_frames: u64,
}

impl Serialize for Connection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hello = match &self.handshake {
            Handshake::Awaiting(hello) => Some(hello),
            Handshake::Met(_) | Handshake::Failed => None,
        };
        let StreamIds { side, opened, newest_taken } = self.streams.ids;
        let written = Written {
            limits: &self.limits,
            side,
            hello,
            peer: self.handshake.peer(),
            streams: &self.streams,
            opened,
            newest_taken,
            methods_made: &self.made.methods,
            methods_taken: &self.taken.methods,
            callers_made: self.made.callers,
            callers_taken: self.taken.callers,
            outgoing: &self.outgoing,
            receive_window: &self.window,
            reading: self.reader.reading,
            check: &self.reader.check,
            carry: &self.reader.carry,
            notices: &self.outgoing.notices,
            queue_refused: self.outgoing.refused,
            keepalive: &self.keepalive,
            ending: &self.ending,
            ignored_frames: self.reader.ignored_frames,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Connection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        let Read { side, opened, newest_taken, reading, check, carry, ignored_frames, .. } = read;
        let streams =
            streams(StreamIds { side, opened, newest_taken }, read.streams).map_err(D::Error::custom)?;
        let handshake = match (read.hello, read.peer) {
            (Some(hello), None) => Handshake::Awaiting(hello),
            (None, Some(peer)) => Handshake::Met(peer),
            // Refused when the connection is taken up.
            (Some(_), Some(_)) | (None, None) => Handshake::Failed,
        };
        let mut outgoing = read.outgoing;
        (outgoing.notices, outgoing.refused) = (read.notices, read.queue_refused);
        Ok(Self {
            config: Arc::new(Config::default()),
            limits: read.limits,
            handshake,
            streams,
            made: AnnouncedNames { methods: read.methods_made, callers: read.callers_made },
            taken: AnnouncedNames { methods: read.methods_taken, callers: read.callers_taken },
            outgoing,
            reader: FrameReader { reading, check, carry, ignored_frames },
            window: read.receive_window,
            keepalive: read.keepalive,
            ending: read.ending,
        })
    }
}

impl Serialize for Streams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

fn streams(ids: StreamIds, list: Vec<Stream>) -> Result<Streams, &'static str> {
    if list.len() > STREAMS_MAX {
        return Err("more streams than a connection can have");
    }
    let mut streams = Streams::new(ids);
    for stream in list {
        if streams.find(stream.id).is_some() {
            return Err("two streams with one id");
        }
        streams.insert(stream);
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    //! Shows that what is written does not depend on who owns it.
    use super::*;
    use trunkline_call::Instant;

    #[test]
    fn the_fields_of_the_format_are_these() {
        let connection = Connection::new(Side::Acceptor, Arc::new(Config::default()), Instant(7));
        let written = serde_json::to_value(&connection).unwrap();
        let names = |value: &serde_json::Value| {
            value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names(&written),
            "callers_made callers_taken carry check ending hello ignored_frames keepalive limits methods_made \
             methods_taken newest_taken notices opened outgoing peer queue_refused reading receive_window side streams"
        );
        assert_eq!(
            names(&written["outgoing"]),
            "bulk pending_bytes prompt ready segment_bytes shown_end unsent_bulk unsent_prompt window"
        );
        assert_eq!(names(&written["ending"]), "closed heard said");
        let read: Connection = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), written, "and is read back whole");
    }
}
