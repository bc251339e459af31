//! What goes from shard to shard.

use super::spares::Spares;
use crate::named_peer::NamedPeer;
use crate::registry::MethodTypes;
use crate::shared_queue::PlacesAsked;
use crate::trace::Trace;
use crate::{GrpcKey, PeerKey, SessionKey};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trunkline_call::entry::MessageCompression;
use trunkline_call::{
    Caller, Code, Deadline, Encoding, Execution, ServerStamps, VouchedCaller, WorkerChoice,
};

/// Names a shard of a host: its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardIndex(pub u16);

/// One thing that goes from one shard of a host to another.
#[derive(Debug, Serialize, Deserialize)]
pub struct Crossing(pub(crate) ShardSaid);

impl Crossing {
    /// What says who is where goes ahead of what is said about calls: two sessions that change places would wait for
    /// each other, each for the word that it has arrived.
    pub(crate) fn goes_ahead(&self) -> bool {
        matches!(self.0, ShardSaid::Offers(_) | ShardSaid::Arrived | ShardSaid::Moved { .. })
    }

    pub(crate) fn says_what_was_used(&self) -> bool {
        matches!(self.0, ShardSaid::Taken(_))
    }
}

/// What is said. Calls go by the number they have at the shard that makes them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ShardSaid {
    /// A call begins.
    Open(Box<ShardOpening>),
    /// A message of its request.
    Message { call: u64, body: Box<CrossedBody>, end: bool },
    /// No more of them.
    HalfClose { call: u64 },
    /// Nobody waits for it any more.
    Cancel { call: u64, code: Code },
    /// It is served there: what follows its opening may come.
    Accepted { call: u64 },
    /// Nobody there serves its method any more. The opening is as it came, and nobody has seen it.
    Returned(Box<ShardOpening>),
    /// Headers of its response.
    Headers {
        call: u64,
        #[serde(with = "serde_bytes")]
        metadata: Vec<u8>,
    },
    /// A message of its response, and the types of who has sent it.
    Reply { call: u64, body: Box<CrossedBody>, types: Option<Arc<MethodTypes>> },
    /// Its end.
    Finish(Box<ShardFinish>),
    /// Whoever sends may send so many bytes more: of the response if it goes `back`, else of the request.
    Credit { call: u64, back: bool, bytes: u32 },
    /// Messages of these senders were used.
    Taken(Vec<(Payer, u64)>),
    /// All that the shard serves.
    Offers(Arc<Offers>),
    /// Calls wait there for places of this policy (`wanted`), or one of them is free.
    Places { policy: Box<str>, wanted: bool },
    /// Calls wait there for workers of the service this path is of.
    Wanted { path: Arc<str>, wish: PlacesAsked },
    /// A worker there has a place kept for one of them.
    Vacant { path: Arc<str> },
    /// None of them takes it.
    Unused { path: Arc<str> },
    /// A session that has moved there is there: what concerns its calls may follow.
    Arrived,
    /// What a session serves that has moved from the shard that says so.
    Moved { to: ShardIndex, offers: Arc<Offers> },
    /// The memory of openings and ends that came from there: they go back to whom they are from. It says nothing, and
    /// does not go on in another process.
    #[serde(skip)]
    Spares(Box<Spares<ShardOpening, ShardFinish>>),
}

/// The beginning of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShardOpening {
    pub call: u64,
    pub path: Arc<str>,
    /// Those of whoever makes it, if they are known.
    pub types: Option<Arc<MethodTypes>>,
    pub origin: Arc<Origin>,
    /// The caller's shard writes its line into the access log.
    pub logged: bool,
    pub trace: Option<Box<Trace>>,
    pub choice: WorkerChoice,
    pub deadline: Deadline,
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    pub body: Option<Box<CrossedBody>>,
    pub end: bool,
    /// It has the place that is kept for its shard. Places do not go on in another process.
    #[serde(skip)]
    pub kept: bool,
    /// What it has waited before it crossed that is the server's receive queue, in nanoseconds: for a free worker.
    #[serde(default)]
    pub receive_wait_ns: u64,
    /// Of one that is returned: what its shard serves then, as [`Offers::version`] counts.
    #[serde(default)]
    pub version: u64,
}

impl Default for ShardOpening {
    /// Of nothing yet: a box to be filled.
    fn default() -> Self {
        Self {
            call: 0,
            path: Arc::from(""),
            types: None,
            origin: Arc::new(Origin::Gone),
            logged: false,
            trace: None,
            choice: WorkerChoice::default(),
            deadline: Deadline::NONE,
            metadata: Vec::new(),
            body: None,
            end: false,
            kept: false,
            receive_wait_ns: 0,
            version: 0,
        }
    }
}

/// The end of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ShardFinish {
    pub call: u64,
    pub code: Code,
    pub execution: Execution,
    #[serde(with = "serde_bytes")]
    pub metadata: Vec<u8>,
    pub body: Option<Box<CrossedBody>>,
    pub types: Option<Arc<MethodTypes>>,
    /// When things happened there, if its handler has said so.
    pub stamps: ServerStamps,
    pub measured: bool,
    /// The other host that has served it: its session was on that shard when it was made.
    #[serde(default)]
    pub peer: Option<Box<NamedPeer>>,
}

impl Default for ShardFinish {
    /// Of nothing yet: a box to be filled.
    fn default() -> Self {
        Self {
            call: 0,
            code: Code::Unknown,
            execution: Execution::Unknown,
            metadata: Vec::new(),
            body: None,
            types: None,
            stamps: ServerStamps::default(),
            measured: false,
            peer: None,
        }
    }
}

/// A message that has crossed: a private copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CrossedBody {
    /// A linear one with its header.
    #[serde(with = "trunkline_call::octets")]
    pub bytes: Vec<u8>,
    pub encoding: Encoding,
    /// As of [`crate::item::Body::compression`].
    #[serde(default)]
    pub compression: MessageCompression,
    /// What it took of its sender's window.
    pub charged: u32,
    /// The shard it comes from, which is told when it was used.
    pub from: ShardIndex,
    pub payer: Payer,
}

impl Default for CrossedBody {
    /// Of nothing yet: a box to be filled.
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            encoding: Encoding::Protobuf,
            compression: MessageCompression::Unsaid,
            charged: 0,
            from: ShardIndex(0),
            payer: Payer::R2p2,
        }
    }
}

/// Whose messages they are that are under way between shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Payer {
    Session(SessionKey),
    Peer(PeerKey),
    Grpc(GrpcKey),
    R2p2,
}

/// Who makes a call, for the shard that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// An application of this host: label and identity.
    Application {
        label: Box<str>,
        identity: Box<str>,
        #[serde(default)]
        described: Arc<VouchedCaller>,
    },
    /// An application of another host, by the daemon there.
    Daemon {
        address: Box<str>,
        node: Box<str>,
        #[serde(default)]
        identity: Box<str>,
        #[serde(default)]
        vouched: Option<Box<VouchedCaller>>,
    },
    /// A gRPC client.
    Grpc { address: Box<str>, identity: Box<str>, encrypted: bool },
    /// A client of R2P2.
    R2p2 { address: Box<str> },
    /// Somebody who has gone.
    Gone,
}

/// What policies know an application by: its label without the process.
pub(crate) fn application_of(label: &str) -> &str {
    label.rsplit_once('[').map_or(label, |(name, _)| name)
}

/// How far a call is at the shard it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShardStage {
    /// Its opening has not crossed.
    Chosen,
    /// It has, and nothing may follow yet.
    Opened,
    /// What follows may cross.
    Accepted,
}

/// All that a shard serves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Offers {
    pub methods: Vec<MethodOffer>,
    /// Services, and the users that serve them.
    pub owners: Vec<(Box<str>, Box<str>)>,
    /// Rises whenever that changes.
    #[serde(default)]
    pub version: u64,
}

/// A method, or a whole service, that sessions of a shard serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MethodOffer {
    pub types: Arc<MethodTypes>,
    /// Only while nobody else does.
    pub stands_by: bool,
    /// How many sessions.
    pub workers: u32,
}

impl Origin {
    /// What policies know the application by; empty if it is none of this host.
    pub fn application(&self) -> &str {
        match self {
            Self::Application { label, .. } => application_of(label),
            Self::Daemon { .. } | Self::Grpc { .. } | Self::R2p2 { .. } | Self::Gone => "",
        }
    }

    /// Of who comes by a connection.
    pub fn of(caller: Option<Caller>) -> Self {
        match caller {
            Some(Caller::Daemon { address, node, identity, vouched }) => {
                let (address, node, identity) = (address.into(), node.into(), identity.into());
                Self::Daemon { address, node, identity, vouched }
            }
            Some(Caller::Grpc { address, identity, encrypted }) => {
                Self::Grpc { address: address.into(), identity: identity.into(), encrypted }
            }
            Some(Caller::R2p2 { address }) => Self::R2p2 { address: address.into() },
            _ => Self::Gone,
        }
    }

    /// What its caller is called in logs, and what sticky calls of it have in common.
    pub fn label(&self) -> &str {
        match self {
            Self::Application { label, .. } => label,
            Self::Daemon { address, .. } | Self::Grpc { address, .. } | Self::R2p2 { address } => address,
            Self::Gone => "",
        }
    }

    /// Its address and identity, as policies know them.
    pub fn address_and_identity(&self) -> (&str, &str) {
        match self {
            Self::Application { identity, .. } => ("", identity),
            Self::R2p2 { address } => (address, ""),
            Self::Daemon { address, identity, .. } | Self::Grpc { address, identity, .. } => {
                (address, identity)
            }
            Self::Gone => ("", ""),
        }
    }

    /// What is known of the process that makes the call, here or by the word of another host.
    pub fn described(&self) -> Option<&VouchedCaller> {
        match self {
            Self::Application { described, .. } => Some(described),
            Self::Daemon { vouched, .. } => vouched.as_deref(),
            Self::Grpc { .. } | Self::R2p2 { .. } | Self::Gone => None,
        }
    }

    /// Whether it comes from another host, or by gRPC.
    pub fn is_elsewhere(&self) -> bool {
        !matches!(self, Self::Application { .. })
    }

    /// What its handler is told, if it asks.
    pub fn caller(&self) -> Option<Caller> {
        Some(match self {
            Self::Application { label, identity, .. } => Caller::application(label, identity),
            Self::Daemon { address, node, identity, vouched } => Caller::Daemon {
                address: address.to_string(),
                node: node.to_string(),
                identity: identity.to_string(),
                vouched: vouched.clone(),
            },
            Self::Grpc { address, identity, encrypted } => Caller::Grpc {
                address: address.to_string(),
                identity: identity.to_string(),
                encrypted: *encrypted,
            },
            Self::R2p2 { address } => Caller::R2p2 { address: address.to_string() },
            Self::Gone => return None,
        })
    }
}

impl ShardSaid {
    /// The message in it.
    pub fn body(&self) -> Option<&CrossedBody> {
        match self {
            Self::Open(opening) | Self::Returned(opening) => opening.body.as_deref(),
            Self::Message { body, .. } | Self::Reply { body, .. } => Some(body),
            Self::Finish(finish) => finish.body.as_deref(),
            _ => None,
        }
    }

    /// Types in it.
    pub fn types(&self) -> Vec<&Arc<MethodTypes>> {
        match self {
            Self::Open(opening) | Self::Returned(opening) => opening.types.iter().collect(),
            Self::Reply { types, .. } => types.iter().collect(),
            Self::Finish(finish) => finish.types.iter().collect(),
            Self::Offers(offers) | Self::Moved { offers, .. } => {
                offers.methods.iter().map(|offer| &offer.types).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same, to be replaced.
    pub fn types_mut(&mut self) -> Vec<&mut Arc<MethodTypes>> {
        match self {
            Self::Open(opening) | Self::Returned(opening) => opening.types.iter_mut().collect(),
            Self::Reply { types, .. } => types.iter_mut().collect(),
            Self::Finish(finish) => finish.types.iter_mut().collect(),
            Self::Offers(offers) | Self::Moved { offers, .. } => {
                Arc::make_mut(offers).methods.iter_mut().map(|offer| &mut offer.types).collect()
            }
            _ => Vec::new(),
        }
    }
}
