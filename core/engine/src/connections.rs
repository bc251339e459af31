//! What the host does with connections and datagrams, beside telling what has come: it takes connections in, says who
//! is there, and asks what is to be sent. [`Engine`] is told what has come, since calls follow from that.
//!
//! [`Engine`]: crate::Engine

use crate::call::{Calls, ServerEnd};
use crate::gateway_client::CallRights;
use crate::grpc::PeerIdentity;
use crate::held::HeldBudget;
use crate::operator::Operator;
use crate::peers::{PeerEnds, Piece, SentCall};
use crate::r2p2::R2p2;
use crate::r2p2_settings::R2p2Port;
use crate::reach::EndpointReach;
use crate::remote::LaneIndex;
use crate::{GrpcKey, Heaps, PeerKey, UnwantedPeer};
use trunkline_call::Instant;
use trunkline_grpc::Command;
use trunkline_r2p2::Transmit;

/// The connections to other daemons.
pub struct NativeConnections<'e> {
    pub(crate) peers: &'e mut PeerEnds,
    pub(crate) calls: &'e mut Calls,
    pub(crate) held: &'e mut HeldBudget,
}

impl<'e> NativeConnections<'e> {
    /// Takes in a connection somebody made to us. `label` is its address, for operators.
    pub fn accept(self, now: Instant, label: String) -> PeerKey {
        self.peers.insert(now, label, None)
    }

    /// A connection has its socket: the other end is asked from now on.
    pub fn connected(self, now: Instant, key: PeerKey) {
        if let Some(peer) = self.peers.find_mut(key) {
            peer.connection.connected(now);
        }
    }

    /// Says who the other end of a connection has proved to be, by its certificate or the kernel's word.
    pub fn identified(self, key: PeerKey, identity: PeerIdentity) {
        self.peers.identified(key, identity);
    }

    /// Says what the other end of a connection may call as a user of this host. One of the operator's daemons calls for
    /// others, whose rights it has looked at itself.
    pub fn has_rights(self, key: PeerKey, rights: CallRights) {
        self.peers.has_rights(key, rights);
    }

    /// The kernel says when the last byte of a call's request left this host.
    pub fn note_sent(self, call: SentCall, at: Instant) {
        if let Some(call) = self.calls.find_mut(call.key())
            && matches!(call.server, ServerEnd::Peer { .. })
        {
            call.client_stamps.k6 = at;
        }
    }

    /// Puts the beginning of a cut frame to the front of the read buffer: the host reads behind it.
    #[inline]
    pub fn resume(self, key: PeerKey, buffer: &mut [u8]) -> usize {
        self.peers.find_mut(key).map_or(0, |peer| peer.connection.resume(buffer))
    }

    /// The memory the next bytes of the socket belong in, if they are the body of a large message: the host may read
    /// straight into it and report with [`Engine::placed`](crate::Engine::placed).
    #[inline]
    pub fn wanted(self, heaps: &'e mut dyn Heaps, key: PeerKey) -> Option<&'e mut [u8]> {
        self.peers.wanted(self.held, heaps, key)
    }

    /// Puts a connection in line for the host to transmit.
    #[inline]
    pub fn transmit(self, key: PeerKey) {
        self.peers.transmit(key);
    }

    /// A connection with bytes to write.
    #[inline]
    pub fn poll_transmitting(self) -> Option<PeerKey> {
        self.peers.poll_transmitting()
    }

    /// What to write next, in order: about `bytes_max`.
    #[inline]
    pub fn poll_transmit(
        self,
        now: Instant,
        key: PeerKey,
        bytes_max: usize,
    ) -> impl Iterator<Item = Piece<'e>> {
        self.peers.poll_transmit(now, key, bytes_max)
    }

    /// A connection to be closed: nobody calls there any more, its peer keeps silent or has said that it leaves, or its
    /// time is over. The host closes it and says so by [`Engine::peer_lost`](crate::Engine::peer_lost).
    pub fn poll_unwanted(self) -> Option<UnwantedPeer> {
        self.peers.poll_unwanted()
    }

    /// Whether a connection has said its hello.
    pub fn has_greeted(self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.connection.peer().is_some())
    }

    /// Whether a connection was made by this side.
    pub fn was_dialled(self, key: PeerKey) -> bool {
        self.peers.find(key).is_some_and(|peer| peer.lane.is_some())
    }

    /// Whether a connection is for large messages only.
    #[inline]
    pub fn is_bulk(self, key: PeerKey) -> bool {
        let lane = self.peers.find(key).and_then(|peer| peer.lane);
        matches!(lane, Some((_, LaneIndex::Bulk)))
    }
}

/// The HTTP/2 connections.
pub struct HttpConnections<'e> {
    pub(crate) reach: EndpointReach<'e>,
    /// No new calls are taken: whoever connects is told so.
    pub(crate) draining: bool,
}

impl HttpConnections<'_> {
    /// Takes in a connection somebody made to us. `label` is its address, for operators.
    pub fn accept(mut self, label: String, identity: PeerIdentity) -> GrpcKey {
        self.insert(label, identity)
    }

    /// Takes in a connection of an operator.
    pub fn accept_operator(mut self, operator: Operator) -> GrpcKey {
        let label = format!("operator {}", operator.identity);
        let key = self.insert(label, PeerIdentity::default());
        self.reach.grpc.note_operator(key, operator);
        key
    }

    /// Takes in a connection of a client of the gateway. `label` is its address, for operators.
    pub fn accept_at_gateway(mut self, label: String, identity: PeerIdentity, client: CallRights) -> GrpcKey {
        let key = self.insert(label, identity);
        self.reach.grpc.note_client(key, client, true);
        key
    }

    /// Takes in a connection of a user of this host, for what its applications serve.
    pub fn accept_user(mut self, label: String, identity: PeerIdentity, client: CallRights) -> GrpcKey {
        let key = self.insert(label, identity);
        self.reach.grpc.note_client(key, client, false);
        key
    }

    /// A connection that was dialled as native turns out to speak HTTP/2 (TLS has agreed on `h2`): from here on it is
    /// the key returned. `None` if the connection is not one that was dialled here.
    pub fn take_dialled(mut self, key: PeerKey, identity: PeerIdentity) -> Option<GrpcKey> {
        self.reach.dialled_speaks_grpc(key, identity)
    }

    /// A dialled connection proved who it is.
    pub fn identified(self, key: GrpcKey, identity: PeerIdentity) {
        self.reach.grpc.identify(key, identity);
    }

    /// What a connection is to do next.
    #[inline]
    pub fn poll(self) -> Option<(GrpcKey, Command)> {
        self.reach.grpc.poll_command()
    }

    fn insert(&mut self, label: String, identity: PeerIdentity) -> GrpcKey {
        let key = self.reach.insert_grpc(label, identity, None);
        if self.draining {
            self.reach.grpc.command(key, Command::GoAway);
        }
        key
    }
}

/// The datagrams of R2P2 that go out.
pub struct OutgoingDatagrams<'e> {
    pub(crate) r2p2: &'e mut R2p2,
}

impl OutgoingDatagrams<'_> {
    /// Whether requests wait to be sent, which [`OutgoingDatagrams::set_ages`] is to be told of first.
    pub fn have_requests(self) -> bool {
        self.r2p2.client_sends()
    }

    /// Datagrams are sent now: [`trunkline_r2p2::Client::set_ages`].
    pub fn set_ages(self, now: Instant) {
        self.r2p2.set_ages(now);
    }

    /// The next datagram to send, and from which port.
    #[inline]
    pub fn poll(self) -> Option<(R2p2Port, Transmit)> {
        self.r2p2.poll_datagram()
    }
}
