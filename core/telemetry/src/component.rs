//! The nine components of a call's completion time, and how much of them a record knows.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One of the nine parts a call's completion time falls into (seed 004 §3.1, Figure 9).
///
/// Everything but [`Component::ServerApplication`] is what the study calls the *RPC latency tax*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// From publishing the submission to its being taken up, and waiting for admission (credit, pacing).
    ClientSendQueue = 0,
    /// Stub, policy, marshalling and protocol on the way to the wire, and from the wire to the server's queue.
    RequestStack = 1,
    /// Propagation and queueing between the two hosts.
    RequestWire = 2,
    /// From publishing to the server application until it takes the call.
    ServerReceiveQueue = 3,
    /// The handler, calls it makes included.
    ServerApplication = 4,
    /// From the handler's answer to its being taken up, and waiting for admission.
    ServerSendQueue = 5,
    /// Propagation and queueing on the way back.
    ResponseWire = 6,
    /// Marshalling and protocol to the wire, and from the wire to the client's queue.
    ResponseStack = 7,
    /// From publishing the completion until the client application takes it.
    ClientReceiveQueue = 8,
}

impl Component {
    /// How many there are.
    pub const COUNT: usize = 9;

    /// All nine, in the order a call passes them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::ClientSendQueue,
        Self::RequestStack,
        Self::RequestWire,
        Self::ServerReceiveQueue,
        Self::ServerApplication,
        Self::ServerSendQueue,
        Self::ResponseWire,
        Self::ResponseStack,
        Self::ClientReceiveQueue,
    ];

    /// The name in tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientSendQueue => "client send queue",
            Self::RequestStack => "request processing + stack",
            Self::RequestWire => "request wire",
            Self::ServerReceiveQueue => "server receive queue",
            Self::ServerApplication => "server application",
            Self::ServerSendQueue => "server send queue",
            Self::ResponseWire => "response wire",
            Self::ResponseStack => "response processing + stack",
            Self::ClientReceiveQueue => "client receive queue",
        }
    }

    /// The name in metrics and JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::ClientSendQueue => "client_send_queue",
            Self::RequestStack => "request_stack",
            Self::RequestWire => "request_wire",
            Self::ServerReceiveQueue => "server_receive_queue",
            Self::ServerApplication => "server_application",
            Self::ServerSendQueue => "server_send_queue",
            Self::ResponseWire => "response_wire",
            Self::ResponseStack => "response_stack",
            Self::ClientReceiveQueue => "client_receive_queue",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much of a record was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// Both ends' stamps met: nine of nine.
    #[default]
    Whole,
    /// The peer sent no stamps: the client's four, and one lump for both wires and the server, booked under
    /// [`Component::ServerApplication`]. Five of nine.
    ClientOnly,
    /// A call seen by its server's daemon: the server's five; the client and both wires are zero. Five of nine.
    ServerOnly,
    /// Caller and server are on this host: there is no wire, and the other seven were measured.
    OneHost,
    /// The call ended in its client's daemon, before it was handed to anybody: the client's four.
    Stayed,
}

impl Coverage {
    /// Components that were measured, of [`Component::COUNT`].
    pub fn measured(self) -> usize {
        match self {
            Self::Whole => Component::COUNT,
            Self::OneHost => 7,
            Self::ClientOnly | Self::ServerOnly => 5,
            Self::Stayed => 4,
        }
    }

    /// All of them, each at its number.
    pub(crate) const ALL: [Self; 5] =
        [Self::Whole, Self::ClientOnly, Self::ServerOnly, Self::OneHost, Self::Stayed];

    /// Whether every component there is was measured.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Whole | Self::OneHost)
    }
}

/// A call's completion time, divided. The nine sum to [`Components::total_ns`] exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Components {
    /// Nanoseconds, indexed by [`Component`]. Never negative: an offset estimate that would make a wire negative is
    /// held to what this very call proves.
    pub ns: [u64; Component::COUNT],
    /// The part of [`Component::RequestStack`] between the server's kernel and its daemon: mostly a wake-up.
    pub request_wakeup_ns: u64,
    /// The part of [`Component::ResponseStack`] between the client's kernel and its daemon.
    pub response_wakeup_ns: u64,
    /// What the nine rest on.
    pub coverage: Coverage,
    /// Stamps that were missing or out of order; their neighbours stood in for them.
    pub stand_ins: StampSet,
    /// The kernel said when the last byte left this host (k6).
    pub kernel_sent: bool,
    /// The server claimed to have taken longer than the client waited; its parts were scaled down to fit.
    pub clipped: bool,
}

impl Components {
    /// Completion time: a18 − a0 for a call made here, k14 − k7 for one served here.
    pub fn total_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// The nine, in proportion, if they are more than `most_ns` together.
    pub(crate) fn at_most(&self, most_ns: u64) -> [u64; Component::COUNT] {
        let whole: u128 = self.ns.iter().map(|ns| u128::from(*ns)).sum();
        let most = u128::from(most_ns);
        if whole <= most { self.ns } else { self.ns.map(|ns| (u128::from(ns) * most / whole) as u64) }
    }

    /// Everything that is not the application: the RPC latency tax (seed 004 §3.2).
    ///
    /// Of a call with [`Coverage::ClientOnly`] only the client's part can be told from the application.
    pub fn tax_ns(&self) -> u64 {
        self.total_ns() - self[Component::ServerApplication]
    }
}

impl std::ops::Index<Component> for Components {
    type Output = u64;

    fn index(&self, component: Component) -> &u64 {
        &self.ns[component as usize]
    }
}

/// The stations of a call, for saying which stamps were missing (docs/telemetry.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of ClientStamps and ServerStamps")]
#[rustfmt::skip]
pub enum Stamp {
    A0, A1, D2, D3, D4, K6, K7, D8, D9, A10, A11, D12, K14, K15, D16, D17, A18,
}

impl Stamp {
    /// How many there are.
    pub const COUNT: usize = 17;

    /// All, in the order a call passes them.
    #[rustfmt::skip]
    pub const ALL: [Self; Self::COUNT] = [
        Self::A0, Self::A1, Self::D2, Self::D3, Self::D4, Self::K6, Self::K7, Self::D8, Self::D9,
        Self::A10, Self::A11, Self::D12, Self::K14, Self::K15, Self::D16, Self::D17, Self::A18,
    ];

    /// The name in documents and reports.
    #[rustfmt::skip]
    pub fn name(self) -> &'static str {
        [
            "a0", "a1", "d2", "d3", "d4", "k6", "k7", "d8", "d9",
            "a10", "a11", "d12", "k14", "k15", "d16", "d17", "a18",
        ][self as usize]
    }
}

/// A set of [`Stamp`]s.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StampSet(u32);

impl StampSet {
    /// Adds one.
    pub fn insert(&mut self, stamp: Stamp) {
        self.0 |= 1 << stamp as u32;
    }

    /// Whether it is in the set.
    pub fn contains(self, stamp: Stamp) -> bool {
        self.0 & 1 << stamp as u32 != 0
    }

    /// Whether nothing is.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What is in either.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members, in the order a call passes them.
    pub fn iter(self) -> impl Iterator<Item = Stamp> {
        Stamp::ALL.into_iter().filter(move |&stamp| self.contains(stamp))
    }

    /// The set as bits, [`Stamp::A0`] lowest.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// The set with these bits; bits without a stamp are ignored.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Stamp::COUNT) - 1))
    }
}

impl fmt::Debug for StampSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Stamp::name)).finish()
    }
}
