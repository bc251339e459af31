//! Transcodes or checks one message again and again and ends: what `cargo xtask counts` counts the instructions of.
//!
//! `transcode_counts small|medium|large|deep decode|encode|check TIMES`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use trunkline_message::transcode::{DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, Extent, Transcoder, check};
use trunkline_schema::Schema;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [shape, what, times] = words.as_slice() else { panic!("three words are expected") };
    let shapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/shapes");
    let schema = Schema::from_proto_files(&[shapes.join("shapes.proto")], &[&shapes]).unwrap();
    let name = shape[..1].to_uppercase() + &shape[1..];
    let root = schema.message_named(&format!("trunkline.shapes.{name}")).unwrap();
    let schema = Arc::new(schema);
    let transcoder = Transcoder::new(schema.clone());
    let wire = std::fs::read(shapes.join(format!("{shape}.bin"))).unwrap();
    let limits = DecodeLimits::default();
    let mut extent = AlignedBuf::new();
    let len = transcoder.decode(root, &wire, &mut extent, &limits).unwrap();
    let linear = AlignedBuf::copied(&extent.bytes()[..len]).unwrap();
    let mut encoded = Encoded::new();
    let mut once = || {
        let bytes = &black_box(&linear).bytes()[..len];
        match what.as_str() {
            "decode" => transcoder.decode(root, black_box(&wire), &mut extent, &limits).unwrap(),
            "encode" => {
                transcoder.encode_into(root, bytes, &mut encoded).unwrap();
                encoded.bytes().len()
            }
            "check" => check(&schema, root, bytes).map(|_| len).unwrap(),
            other => panic!("{other} is not decode, encode or check"),
        }
    };
    for _ in 0..times.parse::<u32>().unwrap() {
        black_box(once());
    }
}
