//! Shows that the programs print the same before and after they moved, also if only one end has moved, and that they
//! differ in the lines the README shows and in no other.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_measure::{Child, own_address};

/// Longest time for a server to come up.
const PATIENCE: Duration = Duration::from_secs(60);
const PRINTED: &str =
    "Ada signed page 1\nGrace signed page 2\nInvalidArgument: who signs?\npage 1: Ada\npage 2: Grace\n";

#[test]
fn the_programs_print_the_same() {
    let stage = Stage::set();
    let direct = own_address().unwrap().to_string();
    for (server, client, address) in [
        (
            env!("CARGO_BIN_EXE_guestbook-server-before"),
            env!("CARGO_BIN_EXE_guestbook-client-before"),
            &direct,
        ),
        (env!("CARGO_BIN_EXE_guestbook-server-after"), env!("CARGO_BIN_EXE_guestbook-client-after"), &direct),
        (
            env!("CARGO_BIN_EXE_guestbook-server-after"),
            env!("CARGO_BIN_EXE_guestbook-client-before"),
            &stage.port,
        ),
    ] {
        let _server = Child::from(stage.program(server, address).spawn().unwrap());
        let printed = stage.wait_for_answer(client, address);
        assert_eq!(printed, PRINTED, "{client} to {server}");
    }
}

#[test]
fn they_differ_in_the_lines_of_the_readme() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(here.join("README.md")).unwrap();
    for program in ["server", "client"] {
        let [before, after] = ["before", "after"].map(|when| {
            std::fs::read_to_string(here.join(format!("src/bin/guestbook-{program}-{when}.rs"))).unwrap()
        });
        assert_eq!(before.lines().count(), after.lines().count());
        let changed: Vec<_> = before.lines().zip(after.lines()).filter(|(old, new)| old != new).collect();
        let [(old, new)] = changed.as_slice() else { panic!("more than one line: {changed:?}") };
        let shown = format!("guestbook-{program}-*.rs\n-{old}\n+{new}\n");
        assert!(readme.contains(&shown), "README.md does not show\n{shown}");
    }
}

/// A daemon, where it listens for gRPC, and its socket.
struct Stage {
    _daemon: Daemon,
    port: String,
    socket: String,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn set() -> Self {
        trunkline_test_logs::watch();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("daemon.sock").display().to_string();
        let text = format!("[daemon]\nsocket = {socket:?}\nlisten = [\"tcp://127.0.0.1:0\"]\n");
        let daemon = Daemon::start(Config::from_toml(&text, "stage.toml").unwrap()).unwrap();
        let port = daemon.endpoints()[0].trim_start_matches("tcp://").to_owned();
        Self { _daemon: daemon, port, socket, _dir: dir }
    }

    fn program(&self, path: &str, address: &str) -> Command {
        let mut command = Command::new(path);
        command.env("TRUNKLINE_SOCKET", &self.socket).env("GUESTBOOK_ADDRESS", address).stdin(Stdio::null());
        command
    }

    /// Runs a client until there is a server for it. One that finds none has signed nothing.
    fn wait_for_answer(&self, client: &str, address: &str) -> String {
        let since = Instant::now();
        loop {
            let output = self.program(client, address).args(["Ada", "Grace"]).output().unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(since.elapsed() < PATIENCE, "{client}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
