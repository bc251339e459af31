//! The same calls through the real engine: embedded in this process, and at a socket.

use crate::support;

use std::future::ready;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use support::text::{Echo, EchoServer, Parrot};
use support::{EchoClient, Text, WATCHDOG, channel, own_test, passes, poll_once, watched};
use trunkline::codegen::Handling;
use trunkline::{
    Channel, Code, Execution, Incoming, Receiver, Request, Response, Sender, Server, ServerHandle, Status,
    Wait, opaque,
};
use trunkline_daemon::{Config, Daemon};

/// The program both ways of running have in common.
fn program(channel: Channel, server: trunkline::ServerBuilder) {
    let server: ServerHandle = server.add_service(EchoServer::new(Parrot)).workers(2).spawn().unwrap();
    server.ready().wait().unwrap();
    let client = EchoClient::new(channel.clone());
    for round in 0..50 {
        let text = format!("hello {round}");
        assert_eq!(client.say(Text::new(text.as_str())).wait().unwrap().view().text(), text);
    }
    let status = client.say(Text::new("fail")).wait().unwrap_err();
    assert_eq!(
        (status.code(), status.message(), status.details()),
        (Code::NotFound, "50% gone", &[1, 2, 3][..])
    );
    let mut words = client.repeat(Text::new("one two")).wait().unwrap();
    assert_eq!(words.recv().wait().unwrap().unwrap().view().text(), "one");
    assert_eq!(words.recv().wait().unwrap().unwrap().view().text(), "two");
    assert!(words.recv().wait().unwrap().is_none());
    let mut call = client.collect();
    for word in ["a", "b", "c"] {
        call.send(Text::new(word)).wait().unwrap();
    }
    assert_eq!(call.finish().wait().unwrap().view().text(), "a b c");
    let (mut tx, mut rx) = client.chat().split();
    for word in ["x", "y"] {
        tx.send(Text::new(word)).wait().unwrap();
        assert_eq!(rx.recv().wait().unwrap().unwrap().view().text(), word);
    }
    drop(tx);
    assert!(rx.recv().wait().unwrap().is_none());
    let large = "x".repeat(3 << 20);
    assert_eq!(client.say(Text::new(large.as_str())).wait().unwrap().view().text(), large);
    server.shutdown(WATCHDOG).wait().unwrap();
    assert_eq!(client.say(Text::new("anyone?")).wait().unwrap_err().code(), Code::Unavailable);
}

#[test]
fn embedded() {
    watched(|| {
        let channel = Channel::builder().embedded(true).connect_lazy();
        program(channel, Server::builder().embedded(true));
    });
}

/// Names the process that asks for heaps of its own; its environment is nobody else's.
const ASKS: &str = "TRUNKLINE_TEST_ASKS_FOR_HEAPS";
/// The same of one whose wish is no size.
const ASKS_FOR_ANY: &str = "TRUNKLINE_TEST_ASKS_FOR_ANY_HEAPS";

/// Not a test of its own: what the process does that asks.
#[test]
fn with_heaps_of_a_mebibyte() {
    if std::env::var_os(ASKS).is_none() {
        return;
    }
    watched(|| {
        let server = Server::builder().embedded(true).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        server.ready().wait().unwrap();
        let client = EchoClient::new(Channel::builder().embedded(true).connect_lazy());
        let text = "x".repeat(500 << 10);
        assert_eq!(client.say(Text::new(text.as_str())).wait().unwrap().view().text(), text);
        let status = client.say(Text::new("x".repeat(2 << 20))).wait().unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::ResourceExhausted, Execution::NotExecuted));
        assert!(status.message().contains("TRUNKLINE_HEAP_BYTES"), "{status}");
    });
}

#[test]
fn heaps_are_as_large_as_the_environment_asks() {
    let mut asking = own_test("daemon::with_heaps_of_a_mebibyte");
    passes(asking.env(ASKS, "1").env("TRUNKLINE_HEAP_BYTES", "1 MiB"));
}

/// Not a test of its own: what the process does whose environment has a slip in it.
#[test]
fn with_heaps_of_any_size() {
    if std::env::var_os(ASKS_FOR_ANY).is_none() {
        return;
    }
    watched(|| {
        let refused = |status: trunkline::Status| {
            assert_eq!(
                (status.code(), status.execution()),
                (Code::FailedPrecondition, Execution::NotExecuted)
            );
            let said = "TRUNKLINE_HEAP_BYTES is \"any\": write a number of bytes, or one with a unit";
            assert!(status.message().starts_with(said), "{status}");
        };
        refused(Server::builder().embedded(true).add_service(EchoServer::new(Parrot)).spawn().unwrap_err());
        for wait_for_ready in [false, true] {
            let channel = Channel::builder().embedded(true).wait_for_ready(wait_for_ready).connect_lazy();
            refused(EchoClient::new(channel).say(Text::new("x")).wait().unwrap_err());
        }
    });
}

#[test]
fn heaps_that_cannot_be_meant_are_refused() {
    let mut asking = own_test("daemon::with_heaps_of_any_size");
    passes(asking.env(ASKS_FOR_ANY, "1").env("TRUNKLINE_HEAP_BYTES", "any"));
}

/// Names the process that serves at the socket this says.
const SERVES_AT: &str = "TRUNKLINE_TEST_SERVES_AT";

/// What every gRPC program brings, and daemons have.
struct Health;

impl opaque::Service for Health {
    fn name(&self) -> &str {
        "grpc.health.v1.Health"
    }

    fn call(&self, _: opaque::Delivered) -> Handling {
        Box::pin(ready(()))
    }
}

/// Not a test of its own: what the process does that serves.
#[test]
fn with_a_server_at_a_socket() {
    let Some(path) = std::env::var_os(SERVES_AT) else { return };
    let server = Server::builder().socket(path).name("parrot").add_opaque_service(Health);
    let server = server.add_service(EchoServer::new(Parrot));
    let _server = server.workers(2).spawn().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_server_says_why_it_is_not_attached_and_that_it_is() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let mut serves = own_test("daemon::with_a_server_at_a_socket");
        serves.env(SERVES_AT, dir.path().join("daemon.sock"));
        serves.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut serves = serves.spawn().unwrap();
        let mut lines = BufReader::new(serves.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said = || lines.find(|line| line.starts_with("trunkline: ")).unwrap();
        let line = said();
        let why = "trunkline: parrot is not attached, and nobody can call it: no daemon at ";
        assert!(line.starts_with(why) && line.contains("daemon.sock: connect: No such file"), "{line}");
        let _daemon = start(dir.path());
        assert_eq!(said(), "trunkline: parrot is attached", "once, whatever the number of workers");
        drop(serves.stdin.take());
        assert!(serves.wait().unwrap().success());
    });
}

/// No other application can leave room for it: whoever started it is to know.
#[test]
fn a_server_that_is_above_a_limit_by_itself_ends() {
    watched(|| {
        for key in ["routes_per_session", "routes_per_user"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("daemon.sock");
            let config = format!("[daemon]\nsocket = {path:?}\n[limits]\n{key} = 3\n");
            let _daemon = Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap();
            let server = Server::builder().socket(&path).add_service(EchoServer::new(Parrot));
            let status = server.spawn().unwrap().wait().unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            assert!(status.message().contains(&format!("limits.{key}")), "{status}");
        }
    });
}

#[test]
fn a_service_that_the_daemon_keeps_for_itself_keeps_no_other_from_being_served() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.sock");
        let rule = "[[serve]]\nservice = \"grpc.health.v1.Health\"\nwho = []";
        let config = format!("[daemon]\nsocket = {path:?}\n{rule}\n");
        let _daemon = Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap();
        let mut serves = own_test("daemon::with_a_server_at_a_socket");
        serves.env(SERVES_AT, &path);
        serves.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut serves = serves.spawn().unwrap();
        let mut lines = BufReader::new(serves.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("trunkline: ")).unwrap();
        let why = "trunkline: the daemon goes on answering grpc.health.v1.Health itself, not parrot: ";
        assert!(line.starts_with(why) && line.contains("[[serve]]"), "{line}");
        assert_eq!(EchoClient::new(channel(&path)).say(Text::new("hi")).wait().unwrap().view().text(), "hi");
        drop(serves.stdin.take());
        assert!(serves.wait().unwrap().success());
    });
}

#[test]
fn at_a_socket() {
    watched(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.sock");
        let _daemon = start(dir.path());
        let channel = Channel::builder().socket(&path).connect_lazy();
        program(channel, Server::builder().socket(&path));
    });
}

/// A daemon at a socket, a server of `service` and a client.
fn stage(service: impl Echo) -> (tempfile::TempDir, Daemon, ServerHandle, EchoClient) {
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    let path = dir.path().join("daemon.sock");
    let server = Server::builder().socket(&path).add_service(EchoServer::new(service)).spawn().unwrap();
    server.ready().wait().unwrap();
    (dir, daemon, server, EchoClient::new(channel(&path)))
}

fn start(dir: &Path) -> Daemon {
    let path = dir.join("daemon.sock");
    let config = format!("[daemon]\nsocket = {path:?}\n");
    Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap()
}

/// Waits for ever, or calls itself to wait for ever, and counts who waits.
#[derive(Clone, Default)]
struct Waits {
    waiting: Arc<AtomicUsize>,
    inner: Arc<OnceLock<EchoClient>>,
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Waits {
    fn until(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) != count {
            std::thread::yield_now();
        }
    }
}

impl Echo for Waits {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(Arc::clone(&self.waiting));
        match request.view().text() {
            "nested" => self.inner.get().unwrap().say(Text::new("leaf")).await,
            "quick" => Ok(Response::new(request.into_inner())),
            _ => std::future::pending().await,
        }
    }
    async fn repeat(&self, request: Incoming<Text>, mut out: Sender<Text>) -> Result<(), Status> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(Arc::clone(&self.waiting));
        loop {
            out.send(Text::new(request.view().text())).await?;
        }
    }
    async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
        Ok(Response::new(Text::default()))
    }
    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

#[test]
fn a_deadline_ends_the_call_and_its_handler() {
    watched(|| {
        let service = Waits::default();
        let (_dir, _daemon, _server, client) = stage(service.clone());
        let request = Request::new(Text::new("leaf")).with_timeout(Duration::from_millis(20));
        assert_eq!(client.say(request).wait().unwrap_err().code(), Code::DeadlineExceeded);
        service.until(0);
    });
}

#[test]
fn cancelling_reaches_the_calls_a_handler_makes() {
    watched(|| {
        let service = Waits::default();
        let (_dir, _daemon, _server, client) = stage(service.clone());
        service.inner.set(client.clone()).unwrap();
        let mut call = client.say(Text::new("nested"));
        while service.waiting.load(Ordering::SeqCst) != 2 {
            assert!(poll_once(&mut call).is_pending());
            std::thread::yield_now();
        }
        drop(call);
        service.until(0);
    });
}

#[test]
fn a_deadline_is_inherited_by_the_calls_a_handler_makes() {
    watched(|| {
        let service = Waits::default();
        let (_dir, _daemon, _server, client) = stage(service.clone());
        service.inner.set(client.clone()).unwrap();
        let request = Request::new(Text::new("nested")).with_timeout(Duration::from_millis(20));
        assert_eq!(client.say(request).wait().unwrap_err().code(), Code::DeadlineExceeded);
        service.until(0);
    });
}

#[test]
fn a_receiver_that_stops_reading_stops_the_sender_and_dropping_it_ends_it() {
    watched(|| {
        let service = Waits::default();
        let (_dir, _daemon, _server, client) = stage(service.clone());
        let mut stream = client.repeat(Text::new("x".repeat(10_000))).wait().unwrap();
        for _ in 0..300 {
            assert_eq!(stream.recv().wait().unwrap().unwrap().view().text().len(), 10_000);
        }
        // The handler is held back by the window meanwhile, and other calls are not.
        assert_eq!(client.say(Text::new("quick")).wait().unwrap().view().text(), "quick");
        drop(stream);
        service.until(0);
    });
}

#[test]
fn client_and_server_find_a_daemon_that_comes_back() {
    watched(|| {
        let service = Waits::default();
        let (dir, daemon, _server, client) = stage(service);
        assert_eq!(client.say(Text::new("quick")).wait().unwrap().view().text(), "quick");
        daemon.stop();
        let status = client.say(Text::new("quick")).wait().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let _daemon = start(dir.path());
        while let Err(status) = client.say(Request::new(Text::new("quick")).wait_for_ready()).wait() {
            assert_eq!(status.code(), Code::Unavailable, "until the server is back too");
        }
    });
}

#[test]
fn a_call_waits_for_a_target_that_is_not_there_yet() {
    watched(|| {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _daemon = start(near.path());
        let target = format!("unix:{}", far.path().join("port.sock").display());
        let channel =
            Channel::builder().socket(near.path().join("daemon.sock")).target(&target).connect_lazy();
        let client = EchoClient::new(channel);
        let status = client.say(Text::new("x")).wait().unwrap_err();
        assert_eq!((status.code(), status.execution()), (Code::Unavailable, Execution::NotExecuted));
        loop {
            let limited =
                Request::new(Text::new("x")).with_timeout(Duration::from_millis(20)).wait_for_ready();
            let status = client.say(limited).wait().unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            match status.execution() {
                Execution::NotExecuted => break,
                // The daemon had no processor when the time was up: the library ended the call, and cannot know.
                execution => assert_eq!(execution, Execution::Unknown),
            }
        }
        let patient = client.say(Request::new(Text::new("quick")).wait_for_ready());
        let patient = std::thread::spawn(|| patient.wait());
        // The server is there before its daemon listens, so that who waited for one finds the other.
        let path = far.path().join("daemon.sock");
        let server = Server::builder().socket(&path).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        let listen = format!("daemon.socket = \"{}\"\ndaemon.listen = [\"{target}\"]", path.display());
        let _far = Daemon::start(Config::from_toml(&listen, "test").unwrap()).unwrap();
        server.ready().wait().unwrap();
        match patient.join().unwrap() {
            Ok(answer) => assert_eq!(answer.view().text(), "quick"),
            // The connection may be there a moment before the server is.
            Err(status) => assert!(status.message().contains("nobody serves"), "{status}"),
        }
        let again = client.say(Request::new(Text::new("quick")).wait_for_ready()).wait().unwrap();
        assert_eq!(again.view().text(), "quick");
    });
}
