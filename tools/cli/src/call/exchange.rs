//! One call by hand: requests go as they come, responses are handed up as they arrive.

use super::attachment::{AttachError, Attachment, Event, PATIENCE, ns, protobuf};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Execution, Instant, Metadata, RouteIndex, Status};
use trunkline_shm::monotonic_ns;

/// Requests read ahead of the stream's window: enough to keep it full, few enough not to read a whole file at once.
const READ_AHEAD_MAX: usize = 16;
/// The exchange's only call. Zero is nobody's.
const CALL: CallId = CallId(1);

/// What is to be called, and how.
#[derive(Debug)]
pub struct Order {
    /// From [`Attachment::bind`].
    pub route: RouteIndex,
    /// Any number of requests may be sent, not just one.
    pub streams: bool,
    /// Request metadata.
    pub metadata: Metadata,
    /// Time the call may take.
    pub timeout: Option<Duration>,
    /// When it was asked for (a0).
    pub entered: Instant,
}

/// Feeds requests into an exchange from another thread. Dropping it ends the request side.
pub struct Feeder {
    requests: SyncSender<Result<Vec<u8>, String>>,
    bell: Arc<OwnedFd>,
}

/// What comes back.
#[derive(Debug)]
pub enum Answer {
    /// Metadata before the first response.
    Headers(Metadata),
    /// A response as the daemon wrote it.
    Message(Payload, Vec<u8>),
    /// The end with its trailing metadata; always the last.
    End(Status, Metadata),
}

/// Why an exchange ended without a status.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The session is gone.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A request could not be made; the call was cancelled.
    #[error("{0}")]
    Request(String),
}

/// A call in progress.
pub struct Exchange<'a> {
    attachment: &'a mut Attachment,
    order: Order,
    requests: Receiver<Result<Vec<u8>, String>>,
    bell: Arc<OwnedFd>,
    /// A request that found no room in the send heap.
    held: Option<Vec<u8>>,
    phase: Phase,
    /// Bytes the stream may still send; below zero by at most one message.
    window_bytes: i64,
    answers: VecDeque<Answer>,
    /// When a call with a time limit is over even if the daemon, whose limit it is to keep, says nothing.
    over_at_ns: Option<u64>,
}

/// How far the request side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The call has not been submitted.
    Fresh,
    /// More requests may come.
    Open,
    /// The only request was sent; that there is another may yet be said.
    Sent,
    /// Everything was sent.
    Done,
}

enum Pulled {
    Request(Vec<u8>),
    Nothing,
    End,
}

impl Feeder {
    /// Hands over a request, or why there is none; waits while the exchange is behind. `false`: the call is over.
    pub fn feed(&self, request: Result<Vec<u8>, String>) -> bool {
        let taken = self.requests.send(request).is_ok();
        self.ring();
        taken
    }

    fn ring(&self) {
        // Fails only when it is readable anyway.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        // The channel must be seen closed after this ring, so it is closed first, by replacing it.
        self.requests = sync_channel(0).0;
        self.ring();
    }
}

impl<'a> Exchange<'a> {
    /// A call whose requests come from the feeder.
    ///
    /// # Errors
    /// If the kernel has no descriptor to give.
    pub fn new(attachment: &'a mut Attachment, order: Order) -> Result<(Self, Feeder), AttachError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|error| AttachError::Broken(error.to_string()))?);
        let (sender, requests) = sync_channel(READ_AHEAD_MAX);
        let feeder = Feeder { requests: sender, bell: Arc::clone(&bell) };
        let window_bytes = attachment.stream_window_bytes().into();
        let (held, phase, answers) = (None, Phase::Fresh, VecDeque::new());
        let over_at_ns = None;
        let exchange =
            Self { attachment, order, requests, bell, held, phase, window_bytes, answers, over_at_ns };
        Ok((exchange, feeder))
    }

    /// Waits for what comes next; not to be called after [`Answer::End`].
    ///
    /// # Errors
    /// [`ExchangeError`]; the call is over then, too.
    pub fn next(&mut self) -> Result<Answer, ExchangeError> {
        match self.advance() {
            // It was sent, and nobody is left to say whether it ran.
            Err(ExchangeError::Attach(lost @ AttachError::Detached(_))) if self.phase != Phase::Fresh => {
                let status = Status::unavailable(lost.to_string()).with_execution(Execution::Unknown);
                Ok(Answer::End(status, Metadata::default()))
            }
            next => next,
        }
    }

    fn advance(&mut self) -> Result<Answer, ExchangeError> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Ok(answer);
            }
            self.send()?;
            let bell = Arc::clone(&self.bell);
            match self.attachment.wait(bell.as_fd(), self.over_at_ns)? {
                Event::Completion(completion) => self.handle(completion)?,
                // The channel says what there is; this only silences the bell.
                Event::Late => {
                    let waited = self.order.timeout.unwrap_or_default() + PATIENCE;
                    return Err(AttachError::Silent(waited).into());
                }
                Event::Bell => drop(rustix::io::read(&*bell, &mut [0; 8])),
            }
        }
    }

    fn handle(&mut self, completion: Completion) -> Result<(), AttachError> {
        match completion {
            Completion::Headers { metadata, .. } => {
                let headers = self.metadata(metadata)?;
                self.answers.push_back(Answer::Headers(headers));
                self.release(Span::default(), metadata, Instant(0))
            }
            Completion::Message { payload, .. } => {
                let bytes = self.attachment.read(payload.span)?;
                self.answers.push_back(Answer::Message(payload, bytes));
                self.release(payload.span, Span::default(), Instant(0))
            }
            Completion::Finish(finish) => self.finish(&finish),
            Completion::Freed { offsets } => self.attachment.free(&offsets),
            Completion::Credit { bytes, .. } => {
                self.window_bytes += i64::from(bytes);
                Ok(())
            }
            // A client that makes one call is told of nothing else.
            Completion::HalfClose { .. }
            | Completion::GoAway
            | Completion::Drained
            | Completion::Call(_)
            | Completion::Cancelled { .. } => Ok(()),
        }
    }

    fn finish(&mut self, finish: &Finish) -> Result<(), AttachError> {
        let taken = Instant(monotonic_ns());
        let mut block = Span::default();
        if let Some(payload) = finish.payload {
            block = payload.span;
            let bytes = self.attachment.read(block)?;
            self.answers.push_back(Answer::Message(payload, bytes));
        }
        let mut trailers = self.metadata(finish.metadata)?;
        let status = status_of(finish, &mut trailers);
        self.answers.push_back(Answer::End(status, trailers));
        self.phase = Phase::Done;
        self.release(block, finish.metadata, taken)
    }

    fn metadata(&mut self, span: Span) -> Result<Metadata, AttachError> {
        let bytes = self.attachment.read(span)?;
        if bytes.is_empty() {
            return Ok(Metadata::new());
        }
        Metadata::decode(&bytes).map_err(|error| AttachError::Broken(error.to_string()))
    }

    fn release(&mut self, block: Span, metadata: Span, a18: Instant) -> Result<(), AttachError> {
        self.attachment.submit(&Submission::Release { call: CALL, block, metadata, a18 })
    }

    /// Sends what there is to send and room for.
    fn send(&mut self) -> Result<(), ExchangeError> {
        while self.phase != Phase::Done {
            if self.phase == Phase::Fresh && self.order.streams {
                self.start(None)?;
                self.phase = Phase::Open;
            }
            if self.phase == Phase::Open && self.window_bytes <= 0 {
                return Ok(());
            }
            let sent = match self.pull()? {
                Pulled::Nothing => return Ok(()),
                Pulled::Request(request) => self.request(request)?,
                Pulled::End => self.end()?,
            };
            if !sent {
                return Ok(());
            }
        }
        Ok(())
    }

    fn pull(&mut self) -> Result<Pulled, ExchangeError> {
        if let Some(held) = self.held.take() {
            return Ok(Pulled::Request(held));
        }
        match self.requests.try_recv() {
            Ok(Ok(request)) => Ok(Pulled::Request(request)),
            Ok(Err(why)) => {
                if self.phase != Phase::Fresh {
                    self.attachment.submit(&Submission::Cancel { call: CALL })?;
                }
                Err(ExchangeError::Request(why))
            }
            Err(TryRecvError::Empty) => Ok(Pulled::Nothing),
            Err(TryRecvError::Disconnected) => Ok(Pulled::End),
        }
    }

    /// `false`: there is no room; the request is held.
    fn request(&mut self, request: Vec<u8>) -> Result<bool, ExchangeError> {
        let Some(span) = self.attachment.write(&request)? else {
            self.held = Some(request);
            return Ok(false);
        };
        let payload = protobuf(span);
        if self.phase == Phase::Fresh {
            self.start(Some(payload))?;
            self.phase = Phase::Sent;
            return Ok(true);
        }
        self.window_bytes -= i64::from(span.len);
        let a1 = Instant(monotonic_ns());
        self.attachment.submit(&Submission::Message { call: CALL, payload, end: false, a1 })?;
        Ok(true)
    }

    /// The input has ended.
    fn end(&mut self) -> Result<bool, ExchangeError> {
        if self.phase == Phase::Fresh {
            return Err(ExchangeError::Request("no request was given".into()));
        }
        if self.phase == Phase::Open {
            self.attachment.submit(&Submission::HalfClose { call: CALL })?;
        }
        self.phase = Phase::Done;
        Ok(true)
    }

    fn start(&mut self, payload: Option<Payload>) -> Result<(), ExchangeError> {
        let mut encoded = Vec::new();
        self.order.metadata.encode(&mut encoded);
        let no_room = || AttachError::Broken("no room for the metadata in a fresh send heap".into());
        let metadata = match encoded.is_empty() {
            true => Span::default(),
            false => self.attachment.write(&encoded)?.ok_or_else(no_room)?,
        };
        let now = Instant(monotonic_ns());
        let deadline = self.order.timeout.map_or(Deadline::NONE, |timeout| Deadline::after(now, timeout));
        self.over_at_ns = self.order.timeout.map(|timeout| now.0.saturating_add(ns(timeout) + ns(PATIENCE)));
        let call = Call {
            route: self.order.route,
            call: CALL,
            payload,
            metadata,
            end: payload.is_some(),
            wait_for_ready: false,
            deadline,
            entered: self.order.entered,
            published: now,
            parent: CallId(0),
        };
        Ok(self.attachment.submit(&Submission::Call(call))?)
    }
}

/// The status of a finish; its message and details are taken out of the trailers.
pub fn status_of(finish: &Finish, trailers: &mut Metadata) -> Status {
    let mut status = Status::take_from(trailers, finish.code);
    // They are shown as what they came as.
    *trailers = std::mem::take(status.metadata_mut());
    let status = if finish.code == Code::Ok { Status::ok() } else { status };
    status.with_execution(finish.execution)
}

#[cfg(test)]
mod tests {
    //! Shows that the words of a status are read as they were written.
    use super::*;

    #[test]
    fn messages_are_text() {
        for message in ["plain", "größer als 50 %", "two\nlines", "%zz"] {
            let status = Status::aborted(message).with_details([1, 2]).with_metadata("why", "so").unwrap();
            let mut trailers = Metadata::new();
            status.put_into(&mut trailers).unwrap();
            let finish = Finish {
                call: CallId(1),
                code: Code::Aborted,
                execution: status.execution(),
                payload: None,
                metadata: Default::default(),
                taken: Instant::default(),
                published: Instant::default(),
                cpu_ns: 0,
                subtree: 0,
            };
            let read = status_of(&finish, &mut trailers);
            assert_eq!((read.message(), read.details()), (message, &[1, 2][..]));
            assert_eq!(
                trailers.iter().collect::<Vec<_>>(),
                [("why", &b"so"[..])],
                "what is left are trailers"
            );
        }
    }
}
