//! One connection: the owners it is made of, and what of it is read, written and timed.

use crate::announced::AnnouncedNames;
use crate::body::Chunk;
use crate::caller::CALLERS_MAX;
use crate::ending::Ending;
use crate::event::Event;
use crate::frame_type::FrameType;
use crate::handshake::Handshake;
use crate::hello::{AwaitHello, Peer};
use crate::input::Input;
use crate::keepalive::{Due, Keepalive};
use crate::outgoing::{CallSent, Outgoing};
use crate::reader::{FrameReader, Placement, Reading};
use crate::stream::Stream;
use crate::stream_id::StreamIds;
use crate::table::Streams;
use crate::window::{ReceiveWindow, Windows};
use crate::{Config, Features, Limits, Notice, ProtocolError, Side, Unsound};
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
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Arc<Config>,
    /// What this side announced: the configured limits, within what the format allows.
    pub(crate) limits: Limits,
    pub(crate) handshake: Handshake,
    pub(crate) streams: Streams,
    /// Methods and callers named here.
    pub(crate) made: AnnouncedNames,
    /// Methods and callers named there.
    pub(crate) taken: AnnouncedNames,
    pub(crate) outgoing: Outgoing,
    pub(crate) reader: FrameReader,
    pub(crate) window: ReceiveWindow,
    pub(crate) keepalive: Keepalive,
    pub(crate) ending: Ending,
}

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
            handshake: Handshake::Awaiting(hello),
            streams: Streams::new(StreamIds::new(side)),
            made: AnnouncedNames::default(),
            taken: AnnouncedNames::default(),
            outgoing,
            reader: FrameReader::new(),
            window: ReceiveWindow::new(limits.connection_window_bytes),
            keepalive: Keepalive::new(config.keepalive_ns, config.keepalive_timeout_ns, now),
            ending: Ending::default(),
            limits,
            config,
        }
    }

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

    /// Puts the beginning of a cut frame to the front of the read buffer and returns its length: read behind it.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`crate::INPUT_BYTES_MIN`].
    pub fn resume(&mut self, buffer: &mut [u8]) -> usize {
        self.reader.resume(buffer)
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
        if let Some(error) = self.ending.failed() {
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
                    self.reader.keep(input);
                    return Ok(None);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
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
        let Reading::Body { stream, left } = self.reader.reading else { panic!("no body is wanted") };
        assert!(bytes <= left, "{bytes} bytes placed, {left} wanted");
        let (tag, offset, last) = self.advance_body(stream, bytes)?;
        last.then_some(Event::Chunk { stream, tag, offset, bytes: &[], last })
    }

    /// The socket took `bytes` of what [`Connection::poll_transmit`] showed.
    ///
    /// # Panics
    /// If that is more than was shown.
    pub fn transmitted(&mut self, bytes: usize) {
        self.outgoing.take(bytes, &mut self.streams, self.config.queue_bytes_max);
    }

    /// Does what the time demands: asks a silent peer whether it is there.
    ///
    /// # Errors
    /// [`ProtocolError`] when a time limit has passed (hello, keep-alive, drain).
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ProtocolError> {
        if let Some(error) = self.ending.failed() {
            return Err(error.clone());
        }
        self.check_time(now).map_err(|error| self.fail(error))
    }

    /// There is a socket: the time of the peer's HELLO, and its silence, count from here. Until then its host is being
    /// asked for a connection, which has a limit of its own.
    pub fn connected(&mut self, now: Instant) {
        self.handshake.connected(&self.config, now);
        self.keepalive.heard(now);
    }

    /// The socket is gone. Every open stream ends with a notice that says what is known of it, every shared body is
    /// given back; the connection is of no further use.
    ///
    /// A call opened here was *not executed* if the last byte of its CALL and first message never reached the socket:
    /// a peer starts no handler before it has both (docs/native-protocol.md, "At most once"). Else it is *unknown*.
    pub fn lost(&mut self) {
        self.outgoing.lost(&mut self.streams);
        self.ending.lost();
    }

    /// When `handle_timeout` has something to do next.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.ending.failed().is_some() {
            return None;
        }
        let drain = self.ending.give_up_at().filter(|_| self.streams.len() > 0);
        [self.handshake.give_up_at(), drain, self.keepalive.next_timeout()].into_iter().flatten().min()
    }

    /// What happened to what was sent, oldest first. Ask after every `handle_*` and `transmitted`.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.outgoing.poll_notice()
    }

    // LIFE: 11
    /// What to write next, in order: about `max_bytes`, and at least one frame if there is one. A gather list may use
    /// any number of chunks from the front. Give no other command until [`Connection::transmitted`] says what was taken
    /// — or do: what is added later is not counted as shown.
    pub fn poll_transmit(&mut self, now: Instant, max_bytes: usize) -> impl Iterator<Item = Chunk<'_>> {
        let stream_bytes_max = self.config.stream_queue_bytes_max;
        self.outgoing.schedule(now, &mut self.streams, max_bytes as u64, stream_bytes_max);
        self.outgoing.show(now)
    }

    /// A call opened here whose first message has reached the socket. Each once; ask after [`Connection::transmitted`].
    pub fn poll_sent(&mut self) -> Option<CallSent> {
        self.outgoing.poll_sent()
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
        let (stream, bytes) = self.reader.wanted()?;
        if self.ending.failed().is_some() {
            return None;
        }
        let found = self.streams.find(stream)?;
        let offset = found.partial?.received;
        Some(Placement { stream, tag: found.tag, offset, bytes })
    }

    /// Whether frames have checksums.
    pub fn has_checksums(&self) -> bool {
        self.handshake.has(Features::CHECKSUM)
    }

    /// Whether calls say who makes them: both sides offered it.
    pub fn names_callers(&self) -> bool {
        self.handshake.has(Features::CALLERS)
    }

    /// Who the peer is; `None` before its HELLO.
    pub fn peer(&self) -> Option<&Peer> {
        self.handshake.peer()
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
        let ReceiveWindow { left, unreturned } = self.window;
        Windows { send_bytes: self.outgoing.window(), receive_bytes: left, unreturned_bytes: unreturned }
    }

    /// Whether everything has ended after GO-AWAY: no stream is open and nothing waits to be sent.
    pub fn is_drained(&self) -> bool {
        self.ending.is_going_away() && self.streams.len() == 0 && self.send_queue_bytes() == 0
    }

    /// Whether no new call will be taken here.
    pub fn is_draining(&self) -> bool {
        self.ending.is_draining()
    }

    /// Frames that came for streams already gone: normal after a cancel, a fault if they are many.
    pub fn ignored_frames(&self) -> u64 {
        self.reader.ignored_frames
    }

    /// Whether it can go on elsewhere: it has not failed.
    pub fn can_move(&self) -> bool {
        self.ending.failed().is_none()
    }

    /// What is wrong with it: which count disagrees with what it counts, or is none a connection can have.
    pub fn audit(&self) -> Option<&'static str> {
        let checks = [
            (self.limits == self.limits.within_bounds(), "limits"),
            (!matches!(self.handshake, Handshake::Failed), "handshake"),
            (self.window.is_sound(), "receive window"),
            (self.outgoing.is_sound(&self.streams), "queues"),
            (self.streams.iter().all(Stream::is_sound), "stream"),
            (self.streams.ids.opened <= u64::MAX / 4, "streams opened"),
            (self.made.callers.max(self.taken.callers) <= CALLERS_MAX, "callers"),
        ];
        let unsound = checks.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what);
        unsound.or_else(|| self.reader.audit(|stream| self.streams.find(stream)?.partial))
    }

    /// Records an error and queues the CLOSE that tells the peer.
    fn fail(&mut self, error: ProtocolError) -> ProtocolError {
        let code = if error.is_corruption() { Code::DataLoss } else { Code::Internal };
        self.close(code, &error.to_string());
        self.ending.fail(error.clone());
        error
    }

    fn step<'a>(&mut self, input: &mut Input<'a>) -> Result<Step<'a>, ProtocolError> {
        match self.reader.reading {
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
        if self.handshake.give_up_at().is_some_and(|at| at <= now) {
            return Err(ProtocolError::HelloTimeout { after_ns: self.config.hello_timeout_ns });
        }
        if self.ending.give_up_at().is_some_and(|until| until <= now) && self.streams.len() > 0 {
            return Err(ProtocolError::DrainTimeout { after_ns: self.config.drain_timeout_ns });
        }
        match self.keepalive.handle_timeout(now) {
            Due::Nothing => {}
            Due::Ask if self.handshake.is_awaited() => {}
            Due::Ask => self.outgoing.control(FrameType::Ping, 0, 0, &now.0.to_le_bytes()),
            Due::GiveUp => {
                return Err(ProtocolError::PeerSilent { after_ns: self.config.keepalive_timeout_ns });
            }
        }
        Ok(())
    }
}
