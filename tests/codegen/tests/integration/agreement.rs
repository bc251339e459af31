//! Shows that generated types agree with the run-time schema, and that random messages of every type survive the way
//! protobuf, linear, struct, linear, protobuf, as another protobuf library reads both ends.
#![allow(deprecated, reason = "deprecated messages have to work as well")]

use crate::for_each_message;
use crate::support;

use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::DynamicMessage;
use support::{BOTH, Random, random_message};
use trunkline_codegen_tests::*;
use trunkline_message::transcode::DecodeLimits;
use trunkline_message::{AlignedBuf, Extent, Message, check};

/// Levels of messages a random message may have.
const DEPTH: u32 = 4;

fn travels<M: Message + PartialEq + std::fmt::Debug>(full_name: &str, seed: u64) {
    let schema = BOTH.transcoder.schema();
    let root = schema.message_named(full_name).unwrap();
    let descriptor = BOTH.pool.get_message_by_name(full_name).unwrap();
    let wire = random_message(&mut Random(seed), &descriptor, DEPTH).encode_to_vec();
    let sent = DynamicMessage::decode(descriptor.clone(), wire.as_slice()).unwrap();

    let mut extent = AlignedBuf::new();
    let len = BOTH.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    let owned = M::read(M::view(&extent.bytes()[..len]));
    let linear = owned.to_linear().unwrap();
    assert_eq!(M::read(M::view(linear.bytes())), owned);

    check(schema, root, linear.bytes()).unwrap();
    let mut wire = Vec::new();
    BOTH.transcoder.encode(root, linear.bytes(), &mut wire).unwrap();
    // A dynamic message prints its whole descriptor: say what was read instead.
    assert!(DynamicMessage::decode(descriptor, wire.as_slice()).unwrap() == sent, "{full_name}: {owned:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_messages_survive_the_round(seed: u64) {
        macro_rules! travel {
            ($type:ty, $name:literal) => { travels::<$type>($name, seed) };
        }
        for_each_message!(travel);
    }
}

#[test]
fn constants_are_those_of_the_schema() {
    let schema = BOTH.transcoder.schema();
    macro_rules! compare {
        ($type:ty, $name:literal) => {
            let root = schema.message_named($name).expect($name);
            assert_eq!(<$type>::FULL_NAME, $name);
            assert_eq!(<$type>::FINGERPRINT, schema.fingerprint(root), "{}", $name);
            assert_eq!(<$type>::BLOCK_BYTES, schema.message(root).layout.block_bytes, "{}", $name);
        };
    }
    for_each_message!(compare);
}

#[test]
fn an_empty_message_is_all_defaults() {
    macro_rules! empty {
        ($type:ty, $name:literal) => {
            let linear = <$type>::default().to_linear().unwrap();
            assert_eq!(<$type>::read(<$type>::view(linear.bytes())), <$type>::default(), "{}", $name);
        };
    }
    for_each_message!(empty);
}

#[test]
fn descriptor_sets_hold_their_imports_and_no_comments() {
    let set = trunkline_schema::Schema::from_descriptor_set(library::v1::FILE_DESCRIPTOR_SET).unwrap();
    for name in ["library.v1.Book", "library.v1.shelf.Place", "shapes.v1.Choice"] {
        assert!(set.message_named(name).is_some(), "{name}");
    }
    assert!(set.message_named("known.Known").is_none());
    let comment = b"Every shape a field can have";
    assert!(!library::v1::FILE_DESCRIPTOR_SET.windows(comment.len()).any(|bytes| bytes == comment));
}
