//! Shows that real payloads come through linear form unchanged, byte for byte: the ones in `tests/data/shapes`, and
//! HyperProtoBench's where `TRUNKLINE_HYPERPROTOBENCH` names their directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trunkline_message::AlignedBuf;
use trunkline_message::Extent;
use trunkline_message::transcode::{DecodeLimits, Encoded, Transcoder};
use trunkline_schema::Schema;

fn round_trip(proto: &Path, message: &str, payload: &Path) {
    let schema = Schema::from_proto_files(&[proto], &[proto.parent().unwrap()]).unwrap();
    let root = schema.message_named(message).unwrap();
    let transcoder = Transcoder::new(Arc::new(schema));
    let wire = std::fs::read(payload).unwrap();
    let mut extent = AlignedBuf::new();
    let len = transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    let mut encoded = Encoded::new();
    let back = transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap();
    assert!(back == wire, "{message}: {} bytes came back as {}", wire.len(), back.len());
}

#[test]
fn shapes_come_back_unchanged() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/shapes");
    for (message, payload) in [("Small", "small"), ("Medium", "medium"), ("Large", "large"), ("Deep", "deep")]
    {
        let payload = dir.join(format!("{payload}.bin"));
        round_trip(&dir.join("shapes.proto"), &format!("trunkline.shapes.{message}"), &payload);
    }
}

#[test]
fn hyperprotobench_comes_back_unchanged() {
    let Some(dir) = std::env::var_os("TRUNKLINE_HYPERPROTOBENCH").map(PathBuf::from) else {
        println!(
            "skipped: TRUNKLINE_HYPERPROTOBENCH does not name a directory with its schemas and payloads"
        );
        return;
    };
    for (message, schema, payload) in [
        ("M3", "bench3.proto", "bench3_M3.bin"),
        ("M43", "bench4.proto", "bench4_M43.bin"),
        ("M34", "bench5.proto", "synth_bench5_M34.bin"),
        ("M252", "bench2.proto", "synth_bench2_M252.bin"),
    ] {
        round_trip(&dir.join(schema), &format!("hyperprotobench.{message}"), &dir.join(payload));
    }
}
