//! Shows that `tests/data/linear/vectors.txt` is current, and that Rust reads and writes what it says: every language
//! does the same with it in its own tests. With `TRUNKLINE_UPDATE=1` the file is written anew.
//!
//! A line is a case: `case NAME TYPE linear HEX protobuf HEX also HEX json JSON`. `linear` is as the transcoder writes
//! it, `protobuf` as it writes that; `also` is another encoding of the same message, `-` where there is none. A line
//! `large MEMBERS LINEAR_BYTES LINEAR_HASH PROTOBUF_BYTES PROTOBUF_HASH` stands for a message `LargeData<MEMBERS>` of
//! as many `int32`, the n-th of which is n × 7919 mod 100000 + 1, by lengths and FNV-1a hashes.

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trunkline_message::transcode::DecodeLimits;
use trunkline_message::{AlignedBuf, DynamicBuilder, DynamicView, Extent, Transcoder, check};
use trunkline_schema::{MessageIndex, Schema};

const FILES: [&str; 2] = ["vectors.proto", "vectors2.proto"];
const TYPES: [&str; 10] = [
    "vectors.v1.Scalars",
    "vectors.v1.Optionals",
    "vectors.v1.Lists",
    "vectors.v1.Maps",
    "vectors.v1.Choice",
    "vectors.v1.Tree",
    "vectors.v1.Names",
    "vectors.v1.Empty",
    "vectors.v2.Defaults",
    "vectors.v2.Grouped",
];
const LARGE: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];
/// Messages of random content per type.
const RANDOM: u64 = 8;
/// Fields that no type here declares, and one whose number a type has with another wire type.
const UNKNOWN: &[u8] = b"\x98\x3f\x01\xa2\x3f\x03abc\xad\x3f\x01\x02\x03\x04";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/linear")
}

#[test]
fn the_vectors_are_current() {
    let (file, wanted) = (folder().join("vectors.txt"), vectors());
    if std::env::var_os("TRUNKLINE_UPDATE").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    let how = "TRUNKLINE_UPDATE=1 cargo test -p trunkline-message --test vectors";
    assert!(found == wanted, "vectors.txt is not current: {how}; first line that differs: {differs:?}");
}

/// What the file says, read by Rust: each message is what its protobuf and its JSON are, and built anew it is the same.
#[test]
fn rust_reads_and_writes_the_vectors() {
    let all = Types::read();
    let text = std::fs::read_to_string(folder().join("vectors.txt")).unwrap();
    let mut count = 0;
    for line in text.lines().filter(|line| line.starts_with("case ")) {
        let words: Vec<&str> = line.splitn(11, ' ').collect();
        let [_, name, of, _, linear, _, protobuf, _, also, _, json] = words[..] else { panic!("{line}") };
        let (linear, protobuf) = (unhex(linear), unhex(protobuf));
        let index = all.schema.message_named(of).unwrap();
        let aligned = AlignedBuf::copied(&linear).unwrap();
        let verified = check(&all.schema, index, &aligned.bytes()[..linear.len()])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let view = DynamicView::root(&all.schema, index, verified.bytes());
        let built =
            DynamicBuilder::build(&all.schema, index, AlignedBuf::new(), |builder| builder.copy_from(view));
        assert_eq!(all.encoded(index, built.unwrap().bytes()), protobuf, "{name}: built anew");
        for wire in [&protobuf, &unhex(also)].into_iter().filter(|wire| also != "-" || *wire == &protobuf) {
            assert_eq!(all.encoded(index, &all.decoded(index, wire)), protobuf, "{name}: decoded");
        }
        let descriptor = all.pool.get_message_by_name(of).unwrap();
        let told =
            DynamicMessage::deserialize(descriptor.clone(), &mut serde_json::Deserializer::from_str(json));
        let mut read = DynamicMessage::decode(descriptor, &protobuf[..]).unwrap();
        forget_unknown(&mut read);
        // As text: a NaN is not equal to itself.
        let text = |message: &DynamicMessage| serde_json::to_string(message).unwrap();
        assert_eq!(text(&told.unwrap()), text(&read), "{name}: JSON");
        count += 1;
    }
    assert!(count > 200, "{count} cases");
}

struct Types {
    pool: DescriptorPool,
    schema: Arc<Schema>,
    transcoder: Transcoder,
}

impl Types {
    fn read() -> Self {
        let set = trunkline_schema::compile_proto_files(&FILES.map(|file| folder().join(file)), &[folder()])
            .unwrap();
        Self::of(&set)
    }

    fn of(set: &[u8]) -> Self {
        let schema = Arc::new(Schema::from_descriptor_set(set).unwrap());
        let transcoder = Transcoder::new(Arc::clone(&schema));
        Self { pool: DescriptorPool::decode(set).unwrap(), schema, transcoder }
    }

    fn decoded(&self, of: MessageIndex, wire: &[u8]) -> Vec<u8> {
        let mut out = AlignedBuf::new();
        let len = self.transcoder.decode(of, wire, &mut out, &DecodeLimits::default()).unwrap();
        out.bytes()[..len].to_vec()
    }

    fn encoded(&self, of: MessageIndex, linear: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.transcoder.encode(of, linear, &mut out).unwrap();
        out
    }
}

fn vectors() -> String {
    let all = Types::read();
    let mut out = String::from(
        "# Made by core/message/tests/vectors.rs, which says what the lines are.\n\
         # Types: vectors.proto, vectors2.proto\n",
    );
    for of in TYPES {
        let descriptor = all.pool.get_message_by_name(of).unwrap();
        for (name, message, also) in cases(&descriptor) {
            let index = all.schema.message_named(of).unwrap();
            let linear = all.decoded(index, &message.encode_to_vec());
            let protobuf = all.encoded(index, &linear);
            let mut known = DynamicMessage::decode(descriptor.clone(), &protobuf[..]).unwrap();
            forget_unknown(&mut known);
            let json = serde_json::to_string(&known).unwrap();
            let also = also.as_deref().map_or("-".to_owned(), hex);
            let short = of.rsplit('.').next().unwrap();
            let (linear, protobuf) =
                (hex(&linear), if protobuf.is_empty() { "-".to_owned() } else { hex(&protobuf) });
            writeln!(
                out,
                "case {short}/{name} {of} linear {linear} protobuf {protobuf} also {also} json {json}"
            )
            .unwrap();
        }
    }
    for members in LARGE {
        let (linear, protobuf) = large(members);
        let (of_linear, of_protobuf) = (fnv(&linear), fnv(&protobuf));
        writeln!(
            out,
            "large {members} {} {of_linear:016x} {} {of_protobuf:016x}",
            linear.len(),
            protobuf.len()
        )
        .unwrap();
    }
    out
}

/// The messages of a type: nothing, each field alone, everything, unknown fields, and some at random.
fn cases(of: &MessageDescriptor) -> Vec<(String, DynamicMessage, Option<Vec<u8>>)> {
    let mut out = vec![("empty".to_owned(), required(of, 1), None)];
    for field in of.fields() {
        for (index, value) in values(&field).into_iter().enumerate() {
            let mut message = required(of, 1);
            message.set_field(&field, value);
            let also = other_packing(&field, &message);
            out.push((format!("{}-{index}", field.name()), message, also));
        }
    }
    let mut unknown = required(of, 1).encode_to_vec();
    unknown.splice(0..0, UNKNOWN.iter().copied());
    out.push(("unknown".to_owned(), DynamicMessage::decode(of.clone(), &unknown[..]).unwrap(), None));
    out.extend((1..=RANDOM).map(|seed| (format!("random-{seed}"), random(of, &mut Dice(seed), 3), None)));
    if of.full_name() == "vectors.v1.Tree" {
        out.push(("deep".to_owned(), deep(of, 99), None));
    }
    out
}

/// A message with its required fields set.
fn required(of: &MessageDescriptor, seed: u64) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields().filter(|field| field.cardinality() == prost_reflect::Cardinality::Required) {
        message.set_field(&field, single(&field.kind(), &mut Dice(seed), 0));
    }
    message
}

fn deep(of: &MessageDescriptor, levels: u32) -> DynamicMessage {
    let mut tree = DynamicMessage::new(of.clone());
    for level in 0..levels {
        let mut above = DynamicMessage::new(of.clone());
        above.set_field_by_name("label", Value::String(level.to_string()));
        above.set_field_by_name(if level % 2 == 0 { "left" } else { "right" }, Value::Message(tree));
        tree = above;
    }
    tree
}

/// A field's values worth a case of their own.
fn values(field: &FieldDescriptor) -> Vec<Value> {
    let dice = &mut Dice(u64::from(field.number()));
    if field.is_map() {
        return vec![map(field, dice, 1, 1), map(field, dice, 5, 2)];
    }
    let ones = edges(&field.kind());
    if field.is_list() {
        let filled = Value::List((0..40).map(|_| single(&field.kind(), dice, 1)).collect());
        return vec![Value::List(ones.clone()), Value::List(ones[..1].to_vec()), filled];
    }
    ones
}

fn edges(kind: &Kind) -> Vec<Value> {
    let text = |len: usize| "ä".repeat(len / 2) + &"x".repeat(len % 2);
    match kind {
        Kind::Double => [0.0, -0.0, 1.5, f64::INFINITY, f64::NAN, f64::MIN].map(Value::F64).into(),
        Kind::Float => [0.0, -1.5, f32::NEG_INFINITY, 16_777_216.0].map(Value::F32).into(),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => [0, 1, -1, i32::MIN, i32::MAX].map(Value::I32).into(),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => [0, 1, -1, i64::MIN, i64::MAX].map(Value::I64).into(),
        Kind::Uint32 | Kind::Fixed32 => [0, 1, 300, u32::MAX].map(Value::U32).into(),
        Kind::Uint64 | Kind::Fixed64 => [0, 1, 1 << 40, u64::MAX].map(Value::U64).into(),
        Kind::Bool => [false, true].map(Value::Bool).into(),
        Kind::String => [0, 1, 2, 3001].map(|len| Value::String(text(len))).into(),
        Kind::Bytes => [0usize, 1, 300].map(|len| Value::Bytes((0..len).map(|at| at as u8).collect())).into(),
        Kind::Enum(of) => of.values().map(|value| Value::EnumNumber(value.number())).collect(),
        Kind::Message(of) => {
            vec![Value::Message(required(of, 1)), Value::Message(random(of, &mut Dice(7), 1))]
        }
    }
}

fn random(of: &MessageDescriptor, dice: &mut Dice, depth: u32) -> DynamicMessage {
    let mut message = required(of, dice.next());
    for field in of.fields() {
        let is_message = matches!(field.kind(), Kind::Message(_));
        if dice.next().is_multiple_of(3) || (is_message && depth == 0) {
            continue;
        }
        let many = dice.next() % 5;
        let value = match () {
            () if field.is_map() => map(&field, dice, many as usize, depth),
            () if field.is_list() => {
                Value::List((0..many).map(|_| single(&field.kind(), dice, depth)).collect())
            }
            () => single(&field.kind(), dice, depth),
        };
        message.set_field(&field, value);
    }
    message
}

fn single(kind: &Kind, dice: &mut Dice, depth: u32) -> Value {
    match kind {
        Kind::Message(of) if depth > 0 => Value::Message(random(of, dice, depth - 1)),
        Kind::Message(of) => Value::Message(required(of, 1)),
        kind => {
            let edges = edges(kind);
            // The long ones are cases of their own.
            let few = match kind {
                Kind::String | Kind::Bytes => 2,
                _ => edges.len(),
            };
            edges[dice.next() as usize % few].clone()
        }
    }
}

fn map(field: &FieldDescriptor, dice: &mut Dice, entries: usize, depth: u32) -> Value {
    let Kind::Message(entry) = field.kind() else { panic!("a map of entries") };
    let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
    // One entry only where several could come in any order: what a map holds has none.
    let mut out = HashMap::new();
    for _ in 0..entries.min(1) {
        let key = match single(&key.kind(), dice, 0) {
            Value::Bool(key) => MapKey::Bool(key),
            Value::I32(key) => MapKey::I32(key),
            Value::I64(key) => MapKey::I64(key),
            Value::U32(key) => MapKey::U32(key),
            Value::U64(key) => MapKey::U64(key),
            Value::String(key) => MapKey::String(key),
            other => panic!("{other:?} is no key"),
        };
        out.insert(key, single(&value.kind(), dice, depth.saturating_sub(1)));
    }
    Value::Map(out)
}

/// The same list packed where it is not, and not where it is.
fn other_packing(field: &FieldDescriptor, message: &DynamicMessage) -> Option<Vec<u8>> {
    let packable = !matches!(field.kind(), Kind::String | Kind::Bytes | Kind::Message(_));
    if !field.is_list() || !packable || field.name() == "moods" {
        return None;
    }
    let source = format!(
        "syntax = \"proto3\"; message Other {{ repeated {} list = {} [packed = {}]; }} enum Color {{ Z = 0; }}",
        scalar_name(&field.kind())?,
        field.number(),
        !field.is_packed()
    );
    let set = trunkline_schema::compile_proto_source("other.proto", &source).unwrap();
    let other = DescriptorPool::decode(&set[..]).unwrap().get_message_by_name("Other").unwrap();
    let mut same = DynamicMessage::new(other);
    same.set_field_by_name("list", message.get_field(field).into_owned());
    Some(same.encode_to_vec())
}

fn scalar_name(kind: &Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Bool => "bool",
        Kind::Enum(_) => "Color",
        _ => return None,
    })
}

fn forget_unknown(message: &mut DynamicMessage) {
    let known = message.descriptor();
    let unknown: Vec<u32> = message.unknown_fields().map(|field| field.number()).collect();
    if !unknown.is_empty() {
        let mut only = DynamicMessage::new(known);
        for (field, value) in message.fields() {
            only.set_field(&field, value.clone());
        }
        *message = only;
    }
}

/// Linear and protobuf of `LargeData<members>`.
fn large(members: usize) -> (Vec<u8>, Vec<u8>) {
    let fields: String = (1..=members).map(|member| format!("int32 m{member} = {member};\n")).collect();
    let source = format!("syntax = \"proto3\"; message LargeData{members} {{ {fields} }}");
    let all = Types::of(&trunkline_schema::compile_proto_source("large.proto", &source).unwrap());
    let index = all.schema.message_named(&format!("LargeData{members}")).unwrap();
    let descriptor = all.schema.message(index);
    let built = DynamicBuilder::build(&all.schema, index, AlignedBuf::new(), |builder| {
        descriptor.fields.iter().try_for_each(|field| {
            let value = (u64::from(field.number) * 7919 % 100_000 + 1) as i32;
            builder.set(field, trunkline_message::Value::I32(value))
        })
    });
    let linear = built.unwrap().bytes().to_vec();
    let protobuf = all.encoded(index, &linear);
    (linear, protobuf)
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = if text == "-" { "" } else { text };
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Numbers that depend on nothing but where they began.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}
