//! Connections on their way to being something.
//!
//! An accepted connection is a visitor until its first bytes say what it speaks; a dialled one until it is connected
//! and, where TLS is wanted, secured. Then it becomes a native peer (`sockets.rs`) or one of HTTP/2 (`http.rs`). A
//! visitor costs a descriptor and a few bytes, and has a limited time.

use crate::config::Admin;
use crate::shard::{Shard, Token, now};
use std::collections::HashMap;
use std::io;
use trunkline_call::TimerKey;
use trunkline_engine::{Dial, Dialled, Operator, PeerIdentity, Turn};
use trunkline_native::PREAMBLE;
use trunkline_net::{
    Alpn, Endpoint, Farewell, First, HTTP1_ANSWER, Interest, Ready, Stream, TLS_REFUSAL, TlsClient,
    TlsServer, Transfer,
};

/// Visitors, and streams saying farewell, at once. More strangers are turned away: whoever is known by then is not
/// concerned.
const VISITORS_MAX: usize = 4096;
/// Time to connect and to secure a dialled connection: gRPC's smallest (connection-backoff.md, MIN_CONNECT_TIMEOUT).
const DIAL_NS_MAX: u64 = 20_000_000_000;
/// Bytes of a first read: a small call fits, and the stack has room.
const FIRST_READ_BYTES: usize = 4096;

/// The visitors of a shard, and those who leave.
#[derive(Default)]
pub(crate) struct Visitors {
    here: HashMap<u64, Visitor>,
    leaving: HashMap<u64, Leaving>,
    next: u64,
}

/// Keys and certificates connections are made with; replaced when the files change.
#[derive(Clone, Default)]
pub(crate) struct TlsKeys {
    pub server: Option<TlsServer>,
    pub client: Option<TlsClient>,
    pub is_required: bool,
}

struct Visitor {
    stream: Stream,
    doing: Doing,
    alarm: TimerKey,
    /// It came where operators come.
    operator: Option<Operator>,
}

struct Leaving {
    farewell: Farewell,
    alarm: TimerKey,
}

enum Doing {
    /// Accepted: what it speaks is not clear from what came so far.
    Naming(Vec<u8>),
    /// Accepted: TLS handshake.
    Securing,
    /// Dialled: decided when it becomes writable.
    Connecting(Dial, Option<String>),
    /// Dialled: TLS handshake.
    Greeting(Dial),
}

/// What a step led to.
enum Step {
    /// It waits.
    Wait(Doing),
    /// It speaks the native protocol; these are its first bytes.
    Native(Vec<u8>),
    /// It speaks HTTP/2.
    Http(Vec<u8>),
    /// It was dialled, and is ready.
    Dialled(Dial),
    /// It is told something, and closed.
    Dismiss(&'static [u8], &'static str),
    /// It is over.
    Over(Doing, String),
}

impl Shard {
    /// Accepts whatever waits at a listener.
    pub fn accept(&mut self, index: usize) {
        let Some(listening) = self.listening.get(index).filter(|_| !self.holds_strangers) else { return };
        let mut accepted = Vec::new();
        loop {
            match listening.listener.accept() {
                Ok(Some(stranger)) => accepted.push(stranger.stream),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(endpoint = %listening.endpoint, %error, "cannot accept");
                    break;
                }
            }
        }
        let operators = listening.operators.clone();
        for stream in accepted {
            if self.visitors.here.len() >= VISITORS_MAX {
                tracing::warn!(
                    limit = VISITORS_MAX,
                    "too many connections that have not said what they speak"
                );
                break;
            }
            let operator = operators.as_ref().map(|admin| operator(&stream, admin)).transpose();
            match operator {
                Ok(operator) => {
                    let time_ns = self.http_server.unfinished_ns_max;
                    self.admit(stream, Doing::Naming(Vec::new()), time_ns, operator);
                }
                Err(error) => tracing::warn!(%error, "the kernel does not say who asks"),
            }
        }
    }

    /// Whoever connects from now on waits in the kernel, and whoever has connected is not listened to, for the daemon
    /// that takes over, or until [`Shard::admit_strangers`].
    pub fn hold_strangers(&mut self) {
        if !std::mem::replace(&mut self.holds_strangers, true) {
            for listening in &self.listening {
                let _ = self.poller.remove(&listening.listener);
            }
            self.await_strangers(Interest::Nothing);
        }
    }

    /// Nobody takes over.
    pub fn admit_strangers(&mut self) {
        if std::mem::take(&mut self.holds_strangers) {
            for (index, listening) in self.listening.iter().enumerate() {
                let token = Token::Listener(index).to_poller();
                if let Err(error) = self.poller.add(&listening.listener, token, Interest::Read) {
                    tracing::error!(endpoint = %listening.endpoint, %error, "cannot watch a listener");
                }
            }
            self.await_strangers(Interest::Read);
        }
    }

    /// A stranger another daemon had.
    pub fn admit_stranger(&mut self, stream: Stream, first: Vec<u8>) {
        let time_ns = self.http_server.unfinished_ns_max;
        self.admit(stream, Doing::Naming(first), time_ns, None);
    }

    /// Begins to connect wherever the engine wants a connection.
    pub fn dial(&mut self) {
        while let Some(dial) = self.engine.poll_dial() {
            if let Err(why) = self.connect(&dial) {
                self.dial_failed(&dial, &why);
            }
        }
    }

    /// Goes on with a visitor the poller named.
    pub fn serve_visitor(&mut self, id: u64, ready: Ready) {
        let is_held = |visitor: &Visitor| self.holds_strangers && visitor.is_stranger() && !ready.is_gone;
        if self.visitors.here.get(&id).is_some_and(is_held) {
            return;
        }
        let Some(visitor) = self.visitors.here.remove(&id) else { return };
        let Visitor { mut stream, doing, alarm, operator } = visitor;
        let step = self.step(&mut stream, doing, ready.writable);
        if let Step::Wait(doing) = step {
            let interest = doing.interest(&stream);
            let _ = self.poller.set_interest(&stream, Token::Visitor(id).to_poller(), interest);
            self.visitors.here.insert(id, Visitor { stream, doing, alarm, operator });
            return;
        }
        self.socket_timers.cancel(alarm);
        match step {
            Step::Wait(_) => {}
            Step::Native(_) if operator.is_some() => {
                tracing::info!(
                    why = "speaks the native protocol where operators speak gRPC",
                    "connection refused"
                );
            }
            Step::Native(first) => self.adopt_native(stream, &first),
            Step::Http(first) => self.adopt_http(stream, &first, operator),
            Step::Dialled(dial) => self.adopt_dialled(stream, dial),
            Step::Dismiss(words, why) => {
                tracing::info!(peer = %label(&stream), why, "connection refused");
                self.see_off(Farewell::new(stream, words.to_vec(), now()));
            }
            Step::Over(doing, why) => self.visitor_over(&stream, doing, &why),
        }
    }

    /// A visitor took too long.
    pub fn visitor_timed_out(&mut self, id: u64) {
        if let Some(Visitor { stream, doing, .. }) = self.visitors.here.remove(&id) {
            self.visitor_over(&stream, doing, "took too long");
        }
    }

    /// Lets a stream say its last words.
    pub fn see_off(&mut self, mut farewell: Farewell) {
        let is_done = farewell.turn(now(), &mut self.buffers);
        if is_done || self.visitors.leaving.len() >= VISITORS_MAX {
            return;
        }
        let id = self.visitors.next_id();
        let token = Token::Farewell(id).to_poller();
        if self.poller.set_interest(farewell.stream(), token, farewell.interest()).is_ok() {
            let alarm = self.socket_timers.insert(farewell.next_timeout(), Token::Farewell(id));
            self.visitors.leaving.insert(id, Leaving { farewell, alarm });
        }
    }

    /// Goes on with last words.
    pub fn serve_farewell(&mut self, id: u64) {
        let Some(leaving) = self.visitors.leaving.get_mut(&id) else { return };
        if leaving.farewell.turn(now(), &mut self.buffers) {
            self.socket_timers.cancel(leaving.alarm);
            self.visitors.leaving.remove(&id);
        } else {
            let interest = leaving.farewell.interest();
            let _ = self.poller.set_interest(
                leaving.farewell.stream(),
                Token::Farewell(id).to_poller(),
                interest,
            );
        }
    }

    /// Time is up for last words.
    pub fn farewell_timed_out(&mut self, id: u64) {
        self.visitors.leaving.remove(&id);
    }

    fn await_strangers(&self, interest: Interest) {
        for (id, visitor) in self.visitors.here.iter().filter(|(_, visitor)| visitor.is_stranger()) {
            let _ = self.poller.set_interest(&visitor.stream, Token::Visitor(*id).to_poller(), interest);
        }
    }

    fn connect(&mut self, dial: &Dial) -> Result<(), String> {
        let endpoint: Endpoint = dial.endpoint.parse().map_err(|e| format!("{e}"))?;
        let name = endpoint.server_name();
        if name.is_some() && self.tls.client.is_none() {
            return Err("no root certificates to verify the server with (tls.ca)".into());
        }
        let stream = Stream::connect(&endpoint).map_err(|e| e.to_string())?;
        self.admit(stream, Doing::Connecting(dial.clone(), name), DIAL_NS_MAX, None);
        Ok(())
    }

    fn admit(&mut self, stream: Stream, doing: Doing, time_ns: u64, operator: Option<Operator>) {
        let id = self.visitors.next_id();
        if let Err(error) = self.poller.add(&stream, Token::Visitor(id).to_poller(), doing.interest(&stream))
        {
            tracing::error!(%error, "cannot watch a socket");
        }
        let alarm = self.socket_timers.insert(now().plus_ns(time_ns), Token::Visitor(id));
        self.visitors.here.insert(id, Visitor { stream, doing, alarm, operator });
    }

    fn step(&self, stream: &mut Stream, doing: Doing, is_writable: bool) -> Step {
        match doing {
            Doing::Naming(first) => self.name(stream, first),
            Doing::Securing => match stream.handshake() {
                Ok(false) => Step::Wait(Doing::Securing),
                Ok(true) => match stream.alpn() {
                    Some(Alpn::H2) => Step::Http(Vec::new()),
                    Some(Alpn::Trunkline) => Step::Native(Vec::new()),
                    None => self.name(stream, Vec::new()),
                },
                Err(error) => Step::Over(Doing::Securing, error.to_string()),
            },
            Doing::Connecting(dial, name) if !is_writable => Step::Wait(Doing::Connecting(dial, name)),
            Doing::Connecting(dial, name) => match stream.finish_connect() {
                Ok(false) => Step::Wait(Doing::Connecting(dial, name)),
                Ok(true) => self.greet(stream, dial, name),
                Err(error) => Step::Over(Doing::Connecting(dial, name), error.to_string()),
            },
            Doing::Greeting(dial) => greeting(stream, dial),
        }
    }

    /// Reads first bytes, until they are clear.
    fn name(&self, stream: &mut Stream, mut first: Vec<u8>) -> Step {
        let mut buffer = [0; FIRST_READ_BYTES];
        match stream.read(&mut buffer) {
            Ok(Transfer::Bytes(bytes)) => first.extend_from_slice(&buffer[..bytes]),
            Ok(Transfer::NotReady) => return Step::Wait(Doing::Naming(first)),
            Ok(Transfer::Ended) => return Step::Over(Doing::Naming(first), "said nothing".into()),
            Err(error) => return Step::Over(Doing::Naming(first), error.to_string()),
        }
        let is_bare = !stream.is_secure() && matches!(stream.peer_address(), Ok(Some(_)));
        match First::of(&first, &PREAMBLE.to_le_bytes()) {
            First::Unclear => Step::Wait(Doing::Naming(first)),
            First::Tls if !stream.is_secure() => self.secure(stream, &first),
            First::Http1 => Step::Dismiss(HTTP1_ANSWER, "speaks HTTP/1"),
            First::Native | First::Http2 if is_bare && self.tls.is_required => {
                Step::Over(Doing::Naming(first), "speaks without TLS (tls.required)".into())
            }
            First::Native => Step::Native(first),
            First::Http2 => Step::Http(first),
            First::Tls | First::Unknown => {
                Step::Over(Doing::Naming(first), "speaks nothing known here".into())
            }
        }
    }

    fn secure(&self, stream: &mut Stream, first: &[u8]) -> Step {
        let Some(tls) = &self.tls.server else {
            return Step::Dismiss(TLS_REFUSAL, "speaks TLS, and there is no tls.certificate");
        };
        match stream.begin_tls_server(tls, first) {
            Ok(()) => self.step(stream, Doing::Securing, false),
            Err(error) => Step::Over(Doing::Securing, error.to_string()),
        }
    }

    fn greet(&self, stream: &mut Stream, dial: Dial, name: Option<String>) -> Step {
        let (Some(name), Some(tls)) = (name, &self.tls.client) else { return Step::Dialled(dial) };
        let offer: &[Alpn] = match dial.connection {
            Dialled::Native(_) => &[Alpn::Trunkline, Alpn::H2],
            Dialled::Grpc(_) => &[Alpn::H2],
        };
        match stream.begin_tls_client(tls, &name, offer) {
            Ok(()) => greeting(stream, dial),
            Err(error) => Step::Over(Doing::Greeting(dial), error.to_string()),
        }
    }

    fn adopt_native(&mut self, stream: Stream, first: &[u8]) {
        let key = self.engine.accept_peer(now(), label(&stream));
        self.begin_native(key, stream, first);
    }

    fn adopt_http(&mut self, stream: Stream, first: &[u8], operator: Option<Operator>) {
        let key = match operator {
            Some(operator) => self.engine.accept_operator(now(), operator),
            None => self.engine.accept_grpc(now(), label(&stream), identity(&stream)),
        };
        self.begin_http_server(key, stream, first);
    }

    /// A dialled connection is ready. Where TLS was spoken, ALPN has the last word about the protocol.
    fn adopt_dialled(&mut self, stream: Stream, dial: Dial) {
        match (dial.connection, stream.alpn()) {
            (Dialled::Native(peer), Some(Alpn::H2)) => {
                if let Some(key) = self.engine.dialled_speaks_grpc(peer, identity(&stream)) {
                    self.begin_http_client(key, stream, dial.endpoint);
                }
            }
            (Dialled::Native(peer), _) => self.begin_native(peer, stream, &[]),
            (Dialled::Grpc(key), _) => {
                self.engine.grpc_identified(key, identity(&stream));
                self.begin_http_client(key, stream, dial.endpoint);
            }
        }
    }

    fn visitor_over(&mut self, stream: &Stream, doing: Doing, why: &str) {
        match doing {
            Doing::Connecting(dial, _) | Doing::Greeting(dial) => self.dial_failed(&dial, why),
            Doing::Naming(_) | Doing::Securing => {
                tracing::info!(peer = %label(stream), why, "connection refused");
            }
        }
    }

    fn dial_failed(&mut self, dial: &Dial, why: &str) {
        tracing::warn!(endpoint = %dial.endpoint, why, "cannot dial");
        let mut turn = Turn { now: now(), heaps: &mut self.heaps };
        self.engine.handle_dial_failed(&mut turn, dial.connection, why);
    }
}

impl Visitors {
    /// Those who have connected, without TLS, and not said what they speak; with what they have said.
    pub fn strangers(&self) -> impl Iterator<Item = (&Stream, &[u8])> {
        let strangers = self.here.values().filter(|visitor| visitor.is_stranger());
        strangers.filter_map(|visitor| match &visitor.doing {
            Doing::Naming(first) => Some((&visitor.stream, &first[..])),
            _ => None,
        })
    }

    /// Those to wait for before this process ends: they may yet turn out to be clients of gRPC, and cannot go on
    /// elsewhere; or they have not heard all that was said to them.
    pub fn unsettled(&self) -> usize {
        let may_be_clients = |visitor: &&Visitor| match visitor.doing {
            Doing::Naming(_) => !visitor.is_stranger(),
            Doing::Securing => true,
            Doing::Connecting(..) | Doing::Greeting(_) => false,
        };
        self.here.values().filter(may_be_clients).count() + self.leaving.len()
    }

    /// Those who were leaving, to be seen off elsewhere.
    pub fn part(&mut self) -> impl Iterator<Item = Farewell> + use<> {
        std::mem::take(&mut self.leaving).into_values().map(|leaving| leaving.farewell)
    }

    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Visitor {
    /// It has connected, without TLS, and not said what it speaks. Who came where operators come, comes again.
    fn is_stranger(&self) -> bool {
        self.operator.is_none() && matches!(self.doing, Doing::Naming(_)) && !self.stream.is_secure()
    }
}

impl Doing {
    fn interest(&self, stream: &Stream) -> Interest {
        match self {
            Self::Connecting(..) => Interest::ReadWrite,
            _ if stream.wants_write() => Interest::ReadWrite,
            _ => Interest::Read,
        }
    }
}

fn greeting(stream: &mut Stream, dial: Dial) -> Step {
    match stream.handshake() {
        Ok(false) => Step::Wait(Doing::Greeting(dial)),
        Ok(true) => Step::Dialled(dial),
        Err(error) => Step::Over(Doing::Greeting(dial), format!("TLS: {error}")),
    }
}

/// Who came where operators come, and what he may.
fn operator(stream: &Stream, admin: &Admin) -> io::Result<Operator> {
    let process = stream.peer_credentials()?.ok_or(io::ErrorKind::Unsupported)?;
    let (uid, gid) = (process.uid, process.gid);
    let [reads, changes] = [true, false].map(|reads| admin.permit(reads, uid, gid));
    Ok(Operator { identity: format!("uid:{uid}"), reads, changes })
}

/// What operators see of a stranger.
fn label(stream: &Stream) -> String {
    let address = stream.peer_address().ok().flatten();
    let scheme = if stream.is_secure() { "tls" } else { "tcp" };
    address.map_or("unix".into(), |address| format!("{scheme}://{address}"))
}

/// Who the peer proved to be.
fn identity(stream: &Stream) -> PeerIdentity {
    let known = stream.identity().unwrap_or_default();
    let spiffe_id = known.spiffe_id().map(str::to_owned);
    let names = known.dns.into_iter().chain(known.uris).collect();
    PeerIdentity { encrypted: stream.is_secure(), names, spiffe_id }
}
