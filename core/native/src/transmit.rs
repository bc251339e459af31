//! What leaves for the socket, what the socket may read straight into place, and what is left when it is gone.

use crate::body::Chunk;
use crate::connection::{Connection, Reading};
use crate::event::Event;
use crate::stream::{State, Stream};
use crate::{Notice, ProtocolError, StreamId};
use trunkline_call::Instant;

/// The next bytes of the socket belong to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whose.
    pub stream: StreamId,
    /// The owner's name for the stream.
    pub tag: u64,
    /// Where in the message the first of them belongs.
    pub offset: u32,
    /// How many; behind them the next frame begins.
    pub bytes: u32,
}

/// A call whose first message is at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSent {
    /// The owner's name for it.
    pub tag: u64,
    /// When the write began that took its last byte.
    pub at: Instant,
    /// Nothing was written behind it.
    pub is_last: bool,
}

impl Connection {
    // LIFE: 11
    /// What to write next, in order: about `max_bytes`, and at least one frame if there is one. A gather list may use
    /// any number of chunks from the front. Give no other command until [`Connection::transmitted`] says what was taken
    /// — or do: what is added later is not counted as shown.
    pub fn poll_transmit(&mut self, now: Instant, max_bytes: usize) -> impl Iterator<Item = Chunk<'_>> {
        let limit = self.config.stream_queue_bytes_max;
        let notices = &mut self.notices;
        let budget = (max_bytes as u64).saturating_sub(self.outgoing.prompt_bytes());
        self.outgoing.schedule(now, &mut self.streams, budget, |stream| {
            if stream.refused && stream.queued_bytes <= limit / 2 {
                stream.refused = false;
                notices.push_back(Notice::StreamWritable { stream: stream.id, tag: stream.tag });
            }
        });
        self.shown_at = now;
        self.outgoing.show(now)
    }

    /// The socket took `bytes` of what [`Connection::poll_transmit`] showed.
    ///
    /// # Panics
    /// If that is more than was shown.
    pub fn transmitted(&mut self, bytes: usize) {
        let (streams, notices) = (&mut self.streams, &mut self.notices);
        self.outgoing.take(bytes, |left| {
            if let Some(token) = left.done {
                notices.push_back(Notice::BodyDone { token });
            }
            if let Some(stream) = left.stream.and_then(|id| streams.find_mut(id)) {
                stream.units = stream.units.saturating_sub(1);
            }
        });
        if self.queue_refused && self.send_queue_bytes() <= self.config.queue_bytes_max / 2 {
            self.queue_refused = false;
            self.notices.push_back(Notice::Writable);
        }
    }

    /// A call opened here whose first message has reached the socket. Each once; ask after [`Connection::transmitted`].
    pub fn poll_sent(&mut self) -> Option<CallSent> {
        let (tag, is_last) = self.outgoing.poll_sent()?;
        Some(CallSent { tag, at: self.shown_at, is_last })
    }

    /// Whether there is something to write now.
    pub fn wants_write(&self) -> bool {
        self.outgoing.has_work()
    }

    /// Bytes that have not reached the socket, shared ranges and blocked streams included.
    pub fn send_queue_bytes(&self) -> u64 {
        self.outgoing.bytes()
    }

    /// Where the next bytes of the socket belong, if they belong to a long message: the host may read them straight
    /// into place instead of into the read buffer, and report it with [`Connection::placed`]. Ask when the input is
    /// used up.
    pub fn wanted(&self) -> Option<Placement> {
        let Reading::Body { stream, left } = self.reading else { return None };
        // A checksum has to see the bytes, so they come through the read buffer.
        if self.failed.is_some() || self.check.is_some() {
            return None;
        }
        let found = self.streams.find(stream)?;
        let offset = found.partial?.received;
        Some(Placement { stream, tag: found.tag, offset, bytes: left })
    }

    /// The host has read `bytes` of what is [`Connection::wanted`] into place. Returns a [`Event::Chunk`] without bytes
    /// if they complete the message.
    ///
    /// # Panics
    /// If that is more than was wanted.
    pub fn placed(&mut self, now: Instant, bytes: u32) -> Option<Event<'static>> {
        if bytes == 0 {
            return None;
        }
        self.keepalive.heard(now);
        let Reading::Body { stream, left } = self.reading else { panic!("no body is wanted") };
        assert!(bytes <= left, "{bytes} bytes placed, {left} wanted");
        let (tag, offset, last) = self.advance_body(stream, left, bytes)?;
        last.then_some(Event::Chunk { stream, tag, offset, bytes: &[], last })
    }

    /// The socket is gone. Every open stream ends with a notice that says what is known of it, every shared body is
    /// given back; the connection is of no further use.
    ///
    /// A call opened here was *not executed* if the last byte of its CALL and first message never reached the socket:
    /// a peer starts no handler before it has both (docs/native-protocol.md, "At most once"). Else it is *unknown*.
    pub fn lost(&mut self) {
        let (prompt, bulk) = self.outgoing.taken();
        let ids: Vec<StreamId> = self.streams.iter().map(|stream| stream.id).collect();
        for stream in ids {
            let Some(mut found) = self.streams.remove(stream) else { continue };
            self.outgoing.purge(&mut found, &mut self.notices);
            self.notices.extend(ended_notice(&found, prompt, bulk));
        }
        self.notices.extend(self.outgoing.tokens().map(|token| Notice::BodyDone { token }));
        self.outgoing.clear();
        self.failed.get_or_insert(ProtocolError::Closed);
    }
}

fn ended_notice(stream: &Stream, prompt_taken: u64, bulk_taken: u64) -> Option<Notice> {
    let (id, tag) = (stream.id, stream.tag);
    match stream.state {
        State::Sending | State::Sent => {
            let execution = stream.execution(prompt_taken, bulk_taken);
            Some(Notice::Ended { stream: id, tag, execution })
        }
        State::Receiving | State::Received => Some(Notice::Orphaned { stream: id, tag }),
        State::Finishing => None,
    }
}
