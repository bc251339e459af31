//! Connections of gRPC: events of HTTP/2 to the engine, its commands back.

use crate::shard::{Shard, Token, now};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use trunkline_call::{Instant, KeyedMap, TimerKey};
use trunkline_engine::{GrpcKey, Turn};
use trunkline_grpc::{Command, Event, Reason};
use trunkline_net::{Ended, Http2, Http2Settings, Interest, LingeringClose, Ready, State, Stream};

/// The HTTP/2 connections of a shard.
#[derive(Default)]
pub(crate) struct HttpSockets {
    open: KeyedMap<GrpcKey, Box<HttpSocket>>,
    /// Connections with commands to carry out, or work left over, each once.
    pressing: Vec<GrpcKey>,
    /// Kept for its memory.
    events: Vec<Event>,
    /// Endpoints that mind our pings, and the interval they get (gRFC A8). Forgotten with the daemon.
    patience_ns: HashMap<Arc<str>, u64>,
}

struct HttpSocket {
    http: Http2,
    interest: Interest,
    alarm: Option<(Instant, TimerKey)>,
    /// Where it was dialled to.
    endpoint: Option<Arc<str>>,
    is_pressing: bool,
}

/// Endpoints whose patience is remembered; more are treated like all others.
const PATIENCE_MAX: usize = 4096;

impl Shard {
    /// A client's connection, of which `first` has been read.
    pub fn begin_http_server(&mut self, key: GrpcKey, stream: Stream, first: &[u8]) {
        let settings = Arc::clone(&self.http_server);
        let random = RandomState::new().hash_one(key.to_bits());
        let http = Http2::server(stream, settings, now(), first, random);
        self.begin_http(key, http, None);
    }

    /// A connection to a server, dialled for `endpoint`.
    pub fn begin_http_client(&mut self, key: GrpcKey, stream: Stream, endpoint: Arc<str>) {
        let settings = match self.https.patience_ns.get(&endpoint) {
            None => Arc::clone(&self.http_client),
            Some(&after_ns) => {
                let mut settings = Http2Settings::clone(&self.http_client);
                settings.keepalive.after_ns = Some(after_ns);
                Arc::new(settings)
            }
        };
        self.begin_http(key, Http2::client(stream, settings, now()), Some(endpoint));
    }

    /// Serves a connection the poller named.
    pub fn serve_http(&mut self, key: GrpcKey, ready: Ready) {
        let Some(socket) = self.https.open.get_mut(&key) else { return };
        if ready.readable {
            socket.http.handle_readable();
        }
        self.turn_http(key);
    }

    /// A timer of a connection is due.
    pub fn http_timed_out(&mut self, key: GrpcKey) {
        let Some(socket) = self.https.open.get_mut(&key) else { return };
        socket.alarm = None;
        self.turn_http(key);
    }

    /// Carries out what the engine wants done, and lets out what comes of it.
    pub fn transmit_http(&mut self) {
        self.take_commands_of_engine();
        let turned = std::mem::take(&mut self.https.pressing);
        let is_idle = turned.is_empty();
        for key in turned {
            if let Some(socket) = self.https.open.get_mut(&key) {
                socket.is_pressing = false;
                self.turn_http(key);
            }
        }
        // What the engine made of the events waits for the next turn: one connection's echo is nobody's business.
        self.take_commands_of_engine();
        self.pressing |= !self.https.pressing.is_empty();
        // And what it is to say to other daemons: their sockets have had their turn, and nobody else may ask for one.
        self.pressing |= !is_idle && self.engine.has_to_connect_or_transmit();
    }

    fn take_commands_of_engine(&mut self) {
        while let Some((key, command)) = self.engine.poll_http() {
            let Some(socket) = self.https.open.get_mut(&key) else { continue };
            socket.http.command(command);
            self.https.press(key);
        }
    }

    fn begin_http(&mut self, key: GrpcKey, mut http: Http2, endpoint: Option<Arc<str>>) {
        // What TLS has read already, the poller does not tell.
        http.handle_readable();
        let interest = Interest::Read;
        if let Err(error) = self.poller.set_interest(http.stream(), Token::Http(key).to_poller(), interest) {
            tracing::error!(%error, "cannot watch a socket");
        }
        let socket = HttpSocket { http, interest, alarm: None, endpoint, is_pressing: false };
        self.https.open.insert(key, Box::new(socket));
        self.turn_http(key);
    }

    // LIFE: 11 gRPC
    /// One turn of a connection, and what the engine makes of it.
    fn turn_http(&mut self, key: GrpcKey) {
        let Some(socket) = self.https.open.get_mut(&key) else { return };
        let seen = now();
        let mut events = std::mem::take(&mut self.https.events);
        let state = socket.http.turn(seen, &mut self.buffers, &mut events);
        let arrived = match events.is_empty() {
            true => seen,
            false => socket.http.stream().arrived_ns(now().0).map_or(seen, Instant),
        };
        for event in events.drain(..) {
            let mut turn = Turn { now: now(), heaps: &mut self.heaps };
            if let Err(fault) = self.engine.handle_http(&mut turn, key, arrived, event) {
                tracing::warn!(peer = ?key, %fault, "connection says what cannot be");
                if let Some(socket) = self.https.open.get_mut(&key) {
                    socket.http.command(Command::Close { reason: Reason::INTERNAL_ERROR });
                }
            }
        }
        self.https.events = events;
        match state {
            State::Open => self.settle_http(key),
            State::More => {
                self.settle_http(key);
                self.https.press(key);
                self.pressing = true;
            }
            State::Over(ended) => self.http_over(key, ended),
        }
    }

    /// Waits for what the connection waits for.
    fn settle_http(&mut self, key: GrpcKey) {
        let Some(socket) = self.https.open.get_mut(&key) else { return };
        let interest = socket.http.interest();
        if interest != socket.interest {
            socket.interest = interest;
            let _ = self.poller.set_interest(socket.http.stream(), Token::Http(key).to_poller(), interest);
        }
        // A timer that fires early finds nothing due and is set anew: most are put off with every byte.
        let Some(at) = socket.http.next_timeout() else { return };
        if socket.alarm.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, alarm)) = socket.alarm.take() {
            self.socket_timers.cancel(alarm);
        }
        socket.alarm = Some((at, self.socket_timers.insert(at, Token::Http(key))));
    }

    fn http_over(&mut self, key: GrpcKey, ended: Ended) {
        let Some(socket) = self.https.open.remove(&key) else { return };
        tracing::info!(peer = ?key, why = %ended.why, "connection over");
        if let Some((_, alarm)) = socket.alarm {
            self.socket_timers.cancel(alarm);
        }
        if let (Some(endpoint), true) = (&socket.endpoint, ended.too_many_pings) {
            self.https.lose_patience(endpoint, self.http_client.keepalive.after_ns);
        }
        self.engine.grpc_lost(&mut Turn { now: now(), heaps: &mut self.heaps }, key, &ended.why);
        self.leave_memory();
        // As in `sockets.rs`: what is to be dialled instead is not to wait until something else happens.
        self.pressing = true;
        self.linger(socket.http.into_lingering_close(now()));
    }
}

impl HttpSockets {
    /// Ends every connection behind what it has written.
    pub fn close_all(&mut self, now: Instant) -> impl Iterator<Item = LingeringClose> + use<> {
        std::mem::take(&mut self.open).into_values().map(move |socket| socket.http.into_lingering_close(now))
    }

    /// Looks at a connection in the next turn.
    fn press(&mut self, key: GrpcKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        if !std::mem::replace(&mut socket.is_pressing, true) {
            self.pressing.push(key);
        }
    }

    /// Asks half as often from now on.
    fn lose_patience(&mut self, endpoint: &Arc<str>, usual_ns: Option<u64>) {
        let before = self.patience_ns.get(endpoint).copied().or(usual_ns);
        if let Some(before_ns) = before
            && (self.patience_ns.len() < PATIENCE_MAX || self.patience_ns.contains_key(endpoint))
        {
            self.patience_ns.insert(Arc::clone(endpoint), before_ns.saturating_mul(2));
        }
    }
}
