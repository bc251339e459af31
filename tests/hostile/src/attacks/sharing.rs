//! Programs that want all of a shard: each serves a service of its own, and calls it as hard as the daemon lets it.

use super::Attacker;
use crate::application::Application;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trunkline_call::entry::{Call, Completion, Finish, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Execution, Instant, RouteIndex};
use trunkline_control::Attach;

/// Entries of its rings: all it may have said and not been answered fits in.
const RING_ENTRIES: u32 = 8192;
/// Calls in flight. So many that there are always some in the ring, whoever has the processors.
const IN_FLIGHT: u64 = 512;

/// Both ends of its calls.
struct Busy {
    client: Application,
    server: Application,
    route: RouteIndex,
    request: Option<Payload>,
    answer: Option<Payload>,
    in_flight: u64,
    answered: Arc<AtomicU64>,
}

/// Calls without end, whose requests and answers have so many bytes each.
pub(super) fn busy(attacker: &mut Attacker, bytes: usize) -> Result<String, String> {
    let mut busy = attach(attacker, bytes)?;
    std::thread::spawn(move || while busy.go_on().is_ok_and(|goes_on| goes_on) {});
    Ok(format!("calls of {bytes} bytes"))
}

/// The same program, which wants nothing.
pub(super) fn idle(attacker: &mut Attacker, bytes: usize) -> Result<String, String> {
    let Busy { client, server, .. } = attach(attacker, bytes)?;
    attacker.applications.extend([client, server]);
    Ok("nothing".into())
}

/// Attaches as a client of the service that is named after its user, whose calls have so many bytes each. It makes none
/// yet.
pub(super) fn client(attacker: &mut Attacker, bytes: usize) -> Result<String, String> {
    let wants = Attach { submission_entries: RING_ENTRIES, ..Attach::default() };
    let mut client = Application::attach_as(&attacker.socket, wants)?;
    let user = rustix::process::getuid().as_raw();
    // By which a daemon may know whose its calls are.
    client.bind(vec![format!("hostile.v1.User{user}")], Vec::new())?;
    let bound = client.bind(Vec::new(), vec![(format!("/hostile.v1.Of{user}/Call"), String::new())])?;
    let request = client.put(&vec![7; bytes])?;
    attacker.client = Some((client, RouteIndex(bound.calls[0]), request));
    Ok(format!("calls of {bytes} bytes"))
}

/// Puts so many calls of that client into its ring.
pub(super) fn fill(attacker: &mut Attacker, times: usize) -> Result<String, String> {
    let (client, route, request) = attacker.client.as_mut().ok_or("there is no client")?;
    for _ in 0..times {
        let Submission::Call(call) = client.call(*route) else { continue };
        if !client.submit(&Submission::Call(Call { payload: Some(*request), ..call })) {
            return Err("the ring is full".into());
        }
    }
    Ok(format!("{times} calls"))
}

/// How many calls have been answered so far.
pub(super) fn answered(attacker: &mut Attacker, _: usize) -> Result<String, String> {
    Ok(attacker.answered.load(Ordering::Relaxed).to_string())
}

fn attach(attacker: &Attacker, bytes: usize) -> Result<Busy, String> {
    let wants =
        || Attach { submission_entries: RING_ENTRIES, completion_entries: RING_ENTRIES, ..Attach::default() };
    let mut server = Application::attach_as(&attacker.socket, wants())?;
    let mut client = Application::attach_as(&attacker.socket, wants())?;
    // By which a daemon may know whose its calls are.
    let user = rustix::process::getuid().as_raw();
    client.bind(vec![format!("hostile.v1.User{user}")], Vec::new())?;
    let service = format!("hostile.v1.Of{}", std::process::id());
    server.bind(vec![service.clone()], Vec::new())?;
    let bound = client.bind(Vec::new(), vec![(format!("/{service}/Call"), String::new())])?;
    let message = vec![7; bytes];
    let (request, answer) = (Some(client.put(&message)?), Some(server.put(&message)?));
    let route = RouteIndex(bound.calls[0]);
    let answered = Arc::clone(&attacker.answered);
    Ok(Busy { client, server, route, request, answer, in_flight: 0, answered })
}

impl Busy {
    /// Says all it may, and hears all there is. `false`: the daemon takes no more.
    fn go_on(&mut self) -> Result<bool, String> {
        let mut said = 0;
        while self.in_flight < IN_FLIGHT {
            let Submission::Call(call) = self.client.call(self.route) else { break };
            let call = Submission::Call(Call { payload: self.request, ..call });
            if !self.client.submit(&call) {
                return Ok(false);
            }
            (self.in_flight, said) = (self.in_flight + 1, said + 1);
        }
        while let Some(completion) = self.server.hear()? {
            let Completion::Call(call) = completion else { continue };
            let release = release(call.call, call.payload, call.metadata);
            let finish = Submission::Finish(Finish {
                call: call.call,
                code: Code::Ok,
                execution: Execution::Executed,
                payload: self.answer,
                metadata: Span::default(),
                taken: Instant(1),
                published: Instant(1),
                cpu_ns: 0,
                subtree: 0,
            });
            if !self.server.submit(&release) || !self.server.submit(&finish) {
                return Ok(false);
            }
            said += 1;
        }
        while let Some(completion) = self.client.hear()? {
            let Completion::Finish(finish) = completion else { continue };
            if finish.code != Code::Ok {
                return Err(format!("a call ended with {:?}", finish.code));
            }
            if !self.client.submit(&release(finish.call, finish.payload, finish.metadata)) {
                return Ok(false);
            }
            (self.in_flight, said) = (self.in_flight - 1, said + 1);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        if said == 0 {
            // The shard has the processor.
            std::thread::yield_now();
        }
        Ok(true)
    }
}

fn release(call: CallId, payload: Option<Payload>, metadata: Span) -> Submission {
    let block = payload.map_or(Span::default(), |payload| payload.block());
    Submission::Release { call, block, metadata, a18: Instant(1) }
}
