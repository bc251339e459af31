//! The transcoder for a test in another language.
//!
//! * `transcode_filter cases <count> <seed>` prints random cases, one per line: an encoded descriptor set, the name of
//!   a message, and bytes on the wire for it, of which some are damaged.
//! * `transcode_filter` reads such lines and answers each with what the bytes become when they are decoded to linear
//!   form and encoded again, or with `refused: <why>`.
//!
//! Bytes are in hexadecimal, `-` for none. `tests/codec/python_agreement.py` is the other side.

#[path = "../tests/integration/transcode_support/mod.rs"]
mod transcode_support;

use std::io::{BufRead, Write};
use std::sync::Arc;

use transcode_support::wires::{self, Enums};
use transcode_support::{Random, schemas};
use trunkline_message::transcode::{DecodeLimits, Encoded, Transcoder};
use trunkline_message::{AlignedBuf, Extent};
use trunkline_schema::Schema;

/// Wires per schema.
const WIRES: u64 = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cases", count, seed] => cases(count.parse().unwrap(), seed.parse().unwrap()),
        [] => filter(),
        _ => panic!("usage: transcode_filter [cases <count> <seed>]"),
    }
}

fn cases(count: u64, seed: u64) {
    let mut out = std::io::stdout().lock();
    let mut random = Random(seed);
    for _ in 0..count.div_ceil(WIRES) {
        let set = schemas::random_schema(&mut random);
        let schema = Schema::from_descriptor_set(&set).unwrap();
        let root = schema.message_named("random.M0").unwrap();
        for i in 0..WIRES {
            let weight = random.below(30);
            let mut wire = wires::wire_with(&mut random, &schema, root, weight, Enums::Any);
            if i % 2 == 1 {
                wires::damage(&mut random, &mut wire);
            }
            writeln!(out, "{} random.M0 {}", to_hex(&set), to_hex(&wire)).unwrap();
        }
    }
}

fn filter() {
    let mut out = std::io::stdout().lock();
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    let mut last: Option<(String, Transcoder)> = None;
    for line in std::io::stdin().lock().lines().map(Result::unwrap) {
        let [set, name, wire] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("three words, not {line:?}")
        };
        if last.as_ref().is_none_or(|(known, _)| known != set) {
            let schema = Schema::from_descriptor_set(&from_hex(set)).unwrap();
            last = Some((set.to_owned(), Transcoder::new(Arc::new(schema))));
        }
        let Some((_, transcoder)) = &last else { continue };
        let root = transcoder.schema().message_named(name).unwrap();
        let answer = match transcoder.decode(root, &from_hex(wire), &mut extent, &DecodeLimits::default()) {
            Err(error) => format!("refused: {}", error.describe(transcoder.schema())),
            Ok(len) => to_hex(transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap()),
        };
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
}

fn to_hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_owned() } else { bytes.iter().map(|b| format!("{b:02x}")).collect() }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
