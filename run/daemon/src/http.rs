//! Connections of gRPC: events of HTTP/2 to the engine, its commands back.

use crate::clock::now;
use crate::socket_work::SocketWork;
use crate::token::Token;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use trunkline_call::{Instant, KeyedMap, TimerKey};
use trunkline_engine::{Engine, GrpcKey, Turn};
use trunkline_grpc::{Command, Event, Reason};
use trunkline_net::{Ended, Http2, Http2Settings, Interest, LingeringClose, Ready, State, Stream};

/// The HTTP/2 connections of a shard.
pub(crate) struct HttpSockets {
    server: Arc<Http2Settings>,
    client: Arc<Http2Settings>,
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

impl HttpSockets {
    /// None yet. Clients' connections are served by the first settings, servers' used by the second.
    pub fn new(server: Arc<Http2Settings>, client: Arc<Http2Settings>) -> Self {
        let (open, patience_ns) = (KeyedMap::default(), HashMap::new());
        Self { server, client, open, pressing: Vec::new(), events: Vec::new(), patience_ns }
    }

    /// A client's connection, of which `first` has been read.
    pub fn begin_server(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey, stream: Stream, first: &[u8]) {
        let settings = Arc::clone(&self.server);
        let random = RandomState::new().hash_one(key.to_bits());
        let http = Http2::server(stream, settings, now(), first, random);
        self.begin(lent, key, http, None);
    }

    /// A connection to a server, dialled for `endpoint`.
    pub fn begin_client(
        &mut self,
        lent: &mut SocketWork<'_>,
        key: GrpcKey,
        stream: Stream,
        endpoint: Arc<str>,
    ) {
        let settings = match self.patience_ns.get(&endpoint) {
            None => Arc::clone(&self.client),
            Some(&after_ns) => {
                let mut settings = Http2Settings::clone(&self.client);
                settings.keepalive.after_ns = Some(after_ns);
                Arc::new(settings)
            }
        };
        self.begin(lent, key, Http2::client(stream, settings, now()), Some(endpoint));
    }

    /// Serves a connection the poller named.
    pub fn serve(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey, ready: Ready) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        if ready.readable {
            socket.http.handle_readable();
        }
        self.turn(lent, key);
    }

    /// A timer of a connection is due.
    pub fn timed_out(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        socket.alarm = None;
        self.turn(lent, key);
    }

    /// Carries out what the engine wants done, and lets out what comes of it.
    pub fn transmit(&mut self, lent: &mut SocketWork<'_>) {
        self.take_commands_of(lent.engine);
        let turned = std::mem::take(&mut self.pressing);
        let is_idle = turned.is_empty();
        for key in turned {
            if let Some(socket) = self.open.get_mut(&key) {
                socket.is_pressing = false;
                self.turn(lent, key);
            }
        }
        // What the engine made of the events waits for the next turn: one connection's echo is nobody's business.
        self.take_commands_of(lent.engine);
        lent.left.is_pressing |= !self.pressing.is_empty();
        // And what it is to say to other daemons: their sockets have had their turn, and nobody else may ask for one.
        lent.left.is_pressing |= !is_idle && lent.engine.has_to_connect_or_transmit();
    }

    fn take_commands_of(&mut self, engine: &mut Engine) {
        while let Some((key, command)) = engine.http().poll() {
            let Some(socket) = self.open.get_mut(&key) else { continue };
            socket.http.command(command);
            self.press(key);
        }
    }

    fn begin(
        &mut self,
        lent: &mut SocketWork<'_>,
        key: GrpcKey,
        mut http: Http2,
        endpoint: Option<Arc<str>>,
    ) {
        // What TLS has read already, the poller does not tell.
        http.handle_readable();
        let interest = Interest::Read;
        if let Err(error) = lent.poller.set_interest(http.stream(), Token::Http(key).to_poller(), interest) {
            tracing::error!(%error, "cannot watch a socket");
        }
        let socket = HttpSocket { http, interest, alarm: None, endpoint, is_pressing: false };
        self.open.insert(key, Box::new(socket));
        self.turn(lent, key);
    }

    // LIFE: 11 gRPC
    /// One turn of a connection, and what the engine makes of it.
    fn turn(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        let seen = now();
        let mut events = std::mem::take(&mut self.events);
        let state = socket.http.turn(seen, lent.buffers, &mut events);
        let arrived = match events.is_empty() {
            true => seen,
            false => socket.http.stream().arrived_ns(now().0).map_or(seen, Instant),
        };
        for event in events.drain(..) {
            let mut turn = Turn { now: now(), heaps: &mut *lent.heaps };
            if let Err(fault) = lent.engine.handle_http(&mut turn, key, arrived, event) {
                tracing::warn!(peer = ?key, %fault, "connection says what cannot be");
                if let Some(socket) = self.open.get_mut(&key) {
                    socket.http.command(Command::Close { reason: Reason::INTERNAL_ERROR });
                }
            }
        }
        self.events = events;
        match state {
            State::Open => self.settle(lent, key),
            State::More => {
                self.settle(lent, key);
                self.press(key);
                lent.left.is_pressing = true;
            }
            State::Over(ended) => self.over(lent, key, ended),
        }
    }

    /// Waits for what the connection waits for.
    fn settle(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey) {
        let Some(socket) = self.open.get_mut(&key) else { return };
        let interest = socket.http.interest();
        if interest != socket.interest {
            socket.interest = interest;
            let _ = lent.poller.set_interest(socket.http.stream(), Token::Http(key).to_poller(), interest);
        }
        // A timer that fires early finds nothing due and is set anew: most are put off with every byte.
        let Some(at) = socket.http.next_timeout() else { return };
        if socket.alarm.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, alarm)) = socket.alarm.take() {
            lent.timers.cancel(alarm);
        }
        socket.alarm = Some((at, lent.timers.insert(at, Token::Http(key))));
    }

    fn over(&mut self, lent: &mut SocketWork<'_>, key: GrpcKey, ended: Ended) {
        let Some(socket) = self.open.remove(&key) else { return };
        tracing::info!(peer = ?key, why = %ended.why, "connection over");
        if let Some((_, alarm)) = socket.alarm {
            lent.timers.cancel(alarm);
        }
        if let (Some(endpoint), true) = (&socket.endpoint, ended.too_many_pings) {
            self.lose_patience(endpoint, self.client.keepalive.after_ns);
        }
        lent.engine.grpc_lost(&mut Turn { now: now(), heaps: &mut *lent.heaps }, key, &ended.why);
        lent.left.has_ended = true;
        // As in `sockets.rs`: what is to be dialled instead is not to wait until something else happens.
        lent.left.is_pressing = true;
        lent.left.closings.push(socket.http.into_lingering_close(now()));
    }

    /// Time a client's connection gets to say what it wants.
    pub fn unfinished_ns_max(&self) -> u64 {
        self.server.unfinished_ns_max
    }

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
