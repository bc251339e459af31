//! The marks of the design's targets, and whether this run reached them.

use crate::idle::Idle;
use crate::peers::Kind;
use crate::sections::{Figure, Row, Section};
use crate::stats::Spread;
use serde::Serialize;

/// A mark beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    /// The target's number.
    pub target: &'static str,
    pub what: String,
    pub wanted: String,
    pub measured: Spread,
    /// `None`: nothing was wanted, it stands there to be compared.
    pub reached: Option<bool>,
}

/// One of ours against one of theirs, as a ratio.
struct Claim {
    target: &'static str,
    what: &'static str,
    section: Section,
    figure: Figure,
    ours: Kind,
    theirs: Kind,
    bound: Bound,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For comparison.
    Beside,
}

const fn latency(
    target: &'static str,
    what: &'static str,
    figure: Figure,
    pair: (Kind, Kind),
    most: f64,
) -> Claim {
    let (ours, theirs) = pair;
    Claim { target, what, section: Section::Latency, figure, ours, theirs, bound: Bound::AtMost(most) }
}

const fn rate(what: &'static str, figure: Figure, theirs: Kind, bound: Bound) -> Claim {
    Claim { target: "T4", what, section: Section::Rate, figure, ours: Kind::OursTwoHosts, theirs, bound }
}

const fn grpc(what: &'static str, figure: Figure, theirs: Kind, bound: Bound) -> Claim {
    of_grpc(what, Section::Grpc, figure, Kind::OursGrpcTwoHosts, theirs, bound)
}

const fn grpc_rate(what: &'static str, figure: Figure, theirs: Kind, bound: Bound) -> Claim {
    of_grpc(what, Section::GrpcRate, figure, Kind::OursGrpcTwoHosts, theirs, bound)
}

/// A stock client, or a stock server, at our daemon.
const fn edge(what: &'static str, ours: Kind, theirs: Kind) -> Claim {
    of_grpc(what, Section::Grpc, Figure::P50Us, ours, theirs, Bound::AtMost(1.0))
}

const fn of_grpc(
    what: &'static str,
    section: Section,
    figure: Figure,
    ours: Kind,
    theirs: Kind,
    bound: Bound,
) -> Claim {
    Claim { target: "T7", what, section, figure, ours, theirs, bound }
}

const fn mrpc(
    target: &'static str,
    what: &'static str,
    section: Section,
    figure: Figure,
    (ours, theirs): (Kind, Kind),
    bound: Bound,
) -> Claim {
    Claim { target, what, section, figure, ours, theirs, bound }
}

const TWO_CHAIN: (Kind, Kind) = (Kind::OursTwoHosts, Kind::ChainTcp);
const TWO_GRPC: (Kind, Kind) = (Kind::OursTwoHosts, Kind::GrpcSync);
const ONE_CHAIN: (Kind, Kind) = (Kind::OursOneHost, Kind::ChainRings);
const ONE_GRPC: (Kind, Kind) = (Kind::OursOneHost, Kind::GrpcUnix);

const CLAIMS: [Claim; 36] = [
    latency("T1", "two daemons over TCP, p50 ÷ bare chain", Figure::P50Us, TWO_CHAIN, 2.5),
    latency("T1", "two daemons over TCP, p50 ÷ gRPC C++ direct", Figure::P50Us, TWO_GRPC, 0.25),
    latency("T2", "two daemons over TCP, p99 ÷ gRPC C++ direct", Figure::P99Us, TWO_GRPC, 1.0),
    latency(
        "T2",
        "two daemons over TCP, CPU per call ÷ gRPC C++ direct",
        Figure::CpuUsPerCall,
        TWO_GRPC,
        0.5,
    ),
    latency("T3", "same host, p50 ÷ bare ring chain", Figure::P50Us, ONE_CHAIN, 2.5),
    latency("T3", "same host, p50 ÷ gRPC C++ over a Unix socket", Figure::P50Us, ONE_GRPC, 0.2),
    rate(
        "two daemons, calls/s ÷ gRPC C++ direct, queue server",
        Figure::CallsPerSecond,
        Kind::GrpcQueue,
        Bound::AtLeast(1.0),
    ),
    rate(
        "two daemons, calls/s ÷ gRPC C++ direct, sync server",
        Figure::CallsPerSecond,
        Kind::GrpcSync,
        Bound::AtLeast(1.0),
    ),
    rate("two daemons, calls/s ÷ tonic direct", Figure::CallsPerSecond, Kind::Tonic, Bound::AtLeast(1.0)),
    rate(
        "two daemons, CPU per call ÷ gRPC C++ direct, queue server",
        Figure::CpuUsPerCall,
        Kind::GrpcQueue,
        Bound::AtMost(1.0),
    ),
    rate(
        "two daemons, CPU per call ÷ gRPC C++ direct, sync server",
        Figure::CpuUsPerCall,
        Kind::GrpcSync,
        Bound::AtMost(1.0),
    ),
    rate("two daemons, CPU per call ÷ tonic direct", Figure::CpuUsPerCall, Kind::Tonic, Bound::AtMost(1.0)),
    rate("two daemons, calls/s ÷ Cap'n Proto", Figure::CallsPerSecond, Kind::CapNProto, Bound::AtLeast(1.0)),
    rate("two daemons, calls/s ÷ Thrift (goal)", Figure::CallsPerSecond, Kind::Thrift, Bound::AtLeast(1.0)),
    rate("two daemons, CPU per call ÷ Thrift (goal)", Figure::CpuUsPerCall, Kind::Thrift, Bound::AtMost(1.0)),
    rate(
        "two daemons, calls/s ÷ Thrift whose application holds writes back",
        Figure::CallsPerSecond,
        Kind::ThriftCorked,
        Bound::Beside,
    ),
    mrpc(
        "T16",
        "calls recorded, two daemons, calls/s ÷ not recorded",
        Section::Rate,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::OursUnrecorded),
        Bound::AtLeast(0.97),
    ),
    mrpc(
        "T16",
        "calls recorded, one host, calls/s ÷ not recorded",
        Section::Rate,
        Figure::CallsPerSecond,
        (Kind::OursOneHost, Kind::OursOneHostUnrecorded),
        Bound::AtLeast(0.97),
    ),
    grpc("two daemons by gRPC, p50 ÷ one Envoy hop", Figure::P50Us, Kind::EnvoyOne, Bound::AtMost(1.0)),
    grpc("two daemons by gRPC, p99 ÷ one Envoy hop", Figure::P99Us, Kind::EnvoyOne, Bound::AtMost(1.0)),
    grpc(
        "two daemons by gRPC, CPU per call ÷ one Envoy hop",
        Figure::CpuUsPerCall,
        Kind::EnvoyOne,
        Bound::AtMost(1.0),
    ),
    grpc("two daemons by gRPC, p50 ÷ gRPC C++ direct", Figure::P50Us, Kind::GrpcSync, Bound::AtMost(1.3)),
    edge("gRPC C++ client of our server, p50 ÷ one Envoy hop", Kind::CppToOurs, Kind::EnvoyOne),
    edge("our client of a gRPC C++ server, p50 ÷ one Envoy hop", Kind::OursToCpp, Kind::EnvoyOne),
    grpc_rate(
        "two daemons by gRPC, calls/s ÷ one Envoy hop",
        Figure::CallsPerSecond,
        Kind::EnvoyOne,
        Bound::AtLeast(1.0),
    ),
    grpc_rate(
        "two daemons by gRPC, CPU per call with 128 outstanding ÷ one Envoy hop",
        Figure::CpuUsPerCall,
        Kind::EnvoyOne,
        Bound::AtMost(1.0),
    ),
    mrpc(
        "T1",
        "two daemons over TCP, p50 ÷ gRPC C++ through two Envoys (goal)",
        Section::MrpcLatency,
        Figure::P50Us,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
        Bound::AtMost(0.025),
    ),
    mrpc(
        "T4",
        "two daemons, calls/s ÷ gRPC C++ through two Envoys",
        Section::MrpcRate,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
        Bound::AtLeast(6.0),
    ),
    mrpc(
        "T4",
        "two daemons, two clients, calls/s ÷ gRPC C++ through two Envoys",
        Section::MrpcRateOfTwo,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
        Bound::AtLeast(6.0),
    ),
    mrpc(
        "T6",
        "null policy, calls/s ÷ without",
        Section::MrpcRate,
        Figure::CallsPerSecond,
        (Kind::OursNull, Kind::OursTwoHosts),
        Bound::AtLeast(0.97),
    ),
    mrpc(
        "T6",
        "null policy, p50 ÷ without",
        Section::MrpcLatency,
        Figure::P50Us,
        (Kind::OursNull, Kind::OursTwoHosts),
        Bound::AtMost(1.03),
    ),
    mrpc(
        "T6",
        "content policy, 1 % refused, calls/s ÷ without",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::OursContent, Kind::OursTwoHosts),
        Bound::AtLeast(0.97),
    ),
    mrpc(
        "T6",
        "content policy, CPU per call ÷ without",
        Section::MrpcPolicy,
        Figure::CpuUsPerCall,
        (Kind::OursContent, Kind::OursTwoHosts),
        Bound::Beside,
    ),
    mrpc(
        "T6",
        "the same rule as a Lua filter in the second of two Envoys, calls/s ÷ without",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::EnvoyContent, Kind::EnvoyTwo),
        Bound::Beside,
    ),
    mrpc(
        "T6",
        "two Envoys with that filter, calls/s ÷ gRPC C++ direct",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::EnvoyContent, Kind::GrpcQueue),
        Bound::Beside,
    ),
    mrpc(
        "T8",
        "SayHello, ours between two hosts, p50 ÷ gRPC C++",
        Section::Hello,
        Figure::P50Us,
        (Kind::OursTwoHosts, Kind::GrpcSync),
        Bound::AtMost(0.917),
    ),
];

/// Large requests against gRPC with two sidecars: mRPC's 3.1 times.
const MRPC_GOODPUT_FACTOR: f64 = 3.1;
/// HPRPC's own factors over gRPC by count of integers, from its section 4.2; between them it gives none.
const HPRPC: [(Section, &str, usize, f64); 8] = [
    (Section::Average, "Average", 10, 1.09),
    (Section::Average, "Average", 100, 1.09),
    (Section::Average, "Average", 1000, 1.09),
    (Section::Average, "Average", 10_000, 1.22),
    (Section::Numbers, "GetRandNums", 10, 1.13),
    (Section::Numbers, "GetRandNums", 100, 1.13),
    (Section::Numbers, "GetRandNums", 1000, 1.13),
    (Section::Numbers, "GetRandNums", 10_000, 1.39),
];

/// The same for LargeData by count of members: its text has the first and the last; what lies between is held to the
/// first.
const HPRPC_LARGE: [(usize, f64); 7] =
    [(128, 2.7), (256, 2.7), (512, 2.7), (1024, 2.7), (2048, 2.7), (4096, 2.7), (8192, 12.5)];

/// Share of what a bare stream moves, for requests of at least [`GOODPUT_BYTES_MIN`].
const GOODPUT_SHARE_MIN: f64 = 0.8;
const GOODPUT_BYTES_MIN: usize = 128 << 10;
/// Of one core, for 100 idle applications.
const IDLE_PERCENT_MAX: f64 = 0.5;
const IDLE_MIB_MAX: f64 = 1.0;

/// Every mark this run says something about.
pub fn marks(rows: &[Row], idle: Option<&Idle>) -> Vec<Mark> {
    let mut marks: Vec<Mark> = CLAIMS.iter().filter_map(|claim| claim.judge(rows)).collect();
    marks.extend(goodput(rows));
    marks.extend(mrpc_goodput(rows));
    marks.extend(hprpc(rows));
    marks.extend(hprpc_large(rows));
    marks.extend(idle.into_iter().flat_map(idle_marks));
    marks
}

impl Claim {
    fn judge(&self, rows: &[Row]) -> Option<Mark> {
        let of = |kind| rows.iter().find(|row| row.section == self.section && row.peer == kind);
        let (ours, theirs) = (of(self.ours)?, of(self.theirs)?);
        let ratio = Spread::of_ratio(&ours.values(self.figure), &theirs.values(self.figure))?;
        Some(mark(self.target, self.what.to_owned(), self.bound, ratio))
    }
}

fn goodput(rows: &[Row]) -> Vec<Mark> {
    let figure = Figure::GigabitsPerSecond;
    let mut marks = Vec::new();
    let of = |kind| rows.iter().filter(move |row| row.section == Section::Goodput && row.peer == kind);
    for ours in of(Kind::OursTwoHosts).filter(|row| row.order.request_bytes >= GOODPUT_BYTES_MIN) {
        let streams = of(Kind::Tcp).chain(of(Kind::TcpOneBuffer));
        for theirs in streams.filter(|row| row.order == ours.order) {
            let (size, stream) = (ours.order.request_bytes >> 10, theirs.peer.name());
            let what = format!("two daemons, goodput of {size} KiB requests ÷ bare stream `{stream}`");
            if let Some(ratio) = Spread::of_ratio(&ours.values(figure), &theirs.values(figure)) {
                marks.push(mark("T5", what, Bound::AtLeast(GOODPUT_SHARE_MIN), ratio));
            }
        }
    }
    marks
}

fn mrpc_goodput(rows: &[Row]) -> Vec<Mark> {
    let of = |kind| rows.iter().filter(move |row| row.section == Section::MrpcGoodput && row.peer == kind);
    let pairs = of(Kind::OursTwoHosts).filter_map(|ours| {
        let theirs = of(Kind::EnvoyTwo).find(|row| row.order == ours.order)?;
        let figure = Figure::GigabitsPerSecond;
        let ratio = Spread::of_ratio(&ours.values(figure), &theirs.values(figure))?;
        let size = ours.order.request_bytes >> 10;
        let what = format!("two daemons, goodput of {size} KiB requests ÷ gRPC C++ through two Envoys");
        // The mark begins at 8 KiB; mRPC's own figure begins at 2.
        let bound = if size >= 8 { Bound::AtLeast(MRPC_GOODPUT_FACTOR) } else { Bound::Beside };
        Some(mark("T5", what, bound, ratio))
    });
    pairs.collect()
}

fn hprpc(rows: &[Row]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (section, name, count, least) in HPRPC {
        let of = |kind| {
            let is = move |row: &&Row| {
                row.section == section && row.peer == kind && row.order.request_bytes == count
            };
            rows.iter().find(is)
        };
        let (Some(theirs), Some(ours)) = (of(Kind::GrpcSync), of(Kind::OursTwoHosts)) else { continue };
        if let Some(ratio) = Spread::of_ratio(&theirs.values(Figure::P50Us), &ours.values(Figure::P50Us)) {
            let what = format!("{name} of {count} integers, gRPC C++'s time ÷ ours between two hosts");
            marks.push(mark("T8", what, Bound::AtLeast(least), ratio));
        }
    }
    marks
}

/// Beside every gRPC library that is there.
fn hprpc_large(rows: &[Row]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (members, least) in HPRPC_LARGE {
        let of = |kind| {
            let is = move |row: &&Row| {
                row.section == Section::Large && row.peer == kind && row.order.request_bytes == members
            };
            rows.iter().find(is)
        };
        let Some(ours) = of(Kind::OursTwoHosts) else { continue };
        for (kind, library) in [(Kind::GrpcSync, "gRPC C++"), (Kind::GrpcGo, "grpc-go")] {
            let Some(theirs) = of(kind) else { continue };
            if let Some(ratio) = Spread::of_ratio(&theirs.values(Figure::P50Us), &ours.values(Figure::P50Us))
            {
                let what =
                    format!("LargeData of {members} members, {library}'s time ÷ ours between two hosts");
                marks.push(mark("T8", what, Bound::AtLeast(least), ratio));
            }
        }
    }
    marks
}

fn idle_marks(idle: &Idle) -> Vec<Mark> {
    let mib = (idle.daemon_bytes_each + idle.application_bytes_each) / f64::from(1 << 20);
    let cpu =
        ("daemon's CPU with 100 idle applications, % of a core", IDLE_PERCENT_MAX, idle.daemon_cpu_percent);
    let memory =
        ("resident MiB per idle application, its whole process and the daemon's part", IDLE_MIB_MAX, mib);
    [cpu, memory]
        .into_iter()
        .filter_map(|(what, most, value)| {
            Some(mark("T14", what.to_owned(), Bound::AtMost(most), Spread::of([value])?))
        })
        .collect()
}

/// Judges by the median.
pub fn mark(target: &'static str, what: String, bound: Bound, measured: Spread) -> Mark {
    let (wanted, reached) = match bound {
        Bound::AtMost(most) => (format!("≤ {most}"), Some(measured.median <= most)),
        Bound::AtLeast(least) => (format!("≥ {least}"), Some(measured.median >= least)),
        Bound::Beside => ("beside it".to_owned(), None),
    };
    Mark { target, what, wanted, measured, reached }
}

#[cfg(test)]
mod tests {
    //! A mark is judged by the median of the ratios, and one whose peer is absent is not judged.
    use super::*;
    use crate::orders::Order;
    use crate::peers::Sample;

    fn row(peer: Kind, p50s_ns: [u64; 3]) -> Row {
        let sample = |p50_ns| Sample {
            calls: 1,
            elapsed_ns: 1,
            p50_ns,
            p99_ns: p50_ns,
            cpu_ns: 1,
            lost_percent: [0.0; 2],
        };
        let order = Order { millis: 1, request_bytes: 64, outstanding: 1 };
        Row { section: Section::Latency, peer, order, samples: p50s_ns.map(sample).to_vec() }
    }

    #[test]
    fn ratios_are_judged() {
        for (ours_ns, reached) in [([20, 24, 90], true), ([20, 26, 30], false)] {
            let rows = [row(Kind::OursTwoHosts, ours_ns), row(Kind::ChainTcp, [10, 10, 10])];
            let marks = marks(&rows, None);
            assert_eq!(marks.len(), 1, "gRPC is absent: {marks:?}");
            assert_eq!((marks[0].target, marks[0].reached), ("T1", Some(reached)), "{marks:?}");
        }
    }
}
