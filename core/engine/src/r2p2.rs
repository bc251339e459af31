//! R2P2 in the engine: its two ports, and whose their requests are.
//!
//! One client makes the calls of this host's sessions from one UDP port; if the host serves, one server takes those of
//! others on another. Both are cores of their own (`trunkline_r2p2`): datagrams in and out, events up, commands down.
//! `r2p2_events.rs` makes items of the events (`r2p2_messages.rs`), `r2p2_end.rs` requests and replies of the items,
//! `r2p2_remote.rs` finds out whether anybody is there.

use crate::call::{Call, ServerEnd};
use crate::convert::Scratch;
use crate::limits::{Limits, R2P2_REPLY};
use crate::r2p2_made::{CALLS_MADE, MadeCalls};
use crate::r2p2_messages::{RequestRefused, as_protobuf, fault_of};
use crate::r2p2_remote::Ungreeted;
use crate::r2p2_settings::{R2p2Port, R2p2Settings};
use crate::remote::{Remotes, Speaks};
use crate::snapshot::{PeerRow, Protocol};
use crate::{CallKey, RemoteKey};
use bytes::Bytes;
use core::net::{Ipv4Addr, SocketAddrV4};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline_call::{Code, Execution, Fault, Instant, KeyedMap, ServerStamps, Status};
use trunkline_grpc::Outcome;
use trunkline_r2p2::{
    CallFailure, CallName, Client, ClientEvent, ClientState, Mode, NewCall, Reason, Refused, ReplyEnvelope,
    RequestKey, Server, ServerEvent, ServerState, Timing, Transmit, Unsound,
};
use trunkline_telemetry::{PeerIndex, Telemetry, settle};

/// Marks the numbers of rows that are no connection's, and of those the outgoing ones.
const R2P2_ROW: u64 = 1 << 63;
const R2P2_OUTGOING: u64 = 1 << 62;

/// The ports and the books.
#[derive(Debug, Default, Serialize)]
pub(crate) struct R2p2 {
    #[serde(skip)]
    settings: R2p2Settings,
    #[serde(skip)]
    seed: u64,
    client: Option<Client>,
    server: Option<Server>,
    /// Calls of peers by the request they are, until they are answered.
    served: KeyedMap<RequestKey, Serving>,
    /// Calls made, until they are answered.
    #[serde(flatten)]
    pub made: MadeCalls,
    /// Requests whose calls are over and were never answered: nobody waits for them.
    unanswered: Vec<RequestKey>,
    /// Numbers of other hosts in reports.
    #[serde(skip)]
    numbers: KeyedMap<Named, PeerIndex>,
}

/// What is read of another's.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct R2p2State {
    client: Option<ClientState>,
    server: Option<ServerState>,
    served: KeyedMap<RequestKey, Serving>,
    #[serde(flatten)]
    made: MadeCalls,
    unanswered: Vec<RequestKey>,
}

/// A call of a peer.
#[derive(Debug, Serialize, Deserialize)]
struct Serving {
    call: CallKey,
    /// Leading metadata of the handler, which leaves with the reply.
    headers: Option<ByteBuf>,
}

/// Another host, as reports tell hosts apart: servers by address, clients without their port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Named {
    Server(SocketAddrV4),
    Client(Ipv4Addr),
}

/// Hosts whose number is remembered. Further ones share a line in reports.
const NUMBERS_MAX: usize = 4096;

impl R2p2 {
    pub fn seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// The client, made when it is first used: its port need not exist before.
    pub fn client(&mut self, limits: &Limits) -> &mut Client {
        let Self { settings, seed, client, .. } = self;
        client.get_or_insert_with(|| Client::new(Arc::new(settings.config(limits)), *seed))
    }

    /// What the client's port has to tell.
    pub fn poll_client_event(&mut self) -> Option<ClientEvent> {
        self.client.as_mut()?.poll_event()
    }

    /// What the server's port has to tell.
    pub fn poll_server_event(&mut self) -> Option<ServerEvent> {
        self.server.as_mut()?.poll_event()
    }

    /// Greets an endpoint, after so many greetings before. If no id is free for that, it rests for a while.
    pub fn greet(
        &mut self,
        now: Instant,
        limits: &Limits,
        remotes: &mut Remotes,
        remote: RemoteKey,
        before: u32,
    ) {
        let Some(known) = remotes.r2p2_mut(remote) else { return };
        let greeting = known.greet(now, remote.to_bits(), before);
        if self.client(limits).call(now, greeting).is_err() {
            // Every id is in use.
            known.not_sent();
            remotes.dial_failed(now, remote, "too many calls are in flight over R2P2");
        }
    }

    /// A greeting was answered, or not. Whether those in line try now.
    pub fn handle_greeting(
        &mut self,
        now: Instant,
        limits: &Limits,
        remotes: &mut Remotes,
        remote: RemoteKey,
        failure: Option<CallFailure>,
    ) -> bool {
        let Some(failure) = failure else {
            let Some(found) = remotes.find_mut(remote) else { return false };
            found.connected(Speaks::R2p2);
            if let Some(known) = &mut found.r2p2 {
                known.greeted(self.client(limits));
            }
            return true;
        };
        match remotes.r2p2_mut(remote).and_then(|known| known.not_greeted(failure)) {
            Some(Ungreeted::GreetAgain(before)) => self.greet(now, limits, remotes, remote, before),
            Some(Ungreeted::GiveUp) => {
                remotes.dial_failed(now, remote, &failure.to_string());
                return true;
            }
            None => {}
        }
        false
    }

    /// Sends a call's request again, as protobuf: a server could not read it, and did not execute it. `linear` is what
    /// was sent, and empty if that was no linear message.
    ///
    /// # Errors
    /// What ends the call.
    pub fn send_again(
        &mut self,
        now: Instant,
        limits: &Limits,
        (key, call): (CallKey, &mut Call),
        remotes: (&mut Remotes, RemoteKey),
        scratch: &mut Scratch,
        linear: &Bytes,
    ) -> Result<(), Fault> {
        let again = as_protobuf(call, scratch, linear)?;
        let (remotes, remote) = remotes;
        if let Some(known) = remotes.r2p2_mut(remote) {
            known.disagrees(now, call.method);
        }
        call.resent += 1;
        let target = remotes.r2p2_target(remote).ok_or_else(|| Fault::NoRoute { what: "endpoint".into() })?;
        let name = self.send(now, limits, (key, call), target, again)?;
        call.server = ServerEnd::R2p2 { name, remote };
        Ok(())
    }

    /// A request of a peer is this call, until it is answered.
    pub fn serve(&mut self, request: RequestKey, call: CallKey) {
        self.served.insert(request, Serving { call, headers: None });
    }

    /// The call that a request of a peer is.
    pub fn call_of(&self, request: RequestKey) -> Option<CallKey> {
        self.served.get(&request).map(|serving| serving.call)
    }

    /// Leading metadata of a handler: the first leaves with the reply.
    pub fn keep_headers(&mut self, request: RequestKey, metadata: &[u8]) {
        if let Some(serving) = self.served.get_mut(&request) {
            serving.headers.get_or_insert_with(|| ByteBuf::from(metadata));
        }
    }

    /// A request of a peer has been answered, or nobody waits for its answer any more.
    pub fn leave_request(&mut self, request: RequestKey) {
        if self.served.remove(&request).is_some() {
            self.unanswered.push(request);
        }
    }

    /// A call made is over: nobody waits for its reply.
    pub fn cancel(&mut self, remotes: &mut Remotes, call: CallKey, name: CallName) {
        self.made.forget(remotes, call);
        if let Some(client) = &mut self.client {
            client.cancel(name);
        }
    }

    /// No new requests are taken.
    pub fn leave(&mut self, now: Instant) {
        if let Some(server) = &mut self.server {
            server.leave(now);
        }
    }

    /// Calls made to an endpoint and not ended.
    pub fn in_flight(&self, target: SocketAddrV4) -> usize {
        self.client.as_ref().map_or(0, |client| client.in_flight(target))
    }

    /// What operators see of it: endpoints that have answered, and clients with requests here, each port a row.
    pub fn rows<'a>(
        &self,
        endpoints: impl Iterator<Item = (RemoteKey, &'a Arc<str>, SocketAddrV4)>,
    ) -> Vec<PeerRow> {
        let row = |id, endpoint: Option<Arc<str>>, address: SocketAddrV4, streams| PeerRow {
            id: R2P2_ROW | id,
            outgoing: endpoint.is_some(),
            endpoint,
            protocol: Protocol::R2p2,
            label: address.to_string(),
            node: None,
            streams,
            queued_bytes: 0,
        };
        let mut clients: BTreeMap<SocketAddrV4, usize> = BTreeMap::new();
        for request in self.served.keys() {
            *clients.entry(request.client()).or_default() += 1;
        }
        let clients = clients.into_iter().map(|(address, streams)| {
            let id = u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port());
            row(id, None, address, streams)
        });
        let servers = endpoints.map(|(key, endpoint, target)| {
            let id = R2P2_OUTGOING | key.to_bits() & (R2P2_OUTGOING - 1);
            row(id, Some(Arc::clone(endpoint)), target, self.in_flight(target))
        });
        servers.chain(clients).collect()
    }

    /// Forgets what an endpoint speaks that nobody calls any more.
    pub fn forget_target(&mut self, target: SocketAddrV4) {
        if let Some(client) = &mut self.client {
            client.forget_target(target);
        }
    }

    /// Bytes held for peers: messages of which a part is here, and long replies that have not arrived.
    pub fn held_bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, Client::held_bytes);
        client + self.server.as_ref().map_or(0, Server::held_bytes)
    }

    /// Bytes held of requests that have ended.
    pub fn remembered_bytes(&self) -> usize {
        self.server.as_ref().map_or(0, Server::remembered_bytes)
    }

    /// Sends a call's request. What it is called there.
    ///
    /// # Errors
    /// The limit at which it ends.
    pub fn send(
        &mut self,
        now: Instant,
        limits: &Limits,
        (key, call): (CallKey, &Call),
        target: SocketAddrV4,
        body: Bytes,
    ) -> Result<CallName, Fault> {
        let (class, sticky) = (call.choice.class.unwrap_or(0), call.choice.sticky == Some(true));
        let (tag, deadline) = (key.to_bits(), call.deadline);
        let new = NewCall { tag, target, sticky, class, deadline, body };
        self.client(limits).call(now, new).map_err(|refused| match refused {
            Refused::Calls { limit } => Fault::Limit { name: CALLS_MADE, limit: limit as u64 },
            Refused::TooLong { limit, .. } => Fault::Limit {
                name: "bytes of an R2P2 request (limits.message_bytes; less in the compatible mode)",
                limit: limit as u64,
            },
        })
    }

    /// Sends a reply that says nothing of a handler. `false` if it is too long to be one, or there is no room for it:
    /// then nothing was sent.
    pub fn reply(&mut self, now: Instant, request: RequestKey, reply: &ReplyEnvelope<'_>) -> bool {
        let Some(server) = &mut self.server else { return true };
        let fits = |bytes: &Vec<u8>| {
            bytes.len() <= server.reply_bytes_max(request) && server.room_for(request, bytes.len()).is_ok()
        };
        let Some(bytes) = reply.encode().filter(fits) else { return false };
        server.reply(now, request, bytes.into(), None, Timing::default());
        true
    }

    /// Answers a request that never becomes a call. `said` is how a status of this host is put to others.
    pub fn refuse(
        &mut self,
        now: Instant,
        request: RequestKey,
        why: &RequestRefused,
        said: impl FnOnce(&Status) -> Status,
    ) {
        let outcome = match why {
            RequestRefused::Refused(status) => Outcome::of(&said(status)),
            RequestRefused::Unreadable { fingerprint } => {
                let reply = ReplyEnvelope::of(Code::Internal, Execution::NotExecuted);
                let reply = ReplyEnvelope { is_unreadable: true, fingerprint: *fingerprint, ..reply };
                self.reply(now, request, &reply);
                return;
            }
        };
        let reply = ReplyEnvelope {
            trailers: &outcome.metadata,
            ..ReplyEnvelope::of(outcome.code, outcome.execution)
        };
        let sent = self.reply(now, request, &reply);
        if let Some(server) = self.server.as_mut().filter(|_| !sent) {
            // Words as long as the path they name need room.
            server.refuse(now, request, Reason::Busy);
        }
    }

    /// Answers a request with its handler's reply, which has the headers that the handler has said before. `measured`:
    /// what is known of the time its call took.
    ///
    /// # Errors
    /// The limit at which the call ends instead.
    pub fn finish(
        &mut self,
        now: Instant,
        request: RequestKey,
        reply: ReplyEnvelope<'_>,
        measured: Option<&ServerStamps>,
    ) -> Result<(), Fault> {
        let headers = self.served.get_mut(&request).and_then(|serving| serving.headers.take());
        let headers = headers.as_ref().map(|headers| headers.as_slice());
        let encoded = ReplyEnvelope { headers, ..reply }.encode();
        let limit = self.server.as_ref().map_or(usize::MAX, |server| server.reply_bytes_max(request));
        let Some(encoded) = encoded.filter(|encoded| encoded.len() <= limit) else {
            return Err(Fault::Limit { name: R2P2_REPLY, limit: limit as u64 });
        };
        if let Some(server) = &self.server {
            server.room_for(request, encoded.len()).map_err(fault_of)?;
        }
        self.served.remove(&request);
        if let Some(server) = &mut self.server {
            let trailer = measured.map(|stamps| settle(stamps).encode());
            let timing = measured.map_or_else(Timing::default, |stamps| Timing {
                queue_ns: stamps.a10.since_ns(stamps.k7),
                service_ns: stamps.a11.since_ns(stamps.a10),
            });
            server.reply(now, request, encoded.into(), trailer, timing);
        }
        Ok(())
    }
}

impl R2p2 {
    /// Goes on with what another process had. Where that served, and this does not, its requests have no server.
    ///
    /// # Errors
    /// [`Unsound`].
    pub fn take_up(&mut self, state: R2p2State, limits: &Limits) -> Result<(), Unsound> {
        if let Some(client) = state.client {
            self.client(limits).take_up(client)?;
        }
        if let (Some(server), Some(moved)) = (&mut self.server, state.server) {
            server.take_up(moved)?;
        }
        (self.served, self.unanswered) = (state.served, state.unanswered);
        self.made.take_up(state.made);
        Ok(())
    }

    /// How R2P2 is spoken from now on.
    pub fn configure(&mut self, now: Instant, settings: R2p2Settings, limits: &Limits) {
        let config = settings.config(limits);
        self.server = settings.serves.then(|| Server::new(Arc::new(config), now));
        self.settings = settings;
    }

    /// Takes a datagram that came to a port at `came`, or later.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        port: R2p2Port,
        came: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
    ) {
        match port {
            R2p2Port::Client => {
                if let Some(client) = &mut self.client {
                    client.handle_datagram(now, from, datagram);
                }
            }
            R2p2Port::Server => {
                if let Some(server) = &mut self.server {
                    server.handle_datagram(now, came, from, datagram);
                }
            }
        }
    }

    /// Whether calls wait to be sent.
    pub fn client_sends(&self) -> bool {
        self.client.as_ref().is_some_and(Client::sends)
    }

    /// Calls are sent now.
    pub fn set_ages(&mut self, now: Instant) {
        if let Some(client) = &mut self.client {
            client.set_ages(now);
        }
    }

    /// The next datagram to send, and from which port.
    pub fn poll_datagram(&mut self) -> Option<(R2p2Port, Transmit)> {
        if let Some(transmit) = self.client.as_mut().and_then(Client::poll_transmit) {
            return Some((R2p2Port::Client, transmit));
        }
        let transmit = self.server.as_mut()?.poll_transmit()?;
        Some((R2p2Port::Server, transmit))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(client) = &mut self.client {
            client.handle_timeout(now);
        }
        if let Some(server) = &mut self.server {
            server.handle_timeout(now);
        }
    }

    /// When that is wanted next.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let client = self.client.as_mut().and_then(Client::next_timeout);
        let server = self.server.as_mut().and_then(Server::next_timeout);
        client.into_iter().chain(server).min()
    }

    /// Whether a request is to be answered, or a call that waits for others may go on.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        !self.unanswered.is_empty() || self.made.may_go_on()
    }

    /// Answers requests whose calls are over.
    pub fn answer_unanswered(&mut self, now: Instant) {
        while let Some(key) = self.unanswered.pop() {
            if let Some(server) = &mut self.server {
                server.reply(now, key, Bytes::new(), None, Timing::default());
            }
        }
    }

    /// The number of another host in reports, where it gets one if it has none.
    pub fn number(&mut self, host: Named, telemetry: &mut Telemetry) -> PeerIndex {
        if let Some(number) = self.numbers.get(&host) {
            return *number;
        }
        if self.numbers.len() >= NUMBERS_MAX {
            return PeerIndex::OTHER;
        }
        let name = match host {
            Named::Server(address) => format!("r2p2 {address}"),
            Named::Client(address) => format!("r2p2 {address}"),
        };
        let number = telemetry.peer(&name, false);
        self.numbers.insert(host, number);
        number
    }

    /// Forgets the numbers of hosts that are not counted any more.
    pub fn forget_numbers(&mut self, is_counted: impl Fn(PeerIndex) -> bool) {
        self.numbers.retain(|_, number| is_counted(*number));
    }

    /// Whether a call made is still under way.
    pub fn makes(&self, name: CallName) -> bool {
        self.client.as_ref().is_some_and(|client| client.has(name))
    }

    /// Whether a request of a peer can still be answered.
    pub fn can_answer(&self, request: RequestKey) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_executing(request))
    }

    /// Requests whose call did not come along are answered by nobody else.
    pub fn disown_strays(&mut self) {
        let Some(server) = &self.server else { return };
        let strays = server.executing().into_iter().filter(|request| !self.served.contains_key(request));
        self.unanswered.extend(strays);
    }
}

/// Whose address a request came from, for policies and logs.
pub(crate) fn label_of(client: SocketAddrV4) -> String {
    format!("r2p2://{client}")
}
