//! `[limits]`: what one shard holds at most.

use super::Bytes;
use serde::{Deserialize, Serialize};
use trunkline_engine::Limits;

/// `[limits]`: what one shard holds at most; the reasons stand at [`Limits`], key by key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "the names and their reasons are those of `trunkline_engine::Limits`")]
pub struct LimitKeys {
    pub calls_made_per_session: usize,
    pub calls_delivered_per_session: usize,
    pub stream_window_bytes: Bytes,
    pub routes_per_session: usize,
    pub routes_per_user: usize,
    pub methods_learned_per_service: usize,
    pub parked_bytes_per_session: Bytes,
    pub assembling_bytes_per_peer: Bytes,
    pub calls_waiting_per_endpoint: usize,
    pub endpoints: usize,
    pub endpoints_per_user: usize,
    pub message_bytes: Bytes,
    pub linear_growth: u32,
    pub inline_body_bytes: Bytes,
    pub bulk_body_bytes: Bytes,
    pub connection_queue_bytes: Bytes,
    pub grpc_message_bytes: Bytes,
    pub grpc_connections_per_endpoint: usize,
    pub grpc_replay_bytes_per_call: Bytes,
    pub grpc_replay_bytes_per_peer: Bytes,
    pub attempts_bytes: Bytes,
    pub attempts_percent: u32,
    pub attempts_per_second: u32,
    pub mirror_bytes: Bytes,
    /// Zero: one and a half times `assembling_bytes_per_peer`.
    pub held_bytes_per_source: Bytes,
    /// Zero: three times that of a source.
    pub held_bytes: Bytes,
    pub message_stall_s: u32,
}

impl LimitKeys {
    /// The engine's limits.
    ///
    /// Written out field by field, so that a limit without a key does not compile.
    pub(super) fn resolved(&self) -> Limits {
        Limits {
            calls_made_per_session: self.calls_made_per_session,
            calls_delivered_per_session: self.calls_delivered_per_session,
            stream_window_bytes: self.stream_window_bytes.as_u32(),
            routes_per_session: self.routes_per_session,
            routes_per_user: self.routes_per_user,
            methods_learned_per_service: self.methods_learned_per_service,
            parked_bytes_per_session: self.parked_bytes_per_session.as_usize(),
            assembling_bytes_per_peer: self.assembling_bytes_per_peer.as_usize(),
            calls_waiting_per_endpoint: self.calls_waiting_per_endpoint,
            endpoints: self.endpoints,
            endpoints_per_user: match self.endpoints_per_user {
                0 => self.endpoints - self.endpoints / 4,
                endpoints => endpoints,
            },
            message_bytes: self.message_bytes.as_u32(),
            linear_growth: self.linear_growth,
            inline_body_bytes: self.inline_body_bytes.as_u32(),
            bulk_body_bytes: self.bulk_body_bytes.as_u32(),
            connection_queue_bytes: self.connection_queue_bytes.as_usize(),
            grpc_message_bytes: self.grpc_message_bytes.as_u32(),
            grpc_connections_per_endpoint: self.grpc_connections_per_endpoint,
            grpc_replay_bytes_per_call: self.grpc_replay_bytes_per_call.as_usize(),
            grpc_replay_bytes_per_peer: self.grpc_replay_bytes_per_peer.as_usize(),
            attempts_bytes: self.attempts_bytes.as_usize(),
            attempts_percent: self.attempts_percent,
            attempts_per_second: self.attempts_per_second,
            mirror_bytes: self.mirror_bytes.as_usize(),
            held_bytes_per_source: self.of_source().as_usize(),
            held_bytes: self.of_host().as_usize(),
            message_stall_s: self.message_stall_s,
        }
    }

    /// What may be held for one source: as said, or by what may arrive for one connection; a third of what may be held
    /// in all, where that is said: one source is not to have what all have.
    fn of_source(&self) -> Bytes {
        let usual = Bytes((self.assembling_bytes_per_peer.0 / 2).saturating_mul(3));
        match (self.held_bytes_per_source, self.held_bytes) {
            (Bytes(0), Bytes(0)) => usual,
            (Bytes(0), Bytes(all)) => usual.min(Bytes((all / 3).max(1))),
            (said, _) => said,
        }
    }

    /// What may be held in all: as said, or by what may be held for one source.
    fn of_host(&self) -> Bytes {
        match self.held_bytes {
            Bytes(0) => Bytes(self.of_source().0.saturating_mul(3)),
            said => said,
        }
    }
}

impl Default for LimitKeys {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            calls_made_per_session: limits.calls_made_per_session,
            calls_delivered_per_session: limits.calls_delivered_per_session,
            stream_window_bytes: limits.stream_window_bytes.into(),
            routes_per_session: limits.routes_per_session,
            routes_per_user: limits.routes_per_user,
            methods_learned_per_service: limits.methods_learned_per_service,
            parked_bytes_per_session: limits.parked_bytes_per_session.into(),
            assembling_bytes_per_peer: limits.assembling_bytes_per_peer.into(),
            calls_waiting_per_endpoint: limits.calls_waiting_per_endpoint,
            endpoints: limits.endpoints,
            endpoints_per_user: 0,
            message_bytes: limits.message_bytes.into(),
            linear_growth: limits.linear_growth,
            inline_body_bytes: limits.inline_body_bytes.into(),
            bulk_body_bytes: limits.bulk_body_bytes.into(),
            connection_queue_bytes: limits.connection_queue_bytes.into(),
            grpc_message_bytes: limits.grpc_message_bytes.into(),
            grpc_connections_per_endpoint: limits.grpc_connections_per_endpoint,
            grpc_replay_bytes_per_call: limits.grpc_replay_bytes_per_call.into(),
            grpc_replay_bytes_per_peer: limits.grpc_replay_bytes_per_peer.into(),
            attempts_bytes: limits.attempts_bytes.into(),
            attempts_percent: limits.attempts_percent,
            attempts_per_second: limits.attempts_per_second,
            mirror_bytes: limits.mirror_bytes.into(),
            held_bytes_per_source: Bytes(0),
            held_bytes: Bytes(0),
            message_stall_s: limits.message_stall_s,
        }
    }
}
