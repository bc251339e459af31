//! How long the transcoder takes, beside memcpy, prost and C++ protobuf, in one interleaved run.
//!
//! ```text
//! cargo run --release -p trunkline-message --example transcode_bench [-- <rounds> [<payload>...]]
//! ```
//! Prints medians over the rounds of thread CPU nanoseconds per message. Environment:
//! * `TRUNKLINE_HYPERPROTOBENCH`: directory with HyperProtoBench's schemas and payloads; without it, our shapes only;
//! * `TRUNKLINE_CODEC_CPP`: directory with the C++ peers, built by `tools/bench/peers/codec_cpp/Makefile`.
//!
//! HyperProtoBench's strings are proto2's, which nobody has to verify. Rows marked `+utf8` verify them all the same.

mod shapes;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use trunkline_message::transcode::{DecodeLimits, Encoded, Transcoder};
use trunkline_message::{AlignedBuf, Extent};
use trunkline_schema::{MessageIndex, Schema};

/// How long one measurement of one round runs.
const MEASUREMENT_NS: f64 = 5e6;
const ROUNDS: usize = 15;

/// `{parse, serialize}` by prost, ns per message.
type Prost = fn(&[u8]) -> [f64; 2];

/// What to measure on.
struct Payload {
    name: &'static str,
    schema: Schema,
    root: MessageIndex,
    file: PathBuf,
    /// The peer's executable in `TRUNKLINE_CODEC_CPP`.
    cpp: Option<&'static str>,
    prost: Option<Prost>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(ROUNDS);
    let wanted: Vec<String> = arguments.collect();
    println!("thread CPU ns per message, medians of {rounds} rounds");
    println!(
        "{:12} {:>7} {:>7} | {:>8} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8}",
        "payload", "wire", "linear", "memcpy", "decode", "C++", "prost", "encode", "C++", "prost"
    );
    for payload in payloads() {
        if wanted.is_empty() || wanted.iter().any(|w| w == payload.name) {
            measure(payload, rounds);
        }
    }
}

fn measure(payload: Payload, rounds: usize) {
    let wire = std::fs::read(&payload.file).unwrap();
    let schema = Arc::new(payload.schema);
    let messages = schema.messages().len();
    let build = ns_per_call(|| drop(black_box(Transcoder::new(schema.clone()))));
    let transcoder = Transcoder::new(schema);
    let root = payload.root;
    let limits = DecodeLimits::default();
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    let len = transcoder.decode(root, &wire, &mut extent, &limits).unwrap();
    let linear = AlignedBuf::copied(&extent.bytes()[..len]).unwrap();
    let mut copy = vec![0; wire.len()];
    let mut columns: [Vec<f64>; 7] = Default::default();
    for _ in 0..rounds {
        columns[0].push(ns_per_call(|| black_box(&mut copy).copy_from_slice(black_box(&wire))));
        columns[1].push(ns_per_call(|| {
            black_box(transcoder.decode(root, black_box(&wire), &mut extent, &limits).unwrap());
        }));
        columns[4].push(ns_per_call(|| {
            let bytes = &black_box(&linear).bytes()[..len];
            black_box(transcoder.encode_into(root, bytes, &mut encoded).unwrap());
        }));
        let cpp = cpp(payload.cpp, &payload.file);
        let prost = payload.prost.map_or([f64::NAN; 2], |prost| prost(&wire));
        for (column, value) in [(2, cpp[0]), (5, cpp[1]), (3, prost[0]), (6, prost[1])] {
            columns[column].push(value);
        }
    }
    let [memcpy, decode, cpp_parse, prost_parse, encode, cpp_serialize, prost_serialize] =
        columns.map(median);
    println!(
        "{:12} {:7} {:7} | {memcpy:8.1} | {decode:8.1} {cpp_parse:8.1} {prost_parse:8.1} \
         | {encode:8.1} {cpp_serialize:8.1} {prost_serialize:8.1}",
        payload.name,
        wire.len(),
        len,
    );
    if rounds > 1 {
        println!("{:12} tables for {messages} message types in {:.1} us", "", build / 1e3);
    }
}

fn payloads() -> Vec<Payload> {
    let shapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/shapes");
    let shape = |name, message: &'static str, file, prost: Prost| {
        let schema = Schema::from_proto_files(&[shapes.join("shapes.proto")], &[&shapes]).unwrap();
        let root = schema.message_named(&format!("trunkline.shapes.{message}")).unwrap();
        Payload { name, schema, root, file: shapes.join(file), cpp: Some(message), prost: Some(prost) }
    };
    let mut payloads = vec![
        shape("small", "Small", "small.bin", prost::<shapes::Small>),
        shape("medium", "Medium", "medium.bin", prost::<shapes::Medium>),
        shape("large", "Large", "large.bin", prost::<shapes::Large>),
        shape("deep", "Deep", "deep.bin", prost::<shapes::Deep>),
    ];
    let Some(dir) = std::env::var_os("TRUNKLINE_HYPERPROTOBENCH").map(PathBuf::from) else {
        println!("TRUNKLINE_HYPERPROTOBENCH is not set: its payloads are left out");
        return payloads;
    };
    for (name, checked, message, proto, file) in [
        ("M3", "M3+utf8", "M3", "bench3.proto", "bench3_M3.bin"),
        ("M43", "M43+utf8", "M43", "bench4.proto", "bench4_M43.bin"),
        ("M34", "M34+utf8", "M34", "bench5.proto", "synth_bench5_M34.bin"),
        ("M252", "M252+utf8", "M252", "bench2.proto", "synth_bench2_M252.bin"),
    ] {
        let schema = Schema::from_proto_files(&[dir.join(proto)], &[&dir]).unwrap();
        let strict = verifying_utf8(&schema);
        for (name, schema) in [(name, schema), (checked, strict)] {
            let root = schema.message_named(&format!("hyperprotobench.{message}")).unwrap();
            let file = dir.join(file);
            payloads.push(Payload { name, schema, root, file, cpp: Some(message), prost: None });
        }
    }
    payloads
}

/// The same schema with proto2's rules, except that strings are verified: its one file, moved to edition 2023 by fields
/// appended to it.
fn verifying_utf8(schema: &Schema) -> Schema {
    let mut set = schema.descriptor_set();
    let (_, _) = prost::encoding::decode_key(&mut set).unwrap();
    let len = prost::encoding::decode_varint(&mut set).unwrap() as usize;
    assert_eq!(set.len(), len, "one file");
    let mut file = set.to_vec();
    // syntax = 12, edition = 14; options = 8 with features = 50: explicit presence, closed enums, expanded repeated
    // fields, verified UTF-8.
    let features = [1 << 3, 1, 2 << 3, 2, 3 << 3, 2, 4 << 3, 2];
    let mut options = Vec::new();
    prost::encoding::bytes::encode(50, &features.to_vec(), &mut options);
    prost::encoding::string::encode(12, &"editions".to_owned(), &mut file);
    prost::encoding::int32::encode(14, &1000, &mut file);
    prost::encoding::bytes::encode(8, &options, &mut file);
    let mut set = Vec::new();
    prost::encoding::bytes::encode(1, &file, &mut set);
    Schema::from_descriptor_set(&set).unwrap()
}

fn prost<M: Message + Default>(wire: &[u8]) -> [f64; 2] {
    let message = M::decode(wire).unwrap();
    let mut out = Vec::with_capacity(2 * wire.len());
    let parse = ns_per_call(|| {
        black_box(M::decode(black_box(wire)).unwrap());
    });
    let serialize = ns_per_call(|| {
        out.clear();
        black_box(&message).encode(black_box(&mut out)).unwrap();
    });
    [parse, serialize]
}

/// One round of the C++ peer.
fn cpp(peer: Option<&str>, file: &Path) -> [f64; 2] {
    let (Some(peer), Some(dir)) = (peer, std::env::var_os("TRUNKLINE_CODEC_CPP")) else {
        return [f64::NAN; 2];
    };
    let mut command = Command::new(Path::new(&dir).join(peer));
    let output = command.arg(file).arg((MEASUREMENT_NS / 1e6).to_string()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|n| n.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

fn ns_per_call(mut call: impl FnMut()) -> f64 {
    let start = thread_cpu_ns();
    let mut calls = 0;
    let mut batch = 1;
    loop {
        for _ in 0..batch {
            call();
        }
        calls += batch;
        let elapsed = thread_cpu_ns() - start;
        if elapsed >= MEASUREMENT_NS {
            return elapsed / f64::from(calls);
        }
        batch *= 2;
    }
}

fn thread_cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
