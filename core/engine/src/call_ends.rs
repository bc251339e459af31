//! A call as its ends see it: the types of its messages, and what a native connection says of it.

use crate::call::{Call, ClientEnd, Direction, ServerEnd};
use crate::registry::{Form, MethodTypes};
use crate::{PeerKey, SessionKey};
use std::sync::Arc;
use trunkline_call::{Encoding, Instant, SERVER_TRAILER_BYTES, ServerStamps};
use trunkline_native::{StreamId, Trailer};
use trunkline_telemetry::PeerIndex;

impl Call {
    /// The types of the session that sends in this direction, or of a call that is forwarded.
    pub fn sender_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.types_sent(direction).cloned()
    }

    pub fn types_sent(&self, direction: Direction) -> Option<&Arc<MethodTypes>> {
        match direction {
            Direction::Request => match &self.client {
                ClientEnd::Session { types, .. }
                | ClientEnd::Attempt { types, .. }
                | ClientEnd::Mirror { types, .. } => Some(types),
                ClientEnd::Grpc { types, .. } | ClientEnd::Shard { types, .. } => types.as_ref(),
                ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. } => None,
            },
            Direction::Response => match &self.server {
                ServerEnd::Session { types, .. } | ServerEnd::Shard { types, .. } => Some(types),
                ServerEnd::Nobody
                | ServerEnd::Cluster { .. }
                | ServerEnd::Attempts
                | ServerEnd::Peer { .. }
                | ServerEnd::Grpc { .. }
                | ServerEnd::R2p2 { .. } => None,
            },
        }
    }

    /// The form of the messages the end has that sends in this direction, as far as it is known with the call; linear
    /// ones of a peer have the type this host told it of.
    pub fn form_sent(&self, direction: Direction) -> Option<&Form> {
        let types = match (direction, &self.client) {
            (Direction::Request, ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. }) => self.agreed.as_ref(),
            // What it is follows from the gateway's settings.
            (Direction::Request, ClientEnd::Grpc { .. }) => None,
            _ => self.types_sent(direction),
        };
        types.map(|types| types.of(direction))
    }

    /// Whether messages stream in this direction.
    pub fn streams(&self, direction: Direction) -> bool {
        let types = self.types_sent(direction).or_else(|| self.types_sent(direction.opposite()));
        types.is_some_and(|types| match direction {
            Direction::Request => types.pattern.client_streams(),
            Direction::Response => types.pattern.server_streams(),
        })
    }

    /// Those of the end the direction leads to.
    pub fn receiver_types(&self, direction: Direction) -> Option<Arc<MethodTypes>> {
        self.sender_types(direction.opposite())
    }

    /// The session a message of this direction is meant for, if that takes it as it comes from another daemon.
    pub fn taken_as_it_comes(&self, direction: Direction, encoding: Encoding) -> Option<SessionKey> {
        let (session, form) = match (direction, &self.client, &self.server) {
            (Direction::Response, ClientEnd::Session { session, types, .. }, _) => (*session, &types.output),
            (Direction::Request, _, ServerEnd::Session { session, types }) => (*session, &types.input),
            _ => return None,
        };
        let as_it_comes = match (encoding, form) {
            (Encoding::Protobuf, form) => form.is_opaque(),
            (Encoding::Linear, Form::Opaque) => false,
            (Encoding::Linear, Form::Typed(wanted)) => {
                direction == Direction::Response
                    || self.agreed_input().is_none_or(|of| of == wanted.fingerprint)
            }
        };
        as_it_comes.then_some(session)
    }

    /// A stream at a peer is its server end from now on.
    pub fn opened_at(&mut self, peer: PeerKey, stream: StreamId, number: Option<PeerIndex>, now: Instant) {
        self.server = ServerEnd::Peer { peer, stream };
        self.handed_over = true;
        self.peer_index = number.unwrap_or(self.peer_index);
        self.client_stamps.d3 = now;
    }

    /// The response begins to arrive: from here on time is response stack, and the server's part is known.
    pub fn answer_begins(&mut self, arrived: Instant, now: Instant, trailer: Option<&Trailer>) {
        (self.client_stamps.k15, self.client_stamps.d16) = (arrived, now);
        if let Some(trailer) = trailer {
            self.server_stamps = ServerStamps::decode(trailer);
            self.server_measured = true;
        }
    }

    /// A large message is here.
    pub fn message_is_whole(&mut self, direction: Direction, arrived: Instant, now: Instant) {
        match direction {
            Direction::Request => (self.server_stamps.k7, self.server_stamps.d8) = (arrived, now),
            Direction::Response => (self.client_stamps.k15, self.client_stamps.d16) = (arrived, now),
        }
    }

    /// The server's stamps. The connection says in them when they leave.
    pub fn trailer(&mut self, now: Instant) -> [u8; SERVER_TRAILER_BYTES] {
        self.server_stamps.k14 = now;
        trunkline_telemetry::settle(&self.server_stamps).encode()
    }
}

impl MethodTypes {
    /// The form of messages in this direction.
    pub fn of(&self, direction: Direction) -> &Form {
        match direction {
            Direction::Request => &self.input,
            Direction::Response => &self.output,
        }
    }
}
