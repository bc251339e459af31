//! Connections on their way to being something.
//!
//! An accepted connection is a visitor until its first bytes say what it speaks; a dialled one until it is connected
//! and, where TLS is wanted, secured. Then it becomes a native peer (`sockets.rs`) or one of HTTP/2 (`http.rs`). A
//! visitor costs a descriptor and a few bytes, and has a limited time.
//!
//! Accepted connections have places, from one source and in all (`daemon.connections_max`). Where there is none left,
//! the oldest of those that have said nothing gives way, so that who is silent does not keep out who is not; and a
//! listener of a process that has no descriptor left rests.

use crate::guests::{Guest, Purpose, identity, label, take_in};
use crate::newcomers::{Entry, Newcomer};
use crate::refusal::{self, Answer, REFUSAL_NS_MAX};
use crate::shard::{Shard, Token, now};
use crate::visitor_book::{ACCEPTS_PER_TURN, Doing, Leaving, Visitor};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use trunkline_engine::{Dial, Dialled, Turn};
use trunkline_native::{PREAMBLE, PROBE, PROBE_END, Probed};
use trunkline_net::{
    Alpn, ConnectionLimits, Endpoint, Farewell, First, Full, HTTP1_ANSWER, Interest, Place, Ready, Source,
    Stream, TLS_REFUSAL, TlsClient, TlsServer, Transfer,
};

/// Visitors, and streams saying farewell, at once. More strangers are turned away: whoever is known by then is not
/// concerned.
const VISITORS_MAX: usize = 4096;
/// Time a listener rests when the process has no descriptor, or no memory, for another connection.
const REST_NS: u64 = 100_000_000;
/// Time to connect and to secure a dialled connection: gRPC's smallest (connection-backoff.md, MIN_CONNECT_TIMEOUT).
const DIAL_NS_MAX: u64 = 20_000_000_000;
/// Time to answer what is spoken, as for a HELLO.
const ASK_NS_MAX: u64 = 10_000_000_000;
/// Bytes of a first read: a small call fits, and the stack has room.
const FIRST_READ_BYTES: usize = 4096;

/// Keys and certificates connections are made with; replaced when the files change.
#[derive(Clone, Default)]
pub(crate) struct TlsKeys {
    pub server: Option<TlsServer>,
    pub client: Option<TlsClient>,
    pub is_required: bool,
}

/// What a step led to.
enum Step {
    /// It waits.
    Wait(Doing),
    /// It speaks the native protocol; these are its first bytes.
    Native(Vec<u8>),
    /// It speaks HTTP/2.
    Http(Vec<u8>),
    /// It speaks the native protocol if it may, behind these first bytes (`trunkline_native::PROBE`).
    Probed(Vec<u8>),
    /// It was dialled, and is ready.
    Dialled(Dial),
    /// It was asked what it speaks, and this is the beginning of its native answer.
    Answered(Dial, Vec<u8>),
    /// It was asked, and does not speak the native protocol.
    Foreign(Dial, String),
    /// It is told why there is no place for it.
    Refuse(Vec<u8>),
    /// It is told something, and closed.
    Dismiss(&'static [u8], &'static str),
    /// It is over.
    Over(Doing, String),
}

impl Shard {
    /// Accepts whatever waits at a listener, a number at a time: the poller tells again.
    pub fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listening) = self.listening.get(index).filter(|_| !self.holds_strangers) else { return };
            match listening.listener.accept() {
                Ok(Some(accepted)) => {
                    let purpose = listening.purpose.clone();
                    self.admit_accepted(accepted.stream, &purpose);
                }
                Ok(None) => return,
                Err(error) if is_out_of_descriptors(&error) && self.give_way(None) => {}
                Err(error) => {
                    let Some(listening) = self.listening.get(index) else { return };
                    tracing::error!(endpoint = %listening.endpoint, %error, "cannot accept; the listener rests");
                    return self.rest_listener(index);
                }
            }
        }
    }

    /// A listener has rested.
    pub fn listener_rested(&mut self, index: usize) {
        if !self.holds_strangers {
            self.watch_listener(index);
        }
    }

    /// The process cannot take another connection: those who wait are turned away as far as the reserve goes, and
    /// nobody is asked for a while.
    fn rest_listener(&mut self, index: usize) {
        let Some(listening) = self.listening.get_mut(index) else { return };
        self.visitors.turn_away(&listening.listener);
        listening.unwatch(&self.poller);
        self.socket_timers.insert(now().plus_ns(REST_NS), Token::Listener(index));
    }

    fn watch_listener(&mut self, index: usize) {
        let Some(listening) = self.listening.get_mut(index) else { return };
        if let Err(error) = listening.watch(&self.poller, index) {
            tracing::error!(endpoint = %listening.endpoint, %error, "cannot watch a listener");
        }
    }

    fn admit_accepted(&mut self, mut stream: Stream, purpose: &Purpose) {
        // One that is gone already has no source.
        let Ok(source) = Source::of(&stream) else { return };
        match self.place_for(source) {
            Ok(place) => stream.hold(place),
            Err(Some(full)) => return self.refuse(stream, source, full),
            Err(None) => return,
        }
        match purpose.guest(&stream) {
            Ok(guest) => {
                let time_ns = self.http_server.unfinished_ns_max;
                self.admit(stream, Doing::Naming(Vec::new()), time_ns, guest, Some(source));
            }
            Err(error) => tracing::warn!(%error, "the kernel does not say who asks"),
        }
    }

    /// Has a connection for which there is no place told so, if that takes no more than is set apart for it.
    fn refuse(&mut self, mut stream: Stream, source: Source, full: Full) {
        if let Ok(place) = self.visitors.refusals.admit(source) {
            stream.hold(place);
            self.admit(stream, Doing::Refusing(Vec::new(), full), REFUSAL_NS_MAX, None, None);
        }
    }

    /// A place for a connection from there, if need be that of one that has said nothing.
    fn place_for(&mut self, source: Source) -> Result<Place, Option<Full>> {
        if self.visitors.here.len() >= VISITORS_MAX && !self.give_way(None) {
            tracing::warn!(
                limit = VISITORS_MAX,
                "too many connections that have not said what they speak; refused"
            );
            return Err(None);
        }
        let full = match self.visitors.places.admit(source) {
            Ok(place) => return Ok(place),
            Err(full) => full,
        };
        let whose = if full == Full::Source { Some(source) } else { None };
        let place = self.give_way(whose).then(|| self.visitors.places.admit(source).ok()).flatten();
        if place.is_none() {
            let ConnectionLimits { of_source, in_all } = self.visitors.places.limits();
            match full {
                Full::Source => tracing::warn!(
                    ?source,
                    limit = of_source,
                    "connection refused: its source has as many as it may \
                     (daemon.connections_per_source_max)"
                ),
                Full::All => tracing::warn!(
                    ?source,
                    limit = in_all,
                    "connection refused: there are as many as there may be (daemon.connections_max)"
                ),
            }
        }
        place.ok_or(Some(full))
    }

    /// The oldest connection that has shown nothing of what it wants is closed: of this source, or of the one that has
    /// most of them. `false` if there is none.
    fn give_way(&mut self, source: Option<Source>) -> bool {
        while let Some((entry, newcomer)) = self.visitors.newcomers.oldest(source) {
            self.visitors.newcomers.remove(entry);
            match newcomer {
                Newcomer::Peer(key) if self.engine.has_greeted(key) => {}
                Newcomer::Peer(key) => {
                    self.lose(key, "it has not greeted, and others want its place");
                    return true;
                }
                Newcomer::Visitor(id) => {
                    let Some(visitor) = self.visitors.here.remove(&id) else { continue };
                    self.socket_timers.cancel(visitor.alarm);
                    tracing::info!(source = ?entry.source, "a silent connection gives way to another");
                    return true;
                }
            }
        }
        false
    }

    /// Whoever connects from now on waits in the kernel, and whoever has connected is not listened to, for the daemon
    /// that takes over, or until [`Shard::admit_strangers`].
    pub fn hold_strangers(&mut self) {
        if !std::mem::replace(&mut self.holds_strangers, true) {
            self.listening.iter_mut().for_each(|listening| listening.unwatch(&self.poller));
            self.await_strangers(Interest::Nothing);
        }
    }

    /// Nobody takes over.
    pub fn admit_strangers(&mut self) {
        if std::mem::take(&mut self.holds_strangers) {
            (0..self.listening.len()).for_each(|index| self.watch_listener(index));
            self.await_strangers(Interest::Read);
        }
    }

    /// A stranger another daemon had.
    pub fn admit_stranger(&mut self, mut stream: Stream, first: Vec<u8>) {
        let time_ns = self.http_server.unfinished_ns_max;
        let source = Source::of(&stream).ok();
        if let Some(source) = source {
            stream.hold(self.visitors.places.hold(source));
        }
        self.admit(stream, Doing::Naming(first), time_ns, None, source);
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
        let Visitor { mut stream, doing, alarm, guest, newcomer } = visitor;
        let step = self.step(&mut stream, doing, ready.writable, guest.as_ref());
        if let Step::Wait(doing) = step {
            let interest = doing.interest(&stream);
            let _ = self.poller.set_interest(&stream, Token::Visitor(id).to_poller(), interest);
            self.visitors.here.insert(id, Visitor { stream, doing, alarm, guest, newcomer });
            return;
        }
        self.socket_timers.cancel(alarm);
        if let Some(entry) = newcomer {
            self.visitors.newcomers.remove(entry);
        }
        match (step, guest) {
            (Step::Native(_), Some(guest)) => {
                tracing::info!(peer = %label(&stream), why = guest.why_not_native(), "connection refused");
            }
            (Step::Native(first), None) => self.adopt_native(stream, &first, newcomer),
            (Step::Probed(first), None) => {
                self.adopt_native(stream, &first[PROBE.len()..], newcomer);
            }
            // To others than anybody gRPC is spoken, whatever else is offered.
            (Step::Http(first) | Step::Probed(first), guest) => {
                let key = take_in(&mut self.engine, now(), &stream, guest);
                self.begin_http_server(key, stream, &first);
            }
            (step, _) => self.follow_step(stream, step),
        }
    }

    /// What a visitor's step led to that does not depend on where it came.
    fn follow_step(&mut self, stream: Stream, step: Step) {
        match step {
            Step::Wait(_) | Step::Native(_) | Step::Http(_) | Step::Probed(_) => {}
            Step::Dialled(dial) => self.adopt_dialled(stream, dial),
            Step::Answered(dial, first) => {
                if let Dialled::Native(peer) = dial.connection {
                    self.begin_native(peer, stream, &first, None);
                }
            }
            Step::Foreign(dial, why) => {
                self.dialled_is_foreign(&dial, &why);
                self.see_off(Farewell::new(stream, PROBE_END.to_vec(), now()));
            }
            Step::Refuse(words) => self.see_off(Farewell::new(stream, words, now())),
            Step::Dismiss(words, why) => {
                tracing::info!(peer = %label(&stream), why, "connection refused");
                self.see_off(Farewell::new(stream, words.to_vec(), now()));
            }
            Step::Over(doing, why) => self.visitor_over(&stream, doing, &why),
        }
    }

    /// A visitor took too long.
    pub fn visitor_timed_out(&mut self, id: u64) {
        if let Some(Visitor { stream, doing, newcomer, .. }) = self.visitors.here.remove(&id) {
            if let Some(entry) = newcomer {
                self.visitors.newcomers.remove(entry);
            }
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
        self.admit(stream, Doing::Connecting(dial.clone(), name), DIAL_NS_MAX, None, None);
        Ok(())
    }

    fn admit(
        &mut self,
        stream: Stream,
        doing: Doing,
        time_ns: u64,
        guest: Option<Guest>,
        source: Option<Source>,
    ) {
        let id = self.visitors.next_id();
        if let Err(error) = self.poller.add(&stream, Token::Visitor(id).to_poller(), doing.interest(&stream))
        {
            tracing::error!(%error, "cannot watch a socket");
        }
        let alarm = self.socket_timers.insert(now().plus_ns(time_ns), Token::Visitor(id));
        let newcomer = source.map(|source| Entry { source, number: id });
        if let Some(entry) = newcomer {
            self.visitors.newcomers.insert(entry, Newcomer::Visitor(id));
        }
        self.visitors.here.insert(id, Visitor { stream, doing, alarm, guest, newcomer });
    }

    fn step(&self, stream: &mut Stream, doing: Doing, is_writable: bool, guest: Option<&Guest>) -> Step {
        match doing {
            Doing::Naming(first) => self.name(stream, first, guest),
            Doing::Securing => match stream.handshake() {
                Ok(false) => Step::Wait(Doing::Securing),
                Ok(true) => match stream.alpn() {
                    Some(Alpn::H2) => Step::Http(Vec::new()),
                    Some(Alpn::Trunkline) => Step::Native(Vec::new()),
                    None => self.name(stream, Vec::new(), guest),
                },
                Err(error) => Step::Over(Doing::Securing, error.to_string()),
            },
            Doing::Connecting(dial, name) if !is_writable => Step::Wait(Doing::Connecting(dial, name)),
            Doing::Connecting(dial, name) => match stream.finish_connect() {
                Ok(false) => Step::Wait(Doing::Connecting(dial, name)),
                Ok(true) => self.greet(stream, dial, name),
                Err(error) => Step::Over(Doing::Connecting(dial, name), error.to_string()),
            },
            Doing::Refusing(first, full) => refusing(stream, first, full),
            Doing::Greeting(dial) => greeting(stream, dial),
            Doing::Asking(dial, first) => answer(stream, dial, first),
        }
    }

    /// Reads first bytes, until they are clear.
    fn name(&self, stream: &mut Stream, mut first: Vec<u8>, guest: Option<&Guest>) -> Step {
        match read_first(stream, &mut first) {
            Ok(true) => {}
            Ok(false) => return Step::Wait(Doing::Naming(first)),
            Err(why) => return Step::Over(Doing::Naming(first), why),
        }
        let is_bare = !stream.is_secure() && matches!(stream.peer_address(), Ok(Some(_)));
        match First::of(&first, &PREAMBLE.to_le_bytes()) {
            First::Unclear => Step::Wait(Doing::Naming(first)),
            First::Tls if !stream.is_secure() => self.secure(stream, &first, guest),
            First::Http1 => Step::Dismiss(HTTP1_ANSWER, "speaks HTTP/1"),
            First::Native | First::Http2 if is_bare && self.tls.is_required => {
                Step::Over(Doing::Naming(first), "speaks without TLS (tls.required)".into())
            }
            First::Native | First::Http2 if is_bare && guest.is_some_and(Guest::needs_tls) => {
                Step::Over(Doing::Naming(first), "speaks without TLS (gateway.open_to)".into())
            }
            First::Native => Step::Native(first),
            First::Http2 => match Probed::of(&first) {
                Probed::Unclear => Step::Wait(Doing::Naming(first)),
                Probed::Asks => Step::Probed(first),
                Probed::Other => Step::Http(first),
            },
            First::Tls | First::Unknown => {
                Step::Over(Doing::Naming(first), "speaks nothing known here".into())
            }
        }
    }

    fn secure(&self, stream: &mut Stream, first: &[u8], guest: Option<&Guest>) -> Step {
        let Some(tls) = &self.tls.server else {
            return Step::Dismiss(TLS_REFUSAL, "speaks TLS, and there is no tls.certificate");
        };
        // A daemon that dials the gateway, or operators, is to speak gRPC there.
        let tls = if guest.is_some() { &tls.for_grpc() } else { tls };
        match stream.begin_tls_server(tls, first) {
            Ok(()) => self.step(stream, Doing::Securing, false, guest),
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

    fn adopt_native(&mut self, stream: Stream, first: &[u8], newcomer: Option<Entry>) {
        let key = self.engine.accept_peer(now(), label(&stream));
        if let Some(entry) = newcomer {
            self.visitors.newcomers.insert(entry, Newcomer::Peer(key));
        }
        self.begin_native(key, stream, first, newcomer);
    }

    /// A dialled connection is ready. Where TLS was spoken, ALPN has the last word about the protocol.
    fn adopt_dialled(&mut self, stream: Stream, dial: Dial) {
        match (dial.connection, stream.alpn()) {
            (Dialled::Native(peer), Some(Alpn::H2)) => {
                if let Some(key) = self.engine.dialled_speaks_grpc(peer, identity(&stream)) {
                    self.begin_http_client(key, stream, dial.endpoint);
                }
            }
            (Dialled::Native(_), None) if !dial.is_known => self.ask(stream, dial),
            (Dialled::Native(peer), _) => self.begin_native(peer, stream, &[], None),
            (Dialled::Grpc(key), _) => {
                self.engine.grpc_identified(key, identity(&stream));
                self.begin_http_client(key, stream, dial.endpoint);
            }
        }
    }

    /// Asks a dialled endpoint what it speaks.
    fn ask(&mut self, mut stream: Stream, dial: Dial) {
        // A connection that is new has room for so little.
        match stream.write_vectored(&[IoSlice::new(&PROBE)]) {
            Ok(Transfer::Bytes(bytes)) if bytes == PROBE.len() => {}
            Ok(_) => return self.dialled_is_foreign(&dial, "takes nothing"),
            Err(error) => return self.dialled_is_foreign(&dial, &error.to_string()),
        }
        let id = self.visitors.next_id();
        let (token, doing) = (Token::Visitor(id).to_poller(), Doing::Asking(dial, Vec::new()));
        let _ = self.poller.set_interest(&stream, token, doing.interest(&stream));
        let alarm = self.socket_timers.insert(now().plus_ns(ASK_NS_MAX), Token::Visitor(id));
        self.visitors.here.insert(id, Visitor { stream, doing, alarm, guest: None, newcomer: None });
        // What TLS has read already, the poller does not tell.
        self.serve_visitor(id, Ready { token, readable: true, writable: false, is_gone: false });
    }

    /// Who was asked does not speak the native protocol: it is called by gRPC.
    fn dialled_is_foreign(&mut self, dial: &Dial, why: &str) {
        tracing::debug!(endpoint = %dial.endpoint, why, "endpoint does not speak the native protocol");
        if let Dialled::Native(peer) = dial.connection {
            self.engine.peer_lost(&mut Turn { now: now(), heaps: &mut self.heaps }, peer, why);
            self.pressing = true;
        }
    }

    fn visitor_over(&mut self, stream: &Stream, doing: Doing, why: &str) {
        match doing {
            Doing::Connecting(dial, _) | Doing::Greeting(dial) => self.dial_failed(&dial, why),
            Doing::Asking(dial, _) => self.dialled_is_foreign(&dial, why),
            // It is told by the log already.
            Doing::Refusing(..) => {}
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

/// Whether the process, or the host, has no descriptor left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Reads first bytes behind those there are. `false` if there are none yet.
fn read_first(stream: &mut Stream, first: &mut Vec<u8>) -> Result<bool, String> {
    let mut buffer = [0; FIRST_READ_BYTES];
    match stream.read(&mut buffer).map_err(|error| error.to_string())? {
        Transfer::Bytes(bytes) => {
            first.extend_from_slice(&buffer[..bytes]);
            Ok(true)
        }
        Transfer::NotReady => Ok(false),
        Transfer::Ended => Err("said nothing".into()),
    }
}

/// Reads what an endpoint answers that was asked what it speaks.
fn answer(stream: &mut Stream, dial: Dial, mut first: Vec<u8>) -> Step {
    let read = stream.flush().map_err(|error| error.to_string());
    match read.and_then(|_| read_first(stream, &mut first)) {
        Ok(false) => return Step::Wait(Doing::Asking(dial, first)),
        Err(why) => return Step::Foreign(dial, why),
        Ok(true) => {}
    }
    match Probed::of_answer(&first) {
        Probed::Unclear => Step::Wait(Doing::Asking(dial, first)),
        Probed::Asks => Step::Answered(dial, first),
        Probed::Other => Step::Foreign(dial, "answers in another protocol".into()),
    }
}

/// Reads what a connection speaks for which there is no place.
fn refusing(stream: &mut Stream, mut first: Vec<u8>, full: Full) -> Step {
    match read_first(stream, &mut first) {
        Ok(true) => {}
        Ok(false) => return Step::Wait(Doing::Refusing(first, full)),
        Err(why) => return Step::Over(Doing::Refusing(first, full), why),
    }
    match refusal::answer(&first, full, now()) {
        Answer::Wait => Step::Wait(Doing::Refusing(first, full)),
        Answer::Say(words) => Step::Refuse(words),
        Answer::Nothing => Step::Over(Doing::Refusing(first, full), String::new()),
    }
}

fn greeting(stream: &mut Stream, dial: Dial) -> Step {
    match stream.handshake() {
        Ok(false) => Step::Wait(Doing::Greeting(dial)),
        Ok(true) => Step::Dialled(dial),
        Err(error) => Step::Over(Doing::Greeting(dial), format!("TLS: {error}")),
    }
}
