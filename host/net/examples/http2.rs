//! Two measurements of HTTP/2 connections, and a server for conformance tools.
//!
//! * `serve ADDRESS` answers every request with its body, until it is killed. h2spec speaks to it.
//! * `idle COUNT` opens so many connections to itself and prints resident bytes for each, both ends counted.
//! * `calls COUNT` makes unary calls over one warm connection, one after the other, both ends turned by one thread, and
//!   prints nanoseconds for each. Under `strace -c` it shows the system calls.

use bytes::Bytes;
use std::collections::HashMap;
use std::io::Error;
use std::sync::Arc;
use std::time::Instant as Clock;
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event, StreamTag};
use trunkline_net::{
    Buffers, Endpoint, Http2, Http2Settings, Interest, LingeringClose, Listener, Poller, Ready, State,
    Stream, Token,
};

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(&format!("tcp://{address}").parse().map_err(Error::other)?),
        ["idle", count] => idle(count.parse().map_err(Error::other)?),
        ["calls", count] => calls(count.parse().map_err(Error::other)?),
        _ => Err(Error::other("write: serve ADDRESS:PORT | idle COUNT | calls COUNT")),
    }
}

fn now(start: Clock) -> Instant {
    Instant(start.elapsed().as_nanos() as u64)
}

/// Answers every request with its body.
fn serve(endpoint: &Endpoint) -> Result<(), Error> {
    let start = Clock::now();
    let listener = Listener::bind(endpoint, false).map_err(Error::other)?;
    println!("{}", listener.endpoint());
    let poller = Poller::new()?;
    poller.add(&listener, Token(0), Interest::Read)?;
    let settings = Arc::new(Http2Settings { streams_max: 100, ..Http2Settings::server() });
    let mut buffers = Buffers::new();
    let (mut open, mut leaving) = (HashMap::<u64, Http2>::new(), HashMap::<u64, LingeringClose>::new());
    let mut ready: Vec<Ready> = Vec::new();
    let mut next = 0;
    loop {
        poller.wait(Some(100_000_000), &mut ready)?;
        while let Some(accepted) = listener.accept()? {
            next += 1;
            poller.add(&accepted.stream, Token(next), Interest::Read)?;
            open.insert(next, Http2::server(accepted.stream, Arc::clone(&settings), now(start), &[], next));
        }
        let due = open.iter().filter(|(_, http)| http.next_timeout().is_some_and(|at| at <= now(start)));
        let mut named: Vec<u64> = due.map(|(key, _)| *key).collect();
        for event in ready.drain(..) {
            if let Some(http) = open.get_mut(&event.token.0) {
                http.handle_readable();
            }
            named.push(event.token.0);
        }
        leaving.retain(|_, closing| !closing.turn(now(start), &mut buffers));
        for key in named {
            let Some(http) = open.get_mut(&key) else { continue };
            if echo(http, now(start), &mut buffers) {
                let _ = poller.set_interest(http.stream(), Token(key), http.interest());
            } else if let Some(http) = open.remove(&key) {
                leaving.insert(key, http.into_lingering_close(now(start)));
            }
        }
    }
}

/// Turns until nothing is left to do. `false` when the connection is over.
fn echo(http: &mut Http2, now: Instant, buffers: &mut Buffers) -> bool {
    let mut events = Vec::new();
    loop {
        match http.turn(now, buffers, &mut events) {
            State::Over(_) => return false,
            State::Open if events.is_empty() => return true,
            State::Open | State::More => {}
        }
        for event in events.drain(..) {
            answer(http, event);
        }
    }
}

fn answer(http: &mut Http2, event: Event) {
    match event {
        Event::Request { stream, end, .. } => {
            let (head, ()) = http::Response::new(()).into_parts();
            http.command(Command::Response { stream, head: Box::new(head), end: false });
            if end {
                http.command(Command::Data { stream, bytes: Bytes::from_static(b"hello"), end: true });
            }
        }
        Event::Data { stream, bytes, end } => {
            http.command(Command::Release { stream, bytes: bytes.len() });
            http.command(Command::Data { stream, bytes, end });
        }
        Event::Trailers { stream, .. } => {
            http.command(Command::Data { stream, bytes: Bytes::new(), end: true });
        }
        _ => {}
    }
}

fn pair(listener: &Listener) -> Result<(Http2, Http2), Error> {
    let client = Stream::connect(listener.endpoint())?;
    let server = loop {
        if let Some(accepted) = listener.accept()? {
            break accepted.stream;
        }
    };
    let server = Http2::server(server, Arc::new(Http2Settings::server()), Instant(0), &[], 0);
    Ok((server, Http2::client(client, Arc::new(Http2Settings::client()), Instant(0))))
}

fn idle(count: usize) -> Result<(), Error> {
    let listener =
        Listener::bind(&"tcp://127.0.0.1:0".parse().map_err(Error::other)?, false).map_err(Error::other)?;
    let mut buffers = Buffers::new();
    let mut all = Vec::with_capacity(count);
    let mut before = resident()?;
    for number in 0..count {
        let (mut server, mut client) = pair(&listener)?;
        // One call each, so that what a first call leaves behind counts.
        call(&mut server, &mut client, &mut buffers, number as u64)?;
        all.push((server, client));
        if number == 100 {
            before = resident()?;
        }
    }
    let each = (resident()? - before) / (count - 101).max(1);
    println!("{count} connections: {each} resident bytes for each, both ends; {} for one end", each / 2);
    Ok(())
}

fn calls(count: u64) -> Result<(), Error> {
    let listener =
        Listener::bind(&"tcp://127.0.0.1:0".parse().map_err(Error::other)?, false).map_err(Error::other)?;
    let (mut server, mut client) = pair(&listener)?;
    let mut buffers = Buffers::new();
    call(&mut server, &mut client, &mut buffers, 0)?;
    let start = Clock::now();
    for number in 1..=count {
        call(&mut server, &mut client, &mut buffers, number)?;
    }
    println!("{} ns for each call, both ends", start.elapsed().as_nanos() as u64 / count.max(1));
    Ok(())
}

/// One unary call of 64 bytes; each end is turned when the other has written.
fn call(server: &mut Http2, client: &mut Http2, buffers: &mut Buffers, number: u64) -> Result<(), Error> {
    let stream = StreamTag(StreamTag::OWN | number);
    let request = http::Request::post("http://localhost/bench.Echo/Call").version(http::Version::HTTP_2);
    let (head, ()) = request
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(())
        .map_err(Error::other)?
        .into_parts();
    client.command(Command::Request { stream, head: Box::new(head), end: false });
    client.command(Command::Data { stream, bytes: Bytes::from_static(&[7; 69]), end: true });
    let mut events = Vec::new();
    let (mut unreleased, mut has_ended) = (0, false);
    while !has_ended {
        client.handle_readable();
        client.turn(Instant(0), buffers, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Data { bytes, .. } => unreleased += bytes.len(),
                Event::Trailers { .. } => has_ended = true,
                _ => {}
            }
        }
        server.handle_readable();
        server.turn(Instant(0), buffers, &mut events);
        for event in events.drain(..) {
            serve_unary(server, event);
        }
        server.turn(Instant(0), buffers, &mut events);
    }
    client.command(Command::Release { stream, bytes: unreleased });
    Ok(())
}

fn serve_unary(server: &mut Http2, event: Event) {
    let Event::Data { stream, bytes, end: true } = event else { return };
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
    server.command(Command::Release { stream, bytes: bytes.len() });
    server.command(Command::Response { stream, head: Box::new(head), end: false });
    server.command(Command::Data { stream, bytes, end: false });
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    server.command(Command::Trailers { stream, trailers });
}

/// Resident bytes of this process.
fn resident() -> Result<usize, Error> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Ok(pages * 4096)
}
