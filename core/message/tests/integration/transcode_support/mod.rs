//! Random schemas, random wire bytes for them, and an independent reader of linear messages.
//!
//! The reader goes by the schema and `docs/linear.md`, not by the transcoder's tables, and builds a prost-reflect
//! message, so that what is compared is what a message says and not two halves of one mistake.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod reader;
pub mod schemas;
pub mod wires;

use std::sync::Arc;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _};
use trunkline_message::transcode::Transcoder;
use trunkline_schema::{MessageIndex, Schema};

/// The same cases on every run; more of them, and others, by PROPTEST_CASES and PROPTEST_RNG_SEED.
pub fn cases() -> ProptestConfig {
    let by_default = ProptestConfig::default();
    let rng_seed = match by_default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed => fixed,
    };
    ProptestConfig { failure_persistence: None, rng_seed, ..by_default }
}

/// A small generator, so that a case is one number.
pub struct Random(pub u64);

impl Random {
    /// 64 random bits (splitmix64, from Vigna's public-domain description).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// One schema as both sides see it.
pub struct Both {
    pub transcoder: Transcoder,
    pub pool: DescriptorPool,
}

impl Both {
    pub fn new(descriptor_set: &[u8]) -> Both {
        let schema = Schema::from_descriptor_set(descriptor_set).unwrap();
        let pool = DescriptorPool::decode(descriptor_set).unwrap();
        Both { transcoder: Transcoder::new(Arc::new(schema)), pool }
    }

    pub fn from_proto(text: &str) -> Both {
        let schema = Schema::from_proto_source("test.proto", text).unwrap();
        Both::new(schema.descriptor_set())
    }

    pub fn schema(&self) -> &Arc<Schema> {
        self.transcoder.schema()
    }

    pub fn root(&self, name: &str) -> (MessageIndex, MessageDescriptor) {
        (self.schema().message_named(name).unwrap(), self.pool.get_message_by_name(name).unwrap())
    }
}

/// A message without the zeros that implicit presence does not send, so that equal means the same to a peer.
pub fn canonical(message: &DynamicMessage) -> DynamicMessage {
    DynamicMessage::decode(message.descriptor(), message.encode_to_vec().as_slice()).unwrap()
}

/// Asserts that two messages say the same. prost-reflect cannot print a message of a recursive type, so a difference
/// is shown in wire bytes.
#[track_caller]
pub fn assert_same(got: &DynamicMessage, expected: &DynamicMessage, wire: &[u8]) {
    let (got, expected) = (canonical(got), canonical(expected));
    let shown = |m: &DynamicMessage| m.encode_to_vec();
    assert!(
        got == expected,
        "of      {wire:02x?}\ngot     {:02x?}\nexpected {:02x?}",
        shown(&got),
        shown(&expected)
    );
}
