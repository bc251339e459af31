//! The binary under test: a daemon that ends with the test, and verbs run against it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
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

/// Ends the process with a message if a test hangs.
pub fn watched() {
    std::thread::spawn(|| {
        let seconds = std::env::var(HANG_VARIABLE).map_or(400, |seconds| seconds.parse().unwrap());
        std::thread::sleep(Duration::from_secs(seconds));
        eprintln!("a test of tools/cli hangs");
        std::process::exit(101);
    });
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
    pub fn start_notifying(manager: &std::path::Path) -> Self {
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
    pub fn folder(&self) -> &std::path::Path {
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
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}
