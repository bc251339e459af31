//! The binary under test: a daemon that ends with the test, and verbs run against it.

#![allow(dead_code, reason = "each test file uses its part")]

use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use trunkline::{Channel, Server, ServerHandle, Wait};
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_example_search::proto::search_server::SearchServer;
use trunkline_example_search::{Collection, Document, SearchService};
use trunkline_test_logs::{Expected, faults};

/// The search service's definition, for `--proto`.
pub const SEARCH_PROTO: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/search/proto/search/v1/search.proto");
/// The admin API's.
pub const ADMIN_PROTO: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/trunkline/admin/v1/admin.proto");

/// `trunkline daemon` on a socket of its own.
pub struct Host {
    pub child: Child,
    folder: tempfile::TempDir,
    expected: Vec<Expected>,
}

/// The binary with these arguments.
pub fn trunkline(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command
        .args(arguments)
        .env_remove("TRUNKLINE_SOCKET")
        .env_remove("TRUNKLINE_CONFIG")
        .env_remove("TRUNKLINE_LOG");
    command
}

/// Environment variable: seconds after which a test counts as one that hangs, for tests that are to go on for long.
const HANG_VARIABLE: &str = "TRUNKLINE_TEST_HANG_SECONDS";

/// Ends the process with a message if the test of this thread hangs. One that has ended, or begun anew, is not looked
/// at any more: of many tests in one process each has the whole time.
pub fn watched() {
    thread_local!(static RUNS: RefCell<Option<Sender<()>>> = const { RefCell::new(None) });
    let (runs, ended) = channel();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::spawn(move || {
        let seconds = std::env::var(HANG_VARIABLE).map_or(400, |seconds| seconds.parse().unwrap());
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{test} of tools/cli hangs");
            std::process::exit(101);
        }
    });
    RUNS.set(Some(runs));
}

/// So long a test waits for what has to come: no assertion about time, but the end of one that would wait for ever.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// What `look` finds once it does; until then it says what is there instead.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(instead) => assert!(began.elapsed() < WATCHDOG, "waited in vain for {what}: {instead}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An address for a daemon to listen at, which nobody else is given.
pub fn own_address() -> SocketAddr {
    trunkline_measure::own_address().unwrap()
}

impl Host {
    /// Starts a daemon with this configuration and waits until it says that it is ready, its own services with it,
    /// and attaches.
    pub fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d.toml"), config).unwrap();
        let child = Self::daemon(&folder);
        let mut host = Self { child, folder, expected: Vec::new() };
        host.until_ready();
        host
    }

    /// Starts a daemon that waits so long for calls in flight when it is to end.
    pub fn start_with_drain(drain: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d.toml"), "").unwrap();
        let child = Self::command_with(&folder, drain).spawn().unwrap();
        let mut host = Self { child, folder, expected: Vec::new() };
        host.until_ready();
        host
    }

    /// Starts a daemon that tells the service manager at this socket.
    pub fn start_notifying(manager: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d.toml"), "").unwrap();
        let child = Self::command(&folder).env("NOTIFY_SOCKET", manager).spawn().unwrap();
        let mut host = Self { child, folder, expected: Vec::new() };
        host.until_ready();
        host
    }

    /// From now on the daemon may log a line at ERROR that has `part` in it, because `why`.
    pub fn expect(&mut self, part: &'static str, why: &'static str) {
        self.expected.push(Expected { part, why });
    }

    /// What the daemon has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn examine_log(&self) {
        let log = self.log();
        let faults = faults(&log, &self.expected);
        assert!(faults.is_empty(), "the daemon logged what no test expects: {faults:#?}\nin:\n{log}");
    }

    /// Starts a daemon that may have so many descriptors, and whose log goes there; waits until it answers.
    pub fn start_in_need(config: &str, descriptors: usize, log: impl Into<Stdio>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("d.toml"), config).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_trunkline")).args(["daemon", "--until-stdin-closes"]);
        command.arg("--socket").arg(folder.path().join("d.sock"));
        command.arg("--config").arg(folder.path().join("d.toml"));
        let child = command.env_remove("TRUNKLINE_LOG").stdin(Stdio::piped()).stderr(log).spawn().unwrap();
        let host = Self { child, folder, expected: Vec::new() };
        while host.verb(&["list"], "").code != Some(0) {
            std::thread::sleep(Duration::from_millis(20));
        }
        host
    }

    /// Kills the daemon and starts another with the same files.
    pub fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.examine_log();
        self.child = Self::daemon(&self.folder);
        self.until_ready();
    }

    /// Its folder: `d.toml` is its configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn daemon(folder: &tempfile::TempDir) -> Child {
        Self::command(folder).spawn().unwrap()
    }

    fn command(folder: &tempfile::TempDir) -> Command {
        Self::command_with(folder, "100ms")
    }

    fn command_with(folder: &tempfile::TempDir, drain: &str) -> Command {
        let (socket, file) = (folder.path().join("d.sock"), folder.path().join("d.toml"));
        let mut command = trunkline(&["daemon", "--until-stdin-closes", "--drain", drain]);
        command.arg("--socket").arg(&socket).arg("--config").arg(&file);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::piped()).stderr(log);
        command
    }

    fn until_ready(&mut self) {
        while !std::fs::read_to_string(self.folder.path().join("log")).unwrap().contains("daemon is ready") {
            assert_eq!(self.child.try_wait().unwrap(), None, "the daemon has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.channel().connect().wait().unwrap();
    }

    /// A channel through the daemon, as soon as it is there.
    pub fn channel(&self) -> trunkline::ChannelBuilder {
        Channel::builder().socket(self.socket()).wait_for_ready(true)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("d.sock")
    }

    /// Serves a small collection from the test's process.
    pub fn serve_search(&self) -> (ServerHandle, SearchClient) {
        let collection = Arc::new(Collection::default());
        let document = |name: &str, text: &str| Document { name: name.into(), text: text.into() };
        collection.add(vec![
            document("a", "a ring"),
            document("b", "a bell"),
            document("c", "ring the ring"),
        ]);
        let service = SearchServer::new(SearchService::new(collection));
        let server =
            Server::builder().socket(self.socket()).name("searcher").add_service(service).spawn().unwrap();
        server.ready().wait().unwrap();
        (server, SearchClient::new(self.channel().connect_lazy()))
    }

    /// Runs a verb at this daemon with `input`.
    pub fn verb(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = trunkline(&["--socket", self.socket().to_str().unwrap()]);
        end(command.args(arguments), input)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
            return;
        }
        self.examine_log();
    }
}

/// `trunkline record` that records.
pub struct Recording(Option<Child>);

impl Recording {
    /// Records every call of the daemon at this socket, with more arguments, and waits until it does: the file is there
    /// as soon as the daemon has said where its recorders stand. What ends from now on until it is stopped is in it.
    pub fn begin(socket: &Path, file: &Path, more: &[&str]) -> Self {
        assert!(!file.exists(), "nobody would know when it begins");
        let mut command = trunkline(&["--socket", socket.to_str().unwrap(), "record", "--for", "1h", "-o"]);
        command.arg(file).args(["--rate", "1e9/s"]).args(more).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !file.exists() {
            assert_eq!(child.try_wait().unwrap(), None, "the recording has ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(Some(child))
    }

    /// Ends it, and waits until the file is whole. What it says.
    pub fn stop(self) -> String {
        self.stop_by(Signal::TERM)
    }

    pub fn stop_by(mut self, signal: Signal) -> String {
        let child = self.0.take().unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success(), "{said} {}", String::from_utf8_lossy(&ended.stderr));
        said
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a verb left behind.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command to its end.
pub fn end(command: &mut Command, input: &str) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    match child.stdin.take().unwrap().write_all(input.as_bytes()) {
        // It ends without having read all: what it says tells why.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}
