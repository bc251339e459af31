//! Shows that what is read of a linear message, by whoever judges it, is what any reader of protobuf finds in its
//! encoded form, whatever stands among the unknown fields: random schemas and messages, with random runs of unknown
//! bytes put into their blocks. prost-reflect is the other reader.

use crate::transcode_support;

use proptest::prelude::*;
use prost_reflect::{DynamicMessage, Kind as Type, MapKey, Value as Found};
use transcode_support::wires::Enums;
use transcode_support::{Both, Random, assert_same, reader, schemas, wires};
use trunkline_message::transcode::{DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, CheckErrorKind, DynamicView, Extent, HEADER_BYTES, Value, View, check};
use trunkline_schema::{MessageIndex, Schema};

/// Sound fields of a type, unknown fields, damage: what somebody might put where nobody looks.
fn random_run(random: &mut Random, schema: &Schema, index: MessageIndex) -> Vec<u8> {
    let mut run = Vec::new();
    for _ in 0..1 + random.below(3) {
        let message = schema.message(index);
        match random.below(8) {
            0..3 => wires::unknown_field(random, schema, index, &mut run),
            // Any number with any wire type: declared ones with the wrong type among them.
            3..5 if !message.fields.is_empty() => {
                let field = random.pick(&message.fields);
                // Of a map's entry prost-reflect does not ask for the wire type, and reads a number as a length.
                if !field.is_map {
                    wires::unknown_value(random, field.number, 2, &mut run);
                }
            }
            _ => run.extend(wires::wire_with(random, schema, index, 3, Enums::Any)),
        }
    }
    run
}

/// Every message in an extent: its type and where its block is. Entries of maps are not among them: their unknown
/// fields are examined and left behind.
fn blocks(schema: &Schema, view: DynamicView<'_>, out: &mut Vec<(MessageIndex, u32)>) {
    let descriptor = view.descriptor();
    if !descriptor.is_map_entry {
        out.push((schema.message_named(&descriptor.full_name).unwrap(), view.view().offset()));
    }
    for (_, value) in view.fields() {
        match value {
            Value::Message(inner) => blocks(schema, inner, out),
            Value::List(list) => list.iter().for_each(|element| {
                if let Value::Message(inner) = element {
                    blocks(schema, inner, out);
                }
            }),
            _ => (),
        }
    }
}

/// The message with `run` for the unknown bytes of the block at `at`.
fn with_run(linear: &[u8], at: u32, run: &[u8]) -> AlignedBuf {
    let mut bytes = linear.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let run_at = bytes.len() as u32;
    bytes.extend_from_slice(&(run.len() as u32).to_le_bytes());
    bytes.extend_from_slice(run);
    bytes[at as usize..][..4].copy_from_slice(&run_at.to_le_bytes());
    let total = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&total.to_le_bytes());
    AlignedBuf::copied(&bytes).unwrap()
}

/// Without unknown fields, and without numbers that a closed enum does not have: prost-reflect takes them for values.
fn known(schema: &Schema, message: &mut DynamicMessage) {
    message.take_unknown_fields().for_each(drop);
    let closed = |kind: &Type| {
        let of = kind.as_enum()?;
        schema.enums().iter().find(|known| known.full_name == of.full_name() && known.closed)
    };
    let fields: Vec<_> = message.fields().map(|(field, value)| (field, value.clone())).collect();
    for (field, mut value) in fields {
        let kind = match field.kind() {
            Type::Message(entry) if field.is_map() => entry.get_field(2).unwrap().kind(),
            kind => kind,
        };
        let of = closed(&kind);
        let stray = |value: &Found| match (value, of) {
            (Found::EnumNumber(number), Some(of)) => !of.declares(*number),
            _ => false,
        };
        match &mut value {
            Found::Message(inner) => known(schema, inner),
            Found::List(list) => {
                list.retain(|element| !stray(element));
                for element in list {
                    if let Found::Message(inner) = element {
                        known(schema, inner);
                    }
                }
            }
            Found::Map(map) => {
                map.retain(|_: &MapKey, value| !stray(value));
                for value in map.values_mut() {
                    if let Found::Message(inner) = value {
                        known(schema, inner);
                    }
                }
            }
            one if stray(one) => {
                message.clear_field(&field);
                continue;
            }
            _ => (),
        }
        if matches!(&value, Found::List(list) if list.is_empty()) {
            message.clear_field(&field);
            continue;
        }
        message.set_field(&field, value);
    }
}

fn agree(schema_seed: u64, wire_seed: u64, weight: usize) {
    let both = Both::new(&schemas::random_schema(&mut Random(schema_seed)));
    let (root, descriptor) = both.root("random.M0");
    let mut random = Random(wire_seed);
    let (mut extent, mut encoded) = (AlignedBuf::new(), Encoded::new());
    let wire = wires::wire_with(&mut random, both.schema(), root, weight, Enums::Any);
    let len = both.transcoder.decode(root, &wire, &mut extent, &DecodeLimits::default()).unwrap();
    let linear = &extent.bytes()[..len];
    let mut places = Vec::new();
    blocks(both.schema(), DynamicView::root(both.schema(), root, linear), &mut places);
    for _ in 0..12 {
        let &(index, at) = random.pick(&places);
        let mut run = random_run(&mut random, both.schema(), index);
        let damaged = random.once_in(6);
        if damaged {
            wires::damage(&mut random, &mut run);
        }
        let judged = with_run(linear, at, &run);
        let accepted = check(both.schema(), root, judged.bytes()).map(drop);
        let written = both.transcoder.encode_into(root, judged.bytes(), &mut encoded);
        assert_eq!(accepted.is_ok(), written.is_ok(), "{accepted:?} {written:?} {run:02x?}");
        let Ok(written) = written else { continue };
        if damaged {
            continue;
        }
        // A reader that refuses a wrong wire type is not led astray.
        let Ok(mut found) = DynamicMessage::decode(descriptor.clone(), written) else { continue };
        known(both.schema(), &mut found);
        let mut slots = judged.bytes().to_vec();
        places.iter().for_each(|&(_, at)| slots[at as usize..][..4].fill(0));
        let seen = reader::read(both.schema(), root, &descriptor, &slots, HEADER_BYTES as u32);
        assert_same(&found, &seen, written);
    }
}

/// A run passes if, and only if, it is what the decoder takes for unknown.
fn a_run_is_judged_as_it_is_decoded(schema_seed: u64, wire_seed: u64) {
    let both = Both::new(&schemas::random_schema(&mut Random(schema_seed)));
    let (root, _) = both.root("random.M0");
    let mut random = Random(wire_seed);
    let mut extent = AlignedBuf::new();
    let empty = both.transcoder.decode(root, &[], &mut extent, &DecodeLimits::default()).unwrap();
    let empty = extent.bytes()[..empty].to_vec();
    for _ in 0..30 {
        let mut run = random_run(&mut random, both.schema(), root);
        if random.once_in(4) {
            wires::damage(&mut random, &mut run);
        }
        let judged = with_run(&empty, HEADER_BYTES as u32, &run);
        let passes = check(both.schema(), root, judged.bytes()).map(drop);
        let decoded = both.transcoder.decode(root, &run, &mut extent, &DecodeLimits::default());
        let unknown = decoded.as_ref().is_ok_and(|&len| {
            let view = DynamicView::root(both.schema(), root, &extent.bytes()[..len]);
            // A list of which no element is known is there, and empty.
            let nothing = |value| matches!(value, Value::List(list) if list.is_empty());
            view.unknown() == run && view.fields().all(|(_, value)| nothing(value))
        });
        assert_eq!(passes.is_ok(), unknown, "{passes:?} {decoded:?} {run:02x?}");
    }
}

proptest! {
    #![proptest_config(transcode_support::cases())]

    #[test]
    fn what_was_seen_is_what_is_found(schema: u64, wire: u64, weight in 0usize..20) {
        agree(schema, wire, weight);
    }

    #[test]
    fn runs_are_judged_as_they_are_decoded(schema: u64, wire: u64) {
        a_run_is_judged_as_it_is_decoded(schema, wire);
    }
}

/// The case all this is about: a policy reads "blue", the backend would read "red".
#[test]
fn a_declared_field_does_not_hide_among_the_unknown() {
    let both = Both::from_proto(
        "syntax = \"proto3\"; package random; message M0 { string tenant = 1; oneof o { int32 a = 2; string b = 3; } }",
    );
    let (root, _) = both.root("random.M0");
    let mut extent = AlignedBuf::new();
    let blue = b"\x0a\x04blue\x10\x01";
    let len = both.transcoder.decode(root, blue, &mut extent, &DecodeLimits::default()).unwrap();
    // The same field again; another member of the oneof; text that is not UTF-8; a broken field.
    for run in
        [&b"\x0a\x03red"[..], b"\x1a\x01x", b"\x0a\x01\xff", b"\xfa\x01\x05ab", b"\x98\x06\x01\x0a\x03red"]
    {
        let judged = with_run(&extent.bytes()[..len], HEADER_BYTES as u32, run);
        let refused = check(both.schema(), root, judged.bytes()).map(drop).unwrap_err();
        assert!(matches!(refused.kind, CheckErrorKind::Declared | CheckErrorKind::Unknown), "{run:02x?}");
        assert!(both.transcoder.encode(root, judged.bytes(), &mut Vec::new()).is_err(), "{run:02x?}");
    }
    // What passes stands in front, so that the known fields have the last word with any reader.
    let judged = with_run(&extent.bytes()[..len], HEADER_BYTES as u32, b"\x98\x06\x01\x08\x05");
    let mut wire = Vec::new();
    both.transcoder.encode(root, judged.bytes(), &mut wire).unwrap();
    assert_eq!(wire, [&b"\x98\x06\x01\x08\x05"[..], blue].concat());
}

/// A number that a closed enum does not have is no value of its fields: readers would find another one there.
#[test]
fn closed_enums_hold_what_they_declare() {
    let both = Both::from_proto(
        "syntax = \"proto2\"; package random; enum E { RED = 1; BLUE = 2; }
         message M0 { optional E one = 1; repeated E many = 2; repeated E packed = 3 [packed = true];
                      map<int32, E> by = 4; }",
    );
    let (root, _) = both.root("random.M0");
    let mut extent = AlignedBuf::new();
    for sound in [&b"\x08\x02"[..], b"\x10\x01\x10\x02", b"\x1a\x02\x01\x02", b"\x22\x04\x08\x07\x10\x02"] {
        let len = both.transcoder.decode(root, sound, &mut extent, &DecodeLimits::default()).unwrap();
        let linear = extent.bytes()[..len].to_vec();
        let last_blue = (HEADER_BYTES + 8..len).rev().find(|&at| linear[at] == 2 && at % 4 == 0);
        let mut stray = AlignedBuf::copied(&linear).unwrap();
        stray.bytes_mut()[last_blue.unwrap()] = 77;
        let refused = check(both.schema(), root, stray.bytes()).map(drop).unwrap_err();
        assert_eq!(refused.kind, CheckErrorKind::Enum, "{sound:02x?}");
        let unwritten = both.transcoder.encode(root, stray.bytes(), &mut Vec::new()).unwrap_err();
        assert!(unwritten.to_string().contains("closed enum"), "{unwritten}");
        assert!(check(both.schema(), root, AlignedBuf::copied(&linear).unwrap().bytes()).is_ok());
    }
}

/// Of a map's entry every reader finds the pair and nothing else.
#[test]
fn entries_of_maps_are_pairs() {
    let both = Both::from_proto(
        "syntax = \"proto2\"; package random; enum E { RED = 1; BLUE = 2; }
         message M0 { map<int32, int32> plain = 1; map<int32, E> closed = 2; }",
    );
    let (root, _) = both.root("random.M0");
    let cases: [(&[u8], &[u8]); 6] = [
        // An unknown field, and a value of the wrong wire type.
        (b"\x0a\x07\x08\x05\x10\x06\x98\x06\x01", b"\x0a\x04\x08\x05\x10\x06"),
        (b"\x0a\x05\x08\x05\x12\x01a", b"\x0a\x04\x08\x05\x10\x00"),
        (b"\x12\x07\x08\x05\x10\x02\x98\x06\x01", b"\x12\x04\x08\x05\x10\x02"),
        (b"\x12\x05\x08\x05\x98\x06\x01", b"\x12\x04\x08\x05\x10\x01"),
        // Of two values the last one counts: known here, unknown below, and then the entry is.
        (b"\x12\x06\x08\x05\x10\x4d\x10\x02", b"\x12\x04\x08\x05\x10\x02"),
        (b"\x12\x06\x08\x05\x10\x02\x10\x4d", b"\x12\x06\x08\x05\x10\x02\x10\x4d"),
    ];
    for (wire, expected) in cases {
        let mut extent = AlignedBuf::new();
        let len = both.transcoder.decode(root, wire, &mut extent, &DecodeLimits::default()).unwrap();
        let mut back = Vec::new();
        both.transcoder.encode(root, &extent.bytes()[..len], &mut back).unwrap();
        assert_eq!(back, expected, "{wire:02x?}");
        assert_eq!(View::root(&extent.bytes()[..len]).unknown().is_empty(), !expected.ends_with(b"\x4d"));
    }
}
