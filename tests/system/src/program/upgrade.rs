//! Daemons that are replaced, and successors that do not take over.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trunkline_daemon::{Arrival, Config, Daemon, HandOver, HandOverStep};

/// Longest a step of a successor may take: far above what it takes on a loaded machine.
const STEP_MAX: Duration = Duration::from_secs(120);
/// The same of one that hangs, for which a test waits.
const HANGING_MAX: Duration = Duration::from_secs(1);

/// Who dies in the middle of a hand-over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    Nobody,
    /// The daemon that hands over.
    Old,
    /// The one that takes over.
    New,
    /// Another process.
    Other(Pid),
}

/// How a successor does not take over that never answers.
const HANGS: &str = "hangs";

/// Steps by the names they have in orders; `standing` is the second of the two threads of a daemon with one shard.
pub const STEPS: [&str; 8] = ["started", "able", "prepared", "drained", "standing", "sent", "ready", "gone"];

/// Hands over to this very program with these arguments; the answer is the successor's to give. If that was in vain,
/// says why.
pub fn replace(daemon: &Daemon, arguments: &[&str]) -> String {
    replace_and_kill(daemon, arguments, Dies::Nobody, "")
}

/// The same, by a process that may have so many descriptors and no more.
pub fn replace_within(daemon: &Daemon, descriptors: &str, arguments: &[&str]) -> String {
    let Ok(binary) = std::env::current_exe() else { return "no program".into() };
    let limit = format!("--nofile={descriptors}:{descriptors}");
    let arguments = [limit.into(), binary.into()].into_iter().chain(arguments.iter().map(Into::into));
    hand_over(daemon, "/usr/bin/prlimit".into(), arguments.collect(), Dies::Nobody, "")
}

/// The same, with somebody killed as soon as a step is done. Says which process the successor is, before anything else.
pub fn replace_and_kill(daemon: &Daemon, arguments: &[&str], dies: Dies, when: &str) -> String {
    let Ok(binary) = std::env::current_exe() else { return "no program".into() };
    hand_over(daemon, binary, arguments.iter().map(Into::into).collect(), dies, when)
}

fn hand_over(daemon: &Daemon, binary: PathBuf, arguments: Vec<OsString>, dies: Dies, when: &str) -> String {
    let hangs = arguments.iter().any(|argument| argument == HANGS);
    let order = HandOver {
        binary,
        arguments,
        build: "probe".into(),
        counts: Default::default(),
        grace: Duration::from_millis(500),
        start_max: if hangs { HANGING_MAX } else { STEP_MAX },
        step_max: STEP_MAX,
    };
    let mut successor = None;
    let mut watch = |step: HandOverStep| {
        if let HandOverStep::Started { process, .. } = &step {
            successor = i32::try_from(*process).ok().and_then(Pid::from_raw);
            if dies != Dies::Nobody {
                let _ = super::say(&format!("started {process}"));
            }
        }
        if name_of(&step) == when {
            let victim = match dies {
                Dies::Old => Some(getpid()),
                Dies::Other(process) => Some(process),
                Dies::Nobody | Dies::New => successor,
            };
            if let Some(victim) = victim {
                let _ = kill_process(victim, Signal::KILL);
                // Dead when the daemon goes on, and not soon after; it is the daemon's to bury.
                let _ = waitid(WaitId::Pid(victim), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            }
            if let Dies::Other(process) = dies {
                until_closed(process);
            }
        }
    };
    match daemon.hand_over(&order, &mut watch, &|| true) {
        Ok(_) => std::process::exit(0),
        Err(why) => format!("goes on: {why}"),
    }
}

/// Waits until a process that was killed, and that somebody else buries, has let go of its files: until its last thread
/// has ended.
fn until_closed(process: Pid) {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    // proc(5): the state follows the name, which is in parentheses.
    let is_dead = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    };
    while std::fs::read_dir(&tasks).is_ok_and(|mut all| all.any(|task| task.is_ok_and(|task| !is_dead(task))))
    {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn name_of(step: &HandOverStep) -> &'static str {
    match step {
        HandOverStep::Started { .. } => STEPS[0],
        HandOverStep::Able { .. } => STEPS[1],
        HandOverStep::Prepared => STEPS[2],
        HandOverStep::Drained { .. } => STEPS[3],
        HandOverStep::Standing(1) => "control",
        HandOverStep::Standing(_) => STEPS[4],
        HandOverStep::Sent => STEPS[5],
        HandOverStep::Ready => STEPS[6],
        HandOverStep::Gone => STEPS[7],
    }
}

/// Takes over, and says so.
///
/// # Errors
/// Why not, in words.
pub fn take_over(config: Config, descriptor: &str) -> Result<(Daemon, String), String> {
    let arrival = arrival(descriptor)?;
    let taken = Daemon::take_over(config, &arrival, "probe");
    let (daemon, taken, _) = taken.map_err(|error| {
        let why = error.to_string();
        arrival.refuse(&why);
        why
    })?;
    let process = std::process::id();
    let moved = format!("{} {} {}", taken.sessions, taken.connections, taken.calls);
    Ok((daemon, format!("took-over {process} {} {moved}", taken.paused_ns)))
}

/// Does not take over: refuses, hangs, or dies.
///
/// # Errors
/// If there is nothing to take over.
pub fn stubborn(how: &str, descriptor: &str) -> Result<(), String> {
    if how == "dies" {
        return Ok(());
    }
    let arrival = arrival(descriptor)?;
    match how {
        "refuses" => arrival.refuse("it does not want to"),
        HANGS => loop {
            std::thread::park();
        },
        _ => return Err(format!("nobody knows how to {how}")),
    }
    Ok(())
}

fn arrival(descriptor: &str) -> Result<Arrival, String> {
    let descriptor = descriptor.parse().map_err(|error| format!("{descriptor}: {error}"))?;
    Arrival::at(descriptor).map_err(|error| error.to_string())
}
