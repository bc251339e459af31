//! Shows where fields lie, by example and, over random schemas, by the rules every block keeps.

use crate::support;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use support::random::{Tape, descriptor_set};
use trunkline_schema::{Form, Message, Schema};

fn message(text: &str) -> Message {
    let schema = Schema::from_proto_source("test.proto", text).unwrap();
    schema.message(schema.message_named("M").unwrap()).clone()
}

fn slots(message: &Message) -> Vec<(u32, u32)> {
    message.fields.iter().map(|f| (f.number, f.slot)).collect()
}

#[test]
fn slots_by_size_then_number() {
    let m = message(
        r#"syntax = "proto3";
           message M {
             bool a = 1; int32 b = 2; string c = 3; bool d = 4; double e = 5; M f = 6; repeated bool g = 7;
           }"#,
    );
    // unknown 0, presence 4, eight-byte slots from 8, four-byte ones from 32, one-byte ones from 40
    assert_eq!(slots(&m), [(1, 40), (2, 32), (3, 8), (4, 41), (5, 16), (6, 36), (7, 24)]);
    assert_eq!(m.layout.block_bytes, 48);
}

#[test]
fn without_eight_byte_slots_nothing_is_padded_before_the_end() {
    let m = message(r#"syntax = "proto3"; message M { int32 a = 1; bool b = 2; }"#);
    assert_eq!((slots(&m), m.layout.block_bytes), (vec![(1, 8), (2, 12)], 16));
    let m = message(r#"syntax = "proto3"; message M { bool a = 1; }"#);
    assert_eq!((slots(&m), m.layout.block_bytes), (vec![(1, 8)], 16));
    let m = message(r#"syntax = "proto3"; message M {}"#);
    assert_eq!((m.layout.block_bytes, m.layout.presence_words), (8, 0));
}

#[test]
fn a_second_presence_word_shifts_the_slots() {
    let fields: String = (1..=33).map(|i| format!("int64 f{i} = {i};")).collect();
    let m = message(&format!(r#"syntax = "proto3"; message M {{ {fields} }}"#));
    assert_eq!(m.layout.presence_words, 2);
    assert_eq!(m.fields[0].slot, 16, "4 + 8 bytes, padded to 8");
    assert_eq!(m.layout.block_bytes, 16 + 33 * 8);
}

#[test]
fn oneof_members_share_the_widest_slot_where_the_lowest_stands() {
    let m = message(
        r#"syntax = "proto3";
           message M { int64 a = 1; oneof o { bool b = 9; int32 c = 2; string d = 7; } int64 e = 3; int32 f = 4; }"#,
    );
    assert_eq!(slots(&m), [(1, 8), (2, 16), (3, 24), (4, 32), (7, 16), (9, 16)]);
    assert_eq!((m.oneofs[0].slot, m.oneofs[0].slot_bytes), (16, 8));
    assert_eq!(m.oneofs[0].fields, [1, 4, 5]);
    let mask = m.layout.oneofs[0];
    assert_eq!((mask.word, mask.mask, mask.first), (0, 0b11_0010, true));
}

#[test]
fn a_oneof_over_several_presence_words() {
    let fields: String = (1..=60).map(|i| format!("int32 f{i} = {i};")).collect();
    let m = message(&format!(
        r#"syntax = "proto3"; message M {{ oneof o {{ int32 a = 100; int32 b = 101; int32 x = 200; }} {fields} }}"#
    ));
    assert_eq!(m.layout.oneofs.len(), 1, "fields 61 to 63 of 63 share word 1");
    let fields: String = (2..=40).map(|i| format!("int32 f{i} = {i};")).collect();
    let m = message(&format!(
        r#"syntax = "proto3"; message M {{ oneof o {{ int32 a = 1; int32 b = 101; }} {fields} }}"#
    ));
    let parts: Vec<_> = m.layout.oneofs.iter().map(|p| (p.word, p.mask, p.first)).collect();
    assert_eq!(parts, [(0, 1, true), (1, 1 << 8, false)]);
}

#[test]
fn wide_messages_have_ordinary_layouts() {
    for (kind, slot_bytes) in [("int32", 4), ("string", 8)] {
        let fields: String = (1..=8192).map(|i| format!("{kind} f{i} = {i};")).collect();
        let m = message(&format!(r#"syntax = "proto3"; message M {{ {fields} }}"#));
        assert_eq!(m.layout.presence_words, 256);
        // 4 + 1024 bytes of head; eight-byte slots begin at the next multiple of 8
        let head = if slot_bytes == 8 { 1032 } else { 1028 };
        assert_eq!(m.fields[8191].slot, head + 8191 * slot_bytes);
        assert_eq!(m.layout.block_bytes, (head + 8192 * slot_bytes).next_multiple_of(8));
    }
}

/// What every layout keeps, whatever the schema.
fn keeps_the_rules(m: &Message) {
    let layout = &m.layout;
    let mut used: Vec<(u32, u32)> = Vec::new();
    for (bit, field) in m.fields.iter().enumerate() {
        let slot = layout.slots[bit];
        assert_eq!((field.presence_bit as usize, field.slot), (bit, slot.offset));
        let strict = field.utf8 || matches!(slot.form, Form::ClosedEnum | Form::ClosedEnumArray);
        assert_eq!(slot.form, Form::of(field.kind, field.is_repeated(), strict));
        let bytes = slot.form.slot_bytes();
        assert_eq!(slot.offset % bytes, 0, "aligned");
        assert!(slot.offset + bytes <= layout.block_bytes, "inside");
        match field.oneof {
            None => used.push((slot.offset, bytes)),
            Some(i) => {
                let oneof = &m.oneofs[usize::from(i)];
                assert_eq!(slot.offset, oneof.slot, "shared");
                assert!(bytes <= oneof.slot_bytes && oneof.fields.contains(&(bit as u32)));
            }
        }
        let word = layout.words[bit / 32];
        assert_eq!(word.checked >> (bit % 32) & 1 == 1, slot.form.is_checked());
        assert_eq!(word.defined >> (bit % 32) & 1, 1);
    }
    let defined: u32 = layout.words.iter().map(|word| word.defined.count_ones()).sum();
    assert_eq!((defined as usize, layout.words.len()), (m.fields.len(), layout.presence_words as usize));
    used.extend(m.oneofs.iter().map(|o| (o.slot, o.slot_bytes)));
    used.push((0, 4 + 4 * layout.presence_words));
    used.sort_unstable();
    assert!(used.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "no two share a byte: {used:?}");
    let padding = layout.block_bytes - used.iter().map(|(_, bytes)| bytes).sum::<u32>();
    assert!(padding < 16, "at most four bytes before the slots and seven behind: {padding}");
    assert_eq!(layout.block_bytes % 8, 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn rules_hold_for_random_schemas(tape in proptest::collection::vec(any::<u8>(), 0..400)) {
        let set = descriptor_set(&mut Tape::new(&tape));
        let schema = Schema::from_descriptor_set(&set).unwrap();
        schema.messages().iter().for_each(keeps_the_rules);
        let names: Vec<_> = schema.messages().iter().map(|m| schema.message_named(&m.full_name)).collect();
        let expected: Vec<_> = (0..names.len() as u32).map(|i| Some(trunkline_schema::MessageIndex(i))).collect();
        prop_assert_eq!(names, expected);
    }
}
