//! A connection to another daemon, and what is known of it.

use crate::assembly::Assembly;
use crate::call_line::CallLine;
use crate::gateway_client::CallRights;
use crate::grpc::PeerIdentity;
use crate::held::{HELD_CALL_BYTES, HELD_METHOD_BYTES, HeldBudget, HeldFull, Holding, source_of_peer};
use crate::item::Direction;
use crate::registry::{MethodKey, MethodTypes};
use crate::remote::LaneIndex;
use crate::snapshot::{PeerRow, Protocol};
use crate::unproven::Unproven;
use crate::vouching::{CallersHeard, CallersSaid, PeerRule};
use crate::{CallKey, PeerKey, RemoteKey, SessionKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::entry::Span;
use trunkline_call::{Execution, Fault, Instant, KeyedMap, Status};
use trunkline_native::{Connection, MethodIndex, StreamId};
use trunkline_telemetry::PeerIndex;

/// A connection and what the engine knows about it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Peer {
    pub(crate) connection: Connection,
    /// Whose lane it is, if it was dialled here.
    pub(crate) lane: Option<(RemoteKey, LaneIndex)>,
    /// Address, for operators.
    pub(crate) label: String,
    /// Who it has proved to be.
    #[serde(default)]
    pub(crate) identity: PeerIdentity,
    /// It is a daemon of the operator's hosts: callers are named, and its word about them is taken. Said by the
    /// configuration, whenever the identity is.
    #[serde(skip)]
    pub(crate) is_host: bool,
    /// What it may call as a user of this host, if it is one. Said by the configuration, as `is_host` is.
    #[serde(skip)]
    pub(crate) rights: Option<CallRights>,
    /// It has ended because bytes were changed on their way.
    #[serde(skip)]
    pub(crate) is_corrupted: bool,
    /// Why it was closed here, if it was.
    #[serde(skip)]
    pub(crate) closed_for: Option<PeerFault>,
    /// Callers named to it. Another process names them anew.
    #[serde(skip)]
    pub(crate) callers_said: CallersSaid,
    /// Callers it has named.
    #[serde(default)]
    pub(crate) callers_heard: CallersHeard,
    /// Methods this side calls there.
    pub(crate) announced: KeyedMap<(MethodKey, [u64; 2]), MethodIndex>,
    /// The request types the peer last said it has for them. The connection goes by what was ever agreed, for that may
    /// be under way; what is sent goes by this.
    pub(crate) answers: KeyedMap<MethodIndex, u64>,
    /// Those of them from which nothing of an answer has come, by whose calls they were announced for.
    #[serde(skip)]
    pub(crate) unproven: Unproven<MethodKey>,
    /// When another connection may be dialled because few numbers of methods are left on this one.
    #[serde(skip)]
    pub(crate) renews_at: Instant,
    /// Methods the peer calls here, by its own numbers.
    pub(crate) offered: KeyedMap<MethodIndex, Offered>,
    /// Large messages on their way in.
    pub(crate) assemblies: KeyedMap<StreamId, Assembly>,
    /// Bytes of those that the daemon holds itself, once they are whole.
    pub(crate) assembling_bytes: usize,
    /// How many of them have not come: they are announced, and not booked.
    #[serde(skip)]
    pub(crate) missing_bytes: usize,
    /// Somebody looks in a while whether large messages go on.
    #[serde(skip)]
    pub(crate) is_looked_at: bool,
    /// What is booked for those, and for the methods it has announced.
    #[serde(skip)]
    pub(crate) holding: Holding,
    /// Calls with an item that waits for room in the connection's queue.
    pub(crate) blocked: CallLine<(CallKey, Direction)>,
    /// Whoever dialled it was asked to dial another, once: its peer, or this side.
    #[serde(default)]
    pub(crate) is_asked_to_redial: bool,
    /// Another has taken its place: it is closed with the last of its calls.
    #[serde(default)]
    pub(crate) is_replaced: bool,
    /// Whether it waits in line for the host to transmit.
    #[serde(skip)]
    pub(crate) in_line: bool,
    /// The clock instant it is booked for, so that each is booked once.
    pub(crate) timer_at: Option<Instant>,
    /// Its number in reports.
    #[serde(skip, default = "other")]
    pub(crate) telemetry: PeerIndex,
}

fn other() -> PeerIndex {
    PeerIndex::OTHER
}

/// A method this side calls at the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    pub index: MethodIndex,
    /// Whether the peer holds the same request type.
    pub agreed: bool,
}

/// A method the peer calls here.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Offered {
    /// Shared, because every call of it takes the whole of this along.
    pub path: Arc<str>,
    pub method: Option<MethodKey>,
    /// The peer's types.
    pub fingerprints: [u64; 2],
    /// What it was told of those here.
    pub answered: Option<[u64; 2]>,
    /// The types here that it was told of and holds too. A server with others may come later, and a linear request
    /// still be under way.
    pub agreed: Option<Arc<MethodTypes>>,
}

/// Why a connection must end: the peer broke the protocol, or what it said has changed on the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeerFault(pub String);

/// A connection that the host is to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwantedPeer {
    /// Which.
    pub key: PeerKey,
    /// Why, for the log.
    pub why: Cow<'static, str>,
    /// What is queued for the peer says it: it is written first, as far as the socket takes it at once.
    pub is_told: bool,
}

impl UnwantedPeer {
    /// No calls go over it.
    pub(crate) fn uncalled(key: PeerKey) -> Self {
        Self { key, why: "nobody here calls over it any more".into(), is_told: false }
    }
}

/// A send-heap range a connection reads from.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Lent {
    /// Whose heap.
    pub session: SessionKey,
    /// What is read.
    pub span: Span,
    /// The block it lies in, to be given back.
    pub(crate) block: Span,
    /// What the message took from its sender's window.
    pub(crate) window_bytes: u32,
    /// The call whose sender gets credit for it.
    pub(crate) call: CallKey,
    pub(crate) direction: Direction,
}

impl Offered {
    /// What it costs here.
    fn held_bytes(&self) -> u64 {
        self.path.len() as u64 + HELD_METHOD_BYTES
    }
}

impl Peer {
    /// What operators see of it.
    pub(crate) fn row(&self, key: PeerKey, endpoint: impl FnOnce(RemoteKey) -> Option<Arc<str>>) -> PeerRow {
        PeerRow {
            id: key.to_bits() << 1,
            endpoint: self.lane.and_then(|(remote, _)| endpoint(remote)),
            protocol: Protocol::Native,
            label: self.label.clone(),
            node: self.connection.peer().map(|said| said.node_name.clone()),
            outgoing: self.lane.is_some(),
            streams: self.connection.stream_count(),
            queued_bytes: self.connection.send_queue_bytes(),
        }
    }

    /// A connection of which nothing is known yet.
    pub(crate) fn new(
        connection: Connection,
        label: String,
        lane: Option<(RemoteKey, LaneIndex)>,
        holding: Holding,
    ) -> Self {
        Self {
            connection,
            lane,
            label,
            identity: PeerIdentity::default(),
            is_host: false,
            rights: None,
            is_corrupted: false,
            closed_for: None,
            callers_said: CallersSaid::default(),
            callers_heard: CallersHeard::default(),
            announced: KeyedMap::default(),
            answers: KeyedMap::default(),
            unproven: Unproven::default(),
            renews_at: Instant::default(),
            offered: KeyedMap::default(),
            assemblies: KeyedMap::default(),
            assembling_bytes: 0,
            missing_bytes: 0,
            is_looked_at: false,
            holding,
            blocked: CallLine::default(),
            is_asked_to_redial: false,
            is_replaced: false,
            in_line: false,
            timer_at: None,
            telemetry: PeerIndex::OTHER,
        }
    }

    /// A large message is complete, or will never be.
    pub(crate) fn take_assembly(&mut self, stream: StreamId) -> Option<Assembly> {
        let assembly = self.assemblies.remove(&stream)?;
        self.assembling_bytes = self.assembling_bytes.saturating_sub(assembly.private_bytes());
        self.missing_bytes = self.missing_bytes.saturating_sub(assembly.missing_bytes());
        Some(assembly)
    }

    /// Forgets methods that are not known here any more. If one is called again it has another key: it is announced
    /// anew, and what the peer has announced is found by its path.
    pub(crate) fn forget_methods(&mut self, knows: impl Fn(MethodKey) -> bool) {
        self.announced.retain(|(method, _), _| knows(*method));
        for offered in self.offered.values_mut() {
            offered.method = offered.method.filter(|method| knows(*method));
        }
    }

    /// Bytes of large messages that are held for it, and the calls it makes. Those that go there are held for whoever
    /// makes them.
    #[inline]
    pub(crate) fn held_bytes(&self) -> u64 {
        let calls = if self.lane.is_none() { self.connection.stream_count() as u64 } else { 0 };
        self.assembling_bytes.saturating_sub(self.missing_bytes) as u64 + calls * HELD_CALL_BYTES
    }

    /// So many bytes more are held for it, if its source may have them.
    pub(crate) fn hold(&mut self, budget: &mut HeldBudget, more: usize) -> Result<(), Fault> {
        let held_bytes = self.held_bytes() + more as u64;
        budget.book(&mut self.holding, held_bytes).map_err(HeldFull::fault)?;
        self.assembling_bytes += more;
        Ok(())
    }

    /// It announces a large message of so many bytes, which are to be held for it when they come. One for which there
    /// would be no room now is not to come at all.
    pub(crate) fn await_bytes(&mut self, budget: &mut HeldBudget, bytes: usize) -> Result<(), Fault> {
        let held_bytes = self.held_bytes();
        let may = budget.book(&mut self.holding, held_bytes + bytes as u64);
        budget.settle(&mut self.holding, held_bytes);
        may.map_err(HeldFull::fault)?;
        self.assembling_bytes += bytes;
        self.missing_bytes += bytes;
        Ok(())
    }

    /// Bytes of a large message come, up to so far from its beginning, if its source may have them.
    pub(crate) fn take_bytes(
        &mut self,
        budget: &mut HeldBudget,
        stream: StreamId,
        end: usize,
    ) -> Result<(), Fault> {
        let coming_bytes = self.assemblies.get(&stream).map_or(0, |assembly| assembly.coming_bytes(end));
        if coming_bytes > 0 {
            let held_bytes = self.held_bytes() + coming_bytes as u64;
            budget.book(&mut self.holding, held_bytes).map_err(HeldFull::fault)?;
            self.missing_bytes = self.missing_bytes.saturating_sub(coming_bytes);
        }
        Ok(())
    }

    /// Whether it may call a service: by what rules say of the network, and of users of this host.
    ///
    /// # Errors
    /// Why not, and which rule says so.
    pub(crate) fn may_call(&self, rules: &[PeerRule], service: &str) -> Result<(), Status> {
        PeerRule::check(rules, self.identity.proven(), service)?;
        match &self.rights {
            Some(rights) if !self.is_host => rights.check(service),
            _ => Ok(()),
        }
    }

    /// It announces a method, if its source may have so much more.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn take_offer(
        &mut self,
        budget: &mut HeldBudget,
        index: MethodIndex,
        offered: Offered,
    ) -> Result<(), HeldFull> {
        let held_bytes = self.held_bytes();
        budget.keep(&mut self.holding, held_bytes, offered.held_bytes())?;
        self.offered.insert(index, offered);
        Ok(())
    }

    /// It comes from another process, where its bytes were booked: they are held here from now on, be there room or
    /// not.
    pub(crate) fn book_again(&mut self, budget: &mut HeldBudget) {
        self.holding = Holding::of(source_of_peer(&self.label, self.lane.is_some()));
        self.holding.keeps(self.offered.values().map(Offered::held_bytes).sum());
        let held_bytes = self.held_bytes();
        let _ = budget.book(&mut self.holding, held_bytes);
    }

    /// Whether another has taken its place, and nothing is left of its calls.
    pub(crate) fn has_left(&self) -> bool {
        self.is_replaced && self.connection.stream_count() == 0 && self.blocked.is_empty()
    }

    /// What a call's end is that the connection took along.
    pub(crate) fn lost_with(&self, executed: Execution) -> Fault {
        let endpoint = self.label.clone();
        if self.is_corrupted {
            Fault::Corrupted { endpoint, executed }
        } else {
            Fault::ConnectionLost { endpoint, executed }
        }
    }

    /// Whether a request of this type may go out linear: the peer has agreed, and not changed its mind.
    pub(crate) fn takes_linear(&self, method: MethodIndex, fingerprint: u64) -> bool {
        self.connection.agreed(method).0 && self.answers.get(&method) == Some(&fingerprint)
    }
}

/// What the daemon at the other end says of its host, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClaim<'p> {
    pub name: &'p str,
    pub clock_id: u64,
    pub label: &'p str,
}

/// The claim of a peer that has said hello.
pub(crate) fn claim_of(peer: &Peer) -> Option<HostClaim<'_>> {
    let said = peer.connection.peer()?;
    Some(HostClaim { name: &said.node_name, clock_id: said.clock_id, label: &peer.label })
}

/// How reports begin the names of what is no daemon: gRPC and R2P2 ends are known by their addresses.
const OUR_PREFIXES: [&str; 2] = ["grpc ", "r2p2 "];
/// What is in names that reports make: of hosts that claim another's, and of endpoints. Quotes are in no other.
const OUR_PARTS: [&str; 3] = [" at ", "://", "\""];

/// What reports call a host. A name is a claim: two hosts that make the same one, clones of a machine or one that takes
/// another's for its own, are told apart, or each would spoil the other's figures and what is known of its clock. Names
/// in brackets, those that say a protocol first (`grpc 10.0.0.5:80`), endpoints and what is said of a second host of a
/// name (`web-1 at 10.0.0.9`) are our own: a host that claims one is told with quotes.
pub(crate) fn reported_name<'p>(
    claim: HostClaim<'p>,
    mut others: impl Iterator<Item = HostClaim<'p>>,
) -> String {
    let HostClaim { name, clock_id, label } = claim;
    let place = label.rsplit_once(':').map_or(label, |(host, _port)| host);
    if name.is_empty() {
        return label.to_owned();
    }
    if OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || OUR_PARTS.iter().any(|part| name.contains(part))
    {
        return format!("\"{}\" at {place}", name.replace('"', "'"));
    }
    let is_another = others.any(|other| other.name == name && other.clock_id != clock_id);
    if is_another || name.starts_with('(') {
        format!("{name} at {place}").replace(['(', ')'], "")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that no host is called as another that is connected, nor as what is no host.
    use super::*;

    #[test]
    fn a_name_is_a_claim() {
        let claim = |name: &'static str, clock_id, label| HostClaim { name, clock_id, label };
        let web = claim("web-1", 7, "10.0.0.1:40000");
        let of = |claim: HostClaim<'static>| reported_name(claim, [web].into_iter());
        assert_eq!(of(claim("web-2", 7, "10.0.0.2:1")), "web-2");
        assert_eq!(of(claim("web-1", 7, "10.0.0.1:2")), "web-1", "another connection of the host");
        assert_eq!(of(claim("web-1", 8, "10.0.0.9:3")), "web-1 at 10.0.0.9");
        assert_eq!(of(claim("(local)", 9, "[::1]:3")), "local at [::1]");
        assert_eq!(of(claim("r2p2 10.0.0.5:9000", 9, "10.0.0.9:3")), "\"r2p2 10.0.0.5:9000\" at 10.0.0.9");
        for name in ["web-1 at 10.0.0.9", "tcp://10.0.0.5:7878", "\"r2p2 10.0.0.5:9000\" at 10.0.0.9"] {
            let told = of(claim(name, 9, "10.0.0.7:3"));
            assert_eq!(told, format!("\"{}\" at 10.0.0.7", name.replace('"', "'")));
        }
        assert_eq!(of(claim("", 9, "10.0.0.9:3")), "10.0.0.9:3");
    }
}
