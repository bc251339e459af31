//! Makes the calls: one thread, one session, any number of calls in flight.
//!
//! The loop sends what is due, takes what has come, and sleeps until either. A call that finds no room (in the send
//! heap, or among `in_flight_max`) waits in line; it was due when it was due, and its latency counts from there. The
//! line has an end: what is due beyond it, or waits when the run is stopped, counts as not sent.

use super::data::Data;
use super::record::Ended;
use crate::call::{AttachError, Attachment, RequestsError, protobuf, status_of};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use trunkline_call::entry::{Call, Completion, Finish, Span, Submission};
use trunkline_call::{CallId, Deadline, Instant, Metadata, RouteIndex, Status};
use trunkline_shm::monotonic_ns;

/// Time calls in flight get after the last was sent, if they have no time limit of their own.
const GRACE: Duration = Duration::from_secs(30);
/// How soon a call that found no room is tried again if nothing else happens.
const RETRY_NS: u64 = 1_000_000;
/// Most calls in line. A run that is so far behind learns no more from sending them all: minutes later, and from memory
/// that others need.
pub const LINE_MAX: usize = 100_000;
/// Calls put in line before ends and signals are looked at again.
const TURN_MAX: usize = 4096;

/// What is called, and how.
#[derive(Debug)]
pub struct Order {
    /// Number of the method in the session.
    pub route: RouteIndex,
    /// The request side streams.
    pub streams: bool,
    /// Sent with every call.
    pub metadata: Metadata,
    /// Time every call may take.
    pub timeout: Option<Duration>,
    /// Calls in flight at most.
    pub in_flight_max: usize,
}

/// When the next call is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time from the start.
    At(Duration),
    /// As soon as another has ended.
    WhenOneEnds,
    /// Never.
    Never,
}

/// Says when calls are due and learns what became of them.
pub trait Schedule {
    /// When the next call is due, as things are.
    fn next(&mut self, elapsed: Duration, in_flight: usize) -> Next;
    /// The call that was due is on its way, or in line.
    fn taken(&mut self);
    /// A call that was taken and due at this time is never sent: the line was full, or the run was stopped.
    fn unsent(&mut self, due: Duration);
    /// The run is to end with what is in flight.
    fn is_stopped(&self) -> bool;
    /// A call has ended.
    fn ended(&mut self, call: Ended);
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The session.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The data.
    #[error(transparent)]
    Requests(#[from] RequestsError),
}

/// The loop.
pub struct Driver<'a> {
    attachment: &'a mut Attachment,
    order: Order,
    data: &'a Data,
    start_ns: u64,
    number: u64,
    /// Due, and waiting for room.
    line: VecDeque<Waiting>,
    flying: HashMap<CallId, Flying>,
    /// Streams with requests left that found no room, or no credit.
    held: VecDeque<CallId>,
}

struct Waiting {
    due: Duration,
    number: u64,
}

struct Flying {
    due: Duration,
    sent: Duration,
    requests: VecDeque<Arc<[u8]>>,
    window_bytes: i64,
    is_held: bool,
    responses: u64,
    bytes: [u64; 2],
}

impl<'a> Driver<'a> {
    /// A run that starts now.
    pub fn new(attachment: &'a mut Attachment, order: Order, data: &'a Data) -> Self {
        Self {
            attachment,
            order,
            data,
            start_ns: monotonic_ns(),
            number: 0,
            line: VecDeque::new(),
            flying: HashMap::new(),
            held: VecDeque::new(),
        }
    }

    /// Makes every call of the schedule and waits for their ends.
    ///
    /// # Errors
    /// [`DriveError`]; calls in flight have failed then, and the schedule has learnt so.
    pub fn run(mut self, schedule: &mut impl Schedule) -> Result<(), DriveError> {
        let driven = self.drive(schedule);
        if let Err(error) = &driven {
            self.give_up(schedule, &Status::unavailable(error.to_string()));
        }
        driven
    }

    fn drive(&mut self, schedule: &mut impl Schedule) -> Result<(), DriveError> {
        let mut over_at = None;
        loop {
            while let Some(completion) = self.attachment.next()? {
                self.handle(completion, schedule)?;
            }
            let next = self.line_up(schedule);
            if schedule.is_stopped() {
                self.line.drain(..).for_each(|waiting| schedule.unsent(waiting.due));
            }
            self.send()?;
            if next == Next::Never && self.line.is_empty() {
                if self.flying.is_empty() {
                    return Ok(());
                }
                let grace = self.order.timeout.map_or(GRACE, |timeout| timeout + GRACE);
                let over_at = *over_at.get_or_insert_with(|| self.elapsed() + grace);
                if self.elapsed() >= over_at {
                    let why = "did not end within the bench's grace of 30 s";
                    self.give_up(schedule, &Status::deadline_exceeded(why));
                    return Ok(());
                }
                self.attachment.wait_until(Some(self.at_ns(over_at)))?;
                continue;
            }
            self.attachment.wait_until(self.wake_ns(next))?;
        }
    }

    /// Puts what is due by now in line, [`TURN_MAX`] at most; says when the next is.
    fn line_up(&mut self, schedule: &mut impl Schedule) -> Next {
        let mut next = Next::Never;
        for _ in 0..TURN_MAX {
            let elapsed = self.elapsed();
            next = schedule.next(elapsed, self.flying.len() + self.line.len());
            let Next::At(due) = next else { break };
            if due > elapsed {
                break;
            }
            schedule.taken();
            if self.line.len() >= LINE_MAX {
                schedule.unsent(due);
                continue;
            }
            self.line.push_back(Waiting { due, number: self.number });
            self.number += 1;
        }
        next
    }

    /// Sends what is in line, as far as there is room.
    fn send(&mut self) -> Result<(), DriveError> {
        for _ in 0..self.held.len() {
            if let Some(call) = self.held.pop_front() {
                self.go_on(call)?;
            }
        }
        while self.flying.len() < self.order.in_flight_max {
            let Some(waiting) = self.line.pop_front() else { break };
            if !self.start(&waiting)? {
                self.line.push_front(waiting);
                break;
            }
        }
        Ok(())
    }

    /// `false`: the send heap has no room.
    fn start(&mut self, waiting: &Waiting) -> Result<bool, DriveError> {
        let requests = self.data.of_call(waiting.number)?;
        let Some(metadata) = self.metadata()? else { return Ok(false) };
        let mut payload = None;
        let mut bytes = [0, 0];
        if !self.order.streams {
            let request = requests.first().cloned().unwrap_or_default();
            let Some(span) = self.attachment.write(&request)? else {
                self.attachment.take_back(metadata)?;
                return Ok(false);
            };
            payload = Some(protobuf(span));
            bytes[0] = request.len() as u64;
        }
        // Zero is nobody's; the topmost bit is the daemon's.
        let id = CallId(waiting.number + 1);
        let now = Instant(monotonic_ns());
        let deadline = self.order.timeout.map_or(Deadline::NONE, |timeout| Deadline::after(now, timeout));
        let call = Call {
            route: self.order.route,
            call: id,
            payload,
            metadata,
            end: payload.is_some(),
            wait_for_ready: false,
            deadline,
            entered: now,
            published: now,
            parent: CallId(0),
        };
        self.attachment.submit(&Submission::Call(call))?;
        let flying = Flying {
            due: waiting.due,
            sent: Duration::from_nanos(now.0.saturating_sub(self.start_ns)),
            requests: if self.order.streams { requests.iter().cloned().collect() } else { VecDeque::new() },
            window_bytes: self.attachment.stream_window_bytes().into(),
            is_held: false,
            responses: 0,
            bytes,
        };
        self.flying.insert(id, flying);
        if self.order.streams {
            self.go_on(id)?;
        }
        Ok(true)
    }

    /// Sends what is left of a call's requests, as far as there is room and credit.
    fn go_on(&mut self, id: CallId) -> Result<(), DriveError> {
        let Some(flying) = self.flying.get_mut(&id) else { return Ok(()) };
        flying.is_held = false;
        while flying.window_bytes > 0 {
            let Some(request) = flying.requests.pop_front() else { break };
            let Some(span) = self.attachment.write(&request)? else {
                flying.requests.push_front(request);
                break;
            };
            flying.window_bytes -= i64::from(span.len);
            flying.bytes[0] += request.len() as u64;
            let (payload, end) = (protobuf(span), flying.requests.is_empty());
            let a1 = Instant(monotonic_ns());
            self.attachment.submit(&Submission::Message { call: id, payload, end, a1 })?;
        }
        if !flying.requests.is_empty() && flying.window_bytes > 0 {
            flying.is_held = true;
            self.held.push_back(id);
        }
        Ok(())
    }

    /// Metadata in the send heap; `None` while there is no room.
    fn metadata(&mut self) -> Result<Option<Span>, AttachError> {
        let mut encoded = Vec::with_capacity(self.order.metadata.encoded_len());
        self.order.metadata.encode(&mut encoded);
        self.attachment.write(&encoded)
    }

    fn handle(&mut self, completion: Completion, schedule: &mut impl Schedule) -> Result<(), DriveError> {
        match completion {
            Completion::Headers { call, metadata } => {
                self.release(call, Span::default(), metadata, Instant(0))
            }
            Completion::Message { call, payload, .. } => {
                if let Some(flying) = self.flying.get_mut(&call) {
                    flying.responses += 1;
                    flying.bytes[1] += u64::from(payload.span.len);
                }
                self.release(call, payload.span, Span::default(), Instant(0))
            }
            Completion::Finish(finish) => self.finish(&finish, schedule),
            Completion::Freed { offsets } => Ok(self.attachment.free(&offsets)?),
            Completion::Credit { call, bytes } => {
                let Some(flying) = self.flying.get_mut(&call) else { return Ok(()) };
                flying.window_bytes += i64::from(bytes);
                if flying.is_held { Ok(()) } else { self.go_on(call) }
            }
            // A client that only makes calls is told of nothing else.
            Completion::HalfClose { .. }
            | Completion::GoAway
            | Completion::Drained
            | Completion::Call(_)
            | Completion::Cancelled { .. } => Ok(()),
        }
    }

    fn finish(&mut self, finish: &Finish, schedule: &mut impl Schedule) -> Result<(), DriveError> {
        let taken = Instant(monotonic_ns());
        let status = self.status(finish)?;
        let block = finish.payload.map_or(Span::default(), |payload| payload.span);
        self.release(finish.call, block, finish.metadata, taken)?;
        let Some(mut flying) = self.flying.remove(&finish.call) else { return Ok(()) };
        if finish.payload.is_some() {
            flying.responses += 1;
            flying.bytes[1] += u64::from(block.len);
        }
        schedule.ended(flying.ended(Duration::from_nanos(taken.0.saturating_sub(self.start_ns)), &status));
        Ok(())
    }

    fn status(&mut self, finish: &Finish) -> Result<Status, AttachError> {
        if finish.code == trunkline_call::Code::Ok {
            return Ok(Status::ok());
        }
        let encoded = self.attachment.read(finish.metadata)?;
        let mut trailers = Metadata::decode(&encoded).unwrap_or_default();
        Ok(status_of(finish, &mut trailers))
    }

    fn release(&mut self, call: CallId, block: Span, metadata: Span, a18: Instant) -> Result<(), DriveError> {
        Ok(self.attachment.submit(&Submission::Release { call, block, metadata, a18 })?)
    }

    /// Calls that do not end are not left out: they count as failures that took until now.
    fn give_up(&mut self, schedule: &mut impl Schedule, why: &Status) {
        let now = self.elapsed();
        for (_, flying) in self.flying.drain() {
            schedule.ended(flying.ended(now, why));
        }
    }

    /// When to look again, whatever happens.
    fn wake_ns(&self, next: Next) -> Option<u64> {
        let waits = self.line.len().min(self.order.in_flight_max.saturating_sub(self.flying.len())) > 0;
        let retry = (waits || !self.held.is_empty()).then(|| monotonic_ns() + RETRY_NS);
        let due = match next {
            Next::At(due) => Some(self.at_ns(due)),
            Next::WhenOneEnds | Next::Never => None,
        };
        retry.into_iter().chain(due).min()
    }

    fn at_ns(&self, time: Duration) -> u64 {
        self.start_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.start_ns))
    }
}

impl Flying {
    fn ended(self, over: Duration, status: &Status) -> Ended {
        Ended {
            due: self.due,
            sent: self.sent,
            over,
            code: status.code(),
            message: status.message().to_owned(),
            responses: self.responses,
            bytes: self.bytes,
        }
    }
}
