//! Shows gRPC at the daemon's one port: called by a gRPC client and calling a gRPC server, in clear and over TLS,
//! beside the native protocol; and that whoever dawdles, or speaks something else, gets an answer and nothing more.

mod raw;

use bytes::Bytes;
use raw::{GrpcServer, Keys, PROTO, RawApp, WATCHDOG, captured, echo_in_thread, http2_kinds, note_names};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as Clock};
use trunkline_call::{Code, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_grpc::{Command, Event, StreamTag};
use trunkline_net::{
    Alpn, Buffers, Endpoint, Http2, Http2Settings, ServerFiles, State, Stream, TlsClient, TlsServer,
};

/// Time a native hello may take (`hello_timeout_ns` of the native protocol).
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// A daemon that listens, with an echo behind it.
fn daemon(config: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{config}");
    let daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
    echo_in_thread(RawApp::attach(&daemon, "", true));
    daemon
}

fn address(daemon: &Daemon) -> &str {
    daemon.endpoints()[0].strip_prefix("tcp://").unwrap()
}

/// `Blob { data }` as a gRPC message.
fn message(data: &[u8]) -> Bytes {
    let mut blob = Vec::new();
    prost::encoding::bytes::encode(1, &data.to_vec(), &mut blob);
    let mut framed = vec![0];
    framed.extend((blob.len() as u32).to_be_bytes());
    framed.extend(blob);
    framed.into()
}

/// Turns until it is done, or too long.
fn patiently<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let began = Clock::now();
    loop {
        if let Some(done) = step() {
            return done;
        }
        assert!(began.elapsed() < WATCHDOG, "waited too long for {what}");
        std::thread::yield_now();
    }
}

fn connected(address: &str, tls: Option<(&TlsClient, &[Alpn])>) -> Result<Stream, String> {
    connected_to(&format!("tcp://{address}"), tls)
}

fn connected_to(endpoint: &str, tls: Option<(&TlsClient, &[Alpn])>) -> Result<Stream, String> {
    let endpoint = endpoint.parse::<Endpoint>().unwrap();
    let mut stream = Stream::connect(&endpoint).map_err(|error| error.to_string())?;
    patiently("the connection", || stream.finish_connect().map(|done| done.then_some(())).transpose())
        .map_err(|error| error.to_string())?;
    if let Some((tls, offer)) = tls {
        stream.begin_tls_client(tls, "search.internal", offer).unwrap();
        patiently("the handshake", || stream.handshake().map(|done| done.then_some(())).transpose())
            .map_err(|error| error.to_string())?;
    }
    Ok(stream)
}

/// A gRPC client.
struct Caller {
    http: Http2,
    buffers: Buffers,
    next: u64,
    events: Vec<Event>,
    /// Names of headers and trailers of answers.
    heard: BTreeSet<String>,
}

impl Caller {
    fn new(stream: Stream) -> Self {
        let http = Http2::client(stream, Arc::new(Http2Settings::client()), Instant(0));
        Self { http, buffers: Buffers::new(), next: 0, events: Vec::new(), heard: BTreeSet::new() }
    }

    fn turn(&mut self) {
        self.http.handle_readable();
        let state = self.http.turn(Instant(0), &mut self.buffers, &mut self.events);
        assert!(!matches!(state, State::Over(_)), "{state:?}");
    }

    /// A unary call: its status, and its body.
    fn call(&mut self, path: &str, message: Bytes) -> (String, Vec<u8>) {
        self.next += 1;
        let stream = StreamTag(StreamTag::OWN | self.next);
        let request = http::Request::post(format!("http://localhost{path}")).version(http::Version::HTTP_2);
        let request = request.header("te", "trailers").header("content-type", "application/grpc");
        let head = Box::new(request.body(()).unwrap().into_parts().0);
        self.http.command(Command::Request { stream, head, end: false });
        self.http.command(Command::Data { stream, bytes: message, end: true });
        let mut body = Vec::new();
        let code = |headers: &http::HeaderMap| headers["grpc-status"].to_str().unwrap().to_owned();
        let status = patiently("the answer", || {
            self.turn();
            let mut found = None;
            for event in std::mem::take(&mut self.events) {
                note_names(&event, &mut self.heard);
                match event {
                    Event::Response { head, end: true, .. } => found = Some(code(&head.headers)),
                    Event::Trailers { trailers, .. } => found = Some(code(&trailers)),
                    Event::Data { bytes, .. } => {
                        self.http.command(Command::Release { stream, bytes: bytes.len() });
                        body.extend_from_slice(&bytes);
                    }
                    Event::Reset { reason, .. } => panic!("reset: {reason:?}"),
                    _ => {}
                }
            }
            found
        });
        (status, body)
    }
}

#[test]
fn a_grpc_client_calls_a_service() {
    let daemon = daemon("");
    let mut caller = Caller::new(connected(address(&daemon), None).unwrap());
    for size in [1, 5, 3000, 200_000] {
        let sent = message(&vec![7; size]);
        let (status, body) = caller.call("/raw.Echo/Once", sent.clone());
        assert_eq!((status.as_str(), body.len()), ("0", sent.len()), "{size} bytes");
        assert!(body == sent);
    }
    assert_eq!(caller.call("/raw.Echo/Nothing", message(b"")).0, "12", "{PROTO}");
    assert_eq!(caller.call("/no.Service/Method", message(b"")).0, "12");
}

/// Over a Unix socket the kernel says who calls; at a port nobody does.
#[test]
fn rules_hold_for_users_who_come_by_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let own = rustix::process::geteuid().as_raw();
    for (who, status) in [(own, "0"), (own + 1, "7")] {
        let socket = format!("unix:{}", folder.path().join(who.to_string()).display());
        let text = format!(
            "[daemon]\nlisten = [\"tcp://127.0.0.1:0\", {socket:?}]\n[[call]]\nservice = \"raw.*\"\n\
             who = [\"uid:{who}\"]\n"
        );
        let daemon = Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap();
        echo_in_thread(RawApp::attach(&daemon, "", true));
        let mut by_socket = Caller::new(connected_to(&socket, None).unwrap());
        assert_eq!(by_socket.call("/raw.Echo/Once", message(b"x")).0, status, "{who}");
        let mut by_port = Caller::new(connected(address(&daemon), None).unwrap());
        assert_eq!(by_port.call("/raw.Echo/Once", message(b"x")).0, "0", "{who}");
    }
}

#[test]
fn the_same_over_tls() {
    let keys = Keys::new();
    let daemon = daemon(&keys.config("required = true\n"));
    for offer in [&[Alpn::H2][..], &[]] {
        let stream = connected(address(&daemon), Some((&keys.client(), offer))).unwrap();
        let mut caller = Caller::new(stream);
        let (status, body) = caller.call("/raw.Echo/Once", message(b"secret"));
        assert_eq!((status.as_str(), body), ("0", message(b"secret").to_vec()));
    }
    // In clear, there is nobody.
    let mut stream = TcpStream::connect(address(&daemon)).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
}

/// The native protocol over TLS, both daemons proving who they are.
#[test]
fn daemons_speak_natively_over_tls() {
    let keys = Keys::new();
    let server = daemon(&keys.config(&format!("client_ca = {:?}\n", keys.path("ca.pem"))));
    let client = Daemon::embedded(Config::from_toml(&keys.config(""), "test").unwrap()).unwrap();
    let target = format!("tls://search.internal@{}", address(&server));
    let mut app = RawApp::attach(&client, &target, false);
    for size in [5, 3000, 300_000] {
        assert_eq!(app.unary(&vec![3; size]).code, Code::Ok, "{size} bytes");
    }
    // A name the certificate does not say.
    let target = format!("tls://other.internal@{}", address(&server));
    let mut app = RawApp::attach(&client, &target, false);
    assert_eq!(app.unary(b"x").code, Code::Unavailable);
}

/// How many, unless the environment says otherwise: the full numbers take minutes.
fn count(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |count| count.parse().unwrap())
}

/// Requests of 4 to 20 MB are refused before they have left, thousands of times; whatever they had queued is forgotten
/// with them, and calls after them are answered. `EARLY_ENDS=10000 EARLY_ENDS_CALLS=1000` is the full number.
#[test]
fn early_answers_do_not_wear_an_endpoint_out() {
    let server = GrpcServer::start(None);
    let daemon = Daemon::embedded(Config::default()).unwrap();
    let mut app = RawApp::attach(&daemon, &server.endpoint, false);
    assert_eq!(app.unary(b"first").code, Code::Ok);
    server.refuses.store(true, Ordering::Relaxed);
    // Without being forgotten, these would be twice what all connections of an endpoint may have queued.
    for number in 0..count("EARLY_ENDS", 100) {
        let bytes = (4 << 20) + number * 7_654_321 % (16 << 20);
        assert_eq!(app.unary_of(&vec![3; bytes]).code, Code::ResourceExhausted, "call {number}");
    }
    server.refuses.store(false, Ordering::Relaxed);
    for number in 0..count("EARLY_ENDS_CALLS", 100) {
        assert_eq!(app.unary(&[3; 2000]).code, Code::Ok, "call {number}");
    }
    // What `trunkline list` shows.
    let observed = daemon.observe(&trunkline_telemetry::Ask::default());
    let peers: Vec<_> = observed.iter().flat_map(|shard| &shard.snapshot.peers).collect();
    assert!(
        !peers.is_empty() && peers.iter().all(|row| (row.streams, row.queued_bytes) == (0, 0)),
        "{peers:?}"
    );
}

/// Nobody says that the server speaks gRPC: the daemon finds out.
#[test]
fn an_application_calls_a_grpc_server() {
    let server = GrpcServer::start(None);
    let daemon = Daemon::embedded(Config::default()).unwrap();
    let mut app = RawApp::attach(&daemon, &server.endpoint, false);
    for size in [0, 5, 3000, 200_000] {
        assert_eq!(app.unary(&vec![3; size]).code, Code::Ok, "{size} bytes");
    }
}

/// Stamps, subtrees and processor times are for daemons: no header, frame or setting of ours reaches a peer that speaks
/// gRPC, whatever is recorded here.
#[test]
fn a_grpc_peer_hears_nothing_of_ours() {
    let server = GrpcServer::start(None);
    let (at, called) = captured(server.endpoint.strip_prefix("tcp://").unwrap());
    let traced = "[recorder]\ntraces = true\nsample = 1.0\n[services.\"raw.Echo\"]\n";
    let near = format!("{traced}endpoints = [\"tcp://{at}\"]\n");
    let near = Daemon::embedded(Config::from_toml(&near, "test").unwrap()).unwrap();
    let mut app = RawApp::attach(&near, "", false);
    let host = daemon("[recorder]\ntraces = true\nsample = 1.0\n");
    let (at, answered) = captured(address(&host));
    let mut caller = Caller::new(connected(&at, None).unwrap());
    for size in [0, 3000, 100_000] {
        assert_eq!(app.unary(&vec![3; size]).code, Code::Ok, "{size} bytes");
        assert_eq!(caller.call("/raw.Echo/Once", message(&vec![7; size])).0, "0");
    }
    let known = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let heard = server.heard.lock().unwrap().clone();
    let requests =
        ["content-type", "grpc-accept-encoding", "grpc-timeout", "te", "traceparent", "user-agent"];
    assert!(heard.is_subset(&known(&requests)), "a server hears {heard:?}");
    assert!(heard.contains("traceparent"), "the call was traced: {heard:?}");
    let answers = ["content-type", "date", "grpc-accept-encoding", "grpc-encoding", "grpc-status"];
    assert!(caller.heard.is_subset(&known(&answers)), "a client hears {:?}", caller.heard);
    for (who, said) in [("to a server", &called[0]), ("to a client", &answered[1])] {
        let (frames, settings) = http2_kinds(&said.lock().unwrap());
        assert!(frames.contains(&0) && frames.contains(&1), "{who}: {frames:?}");
        assert!(frames.iter().all(|kind| *kind <= 9), "{who}: frames of HTTP/2 alone, not {frames:?}");
        // But for the question whether a server is a daemon (docs/native-protocol.md), which others ignore.
        let is_known = |id: &u16| (1..=8).contains(id) || (*id == 0xf54b && who == "to a server");
        assert!(settings.iter().all(is_known), "{who}: settings {settings:?}");
    }
}

/// A server that is not known is not greeted in the native protocol, which it would take for a fault: it hears nothing
/// but HTTP/2 that is well formed, is told that the first connection is over, and is called over the next.
#[test]
fn a_grpc_server_hears_nothing_but_http2() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut asked, _) = listener.accept().unwrap();
        asked.set_read_timeout(Some(WATCHDOG)).unwrap();
        let mut begun = [0; 24 + 9 + 6];
        asked.read_exact(&mut begun).unwrap();
        asked.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let mut ended = Vec::new();
        asked.read_to_end(&mut ended).unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0; 24]).unwrap();
        (begun, ended)
    });
    let daemon = Daemon::embedded(Config::default()).unwrap();
    let mut app = RawApp::attach(&daemon, &target, false);
    assert_eq!(app.unary(b"x").code, Code::Unavailable, "it hangs up after the preface");
    let (begun, ended) = server.join().unwrap();
    assert!(begun.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "{}", begun.escape_ascii());
    assert_eq!(begun[24..33], [0, 0, 6, 4, 0, 0, 0, 0, 0], "SETTINGS with one setting");
    assert_eq!(ended, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "GOAWAY without an error");
}

/// Some servers say their SETTINGS before they have heard anything (gRPC's C core does). That is no hello, and nobody
/// waits for the time a hello may take.
#[test]
fn a_grpc_server_that_speaks_first_is_called_at_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut greeted, _) = listener.accept().unwrap();
        greeted.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        let began = Clock::now();
        greeted.read_to_end(&mut Vec::new()).unwrap();
        let (mut called, _) = listener.accept().unwrap();
        let mut preface = [0; 24];
        called.read_exact(&mut preface).unwrap();
        (began.elapsed(), preface)
    });
    let daemon = Daemon::embedded(Config::default()).unwrap();
    let mut app = RawApp::attach(&daemon, &target, false);
    assert_eq!(app.unary(b"x").code, Code::Unavailable, "it hangs up after the preface");
    let (elapsed, preface) = server.join().unwrap();
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // Who waits for a hello waits for all of it.
    assert!(elapsed < HELLO_LIMIT * 9 / 10, "{elapsed:?}");
}

#[test]
fn an_application_calls_a_grpc_server_over_tls() {
    let keys = Keys::new();
    let files = ServerFiles {
        certificate: keys.path("server.pem"),
        key: keys.path("server.key"),
        ..ServerFiles::default()
    };
    let server = GrpcServer::start(Some(TlsServer::load(&files).unwrap()));
    let config = format!("[tls]\nca = {:?}", keys.path("ca.pem"));
    let daemon = Daemon::embedded(Config::from_toml(&config, "test").unwrap()).unwrap();
    let target = server.endpoint.replace("tcp://", "tls://search.internal@");
    let mut app = RawApp::attach(&daemon, &target, false);
    for size in [5, 200_000] {
        assert_eq!(app.unary(&vec![3; size]).code, Code::Ok, "{size} bytes");
    }
}

#[test]
fn other_languages_are_answered() {
    let daemon = daemon("");
    let said = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address(&daemon)).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    };
    let answer = String::from_utf8(said(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 505 ") && answer.contains("HTTP/2"), "{answer}");
    let alert = said(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3]);
    assert_eq!(alert, [0x15, 3, 3, 0, 2, 2, 40], "TLS is not served: handshake_failure");
}

/// Whoever says nothing, or not enough, is gone after the time that is set.
#[test]
fn dawdlers_are_shown_out() {
    let keys = Keys::new();
    // Time enough for whoever does not dawdle, also where the host is busy with something else.
    let daemon = daemon(&keys.config("[http2]\nunfinished_s_max = 3"));
    let begun: [&[u8]; 4] =
        [b"", b"PRI * HT", &[0x16, 3, 1, 2, 0, 1], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"];
    let mut streams: Vec<TcpStream> = begun
        .iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(address(&daemon)).unwrap();
            stream.set_read_timeout(Some(WATCHDOG)).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    let mut caller = Caller::new(connected(address(&daemon), None).unwrap());
    assert_eq!(caller.call("/raw.Echo/Once", message(b"busy")).0, "0");
    for stream in &mut streams {
        let _ = stream.read_to_end(&mut Vec::new()).expect("closed by the daemon");
    }
    assert_eq!(caller.call("/raw.Echo/Once", message(b"still")).0, "0");
}

#[test]
fn new_certificates_are_used_without_a_restart() {
    let keys = Keys::new();
    let daemon = daemon(&keys.config(""));
    let client = keys.client();
    let offer = &[Alpn::H2][..];
    let mut before = Caller::new(connected(address(&daemon), Some((&client, offer))).unwrap());
    assert_eq!(before.call("/raw.Echo/Once", message(b"x")).0, "0");
    keys.issue("server", "renamed.internal");
    let refused = patiently("the new certificate", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        connected(address(&daemon), Some((&client, offer))).err()
    });
    assert!(refused.contains("search.internal"), "{refused}");
    assert_eq!(before.call("/raw.Echo/Once", message(b"x")).0, "0", "connections that are there go on");
}

#[test]
fn a_draining_daemon_says_goodbye() {
    let daemon = daemon("");
    let mut caller = Caller::new(connected(address(&daemon), None).unwrap());
    assert_eq!(caller.call("/raw.Echo/Once", message(b"x")).0, "0");
    daemon.drain();
    patiently("GOAWAY", || {
        caller.http.handle_readable();
        let _ = caller.http.turn(Instant(0), &mut caller.buffers, &mut caller.events);
        caller.events.iter().any(|event| matches!(event, Event::GoAway { .. })).then_some(())
    });
}

/// A gateway that knows no types has every call stream. Whichever of the two keys for a stream's window is larger, a
/// message that is larger than both arrives.
#[test]
fn messages_larger_than_the_windows_pass_a_gateway() {
    let server = GrpcServer::start(None);
    for windows in
        ["[limits]\nstream_window_bytes = \"2 MiB\"\n", "[http2]\nstream_window_bytes = \"256 KiB\"\n"]
    {
        let gateway = format!(
            "{windows}[gateway]\nlisten = [\"tcp://127.0.0.1:0\"]\n[services.\"raw.Echo\"]\nendpoints = [{:?}]\n",
            server.endpoint
        );
        let gateway = Daemon::embedded(Config::from_toml(&gateway, "test").unwrap()).unwrap();
        let address = gateway.gateway_endpoints()[0].strip_prefix("tcp://").unwrap();
        let mut caller = Caller::new(connected(address, None).unwrap());
        let sent = message(&vec![7; 3 << 20]);
        let (status, body) = caller.call("/raw.Echo/Once", sent.clone());
        assert_eq!((status.as_str(), body == sent), ("0", true), "{windows}");
    }
}

/// Behind a gateway that others than this host reach: TLS in front of it and, with its own certificate, behind it. A
/// daemon that calls it offers the native protocol, too, and speaks gRPC there.
#[test]
fn a_gateway_with_tls_on_both_sides() {
    let keys = Keys::new();
    let files = ServerFiles {
        certificate: keys.path("server.pem"),
        key: keys.path("server.key"),
        client_ca: Some(keys.path("ca.pem")),
        ..ServerFiles::default()
    };
    let server = GrpcServer::start(Some(TlsServer::load(&files).unwrap()));
    let secured = |endpoint: &str| endpoint.replace("tcp://", "tls://search.internal@");
    let echo_at =
        |endpoint: &str| format!("[services.\"raw.Echo\"]\nendpoints = [{:?}]\n", secured(endpoint));
    let started =
        |more: &str| Daemon::embedded(Config::from_toml(&keys.config(more), "test").unwrap()).unwrap();
    let door = "[gateway]\nlisten = [\"tcp://0.0.0.0:0\"]\nopen_to = \"tls\"\n";
    let gateway = started(&format!("{door}{}", echo_at(&server.endpoint)));
    let port = gateway.gateway_endpoints()[0].rsplit_once(':').unwrap().1;
    let address = format!("127.0.0.1:{port}");

    let stream = connected(&address, Some((&keys.client(), &[Alpn::Trunkline, Alpn::H2]))).unwrap();
    assert_eq!(stream.alpn(), Some(Alpn::H2));
    let mut caller = Caller::new(stream);
    for size in [1, 3000, 200_000] {
        let sent = message(&vec![7; size]);
        let (status, body) = caller.call("/raw.Echo/Once", sent.clone());
        assert_eq!((status.as_str(), body == sent), ("0", true), "{size} bytes");
    }
    let calling = started(&echo_at(&format!("tcp://{address}")));
    let mut app = RawApp::attach(&calling, "", false);
    assert_eq!(app.unary(b"by way of another daemon").code, Code::Ok);

    // In clear, there is nobody.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
}
