//! The marks of the design's targets, and whether this run reached them.

use crate::idle::Idle;
use crate::large_proto;
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
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// For comparison.
    Beside,
}

const fn claim(
    target: &'static str,
    what: &'static str,
    section: Section,
    figure: Figure,
    (ours, theirs): (Kind, Kind),
) -> Claim {
    Claim { target, what, section, figure, ours, theirs }
}

const fn latency(target: &'static str, what: &'static str, figure: Figure, pair: (Kind, Kind)) -> Claim {
    claim(target, what, Section::Latency, figure, pair)
}

const fn rate(what: &'static str, figure: Figure, theirs: Kind) -> Claim {
    claim("T4", what, Section::Rate, figure, (Kind::OursTwoHosts, theirs))
}

const fn grpc(what: &'static str, figure: Figure, theirs: Kind) -> Claim {
    claim("T7", what, Section::Grpc, figure, (Kind::OursGrpcTwoHosts, theirs))
}

const fn grpc_rate(what: &'static str, figure: Figure, theirs: Kind) -> Claim {
    claim("T7", what, Section::GrpcRate, figure, (Kind::OursGrpcTwoHosts, theirs))
}

/// A stock client, or a stock server, at our daemon.
const fn edge(what: &'static str, ours: Kind, theirs: Kind) -> Claim {
    claim("T7", what, Section::Grpc, Figure::P50Us, (ours, theirs))
}

const TWO_CHAIN: (Kind, Kind) = (Kind::OursTwoHosts, Kind::ChainTcp);
const TWO_GRPC: (Kind, Kind) = (Kind::OursTwoHosts, Kind::GrpcSync);
const ONE_CHAIN: (Kind, Kind) = (Kind::OursOneHost, Kind::ChainRings);
const ONE_GRPC: (Kind, Kind) = (Kind::OursOneHost, Kind::GrpcUnix);

const CLAIMS: [Claim; 36] = [
    latency("T1", "two daemons over TCP, p50 ÷ bare chain", Figure::P50Us, TWO_CHAIN),
    latency("T1", "two daemons over TCP, p50 ÷ gRPC C++ direct", Figure::P50Us, TWO_GRPC),
    latency("T2", "two daemons over TCP, p99 ÷ gRPC C++ direct", Figure::P99Us, TWO_GRPC),
    latency("T2", "two daemons over TCP, CPU per call ÷ gRPC C++ direct", Figure::CpuUsPerCall, TWO_GRPC),
    latency("T3", "same host, p50 ÷ bare ring chain", Figure::P50Us, ONE_CHAIN),
    latency("T3", "same host, p50 ÷ gRPC C++ over a Unix socket", Figure::P50Us, ONE_GRPC),
    rate("two daemons, calls/s ÷ gRPC C++ direct, queue server", Figure::CallsPerSecond, Kind::GrpcQueue),
    rate("two daemons, calls/s ÷ gRPC C++ direct, sync server", Figure::CallsPerSecond, Kind::GrpcSync),
    rate("two daemons, calls/s ÷ tonic direct", Figure::CallsPerSecond, Kind::Tonic),
    rate("two daemons, CPU per call ÷ gRPC C++ direct, queue server", Figure::CpuUsPerCall, Kind::GrpcQueue),
    rate("two daemons, CPU per call ÷ gRPC C++ direct, sync server", Figure::CpuUsPerCall, Kind::GrpcSync),
    rate("two daemons, CPU per call ÷ tonic direct", Figure::CpuUsPerCall, Kind::Tonic),
    rate("two daemons, calls/s ÷ Cap'n Proto", Figure::CallsPerSecond, Kind::CapNProto),
    rate("two daemons, calls/s ÷ Thrift (goal)", Figure::CallsPerSecond, Kind::Thrift),
    rate("two daemons, CPU per call ÷ Thrift (goal)", Figure::CpuUsPerCall, Kind::Thrift),
    rate(
        "two daemons, calls/s ÷ Thrift whose application holds writes back",
        Figure::CallsPerSecond,
        Kind::ThriftCorked,
    ),
    claim(
        "T16",
        "calls recorded, two daemons, calls/s ÷ not recorded",
        Section::Rate,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::OursUnrecorded),
    ),
    claim(
        "T16",
        "calls recorded, one host, calls/s ÷ not recorded",
        Section::Rate,
        Figure::CallsPerSecond,
        (Kind::OursOneHost, Kind::OursOneHostUnrecorded),
    ),
    grpc("two daemons by gRPC, p50 ÷ one Envoy hop", Figure::P50Us, Kind::EnvoyOne),
    grpc("two daemons by gRPC, p99 ÷ one Envoy hop", Figure::P99Us, Kind::EnvoyOne),
    grpc("two daemons by gRPC, CPU per call ÷ one Envoy hop", Figure::CpuUsPerCall, Kind::EnvoyOne),
    grpc("two daemons by gRPC, p50 ÷ gRPC C++ direct", Figure::P50Us, Kind::GrpcSync),
    edge("gRPC C++ client of our server, p50 ÷ one Envoy hop", Kind::CppToOurs, Kind::EnvoyOne),
    edge("our client of a gRPC C++ server, p50 ÷ one Envoy hop", Kind::OursToCpp, Kind::EnvoyOne),
    grpc_rate("two daemons by gRPC, calls/s ÷ one Envoy hop", Figure::CallsPerSecond, Kind::EnvoyOne),
    grpc_rate(
        "two daemons by gRPC, CPU per call with 128 outstanding ÷ one Envoy hop",
        Figure::CpuUsPerCall,
        Kind::EnvoyOne,
    ),
    claim(
        "T1",
        "two daemons over TCP, p50 ÷ gRPC C++ through two Envoys (goal)",
        Section::MrpcLatency,
        Figure::P50Us,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
    ),
    claim(
        "T4",
        "two daemons, calls/s ÷ gRPC C++ through two Envoys",
        Section::MrpcRate,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
    ),
    claim(
        "T4",
        "two daemons, two clients, calls/s ÷ gRPC C++ through two Envoys",
        Section::MrpcRateOfTwo,
        Figure::CallsPerSecond,
        (Kind::OursTwoHosts, Kind::EnvoyTwo),
    ),
    claim(
        "T6",
        "null policy, calls/s ÷ without",
        Section::MrpcRate,
        Figure::CallsPerSecond,
        (Kind::OursNull, Kind::OursTwoHosts),
    ),
    claim(
        "T6",
        "null policy, p50 ÷ without",
        Section::MrpcLatency,
        Figure::P50Us,
        (Kind::OursNull, Kind::OursTwoHosts),
    ),
    claim(
        "T6",
        "content policy, 1 % refused, calls/s ÷ without",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::OursContent, Kind::OursTwoHosts),
    ),
    claim(
        "T6",
        "content policy, CPU per call ÷ without",
        Section::MrpcPolicy,
        Figure::CpuUsPerCall,
        (Kind::OursContent, Kind::OursTwoHosts),
    ),
    claim(
        "T6",
        "the same rule as a Lua filter in the second of two Envoys, calls/s ÷ without",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::EnvoyContent, Kind::EnvoyTwo),
    ),
    claim(
        "T6",
        "two Envoys with that filter, calls/s ÷ gRPC C++ direct",
        Section::MrpcPolicy,
        Figure::CallsPerSecond,
        (Kind::EnvoyContent, Kind::GrpcQueue),
    ),
    claim(
        "T8",
        "SayHello, ours between two hosts, p50 ÷ gRPC C++",
        Section::Hello,
        Figure::P50Us,
        (Kind::OursTwoHosts, Kind::GrpcSync),
    ),
];

/// Counts of integers of HPRPC's operations that its text has factors for.
const HPRPC: [(Section, &str); 2] = [(Section::Average, "Average"), (Section::Numbers, "GetRandNums")];
const HPRPC_COUNTS: [usize; 4] = [10, 100, 1000, 10_000];

/// Least size that is compared with a bare stream.
const GOODPUT_BYTES_MIN: usize = 128 << 10;

/// What is wanted: of every mark its bound, by its name.
const TARGETS: &str = include_str!("../../../docs/targets.toml");

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
        Some(mark(self.target, self.what.to_owned(), ratio))
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
                marks.push(mark("T5", what, ratio));
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
        Some(mark("T5", what, ratio))
    });
    pairs.collect()
}

fn hprpc(rows: &[Row]) -> Vec<Mark> {
    let mut marks = Vec::new();
    let operations = HPRPC.iter().flat_map(|operation| HPRPC_COUNTS.map(|count| (*operation, count)));
    for ((section, name), count) in operations {
        let of = |kind| {
            let is = move |row: &&Row| {
                row.section == section && row.peer == kind && row.order.request_bytes == count
            };
            rows.iter().find(is)
        };
        let (Some(theirs), Some(ours)) = (of(Kind::GrpcSync), of(Kind::OursTwoHosts)) else { continue };
        if let Some(ratio) = Spread::of_ratio(&theirs.values(Figure::P50Us), &ours.values(Figure::P50Us)) {
            let what = format!("{name} of {count} integers, gRPC C++'s time ÷ ours between two hosts");
            marks.push(mark("T8", what, ratio));
        }
    }
    marks
}

/// Beside every gRPC library that is there.
fn hprpc_large(rows: &[Row]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for members in large_proto::MEMBERS {
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
                marks.push(mark("T8", what, ratio));
            }
        }
    }
    marks
}

fn idle_marks(idle: &Idle) -> Vec<Mark> {
    let mib = (idle.daemon_bytes_each + idle.application_bytes_each) / f64::from(1 << 20);
    let cpu = ("daemon's CPU with 100 idle applications, % of a core", idle.daemon_cpu_percent);
    let memory = ("resident MiB per idle application, its whole process and the daemon's part", mib);
    let of = |(what, value): (&str, f64)| Some(mark("T14", what.to_owned(), Spread::of([value])?));
    [cpu, memory].into_iter().filter_map(of).collect()
}

/// Judges by the median, by what docs/targets.toml wants of a mark of this name.
pub fn mark(target: &'static str, what: String, measured: Spread) -> Mark {
    let (wanted, reached) = match bound(&what) {
        Some(Bound::AtMost(most)) => (format!("≤ {most}"), Some(measured.median <= most)),
        Some(Bound::AtLeast(least)) => (format!("≥ {least}"), Some(measured.median >= least)),
        Some(Bound::Beside) => ("beside it".to_owned(), None),
        None => ("not in docs/targets.toml".to_owned(), None),
    };
    Mark { target, what, wanted, measured, reached }
}

/// `None`: the file has no mark of this name.
fn bound(name: &str) -> Option<Bound> {
    let targets: toml::Table = TARGETS.parse().ok()?;
    let targets = targets.get("target").and_then(toml::Value::as_array).into_iter().flatten();
    let mut marks = targets.filter_map(|target| target.get("marks")?.as_array()).flatten();
    let mark = marks.find(|mark| mark.get("name").and_then(toml::Value::as_str) == Some(name))?;
    let number = |key: &str| mark.get(key).and_then(toml::Value::as_float);
    let at_least = number("at_least").map(Bound::AtLeast);
    Some(number("at_most").map(Bound::AtMost).or(at_least).unwrap_or(Bound::Beside))
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
    fn every_claim_is_in_the_file() {
        for claim in &CLAIMS {
            assert!(bound(claim.what).is_some(), "docs/targets.toml has no mark {:?}", claim.what);
        }
        let of = |what: &str| mark("T6", what.to_owned(), Spread::of([1.0]).unwrap());
        assert_eq!(of("null policy, calls/s ÷ without").wanted, "≥ 0.97");
        assert_eq!(of("content policy, CPU per call ÷ without").reached, None);
        assert_eq!(of("nothing").wanted, "not in docs/targets.toml");
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
