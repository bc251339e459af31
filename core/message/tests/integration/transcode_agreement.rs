//! Shows that decoding and encoding agree with prost on random schemas and random messages of them: fields in any
//! order, singular ones repeated and merged, packed and unpacked, maps, oneofs, groups, unknown fields at every level.

use crate::transcode_support;

use proptest::prelude::*;
use prost_reflect::DynamicMessage;
use transcode_support::{Both, Random, assert_same, reader, schemas, wires};
use trunkline_message::transcode::{DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, Extent, HEADER_BYTES};

fn agree(schema_seed: u64, wire_seed: u64, weight: usize) {
    let both = Both::new(&schemas::random_schema(&mut Random(schema_seed)));
    let (root, descriptor) = both.root("random.M0");
    let mut random = Random(wire_seed);
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    for _ in 0..4 {
        let wire = wires::random_wire(&mut random, both.schema(), root, weight);
        let expected = DynamicMessage::decode(descriptor.clone(), wire.as_slice()).unwrap();
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default());
        let len = len.unwrap_or_else(|e| panic!("{}: {wire:02x?}", e.describe(both.schema())));
        let linear = &extent.bytes()[..len];
        let read = reader::read(both.schema(), root, &descriptor, linear, HEADER_BYTES as u32);
        assert_same(&read, &expected, &wire);
        let back = both.transcoder.encode_into(root, linear, &mut encoded);
        let back = back.unwrap_or_else(|e| panic!("{e}: {wire:02x?}"));
        let back = DynamicMessage::decode(descriptor.clone(), back).unwrap();
        assert_same(&back, &expected, &wire);
    }
}

proptest! {
    #![proptest_config(transcode_support::cases())]

    #[test]
    fn random_messages_mean_the_same_to_prost(schema: u64, wire: u64, weight in 0usize..40) {
        agree(schema, wire, weight);
    }
}
