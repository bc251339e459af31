//! Daemons that are replaced, and successors that do not take over.

use std::time::Duration;
use trunkline_daemon::{Arrival, Config, Daemon, HandOver};

/// Longest a step of a successor may take: far above what it takes on a loaded machine, and a test waits for it once.
const STEP_MAX: Duration = Duration::from_secs(3);

/// Hands over to this very program with these arguments; the answer is the successor's to give. If that was in vain,
/// says why.
pub fn replace(daemon: &Daemon, arguments: &[&str]) -> String {
    let Ok(binary) = std::env::current_exe() else { return "no program".into() };
    let order = HandOver {
        binary,
        arguments: arguments.iter().map(Into::into).collect(),
        build: "probe".into(),
        grace: Duration::from_millis(500),
        step_max: STEP_MAX,
    };
    match daemon.hand_over(&order, &mut |_| {}) {
        Ok(_) => std::process::exit(0),
        Err(why) => format!("goes on: {why}"),
    }
}

/// Takes over, and says so.
///
/// # Errors
/// Why not, in words.
pub fn take_over(config: Config, descriptor: &str) -> Result<(Daemon, String), String> {
    let arrival = arrival(descriptor)?;
    let (daemon, taken) = Daemon::take_over(config, &arrival, "probe").map_err(|error| error.to_string())?;
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
        "hangs" => loop {
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
