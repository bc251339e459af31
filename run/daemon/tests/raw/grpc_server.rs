//! A server of gRPC that is no daemon.

use bytes::Buf;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use trunkline_call::{Code, Instant};
use trunkline_grpc::{Command, Event};
use trunkline_net::{Buffers, Http2, Http2Settings, Listener, State, Stream, TlsServer};

/// A server that speaks nothing but gRPC, in a thread: answers every message with itself.
pub struct GrpcServer {
    pub endpoint: String,
    stop: Arc<AtomicBool>,
    /// Requests are refused before they have arrived.
    pub refuses: Arc<AtomicBool>,
    /// Names of headers of requests.
    pub heard: Arc<Mutex<BTreeSet<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl GrpcServer {
    pub fn start(tls: Option<TlsServer>) -> Self {
        let refuses = Arc::new(AtomicBool::new(false));
        let refusing = Arc::clone(&refuses);
        let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap(), false).unwrap();
        let endpoint = listener.endpoint().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let heard = Arc::<Mutex<BTreeSet<String>>>::default();
        let hears = Arc::clone(&heard);
        let note = move |event: &Event| note_names(event, &mut hears.lock().unwrap());
        let thread =
            std::thread::spawn(move || serve_grpc(&listener, tls.as_ref(), &stopping, &refusing, note));
        Self { endpoint, stop, refuses, heard, thread: Some(thread) }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Names of headers and trailers.
pub fn note_names(event: &Event, heard: &mut BTreeSet<String>) {
    let headers = match event {
        Event::Request { head, .. } => &head.headers,
        Event::Response { head, .. } => &head.headers,
        Event::Trailers { trailers, .. } => trailers,
        _ => return,
    };
    heard.extend(headers.keys().map(ToString::to_string));
}

fn serve_grpc(
    listener: &Listener,
    tls: Option<&TlsServer>,
    stop: &AtomicBool,
    refuses: &AtomicBool,
    note: impl Fn(&Event),
) {
    let mut buffers = Buffers::new();
    let (mut shaking, mut open) = (Vec::<Stream>::new(), Vec::<Http2>::new());
    let settings = Arc::new(Http2Settings::server());
    while !stop.load(Ordering::Relaxed) {
        while let Some(mut accepted) = listener.accept().unwrap() {
            if let Some(tls) = tls {
                accepted.stream.begin_tls_server(tls, &[]).unwrap();
            }
            shaking.push(accepted.stream);
        }
        for mut stream in std::mem::take(&mut shaking) {
            match stream.handshake() {
                Ok(true) => open.push(Http2::server(stream, Arc::clone(&settings), Instant(0), &[], 0)),
                Ok(false) => shaking.push(stream),
                Err(_) => {}
            }
        }
        open.retain_mut(|http| {
            http.handle_readable();
            let mut events = Vec::new();
            let state = http.turn(Instant(0), &mut buffers, &mut events);
            let refuses = refuses.load(Ordering::Relaxed);
            events.iter().for_each(&note);
            events
                .into_iter()
                .for_each(|event| if refuses { refuse(http, event) } else { echo(http, event) });
            !matches!(state, State::Over(_))
        });
        std::thread::yield_now();
    }
}

fn echo(http: &mut Http2, event: Event) {
    match event {
        Event::Request { stream, .. } => {
            let head = http::Response::builder().header("content-type", "application/grpc");
            let head = Box::new(head.body(()).unwrap().into_parts().0);
            http.command(Command::Response { stream, head, end: false });
        }
        Event::Data { stream, bytes, end } => {
            http.command(Command::Release { stream, bytes: bytes.len() });
            if bytes.has_remaining() {
                http.command(Command::Data { stream, bytes, end: false });
            }
            if end {
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                http.command(Command::Trailers { stream, trailers });
            }
        }
        _ => {}
    }
}

/// Answers by the head alone, as a server does that takes no such message.
fn refuse(http: &mut Http2, event: Event) {
    if let Event::Request { stream, .. } = event {
        let head = http::Response::builder().header("content-type", "application/grpc");
        let head = head.header("grpc-status", Code::ResourceExhausted.number().to_string());
        let head = Box::new(head.body(()).unwrap().into_parts().0);
        http.command(Command::Response { stream, head, end: true });
    }
}
