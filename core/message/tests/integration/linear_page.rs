//! Shows that `docs/linear.md` says what the code does: its schemas, layouts, examples, fingerprints, names of errors
//! and limits are read from the page.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use trunkline_message::{
    AlignedBuf, CheckErrorKind, DEPTH_MAX, DynamicBuilder, DynamicView, EXTENT_BYTES_MAX, HeaderError,
    MismatchError, Value, check,
};
use trunkline_schema::{self as schema, MessageIndex, Schema};

const PAGE: &str = include_str!("../../../../docs/linear.md");

/// The page's fenced blocks of a language, by name.
fn fenced(language: &str) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```").and_then(|l| l.strip_prefix(language)) else { continue };
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        assert!(found.insert(name.trim(), block.join("\n")).is_none(), "two blocks named {name}");
    }
    found
}

fn example(name: &str) -> Vec<u8> {
    let text = &fenced("hex ")[name];
    let digits: String =
        text.lines().flat_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

fn schema(name: &str, message: &str) -> (Schema, MessageIndex) {
    let schema = Schema::from_proto_source("page.proto", &fenced("proto ")[name]).unwrap();
    let root = schema.message_named(message).unwrap();
    (schema, root)
}

/// The cells of the rows below a table's header that contains `heading`.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let mut lines =
        PAGE.lines().skip_while(|line| !(line.starts_with('|') && line.contains(heading))).skip(2);
    let rows = lines.by_ref().take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Builds what the page describes and compares it with the page's bytes; shows a difference by line.
fn is_as_on_the_page(
    name: &str,
    message: &str,
    fill: impl FnOnce(&mut DynamicBuilder<'_, AlignedBuf>) -> Result<(), MismatchError>,
) {
    let (schema, root) = schema(name, message);
    let built = DynamicBuilder::build(&schema, root, AlignedBuf::new(), fill).unwrap();
    let page = example(name);
    for (at, (ours, theirs)) in built.bytes().chunks(8).zip(page.chunks(8)).enumerate() {
        assert_eq!(ours, theirs, "{name} at {}", 8 * at);
    }
    assert_eq!(built.len_bytes(), page.len());
    let extent = AlignedBuf::copied(&page).unwrap();
    let bytes = trunkline_message::Extent::bytes(&extent);
    check(&schema, root, bytes).unwrap();
}

#[test]
fn greeting() {
    is_as_on_the_page("greeting", "Greeting", |b| {
        b.set_named("name", Value::String(b"Ada"))?;
        b.set_named("loud", Value::Bool(true))?;
        let times = b.named("times")?;
        b.reserve(times, 2)?;
        b.push(times, Value::U32(1))?;
        b.push(times, Value::U32(2))?;
        b.set_named("text", Value::String(b"hi"))?;
        b.message(b.named("reply_to")?)?.set_named("code", Value::I32(-1))
    });
}

#[test]
fn item() {
    is_as_on_the_page("item", "Item", |b| {
        let tags = b.named("tags")?;
        b.reserve(tags, 2)?;
        b.push(tags, Value::String(b"a"))?;
        b.push(tags, Value::String(b"bc"))?;
        let stock = b.named("stock")?;
        b.reserve(stock, 1)?;
        let mut entry = b.push_message(stock)?;
        entry.set_named("key", Value::String(b"x"))?;
        entry.set_named("value", Value::I32(5))?;
        let parts = b.named("parts")?;
        b.reserve(parts, 1)?;
        b.push_message(parts)?.set_named("id", Value::String(b"p"))?;
        b.set_unknown(&[0x98, 0x06, 0x01]);
        Ok(())
    });
}

#[test]
fn examples_read_back() {
    let (schema, root) = schema("greeting", "Greeting");
    let page = example("greeting");
    let view = DynamicView::root(&schema, root, &page);
    let shown = format!("{view:?}");
    let expected = "Greeting { name: String([65, 100, 97]), loud: Bool(true), times: List([U32(1), U32(2)]), \
                    reply_to: Message(Greeting { code: I32(-1) }), text: String([104, 105]) }";
    assert_eq!(shown, expected);
}

#[test]
fn layout_table() {
    let (schema, root) = schema("greeting", "Greeting");
    let message = schema.message(root);
    let rows = table("layout of `Greeting`");
    assert_eq!(rows.len(), message.fields.len());
    for row in rows {
        let field = message.field_named(row[0]).unwrap();
        let slot = message.layout.slots[field.presence_bit as usize];
        let numbers: Vec<u32> = row[1..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!(numbers, [field.presence_bit, field.slot, slot.form.slot_bytes()], "{}", row[0]);
    }
    assert!(PAGE.contains(&format!("The block has {} bytes", message.layout.block_bytes)));
}

#[test]
fn fingerprint() {
    let (schema, root) = schema("node", "Node");
    let digest = Sha256::digest(example("node-form"));
    assert_eq!(digest[..8], example("node-fingerprint"));
    assert_eq!(schema.fingerprint(root).to_le_bytes(), digest[..8]);
}

#[test]
fn limits_table() {
    let limits = [
        ("EXTENT_BYTES_MAX", EXTENT_BYTES_MAX),
        ("DEPTH_MAX", DEPTH_MAX as usize),
        ("BLOCK_BYTES_MAX", schema::BLOCK_BYTES_MAX as usize),
        ("FIELDS_PER_MESSAGE_MAX", schema::FIELDS_PER_MESSAGE_MAX),
        ("FIELDS_MAX", schema::FIELDS_MAX),
        ("MESSAGES_MAX", schema::MESSAGES_MAX),
        ("ENUM_VALUES_MAX", schema::ENUM_VALUES_MAX),
        ("METHODS_MAX", schema::METHODS_MAX),
        ("FILES_MAX", schema::FILES_MAX),
        ("NAME_BYTES_MAX", schema::NAME_BYTES_MAX),
        ("NESTING_MAX", schema::NESTING_MAX),
        ("DESCRIPTOR_SET_BYTES_MAX", schema::DESCRIPTOR_SET_BYTES_MAX),
        ("ONEOF_MEMBERS_MAX", schema::ONEOF_MEMBERS_MAX),
        ("ONEOF_WORDS_MAX", schema::ONEOF_WORDS_MAX),
        ("FINGERPRINT_FIELDS_MAX", schema::FINGERPRINT_FIELDS_MAX),
    ];
    let page: Vec<_> = table("limit | value").iter().map(|row| (row[0].trim_matches('`'), row[1])).collect();
    let code: Vec<_> = limits.iter().map(|&(name, value)| (name, value.to_string())).collect();
    assert_eq!(page.len(), code.len());
    assert!(page.iter().zip(&code).all(|(a, b)| a.0 == b.0 && a.1 == b.1), "{page:?} {code:?}");
}

#[test]
fn every_error_is_on_the_page() {
    use CheckErrorKind::*;
    // A new kind fails to compile here until it is on the page.
    let name = |kind: CheckErrorKind| match kind {
        NoSuchMessage => "",
        Header(_) => "Header",
        Length(_) => "Length",
        Fingerprint(_) => "Fingerprint",
        Misaligned => "Misaligned",
        OutOfBounds => "OutOfBounds",
        Overlap => "Overlap",
        Null => "Null",
        NoSuchField => "NoSuchField",
        Oneof => "Oneof",
        Utf8 => "Utf8",
        Depth => "Depth",
        Enum => "Enum",
        Unknown => "Unknown",
        Declared => "Declared",
    };
    let header = Header(HeaderError::Magic);
    let kinds = [
        header,
        Length(0),
        Fingerprint(0),
        Misaligned,
        OutOfBounds,
        Overlap,
        Null,
        Depth,
        NoSuchField,
        Oneof,
        Utf8,
        Enum,
        Unknown,
        Declared,
    ];
    let names: Vec<_> = kinds.into_iter().map(name).collect();
    let page: Vec<_> = table("refused as").iter().map(|row| row[1].trim_matches('`')).collect();
    assert_eq!(page, names);
}
