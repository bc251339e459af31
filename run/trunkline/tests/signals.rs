//! Shows what SIGTERM means to a program that serves: the calls it has begun end well, unless the program says
//! otherwise. The server is a process of its own, which is this program again.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use support::text::{Echo, EchoServer};
use support::{EchoClient, Text, watched};
use trunkline::codegen::{Incoming, Receiver, Sender};
use trunkline::{Channel, Response, Server, Status, Wait};

/// Says in the server's process whether signals stop it.
const SERVES: &str = "TRUNKLINE_TEST_SERVES";

/// Answers when a line comes from standard input.
struct Held;

impl Echo for Held {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        println!("called");
        std::io::stdin().lock().read_line(&mut String::new()).map_err(|e| Status::internal(e.to_string()))?;
        Ok(request.into_inner().into())
    }

    async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }

    async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
        Ok(Text::default().into())
    }

    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

/// Not a test of its own: what the server's process does.
#[test]
fn serves() {
    let Some(how) = std::env::var_os(SERVES) else { return };
    if how == "forked" {
        let parents = Server::builder().embedded(true).add_service(EchoServer::new(Held));
        std::thread::spawn(move || parents.run());
        while !listens_for_signals() {
            std::thread::yield_now();
        }
        match fork::fork().unwrap() {
            fork::Fork::Child => {
                println!("child {}", std::process::id());
                serve(true);
                std::process::exit(0);
            }
            fork::Fork::Parent(pid) => {
                let waited =
                    rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty());
                std::process::exit(waited.unwrap().unwrap().1.exit_status().unwrap_or(-1));
            }
        }
    }
    serve(how == "yes");
}

/// Whether the library's thread for signals runs, which it does once the handlers are there.
fn listens_for_signals() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.starts_with("trunkline-signa"))
}

/// Serves one call, which this process makes.
fn serve(stops: bool) {
    let caller = std::thread::spawn(|| {
        let client = EchoClient::new(Channel::builder().embedded(true).connect_lazy());
        loop {
            match client.say(Text::new("hello")).wait() {
                Ok(reply) => return println!("answered {}", reply.view().text()),
                // The server's services are not bound yet.
                Err(status) if status.execution() == trunkline::Execution::NotExecuted => {
                    std::thread::yield_now()
                }
                Err(status) => return println!("failed: {status}"),
            }
        }
    });
    let server =
        Server::builder().embedded(true).grace(Duration::from_secs(600)).add_service(EchoServer::new(Held));
    let outcome = server.stop_on_signals(stops).run();
    caller.join().unwrap();
    println!("served {outcome:?}");
}

/// A server that has been called, and what it says.
fn called(stops: &str) -> (Child, BufReader<ChildStdout>) {
    let (server, mut says) = started(stops);
    until(&mut says, "called");
    (server, says)
}

fn started(how: &str) -> (Child, BufReader<ChildStdout>) {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "serves", "--nocapture"])
        .env(SERVES, how)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let says = BufReader::new(server.stdout.take().unwrap());
    (server, says)
}

/// Reads lines until one has `words`: that one.
fn until(says: &mut impl BufRead, words: &str) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(says.read_line(&mut line).unwrap() > 0, "the server ended before it said {words:?}");
    }
    line
}

fn send(signal: Signal, server: &Child) {
    let pid = Pid::from_raw(server.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether whoever started this program has it ignore a signal, as shells do with SIGINT in the background: its
/// children do so as well, and then the signal is not ours.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

/// The handlers it has from its parent are the library's, and its own server is told.
#[test]
fn a_forked_childs_server_answers_first_too() {
    watched(|| {
        let (mut parent, mut says) = started("forked");
        let line = until(&mut says, "child ");
        let child = line.rsplit(' ').next().unwrap().trim().parse().unwrap();
        until(&mut says, "called");
        kill_process(Pid::from_raw(child).unwrap(), Signal::TERM).unwrap();
        parent.stdin.take().unwrap().write_all(b"\n").unwrap();
        until(&mut says, "answered hello");
        until(&mut says, "served Ok(())");
        assert!(parent.wait().unwrap().success());
    });
}

#[test]
fn a_server_that_is_told_to_end_answers_first() {
    for signal in [Signal::TERM, Signal::INT].into_iter().filter(|signal| !is_ignored(*signal)) {
        watched(move || {
            let (mut server, mut says) = called("yes");
            send(signal, &server);
            server.stdin.take().unwrap().write_all(b"\n").unwrap();
            until(&mut says, "answered hello");
            until(&mut says, "served Ok(())");
            assert!(server.wait().unwrap().success());
        });
    }
}

#[test]
fn signals_are_the_programs_if_it_says_so() {
    watched(|| {
        let (mut server, _says) = called("no");
        send(Signal::TERM, &server);
        assert_eq!(server.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    });
}
