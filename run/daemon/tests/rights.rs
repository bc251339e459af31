//! Shows what applications of other users may not do: name addresses the configuration does not allow, serve what
//! another user serves, serve and call what rules keep for others. The others are processes of other users: the test
//! program starts itself again as one of them, which takes root.

mod raw;

use raw::*;
use rustix::process::geteuid;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use trunkline_call::Code;
use trunkline_control::ABI_VERSION;
use trunkline_daemon::{Config, Daemon};
use trunkline_schema::Schema;
use trunkline_shm::ControlSocket;

const SOCKET: &str = "TRUNKLINE_RIGHTS_TEST_SOCKET";
const HEALTH: &str = r#"syntax = "proto3"; package grpc.health.v1; message Q {} message A {}
service Health { rpc Check(Q) returns (A); }"#;

/// Not a test of its own: what another user's process does. `serve NAME` and `target TEXT` are attempts, answered by
/// how they ended; each in a session of its own, which stays.
#[test]
fn another_user() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let mut sessions = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, what) = line.split_once(' ').unwrap_or((&line, ""));
        let control = ControlSocket::connect(Path::new(&path)).unwrap();
        let end = match attach_on(&control, ABI_VERSION) {
            Answer::Attached(end) => end,
            Answer::Detached(reason) => {
                println!("answer: {reason}");
                continue;
            }
            Answer::Bound(_) => panic!("it has bound nothing"),
        };
        let (source, serves, target) = match (verb, what) {
            ("serve", "grpc.health.v1.Health") => (HEALTH, vec![what], None),
            ("serve", _) => (PROTO, vec![what], Some("")),
            _ => (PROTO, Vec::new(), Some(what)),
        };
        let set = Schema::from_proto_source("raw.proto", source).unwrap().descriptor_set().to_vec();
        let answer = match target {
            Some(target) => bind_on(&control, &set, set.len() as u64, &serves, target),
            None => serve_on(&control, &set, &serves),
        };
        let Answer::Bound(bound) = answer else { panic!("not bound") };
        let code = Code::from_number(bound.code as u16);
        println!(
            "answer: {}",
            if bound.error.is_empty() { "OK".into() } else { format!("{code}: {}", bound.error) }
        );
        sessions.push((control, end));
    }
}

/// A process of another user.
struct Stranger {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Stranger {
    fn of(uid: u32, stage: &Stage) -> Self {
        let mut command = Command::new(&stage.program);
        command.args(["--exact", "another_user", "--nocapture"]).env(SOCKET, &stage.socket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(uid).gid(uid);
        let mut child = loop {
            match command.spawn() {
                // Another test has forked while the program was written, and its child has not let go of the file yet.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                started => break started.expect("a process of another user starts"),
            }
        };
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, orders, answers }
    }

    fn tries(&mut self, what: &str) -> String {
        writeln!(self.orders, "{what}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "it ended while it tried to {what}");
            // The test harness speaks on the same line.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim_end().to_owned();
            }
        }
    }

    #[track_caller]
    fn is_denied(&mut self, what: &str, says: &[&str]) {
        let answer = self.tries(what);
        assert!(answer.starts_with("PERMISSION_DENIED: "), "{what}: {answer}");
        for part in says {
            assert!(answer.contains(part), "{what}: {answer:?} does not say {part:?}");
        }
    }

    #[track_caller]
    fn may(&mut self, what: &str) {
        assert_eq!(self.tries(what), "OK", "{what}");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon every user may attach to, and the test program where every user may run it.
struct Stage {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    program: PathBuf,
    daemon: Daemon,
}

impl Stage {
    /// `None` where there is only one user to be had.
    fn set(config: &str) -> Option<Self> {
        if !geteuid().is_root() {
            println!("skipped: processes of other users take root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let everybody =
            |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        everybody(folder.path());
        let program = folder.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        everybody(&program);
        let socket = folder.path().join("daemon.sock");
        let text = format!("daemon.socket = {:?}\ndaemon.socket_mode = \"0666\"\n{config}", socket.display());
        let daemon = Daemon::start(Config::from_toml(&text, "test").unwrap()).unwrap();
        Some(Self { _folder: folder, socket, program, daemon })
    }
}

#[test]
fn other_users_name_only_what_is_allowed() {
    let config = "egress.allow = [\"127.0.0.0/8:7000-7999\", \"*.example\", \"unix:/run/open.sock\"]";
    let Some(stage) = Stage::set(config) else { return };
    let mut stranger = Stranger::of(12_345, &stage);
    for refused in
        ["unix:/run/private.sock", "tcp://10.0.0.7:7000", "127.0.0.1:8000", "dns:///db.internal:7000"]
    {
        stranger.is_denied(&format!("target {refused}"), &["target", "uid 12345", "egress.allow"]);
    }
    for allowed in ["", "tcp://127.0.0.1:7000", "db.example:80", "unix:/run/open.sock"] {
        stranger.may(&format!("target {allowed}"));
    }
    // Root could connect itself.
    let mut root = Stranger::of(0, &stage);
    root.may("target unix:/run/private.sock");
}

#[test]
fn by_default_other_users_name_no_address_at_all() {
    let Some(stage) = Stage::set("") else { return };
    let mut stranger = Stranger::of(12_345, &stage);
    stranger.is_denied("target tcp://127.0.0.1:7000", &["\"127.0.0.1:7000\"", "egress.allow"]);
    stranger.is_denied("target unix:/run/a.sock", &["\"unix:///run/a.sock\"", "egress.allow"]);
    stranger.may("target ");
    Stranger::of(0, &stage).may("target tcp://127.0.0.1:7000");
}

/// A rule says which servers the targets of a service may be; who may name any target is held to it all the same.
#[test]
fn targets_say_which_server_a_rule_wants() {
    let rule = "[[call]]\nservice = \"raw.*\"\nwho = [\"*\"]\nserver_identity = [\"spiffe://corp/raw\"]\n";
    let Some(stage) = Stage::set(&format!("egress.allow = [\"*\"]\n{rule}")) else { return };
    for uid in [12_345, 0] {
        let mut caller = Stranger::of(uid, &stage);
        for refused in ["tls://spiffe://corp/other@127.0.0.1:7000", "tls://127.0.0.1:7000", "db.example:80"] {
            let says = ["server_identity", "spiffe://corp/raw", "tls://IDENTITY@ADDRESS:PORT"];
            caller.is_denied(&format!("target {refused}"), &says);
        }
        caller.may("target tls://spiffe://corp/raw@127.0.0.1:7000");
        caller.may("target ");
    }
}

#[test]
fn a_name_belongs_to_the_user_who_serves_it() {
    let Some(stage) = Stage::set("") else { return };
    let mut owner = Stranger::of(1_111, &stage);
    let mut villain = Stranger::of(2_222, &stage);
    owner.may("serve raw.Echo");
    owner.may("serve raw.Echo");
    villain.is_denied("serve raw.Echo", &["raw.Echo", "uid:1111", "[[serve]]"]);
    Stranger::of(0, &stage).is_denied("serve raw.Echo", &["uid:1111"]);
    drop(owner);
    let began = std::time::Instant::now();
    while villain.tries("serve raw.Echo") != "OK" {
        assert!(began.elapsed() < WATCHDOG, "the name is not free though its owner is gone");
    }
    Stranger::of(1_111, &stage).is_denied("serve raw.Echo", &["uid:2222"]);
}

#[test]
fn one_user_leaves_sessions_to_others() {
    let Some(stage) = Stage::set("sessions.per_user_max = 3") else { return };
    let [mut one, mut other] = [1_111, 2_222].map(|uid| Stranger::of(uid, &stage));
    (0..3).for_each(|_| one.may("target "));
    let refused = one.tries("target ");
    assert!(refused.contains("at most 3 sessions of one user (sessions.per_user_max)"), "{refused}");
    (0..3).for_each(|_| other.may("target "));
}

/// The daemon has `grpc.health.v1.Health` itself: as another user it cannot be taken over.
#[test]
fn what_the_daemon_serves_is_its_own() {
    let Some(stage) = Stage::set("") else { return };
    let own = RawApp::attach(&stage.daemon, "", true);
    let mut villain = Stranger::of(2_222, &stage);
    villain.is_denied("serve raw.Echo", &["uid:0"]);
    drop(own);
    let answer = villain.tries("serve trunkline.admin.v1.Admin");
    assert!(answer.contains("the daemon's own"), "{answer}");
}

#[test]
fn rules_say_who_serves_and_who_calls() {
    let config = "[[serve]]\nservice = \"raw.*\"\nwho = [\"uid:1111\", \"uid:2222\"]\n[[serve]]\nservice = \"*\"\n\
                  who = []\n[[call]]\nservice = \"raw.Echo\"\nwho = [\"uid:1111\"]";
    let Some(stage) = Stage::set(config) else { return };
    let [mut first, mut second, mut third] = [1_111, 2_222, 3_333].map(|uid| Stranger::of(uid, &stage));
    first.may("serve raw.Echo");
    // It serves beside the other, and calls nothing.
    second.is_denied("serve raw.Echo", &["uid 2222", "call raw.Echo", "[[call]]"]);
    third.is_denied("serve raw.Echo", &["uid 3333", "serve raw.Echo", "[[serve]] for \"raw.*\""]);
    third.is_denied("serve grpc.health.v1.Health", &["[[serve]] for \"*\""]);
    third.is_denied("target ", &["call raw.Echo", "[[call]] for \"raw.Echo\""]);
    first.may("target ");
    drop(stage.daemon);
}
