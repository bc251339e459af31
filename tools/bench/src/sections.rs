//! What is measured: who, with what order, how often. Peers of a section run at the same time and take turns, so that
//! whatever else the machine does meets all of them.

use crate::foreign::Foreign;
use crate::large_proto::{MEMBERS, MEMBERS_OF_CPP};
use crate::orders::Order;
use crate::peers::{Kind, Peer, Sample};
use crate::stats::Spread;
use crate::work::Work;
use serde::Serialize;

/// A measured property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    Chain,
    Latency,
    Rate,
    Goodput,
    Grpc,
    #[serde(rename = "grpc-rate")]
    GrpcRate,
    #[serde(rename = "mrpc-latency")]
    MrpcLatency,
    #[serde(rename = "mrpc-rate")]
    MrpcRate,
    #[serde(rename = "mrpc-rate-of-two")]
    MrpcRateOfTwo,
    #[serde(rename = "mrpc-goodput")]
    MrpcGoodput,
    #[serde(rename = "mrpc-policy")]
    MrpcPolicy,
    Hello,
    Average,
    Numbers,
    Large,
}

/// How a section is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One order: a row for each peer, with all figures.
    Small,
    /// An order for each size: a row for each peer, with one figure for each size.
    Sized(Figure),
}

/// How long and how often, and who.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub rounds: usize,
    pub round_millis: u64,
    /// Pieces of a round, between which the other peers have theirs.
    pub slices: usize,
    pub warm_up_millis: u64,
    /// Names of the peers wanted; all if empty.
    pub only: Vec<String>,
}

/// All rounds of one peer with one order.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub section: Section,
    pub peer: Kind,
    pub order: Order,
    pub samples: Vec<Sample>,
}

/// A peer that is not in a section although it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Absent {
    pub section: Section,
    pub peer: Kind,
    pub reason: String,
}

const LATENCY: [Kind; 11] = [
    Kind::ChainRings,
    Kind::OursOneHost,
    Kind::GrpcUnix,
    Kind::ChainTcp,
    Kind::OursTwoHosts,
    Kind::Tcp,
    Kind::GrpcSync,
    Kind::GrpcQueue,
    Kind::Tonic,
    Kind::CapNProto,
    Kind::Thrift,
];
/// Each without recording behind the same with it.
const RATE: [Kind; 11] = [
    Kind::Tcp,
    Kind::OursOneHost,
    Kind::OursOneHostUnrecorded,
    Kind::OursTwoHosts,
    Kind::OursUnrecorded,
    Kind::GrpcSync,
    Kind::GrpcQueue,
    Kind::Tonic,
    Kind::CapNProto,
    Kind::Thrift,
    Kind::ThriftCorked,
];
const GOODPUT: [Kind; 8] = [
    Kind::TcpOneBuffer,
    Kind::Tcp,
    Kind::OursOneHost,
    Kind::OursTwoHosts,
    Kind::GrpcQueue,
    Kind::Tonic,
    Kind::CapNProto,
    Kind::Thrift,
];
/// Calls that gRPC carries, one at a time: who is called directly, who stands between, and our daemon in each place.
const GRPC: [Kind; 16] = [
    Kind::GrpcSync,
    Kind::Tonic,
    Kind::GrpcGo,
    Kind::EnvoyOne,
    Kind::EnvoyTwo,
    Kind::NginxTwo,
    Kind::HaproxyTwo,
    Kind::GatewayOne,
    Kind::GatewayTwo,
    Kind::GatewayToOurs,
    Kind::TonicGateway,
    Kind::CppToOurs,
    Kind::GoToOurs,
    Kind::OursToCpp,
    Kind::OursToGo,
    Kind::OursGrpcTwoHosts,
];
/// The same, many at once.
const GRPC_RATE: [Kind; 16] = [
    Kind::GrpcQueue,
    Kind::Tonic,
    Kind::GrpcGo,
    Kind::EnvoyOne,
    Kind::EnvoyTwo,
    Kind::NginxTwo,
    Kind::HaproxyTwo,
    Kind::GatewayOne,
    Kind::GatewayTwo,
    Kind::GatewayToOurs,
    Kind::TonicGateway,
    Kind::CppToOurs,
    Kind::GoToOurs,
    Kind::OursToCpp,
    Kind::OursToGo,
    Kind::OursGrpcTwoHosts,
];
/// mRPC's small calls: direct, with a policy that does nothing, and what it is compared to.
const MRPC_LATENCY: [Kind; 5] =
    [Kind::ChainTcp, Kind::OursTwoHosts, Kind::OursNull, Kind::GrpcSync, Kind::EnvoyTwo];
const MRPC_RATE: [Kind; 4] = [Kind::OursTwoHosts, Kind::OursNull, Kind::GrpcQueue, Kind::EnvoyTwo];
const MRPC_GOODPUT: [Kind; 3] = [Kind::OursTwoHosts, Kind::GrpcQueue, Kind::EnvoyTwo];
/// Each with the policy behind the same without.
const MRPC_POLICY: [Kind; 5] =
    [Kind::OursTwoHosts, Kind::OursContent, Kind::GrpcQueue, Kind::EnvoyTwo, Kind::EnvoyContent];
const HPRPC: [Kind; 3] = [Kind::OursTwoHosts, Kind::OursOneHost, Kind::GrpcSync];
const LARGE: [Kind; 4] = [Kind::OursTwoHosts, Kind::OursOneHost, Kind::GrpcSync, Kind::GrpcGo];
/// Calls outstanding when the price of a policy is asked for.
const POLICY_OUTSTANDING: usize = 64;
/// Bytes beside the name.
const POLICY_BYTES: usize = 64;
/// HPRPC's counts of integers.
const INTEGERS: [usize; 4] = [10, 100, 1000, 10_000];
/// Request sizes of goodput, with the calls outstanding. 8 MB times 128 would be more than the heaps of a session.
const GOODPUT_SIZES: [(usize, usize); 7] = [
    (2 << 10, 128),
    (8 << 10, 128),
    (32 << 10, 128),
    (128 << 10, 128),
    (512 << 10, 128),
    (2 << 20, 128),
    (8 << 20, 32),
];
/// Warm-up rounds of goodput are longer: they touch every page of the heaps.
const GOODPUT_WARM_UP_FACTOR: u64 = 5;

impl Section {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 15] = [
        Self::Chain,
        Self::Latency,
        Self::Rate,
        Self::Goodput,
        Self::Grpc,
        Self::GrpcRate,
        Self::MrpcLatency,
        Self::MrpcRate,
        Self::MrpcRateOfTwo,
        Self::MrpcGoodput,
        Self::MrpcPolicy,
        Self::Hello,
        Self::Average,
        Self::Numbers,
        Self::Large,
    ];
    /// Those of mRPC's figures.
    pub const MRPC: [Self; 5] =
        [Self::MrpcLatency, Self::MrpcRate, Self::MrpcRateOfTwo, Self::MrpcGoodput, Self::MrpcPolicy];
    /// Those of HPRPC's.
    pub const HPRPC: [Self; 4] = [Self::Hello, Self::Average, Self::Numbers, Self::Large];

    /// For a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Chain => "The bare chain: 64 B there, 8 B back, one outstanding",
            Self::Latency => "Latency: 64 B request, 8 B reply, one outstanding",
            Self::Rate => "Rate: 64 B request, 8 B reply, 128 outstanding on one client thread",
            Self::Goodput => "Goodput: large requests, 8 B replies, 128 outstanding (32 at 8 MiB)",
            Self::Grpc => "gRPC, latency: 64 B request, 8 B reply, one outstanding",
            Self::GrpcRate => "gRPC, rate: 64 B request, 8 B reply, 128 outstanding on one connection",
            Self::MrpcLatency => "mRPC's small call: 64 B request, 8 B reply, one outstanding",
            Self::MrpcRate => "mRPC's rate: small requests, 128 outstanding on one client thread, calls/s",
            Self::MrpcRateOfTwo => "mRPC's rate: the same on each of two clients of one thread, calls/s",
            Self::MrpcGoodput => "mRPC's large calls: 8 B replies, 128 outstanding (32 at 8 MiB), Gbit/s",
            Self::MrpcPolicy => {
                "mRPC's content policy: a string field looked at, 1 % refused, 64 outstanding"
            }
            Self::Hello => "HPRPC's SayHello, one outstanding",
            Self::Average => "HPRPC's Average of n integers, one outstanding, p50 µs",
            Self::Numbers => "HPRPC's GetRandNums of n integers, one outstanding, p50 µs",
            Self::Large => "HPRPC's LargeData of n members there and back, one outstanding, p50 µs",
        }
    }

    /// Whether its first figure is how many calls there were.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Rate | Self::GrpcRate | Self::MrpcPolicy)
    }

    /// How it is shown.
    pub fn shape(self) -> Shape {
        match self {
            Self::Goodput | Self::MrpcGoodput => Shape::Sized(Figure::GigabitsPerSecond),
            Self::MrpcRate | Self::MrpcRateOfTwo => Shape::Sized(Figure::CallsPerSecond),
            Self::Average | Self::Numbers | Self::Large => Shape::Sized(Figure::P50Us),
            _ => Shape::Small,
        }
    }

    /// A size as its table names it.
    pub fn size(self, order: Order) -> String {
        match self {
            Self::Goodput | Self::MrpcGoodput => format!("{} KiB", order.request_bytes >> 10),
            Self::Average | Self::Numbers => format!("{} integers", order.request_bytes),
            Self::Large => format!("{} members", order.request_bytes),
            _ => format!("{} B", order.request_bytes),
        }
    }

    /// What its peers call.
    pub fn work(self, kind: Kind) -> Work {
        match self {
            Self::MrpcPolicy if kind.refuses() => Work::Guarded,
            Self::MrpcPolicy => Work::Open,
            Self::Hello => Work::Hello,
            Self::Average => Work::Average,
            Self::Numbers => Work::Numbers,
            Self::Large => Work::Large,
            _ => Work::Bytes,
        }
    }

    /// Drivers that call at the same time.
    pub fn clients(self) -> usize {
        if self == Self::MrpcRateOfTwo { 2 } else { 1 }
    }

    /// Who is in it.
    pub fn peers(self) -> &'static [Kind] {
        match self {
            Self::Chain => &[Kind::ChainRings, Kind::ChainTcp, Kind::Tcp],
            Self::Latency => &LATENCY,
            Self::Rate => &RATE,
            Self::Goodput => &GOODPUT,
            Self::Grpc => &GRPC,
            Self::GrpcRate => &GRPC_RATE,
            Self::MrpcLatency => &MRPC_LATENCY,
            Self::MrpcRate | Self::MrpcRateOfTwo => &MRPC_RATE,
            Self::MrpcGoodput => &MRPC_GOODPUT,
            Self::MrpcPolicy => &MRPC_POLICY,
            Self::Hello | Self::Average | Self::Numbers => &HPRPC,
            Self::Large => &LARGE,
        }
    }

    fn orders(self, plan: &Plan) -> Vec<Order> {
        let of = |request_bytes, outstanding| Order { millis: plan.round_millis, request_bytes, outstanding };
        match self {
            Self::Chain | Self::Latency | Self::Grpc | Self::MrpcLatency | Self::Hello => vec![of(64, 1)],
            Self::Rate | Self::GrpcRate => vec![of(64, 128)],
            Self::MrpcRate | Self::MrpcRateOfTwo => vec![of(64, 128), of(32, 128)],
            Self::MrpcPolicy => vec![of(POLICY_BYTES, POLICY_OUTSTANDING)],
            Self::Average | Self::Numbers => INTEGERS.map(|count| of(count, 1)).to_vec(),
            Self::Large => MEMBERS.map(|members| of(members, 1)).to_vec(),
            Self::Goodput | Self::MrpcGoodput => {
                GOODPUT_SIZES.map(|(bytes, outstanding)| of(bytes, outstanding)).to_vec()
            }
        }
    }

    /// Measures it. A peer that fails is absent from then on, with its reason.
    pub fn measure(self, plan: &Plan, foreign: &Foreign) -> (Vec<Row>, Vec<Absent>) {
        let (mut rows, mut absent) = (Vec::new(), Vec::new());
        let mut peers = Vec::new();
        let orders = self.orders(plan);
        let outstanding = orders.first().map_or(1, |order| order.outstanding);
        for &kind in self.peers().iter().filter(|kind| plan.wants(**kind)) {
            match Peer::start(self, kind, foreign, outstanding) {
                Ok(peer) => peers.push(peer),
                Err(error) => {
                    eprintln!("{self:?}: {} is absent: {error}", kind.name());
                    absent.push(Absent { section: self, peer: kind, reason: error.to_string() });
                }
            }
        }
        for order in orders {
            peers.retain(|peer| self.has(peer.kind, order));
            rows.extend(self.take_turns(plan, order, &mut peers, &mut absent));
        }
        (rows, absent)
    }

    /// Whether a peer can carry out an order. Orders grow: who cannot do one cannot do the next.
    fn has(self, kind: Kind, order: Order) -> bool {
        self != Self::Large || kind != Kind::GrpcSync || MEMBERS_OF_CPP.contains(&order.request_bytes)
    }

    /// Round by round and slice by slice, each begun by another peer: whoever comes behind a heavy one must not be the
    /// same every time.
    fn take_turns(
        self,
        plan: &Plan,
        order: Order,
        peers: &mut Vec<Peer>,
        absent: &mut Vec<Absent>,
    ) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let factor =
            if matches!(self, Self::Goodput | Self::MrpcGoodput) { GOODPUT_WARM_UP_FACTOR } else { 1 };
        let first = Order { millis: plan.warm_up_millis * factor, ..order };
        // What comes of the first round is not kept.
        self.slice(first, order, peers, absent);
        let slices = plan.slices.max(1);
        let slice = Order { millis: (order.millis / slices as u64).max(1), ..order };
        let warm_up = Order { millis: plan.warm_up_millis.min(slice.millis), ..order };
        for round in 1..=plan.rounds {
            let taken: Vec<(Kind, Sample)> =
                (0..slices).flat_map(|_| self.slice(warm_up, slice, peers, absent)).collect();
            for peer in peers.iter() {
                let own = taken.iter().filter(|(kind, _)| *kind == peer.kind).map(|(_, sample)| *sample);
                let Some(sample) = Sample::joined(own.collect()) else { continue };
                eprintln!("{}", progress(self, round, peer.kind, order, &sample));
                keep(&mut rows, Row { section: self, peer: peer.kind, order, samples: vec![sample] });
            }
        }
        rows.sort_by_key(|row| self.peers().iter().position(|kind| *kind == row.peer));
        rows
    }

    /// One piece of a round for every peer. One that fails is absent from then on, with its reason.
    fn slice(
        self,
        warm_up: Order,
        order: Order,
        peers: &mut Vec<Peer>,
        absent: &mut Vec<Absent>,
    ) -> Vec<(Kind, Sample)> {
        let mut taken = Vec::new();
        peers.retain_mut(|peer| match peer.round(warm_up).and_then(|_| peer.round(order)) {
            Ok(sample) => {
                taken.push((peer.kind, sample));
                true
            }
            Err(error) => {
                absent.push(Absent { section: self, peer: peer.kind, reason: error.to_string() });
                false
            }
        });
        if !peers.is_empty() {
            peers.rotate_left(1);
        }
        taken
    }
}

impl Plan {
    /// Whether a peer was asked for.
    pub fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == kind.name())
    }
}

impl Row {
    /// One value per round.
    pub fn values(&self, figure: Figure) -> Vec<f64> {
        self.samples.iter().map(|sample| figure.of(sample, self.order)).collect()
    }
}

impl Sample {
    /// The slices of a round as one; `None` without any. Quantiles are the medians of theirs.
    fn joined(slices: Vec<Self>) -> Option<Self> {
        let sum = |of: fn(&Self) -> u64| slices.iter().map(of).sum();
        let median = |of: fn(&Self) -> u64| {
            Some(Spread::of(slices.iter().map(|slice| of(slice) as f64))?.median as u64)
        };
        Some(Self {
            calls: sum(|slice| slice.calls),
            elapsed_ns: sum(|slice| slice.elapsed_ns),
            p50_ns: median(|slice| slice.p50_ns)?,
            p99_ns: median(|slice| slice.p99_ns)?,
            cpu_ns: sum(|slice| slice.cpu_ns),
            lost_percent: [0, 1].map(|of| {
                let percents = slices.iter().map(|slice| slice.lost_percent[of]);
                percents.sum::<f64>() / slices.len() as f64
            }),
        })
    }
}

/// What can be said of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    P50Us,
    P99Us,
    CpuUsPerCall,
    CallsPerSecond,
    GigabitsPerSecond,
}

impl Figure {
    /// With its unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::P50Us => "p50 µs",
            Self::P99Us => "p99 µs",
            Self::CpuUsPerCall => "CPU µs per call, all processes",
            Self::CallsPerSecond => "calls/s",
            Self::GigabitsPerSecond => "Gbit/s",
        }
    }

    /// Of one round. Counts stay far below the 2⁵³ a float holds.
    pub fn of(self, sample: &Sample, order: Order) -> f64 {
        let (calls, elapsed_ns) = (sample.calls as f64, sample.elapsed_ns as f64);
        match self {
            Self::P50Us => sample.p50_ns as f64 / 1e3,
            Self::P99Us => sample.p99_ns as f64 / 1e3,
            Self::CpuUsPerCall => sample.cpu_ns as f64 / 1e3 / calls,
            Self::CallsPerSecond => calls / elapsed_ns * 1e9,
            Self::GigabitsPerSecond => calls * order.request_bytes as f64 * 8.0 / elapsed_ns,
        }
    }
}

fn keep(rows: &mut Vec<Row>, new: Row) {
    match rows.iter_mut().find(|row| row.peer == new.peer) {
        Some(row) => row.samples.extend(new.samples),
        None => rows.push(new),
    }
}

fn progress(section: Section, round: usize, peer: Kind, order: Order, sample: &Sample) -> String {
    format!(
        "{section:?} {:>8} B x {:<3} round {round} {:<24} p50 {:>9.2} µs  p99 {:>9.2} µs  {:>9.0}/s  \
         {:>6.2} Gbit/s  cpu {:>7.2} µs",
        order.request_bytes,
        order.outstanding,
        peer.name(),
        Figure::P50Us.of(sample, order),
        Figure::P99Us.of(sample, order),
        Figure::CallsPerSecond.of(sample, order),
        Figure::GigabitsPerSecond.of(sample, order),
        Figure::CpuUsPerCall.of(sample, order),
    )
}
