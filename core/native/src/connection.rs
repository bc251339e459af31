//! One connection: what it is made of, how bytes and time go in.

use crate::checksum::Check;
use crate::event::Event;
use crate::frame_type::FrameType;
use crate::hello::{AwaitHello, Peer};
use crate::input::Input;
use crate::keepalive::{Due, Keepalive};
use crate::methods::Methods;
use crate::outgoing::Outgoing;
use crate::table::Streams;
use crate::wire::Header;
use crate::{Config, Features, Limits, Notice, ProtocolError, Side, StreamId};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Code, Instant};

/// Both directions of one native connection, without the socket.
///
/// The host's part, once per readiness:
/// ```text
/// let start = connection.resume(&mut buffer);
/// let count = socket.read(&mut buffer[start..])?;
/// let mut input = Input::new(&buffer[..start + count]);
/// while let Some(event) = connection.handle_bytes(now, &mut input)? { /* the engine's part */ }
/// while let Some(notice) = connection.poll_notice() { /* the engine's part */ }
/// let chunks = connection.poll_transmit(now, WRITE_BYTES);
/// let written = socket.write_vectored(chunks)?;
/// connection.transmitted(written);
/// ```
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Connection {
    #[serde(skip)]
    pub(crate) config: Arc<Config>,
    /// What this side announced: the configured limits, within what the format allows.
    pub(crate) limits: Limits,
    pub(crate) side: Side,
    /// Consumed by the peer's HELLO, which leaves `peer`.
    pub(crate) hello: Option<AwaitHello>,
    pub(crate) peer: Option<Peer>,
    pub(crate) streams: Streams,
    /// Streams ever opened here; the next id follows from it.
    pub(crate) opened: u64,
    /// The newest stream the peer opened; zero before the first.
    pub(crate) newest_taken: u32,
    /// Methods announced here, and there.
    pub(crate) methods_made: Methods,
    pub(crate) methods_taken: Methods,
    /// Callers named here, and there.
    #[serde(default)]
    pub(crate) callers_made: u16,
    #[serde(default)]
    pub(crate) callers_taken: u16,
    pub(crate) outgoing: Outgoing,
    pub(crate) receive_window: ReceiveWindow,
    pub(crate) reading: Reading,
    /// The checksum of the frame whose body is being read or skipped.
    pub(crate) check: Option<Check>,
    /// The beginning of a frame whose rest has not come.
    #[serde(with = "serde_bytes")]
    pub(crate) carry: Vec<u8>,
    pub(crate) notices: VecDeque<Notice>,
    /// A command was refused for a full queue: say so when there is room.
    pub(crate) queue_refused: bool,
    pub(crate) keepalive: Keepalive,
    pub(crate) ending: Ending,
    #[serde(skip)]
    pub(crate) failed: Option<ProtocolError>,
    pub(crate) ignored_frames: u64,
    /// When what is being written was shown: just before it went to the kernel.
    #[serde(skip)]
    pub(crate) shown_at: Instant,
}

/// What the bytes to come are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Reading {
    /// A frame.
    Frame,
    /// Bytes of a message.
    Body { stream: StreamId, left: u32 },
    /// Bytes nobody wants any more.
    Skip { left: u32 },
}

/// How far the connection is on its way out.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ending {
    /// This side said GO-AWAY: calls opened above this stream are not taken; open ones end by the instant.
    pub said: Option<(u32, Instant)>,
    /// The peer said it.
    pub heard: bool,
    /// CLOSE is queued: nothing follows.
    pub closed: bool,
}

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

/// What a connection keeps for the next cut frame: most are short, and thousands of connections are idle.
const CARRY_KEEP_BYTES: usize = 1024;

/// Bytes of answers (PONG, WINDOW, refusals) that may wait beyond the send queue's limit. They cannot be refused, so a
/// peer that makes us answer and never reads is cut off here.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What handling a piece of input led to.
pub(crate) enum Step<'a> {
    /// Something to tell.
    Event(Event<'a>),
    /// Nothing to tell; go on.
    Quiet,
    /// The rest of the frame has not come.
    More,
}

impl Connection {
    /// A fresh connection; its HELLO is queued.
    pub fn new(side: Side, config: Arc<Config>, now: Instant) -> Self {
        let mut outgoing = Outgoing::default();
        let limits = config.limits.within_bounds();
        let hello = outgoing.hello(|out| AwaitHello::start(&config, &limits, now, out));
        Self {
            side,
            hello: Some(hello),
            peer: None,
            streams: Streams::new(),
            opened: 0,
            newest_taken: 0,
            methods_made: Methods::default(),
            methods_taken: Methods::default(),
            callers_made: 0,
            callers_taken: 0,
            outgoing,
            receive_window: ReceiveWindow { left: limits.connection_window_bytes.into(), unreturned: 0 },
            reading: Reading::Frame,
            check: None,
            carry: Vec::new(),
            notices: VecDeque::new(),
            queue_refused: false,
            keepalive: Keepalive::new(config.keepalive_ns, config.keepalive_timeout_ns, now),
            ending: Ending::default(),
            failed: None,
            ignored_frames: 0,
            shown_at: now,
            limits,
            config,
        }
    }

    /// Puts the beginning of a cut frame to the front of the read buffer and returns its length: read behind it.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`crate::INPUT_BYTES_MIN`].
    pub fn resume(&mut self, buffer: &mut [u8]) -> usize {
        assert!(buffer.len() >= crate::INPUT_BYTES_MIN, "read buffer is shorter than a frame's longest head");
        let count = self.carry.len();
        buffer[..count].copy_from_slice(&self.carry);
        self.carry.clear();
        self.carry.shrink_to(CARRY_KEEP_BYTES);
        count
    }

    /// Takes bytes until something is worth telling; `None` when the input is used up (a cut frame is kept).
    ///
    /// # Errors
    /// [`ProtocolError`] if the peer broke the protocol; the connection is of no use then, and a CLOSE saying why is
    /// queued. Every later call returns the same error.
    pub fn handle_bytes<'a>(
        &mut self,
        now: Instant,
        input: &mut Input<'a>,
    ) -> Result<Option<Event<'a>>, ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !input.is_empty() {
            self.keepalive.heard(now);
        }
        loop {
            match self.step(input) {
                Ok(Step::Event(event)) => return Ok(Some(event)),
                Ok(Step::Quiet) => {}
                Ok(Step::More) => {
                    self.carry.extend_from_slice(input.take(usize::MAX));
                    return Ok(None);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Does what the time demands: asks a silent peer whether it is there.
    ///
    /// # Errors
    /// [`ProtocolError`] when a time limit has passed (hello, keep-alive, drain).
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.check_time(now).map_err(|error| self.fail(error))
    }

    /// There is a socket: the time of the peer's HELLO, and its silence, count from here. Until then its host is being
    /// asked for a connection, which has a limit of its own.
    pub fn connected(&mut self, now: Instant) {
        if let Some(hello) = &mut self.hello {
            hello.begin(&self.config, now);
        }
        self.keepalive.heard(now);
    }

    /// When `handle_timeout` has something to do next.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let hello = self.hello.as_ref().map(|hello| hello.give_up_at);
        let drain = self.ending.said.map(|(_, until)| until).filter(|_| self.streams.len() > 0);
        [hello, drain, self.keepalive.next_timeout()].into_iter().flatten().min()
    }

    /// What happened to what was sent, oldest first. Ask after every `handle_*` and `transmitted`.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Whether frames have checksums.
    pub fn has_checksums(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.features.contains(Features::CHECKSUM))
    }

    /// Who the peer is; `None` before its HELLO.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// What this side announced.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Streams open, in both directions.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Flow control of the connection as it stands.
    pub fn windows(&self) -> Windows {
        let ReceiveWindow { left, unreturned } = self.receive_window;
        Windows { send_bytes: self.outgoing.window(), receive_bytes: left, unreturned_bytes: unreturned }
    }

    /// Whether everything has ended after GO-AWAY: no stream is open and nothing waits to be sent.
    pub fn is_drained(&self) -> bool {
        (self.ending.said.is_some() || self.ending.heard)
            && self.streams.len() == 0
            && self.send_queue_bytes() == 0
    }

    /// Whether no new call will be taken here.
    pub fn is_draining(&self) -> bool {
        self.failed.is_some() || self.ending.closed || self.ending.heard || self.ending.said.is_some()
    }

    /// Frames that came for streams already gone: normal after a cancel, a fault if they are many.
    pub fn ignored_frames(&self) -> u64 {
        self.ignored_frames
    }

    /// Records an error and queues the CLOSE that tells the peer.
    pub(crate) fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        if !self.ending.closed {
            let code = if error.is_corruption() { Code::DataLoss } else { Code::Internal };
            self.close(code, &error.to_string());
        }
        self.failed = Some(error.clone());
        error
    }

    /// Queues a frame of the connection.
    pub(crate) fn control(&mut self, frame: FrameType, code: u16, stream: u32, body: &[u8]) {
        let header = Header { frame, flags: 0, code, stream, length: body.len() as u32 };
        self.outgoing.control(header, body);
    }

    fn step<'a>(&mut self, input: &mut Input<'a>) -> Result<Step<'a>, ProtocolError> {
        match self.reading {
            Reading::Frame => {
                let limit = self.config.queue_bytes_max + ANSWER_BYTES_MAX;
                let queued_bytes = self.outgoing.prompt_own_bytes();
                if queued_bytes > limit {
                    return Err(ProtocolError::PeerNotReading { queued_bytes, limit });
                }
                self.handle_frame(input)
            }
            Reading::Body { stream, left } => self.handle_body(input, stream, left),
            Reading::Skip { left } => self.handle_skip(input, left),
        }
    }

    fn check_time(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if self.hello.as_ref().is_some_and(|hello| hello.give_up_at <= now) {
            return Err(ProtocolError::HelloTimeout { after_ns: self.config.hello_timeout_ns });
        }
        if self.ending.said.is_some_and(|(_, until)| until <= now) && self.streams.len() > 0 {
            return Err(ProtocolError::DrainTimeout { after_ns: self.config.drain_timeout_ns });
        }
        match self.keepalive.handle_timeout(now) {
            Due::Nothing => {}
            Due::Ask if self.hello.is_some() => {}
            Due::Ask => self.control(FrameType::Ping, 0, 0, &now.0.to_le_bytes()),
            Due::GiveUp => {
                return Err(ProtocolError::PeerSilent { after_ns: self.config.keepalive_timeout_ns });
            }
        }
        Ok(())
    }
}
