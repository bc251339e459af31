//! A program that found no daemon on its host and runs one inside itself: nobody else reaches what it serves, and it
//! reaches nobody. It works, so nothing fails; without a word, the user would look for the mistake elsewhere.

use crate::standard_error::say_on_standard_error;
use trunkline_call::{NOBODY_SERVES, Status};

/// What to do about it.
const REMEDY: &str = "start `trunkline daemon`, or name its socket in TRUNKLINE_SOCKET";

/// What a server says when it begins to serve.
pub(super) fn of_server(name: &str, why: &str) -> String {
    format!(
        "{name} serves inside its own process only, and no other program can call it: {why}; {REMEDY} \
         (TRUNKLINE_EMBEDDED=1 says that this is meant)"
    )
}

/// What is logged of a program that calls. It is told more by a call that fails.
pub(super) fn of_caller(name: &str, why: &str) -> String {
    format!(
        "{name} carries its own calls, and reaches nothing that other programs of this host serve: {why}; {REMEDY} \
         (TRUNKLINE_EMBEDDED=1 says that this is meant)"
    )
}

/// Says it: to whoever collects the program's logs, else on standard error, since a program in its first ten minutes
/// has no subscriber.
pub(crate) fn say(line: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::warn!("{line}");
    } else {
        say_on_standard_error(line);
    }
}

/// The status of a call made here, with the reason why nobody serves what it called. Other failures have other reasons.
pub(crate) fn explained(status: Status) -> Status {
    if !status.message().starts_with(NOBODY_SERVES) {
        return status;
    }
    let message = format!(
        "{}; no daemon was found on this host, so this program reaches only what it serves itself: {REMEDY}",
        status.message()
    );
    let mut explained = Status::new(status.code(), message)
        .with_details(status.details().to_vec())
        .with_execution(status.execution());
    *explained.metadata_mut() = status.metadata().clone();
    explained
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    //! Shows what a server and a caller are told, and who is told nothing.
    use super::*;
    use crate::channel::Channel;
    use crate::hub::{Daemon, Hub, Patience};
    use crate::opaque::{Answer, Client};
    use crate::wait::Wait;
    use trunkline_call::Code;
    use trunkline_shm::Places;

    /// What a call ends with that nobody serves, of a program that knows its daemon so.
    fn called(daemon: Daemon) -> Status {
        let hub = Hub::of(daemon, "test");
        let client = Client::new(Channel::through(hub, "", Patience::FailFast));
        async {
            let opening = client.call("/test.Nobody/Call").with_message("").with_no_more().open();
            let (_requests, mut answers) = opening.await?;
            while let Some(answer) = answers.next().await {
                if let Answer::End(mut outcome) = answer {
                    return Err(Status::take_from(&mut outcome.trailers, outcome.code));
                }
            }
            Ok(())
        }
        .wait()
        .unwrap_err()
    }

    #[test]
    fn a_caller_without_a_daemon_is_told_what_to_do() {
        let nowhere = Places::Default(vec!["/nonexistent/trunkline.sock".into()]);
        let status = called(Daemon::Either(nowhere));
        assert_eq!(status.code(), Code::Unavailable);
        let message = status.message();
        assert!(message.starts_with("nobody serves test.Nobody: "), "{message}");
        assert!(
            message.contains("start `trunkline daemon`") && message.contains("TRUNKLINE_SOCKET"),
            "{message}"
        );
        let meant = called(Daemon::Embedded);
        assert!(!meant.message().contains("trunkline daemon"), "{meant}");
    }

    #[test]
    fn a_server_without_a_daemon_says_so_in_a_line() {
        let places = Places::Default(vec!["/nonexistent/trunkline.sock".into()]);
        let why = Daemon::Either(places).dial().unwrap().alone.unwrap();
        let line = of_server("greeter", why.message());
        assert!(line.starts_with("greeter serves inside its own process only"), "{line}");
        assert!(line.contains("no daemon at any of /nonexistent/trunkline.sock: "), "{line}");
        assert!(line.contains("start `trunkline daemon`") && !line.contains('\n'), "{line}");
        assert!(Daemon::Embedded.dial().unwrap().alone.is_none());
        let line = of_caller("asks", why.message());
        assert!(
            line.starts_with("asks carries its own calls, and reaches nothing that other programs"),
            "{line}"
        );
        assert!(line.contains(why.message()) && line.contains("start `trunkline daemon`"), "{line}");
    }

    #[test]
    fn other_failures_are_left_as_they_are() {
        let other = Status::unavailable("cannot reach tcp://10.0.0.7:1: refused");
        assert_eq!(explained(other.clone()), other);
    }
}
