//! Carries one session between this host's side and a connection, on a thread of its own.
//!
//! What is taken out of the ring goes behind the bytes it names, in parts; as long as too much waits for the
//! connection, entries stay in the ring, and whoever made them feels it as a full ring. What comes in for a ring that
//! is full waits in the connection the same way.

use crate::ends::{SessionEnd, TakenEntry};
use crate::error::LinkError;
use crate::input::LinkInput;
use crate::output::LinkOutput;
use rustix::fd::AsFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trunkline_call::entry::{Entry, Span};
use trunkline_control::{DESCRIPTOR_SET_BYTES_MAX, FRAME_PART_BYTES_MAX, LinkFrame, RelayHello};
use trunkline_net::{Interest, Poller, Ready, Stream, Token, Transfer};
use trunkline_shm::{ControlSocket, clock_id, monotonic_ns};

/// Silence after which the other side counts as gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);
/// How often the application's side asks for the time, and so shows that it is there.
const PING_EVERY_NS: u64 = 5_000_000_000;
/// How long is looked whether a full ring has room: nobody rings for that.
const FULL_RING_SLEEP_NS: u64 = 500_000;
/// Longest sleep.
const SLEEP_NS_MAX: u64 = 1_000_000_000;
/// Time for the last frames, when this side ends.
const LAST_WORDS_NS_MAX: u64 = 1_000_000_000;
/// Frames taken, and entries carried, before the others' turn.
const PER_TURN: usize = 256;

const STREAM: Token = Token(0);
const CONTROL: Token = Token(1);
const DOORBELL: Token = Token(2);

/// One session between here and there.
pub(crate) struct LinkPump<E> {
    pub end: E,
    stream: Stream,
    control: ControlSocket,
    poller: Poller,
    input: LinkInput,
    output: LinkOutput,
    /// The entry whose bytes are on their way out, and how many of which span have gone.
    carried: Option<(TakenEntry, usize, u32)>,
    /// An entry for which the ring had no room.
    put_back: Option<Entry>,
    /// The descriptor set of the next packet, as far as it has come.
    blob: Vec<u8>,
    part: Box<[u8]>,
    is_greeted: bool,
    watches_doorbell: bool,
    interest: Interest,
    /// This side asks for the time.
    asks: bool,
    asked_ns: u64,
    /// Time in which this side listened and heard nothing, as of its last look at the clock. What it was away for
    /// counts as two sleeps: the other may have said something that has not got here.
    silent_ns: u64,
    looked_ns: u64,
    stop: Arc<AtomicBool>,
}

impl<E: SessionEnd> LinkPump<E> {
    /// Over a connection that is ready. `asks`: this side is the application's. Ends when `stop` is set.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(
        end: E,
        stream: Stream,
        control: ControlSocket,
        asks: bool,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LinkError> {
        let poller = Poller::new()?;
        control.set_nonblocking(true)?;
        poller.add(&control, CONTROL, Interest::Read)?;
        poller.add(&stream, STREAM, Interest::Read)?;
        let mut output = LinkOutput::default();
        output.push(&LinkFrame::Hello(RelayHello::new(clock_id())));
        Ok(Self {
            end,
            stream,
            control,
            poller,
            input: LinkInput::new(),
            output,
            carried: None,
            put_back: None,
            blob: Vec::new(),
            part: vec![0; FRAME_PART_BYTES_MAX].into(),
            is_greeted: false,
            watches_doorbell: false,
            interest: Interest::Read,
            asks,
            asked_ns: 0,
            silent_ns: 0,
            looked_ns: monotonic_ns(),
            stop,
        })
    }

    /// Carries until one of both ends, and says why; the other side is told, if it is there. The control socket comes
    /// back, so that this side may be told, too.
    pub fn run(mut self) -> (LinkError, ControlSocket) {
        let why = loop {
            if self.stop.load(Ordering::Relaxed) {
                break LinkError::Left("the relay ends");
            }
            match self.turn() {
                Ok(true) => {}
                Ok(false) => match self.sleep() {
                    Ok(()) => {}
                    Err(why) => break why,
                },
                Err(why) => break why,
            }
        };
        self.say_last(&why);
        (why, self.control)
    }

    fn turn(&mut self) -> Result<bool, LinkError> {
        let now_ns = monotonic_ns();
        if self.asks && now_ns.saturating_sub(self.asked_ns) >= PING_EVERY_NS {
            self.asked_ns = now_ns;
            self.output.push(&LinkFrame::Ping { sent_ns: now_ns });
        }
        let mut any = self.hear()?;
        any |= self.end.say(&self.control, &mut self.output)?;
        any |= self.carry()?;
        any |= self.output.flush(&mut self.stream)?;
        Ok(any)
    }

    /// Takes what has come. Whether there was anything.
    fn hear(&mut self) -> Result<bool, LinkError> {
        let (mut any, mut has_put) = (false, false);
        for _ in 0..PER_TURN {
            if let Some(entry) = self.put_back.take() {
                if !self.end.put(entry)? {
                    self.put_back = Some(entry);
                    break;
                }
                (any, has_put) = (true, true);
            }
            if self.take_frame()? {
                any = true;
                continue;
            }
            match self.input.fill(&mut self.stream) {
                Ok(Some(_)) => {
                    any = true;
                    self.silent_ns = 0;
                }
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(LinkError::Ended),
                Err(error) => return Err(error.into()),
            }
        }
        if has_put {
            self.end.publish()?;
        }
        Ok(any)
    }

    /// Does what the next frame says; entries wait in `put_back` for their turn. `false`: there is no whole frame.
    fn take_frame(&mut self) -> Result<bool, LinkError> {
        let Self { end, input, output, control, blob, put_back, is_greeted, asks, .. } = self;
        let Some(frame) = input.next()? else { return Ok(false) };
        if !*is_greeted && !matches!(frame, LinkFrame::Hello(_) | LinkFrame::Close(_)) {
            return Err(LinkError::Protocol("it does not begin with HELLO".into()));
        }
        match frame {
            LinkFrame::Hello(_) if *is_greeted => return Err(LinkError::Protocol("HELLO twice".into())),
            LinkFrame::Hello(hello) => {
                let own = RelayHello::new(clock_id());
                if !own.agrees_with(&hello) {
                    let RelayHello { newest, oldest, .. } = hello;
                    let why =
                        format!("it speaks versions {oldest} to {newest}, and this side {}", own.newest);
                    return Err(LinkError::Protocol(why));
                }
                *is_greeted = true;
                end.greeted(own.clock_id == hello.clock_id);
            }
            LinkFrame::Packet { packet, heap } => {
                if !*asks {
                    output.may_answer()?;
                }
                end.hear(packet, heap, std::mem::take(blob), control)?
            }
            LinkFrame::Blob(part) => {
                if blob.len() + part.len() > DESCRIPTOR_SET_BYTES_MAX {
                    let why = format!("a descriptor set of more than {DESCRIPTOR_SET_BYTES_MAX} bytes");
                    return Err(LinkError::Protocol(why));
                }
                end.keep(part.len())?;
                blob.extend_from_slice(part);
            }
            LinkFrame::Bytes { offset, bytes } => end.write(offset, bytes)?,
            LinkFrame::Entry(entry) => *put_back = Some(entry),
            LinkFrame::Ping { sent_ns } => {
                output.may_answer()?;
                output.push(&LinkFrame::Pong { sent_ns, clock_ns: monotonic_ns() })
            }
            LinkFrame::Pong { sent_ns, clock_ns } => end.clock_told(sent_ns, clock_ns),
            LinkFrame::Close(reason) => return Err(LinkError::Closed(reason.to_owned())),
        }
        Ok(true)
    }

    /// Puts entries and their bytes behind what waits for the connection. Whether there were any.
    fn carry(&mut self) -> Result<bool, LinkError> {
        let mut any = false;
        for _ in 0..PER_TURN {
            if !self.output.has_room() {
                break;
            }
            let carried = match self.carried.take() {
                Some(carried) => carried,
                None => match self.end.take()? {
                    Some(taken) => (taken, 0, 0),
                    None => break,
                },
            };
            any = true;
            self.carried = self.carry_on(carried)?;
        }
        Ok(any)
    }

    /// The next part of an entry's bytes, or the entry behind the last. What is left of it.
    fn carry_on(
        &mut self,
        (taken, span, gone): (TakenEntry, usize, u32),
    ) -> Result<Option<(TakenEntry, usize, u32)>, LinkError> {
        let Some(Span { offset, len }) = taken.spans.get(span).copied() else {
            self.output.push(&LinkFrame::Entry(taken.entry));
            return Ok(None);
        };
        let bytes = len.saturating_sub(gone).min(FRAME_PART_BYTES_MAX as u32);
        if bytes == 0 {
            return Ok(Some((taken, span + 1, 0)));
        }
        let at = offset.saturating_add(gone);
        let part = &mut self.part[..bytes as usize];
        self.end.copy_out(at, part)?;
        self.output.push(&LinkFrame::Bytes { offset: at, bytes: part });
        Ok(Some((taken, span, gone + bytes)))
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self) -> Result<(), LinkError> {
        let now_ns = monotonic_ns();
        let passed_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns));
        self.silent_ns += passed_ns.min(2 * SLEEP_NS_MAX);
        let is_late = self.silent_ns >= SILENCE_MAX.as_nanos() as u64;
        // It is this side that does not listen, or has not for so long.
        if self.put_back.is_some() || is_late && self.stream.has_unread() {
            self.silent_ns = 0;
        } else if is_late {
            return Err(LinkError::Silent { seconds: SILENCE_MAX.as_secs() });
        }
        if let Some(doorbell) = self.end.doorbell().filter(|_| !self.watches_doorbell) {
            self.poller.add(doorbell, DOORBELL, Interest::Read)?;
            self.watches_doorbell = true;
        }
        let interest = match (self.put_back.is_some(), self.output.is_empty() && !self.stream.wants_write()) {
            (false, true) => Interest::Read,
            (false, false) => Interest::ReadWrite,
            (true, true) => Interest::Nothing,
            (true, false) => Interest::Write,
        };
        if interest != self.interest {
            self.poller.set_interest(self.stream.as_fd(), STREAM, interest)?;
            self.interest = interest;
        }
        if !self.end.arm()? && self.output.has_room() {
            return Ok(());
        }
        let sleep_ns = if self.put_back.is_some() { FULL_RING_SLEEP_NS } else { SLEEP_NS_MAX };
        let mut ready: Vec<Ready> = Vec::new();
        let woken = self.poller.wait(Some(sleep_ns), &mut ready);
        self.end.disarm();
        woken?;
        // Reading is paused: only the end of the connection is told so.
        if self.put_back.is_some() && ready.iter().any(|ready| ready.token == STREAM && ready.readable) {
            return Err(LinkError::Ended);
        }
        Ok(())
    }

    /// What this side still has to say, as far as the other takes it within its time.
    fn say_last(&mut self, why: &LinkError) {
        if matches!(why, LinkError::Io(_) | LinkError::Ended) {
            return;
        }
        let until_ns = monotonic_ns() + LAST_WORDS_NS_MAX;
        // An application that has left may have put entries into its ring before.
        while matches!(why, LinkError::Left(_)) && monotonic_ns() < until_ns {
            let carried = self.carry().unwrap_or(false);
            if self.output.flush(&mut self.stream).is_err() || !carried {
                break;
            }
        }
        if !matches!(why, LinkError::Closed(_)) {
            self.output.push(&LinkFrame::Close(&why.to_string()));
        }
        while monotonic_ns() < until_ns && self.output.flush(&mut self.stream).is_ok() {
            if self.output.is_empty() && !self.stream.wants_write() {
                let _ = self.stream.end();
                return self.hear_out(until_ns);
            }
            let _ = self.poller.set_interest(self.stream.as_fd(), STREAM, Interest::Write);
            let _ = self.poller.wait(Some(FULL_RING_SLEEP_NS), &mut Vec::new());
        }
    }

    /// Takes what the other side still says, and does nothing with it: a connection that is closed with bytes unread is
    /// reset, and the other side might not hear why.
    fn hear_out(&mut self, until_ns: u64) {
        let _ = self.poller.set_interest(self.stream.as_fd(), STREAM, Interest::Read);
        while monotonic_ns() < until_ns {
            match self.stream.read(&mut self.part) {
                Ok(Transfer::Bytes(_)) => {}
                Ok(Transfer::NotReady) => {
                    let left_ns = until_ns.saturating_sub(monotonic_ns());
                    let _ = self.poller.wait(Some(left_ns), &mut Vec::new());
                }
                Ok(Transfer::Ended) | Err(_) => return,
            }
        }
    }
}
