//! Shows what only two hosts with addresses of their own show, by two daemons in network namespaces: that what a link
//! takes is booked to the wire of its direction (the kernel's own token bucket, tc-tbf, is put before one end of it in
//! the middle of the run), and that recordings of both ends of an R2P2 call have it once.

#[path = "support/greeter.rs"]
mod greeter;
mod support;

use greeter::Hello;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{Recording, end, trunkline, watched};
use trunkline::{Channel, Server, ServerHandle, Wait};
use trunkline_example_greeter::proto::greeter_client::GreeterClient;
use trunkline_example_greeter::proto::greeter_server::GreeterServer;
use trunkline_example_greeter::proto::{HelloReply, HelloRequest};

/// Bytes of a request and of its response.
const BYTES: usize = 6_000;
/// What the bucket lets through: a byte a microsecond, beyond so many at once.
const RATE: &str = "8mbit";
const BURST: usize = 2_000;
/// Of a message beside its bytes: frames, and heads of five packets.
const OVERHEAD: usize = 66 * 5 + 90;
/// Calls without the bucket, and as many with it. Between two the bucket fills again.
const CALLS: usize = 60;
const PAUSE: Duration = Duration::from_millis(4);
/// Rounds of which one must fit: a host that is busy with something else delays, too, and elsewhere.
const ROUNDS: usize = 4;
const FAR: &str = "tcp://10.213.7.2:7000";
/// One measures, and all have the same addresses.
static ONE_LINK: Mutex<()> = Mutex::new(());

/// Namespaces `a` and `b` with a link between them. They go with this.
struct Link(String);

impl Link {
    /// A link, or what this machine lacks for one.
    fn new() -> Result<Self, String> {
        let link = Self(format!("tlw{}", std::process::id()));
        let [a, b] = ["a", "b"].map(|end| link.namespace(end));
        for words in [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip -n {a} link add wire type veth peer name wire netns {b}"),
            format!("ip -n {a} addr add 10.213.7.1/30 dev wire"),
            format!("ip -n {b} addr add 10.213.7.2/30 dev wire"),
            format!("ip -n {a} link set wire up"),
            format!("ip -n {b} link set wire up"),
        ] {
            run(&words)?;
        }
        // Whether this kernel has the bucket.
        link.slow("a")?;
        link.restore("a");
        Ok(link)
    }

    fn namespace(&self, end: &str) -> String {
        format!("{}{end}", self.0)
    }

    /// From now on what this end sends takes its time.
    fn slow(&self, end: &str) -> Result<(), String> {
        let namespace = self.namespace(end);
        run(&format!(
            "ip netns exec {namespace} tc qdisc add dev wire root tbf rate {RATE} burst {BURST} limit 1000000"
        ))
    }

    fn restore(&self, end: &str) {
        run(&format!("ip netns exec {} tc qdisc del dev wire root", self.namespace(end))).unwrap();
    }

    fn daemon(&self, end: &str, folder: &Path, config: &str) -> Daemon {
        let socket = folder.join(format!("{end}.sock"));
        let file = folder.join(format!("{end}.toml"));
        std::fs::write(&file, format!("[daemon]\nnode = \"{end}\"\n{config}")).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(end), env!("CARGO_BIN_EXE_trunkline"), "daemon"]);
        command.args(["--until-stdin-closes", "--drain", "100ms", "--socket"]).arg(&socket);
        command.arg("--config").arg(&file).stdin(Stdio::piped()).stderr(Stdio::null());
        Daemon { child: command.spawn().unwrap(), socket }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for end in ["a", "b"] {
            let _ = run(&format!("ip netns del {}", self.namespace(end)));
        }
    }
}

/// A daemon, until its standard input closes.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn run(words: &str) -> Result<(), String> {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Two daemons with these lines of configuration, when they answer.
fn daemons(link: &Link, folder: &Path, of_far: &str) -> [Daemon; 2] {
    let both = [link.daemon("a", folder, ""), link.daemon("b", folder, of_far)];
    while both.iter().any(|daemon| !daemon.socket.exists()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    both
}

/// A server at one of them, and who calls it by that address from the other.
fn echo([near, far]: &[Daemon; 2], target: &str) -> (ServerHandle, GreeterClient) {
    let server = Server::builder().socket(&far.socket).name("echo").add_service(GreeterServer::new(ECHO));
    let server = server.spawn().unwrap();
    server.ready().wait().unwrap();
    let channel = Channel::builder().socket(&near.socket).embedded(false).wait_for_ready(true).target(target);
    (server, GreeterClient::new(channel.connect_lazy()))
}

/// Answers with what it was asked.
const ECHO: Hello = Hello(|request| HelloReply { message: request.name });

/// Of each component the value in its middle, in nanoseconds, of the calls in `file`.
fn medians(file: &str) -> Vec<(String, i64)> {
    let csv = end(&mut trunkline(&["export", "--csv", file]), "").out;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|one| *one == name).unwrap();
    let (method, side) = (column("method"), column("side"));
    let rows: Vec<Vec<&str>> =
        lines.filter(|row| row[side] == "made" && row[method].ends_with("/SayHello")).collect();
    assert!(rows.len() >= CALLS - 2, "{} of {CALLS} calls recorded", rows.len());
    let (first, last) = (column("client_send_queue_ns"), column("client_receive_queue_ns"));
    let middle = |at: usize| {
        let mut values: Vec<i64> = rows.iter().map(|row| row[at].parse().unwrap()).collect();
        values.sort_unstable();
        (head[at].to_owned(), values[values.len() / 2])
    };
    (first..=last).map(middle).collect()
}

/// Neither end of an R2P2 call hears the other's name.
#[test]
fn a_call_over_r2p2_that_both_hosts_recorded_counts_once() {
    watched();
    let _one = ONE_LINK.lock().unwrap_or_else(PoisonError::into_inner);
    let link = match Link::new() {
        Ok(link) => link,
        Err(lacks) => {
            eprintln!("no link can be made here: it takes root, ip and tc ({lacks})");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let both = daemons(&link, folder.path(), "[r2p2]\nlisten = \"10.213.7.2:8000\"\n");
    let (_server, client) = echo(&both, "r2p2://10.213.7.2:8000");
    let call = || client.say_hello(HelloRequest { name: "x".into() }).wait().unwrap();
    call();
    let files = ["a.rec", "b.rec"].map(|name| folder.path().join(name));
    let recordings = [0, 1].map(|at| Recording::begin(&both[at].socket, &files[at], &[]));
    (0..CALLS).for_each(|_| drop(call()));
    for recording in recordings {
        recording.stop();
    }
    let report = folder.path().join("report");
    let [a, b, report] = [&files[0], &files[1], &report].map(|path| path.to_str().unwrap());
    let csv = end(&mut trunkline(&["export", "--csv", a, b]), "").out;
    let rows = |what: &str| csv.lines().filter(|line| line.contains(what)).count();
    assert!(rows(",made,/greeter.v1.Greeter/SayHello,r2p2 10.213.7.2:8000,") >= CALLS - 2, "{csv}");
    assert!(rows(",served,/greeter.v1.Greeter/SayHello,r2p2 10.213.7.1,") >= CALLS - 2, "{csv}");
    let page = end(&mut trunkline(&["characterize", a, b, "-o", report]), "");
    assert_eq!(page.code, Some(0), "{page:?}");
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(
        page.contains(" calls made, which stand for "),
        "one that was served is of a caller that is recorded"
    );
}

#[test]
fn a_slow_link_is_the_wire_of_its_direction() {
    watched();
    let _one = ONE_LINK.lock().unwrap_or_else(PoisonError::into_inner);
    let link = match Link::new() {
        Ok(link) => link,
        Err(lacks) => {
            eprintln!("no link can be made here: it takes root, ip and tc ({lacks})");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let both = daemons(&link, folder.path(), &format!("listen = [\"{FAR}\"]\n"));
    let (_server, client) = echo(&both, FAR);
    let calls = |count: usize| {
        for _ in 0..count {
            client.say_hello(HelloRequest { name: "x".repeat(BYTES) }).wait().unwrap();
            std::thread::sleep(PAUSE);
        }
    };
    let recorded = |name: &str| {
        let file = folder.path().join(name);
        let recording = Recording::begin(&both[0].socket, &file, &[]);
        calls(CALLS);
        recording.stop();
        medians(file.to_str().unwrap())
    };
    calls(10);
    let delay_ns = 1_000 * (BYTES + OVERHEAD - BURST) as i64;
    // What a busy host adds, and a twentieth.
    let tolerated_ns = 100_000 + delay_ns / 20;
    for (end, wire) in [("a", "request_wire_ns"), ("b", "response_wire_ns")] {
        let mut rounds = Vec::new();
        let fits = (0..ROUNDS).any(|round| {
            let plain = recorded(&format!("{end}{round}.plain"));
            link.slow(end).unwrap();
            calls(5);
            let slow = recorded(&format!("{end}{round}.slow"));
            link.restore(end);
            let off = plain.iter().zip(&slow).map(|((part, plain_ns), (_, slow_ns))| {
                let expected_ns = if part == wire { delay_ns } else { 0 };
                (part.clone(), slow_ns - plain_ns - expected_ns)
            });
            rounds.push(off.collect::<Vec<_>>());
            rounds[round].iter().all(|(_, off_ns)| off_ns.abs() <= tolerated_ns)
        });
        assert!(fits, "{wire} is to have {delay_ns} ns more, others none, but were off by {rounds:?}");
    }
}
