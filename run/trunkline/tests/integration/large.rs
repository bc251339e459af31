//! Shows that messages of 256 MiB work with the configuration nobody has written, on one host and between two, alone
//! and in streams, while others go on; and that their memory goes back.

use crate::support;

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::text::{Echo, EchoServer};
use support::{EchoClient, Text, channel};
use trunkline::{
    Channel, Code, Execution, Incoming, Receiver, Response, Sender, Server, ServerHandle, Status, Wait,
};
use trunkline_daemon::{Config, Daemon};

/// The payload the documents promise.
const LARGE: usize = 256 << 20;

/// These move gigabytes, perhaps beside other tests: a hang is still told from work.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Takes and gives texts of any length, and answers with lengths.
struct Scale;

impl Echo for Scale {
    /// A number is answered with so many bytes, anything else with its length.
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        Ok(measured(request.view().text()).into())
    }

    async fn repeat(&self, request: Incoming<Text>, mut out: Sender<Text>) -> Result<(), Status> {
        for _ in 0..2 {
            out.send(measured(request.view().text())).await?;
        }
        Ok(())
    }

    async fn collect(&self, mut input: Receiver<Text>) -> Result<Response<Text>, Status> {
        let mut lengths = Vec::new();
        while let Some(text) = input.recv().await? {
            lengths.push(text.view().text().len().to_string());
        }
        Ok(Text::new(lengths.join(" ")).into())
    }

    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

fn measured(text: &str) -> Text {
    match text.parse() {
        Ok(bytes) => Text::new("y".repeat(bytes)),
        Err(_) => Text::new(text.len().to_string()),
    }
}

fn large() -> Text {
    Text::new("x".repeat(LARGE))
}

fn watched(test: impl FnOnce() + Send + 'static) {
    trunkline_test_logs::watch();
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = tell.send(());
    });
    match hear.recv_timeout(WATCHDOG) {
        Ok(()) => thread.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().err().unwrap()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
    }
}

fn daemon(dir: &Path, more: &str) -> Daemon {
    let config = format!("[daemon]\nsocket = {:?}\n{more}", dir.join("daemon.sock"));
    Daemon::start(Config::from_toml(&config, "test").unwrap()).unwrap()
}

fn serve(dir: &Path) -> ServerHandle {
    let server = Server::builder().socket(dir.join("daemon.sock")).add_service(EchoServer::new(Scale));
    let server = server.spawn().unwrap();
    server.ready().wait().unwrap();
    server
}

/// Large messages each way, in a stream and out of one.
fn moves(client: &EchoClient) {
    let length = LARGE.to_string();
    assert_eq!(client.say(large()).wait().unwrap().view().text(), length);
    assert_eq!(client.say(Text::new(length.as_str())).wait().unwrap().view().text().len(), LARGE);
    let mut texts = client.repeat(Text::new(length.as_str())).wait().unwrap();
    for _ in 0..2 {
        assert_eq!(texts.recv().wait().unwrap().unwrap().view().text().len(), LARGE);
    }
    assert!(texts.recv().wait().unwrap().is_none());
    let mut sent = client.collect();
    for _ in 0..2 {
        sent.send(large()).wait().unwrap();
    }
    assert_eq!(sent.finish().wait().unwrap().view().text(), format!("{length} {length}"));
}

/// Bytes of heaps that are resident in this process, daemons and applications alike.
fn resident_heap_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut in_heap = false;
    let mut bytes = 0;
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
            bytes += if in_heap { kib << 10 } else { 0 };
        } else if line.split_once('-').is_some_and(|(start, _)| u64::from_str_radix(start, 16).is_ok()) {
            in_heap = line.contains("trunkline-send") || line.contains("trunkline-receive");
        }
    }
    bytes
}

/// One test, so that each has the memory to itself.
#[test]
fn messages_of_256_mib() {
    watched(|| {
        let near = tempfile::tempdir().unwrap();
        let _near = daemon(near.path(), "");
        {
            let _server = serve(near.path());
            let client = EchoClient::new(channel(&near.path().join("daemon.sock")));
            moves(&client);
            goes_back(&client);
            small_ones_pass_a_large_one(&client);
            refused(&client);
        }
        let far = tempfile::tempdir().unwrap();
        let target = format!("unix:{}", far.path().join("port.sock").display());
        let _far = daemon(far.path(), &format!("listen = [{target:?}]\n"));
        let _server = serve(far.path());
        let channel = Channel::builder().socket(near.path().join("daemon.sock")).target(&target);
        moves(&EchoClient::new(channel.connect_lazy()));
    });
}

/// Everybody is at rest: soon little more is resident than what small messages have touched.
fn goes_back(client: &EchoClient) {
    let began = Instant::now();
    while resident_heap_bytes() > 16 << 20 {
        assert!(began.elapsed() < WATCHDOG, "{} bytes of heaps stay", resident_heap_bytes());
        std::thread::yield_now();
    }
    // And calls go on in the heaps that are new.
    for _ in 0..100 {
        assert_eq!(client.say(Text::new("hello")).wait().unwrap().view().text(), "5");
    }
    assert_eq!(client.say(large()).wait().unwrap().view().text(), LARGE.to_string());
}

/// Whoever holds a large message still gets small ones.
fn small_ones_pass_a_large_one(client: &EchoClient) {
    let held = client.say(Text::new(LARGE.to_string())).wait().unwrap();
    let texts: Vec<_> = (0..32).map(|_| client.say(Text::new("1000000")).wait().unwrap()).collect();
    assert!(texts.iter().all(|text| text.view().text().len() == 1_000_000));
    assert_eq!(held.view().text().len(), LARGE);
}

/// What is too large is refused by the name of the limit.
fn refused(client: &EchoClient) {
    let status = client.say(Text::new("x".repeat(LARGE + (1 << 20)))).wait().unwrap_err();
    assert_eq!((status.code(), status.execution()), (Code::ResourceExhausted, Execution::NotExecuted));
    assert!(status.message().contains("limits.message_bytes"), "{status}");
}
