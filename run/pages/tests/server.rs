//! Shows what readers get, that slow and many readers cost places for a time and nothing else, and how it ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use trunkline_pages::{
    HEAD_BYTES_MAX, HostNames, PLACES_MAX, PLACES_OF_SOURCE_MAX, Page, PageServer, Request, ReservedAddress,
};

/// So long at most a test waits for what has to come.
const WATCHDOG: Duration = Duration::from_secs(120);

/// The name `x` is asked for, and no other.
fn hosts() -> HostNames {
    HostNames::new(&["x".into()], "the.key")
}

fn serve(make: impl Fn(&Request) -> Option<Page> + Send + Sync + 'static) -> PageServer {
    PageServer::bind("127.0.0.1:0".parse().unwrap(), "pages", hosts(), make).unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    try_to_connect(address).unwrap()
}

fn try_to_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(WATCHDOG))?;
    Ok(stream)
}

fn ask(address: SocketAddr, request: &str) -> String {
    try_to_ask(address, request).unwrap()
}

/// One that is turned away before its request was read may hear of that by a reset, and so may one that a listener has
/// taken that goes.
fn try_to_ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = try_to_connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks from one address of this host.
fn ask_from(own: Ipv4Addr, address: SocketAddr, request: &str) -> std::io::Result<String> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from((own, 0)))?;
    connect(&socket, &address)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WATCHDOG))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn pages_and_what_there_is_instead() {
    let server = serve(|request| (request.path == "/a").then(|| Page::text("that is a")));
    let long = format!("GET /a HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(HEAD_BYTES_MAX));
    let table = [
        ("GET /a HTTP/1.1\r\nhost: x\r\n\r\n", "200 OK", "\r\n\r\nthat is a"),
        ("GET /a?b HTTP/1.0\r\n\r\n", "200 OK", "\r\n\r\nthat is a"),
        ("HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n", "200 OK", "content-length: 9\r\n"),
        ("GET /b HTTP/1.1\r\nhost: x\r\n\r\n", "404 Not Found", "no such page"),
        ("DELETE /a HTTP/1.1\r\nhost: x\r\n\r\n", "405 Method Not Allowed", "allow: GET, HEAD\r\n"),
        (
            "GET /a HTTP/1.1\r\nhost: evil.example:1\r\n\r\n",
            "421 Misdirected Request",
            "add \"evil.example\" to the.key",
        ),
        ("GET http://evil.example/a HTTP/1.1\r\nhost: x\r\n\r\n", "421 Misdirected Request", "the.key"),
        (
            "OPTIONS /a HTTP/1.1\r\nhost: x\r\norigin: http://evil.example\r\n\r\n",
            "405 Method Not Allowed",
            "only read",
        ),
        ("\u{16}\u{3}\u{1}\u{0}", "400 Bad Request", "no request"),
        (&long, "431 Request Header Fields Too Large", "too long"),
    ];
    for (request, status, part) in table {
        let answer = ask(server.address(), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:.20}: {answer}");
        assert!(answer.contains(part), "{request:.20}: {answer}");
        // Whatever is answered, a page of another origin gets none of it.
        let for_others = ["cross-origin-resource-policy: same-origin\r\n", "frame-ancestors 'none'"];
        assert!(for_others.iter().all(|said| answer.contains(said)), "{request:.20}: {answer}");
        assert!(!answer.contains("access-control-"), "{request:.20}: {answer}");
    }
    let head = ask(server.address(), "HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "a head has no body: {head}");
}

#[test]
fn a_request_may_come_in_pieces_and_a_reader_may_be_done_writing() {
    let server = serve(|_| Some(Page::text("x".repeat(1 << 20))));
    let mut stream = connect(server.address());
    for piece in ["GET /", "a HT", "TP/1.1\r", "\nhost: x\r\n", "\r\n"] {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 1 << 20);
}

#[test]
fn silent_readers_give_way_to_those_who_ask() {
    let server = serve(|_| Some(Page::text("here")));
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    // Whoever is accepted behind them finds a place, from their address and from another one of this host.
    let _silent: Vec<TcpStream> = (0..2 * PLACES_MAX).map(|_| connect(server.address())).collect();
    for _ in 0..3 {
        let answer = ask(server.address(), request);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let other = ask_from(Ipv4Addr::new(127, 0, 0, 2), server.address(), request).unwrap();
        assert!(other.starts_with("HTTP/1.1 200 OK\r\n"), "{other}");
    }
}

/// While every place of a source is one whose page is being made, one more hears that.
#[test]
fn who_has_asked_gives_way_to_nobody() {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let go_on = std::sync::Arc::new(std::sync::Barrier::new(PLACES_OF_SOURCE_MAX + 1));
    let waits = std::sync::Arc::clone(&go_on);
    let server = serve(move |_| {
        let _ = begun.send(());
        waits.wait();
        Some(Page::text("here"))
    });
    let mut asked: Vec<TcpStream> = Vec::new();
    for _ in 0..PLACES_OF_SOURCE_MAX {
        let mut stream = connect(server.address());
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        has_begun.recv_timeout(WATCHDOG).unwrap();
        asked.push(stream);
    }
    let refused = try_to_ask(server.address(), "").unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    go_on.wait();
    // Unless their time was over, because this test had no processor, all are answered.
    let mut answers = vec![String::new(); asked.len()];
    for (stream, answer) in asked.iter_mut().zip(&mut answers) {
        let _ = stream.read_to_string(answer);
    }
    assert!(answers.iter().all(|answer| answer.is_empty() || answer.starts_with("HTTP/1.1 200 OK\r\n")));
}

/// Who stays when all is said protects nothing.
#[test]
fn who_has_its_answer_gives_way() {
    let server = serve(|_| Some(Page::text("page")));
    let mut stay: Vec<TcpStream> = Vec::new();
    for number in 0..3 * PLACES_OF_SOURCE_MAX {
        let mut reader = connect(server.address());
        reader.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        reader.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{number}: {answer}");
        stay.push(reader);
    }
}

#[test]
fn a_reader_has_so_much_time_however_it_uses_it() {
    let server = serve(|_| Some(Page::text("here")));
    let mut slow = connect(server.address());
    slow.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
    // A byte now and then, until the server has had enough.
    let left = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(b"y")
    });
    assert!(left.take(1200).any(|written| written.is_err()), "it still listens after a minute");
}

#[test]
fn dropped_it_listens_no_longer_and_a_successor_listens_before() {
    let first = serve(|_| Some(Page::text("first")));
    let address = first.address();
    let refused = PageServer::bind(address, "pages", hosts(), |_| None).unwrap_err();
    assert_eq!(
        refused.kind(),
        std::io::ErrorKind::AddrInUse,
        "who takes nobody's place has no address of another"
    );
    let second = ReservedAddress::bind(address, true).unwrap();
    let refused = PageServer::bind(address, "pages", hosts(), |_| None).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    for _ in 0..20 {
        assert!(
            ask(address, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").ends_with("first"),
            "who does not listen yet has no readers"
        );
    }
    let second = second.serve("pages", hosts(), |_| Some(Page::text("second"))).unwrap();
    let refused = PageServer::bind(address, "pages", hosts(), |_| None).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    // The kernel gives connections to either until the first has gone.
    let answers = std::iter::repeat_with(|| try_to_ask(address, request).unwrap_or_default());
    assert!(answers.take(1000).any(|answer| answer.ends_with("second")));
    drop(second);
    let refused = std::iter::repeat_with(|| TcpStream::connect(address).is_err());
    assert!(refused.take(100_000).any(|refused| refused));
}
