//! The daemon: whether applications reach it, whether this user may ask it, and which program it runs.

use super::finding::Finding;
use crate::admin::proto::GetUpgradeRequest;
use crate::admin::proto::admin_client::AdminClient;
use crate::call::is_remote;
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline::{Channel, Code, Request, Status, Wait};
use trunkline_daemon::{Config, Principal};
use trunkline_shm::{ControlError, ControlSocket, Places};

/// Time a daemon gets to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// What is known of the daemon.
#[derive(Debug, Default)]
pub struct Look {
    /// What was found.
    pub findings: Vec<Finding>,
    /// Its process, if it says so.
    pub process: Option<u32>,
}

/// Looks for the daemon as applications do, and asks it.
pub fn look(named: Option<PathBuf>, config: &Config) -> Look {
    if let Some(relay) = crate::place::named(named.as_deref()).filter(|place| is_remote(place)) {
        return look_through(relay);
    }
    let places = named.clone().map_or_else(Places::of_this_process, Places::Named);
    let connected = places.connect();
    let elsewhere =
        || config.socket().filter(|path| ControlSocket::connect(path).is_ok()).map(Path::to_owned);
    let (mut findings, socket) = match (&connected, elsewhere()) {
        (Err(error), Some(path)) if is_absent(error) => (vec![unseen(&path)], Some(path)),
        (Err(error), _) => (vec![unreached(error, &places)], None),
        (Ok(_), _) => (vec![Finding::good("socket", format!("a daemon is at {}", shown(&places)))], named),
    };
    if connected.is_err() && socket.is_none() {
        return Look { findings, process: None };
    }
    let owner = connected.ok().and_then(|socket| socket.peer_credentials().ok()).map(|peer| peer.uid);
    let answer = ask(socket);
    findings.push(asked(&answer));
    let me = (getuid().as_raw(), getgid().as_raw());
    findings.push(may_change(&config.admin.change, me, owner));
    Look { findings, process: answer.ok().map(|(process, _)| process) }
}

/// Process and version, as the daemon says.
fn ask(socket: Option<PathBuf>) -> Result<(u32, String), Status> {
    let channel = Channel::builder().name("trunkline doctor").embedded(false);
    let channel = match socket {
        Some(path) => channel.socket(path),
        None => channel,
    };
    let question = Request::new(GetUpgradeRequest::default()).with_timeout(ANSWER);
    let answer = AdminClient::new(channel.connect_lazy()).get_upgrade(question).wait()?.into_inner();
    Ok((answer.process_id, answer.version))
}

/// Looks for the daemon beyond a relay. Its process is another host's.
fn look_through(relay: PathBuf) -> Look {
    let answer = ask(Some(relay.clone()));
    Look { findings: through(&relay.display().to_string(), &answer), process: None }
}

fn through(relay: &str, answer: &Result<(u32, String), Status>) -> Vec<Finding> {
    let reached = || Finding::good("socket", format!("a daemon is reached through the relay {relay}"));
    match answer {
        Ok(_) => vec![reached(), asked(answer)],
        Err(status) if status.code() == Code::PermissionDenied => vec![reached(), asked(answer)],
        Err(status) if is_of_environment(status) => vec![asked(answer)],
        Err(status) => vec![Finding::problem(
            "socket",
            format!("no daemon is reached through the relay {relay}: {}", status.message()),
            "see whether `trunkline relay` runs there, and whether TRUNKLINE_TLS_CERTIFICATE, TRUNKLINE_TLS_KEY and \
             TRUNKLINE_TLS_CA name what it knows and is known by",
        )],
    }
}

/// Whether a status is this program's own word on a variable of its environment, and no daemon was asked.
fn is_of_environment(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().starts_with("TRUNKLINE_")
}

fn shown(places: &Places) -> String {
    let list = |paths: &[PathBuf]| {
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    match places {
        Places::Named(path) => path.display().to_string(),
        Places::Default(paths) => format!("a usual place ({})", list(paths)),
    }
}

fn is_absent(error: &ControlError) -> bool {
    matches!(error, ControlError::System { errno: Errno::NOENT | Errno::CONNREFUSED, .. })
}

/// There is a daemon where its configuration says, and applications look elsewhere.
fn unseen(path: &Path) -> Finding {
    let path = path.display();
    Finding::problem(
        "socket",
        format!("a daemon answers at {path} (daemon.socket), where applications do not look by themselves"),
        format!("set TRUNKLINE_SOCKET={path} for them, or as root: ln -s {path} /run/trunkline.sock"),
    )
}

/// Why no daemon is reached, and what to do.
fn unreached(error: &ControlError, places: &Places) -> Finding {
    let remedy = match error {
        ControlError::Denied { path, .. } => admission(path),
        ControlError::Untrusted { directory } => format!(
            "have {} belong to root, written by nobody else; or name the socket by TRUNKLINE_SOCKET",
            directory.display()
        ),
        ControlError::System { errno: Errno::CONNREFUSED, .. } => {
            "the daemon there has died: systemctl restart trunkline, or `trunkline daemon`; its log says why"
                .into()
        }
        ControlError::System { errno: Errno::NOENT, .. } => {
            "start one: systemctl start trunkline, or `trunkline daemon`".into()
        }
        ControlError::NotASocket { .. } | ControlError::Path { .. } => "name another socket".into(),
        _ => "see the daemon's log".into(),
    };
    Finding::problem("socket", format!("no daemon is reached at {}: {error}", shown(places)), remedy)
}

/// Who would be admitted to a socket, by its mode.
fn admission(path: &Path) -> String {
    let Ok(found) = std::fs::metadata(path) else {
        return format!("permit this user to search the folders of {}", path.display());
    };
    admission_to_group(path, found.mode(), found.gid())
}

/// Nobody is to join root's group for a socket's sake: whoever is in it may do far more.
fn admission_to_group(path: &Path, mode: u32, gid: u32) -> String {
    match (gid, mode & 0o020) {
        (0, _) => format!(
            "{} belongs to root's group, which nobody should join: set daemon.socket_mode = \"0660\", run the daemon \
             in a group of its own (Group= of its unit; chgrp until it starts anew), and join that: adduser USER GROUP",
            path.display()
        ),
        (_, 0) => "set daemon.socket_mode = \"0660\", and join the daemon's group".into(),
        _ => format!("join the group of {} (gid {gid}): adduser USER GROUP", path.display()),
    }
}

/// What the daemon's answer to a question of operators says.
fn asked(answer: &Result<(u32, String), Status>) -> Finding {
    match answer {
        Ok((process, version)) if version == env!("CARGO_PKG_VERSION") => Finding::good(
            "rights",
            format!("this user may ask the daemon: process {process}, version {version}"),
        ),
        Ok((process, version)) => Finding::advice(
            "rights",
            format!(
                "the daemon is version {version}, process {process}; this program is {}",
                env!("CARGO_PKG_VERSION")
            ),
            "trunkline upgrade",
        ),
        Err(status) if status.code() == Code::PermissionDenied => Finding::advice(
            "rights",
            format!("this user may not ask the daemon: {}", status.message()),
            "ask as another user, or add this one to admin.read",
        ),
        Err(status) if is_of_environment(status) => {
            let (found, remedy) = status.message().split_once(": ").unwrap_or((status.message(), "unset it"));
            Finding::problem("environment", found, remedy)
        }
        Err(status) => Finding::problem(
            "socket",
            format!("the daemon does not answer: {status}"),
            "see the daemon's log; one that is stopped (state T in ps) goes on by kill -CONT, one that hangs is to be \
             restarted",
        ),
    }
}

/// Whether this user may change the daemon, by the configuration that was read.
fn may_change(change: &[Principal], (uid, gid): (u32, u32), owner: Option<u32>) -> Finding {
    let covers = |principal: &Principal| match principal {
        Principal::Anyone => true,
        Principal::Owner => owner == Some(uid),
        Principal::User(user) => *user == uid,
        Principal::Group(group) => *group == gid,
    };
    if change.iter().any(covers) {
        return Finding::good("rights", "this user may change the daemon (admin.change)");
    }
    let found = format!(
        "this user (uid {uid}, gid {gid}) may not change the daemon: policies, upgrade (admin.change)"
    );
    Finding::advice("rights", found, "do so as root or the daemon's user, or add this one to admin.change")
}

#[cfg(test)]
mod tests {
    //! Shows what is said of a socket and of rights.
    use super::super::finding::State;
    use super::*;
    use trunkline::Execution;

    #[test]
    fn why_no_daemon_is_reached_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.sock");
        let places = Places::Named(path.clone());
        let absent = unreached(&places.connect().unwrap_err(), &places);
        assert!(absent.found.contains("d.sock") && absent.remedy.contains("start one"), "{absent:?}");
        std::fs::write(&path, "").unwrap();
        let file = unreached(&places.connect().unwrap_err(), &places);
        assert_eq!(file.state, State::Problem, "{file:?}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let gid = std::fs::metadata(&path).unwrap().gid();
        let denied = unreached(&ControlError::Denied { path: path.clone(), uid: 7 }, &places).remedy;
        assert_eq!(denied, admission_to_group(&path, std::fs::metadata(&path).unwrap().mode(), gid));
        std::fs::remove_file(&path).unwrap();
        let admitted = |mode, gid| admission_to_group(&path, mode, gid);
        assert!(admitted(0o660, 7).starts_with("join the group of"), "{}", admitted(0o660, 7));
        assert!(admitted(0o600, 7).contains("daemon.socket_mode"), "{}", admitted(0o600, 7));
        for mode in [0o600, 0o660] {
            let of_root = admitted(mode, 0);
            assert!(of_root.contains("nobody should join") && !of_root.contains("gid 0"), "{of_root}");
            assert!(
                of_root.contains("daemon.socket_mode") && of_root.contains("a group of its own"),
                "{of_root}"
            );
        }
        let nowhere = ControlError::Denied { path: path.clone(), uid: 7 };
        assert!(unreached(&nowhere, &places).remedy.contains("search the folders"));
        let untrusted = ControlError::Untrusted { directory: "/tmp/x".into() };
        assert!(unreached(&untrusted, &places).remedy.contains("/tmp/x belong to root"));
        let died = ControlError::System { what: "connect", errno: Errno::CONNREFUSED };
        assert!(unreached(&died, &places).remedy.contains("has died") && is_absent(&died));
        assert!(unseen(&path).remedy.contains("TRUNKLINE_SOCKET="));
    }

    #[test]
    fn what_a_user_may_is_said() {
        let version = env!("CARGO_PKG_VERSION");
        let status = |code| Err(Status::new(code, "no").with_execution(Execution::Executed));
        for (answer, state) in [
            (Ok((7, version.to_owned())), State::Good),
            (Ok((7, "0.0.1".to_owned())), State::Advice),
            (status(Code::PermissionDenied), State::Advice),
            (status(Code::DeadlineExceeded), State::Problem),
        ] {
            assert_eq!(asked(&answer).state, state, "{answer:?}");
        }
        let slip = "TRUNKLINE_HEAP_BYTES is \"much\": write a number of bytes, or one with a unit";
        let slip = Err(Status::new(Code::FailedPrecondition, slip));
        let of_environment = asked(&slip);
        assert_eq!((of_environment.area, of_environment.state), ("environment", State::Problem));
        assert_eq!(of_environment.remedy, "write a number of bytes, or one with a unit");
        let relay = "tcp+tls://relay.internal:7979";
        assert_eq!(through(relay, &slip), [of_environment]);
        for (answer, state) in [
            (Ok((7, version.to_owned())), State::Good),
            (status(Code::PermissionDenied), State::Good),
            (status(Code::Unavailable), State::Problem),
        ] {
            let found = &through(relay, &answer)[0];
            assert_eq!(found.state, state, "{answer:?}");
            assert!(found.found.contains(relay), "{found:?}");
        }
        let change = [Principal::User(0), Principal::Owner, Principal::Group(5)];
        for (who, owner, state) in [
            ((0, 0), None, State::Good),
            ((9, 9), Some(9), State::Good),
            ((9, 5), Some(8), State::Good),
            ((9, 9), Some(8), State::Advice),
        ] {
            assert_eq!(may_change(&change, who, owner).state, state, "{who:?} {owner:?}");
        }
        assert_eq!(may_change(&[Principal::Anyone], (9, 9), None).state, State::Good);
    }
}
