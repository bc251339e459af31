//! What each call has to come to, and who makes and serves it.
//!
//! A request begins with the number of its call; its servers, which are this process's too, find the rest there. Calls
//! above one are a chain of calls to [`ABOVE`] whose last handler makes it; calls below are made to [`BELOW`] by its
//! handler. A handler answers when the answer is due: the call's time after it began, less the answer's own way.

use super::timer::Timer;
use super::work::{Worked, others};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trunkline::codegen::Handling;
use trunkline::opaque::{Answer, Answers, Client, Delivered, Incoming, Outcome, Responder, Service};
use trunkline::{Code, Metadata, Status};

/// The service of the calls above and below.
pub const TREE: &str = "drive.v1.Tree";
/// Makes the next call.
pub const ABOVE: &str = "/drive.v1.Tree/Above";
/// Answers.
pub const BELOW: &str = "/drive.v1.Tree/Below";
/// No request is smaller: number of the call, calls still above it, when its answer is due.
pub const REQUEST_BYTES_MIN: usize = 18;
/// Beyond its own time a call may take so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which the first call gets to the servers.
const REACH_MAX: Duration = Duration::from_secs(10);
/// Calls that a handler of the file's methods makes itself, which cost it little processor time then; and one below it,
/// one behind the other, unless none of them has any below: so a deep tree has few under way.
const TOP_CALLS: u32 = 1;
const TREE_CALLS: u32 = 32;
/// A daemon has another connection for requests of more than half of this.
const LARGE_BYTES: usize = 64 << 10;
/// So long before a time whoever waits for just that is woken.
const WAKE_EARLY: Duration = Duration::from_micros(500);
/// What is left of its work when it begins to wait: what it takes to wake up and answer is part of it.
const WORK_LEFT: Duration = Duration::from_micros(20);
/// What it takes to answer, and for each KiB of the answer, is part of it, too.
const ANSWER_WORK: Duration = Duration::from_micros(8);
const ANSWER_WORK_KIB: Duration = Duration::from_nanos(200);
/// Calls that are refused before the others are made, for each thread that runs handlers: behind a handler of some time
/// all tell what they take, so the first refuse late.
const REFUSED: usize = 32;
const REFUSED_AFTER: Duration = Duration::from_millis(1);

/// What a call has to come to.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPlan {
    /// Its method.
    pub path: String,
    /// Bytes of its request.
    pub request_bytes: usize,
    /// Bytes of its answer.
    pub answer_bytes: usize,
    /// Calls its handler makes.
    pub below: u32,
    /// Calls above it.
    pub above: u16,
    /// How it ends.
    pub code: Code,
    /// The time it takes.
    pub takes: Duration,
    /// Processor time its handler takes, if it does not take more anyway.
    pub works: Duration,
    /// Which of the callers makes it.
    pub caller: usize,
    /// Its wires are to take this time.
    pub wire: Duration,
    /// The wire it has, of its caller's.
    pub route: usize,
    /// Of that wire, the way back.
    pub back: Duration,
    /// Between entering the call and having it complete its caller waits so long.
    pub holds: Duration,
    /// What it waits in queues: in that of the caller before it is published, in that of the server until it is taken,
    /// there until its answer is published, and in the caller's until that is taken.
    pub queues: CallQueues,
}

/// The times of a call's four queues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallQueues {
    /// Client send queue.
    pub client_send: Duration,
    /// Server receive queue.
    pub server_receive: Duration,
    /// Server send queue.
    pub server_send: Duration,
    /// Client receive queue.
    pub client_receive: Duration,
}

impl CallQueues {
    /// All of them.
    pub fn all(&self) -> Duration {
        self.client_send + self.server_receive + self.server_send + self.client_receive
    }
}

/// A host that makes calls.
#[derive(Debug)]
pub struct DrivenCaller {
    /// To the servers, through its daemon, by each of the wires.
    pub across: Vec<Client>,
    /// To the servers of its daemon.
    pub above: Client,
}

/// The calls, and by whom they are made.
#[derive(Debug)]
pub struct Acts {
    /// By number.
    pub calls: Vec<CallPlan>,
    /// Who makes them.
    pub callers: Vec<DrivenCaller>,
    /// To the servers of the other daemon, through that one.
    pub below: Client,
    below_max: u32,
    timer: Timer,
    began: Instant,
    way_back_ns: AtomicU64,
    /// Calls below others that did not end well: those others have fewer.
    below_failed: AtomicU64,
}

impl Acts {
    /// Of these calls, with callers and a client as the fields of these names have them.
    pub fn new(calls: Vec<CallPlan>, callers: Vec<DrivenCaller>, below: Client) -> Self {
        let (timer, began) = (Timer::start(), Instant::now());
        let below_max = calls.iter().map(|call| call.below).max().unwrap_or(0);
        let [way_back_ns, below_failed] = Default::default();
        Self { calls, callers, below, below_max, timer, began, way_back_ns, below_failed }
    }

    /// How many calls below others did not end well.
    pub fn below_failed(&self) -> u64 {
        self.below_failed.load(Ordering::Relaxed)
    }

    /// An answer takes so long from its handler to the caller.
    pub fn set_way_back(&self, way_back: Duration) {
        self.way_back_ns.store(nanos(way_back), Ordering::Relaxed);
    }

    fn way_back(&self) -> Duration {
        Duration::from_nanos(self.way_back_ns.load(Ordering::Relaxed))
    }

    /// Waits until then.
    pub async fn until(&self, at: Instant) {
        self.timer.until(at).await;
    }

    /// Waits until then, and not half a millisecond longer: who sleeps is woken late.
    async fn until_just(&self, at: Instant) {
        if let Some(early) = at.checked_sub(WAKE_EARLY) {
            self.timer.until(early).await;
        }
        while Instant::now() < at {
            others().await;
        }
    }

    /// What a future comes to, if it does so in this time.
    pub async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let late = self.timer.until(Instant::now() + time);
        match select(pin!(future), pin!(late)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// Makes a first call to the servers by a client that does not wait for them.
    ///
    /// # Errors
    /// Why it did not get there.
    pub async fn reach(&self, client: &Client) -> Result<(), Status> {
        let call = client.call(BELOW).with_timeout(REACH_MAX).with_message(Vec::new()).with_no_more();
        let (_requests, mut answers) = call.open().await?;
        loop {
            match answers.next().await {
                Some(Answer::End(mut end)) if end.code != Code::Ok => {
                    return Err(Status::take_from(&mut end.trailers, end.code).with_execution(end.execution));
                }
                Some(Answer::End(_)) => return Ok(()),
                Some(Answer::Headers(_) | Answer::Message(_)) => {}
                None => return Err(Status::unavailable("the daemon went away")),
            }
        }
    }

    /// Makes a call with those above it that are still missing; what came of it.
    pub async fn make(&self, number: usize, above: u16) -> Code {
        let plan = &self.calls[number];
        if above == 0 {
            return self.make_itself(number).await;
        }
        let mut request = Vec::with_capacity(REQUEST_BYTES_MIN);
        request.extend((number as u64).to_le_bytes());
        request.extend((above - 1).to_le_bytes());
        request.extend(0_u64.to_le_bytes());
        let above = &self.callers[plan.caller].above;
        exchange(above, ABOVE, request, plan.takes + PATIENCE, false).await
    }

    /// The caller has the time of both stacks before the call is complete, and a queue of its own for it and for the
    /// answer, which leaves the server so much sooner; the server has queues of its own, too.
    async fn make_itself(&self, number: usize) -> Code {
        let plan = &self.calls[number];
        let call = self.callers[plan.caller].across[plan.route].call(&plan.path);
        // Not before it was entered: it would take less than it is to.
        let entered = Instant::now();
        let due = entered + plan.takes;
        let CallQueues { client_send, client_receive, .. } = plan.queues;
        let answer_due =
            due.checked_sub(client_receive + plan.back).map_or(Duration::ZERO, |at| at - self.began);
        let mut request = Vec::with_capacity(plan.request_bytes);
        request.extend((number as u64).to_le_bytes());
        request.extend(0_u16.to_le_bytes());
        request.extend(nanos(answer_due).to_le_bytes());
        request.resize(plan.request_bytes.max(request.len()), 0);
        let mut call = call.with_timeout(plan.takes + PATIENCE).with_message(request);
        if !plan.holds.is_zero() {
            self.until_just(entered + plan.holds).await;
        }
        if !client_send.is_zero() {
            call = call.queued();
            self.until_just(Instant::now() + client_send).await;
        }
        let is_planted = !(plan.wire + plan.holds + plan.queues.all()).is_zero();
        let (_requests, answers) = match call.with_no_more().open().await {
            Ok(opened) => opened,
            Err(status) => return status.code(),
        };
        if is_planted {
            self.until_just(due).await;
        }
        end_of(answers, plan.code == Code::Cancelled).await
    }

    /// Makes a call with so many below it, and none with more than a call of the file may have.
    async fn make_below(&self, below: u32, patience: Duration) {
        if exchange(&self.below, BELOW, below.to_le_bytes().into(), patience, false).await != Code::Ok {
            self.below_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes a call that the servers of the file's methods refuse.
    async fn refused(&self) {
        let Some((caller, plan)) = self.callers.first().zip(self.calls.first()) else { return };
        let path =
            plan.path.rsplit_once('/').map_or_else(String::new, |(service, _)| format!("{service}/Refused"));
        exchange(&caller.across[0], &path, vec![u8::MAX; REQUEST_BYTES_MIN], REACH_MAX, false).await;
    }

    /// Makes a first small and a first large call by each wire, so that the connections are there, and calls that the
    /// file's servers refuse.
    ///
    /// # Errors
    /// How one ended.
    pub async fn connect(&self) -> Result<(), Code> {
        let across = self.callers.iter().flat_map(|caller| &caller.across);
        let one = |(client, bytes)| exchange(client, BELOW, vec![0; bytes], REACH_MAX, false);
        let first = across.flat_map(|client| [(client, 0), (client, LARGE_BYTES)]);
        let mut under_way: FuturesUnordered<_> = first.map(one).collect();
        while let Some(code) = under_way.next().await {
            if code != Code::Ok {
                return Err(code);
            }
        }
        let mut under_way: FuturesUnordered<_> = (0..REFUSED).map(|_| self.refused()).collect();
        while under_way.next().await.is_some() {}
        Ok(())
    }

    /// An empty call by one of the clients.
    pub async fn probe(&self, client: &Client) -> Code {
        exchange(client, BELOW, Vec::new(), PATIENCE, false).await
    }

    /// Handles a call of a method of the file.
    async fn serve(&self, number: usize, due_ns: u64, mut responder: Responder, worked: &Worked) {
        let Some(plan) = self.calls.get(number) else {
            self.until(Instant::now() + REFUSED_AFTER).await;
            let status = Status::invalid_argument("the request names no call of the file that is driven");
            return fail(responder, &status).await;
        };
        let CallQueues { server_receive, server_send, .. } = plan.queues;
        if !server_receive.is_zero() {
            self.until(Instant::now() + server_receive).await;
            responder.taken_now();
        }
        let patience = plan.takes + PATIENCE;
        for below in divided(plan.below, TOP_CALLS) {
            self.make_below(below, patience).await;
        }
        let message = if plan.code == Code::Ok { vec![0; plan.answer_bytes] } else { Vec::new() };
        let is_cancelled = plan.code == Code::Cancelled;
        let left = if is_cancelled { Duration::ZERO } else { WORK_LEFT };
        let answers = ANSWER_WORK + ANSWER_WORK_KIB * u32::try_from(message.len() >> 10).unwrap_or(0);
        let wakes = if server_send.is_zero() { Duration::ZERO } else { WORK_LEFT };
        let works = plan.works.saturating_sub(answers + wakes);
        worked.until(works.saturating_sub(left)).await;
        if is_cancelled {
            // The caller gives up when it hears of a handler, which is dropped then: only so it says what it took.
            let _gone = responder.send_headers(&Metadata::new()).await;
            return std::future::pending().await;
        }
        let leaves = self.began + Duration::from_nanos(due_ns).saturating_sub(self.way_back());
        self.until(leaves.checked_sub(server_send).unwrap_or(leaves)).await;
        worked.until(works).await;
        if !server_send.is_zero() {
            responder.answer_queued();
            self.until(leaves).await;
        }
        match plan.code {
            Code::Ok => answer(responder, message).await,
            code => {
                let status = Status::new(code, "as it was in the file");
                fail(responder, &status).await;
            }
        }
    }

    /// Handles a call of [`TREE`].
    async fn serve_tree(&self, path: &str, request: &[u8], responder: Responder) {
        if path == ABOVE {
            if let Some([number, above, _]) = numbers(request)
                && (number as usize) < self.calls.len()
            {
                self.make(number as usize, u16::try_from(above).unwrap_or(0)).await;
            }
        } else if let Some(below) = request.first_chunk::<4>() {
            // No more than a call of the file may have: whoever else calls has no such tree made.
            let below = u32::from_le_bytes(*below).min(self.below_max);
            let calls = divided(below, TREE_CALLS).map(|below| self.make_below(below, PATIENCE));
            if below <= TREE_CALLS {
                // Together they cost the processor a third.
                let mut leaves: FuturesUnordered<_> = calls.collect();
                while leaves.next().await.is_some() {}
            } else {
                for call in calls {
                    call.await;
                }
            }
        }
        answer(responder, Vec::new()).await;
    }
}

/// Serves the methods of a service, or the calls above and below.
pub struct ActService {
    /// Full name.
    pub name: String,
    /// What its calls have to come to.
    pub acts: Arc<Acts>,
}

impl Service for ActService {
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, call: Delivered) -> Handling {
        let acts = Arc::clone(&self.acts);
        let is_tree = self.name == TREE;
        Box::pin(async move {
            let Delivered { path, mut incoming, responder, .. } = call;
            let request = first_bytes(&mut incoming).await;
            if is_tree {
                return acts.serve_tree(&path, &request, responder).await;
            }
            let [number, _, due_ns] = numbers(&request).unwrap_or([u64::MAX, 0, 0]);
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let worked = Worked::default();
            worked.count(acts.serve(number, due_ns, responder, &worked)).await;
        })
    }
}

/// What a request begins with; nothing if there is none.
async fn first_bytes(incoming: &mut Incoming) -> Vec<u8> {
    let message = poll_fn(|cx| incoming.poll_message(cx)).await.ok().flatten();
    message
        .map_or_else(Vec::new, |message| message.as_ref().iter().take(REQUEST_BYTES_MIN).copied().collect())
}

/// Number of the call, calls above it, when its answer is due; `None` if the request is shorter.
fn numbers(request: &[u8]) -> Option<[u64; 3]> {
    let (number, rest) = request.split_first_chunk::<8>()?;
    let (above, rest) = rest.split_first_chunk::<2>()?;
    let due_ns = rest.first_chunk::<8>()?;
    Some([u64::from_le_bytes(*number), u16::from_le_bytes(*above).into(), u64::from_le_bytes(*due_ns)])
}

/// So many calls below, divided among at most so many calls: how many each of those has below itself.
fn divided(below: u32, among: u32) -> impl Iterator<Item = u32> {
    let calls = below.min(among);
    // The calls themselves are among them.
    let rest = below - calls;
    (0..calls).map(move |at| rest / calls + u32::from(at < rest % calls))
}

/// The caller has what it has: one that has gone is counted where it called.
async fn fail(responder: Responder, status: &Status) {
    let _is_wanted = responder.finish(&Outcome::from(status), None).await;
}

async fn answer(responder: Responder, message: Vec<u8>) {
    let outcome = Outcome { code: Code::Ok, ..Outcome::from(&Status::new(Code::Ok, "")) };
    let _is_wanted = responder.finish(&outcome, Some(message.into())).await;
}

/// Makes a call to its end, or, if it `cancels`, until its handler has it.
async fn exchange(client: &Client, path: &str, request: Vec<u8>, timeout: Duration, cancels: bool) -> Code {
    let call = client.call(path).with_timeout(timeout).with_message(request).with_no_more();
    match call.open().await {
        Ok((_requests, answers)) => end_of(answers, cancels).await,
        Err(status) => status.code(),
    }
}

/// What an open call comes to.
async fn end_of(mut answers: Answers, cancels: bool) -> Code {
    loop {
        match answers.next().await {
            Some(Answer::End(outcome)) => return outcome.code,
            Some(Answer::Headers(_)) if cancels => return Code::Cancelled,
            Some(Answer::Headers(_) | Answer::Message(_)) => {}
            None => return Code::Unavailable,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! Shows that a tree has exactly the calls that it is to have, however deep.
    use super::*;

    fn made(below: u32, among: u32) -> u32 {
        divided(below, among).map(|below| 1 + made(below, TREE_CALLS)).sum()
    }

    #[test]
    fn a_tree_has_as_many_calls_as_it_is_to_have() {
        for below in [0, 1, 3, 4, 5, 16, 17, 64, 1155, 26_400, 100_000] {
            assert_eq!(made(below, TOP_CALLS), below);
            let tops: Vec<u32> = divided(below, TOP_CALLS).collect();
            let (least, most) = (tops.iter().min(), tops.iter().max());
            assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1), "{tops:?}");
        }
    }
}
