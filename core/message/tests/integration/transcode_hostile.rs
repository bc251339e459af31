//! Shows what bytes from somebody who means harm get: an error that says what is wrong, and neither a panic nor more
//! memory or time than they are long. What decodes passes the check; what passes the check encodes, and nothing else.

use crate::transcode_support;

use proptest::prelude::*;
use transcode_support::{Both, Random, schemas, wires};
use trunkline_message::transcode::{
    DecodeErrorKind, DecodeLimits, EncodeError, Encoded, GROWTH_FREE_BYTES, HEADROOM_BYTES,
};
use trunkline_message::{AlignedBuf, CheckErrorKind, Extent, HEADER_BYTES, LimitError, check};

fn limits(linear_bytes_max: usize) -> DecodeLimits {
    DecodeLimits { linear_bytes_max, ..DecodeLimits::default() }
}

/// Overwrites words of an extent with what offsets and counts are made of.
fn damage_words(random: &mut Random, extent: &mut [u8]) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(extent.len() / 4) * 4;
        let old = u32::from_le_bytes(extent[at..at + 4].try_into().unwrap());
        let len = extent.len() as u32;
        let new = match random.below(7) {
            0 => random.bits() as u32,
            1 => random.below(extent.len() + 16) as u32,
            2 => random.below(extent.len() / 8 + 2) as u32 * 8,
            3 => old ^ 1 << random.below(32),
            4 => old.wrapping_add(random.below(9) as u32).wrapping_sub(4),
            5 => *random.pick(&[0, 1, 24, len, len - 8, u32::MAX]),
            _ => old.wrapping_mul(2),
        };
        extent[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

/// Decodes `wire`; what comes out must pass the check and encode.
fn decode_and_check(
    both: &Both,
    wire: &[u8],
    extent: &mut AlignedBuf,
    encoded: &mut Encoded,
) -> Option<usize> {
    let (root, _) = both.root("random.M0");
    let len = both.transcoder.decode(root, wire, extent, &limits(64 << 20)).ok()?;
    let linear = &extent.bytes()[..len];
    if let Err(error) = check(both.schema(), root, linear) {
        panic!("{}: {wire:02x?}", error.describe(both.schema()));
    }
    both.transcoder.encode_into(root, linear, encoded).unwrap();
    Some(len)
}

proptest! {
    #![proptest_config(transcode_support::cases())]

    #[test]
    fn damaged_wire_bytes_are_decoded_or_refused(schema: u64, wire: u64, weight in 0usize..40) {
        let both = Both::new(&schemas::random_schema(&mut Random(schema)));
        let (root, _) = both.root("random.M0");
        let mut random = Random(wire);
        let (mut extent, mut encoded) = (AlignedBuf::new(), Encoded::new());
        let sound = wires::wire_with(&mut random, both.schema(), root, weight, wires::Enums::Any);
        prop_assert!(decode_and_check(&both, &sound, &mut extent, &mut encoded).is_some());
        for _ in 0..20 {
            let mut wire = sound.clone();
            wires::damage(&mut random, &mut wire);
            decode_and_check(&both, &wire, &mut extent, &mut encoded);
        }
    }

    #[test]
    fn random_bytes_are_decoded_or_refused(schema: u64, wire in proptest::collection::vec(any::<u8>(), 0..200)) {
        let both = Both::new(&schemas::random_schema(&mut Random(schema)));
        decode_and_check(&both, &wire, &mut AlignedBuf::new(), &mut Encoded::new());
    }

    #[test]
    fn what_the_check_accepts_is_what_encodes(schema: u64, wire: u64, weight in 1usize..30) {
        let both = Both::new(&schemas::random_schema(&mut Random(schema)));
        let (root, _) = both.root("random.M0");
        let mut random = Random(wire);
        let (mut extent, mut encoded) = (AlignedBuf::new(), Encoded::new());
        let wire = wires::random_wire(&mut random, both.schema(), root, weight);
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
        for _ in 0..30 {
            let mut damaged = AlignedBuf::copied(&extent.bytes()[..len]).unwrap();
            damage_words(&mut random, &mut damaged.bytes_mut()[..len]);
            let linear = &damaged.bytes()[..len];
            let accepted = check(both.schema(), root, linear).map(|_| ());
            let encodes = both.transcoder.encode_into(root, linear, &mut encoded).map(|_| ());
            prop_assert_eq!(accepted.is_ok(), encodes.is_ok(), "{:?} {:?}", accepted, encodes);
        }
    }

    /// What the memory held before does not shine through, whatever gaps there are.
    #[test]
    fn the_same_wire_bytes_make_the_same_linear_bytes(schema: u64, wire: u64, weight in 0usize..40) {
        let both = Both::new(&schemas::random_schema(&mut Random(schema)));
        let (root, _) = both.root("random.M0");
        let wire = wires::random_wire(&mut Random(wire), both.schema(), root, weight);
        let decoded = [0x00, 0xff, 0x5a].map(|dirt| {
            let mut extent = AlignedBuf::new();
            extent.grow(1 << 16).unwrap();
            extent.bytes_mut().fill(dirt);
            let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
            extent.bytes()[..len].to_vec()
        });
        prop_assert_eq!(&decoded[0], &decoded[1]);
        prop_assert_eq!(&decoded[0], &decoded[2]);
    }

    #[test]
    fn a_buffer_is_large_enough_or_refused(schema: u64, wire: u64, weight in 0usize..20, short in 0usize..40) {
        let both = Both::new(&schemas::random_schema(&mut Random(schema)));
        let (root, _) = both.root("random.M0");
        let wire = wires::random_wire(&mut Random(wire), both.schema(), root, weight);
        let (mut extent, mut encoded) = (AlignedBuf::new(), Encoded::new());
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
        let linear = &extent.bytes()[..len];
        let expected = both.transcoder.encode_into(root, linear, &mut encoded).unwrap().to_vec();
        let mut vector = vec![1, 2, 3];
        both.transcoder.encode(root, linear, &mut vector).unwrap();
        prop_assert_eq!(&vector, &expected);
        let mut buffer = vec![0xee; (expected.len() + HEADROOM_BYTES).saturating_sub(short)];
        match both.transcoder.encode_backwards(root, linear, &mut buffer) {
            Ok(start) => prop_assert_eq!(&buffer[start..], &expected),
            Err(error) => {
                prop_assert!(short > 0, "{} bytes and the headroom suffice", expected.len());
                let bytes_max = buffer.len().saturating_sub(HEADROOM_BYTES);
                prop_assert_eq!(error, EncodeError::Full { bytes_max });
            }
        }
    }
}

const WIDE: &str = r#"
syntax = "proto3";
package test;
message Wide { repeated Narrow child = 1; fixed64 a = 2; fixed64 b = 3; fixed64 c = 4; fixed64 d = 5; fixed64 e = 6; }
message Narrow { repeated Wide child = 1; repeated int32 numbers = 2; repeated string texts = 3; Narrow one = 4;
                 repeated bool flags = 5; repeated fixed64 longs = 6; }
"#;

/// An extent that counts how far it was grown, up to a limit.
struct Counted {
    buf: AlignedBuf,
    limit: usize,
}

impl Extent for Counted {
    fn bytes(&self) -> &[u8] {
        self.buf.bytes()
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.bytes_mut()
    }
    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        if min_len > self.limit {
            return Err(LimitError { wanted_bytes: min_len, limit_bytes: self.limit });
        }
        self.buf.grow(min_len)
    }
}

#[test]
fn two_byte_messages_meet_the_linear_limit() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    // Each empty child is two bytes here and a block of 56 in memory.
    let wire = [0x0a, 0].repeat(100_000);
    let mut extent = Counted { buf: AlignedBuf::new(), limit: usize::MAX };
    let error = both.transcoder.decode(root, &wire, &mut extent, &limits(1 << 20)).unwrap_err();
    assert!(error.is_limit(), "{error}");
    assert!(extent.bytes().len() <= 2 << 20, "grown to {}", extent.bytes().len());
    let len = both.transcoder.decode(root, &wire, &mut extent, &limits(8 << 20)).unwrap();
    assert!(len >= 100_000 * 60, "{len}");
}

#[test]
fn growth_is_bounded_by_what_was_sent() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let grows = |rows: usize, growth_max| {
        let mut extent = AlignedBuf::new();
        let limits = DecodeLimits { growth_max, ..DecodeLimits::default() };
        let wire = [0x0a, 0].repeat(rows);
        let decoded = both.transcoder.decode(root, &wire, &mut extent, &limits);
        (decoded, extent.bytes().len())
    };
    // What is free everybody has, and beyond that each byte has its part.
    assert!(grows(10_000, 1).0.is_ok());
    let (refused, taken) = grows(100_000, 8);
    let bytes_max = GROWTH_FREE_BYTES + 200_000 * 8;
    let expected = DecodeErrorKind::Growth { bytes: 200_000, linear_bytes_max: bytes_max };
    let error = refused.unwrap_err();
    assert!(error.is_limit());
    assert_eq!(error.kind, expected);
    assert!(taken <= 2 * bytes_max, "{taken}");
    assert!(grows(100_000, 64).0.is_ok());
}

#[test]
fn an_extent_that_cannot_grow_says_so() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let wire = [0x0a, 0].repeat(1000);
    let mut extent = Counted { buf: AlignedBuf::new(), limit: 16 << 10 };
    let error = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap_err();
    assert!(matches!(error.kind, DecodeErrorKind::Limit(LimitError { limit_bytes: 16384, .. })), "{error}");
    let short = DecodeLimits { wire_bytes_max: 1999, ..DecodeLimits::default() };
    let error = both.transcoder.decode(root, &wire, &mut extent, &short).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::WireBytes { bytes: 2000, bytes_max: 1999 });
    assert!(error.is_limit());
}

#[test]
fn the_limit_is_exact() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let wire = [0x12, 3, 1, 2, 3].repeat(50);
    let decode = |max| both.transcoder.decode(root, &wire, &mut AlignedBuf::new(), &limits(max));
    let len = decode(1 << 20).unwrap();
    assert!(decode(len - 8).unwrap_err().is_limit());
    // Blocks are cleared in strides, so a little room is asked for behind the last one.
    assert_eq!(decode(len + 72).unwrap(), len);
}

/// Fields that come by turns make arrays move; the sum of their moves stays within a factor of what they hold.
#[test]
fn hostile_orders_cost_a_factor_not_a_square() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let mut extent = AlignedBuf::new();
    let rounds = 20_000;
    let by_turns: [(&[u8], usize); 6] = [
        (&[0x10, 1, 0x28, 1], 5),
        (&[0x10, 1, 0x1a, 1, b'x'], 13),
        (&[0x1a, 0, 0x28, 1, 0x10, 1], 13),
        (&[0x10, 1, 0xa0, 6, 1], 7),
        (&[0x31, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 1], 12),
        // A message that is merged again and again, one element each time, others in between.
        (&[0x22, 2, 0x10, 1, 0x28, 1], 5),
    ];
    for (turn, held) in by_turns {
        let wire = turn.repeat(rounds);
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
        assert!(len < 6 * held * rounds, "{turn:02x?}: {len} bytes for {rounds} rounds");
    }
}

/// Tags of five bytes before each of a million bytes.
#[test]
fn a_message_that_is_longer_as_protobuf_than_it_may_be_has_no_room_made_for_it() {
    let flags = "message Flags { repeated bool on = 268435456 [packed = false]; }";
    let both = Both::from_proto(&format!("syntax = \"proto2\"; package test; {flags}"));
    let (root, _) = both.root("test.Flags");
    let count = 1 << 20;
    let mut wire = Vec::new();
    wires::put_delimited(&mut wire, 1 << 28, &vec![1; count]);
    let mut extent = AlignedBuf::new();
    let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    for (bytes_max, fits) in [(6 * count, true), (6 * count - 1, false), (1000, false)] {
        let mut encoded = Encoded::new().within(bytes_max);
        let done = both.transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded);
        let expected = if fits { Ok(6 * count) } else { Err(EncodeError::Full { bytes_max }) };
        assert_eq!(done.map(<[u8]>::len), expected);
        assert!(encoded.capacity_bytes() <= bytes_max + HEADROOM_BYTES, "{}", encoded.capacity_bytes());
    }
}

/// Members of one oneof whose presence bits are far apart: encoding says of them what the check says.
#[test]
fn two_members_of_a_oneof_are_named_by_whoever_looks() {
    let members: String = (1..=100).map(|number| format!("int32 m{number} = {number};")).collect();
    let both = Both::from_proto(&format!(
        "syntax = \"proto3\"; package test; message Wide {{ oneof which {{ {members} }} }}"
    ));
    let (root, _) = both.root("test.Wide");
    let mut extent = AlignedBuf::new();
    let len = both.transcoder.decode(root, &[0x10, 7], &mut extent, &DecodeLimits::default()).unwrap();
    let mut linear = extent.bytes()[..len].to_vec();
    // The 70th field's bit, in the third word.
    linear[HEADER_BYTES + 4 + 8] |= 1 << (69 - 64);
    let refused = check(both.schema(), root, &linear).unwrap_err();
    assert_eq!((refused.kind, refused.field), (CheckErrorKind::Oneof, 70));
    let encoded = both.transcoder.encode_into(root, &linear, &mut Encoded::new()).map(<[u8]>::len);
    assert_eq!(encoded, Err(EncodeError::Invalid(refused)));
}

#[test]
fn many_unknown_fields_stay_in_one_piece() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let wire: Vec<u8> = (0..50_000u32).flat_map(|i| [0xa0, 6, i as u8 & 0x7f]).collect();
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    assert!(len < wire.len() + 200);
    assert_eq!(both.transcoder.encode_into(root, &extent.bytes()[..len], &mut encoded).unwrap(), wire);
}

#[test]
fn a_message_of_8192_fields() {
    let fields: String = (1..=8192).map(|i| format!("optional int32 f{i} = {i};\n")).collect();
    let both = Both::from_proto(&format!("syntax = \"proto2\"; package test; message Wide {{ {fields} }}"));
    let (root, _) = both.root("test.Wide");
    let mut extent = AlignedBuf::new();
    let mut encoded = Encoded::new();
    for step in [1, 7, 64, 500, 8191] {
        let mut wire = Vec::new();
        for number in (1..=8192).step_by(step) {
            wires::put_tag(&mut wire, number, 0);
            wires::put_varint(&mut wire, u64::from(number) * 3);
        }
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
        let linear = &extent.bytes()[..len];
        assert!(check(both.schema(), root, linear).is_ok());
        assert_eq!(
            both.transcoder.encode_into(root, linear, &mut encoded).unwrap(),
            wire,
            "every {step}th field"
        );
    }
}

#[test]
fn a_stack_of_small_size_suffices_for_the_deepest_message() {
    let both = Both::from_proto(WIDE);
    let (root, _) = both.root("test.Narrow");
    let mut wire = Vec::new();
    for level in 0..100 {
        let inner = std::mem::take(&mut wire);
        wires::put_delimited(&mut wire, if level % 2 == 0 { 1 } else { 4 }, &inner);
    }
    // Twice what a release build needs and half of what an unoptimized one does not.
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    let done = thread.spawn(move || {
        let mut extent = AlignedBuf::new();
        let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default());
        if let Ok(len) = len {
            both.transcoder.encode_into(root, &extent.bytes()[..len], &mut Encoded::new()).unwrap();
        }
    });
    done.unwrap().join().unwrap();
}
