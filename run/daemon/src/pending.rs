//! Pending connections: accept, protocol detection, TLS handshakes, dialling.
//!
//! An accepted connection is pending until its first bytes say what it speaks; a dialled one until it is connected,
//! and secured where it is to be. Then it is a native peer (`sockets.rs`) or one of HTTP/2 (`http.rs`). A pending one
//! costs a descriptor and a few bytes, and its time is limited. Accepted ones are limited, per source and in all
//! (`daemon.connections_max`); at the limit the oldest unidentified one gives way (`giving_way.rs`), whichever shard
//! has it. A process without a descriptor stops watching its listeners.

use crate::clock::now;
use crate::giving_way::{GAVE_WAY, Identified};
use crate::pending_connections::{ACCEPTS_PER_TURN, Lingering, PendingConnection, PendingPhase};
use crate::pending_step::{PendingStep as Step, client_handshake, probe_answer, read_first, refusing};
use crate::purpose::{Purpose, RestrictedClient, give_rights, identity, label, take_in};
use crate::refusal::REFUSAL_NS_MAX;
use crate::room::{self, FoundRoom};
use crate::shard::Shard;
use crate::token::Token;
use crate::unidentified::{Unidentified, UnidentifiedKey};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use trunkline_engine::{Dial, Dialled, PeerKey, Turn};
use trunkline_native::{PREAMBLE, PROBE, PROBE_END, Probed};
use trunkline_net::{
    Alpn, ConnectionLimits, Endpoint, First, Full, HTTP1_ANSWER, Interest, LingeringClose, Place, Ready,
    Source, Stream, TLS_REFUSAL, Transfer,
};

/// Unidentified connections of the host, and streams in their lingering close of a shard, at once.
const PENDING_MAX: usize = 4096;
/// Time a listener rests when the process has no descriptor, or no memory, for another connection, and when another
/// shard is about to close one.
const REST_NS: u64 = 100_000_000;
const REST_FOR_OTHERS_NS: u64 = 1_000_000;
/// Time to connect and to secure a dialled connection: gRPC's smallest (connection-backoff.md, MIN_CONNECT_TIMEOUT).
const DIAL_NS_MAX: u64 = 20_000_000_000;
/// Time to answer a probe, as for a HELLO.
const PROBE_NS_MAX: u64 = 10_000_000_000;

impl Shard {
    /// Accepts whatever waits at a listener, a number at a time: the poller tells again.
    pub fn accept(&mut self, index: usize) {
        if self.load.leaves_to_others(now())
            && let Some(listening) = self.listening.get_mut(index)
            && let Some(until) = listening.leave_to_others(now(), &self.poller)
        {
            self.socket_timers.insert(until, Token::Listener(index));
            return;
        }
        for _ in 0..ACCEPTS_PER_TURN {
            // For the place of another, that is read first.
            if self.pending.have_had_their_time() {
                return;
            }
            if self.pending.places.unidentified.is_behind() {
                return self.rest_listener(index, REST_FOR_OTHERS_NS);
            }
            let Some(listening) = self.listening.get(index).filter(|_| !self.accepts_are_held) else {
                return;
            };
            match listening.listener.accept() {
                Ok(Some(accepted)) => {
                    let purpose = listening.purpose.clone();
                    self.admit_accepted(accepted.stream, &purpose);
                }
                Ok(None) => return,
                Err(error) => {
                    let room = if is_out_of_descriptors(&error) {
                        room::make(self, None)
                    } else {
                        FoundRoom::Nowhere
                    };
                    match room {
                        FoundRoom::Made => continue,
                        FoundRoom::Soon | FoundRoom::Later => {
                            return self.rest_listener(index, REST_FOR_OTHERS_NS);
                        }
                        FoundRoom::Nowhere => {}
                    }
                    let Some(listening) = self.listening.get(index) else { return };
                    tracing::error!(endpoint = %listening.endpoint, %error, "cannot accept; the listener rests");
                    return self.pause_listener(index);
                }
            }
        }
    }

    /// A listener has rested.
    pub fn listener_rested(&mut self, index: usize) {
        if !self.accepts_are_held {
            self.watch_listener(index);
        }
    }

    /// The process cannot take another connection: those in the backlog are closed as far as the reserve goes, and the
    /// listener is not watched for a while.
    fn pause_listener(&mut self, index: usize) {
        let Some(listening) = self.listening.get_mut(index) else { return };
        self.pending.refuse_backlog(&listening.listener);
        self.rest_listener(index, REST_NS);
    }

    fn rest_listener(&mut self, index: usize, time_ns: u64) {
        let Some(listening) = self.listening.get_mut(index) else { return };
        listening.unwatch(&self.poller);
        self.socket_timers.insert(now().plus_ns(time_ns), Token::Listener(index));
    }

    fn watch_listener(&mut self, index: usize) {
        let Some(listening) = self.listening.get_mut(index) else { return };
        if let Err(error) = listening.watch(&self.poller, index) {
            tracing::error!(endpoint = %listening.endpoint, %error, "cannot watch a listener");
        }
    }

    /// Takes in a connection somebody has made to a listener for this purpose.
    pub fn admit_accepted(&mut self, mut stream: Stream, purpose: &Purpose) {
        // One that is gone already has no source.
        let Ok(source) = stream.source() else { return };
        match self.admit_source(source) {
            Ok(place) => stream.hold(place),
            Err(Some(full)) => return self.refuse(stream, source, full),
            Err(None) => return,
        }
        match purpose.client(&stream) {
            Ok(client) => {
                let time_ns = self.https.unfinished_ns_max();
                self.admit(stream, PendingPhase::Detecting(Vec::new()), time_ns, client, Some(source));
            }
            Err(error) => tracing::warn!(%error, "the kernel does not say who asks"),
        }
    }

    /// Has a connection for which there is no place told so, if that takes no more than is set apart for it.
    fn refuse(&mut self, mut stream: Stream, source: Source, full: Full) {
        if let Ok(place) = self.pending.places.refusals.admit(source) {
            stream.hold(place);
            self.admit(stream, PendingPhase::Refusing(Vec::new(), full), REFUSAL_NS_MAX, None, None);
        }
    }

    /// A place for a connection from there, if need be that of one that has said nothing.
    fn admit_source(&mut self, source: Source) -> Result<Place, Option<Full>> {
        if self.pending.places.unidentified.count() >= PENDING_MAX
            && matches!(room::make(self, None), FoundRoom::Later | FoundRoom::Nowhere)
        {
            tracing::warn!(
                limit = PENDING_MAX,
                "too many connections that have not said what they speak; refused"
            );
            return Err(None);
        }
        let full = match self.pending.places.accepted.admit(source) {
            Ok(place) => return Ok(place),
            Err(full) => full,
        };
        let place = self.place_of_another(source, full);
        if place.is_none() {
            let ConnectionLimits { of_source, in_all } = self.pending.places.accepted.limits();
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

    /// The place of a connection that gives way: of this source, if that is what has too many. It is taken before the
    /// other is given back, or else another shard could take that; and whatever the limit says, for there are more than
    /// it allows while other shards have not closed what they were asked to.
    fn place_of_another(&mut self, source: Source, full: Full) -> Option<Place> {
        let place = self.pending.places.accepted.hold(source);
        let whose = if full == Full::Source { Some(source) } else { None };
        matches!(room::make(self, whose), FoundRoom::Made | FoundRoom::Soon).then_some(place)
    }

    /// Another shard has a connection for the place of this one, which is looked at first.
    pub fn give_way(&mut self, key: UnidentifiedKey, unidentified: Unidentified) {
        if room::is_silent(self, key, unidentified) {
            room::close(self, key, unidentified);
        }
        self.pending.places.unidentified.gave_way(key);
    }

    /// This peer has greeted.
    pub fn peer_greeted(&mut self, peer: PeerKey, key: UnidentifiedKey) {
        let place = self.pending.places.unidentified.identify(key);
        if !self.may_stay(place) {
            self.with_natives(|natives, lent| natives.lose(lent, peer, GAVE_WAY));
        }
    }

    /// Whether a connection that has said what it wants stays: another gives way if its place was given away.
    fn may_stay(&mut self, place: Identified) -> bool {
        match place {
            Identified::Stays => true,
            Identified::Owes(source) => matches!(room::make(self, source), FoundRoom::Made | FoundRoom::Soon),
        }
    }

    /// Connections wait in the listeners' backlog from now on, and those that could move to another daemon are not read
    /// from, until the daemon that takes over reads them, or until [`Shard::resume_accepts`].
    pub fn hold_accepts(&mut self) {
        if !std::mem::replace(&mut self.accepts_are_held, true) {
            self.listening.iter_mut().for_each(|listening| listening.unwatch(&self.poller));
            self.watch_transferable(Interest::Nothing);
        }
    }

    /// No daemon takes over.
    pub fn resume_accepts(&mut self) {
        if std::mem::take(&mut self.accepts_are_held) {
            (0..self.listening.len()).for_each(|index| self.watch_listener(index));
            self.watch_transferable(Interest::Read);
        }
    }

    /// Takes over a pending connection of the daemon that was here before.
    pub fn adopt_pending(&mut self, mut stream: Stream, first: Vec<u8>) {
        let time_ns = self.https.unfinished_ns_max();
        let source = stream.source().ok();
        if let Some(source) = source {
            stream.hold(self.pending.places.accepted.hold(source));
        }
        self.admit(stream, PendingPhase::Detecting(first), time_ns, None, source);
    }

    /// Begins to connect wherever the engine wants a connection.
    pub fn dial(&mut self) {
        while let Some(dial) = self.engine.poll_dial() {
            if let Err(why) = self.connect(&dial) {
                self.dial_failed(&dial, &why);
            }
        }
    }

    /// Goes on with a pending connection the poller named.
    pub fn serve_pending(&mut self, id: u64, ready: Ready) {
        let is_held = |pending: &PendingConnection| {
            self.accepts_are_held && pending.is_transferable() && !ready.is_gone
        };
        if self.pending.open.get(&id).is_some_and(is_held) {
            return;
        }
        let Some(pending) = self.pending.open.remove(&id) else { return };
        let (is_accepted, began) = (pending.is_accepted(), now());
        let PendingConnection { mut stream, phase, alarm, was_put_off, client, unidentified } = pending;
        let step = self.step(&mut stream, phase, ready.writable, client.as_ref());
        if is_accepted && stream.is_secure() {
            self.pending.note_handshake(began, now());
        }
        if let Step::Wait(phase) = step {
            let interest = phase.interest(&stream);
            let _ = self.poller.set_interest(&stream, Token::Pending(id).to_poller(), interest);
            let pending = PendingConnection { stream, phase, alarm, was_put_off, client, unidentified };
            self.pending.open.insert(id, pending);
            return;
        }
        self.socket_timers.cancel(alarm);
        let place =
            unidentified.map_or(Identified::Stays, |key| self.pending.places.unidentified.identify(key));
        match (step, client) {
            (Step::Native(_), Some(client)) => {
                tracing::info!(peer = %label(&stream), why = client.why_not_native(), "connection refused");
            }
            (Step::Native(first), None) => self.adopt_native(stream, &first, unidentified, place),
            (Step::Probed(first), None) => {
                self.adopt_native(stream, &first[PROBE.len()..], unidentified, place);
            }
            // To others than anybody gRPC is spoken, whatever else is offered.
            (Step::Http(first) | Step::Probed(first), client) => {
                if !self.may_stay(place) {
                    tracing::info!(peer = %label(&stream), why = GAVE_WAY, "connection over");
                    return;
                }
                let key = take_in(&mut self.engine, &stream, client, &self.pending.call_rules);
                self.with_https(|https, lent| https.begin_server(lent, key, stream, &first));
            }
            (step, _) => self.follow_step(stream, step),
        }
    }

    /// What a step led to that does not depend on the listener.
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
                self.linger(LingeringClose::new(stream, PROBE_END.to_vec(), now()));
            }
            Step::Refuse(words) => self.linger(LingeringClose::new(stream, words, now())),
            Step::Dismiss(words, why) => {
                tracing::info!(peer = %label(&stream), why, "connection refused");
                self.linger(LingeringClose::new(stream, words.to_vec(), now()));
            }
            Step::Over(phase, why) => self.pending_failed(&stream, phase, &why),
        }
    }

    /// A pending connection took too long, if it is not what the shard has not read that would settle it.
    pub fn pending_timed_out(&mut self, id: u64) {
        if let Some(until) = self.pending.put_off(id, now()) {
            let alarm = self.socket_timers.insert(until, Token::Pending(id));
            self.pending.open.get_mut(&id).into_iter().for_each(|pending| pending.alarm = alarm);
            return;
        }
        if !self.pending.waits_its_turn(id) {
            let token = Token::Pending(id).to_poller();
            self.serve_pending(id, Ready { token, readable: true, writable: true, is_gone: false });
        }
        self.pending_over(id, "took too long");
    }

    /// A pending connection is given up.
    pub fn pending_over(&mut self, id: u64, why: &str) {
        let Some(pending) = self.pending.open.remove(&id) else { return };
        let PendingConnection { stream, phase, alarm, unidentified, .. } = pending;
        self.socket_timers.cancel(alarm);
        unidentified.into_iter().for_each(|key| _ = self.pending.places.unidentified.remove(key));
        self.pending_failed(&stream, phase, why);
    }

    /// Closes a stream once what is unsent has been sent and the peer has had time to read it.
    pub fn linger(&mut self, mut closing: LingeringClose) {
        let is_done = closing.turn(now(), &mut self.buffers);
        if is_done || self.pending.lingering.len() >= PENDING_MAX {
            return;
        }
        let id = self.pending.next_id();
        let token = Token::Lingering(id).to_poller();
        if self.poller.set_interest(closing.stream(), token, closing.interest()).is_ok() {
            let alarm = self.socket_timers.insert(closing.next_timeout(), Token::Lingering(id));
            self.pending.lingering.insert(id, Lingering { closing, alarm });
        }
    }

    /// Goes on with a lingering close.
    pub fn serve_lingering(&mut self, id: u64) {
        let Some(lingering) = self.pending.lingering.get_mut(&id) else { return };
        if lingering.closing.turn(now(), &mut self.buffers) {
            self.socket_timers.cancel(lingering.alarm);
            self.pending.lingering.remove(&id);
        } else {
            let interest = lingering.closing.interest();
            let _ = self.poller.set_interest(
                lingering.closing.stream(),
                Token::Lingering(id).to_poller(),
                interest,
            );
        }
    }

    /// The time of a lingering close is over.
    pub fn lingering_timed_out(&mut self, id: u64) {
        if let Some(mut lingering) = self.pending.lingering.remove(&id) {
            lingering.closing.turn(now(), &mut self.buffers);
        }
    }

    fn watch_transferable(&self, interest: Interest) {
        for (id, pending) in self.pending.open.iter().filter(|(_, pending)| pending.is_transferable()) {
            let _ = self.poller.set_interest(&pending.stream, Token::Pending(*id).to_poller(), interest);
        }
    }

    fn connect(&mut self, dial: &Dial) -> Result<(), String> {
        let endpoint: Endpoint = dial.endpoint.parse().map_err(|e| format!("{e}"))?;
        let name = endpoint.server_name();
        if name.is_some() && self.tls.client.is_none() {
            return Err("no root certificates to verify the server with (tls.ca, tls.workload_api)".into());
        }
        let stream = Stream::connect(&endpoint).map_err(|e| e.to_string())?;
        self.admit(stream, PendingPhase::Connecting(dial.clone(), name), DIAL_NS_MAX, None, None);
        Ok(())
    }

    fn admit(
        &mut self,
        stream: Stream,
        phase: PendingPhase,
        time_ns: u64,
        client: Option<RestrictedClient>,
        source: Option<Source>,
    ) {
        let id = self.pending.next_id();
        if let Err(error) = self.poller.add(&stream, Token::Pending(id).to_poller(), phase.interest(&stream))
        {
            tracing::error!(%error, "cannot watch a socket");
        }
        let alarm = self.socket_timers.insert(now().plus_ns(time_ns), Token::Pending(id));
        let unidentified =
            source.map(|source| self.pending.places.unidentified.enter(self.index, source, id));
        let pending = PendingConnection { stream, phase, alarm, was_put_off: false, client, unidentified };
        self.pending.open.insert(id, pending);
    }

    fn step(
        &self,
        stream: &mut Stream,
        phase: PendingPhase,
        is_writable: bool,
        client: Option<&RestrictedClient>,
    ) -> Step {
        match phase {
            PendingPhase::Detecting(first) => self.detect(stream, first, client),
            PendingPhase::ServerTls => match stream.handshake() {
                Ok(false) => Step::Wait(PendingPhase::ServerTls),
                Ok(true) => match stream.alpn() {
                    Some(Alpn::H2) => Step::Http(Vec::new()),
                    Some(Alpn::Trunkline) => Step::Native(Vec::new()),
                    // Nobody's choice: it is not among what is taken here.
                    Some(Alpn::Attach) => Step::Over(
                        PendingPhase::ServerTls,
                        "is an application's that belongs to a relay".into(),
                    ),
                    None => self.detect(stream, Vec::new(), client),
                },
                Err(error) => Step::Over(PendingPhase::ServerTls, error.to_string()),
            },
            PendingPhase::Connecting(dial, name) if !is_writable => {
                Step::Wait(PendingPhase::Connecting(dial, name))
            }
            PendingPhase::Connecting(dial, name) => match stream.finish_connect() {
                Ok(false) => Step::Wait(PendingPhase::Connecting(dial, name)),
                Ok(true) => self.begin_client_tls(stream, dial, name),
                Err(error) => Step::Over(PendingPhase::Connecting(dial, name), error.to_string()),
            },
            PendingPhase::Refusing(first, full) => refusing(stream, first, full),
            PendingPhase::ClientTls(dial) => client_handshake(stream, dial),
            PendingPhase::Probing(dial, first) => probe_answer(stream, dial, first),
        }
    }

    /// Reads first bytes, until they are clear.
    fn detect(&self, stream: &mut Stream, mut first: Vec<u8>, client: Option<&RestrictedClient>) -> Step {
        match read_first(stream, &mut first) {
            Ok(true) => {}
            Ok(false) => return Step::Wait(PendingPhase::Detecting(first)),
            Err(why) => return Step::Over(PendingPhase::Detecting(first), why),
        }
        let is_bare = !stream.is_secure() && matches!(stream.peer_address(), Ok(Some(_)));
        match First::of(&first, &PREAMBLE.to_le_bytes()) {
            First::Unclear => Step::Wait(PendingPhase::Detecting(first)),
            First::Tls if !stream.is_secure() => self.begin_server_tls(stream, &first, client),
            First::Http1 => Step::Dismiss(HTTP1_ANSWER, "speaks HTTP/1"),
            First::Native | First::Http2 if is_bare && self.tls.is_required => {
                Step::Over(PendingPhase::Detecting(first), "speaks without TLS (tls.required)".into())
            }
            First::Native | First::Http2 if is_bare && client.is_some_and(RestrictedClient::needs_tls) => {
                Step::Over(PendingPhase::Detecting(first), "speaks without TLS (gateway.open_to)".into())
            }
            First::Native => Step::Native(first),
            First::Http2 => match Probed::of(&first) {
                Probed::Unclear => Step::Wait(PendingPhase::Detecting(first)),
                Probed::Asks => Step::Probed(first),
                Probed::Other => Step::Http(first),
            },
            First::Tls | First::Unknown => {
                Step::Over(PendingPhase::Detecting(first), "speaks nothing known here".into())
            }
        }
    }

    fn begin_server_tls(&self, stream: &mut Stream, first: &[u8], client: Option<&RestrictedClient>) -> Step {
        let Some(tls) = &self.tls.server else {
            return Step::Dismiss(
                TLS_REFUSAL,
                "speaks TLS, and there is no certificate (tls.certificate, tls.workload_api)",
            );
        };
        // A daemon that dials the gateway, or operators, is to speak gRPC there.
        let tls = if client.is_some() { &tls.for_grpc() } else { tls };
        match stream.begin_tls_server(tls, first) {
            Ok(()) => self.step(stream, PendingPhase::ServerTls, false, client),
            Err(error) => Step::Over(PendingPhase::ServerTls, error.to_string()),
        }
    }

    fn begin_client_tls(&self, stream: &mut Stream, dial: Dial, name: Option<String>) -> Step {
        let (Some(name), Some(tls)) = (name, &self.tls.client) else { return Step::Dialled(dial) };
        let offer: &[Alpn] = match dial.connection {
            Dialled::Native(_) => &[Alpn::Trunkline, Alpn::H2],
            Dialled::Grpc(_) => &[Alpn::H2],
        };
        match stream.begin_tls_client(tls, &name, offer) {
            Ok(()) => client_handshake(stream, dial),
            Err(error) => Step::Over(PendingPhase::ClientTls(dial), error.to_string()),
        }
    }

    fn begin_native(&mut self, peer: PeerKey, stream: Stream, first: &[u8], known: Option<UnidentifiedKey>) {
        give_rights(&mut self.engine, peer, &stream, &self.pending.call_rules);
        self.engine.native().connected(now(), peer);
        self.with_natives(|natives, lent| natives.begin(lent, peer, stream, first, known));
    }

    /// It is among the unidentified until it greets. One whose place was given away is so no more, or another shard
    /// could give the same place away once more: it greets now, or is the one that gives way.
    fn adopt_native(
        &mut self,
        stream: Stream,
        first: &[u8],
        unidentified: Option<UnidentifiedKey>,
        place: Identified,
    ) {
        let peer = self.engine.native().accept(now(), label(&stream));
        let is_owed = place != Identified::Stays;
        if let Some(key) = unidentified.filter(|_| !is_owed) {
            self.pending.places.unidentified.begins(self.index, key, peer);
        }
        self.begin_native(peer, stream, first, unidentified);
        if is_owed && unidentified.is_some_and(|key| self.sockets.is_unidentified(peer, key)) {
            self.with_natives(|natives, lent| natives.lose(lent, peer, GAVE_WAY));
        }
    }

    /// A dialled connection is ready. Where TLS was spoken, ALPN has the last word about the protocol.
    fn adopt_dialled(&mut self, stream: Stream, dial: Dial) {
        match (dial.connection, stream.alpn()) {
            (Dialled::Native(peer), Some(Alpn::H2)) => {
                if let Some(key) = self.engine.http().take_dialled(peer, identity(&stream)) {
                    self.with_https(|https, lent| https.begin_client(lent, key, stream, dial.endpoint));
                }
            }
            (Dialled::Native(_), None) if !dial.is_known => self.probe(stream, dial),
            (Dialled::Native(peer), _) => self.begin_native(peer, stream, &[], None),
            (Dialled::Grpc(key), _) => {
                self.engine.http().identified(key, identity(&stream));
                self.with_https(|https, lent| https.begin_client(lent, key, stream, dial.endpoint));
            }
        }
    }

    /// Asks a dialled endpoint what it speaks (`trunkline_native::PROBE`).
    fn probe(&mut self, mut stream: Stream, dial: Dial) {
        // The send buffer of a new connection takes so few bytes at once.
        match stream.write_vectored(&[IoSlice::new(&PROBE)]) {
            Ok(Transfer::Bytes(bytes)) if bytes == PROBE.len() => {}
            Ok(_) => return self.dialled_is_foreign(&dial, "takes nothing"),
            Err(error) => return self.dialled_is_foreign(&dial, &error.to_string()),
        }
        let id = self.pending.next_id();
        let (token, phase) = (Token::Pending(id).to_poller(), PendingPhase::Probing(dial, Vec::new()));
        let _ = self.poller.set_interest(&stream, token, phase.interest(&stream));
        let alarm = self.socket_timers.insert(now().plus_ns(PROBE_NS_MAX), Token::Pending(id));
        self.pending.open.insert(
            id,
            PendingConnection { stream, phase, alarm, was_put_off: false, client: None, unidentified: None },
        );
        // What TLS has read already, the poller does not tell.
        self.serve_pending(id, Ready { token, readable: true, writable: false, is_gone: false });
    }

    /// Who was asked does not speak the native protocol: it is called by gRPC.
    fn dialled_is_foreign(&mut self, dial: &Dial, why: &str) {
        tracing::debug!(endpoint = %dial.endpoint, why, "endpoint does not speak the native protocol");
        if let Dialled::Native(peer) = dial.connection {
            self.engine.peer_lost(&mut Turn { now: now(), heaps: &mut self.heaps }, peer, why);
            self.pressing = true;
        }
    }

    fn pending_failed(&mut self, stream: &Stream, phase: PendingPhase, why: &str) {
        match phase {
            PendingPhase::Connecting(dial, _) | PendingPhase::ClientTls(dial) => self.dial_failed(&dial, why),
            PendingPhase::Probing(dial, _) => self.dialled_is_foreign(&dial, why),
            // It is told by the log already.
            PendingPhase::Refusing(..) => {}
            PendingPhase::Detecting(_) | PendingPhase::ServerTls => {
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

#[cfg(test)]
mod tests {
    //! Shows that handshakes of TLS take a part of each look at the sockets, however many are asked for.
    use super::*;
    use crate::Daemon;
    use crate::handle::tests::shards_at_rest;
    use rcgen::{CertificateParams, KeyPair};
    use std::os::unix::net::UnixStream;
    use trunkline_net::{ClientFiles, Poller, TlsClient};

    #[test]
    fn many_handshakes_take_several_looks() {
        let (_daemon, mut shards) = shards_with_tls();
        let shard = &mut shards[0];
        let mut clients = greet(shard, 200);
        // Not every turn looks at sockets, and none does twice.
        let mut waiting = Vec::new();
        for _ in 0..100_000 {
            shard.turn();
            clients.retain_mut(|client| !client.handshake().unwrap());
            waiting.push(clients.len());
            if clients.is_empty() {
                let first = waiting.iter().find(|count| **count < 200);
                assert!(first.is_some_and(|count| *count > 0), "all were answered in one look");
                return;
            }
        }
        panic!("{} were never answered", clients.len());
    }

    /// Those that wait are told once, and then leave the places of each look to others. Who has gone is not waited for.
    #[test]
    fn handshakes_that_wait_do_not_fill_the_looks() {
        let (_daemon, mut shards) = shards_with_tls();
        let shard = &mut shards[0];
        let mut clients = greet(shard, 3 * Poller::EVENTS_MAX);
        // In three of them all were told.
        (0..5).for_each(|_| _ = shard.look_at_sockets(Some(0)));
        assert!(shard.pending.has_waiting() && shard.pressing);
        assert_eq!((shard.full_looks, shard.rest_ns()), (0, Some(0)));
        clients.truncate(2 * Poller::EVENTS_MAX);
        for _ in 0..100_000 {
            shard.turn();
            clients.retain_mut(|client| !client.handshake().unwrap());
            if clients.is_empty() && shard.pending.unsettled() == 0 {
                return;
            }
        }
        panic!("{} were never answered, {} not settled", clients.len(), shard.pending.unsettled());
    }

    fn shards_with_tls() -> (Daemon, Vec<Shard>) {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["search.internal".into()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let (at, key_at) = (folder.path().join("own.pem"), folder.path().join("own.key"));
        std::fs::write(&at, certificate.pem()).unwrap();
        std::fs::write(&key_at, key.serialize_pem()).unwrap();
        shards_at_rest(&format!(
            "[daemon]\nshards = 1\nconnections_max = 4096\n[tls]\ncertificate = {at:?}\nkey = {key_at:?}\n"
        ))
    }

    /// Clients that have said hello.
    fn greet(shard: &mut Shard, count: usize) -> Vec<Stream> {
        let anyone = ClientFiles { trusts_anyone: true, ..ClientFiles::default() };
        let anyone = TlsClient::load(&anyone).unwrap();
        let pairs = (0..count).map(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let [ours, mut theirs] = [ours, theirs].map(|end| {
                end.set_nonblocking(true).unwrap();
                Stream::inherit(end.into(), false).unwrap()
            });
            theirs.begin_tls_client(&anyone, "search.internal", &[Alpn::H2]).unwrap();
            assert!(!theirs.handshake().unwrap());
            shard.admit_accepted(ours, &Purpose::Peers);
            theirs
        });
        pairs.collect()
    }
}
