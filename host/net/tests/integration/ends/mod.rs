//! Two ends of a connection, turned by hand, for tests.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};
use trunkline_call::Instant;
use trunkline_grpc::{Command, Event, StreamTag};
use trunkline_net::{Buffers, Ended, Endpoint, Http2, Http2Settings, Listener, State, Stream};

/// Nothing here takes a fraction of this; who waits longer waits for ever.
pub const WATCHDOG: Duration = Duration::from_secs(120);

/// One end, with what it has said so far.
pub struct End {
    pub http: Option<Http2>,
    pub events: Vec<Event>,
    pub over: Option<Ended>,
    pub now: Instant,
    pub turns: usize,
    closing: Option<trunkline_net::LingeringClose>,
    buffers: Buffers,
}

impl End {
    pub fn new(http: Http2) -> Self {
        Self {
            http: Some(http),
            events: Vec::new(),
            over: None,
            now: Instant(0),
            turns: 0,
            closing: None,
            buffers: Buffers::new(),
        }
    }

    /// One turn, as if the poller had said that everything is ready.
    pub fn turn(&mut self) {
        self.turns += 1;
        if let Some(closing) = &mut self.closing {
            closing.turn(self.now, &mut self.buffers);
        }
        if let Some(http) = &mut self.http {
            http.handle_readable();
        }
        self.turn_unready();
    }

    /// One turn, though the poller has said nothing.
    pub fn turn_unready(&mut self) {
        let Some(http) = &mut self.http else { return };
        if let State::Over(ended) = http.turn(self.now, &mut self.buffers, &mut self.events) {
            self.over = Some(ended);
            self.closing = self.http.take().map(|http| http.into_lingering_close(self.now));
        }
    }

    pub fn command(&mut self, command: Command) {
        if let Some(http) = &mut self.http {
            http.command(command);
        }
    }

    /// The first event that fits, taken out.
    pub fn take<T>(&mut self, fits: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let index = self.events.iter().position(|event| fits(event).is_some())?;
        fits(&self.events.remove(index))
    }

    /// The next request's stream.
    pub fn take_request(&mut self) -> Option<StreamTag> {
        self.take(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        })
    }
}

/// A server's and a client's stream over loopback TCP.
pub fn streams() -> (Stream, Stream) {
    let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap()), false).unwrap();
    let client = Stream::connect(listener.endpoint()).unwrap();
    let until = Clock::now() + WATCHDOG;
    let server = loop {
        if let Some(accepted) = listener.accept().unwrap() {
            break accepted.stream;
        }
        assert!(Clock::now() < until, "nobody connects");
        std::thread::yield_now();
    };
    (server, client)
}

/// Two ends, up and running.
pub fn pair(server: Http2Settings, client: Http2Settings) -> (End, End) {
    let (server_stream, client_stream) = streams();
    let server = End::new(Http2::server(server_stream, Arc::new(server), Instant(0), &[], 0));
    let mut client = End::new(Http2::client(client_stream, Arc::new(client), Instant(0)));
    let mut server = server;
    until(&mut server, &mut client, |_, client| {
        client.take(|event| match event {
            Event::Ready { streams_max } => Some(*streams_max),
            _ => None,
        })
    });
    (server, client)
}

/// Turns both ends until something is found.
pub fn until<T>(
    server: &mut End,
    client: &mut End,
    mut found: impl FnMut(&mut End, &mut End) -> Option<T>,
) -> T {
    let watchdog = Clock::now() + WATCHDOG;
    loop {
        server.turn();
        client.turn();
        if let Some(found) = found(server, client) {
            return found;
        }
        assert!(
            Clock::now() < watchdog,
            "waited too long; server {:?} {:?}, client {:?} {:?}",
            server.over,
            server.events,
            client.over,
            client.events
        );
    }
}

/// A request's head, as gRPC writes it.
pub fn request(path: &str) -> Box<http::request::Parts> {
    let request = http::Request::builder()
        .method("POST")
        .uri(format!("http://localhost{path}"))
        .version(http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    Box::new(request.body(()).unwrap().into_parts().0)
}

/// An answer's head.
pub fn response() -> Box<http::response::Parts> {
    let response = http::Response::builder().header("content-type", "application/grpc");
    Box::new(response.body(()).unwrap().into_parts().0)
}

/// Trailers of success.
pub fn trailers() -> http::HeaderMap {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    trailers
}

/// A tag as the engine chooses it.
pub fn own(number: u64) -> StreamTag {
    StreamTag(StreamTag::OWN | number)
}
