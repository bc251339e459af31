//! Handing over to another process.

use super::host::{DaemonHost, Order};
use super::own_services::OwnServices;
use super::program::successor;
use crate::admin::{Audit, AuditedChange, UpgradeState, UpgradeWish};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use trunkline_daemon::{HandOver, HandOverError, HandOverStep, Handed, KeptCounts};
use trunkline_policy::Difference;

/// Longest the new daemon may take to start. Nobody waits for it.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest one step of it may take while this one stands still.
const STEP_MAX: Duration = Duration::from_secs(10);
/// Longest the last lines of the audit log may take. The other daemon serves meanwhile.
const AUDIT_MAX: Duration = Duration::from_secs(2);
/// Behind it stands the number of a descriptor.
const TAKE_OVER: &str = "--take-over";

/// What this program is called in the other's words.
pub fn build() -> String {
    format!("trunkline {}", env!("CARGO_PKG_VERSION"))
}

/// Hands over, and ends this process; or goes on, and says why. An order to end calls the hand-over off, if it comes in
/// time; it is for the other process if not.
pub fn hand_over(
    host: &Arc<DaemonHost>,
    wish: UpgradeWish,
    (orders, own): (&Receiver<Order>, &OwnServices),
) -> Option<&'static str> {
    let binary = successor(wish.binary.as_deref());
    let note = |outcome: &str| {
        let audit = Audit::new(&host.audit_log);
        let change = AuditedChange::Upgrade(&binary);
        audit.note(&wish.identity, change, outcome, &Difference::default(), &[]);
    };
    let order = HandOver {
        binary: binary.clone(),
        arguments: arguments(std::env::args_os().skip(1)),
        build: build(),
        counts: KeptCounts {
            history: host.history.noted(&Arc::downgrade(host)),
            told_apart: host.told_apart().clone(),
        },
        grace: wish.grace,
        start_max: START_MAX,
        step_max: STEP_MAX,
    };
    tracing::info!(binary = %order.binary.display(), "handing over to another process");
    let mut tell = |step: HandOverStep| {
        let step = step.to_string();
        tracing::info!(%step, "hand-over");
        host.upgrading().steps.push(step);
    };
    let end = Cell::new(None);
    let is_wanted = || {
        // A second one is for whoever waits next.
        while let (None, Ok(order)) = (end.get(), orders.try_recv()) {
            if let Order::End(why) = order {
                end.set(Some(why));
            }
        }
        end.get().is_none()
    };
    match host.daemon.hand_over(&order, &mut tell, &is_wanted) {
        Ok(Handed { process, sessions, connections, calls, stood_ns, .. }) => {
            tracing::info!(process, sessions, connections, calls, stood_us = stood_ns / 1000, "handed over");
            note(&format!("handed over to process {process}"));
            super::notify::succeeded_by(process);
            let successor = i32::try_from(process).ok().and_then(Pid::from_raw);
            if let Some(successor) = successor.filter(|_| !is_wanted()) {
                let _ = kill_process(successor, Signal::TERM);
            }
            own.settle_within(AUDIT_MAX);
            super::logging::settle();
            // Without a goodbye to anybody: every socket and ring is the other's.
            std::process::exit(0);
        }
        Err(error) => {
            note(&format!("not handed over: {error}"));
            match error {
                HandOverError::CalledOff => tracing::info!("hand-over called off: this daemon is to end"),
                _ => tracing::error!(%error, "not handed over; this daemon goes on"),
            }
            let mut state = host.upgrading();
            *state =
                UpgradeState { failure: error.to_string(), under_way: false, ..std::mem::take(&mut *state) };
            end.get()
        }
    }
}

/// This process's arguments for the next one: without what they say of a hand-over that is over.
fn arguments(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut own = own;
    while let Some(argument) = own.next() {
        if argument == TAKE_OVER {
            own.next();
        } else {
            kept.push(argument);
        }
    }
    kept.push(TAKE_OVER.into());
    kept
}

#[cfg(test)]
mod tests {
    //! Shows what of a daemon's arguments the next one gets.
    use super::*;

    #[test]
    fn the_next_daemon_gets_the_same_arguments() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let passed = arguments(words("daemon --config a.toml --take-over 7 --drain 1s").into_iter());
        assert_eq!(passed, words("daemon --config a.toml --drain 1s --take-over"));
    }
}
