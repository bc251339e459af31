//! What each call has to come to, and who makes and serves it.
//!
//! A request begins with the number of its call; its servers, which are this process's too, find the rest there. Calls
//! above one are a chain of calls to [`ABOVE`] whose last handler makes it; calls below are made to [`BELOW`] by its
//! handler. A handler answers when the answer is due: the call's time after it began, less the answer's own way.

use super::timer::Timer;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trunkline::codegen::Handling;
use trunkline::opaque::{Answer, Client, Delivered, Incoming, Outcome, Responder, Service};
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
/// Calls below one that are under way.
const BELOW_AT_ONCE: usize = 16;

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
}

/// The calls, and by whom they are made.
#[derive(Debug)]
pub struct Acts {
    /// By number.
    pub calls: Vec<CallPlan>,
    /// To the servers, through the daemon that makes the calls.
    pub across: Client,
    /// To the servers of the daemon that makes the calls.
    pub above: Client,
    /// To the servers of the other daemon, through that one.
    pub below: Client,
    timer: Timer,
    began: Instant,
    way_back_ns: AtomicU64,
}

impl Acts {
    /// Of these calls, with clients as the fields of these names have them.
    pub fn new(calls: Vec<CallPlan>, [across, above, below]: [Client; 3]) -> Self {
        let (timer, began) = (Timer::start(), Instant::now());
        Self { calls, across, above, below, timer, began, way_back_ns: AtomicU64::new(0) }
    }

    /// An answer takes so long from its handler to the caller.
    pub fn set_way_back(&self, way_back: Duration) {
        self.way_back_ns.store(nanos(way_back), Ordering::Relaxed);
    }

    /// Waits until then.
    pub async fn until(&self, at: Instant) {
        self.timer.until(at).await;
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
        let (client, path, due) = match above {
            0 => (&self.across, plan.path.as_str(), nanos(self.began.elapsed() + plan.takes)),
            _ => (&self.above, ABOVE, 0),
        };
        let mut request = Vec::with_capacity(plan.request_bytes);
        request.extend((number as u64).to_le_bytes());
        request.extend(above.saturating_sub(1).to_le_bytes());
        request.extend(due.to_le_bytes());
        if above == 0 {
            request.resize(plan.request_bytes.max(request.len()), 0);
        }
        let timeout = plan.takes + PATIENCE;
        let cancels = above == 0 && plan.code == Code::Cancelled;
        exchange(client, path, request, timeout, cancels).await
    }

    /// An empty call by one of the clients.
    pub async fn probe(&self, client: &Client) -> Code {
        exchange(client, BELOW, Vec::new(), PATIENCE, false).await
    }

    /// Handles a call of a method of the file.
    async fn serve(&self, number: usize, due_ns: u64, mut responder: Responder) {
        let Some(plan) = self.calls.get(number) else {
            let status = Status::invalid_argument("the request names no call of the file that is driven");
            return fail(responder, &status).await;
        };
        let one = || exchange(&self.below, BELOW, Vec::new(), PATIENCE, false);
        let mut under_way = FuturesUnordered::new();
        for _ in 0..plan.below {
            if under_way.len() >= BELOW_AT_ONCE {
                under_way.next().await;
            }
            under_way.push(one());
        }
        while under_way.next().await.is_some() {}
        if plan.code == Code::Cancelled {
            // The caller gives up when it hears of a handler.
            let scope = responder.scope();
            let _gone = responder.send_headers(&Metadata::new()).await;
            return poll_fn(|cx| scope.poll_over(cx)).await;
        }
        let way_back_ns = self.way_back_ns.load(Ordering::Relaxed);
        self.until(self.began + Duration::from_nanos(due_ns.saturating_sub(way_back_ns))).await;
        match plan.code {
            Code::Ok => answer(responder, vec![0; plan.answer_bytes]).await,
            code => {
                let status = Status::new(code, "as it was in the file");
                fail(responder, &status).await;
            }
        }
    }

    /// Handles a call of [`TREE`].
    async fn serve_tree(&self, path: &str, request: Option<[u64; 3]>, responder: Responder) {
        if let (ABOVE, Some([number, above, _])) = (path, request)
            && (number as usize) < self.calls.len()
        {
            self.make(number as usize, u16::try_from(above).unwrap_or(0)).await;
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
            let request = first_numbers(&mut incoming).await;
            match request {
                request if is_tree => acts.serve_tree(&path, request, responder).await,
                Some([number, _, due_ns]) => acts.serve(number as usize, due_ns, responder).await,
                None => acts.serve(usize::MAX, 0, responder).await,
            }
        })
    }
}

/// What a request begins with: number of the call, calls above it, when its answer is due; `None` if it is shorter.
async fn first_numbers(incoming: &mut Incoming) -> Option<[u64; 3]> {
    let message = poll_fn(|cx| incoming.poll_message(cx)).await.ok().flatten()?;
    let (number, rest) = message.as_ref().split_first_chunk::<8>()?;
    let (above, rest) = rest.split_first_chunk::<2>()?;
    let due_ns = rest.first_chunk::<8>()?;
    Some([u64::from_le_bytes(*number), u16::from_le_bytes(*above).into(), u64::from_le_bytes(*due_ns)])
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
    let (_requests, mut answers) = match call.open().await {
        Ok(opened) => opened,
        Err(status) => return status.code(),
    };
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
