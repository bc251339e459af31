//! One stream of a gRPC peer: what has come of it, what has left of it.

use super::replay::Replay;
use crate::packing::Arrived;
use crate::{CallKey, GrpcKey};
use bytes::Bytes;
use std::collections::VecDeque;
use trunkline_call::{Deadline, Instant, Pattern};
use trunkline_grpc::buffers::LongBuffers;
use trunkline_grpc::compress::{Accepts, Encoding};
use trunkline_grpc::framing::{Deframer, Framed, FramingFault, PREFIX_BYTES};
use trunkline_grpc::{Outcome, StreamTag};

/// Messages that wait to leave are counted as one up to this size, so that an empty one costs its five bytes. Their
/// senders hear a little later, by less than a packet, that they may send more.
const TOGETHER_BYTES_MAX: u64 = 1024;

/// What must come of an unfinished message between two looks: a slow line carries it in a second.
const MESSAGE_PROGRESS_BYTES: usize = 1024;

/// A stream of a gRPC connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WebStream {
    pub peer: GrpcKey,
    pub tag: StreamTag,
}

/// A stream and its call.
#[derive(Debug)]
pub(crate) struct GrpcStream {
    /// Whose it is; `None` once the call is over and only queued bytes are left to leave.
    pub call: Option<CallKey>,
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// A client's: others say that they have sent this call before.
    pub is_repeated: bool,
    /// A call made here: the request, until the server has shown that it has it.
    pub replay: Option<Replay>,
    /// Until when anybody wants what of its answer has not left, once the call is over.
    pub deadline: Deadline,
}

/// What the peer sends.
#[derive(Debug)]
pub(crate) struct Incoming {
    deframer: Deframer,
    pub encoding: Encoding,
    /// Whether more than one message may come.
    pub streams: bool,
    /// A unary request, which waits for its message: the metadata it came with.
    pub opening: Option<Vec<u8>>,
    /// The one message of a direction that does not stream, until that direction has ended.
    pub message: Option<Arrived>,
    /// The head of an answer has come (a call made here): its server has the request, whatever it says later.
    pub answered: bool,
    /// Its next message waits to be unpacked (`unpacking.rs`).
    pub unpacks_later: bool,
    /// How it ended, until that has been told to the call.
    pub ended: Option<Ending>,
    /// The peer sends nothing more that is looked at.
    pub over: bool,
    /// The head of an answer said all there is to hear, and did not end the stream.
    pub goes_on_unheard: bool,
    /// Bytes in the deframer that were given back to the sender's window already, because their message may
    /// not fit in it.
    ahead: usize,
    /// The same of complete messages since the application was last through with all of them.
    passed_ahead: usize,
    /// Bytes that still take of the window.
    pub unreleased: usize,
    /// What is held is part of a message, of which more is to come.
    unfinished: bool,
    /// Since when it is looked at whether that message goes on, and the bytes that came since; `None` if none is
    /// unfinished.
    goes_on: Option<(Instant, usize)>,
}

/// How a direction ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With the body's last byte.
    Body,
    /// With a status.
    Outcome(Outcome<'static>),
}

/// What was sent to the peer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub encoding: Encoding,
    /// What the peer says it can read.
    pub accepts: Accepts,
    /// What it is told that can be read here.
    pub reads: Accepts,
    /// The response's head has been sent.
    pub headed: bool,
    /// Nothing more will be sent.
    pub ended: bool,
    /// Bytes given to the connection that have not left.
    pub queued_bytes: u64,
    /// Messages among them, small ones together, with what their sender gets back when they have left: (bytes, credit).
    unsent: VecDeque<(u64, u32)>,
    /// Bytes that left and do not yet make up the first of `unsent`.
    sent_bytes: u64,
}

impl GrpcStream {
    /// A stream a client opened.
    pub fn taken(call: CallKey, pattern: Pattern, sent: Encoding, bytes_max: u32) -> Self {
        let incoming = Incoming::new(sent, pattern.client_streams(), bytes_max);
        Self::new(call, incoming, Outgoing::new(Encoding::Identity))
    }

    /// A stream opened here. What the server will send is known from its head.
    pub fn made(call: CallKey, pattern: Pattern, sends: Encoding, bytes_max: u32) -> Self {
        let incoming = Incoming::new(Encoding::Identity, pattern.server_streams(), bytes_max);
        Self::new(call, incoming, Outgoing::new(sends))
    }

    fn new(call: CallKey, incoming: Incoming, outgoing: Outgoing) -> Self {
        Self {
            call: Some(call),
            incoming,
            outgoing,
            is_repeated: false,
            replay: None,
            deadline: Deadline::NONE,
        }
    }
}

impl Incoming {
    fn new(encoding: Encoding, streams: bool, bytes_max: u32) -> Self {
        Self {
            deframer: Deframer::new(bytes_max as usize),
            encoding,
            streams,
            opening: None,
            message: None,
            answered: false,
            unpacks_later: false,
            ended: None,
            over: false,
            goes_on_unheard: false,
            ahead: 0,
            passed_ahead: 0,
            unreleased: 0,
            unfinished: false,
            goes_on: None,
        }
    }

    /// Takes body bytes in.
    pub fn push(&mut self, bytes: Bytes) {
        self.unreleased += bytes.len();
        self.unfinished = false;
        if let Some((_, came)) = &mut self.goes_on {
            *came += bytes.len();
        }
        self.deframer.push(bytes);
    }

    /// The next complete message, and what it takes of the sender's window.
    pub fn next(&mut self, buffers: &LongBuffers) -> Result<Option<(Framed, u32)>, FramingFault> {
        let Some(framed) = self.deframer.next_in(buffers)? else { return Ok(None) };
        self.goes_on = None;
        let bytes = framed.bytes.len() + PREFIX_BYTES;
        let ahead = std::mem::take(&mut self.ahead);
        self.passed_ahead += ahead;
        Ok(Some((framed, bytes.saturating_sub(ahead) as u32)))
    }

    /// Whether the body ended between messages.
    pub fn finish(&self) -> Result<(), FramingFault> {
        self.deframer.finish()
    }

    /// Whether the body has ended with what was taken last. If so that is not told again.
    pub fn take_end(&mut self) -> bool {
        let is_last = matches!(self.ended, Some(Ending::Body)) && self.deframer.held() == 0;
        if is_last {
            self.ended = None;
        }
        is_last
    }

    /// It ended; what came before goes first.
    pub fn end(&mut self, ending: Ending) {
        self.over = true;
        self.ended = Some(ending);
    }

    /// Nobody wants any more of it.
    pub fn discard(&mut self) {
        self.deframer = Deframer::new(0);
        (self.message, self.opening) = (None, None);
    }

    /// Whether there is a message, or part of one, that has not been taken.
    pub fn has_bytes(&self) -> bool {
        self.deframer.held() > 0
    }

    /// Bytes the daemon holds of messages that are not complete, and of the metadata that waits for one.
    pub fn held(&self) -> usize {
        let opening = self.opening.as_ref().map_or(0, Vec::len);
        self.deframer.held() + self.message.as_ref().map_or(0, |message| message.bytes.len()) + opening
    }

    /// Every message that is complete has been taken. Whether one is awaited of which part is held, or its metadata.
    pub fn note_unfinished(&mut self, now: Instant) -> bool {
        self.unfinished = self.opening.is_some() || self.held() > 0;
        let is_unfinished = self.is_unfinished();
        self.goes_on = is_unfinished.then(|| self.goes_on.unwrap_or((now, 0)));
        is_unfinished
    }

    /// Whether it was so when messages were last taken, and nothing has come since.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished && !self.over
    }

    /// Looks whether an unfinished message goes on, however often it is asked. `true`: hardly anything of it has come
    /// in so long, though all the while it could have been sent: half of its window was left (`window`), and its
    /// connection takes more.
    pub fn has_stalled(&mut self, now: Instant, stall_ns: u64, window: usize, takes_more: bool) -> bool {
        if !self.is_unfinished() || self.unreleased > window / 2 || !takes_more {
            self.goes_on = self.is_unfinished().then_some((now, 0));
            return false;
        }
        match self.goes_on {
            Some((since, _)) if now.since_ns(since) < stall_ns => false,
            before => {
                self.goes_on = Some((now, 0));
                before.is_some_and(|(_, came)| came < MESSAGE_PROGRESS_BYTES)
            }
        }
    }

    /// Bytes of the window that complete messages take, with which the application is not through.
    fn waiting(&self) -> usize {
        self.unreleased.saturating_sub(self.deframer.held().saturating_sub(self.ahead))
    }

    /// When it is to be looked at again whether an unfinished message goes on.
    pub fn stalls_at(&self, now: Instant, stall_ns: u64) -> Instant {
        self.goes_on.map_or(now, |(since, _)| since).plus_ns(stall_ns)
    }

    /// The application is through with a message that took so much of the window. What is given back of that.
    pub fn grant(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.unreleased);
        self.unreleased -= bytes;
        if self.waiting() == 0 {
            self.passed_ahead = 0;
        }
        bytes
    }

    /// What the sender gets back now, before its message is complete. A direction without a stream is bounded by its
    /// one message; in a stream a message may be larger than the window, so half a window is always left to send it.
    /// Where the connection's window is short, all of it is left, unless the application has not read what came before.
    pub fn release_ahead(&mut self, window: usize, connection_is_short: bool) -> usize {
        if !self.streams {
            return std::mem::take(&mut self.unreleased);
        }
        let is_read = connection_is_short && self.waiting() + self.passed_ahead <= window / 2;
        let kept = if is_read { 0 } else { window / 2 };
        let ahead = self.deframer.held().saturating_sub(kept).saturating_sub(self.ahead);
        self.ahead += ahead;
        self.unreleased -= ahead.min(self.unreleased);
        ahead
    }
}

impl Outgoing {
    fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            accepts: Accepts::IDENTITY,
            reads: Accepts::ALL,
            headed: false,
            ended: false,
            queued_bytes: 0,
            unsent: VecDeque::new(),
            sent_bytes: 0,
        }
    }

    /// A message was given to the connection.
    pub fn queue(&mut self, bytes: usize, credit: u32) {
        let bytes = bytes as u64;
        self.queued_bytes += bytes;
        match self.unsent.back_mut() {
            Some((together, credits)) if *together + bytes <= TOGETHER_BYTES_MAX => {
                *together += bytes;
                *credits = credits.saturating_add(credit);
            }
            _ => self.unsent.push_back((bytes, credit)),
        }
    }

    /// So many bytes left: what their sender may send more.
    pub fn sent(&mut self, bytes: u64) -> u32 {
        self.queued_bytes -= bytes;
        self.sent_bytes += bytes;
        let mut credit = 0u32;
        while let Some(&(bytes, more)) = self.unsent.front().filter(|(bytes, _)| *bytes <= self.sent_bytes) {
            self.sent_bytes -= bytes;
            credit = credit.saturating_add(more);
            self.unsent.pop_front();
        }
        credit
    }

    /// Bytes of messages that have not left, as they are in line.
    pub fn in_line(&self) -> u64 {
        self.unsent.iter().map(|(bytes, _)| bytes).sum::<u64>() - self.sent_bytes
    }

    /// What is queued will not leave: how much that is, and what its sender may send more.
    pub fn give_up(&mut self) -> (u64, u32) {
        let credits = self.unsent.drain(..).map(|(_, credit)| credit);
        let credit = credits.fold(0, u32::saturating_add);
        self.sent_bytes = 0;
        (std::mem::take(&mut self.queued_bytes), credit)
    }
}
