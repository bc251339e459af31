//! A probe process that is ordered about by lines.

use super::program_file::program;
use crate::scenario::WATCHDOG;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use trunkline_test_logs::{Expected, faults};

/// What programs of tests say that is no daemon's fault.
const ORDERED: Expected = Expected {
    part: "panicked at tests/system/src/handler.rs",
    why: "handlers panic when they are ordered to",
};

/// A running probe. Killed when dropped, and the test fails if its log has a fault in it that the test has not
/// foreseen.
pub struct Process {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    greeting: String,
    /// The process that goes on in this one's place, with its input and output.
    successor: Option<Pid>,
    /// Its standard error, and that of its successors.
    log: NamedTempFile,
    expected: Vec<Expected>,
}

impl Process {
    /// Starts a probe and waits until it is ready.
    pub fn start(arguments: &[&str], environment: &[(&str, OsString)]) -> Self {
        Self::start_within(None, arguments, environment)
    }

    /// Starts a probe in a network namespace.
    pub fn start_within(
        namespace: Option<&str>,
        arguments: &[&str],
        environment: &[(&str, OsString)],
    ) -> Self {
        Self::launch(namespace, None, arguments, environment).greeted()
    }

    /// Starts a probe as another user, which only root may. That user must be allowed to run the program.
    pub fn start_as(user: u32, arguments: &[&str], environment: &[(&str, OsString)]) -> Self {
        Self::launch(None, Some(user), arguments, environment).greeted()
    }

    fn greeted(mut self) -> Self {
        self.greeting = self.hear();
        assert!(self.greeting.starts_with("ready"), "{}: {}", self.name, self.greeting);
        self
    }

    /// These lines in its log are no faults.
    pub fn expect(&mut self, lines: &[Expected]) {
        self.expected.extend_from_slice(lines);
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log.path()).expect("its log is a file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Orders something and waits for the answer.
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.hear()
    }

    /// Orders something; the answer is to be heard later.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap_or_else(|error| panic!("{} has gone: {error}", self.name));
    }

    /// Waits for an answer.
    pub fn hear(&mut self) -> String {
        self.answers.recv_timeout(WATCHDOG * 2).unwrap_or_else(|why| panic!("{} is silent: {why}", self.name))
    }

    /// What it said when it was ready, without the word.
    pub fn greeting(&self) -> &str {
        self.greeting.trim_start_matches("ready").trim()
    }

    /// Has a daemon replaced by another process, which answers from now on. What the successor says of itself.
    ///
    /// # Panics
    /// If it was not replaced.
    pub fn replace(&mut self) -> String {
        let answer = self.ask("replace");
        self.succeeded(&answer)
    }

    /// The successor answers from now on, which is this process.
    pub fn succeeded_by(&mut self, successor: Pid) {
        let greeting = self.hear();
        self.succeeded(&greeting);
        assert_eq!(self.successor, Some(successor));
    }

    fn succeeded(&mut self, greeting: &str) -> String {
        let words: Vec<&str> = greeting.split(' ').collect();
        let ["took-over", process, rest @ ..] = words.as_slice() else { panic!("{}: {greeting}", self.name) };
        let process = process.parse().ok().and_then(Pid::from_raw);
        self.successor = Some(process.expect("a process has a number"));
        // It has ended by itself.
        let _ = self.child.wait();
        rest.join(" ")
    }

    /// Has a daemon replaced, and somebody killed as soon as a step is done: `old`, `new`, or another process by its
    /// number. The successor's process.
    pub fn replace_and_kill(&mut self, who: &str, when: &str) -> Pid {
        let answer = self.ask(&format!("replace-and-kill {who} {when}"));
        let process = answer.strip_prefix("started ").and_then(|process| process.parse().ok());
        process.and_then(Pid::from_raw).unwrap_or_else(|| panic!("{}: {answer}", self.name))
    }

    /// Stops it (SIGSTOP) while something is done.
    pub fn stop_for<T>(&mut self, what: impl FnOnce() -> T) -> T {
        let process = self.successor.or(Pid::from_raw(self.child.id().cast_signed()));
        let process = process.expect("a process has a number");
        kill_process(process, Signal::STOP).expect("it is there");
        let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
        // proc(5): the state follows the name, which is in parentheses.
        let stands = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "));
        until("it stands still", || stands().then_some(()));
        let done = what();
        kill_process(process, Signal::CONT).expect("it is there");
        done
    }

    /// Waits until neither this process nor the one that was to take its place is there.
    pub fn until_gone(&mut self, successor: Pid) {
        let _ = self.child.wait();
        until("the other daemon gone, too", || (!is_alive(successor)).then_some(()));
    }

    /// Ends it at once and without a chance to say goodbye (SIGKILL), and waits until the kernel has cleaned up.
    pub fn kill(&mut self) {
        if let Some(successor) = self.successor.take() {
            let _ = kill_process(successor, Signal::KILL);
            let began = Instant::now();
            while is_alive(successor) {
                assert!(began.elapsed() < WATCHDOG, "a killed process lives");
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        // Gone already is gone, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The process that answers: this one, or the one that goes on in its place.
    pub fn answering_id(&self) -> u32 {
        self.successor.map_or(self.child.id(), |successor| successor.as_raw_nonzero().get().unsigned_abs())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory, that which others share included: heaps and rings.
    pub fn resident_bytes(&self) -> u64 {
        self.memory_bytes("VmRSS:")
    }

    /// Resident memory that is its own: no heaps and rings.
    pub fn own_bytes(&self) -> u64 {
        self.memory_bytes("RssAnon:")
    }

    /// Descriptors it has open.
    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// The process, or the one that has taken its place.
    fn pid(&self) -> u32 {
        self.successor.map_or(self.child.id(), |pid| pid.as_raw_nonzero().get().cast_unsigned())
    }

    fn memory_bytes(&self, name: &str) -> u64 {
        let process = self.pid();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).expect("a live process has a size");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap() * 1024
    }

    fn launch(
        namespace: Option<&str>,
        user: Option<u32>,
        arguments: &[&str],
        environment: &[(&str, OsString)],
    ) -> Self {
        let probe = program();
        let mut command = Command::new(if namespace.is_some() { "ip".as_ref() } else { probe.as_os_str() });
        if let Some(namespace) = namespace {
            // It becomes the probe, so that its process is the one to kill.
            command.args(["netns", "exec", namespace]).arg(probe);
        }
        let log = NamedTempFile::new().expect("a file for its log");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.reopen().expect("the file is there"));
        for name in ["TRUNKLINE_SOCKET", "TRUNKLINE_EMBEDDED", "TRUNKLINE_CONFIG"] {
            command.env_remove(name);
        }
        command.env("RUST_BACKTRACE", "0").envs(environment.iter().cloned());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().expect("the probe starts");
        let orders = child.stdin.take().expect("it was piped");
        let output = child.stdout.take().expect("it was piped");
        let (tell, answers) = channel();
        // Ends with the process, whose end closes its output.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let name = format!("probe {arguments:?}, process {}", child.id());
        let (greeting, expected) = (String::new(), vec![ORDERED]);
        Self { name, child, orders, answers, greeting, successor: None, log, expected }
    }
}

/// Waits until `condition` gives something.
///
/// # Panics
/// When the watchdog barks, with what was waited for.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(began.elapsed() < WATCHDOG, "waited in vain for: {what}");
        // Not to wait for something, but to leave the cores to those who make it happen.
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Whether a process that is nobody's child here runs, or some thread of it still does: its files are open as long.
fn is_alive(process: Pid) -> bool {
    let process = process.as_raw_nonzero();
    if std::fs::read_dir(format!("/proc/{process}/task")).is_ok_and(|tasks| tasks.count() > 1) {
        return true;
    }
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    // State is the first word behind the name; Z has ended and waits to be asked for.
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("{} logged:\n{log}", self.name);
            return;
        }
        let faults = faults(&log, &self.expected);
        assert!(faults.is_empty(), "{} logged what no test expects: {faults:#?}\nin:\n{log}", self.name);
    }
}
