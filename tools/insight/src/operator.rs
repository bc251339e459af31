//! The way to the daemon's admin API, and what is said where the daemon is silent: as `trunkline` itself has them.

use std::path::PathBuf;
use std::time::Duration;
use trunkline::{Channel, ClientCall, Code, Status};

/// Environment variable: where operators connect.
const ADMIN_VARIABLE: &str = "TRUNKLINE_ADMIN_SOCKET";
/// Time a daemon gets to answer a call.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// By gRPC to the socket for operators if one is named, else attached as applications are.
pub fn operator_channel(socket: Option<PathBuf>, admin: Option<PathBuf>) -> Channel {
    let variable = || std::env::var_os(ADMIN_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let channel = Channel::builder().name("trunkline");
    let channel = match (admin.or_else(|| variable().filter(|_| socket.is_none())), socket) {
        (Some(path), _) => channel.embedded(true).target(&format!("unix:{}", path.display())),
        (None, Some(path)) => channel.embedded(false).socket(path),
        (None, None) => channel.embedded(false),
    };
    channel.connect_lazy().with_interceptor(|call: &mut ClientCall<'_>| {
        call.limit(ANSWER_MAX);
        Ok(())
    })
}

/// Why a call of an operator failed. A deadline is this program's own, and says nothing to who did not set it.
pub fn refusal(status: &Status) -> String {
    match status.code() {
        Code::DeadlineExceeded => {
            "the daemon does not answer: it is stopped, or hangs; its log and `trunkline doctor` say more"
                .to_owned()
        }
        _ if status.message().starts_with("no daemon at ") => {
            format!(
                "{}; start one with `trunkline daemon`, or name its socket with --socket",
                status.message()
            )
        }
        _ => status.to_string(),
    }
}
