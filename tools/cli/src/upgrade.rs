//! `trunkline upgrade`: another process goes on in the daemon's place.
//!
//! The running daemon is asked who it is, and to begin, which it answers at once. From then on this asks whoever
//! answers how it goes: the old daemon, then for a moment nobody, then the new one. Whether it took place is said
//! whatever happens to a question: an answer may get lost, and the daemon's process is still known by its number.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::control_client::ControlClient;
use crate::admin::proto::{GetUpgradeRequest, GetUpgradeResponse, UpgradeRequest};
use crate::args::UpgradeArgs;
use crate::operator::reason;
use crate::table::count;
use std::time::{Duration, Instant};
use trunkline::{Channel, Code, Execution, Request, Status, Wait};

/// Between two questions.
const LOOK: Duration = Duration::from_millis(50);
/// Time a daemon gets to answer one, behind which comes the next.
const ANSWER: Duration = Duration::from_secs(2);
/// Time it gets to say who it is, and to begin, which it is asked once: it answers at once, but a busy host is slow.
const BEGIN: Duration = Duration::from_secs(10);
/// Time without any answer after which nobody is there.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The same while the old daemon's process is there: it stands still for as long as handing over takes, which it bounds
/// itself, and whoever takes over answers as soon as it has begun.
const STANDS_MAX: Duration = Duration::from_secs(120);
/// Time a daemon that was asked and whose answer got lost has to show that it began.
const DOUBT_MAX: Duration = Duration::from_secs(2);

/// Has the daemon replaced, and tells how it goes.
///
/// # Errors
/// Why it was not replaced, or what is known where nobody answers.
pub fn upgrade(channel: &Channel, args: &UpgradeArgs) -> Result<(), String> {
    let binary = match &args.binary {
        Some(binary) => {
            let found = std::fs::canonicalize(binary).map_err(|e| format!("{}: {e}", binary.display()))?;
            found.to_str().ok_or("the path is not UTF-8")?.to_owned()
        }
        None => String::new(),
    };
    let grace_ms = u32::try_from(args.grace.as_millis()).unwrap_or(u32::MAX).max(1);
    let admin = AdminClient::new(channel.clone());
    // Who is to be replaced is known before anything begins, so that whoever answers later can be told from it.
    let mut old =
        ask(&admin, BEGIN).map_err(|status| format!("{}; nothing was begun", reason(&status)))?.process_id;
    let order = Request::new(UpgradeRequest { binary, grace_ms }).with_timeout(BEGIN);
    let has_begun = match ControlClient::new(channel.clone()).upgrade(order).wait() {
        Ok(begun) => {
            // Somebody else may have had that one replaced meanwhile.
            old = begun.view().process_id();
            true
        }
        Err(status) if may_have_begun(&status) => false,
        Err(status) => return Err(format!("{}; nothing was begun", reason(&status))),
    };
    match has_begun {
        true => println!("replacing daemon, process {old}"),
        false => println!(
            "daemon, process {old}, was asked, and its answer got lost; looking whether it has begun"
        ),
    }
    let [silence_max, stands_max] = [SILENCE_MAX, STANDS_MAX].map(|longest| longest + args.grace);
    Watch { admin, old, has_begun, told: 0, silence_max, stands_max }.follow()
}

/// Whether a daemon that gave this answer may have begun all the same.
fn may_have_begun(status: &Status) -> bool {
    status.execution() != Execution::NotExecuted
        && matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal
        )
}

/// How it goes; the daemon has so much time to answer.
fn ask(admin: &AdminClient, time: Duration) -> Result<GetUpgradeResponse, Status> {
    let question = Request::new(GetUpgradeRequest::default()).with_timeout(time);
    admin.get_upgrade(question).wait().map(trunkline::Response::into_inner)
}

/// A replacement that is followed.
struct Watch {
    admin: AdminClient,
    /// The process of the daemon that is replaced.
    old: u32,
    /// It has said that it began, or shown it.
    has_begun: bool,
    /// Steps that were printed.
    told: usize,
    silence_max: Duration,
    stands_max: Duration,
}

impl Watch {
    fn follow(mut self) -> Result<(), String> {
        let (began, mut heard) = (Instant::now(), Instant::now());
        let mut last = String::new();
        while heard.elapsed() < self.silence_max {
            std::thread::sleep(LOOK);
            let began_to_wait = heard;
            match ask(&self.admin, ANSWER) {
                Ok(answer) => {
                    heard = Instant::now();
                    if let Some(outcome) = self.hear(&answer, began.elapsed()) {
                        return outcome;
                    }
                }
                // Whatever a question met on its way says nothing about the replacement.
                Err(status) if status.code() != Code::PermissionDenied => last = status.to_string(),
                Err(status) => return Err(self.unseen(status.message())),
            }
            if heard == began_to_wait && began.elapsed() < self.stands_max && is_there(self.old) {
                // It stands still. Who takes over has the whole time from its end on.
                heard = Instant::now();
            }
        }
        Err(self.unseen(&format!("nobody answers any more ({last})")))
    }

    /// What an answer says of the outcome, if it is there.
    fn hear(&mut self, answer: &GetUpgradeResponse, elapsed: Duration) -> Option<Result<(), String>> {
        let old = self.old;
        if answer.process_id != old {
            return Some(taken_over(answer, old));
        }
        self.has_begun |= answer.under_way;
        if self.has_begun {
            for step in answer.steps.iter().skip(self.told) {
                println!("{step}");
            }
            self.told = answer.steps.len().max(self.told);
        }
        match (answer.under_way, self.has_begun) {
            (true, _) => None,
            (false, true) => Some(Err(format!("{}; the daemon goes on, process {old}", answer.failure))),
            (false, false) if elapsed < DOUBT_MAX => None,
            (false, false) => Some(Err(format!("it has not begun; the daemon goes on, process {old}"))),
        }
    }

    /// What is known when no daemon says it: whether the old one's process is there.
    fn unseen(&self, why: &str) -> String {
        let old = self.old;
        if is_there(old) {
            return format!(
                "{why}; process {old} still runs, so it was not replaced, or not yet: see `trunkline list`"
            );
        }
        format!(
            "{why}; process {old} has ended, so it was replaced, or died: `trunkline list` shows who answers"
        )
    }
}

/// Whether a process of this host runs.
fn is_there(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    // Its state is the first word behind the name; Z has ended and waits to be asked for.
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

fn taken_over(answer: &GetUpgradeResponse, old: u32) -> Result<(), String> {
    let (process, version) = (answer.process_id, &answer.version);
    let Some(taken) = &answer.taken_over else {
        return Err(format!(
            "daemon {process} answers, and took nothing over from process {old}: it was started anew, and calls in \
             flight are lost"
        ));
    };
    let sessions = count(taken.sessions.into(), "session");
    let connections = count(taken.connections.into(), "connection");
    println!("moved {sessions}, {connections}, {}", count(taken.calls.into(), "call"));
    println!(
        "daemon {version}, process {process}, goes on; it stood still for {} us",
        taken.paused_ns / 1000
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Shows what is said of a replacement, by what is heard of it.
    use super::*;
    use crate::admin::proto::TakenOver;

    fn watch(has_begun: bool) -> Watch {
        let admin = AdminClient::new(Channel::builder().socket("/nonexistent/d.sock").connect_lazy());
        let [silence_max, stands_max] = [Duration::ZERO; 2];
        Watch { admin, old: 7, has_begun, told: 0, silence_max, stands_max }
    }

    fn answer(process_id: u32, under_way: bool, failure: &str) -> GetUpgradeResponse {
        GetUpgradeResponse { process_id, under_way, failure: failure.into(), ..GetUpgradeResponse::default() }
    }

    #[test]
    fn what_took_place_is_said() {
        let taken_over = Some(TakenOver { from_process_id: 7, ..TakenOver::default() });
        let moved = GetUpgradeResponse { taken_over, ..answer(8, false, "") };
        assert_eq!(watch(true).hear(&moved, Duration::ZERO), Some(Ok(())));
        assert_eq!(watch(false).hear(&moved, Duration::ZERO), Some(Ok(())), "its answer got lost");
        let anew = watch(true).hear(&answer(8, false, ""), Duration::ZERO).unwrap().unwrap_err();
        assert!(anew.starts_with("daemon 8 answers, and took nothing over from process 7"), "{anew}");
    }

    #[test]
    fn what_did_not_is_said_too() {
        let failed = watch(true).hear(&answer(7, false, "it does not want to"), Duration::ZERO);
        assert_eq!(failed, Some(Err("it does not want to; the daemon goes on, process 7".into())));
        // A failure of the last time is none of this time.
        let mut doubt = watch(false);
        assert_eq!(doubt.hear(&answer(7, false, "old"), Duration::ZERO), None);
        let never = doubt.hear(&answer(7, false, "old"), DOUBT_MAX);
        assert_eq!(never, Some(Err("it has not begun; the daemon goes on, process 7".into())));
        assert_eq!(doubt.hear(&answer(7, true, ""), DOUBT_MAX), None);
        let failed = doubt.hear(&answer(7, false, "new"), DOUBT_MAX);
        assert_eq!(failed, Some(Err("new; the daemon goes on, process 7".into())));
    }

    #[test]
    fn when_nobody_answers_the_process_tells() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let watch = |old| Watch { old, ..watch(true) };
        let said = watch(child.id()).follow().unwrap_err();
        assert!(said.contains(&format!("process {} still runs", child.id())), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
        let said = watch(child.id()).follow().unwrap_err();
        assert!(said.contains(&format!("process {} has ended", child.id())), "{said}");
    }

    /// However long it takes: that nobody answers says nothing while the old daemon hands over.
    #[test]
    fn while_the_old_daemon_stands_still_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("0.5").spawn().unwrap();
        let began = Instant::now();
        let old = child.id();
        let buried = std::thread::spawn(move || child.wait().map(|_| Instant::now()));
        let stands_max = Duration::from_secs(100);
        let said = Watch { old, stands_max, silence_max: Duration::from_millis(1), ..watch(true) }.follow();
        let ended = buried.join().unwrap().unwrap();
        assert!(said.unwrap_err().contains(&format!("process {old} has ended")), "its end is known");
        assert!(began.elapsed() >= ended.duration_since(began), "nothing was said before");
    }

    #[test]
    fn an_answer_that_got_lost_is_no_refusal() {
        let lost = Status::new(Code::Unavailable, "").with_execution(Execution::Unknown);
        assert!(may_have_begun(&lost));
        assert!(!may_have_begun(&Status::new(Code::Unavailable, "").with_execution(Execution::NotExecuted)));
        assert!(!may_have_begun(
            &Status::new(Code::PermissionDenied, "").with_execution(Execution::Executed)
        ));
    }
}
