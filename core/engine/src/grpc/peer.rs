//! A connection to a peer that speaks gRPC, and what is known of it.

use super::stream::GrpcStream;
use super::window::ConnectionWindow;
use crate::call_line::CallLine;
use crate::gateway_client::CallRights;
use crate::held::{HELD_STREAM_BYTES, HeldBudget, HeldFull, Holding, source_of_peer};
use crate::item::Direction;
use crate::operator::Operator;
use crate::snapshot::{PeerRow, Protocol};
use crate::{CallKey, GrpcKey, RemoteKey};
use http::uri::Authority;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Instant, TimerKey};
use trunkline_grpc::compress::Accepts;
use trunkline_grpc::{StreamTag, TagMap};
use trunkline_telemetry::PeerIndex;

/// A connection and what the engine knows about it.
#[derive(Debug)]
pub struct GrpcPeer {
    /// Address, for operators.
    pub(crate) label: String,
    /// Who it proved to be.
    pub(crate) identity: PeerIdentity,
    /// The endpoint it was dialled for, if it was dialled here.
    pub(crate) remote: Option<RemoteKey>,
    /// It asks the daemon itself.
    pub(crate) operator: Option<Operator>,
    /// What it may call, if that is not everything.
    pub(crate) client: Option<CallRights>,
    /// It came to the gateway.
    pub(crate) forwards: bool,
    /// Its name in requests.
    pub(crate) authority: Authority,
    /// Streams that are not over: with a call, or with bytes still to leave.
    /// Boxed, so that a connection at rest does not keep room for four of them.
    pub(crate) streams: TagMap<Box<GrpcStream>>,
    /// Dialled: the peer takes streams.
    pub(crate) ready: bool,
    /// The peer said it is leaving, or was told that we are.
    pub(crate) leaving: bool,
    /// The connection was told to end.
    pub(crate) closed: bool,
    /// Dialled: encodings the peer has not refused.
    pub(crate) accepts: Accepts,
    /// Streams the peer takes at once.
    pub(crate) streams_max: u32,
    pub(crate) tags_used: u64,
    /// Bytes of messages that are not complete, or not passed on: the daemon holds them itself.
    pub(crate) arriving_bytes: usize,
    /// What its streams have taken of its window.
    pub(crate) window: ConnectionWindow,
    /// Bytes given to the connection that have not left.
    pub(crate) queued_bytes: u64,
    /// Bytes of requests kept to be sent again.
    pub(crate) replay_bytes: usize,
    /// What is booked for all of these.
    pub(crate) holding: Holding,
    /// When its streams are looked at next: one of them has a message that is not complete, or an answer that has not
    /// left and is not wanted for ever.
    pub(crate) sweep: Option<(Instant, TimerKey)>,
    /// Streams whose next message waits to be unpacked, each once. (Those that are over meanwhile are passed over.)
    pub(crate) unpacks: VecDeque<StreamTag>,
    /// Calls with an item that waits for room in the connection's queue.
    pub(crate) blocked: CallLine<(CallKey, Direction)>,
    /// Whether it is among those that are to be looked at, since they have changed.
    pub(crate) touched: bool,
    /// Its number in reports.
    pub(crate) telemetry: PeerIndex,
}

/// What a peer has proved about itself, by its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PeerIdentity {
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// Names its certificate carries, as a verified client certificate has them; none without one.
    pub names: Vec<String>,
    /// Its SPIFFE id, if its certificate carries one.
    pub spiffe_id: Option<String>,
}

impl PeerIdentity {
    /// What policies know the peer by: its SPIFFE id, else the first name in its certificate; empty without either.
    pub fn proven(&self) -> &str {
        let name = self.spiffe_id.as_ref().or(self.names.first());
        name.map_or("", String::as_str)
    }
}

impl GrpcPeer {
    /// What operators see of it.
    pub(crate) fn row(&self, key: GrpcKey, endpoint: impl FnOnce(RemoteKey) -> Option<Arc<str>>) -> PeerRow {
        PeerRow {
            id: key.to_bits() << 1 | 1,
            endpoint: self.remote.and_then(endpoint),
            protocol: Protocol::Grpc,
            label: self.label.clone(),
            node: self.identity.spiffe_id.clone().or_else(|| self.identity.names.first().cloned()),
            outgoing: self.remote.is_some(),
            streams: self.streams.len(),
            queued_bytes: self.queued_bytes,
        }
    }

    /// One that has just been made, here for an endpoint or by the peer.
    pub(crate) fn new(
        label: String,
        identity: PeerIdentity,
        remote: Option<RemoteKey>,
        telemetry: PeerIndex,
    ) -> Self {
        let holding = Holding::of(source_of_peer(&label, remote.is_some()));
        Self {
            authority: authority_of(&label),
            label,
            identity,
            remote,
            operator: None,
            client: None,
            forwards: false,
            streams: TagMap::default(),
            ready: false,
            leaving: false,
            closed: false,
            accepts: Accepts::ALL,
            streams_max: 0,
            tags_used: 0,
            arriving_bytes: 0,
            window: ConnectionWindow::default(),
            queued_bytes: 0,
            replay_bytes: 0,
            holding,
            sweep: None,
            unpacks: VecDeque::new(),
            blocked: CallLine::default(),
            touched: false,
            telemetry,
        }
    }

    /// Whether so much may be held for it as is.
    #[inline]
    pub(crate) fn book(&mut self, budget: &mut HeldBudget) -> Result<(), HeldFull> {
        let held_bytes = self.held_bytes();
        budget.book(&mut self.holding, held_bytes)
    }

    /// Whose call ends where no more may be held: that of which most has come and was not passed on, and of equals the
    /// one that asks. Nobody's, if nothing of that is held.
    pub(crate) fn payer(&self, asks: StreamTag) -> Option<CallKey> {
        let held = |stream: &GrpcStream| match stream.call {
            Some(_) if !stream.incoming.over => stream.incoming.held(),
            _ => 0,
        };
        let own = self.streams.get(&asks).filter(|own| held(own) > 0)?;
        let most = self.streams.values().max_by_key(|stream| held(stream))?;
        if held(most) > held(own) { most.call } else { own.call }
    }

    /// Less is held for it than was.
    #[inline]
    pub(crate) fn settle(&mut self, budget: &mut HeldBudget) {
        let held_bytes = self.held_bytes();
        budget.settle(&mut self.holding, held_bytes);
    }

    /// Bytes of messages that are not complete, or not passed on, have become more or fewer.
    pub(crate) fn note_held(&mut self, budget: &mut HeldBudget, change: isize) {
        self.arriving_bytes = self.arriving_bytes.saturating_add_signed(change);
        if change < 0 {
            self.settle(budget);
        }
    }

    /// What the daemon holds for it.
    fn held_bytes(&self) -> u64 {
        let kept = (self.arriving_bytes + self.replay_bytes) as u64;
        self.queued_bytes + kept + self.streams.len() as u64 * HELD_STREAM_BYTES
    }

    /// Where it comes from, as far as one party is behind it.
    pub(crate) fn source(&self) -> Box<str> {
        report_name(&self.label, self.remote.is_some()).into()
    }
}

/// What reports call it. A client's port says nothing and would make a peer of every connection.
pub(crate) fn report_name(label: &str, dialled: bool) -> String {
    let address = if dialled { label } else { label.rsplit_once(':').map_or(label, |(host, _)| host) };
    format!("grpc {address}")
}

/// `host:port` of an endpoint, or the name its certificate must have and the port, unless that is a SPIFFE id; a Unix
/// socket's peer is called localhost, as gRPC's libraries do. A user before an `@` has no place here (RFC 9113, section
/// 8.3.1), and neither has the port that is understood (RFC 9110, section 4.2.3).
fn authority_of(label: &str) -> Authority {
    let authority = match label.split_once("://") {
        Some(("tls", rest)) => {
            let whole = match rest.split_once('@') {
                Some((id, address)) if id.starts_with("spiffe://") => address.to_owned(),
                Some((name, address)) => address
                    .rsplit_once(':')
                    .map_or_else(|| rest.to_owned(), |(_, port)| format!("{name}:{port}")),
                None => rest.to_owned(),
            };
            Authority::try_from(whole.strip_suffix(":443").unwrap_or(&whole)).ok()
        }
        Some((_, address)) => Authority::try_from(address).ok(),
        None => None,
    };
    authority.unwrap_or(Authority::from_static("localhost"))
}

#[cfg(test)]
mod tests {
    //! Shows what a connection's requests say they are for.
    use super::*;

    #[test]
    fn authorities() {
        for (label, authority) in [
            ("tcp://10.0.0.7:50051", "10.0.0.7:50051"),
            ("tcp://10.0.0.7:443", "10.0.0.7:443"),
            ("tcp://[::1]:80", "[::1]:80"),
            ("tls://10.0.0.7:8443", "10.0.0.7:8443"),
            ("tls://10.0.0.7:443", "10.0.0.7"),
            ("tls://search.internal@10.0.0.7:443", "search.internal"),
            ("tls://search.internal@[::1]:8443", "search.internal:8443"),
            ("tls://spiffe://corp/search@10.0.0.7:7878", "10.0.0.7:7878"),
            ("tls://spiffe://corp/search@10.0.0.7:443", "10.0.0.7"),
            ("tls://spiffe://corp/search@[::1]:7878", "[::1]:7878"),
            ("unix:///run/a.sock", "localhost"),
            ("unix:a.sock", "localhost"),
        ] {
            assert_eq!(authority_of(label), authority, "{label}");
        }
    }
}
