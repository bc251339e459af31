//! The way to the daemon's admin API, and what is said where the daemon is silent.

use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline::{Channel, ClientCall, Code, Status};

/// Environment variable: where operators connect.
const ADMIN_VARIABLE: &str = "TRUNKLINE_ADMIN_SOCKET";
/// Time a daemon gets to answer a call: it answers within milliseconds unless it hangs, but a busy host is slow.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The one call that ends when its caller wants.
const ENDLESS: &str = "/trunkline.admin.v1.Admin/Top";

/// A way to the daemon's admin API: by gRPC to the socket for operators if one is named, with an engine inside this
/// program; else attached as applications are. No call takes longer than [`ANSWER_MAX`].
pub fn operator_channel(socket: Option<PathBuf>, admin: Option<PathBuf>) -> Channel {
    let channel = Channel::builder().name("trunkline");
    let channel = match (admin_place(socket.as_deref(), admin), socket) {
        (Some(path), _) => channel.embedded(true).target(&format!("unix:{}", path.display())),
        // Embedded mode would ask a daemon nobody uses.
        (None, Some(path)) => channel.embedded(false).socket(path),
        (None, None) => channel.embedded(false),
    };
    channel.connect_lazy().with_interceptor(|call: &mut ClientCall<'_>| {
        if call.path() != ENDLESS {
            call.limit(ANSWER_MAX);
        }
        Ok(())
    })
}

/// The socket for operators, if one is named.
pub fn admin_place(socket: Option<&Path>, admin: Option<PathBuf>) -> Option<PathBuf> {
    let variable = || std::env::var_os(ADMIN_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    admin.or_else(|| variable().filter(|_| socket.is_none()))
}

/// Why an operator's call failed. A deadline is this program's own, and says nothing to who did not set it.
pub fn refusal(status: &Status) -> String {
    match status.code() {
        Code::DeadlineExceeded => silence(),
        _ => absence(status).unwrap_or_else(|| status.to_string()),
    }
}

/// The same without the code, for refusals that are sentences by themselves.
pub fn reason(status: &Status) -> String {
    match status.code() {
        Code::DeadlineExceeded => silence(),
        _ => absence(status).unwrap_or_else(|| status.message().to_owned()),
    }
}

/// What is said where there is no daemon, as `call` says it.
fn absence(status: &Status) -> Option<String> {
    let message = status.message();
    let remedy = "start one with `trunkline daemon`, or name its socket with --socket";
    message.starts_with("no daemon at ").then(|| format!("{message}; {remedy}"))
}

/// What is said of a daemon that takes connections and nothing more.
pub fn silence() -> String {
    "the daemon does not answer: it is stopped, or hangs; its log and `trunkline doctor` say more".to_owned()
}

#[cfg(test)]
mod tests {
    //! Shows what is said of a daemon that is silent, and that other refusals stay what they are.
    use super::*;

    #[test]
    fn a_deadline_is_the_daemons_silence() {
        let silent = refusal(&Status::deadline_exceeded("deadline passed"));
        assert!(silent.contains("does not answer: it is stopped"), "{silent}");
        assert_eq!(reason(&Status::deadline_exceeded("deadline passed")), silence());
        assert!(refusal(&Status::not_found("no such method")).starts_with("NOT_FOUND: no such method"));
        assert_eq!(reason(&Status::not_found("no such method")), "no such method");
    }
}
