//! `trunkline upgrade`: another process goes on in the daemon's place.
//!
//! The running daemon is asked to begin and says so at once. From then on this asks whoever answers how it goes: the
//! old daemon, then for a moment nobody, then the new one.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::control_client::ControlClient;
use crate::admin::proto::{GetUpgradeRequest, GetUpgradeResponse, UpgradeRequest};
use crate::args::UpgradeArgs;
use std::time::{Duration, Instant};
use trunkline::{Channel, Code, Request, Wait};

/// Between two questions.
const LOOK: Duration = Duration::from_millis(50);
/// Time a daemon gets to answer one.
const ANSWER: Duration = Duration::from_secs(2);
/// Time without any answer after which nobody is there.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Has the daemon replaced, and tells how it goes.
///
/// # Errors
/// Why it was not replaced.
pub fn upgrade(channel: &Channel, args: &UpgradeArgs) -> Result<(), String> {
    let binary = match &args.binary {
        Some(binary) => {
            let found = std::fs::canonicalize(binary).map_err(|e| format!("{}: {e}", binary.display()))?;
            found.to_str().ok_or("the path is not UTF-8")?.to_owned()
        }
        None => String::new(),
    };
    let grace_ms = u32::try_from(args.grace.as_millis()).unwrap_or(u32::MAX).max(1);
    let control = ControlClient::new(channel.clone());
    let begun = control.upgrade(UpgradeRequest { binary, grace_ms }).wait();
    let old = begun.map_err(|status| status.message().to_owned())?.into_inner().process_id;
    println!("replacing daemon, process {old}");
    let admin = AdminClient::new(channel.clone());
    let (mut told, mut heard) = (0, Instant::now());
    let until = |heard: Instant| heard.elapsed() < SILENCE_MAX + args.grace;
    while until(heard) {
        std::thread::sleep(LOOK);
        let Some(answer) = ask(&admin)? else { continue };
        heard = Instant::now();
        if answer.process_id != old {
            return taken_over(&answer);
        }
        for step in answer.steps.iter().skip(told) {
            println!("{step}");
        }
        told = answer.steps.len().max(told);
        if !answer.under_way {
            return Err(format!("{}; the daemon goes on, process {old}", answer.failure));
        }
    }
    Err("nobody answers any more".into())
}

/// How it goes; `None` while nobody is there to say.
fn ask(admin: &AdminClient) -> Result<Option<GetUpgradeResponse>, String> {
    match admin.get_upgrade(Request::new(GetUpgradeRequest::default()).with_timeout(ANSWER)).wait() {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status)
            if matches!(status.code(), Code::Unavailable | Code::Unimplemented | Code::DeadlineExceeded) =>
        {
            Ok(None)
        }
        Err(status) => Err(status.to_string()),
    }
}

fn taken_over(answer: &GetUpgradeResponse) -> Result<(), String> {
    let (process, version) = (answer.process_id, &answer.version);
    let Some(taken) = &answer.taken_over else {
        return Err(format!("daemon {process} answers, and took nothing over: it was started anew"));
    };
    println!("moved {} sessions, {} connections, {} calls", taken.sessions, taken.connections, taken.calls);
    println!(
        "daemon {version}, process {process}, goes on; it stood still for {} us",
        taken.paused_ns / 1000
    );
    Ok(())
}
