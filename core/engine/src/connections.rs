//! What sessions say, and what the host tells of its connections and datagrams and asks of them. What follows for calls
//! is in `arrive.rs`.

use crate::call::ServerEnd;
use crate::end_event::EndEvent;
use crate::engine::{Engine, Turn};
use crate::gateway::Gateway;
use crate::gateway_client::{CallRights, GatewaySettings};
use crate::grpc::{PeerIdentity, WebStream};
use crate::operator::Operator;
use crate::peers::{Piece, SentCall};
use crate::r2p2_settings::{R2p2Port, R2p2Settings};
use crate::remote::{Dialled, LaneIndex};
use crate::{GrpcKey, Heaps, PeerFault, PeerKey, SessionFault, SessionKey};
use core::net::SocketAddrV4;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_call::entry::{Entry, Submission};
use trunkline_grpc::{Command, Event};
use trunkline_native::Input;
use trunkline_r2p2::Transmit;

impl Engine {
    /// Takes one submission of a session.
    ///
    /// # Errors
    /// [`SessionFault`] if the application broke the ABI; the host detaches it. Everything else ends in a completion.
    pub fn handle_submission(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        raw: &Entry,
    ) -> Result<(), SessionFault> {
        self.sessions.discard_abandoned(turn.heaps);
        let mut follows = EndEvent::Nothing;
        let said = Submission::decode(raw);
        self.session_entries().take(turn.now, turn.heaps, session, said, &mut follows)?;
        match follows {
            // Half of all entries, and nothing is left of it to be thrown away.
            EndEvent::Released(released) => self.go_on_released(turn, &released),
            ref mut other => self.carry_out_event(turn, other),
        }
        self.go_on(turn);
        Ok(())
    }

    /// Takes in a connection somebody made to us. `label` is its address, for operators.
    pub fn accept_peer(&mut self, now: Instant, label: String) -> PeerKey {
        self.peers.insert(now, label, None)
    }

    /// A connection has its socket: the other end is asked from now on.
    pub fn peer_connected(&mut self, now: Instant, key: PeerKey) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.connected(now);
        }
    }

    /// Says who the other end of a connection has proved to be, by its certificate or the kernel's word.
    pub fn peer_identified(&mut self, key: PeerKey, identity: PeerIdentity) {
        self.peers.identified(key, identity);
    }

    /// Says what the other end of a connection may call as a user of this host. One of the operator's daemons calls for
    /// others, whose rights it has looked at itself.
    pub fn peer_has_rights(&mut self, key: PeerKey, rights: CallRights) {
        self.peers.has_rights(key, rights);
    }

    /// Whether a connection has said its hello.
    pub fn has_greeted(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.connection.peer().is_some())
    }

    /// Whether a connection was made by this side.
    pub fn was_dialled(&self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.lane.is_some())
    }

    /// Bytes of a connection, known to be there since `arrived` (before they were read, so that reading counts as stack
    /// and not as wire). The read buffer begins with what [`Engine::resume`] put there.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer broke the protocol. The host transmits what is still queued (the reason, for the
    /// peer), closes the socket and calls [`Engine::peer_lost`].
    pub fn handle_input(
        &mut self,
        turn: &mut Turn<'_>,
        key: PeerKey,
        arrived: Instant,
        bytes: &[u8],
    ) -> Result<(), PeerFault> {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        let mut input = Input::new(bytes);
        loop {
            let Some(peer) = self.peers.find_mut(key) else { return Ok(()) };
            match peer.connection.handle_bytes(turn.now, &mut input) {
                Ok(Some(event)) => self.take_peer_event(turn, key, event),
                Ok(None) => break,
                Err(error) => {
                    peer.is_corrupted = error.is_corruption();
                    let closed_for = peer.closed_for.take();
                    self.peers.transmit(key);
                    return Err(closed_for.unwrap_or_else(|| PeerFault(error.to_string())));
                }
            }
        }
        self.settle_peer(turn, key);
        Ok(())
    }

    /// Puts the beginning of a cut frame to the front of the read buffer: the host reads behind it.
    pub fn resume(&mut self, key: PeerKey, buffer: &mut [u8]) -> usize {
        self.peers.find_mut(key).map_or(0, |peer| peer.connection.resume(buffer))
    }

    /// The memory the next bytes of the socket belong in, if they are the body of a large message: the host may read
    /// straight into it and report with [`Engine::placed`].
    pub fn wanted<'a>(&'a mut self, heaps: &'a mut dyn Heaps, key: PeerKey) -> Option<&'a mut [u8]> {
        self.peers.wanted(&mut self.held, heaps, key)
    }

    /// So many bytes, known to be there since `arrived`, were read into the memory [`Engine::wanted`] named.
    pub fn placed(&mut self, turn: &mut Turn<'_>, key: PeerKey, arrived: Instant, bytes: usize) {
        self.arrived = arrived;
        let Some(peer) = self.peers.find_mut(key) else { return };
        if let Some(event) = peer.connection.placed(turn.now, bytes as u32) {
            self.take_peer_event(turn, key, event);
        }
        self.settle_peer(turn, key);
    }

    /// Whether a connection is for large messages only.
    pub fn is_bulk(&self, key: PeerKey) -> bool {
        let lane = self.peers.find(key).and_then(|peer| peer.lane);
        matches!(lane, Some((_, LaneIndex::Bulk)))
    }

    /// Puts a connection in line for the host to transmit.
    pub fn transmit(&mut self, key: PeerKey) {
        self.peers.transmit(key);
    }

    /// A connection with bytes to write.
    pub fn poll_transmitting(&mut self) -> Option<PeerKey> {
        self.peers.poll_transmitting()
    }

    /// What to write next, in order: about `bytes_max`.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        key: PeerKey,
        bytes_max: usize,
    ) -> impl Iterator<Item = Piece<'_>> {
        self.peers.poll_transmit(now, key, bytes_max)
    }

    /// The socket took so many of those bytes. The call whose request ended with the last of them, if one did.
    pub fn transmitted(&mut self, turn: &mut Turn<'_>, key: PeerKey, bytes: usize) -> Option<SentCall> {
        let last = self.peer_events().transmitted(key, bytes);
        self.settle_peer(turn, key);
        last
    }

    /// The kernel says when the last byte of a call's request left this host.
    pub fn note_sent(&mut self, call: SentCall, at: Instant) {
        if let Some(call) = self.calls.find_mut(call.key())
            && matches!(call.server, ServerEnd::Peer { .. })
        {
            call.client_stamps.k6 = at;
        }
    }

    /// The connection is over: its calls end, those that never left as *not executed*.
    pub fn peer_lost(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str) {
        self.lose_peer(turn, key, why, true);
    }

    /// The next name to look up. Every one is to be answered with [`Engine::handle_looked_up`], sooner or later.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.remotes.names.wanted.pop_front()
    }

    /// The next name that is to be looked up no more. To be asked for before [`Engine::poll_lookup`]: a name may come
    /// again.
    pub fn poll_name_forgotten(&mut self) -> Option<Arc<str>> {
        self.remotes.names.forgotten.pop_front()
    }

    /// What a name stands for by now, or why that is not known. What stood there before stays when nothing is known.
    pub fn handle_looked_up(&mut self, turn: &mut Turn<'_>, name: &str, found: Result<&[String], &str>) {
        let Some((key, has_changed)) = self.remotes.looked_up(name, found, self.limits.endpoints) else {
            return;
        };
        if has_changed {
            self.clusters.regather(&self.remotes, key);
            self.reach().forget_unwanted();
        }
        self.serve_line(turn, key);
        for name in self.clusters.names_beside(&self.remotes, key) {
            self.serve_line(turn, name);
        }
    }

    /// A connection that was dialled as native turns out to speak HTTP/2 (TLS has agreed on `h2`): from here on it is
    /// the key returned. `None` if the connection is not one that was dialled here.
    pub fn dialled_speaks_grpc(&mut self, key: PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        self.reach().dialled_speaks_grpc(key, identity)
    }

    /// A dialled endpoint did not answer. (One that did speaks for itself, by its hello.)
    pub fn handle_dial_failed(&mut self, turn: &mut Turn<'_>, connection: Dialled, why: &str) {
        match connection {
            Dialled::Native(key) => self.lose_peer(turn, key, why, false),
            Dialled::Grpc(key) => self.grpc_lost(turn, key, why),
        }
    }

    /// How R2P2 is spoken; [`R2p2Settings::default`] until this is called. To be said before anybody calls.
    pub fn configure_r2p2(&mut self, now: Instant, settings: R2p2Settings) {
        self.r2p2.configure(now, settings, &self.limits);
    }

    /// Takes a datagram, known to be there since `arrived`. It did not come before `came`: what is not known to be
    /// younger may be a copy of a request that is over, and forgotten.
    pub fn handle_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        port: R2p2Port,
        (came, arrived): (Instant, Instant),
        from: SocketAddrV4,
        datagram: &[u8],
    ) {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        self.r2p2.handle_datagram(turn.now, port, came, from, datagram);
        self.take_r2p2_events(turn);
        self.go_on(turn);
    }

    /// Whether requests wait to be sent, which [`Engine::set_datagram_ages`] is to be told of first.
    pub fn sends_r2p2_requests(&self) -> bool {
        self.r2p2.client_sends()
    }

    /// Datagrams are sent now: [`trunkline_r2p2::Client::set_ages`].
    pub fn set_datagram_ages(&mut self, now: Instant) {
        self.r2p2.set_ages(now);
    }

    /// The next datagram to send, and from which port.
    pub fn poll_datagram(&mut self) -> Option<(R2p2Port, Transmit)> {
        self.r2p2.poll_datagram()
    }

    /// How the gateway works; [`GatewaySettings::default`] until this is called. To be called before policies are
    /// applied.
    pub fn configure_gateway(&mut self, settings: GatewaySettings) {
        self.gateway = Gateway::new(settings);
    }

    /// Takes in an HTTP/2 connection somebody made to us. `label` is its address, for operators.
    pub fn accept_grpc(&mut self, label: String, identity: PeerIdentity) -> GrpcKey {
        let key = self.reach().insert_grpc(label, identity, None);
        if self.draining {
            self.grpc.command(key, Command::GoAway);
        }
        key
    }

    /// Takes in an HTTP/2 connection of an operator.
    pub fn accept_operator(&mut self, operator: Operator) -> GrpcKey {
        let label = format!("operator {}", operator.identity);
        let key = self.accept_grpc(label, PeerIdentity::default());
        self.grpc.note_operator(key, operator);
        key
    }

    /// Takes in an HTTP/2 connection of a client of the gateway. `label` is its address, for operators.
    pub fn accept_at_gateway(
        &mut self,
        label: String,
        identity: PeerIdentity,
        client: CallRights,
    ) -> GrpcKey {
        let key = self.accept_grpc(label, identity);
        self.grpc.note_client(key, client, true);
        key
    }

    /// Takes in an HTTP/2 connection of a user of this host, for what its applications serve.
    pub fn accept_user(&mut self, label: String, identity: PeerIdentity, client: CallRights) -> GrpcKey {
        let key = self.accept_grpc(label, identity);
        self.grpc.note_client(key, client, false);
        key
    }

    /// A dialled connection proved who it is.
    pub fn grpc_identified(&mut self, key: GrpcKey, identity: PeerIdentity) {
        self.grpc.identify(key, identity);
    }

    // LIFE: 12 gRPC
    /// Takes in what happened on a connection, known since `arrived`.
    ///
    /// # Errors
    /// [`PeerFault`] if the connection says what cannot be; the host closes it and calls [`Engine::grpc_lost`].
    pub fn handle_http(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        arrived: Instant,
        event: Event,
    ) -> Result<(), PeerFault> {
        self.arrived = arrived;
        self.sessions.discard_abandoned(turn.heaps);
        let follows = match event {
            Event::Request { stream, head, end } => {
                let at = WebStream { peer, tag: stream };
                self.grpc_openings().handle_request(turn.now, at, &head, end)?
            }
            event => self.grpc_events().take(turn.now, peer, event),
        };
        if let Some(mut follows) = follows {
            self.carry_out_event(turn, &mut follows);
        }
        self.go_on(turn);
        Ok(())
    }

    /// What a connection is to do next.
    pub fn poll_http(&mut self) -> Option<(GrpcKey, Command)> {
        self.grpc.poll_command()
    }

    /// The connection is over: calls made over it end, and so do calls that came from it.
    pub fn grpc_lost(&mut self, turn: &mut Turn<'_>, key: GrpcKey, why: &str) {
        let Some((calls, remote)) = self.grpc.handle_lost(key) else { return };
        if remote.is_none() {
            // Whose calls they were is known until they have ended: the access log names it.
            calls.iter().for_each(|call| self.cancel(turn, *call));
        }
        let Some(lost) = self.grpc_events().remove(key, &calls) else { return };
        self.note_host_left(turn.now, lost.number);
        for (call, fault) in lost.made {
            self.fail(turn, call, fault);
        }
        if let Some(remote) = remote
            && self.reach().pooled_lost(turn.now, remote, key, why)
        {
            self.line_goes_on(turn, remote);
        }
        self.go_on(turn);
    }
}
