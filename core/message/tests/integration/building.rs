//! Shows what a builder promises: any order, setting again, growth in place, limits, and errors that are remembered.

use std::io::Write as _;

use trunkline_message::{
    AlignedBuf, BuildError, Builder, DEPTH_MAX, Extent, FieldAt, HEADER_BYTES, Header, LimitError, OneofAt,
    View, check,
};
use trunkline_schema::{Field, MessageIndex, Schema};

const SCHEMA: &str = r#"
    syntax = "proto3";
    message M {
      string text = 1; bytes blob = 2; repeated int32 numbers = 3; repeated bool flags = 4; repeated string texts = 5;
      repeated bytes blobs = 6; M inner = 7; repeated M many = 8; repeated double weights = 9;
      oneof o { uint64 wide = 10; bool narrow = 11; string long = 12; M deep = 13; }
      bool b = 14; int32 i = 15; uint32 u = 16; float f = 17; int64 l = 18; uint64 ul = 19; double d = 20;
    }"#;

struct Bench {
    schema: Schema,
    root: MessageIndex,
}

impl Bench {
    fn new() -> Self {
        let schema = Schema::from_proto_source("m.proto", SCHEMA).unwrap();
        let root = schema.message_named("M").unwrap();
        Self { schema, root }
    }

    fn field(&self, name: &str) -> &Field {
        self.schema.message(self.root).field_named(name).unwrap()
    }

    fn at(&self, name: &str) -> FieldAt {
        self.field(name).into()
    }

    fn block_bytes(&self) -> u32 {
        self.schema.message(self.root).layout.block_bytes
    }

    fn builder(&self) -> Builder<AlignedBuf> {
        Builder::new(AlignedBuf::new(), self.block_bytes())
    }

    /// Finishes, checks, and hands the bytes out as words, which keep their alignment.
    fn finish(&self, builder: Builder<AlignedBuf>) -> AlignedBuf {
        let built = builder.finish(self.schema.fingerprint(self.root)).unwrap();
        check(&self.schema, self.root, built.bytes()).map_err(|e| e.describe(&self.schema)).unwrap();
        built.into_extent()
    }
}

#[test]
fn every_type_comes_back() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.set_bool(bench.at("b"), true);
    m.set_i32(bench.at("i"), i32::MIN);
    m.set_u32(bench.at("u"), u32::MAX);
    m.set_f32(bench.at("f"), -0.5);
    m.set_i64(bench.at("l"), i64::MIN);
    m.set_u64(bench.at("ul"), u64::MAX);
    m.set_f64(bench.at("d"), 1e300);
    m.set_str(bench.at("text"), "grüße");
    m.set_bytes(bench.at("blob"), &[0, 255]);
    m.set_i32s(bench.at("numbers"), &[1, -2, 3]);
    m.set_f64s(bench.at("weights"), &[0.25, 4.0]);
    m.set_bools(bench.at("flags"), &[true, false, true]);
    m.list::<str>(bench.at("texts")).extend(["a", "", "ccc"]);
    m.list::<[u8]>(bench.at("blobs")).extend([b"x".as_slice(), b""]);
    m.set_unknown(&[0x98, 0x06, 0x01]);
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    assert!(view.bool(bench.at("b")));
    assert_eq!((view.i32(bench.at("i")), view.u32(bench.at("u"))), (i32::MIN, u32::MAX));
    assert_eq!((view.i64(bench.at("l")), view.u64(bench.at("ul"))), (i64::MIN, u64::MAX));
    assert_eq!((view.f32(bench.at("f")), view.f64(bench.at("d"))), (-0.5, 1e300));
    assert_eq!((view.str(bench.at("text")), view.bytes(bench.at("blob"))), ("grüße", [0, 255].as_slice()));
    assert_eq!(view.i32s(bench.at("numbers")), [1, -2, 3]);
    assert_eq!(view.f64s(bench.at("weights")), [0.25, 4.0]);
    assert!(view.list::<bool>(bench.at("flags")).iter().eq([true, false, true]));
    let texts = view.list::<&str>(bench.at("texts"));
    assert!(texts.iter().eq(["a", "", "ccc"]) && texts.iter().rev().eq(["ccc", "", "a"]));
    assert_eq!((texts.len(), texts.get(2), texts.get(3)), (3, Some("ccc"), None));
    assert!(view.list::<&[u8]>(bench.at("blobs")).iter().eq([b"x".as_slice(), b""]));
    assert_eq!(view.unknown(), [0x98, 0x06, 0x01]);
    assert!(!view.has(bench.at("inner")) && view.message(bench.at("inner")).is_none());
}

#[test]
fn an_untouched_message_is_header_and_zeros() {
    let bench = Bench::new();
    let built = bench.builder().finish(7).unwrap();
    let header = Header { total_bytes: built.len_bytes() as u32, fingerprint: 7 };
    assert_eq!(built.len_bytes(), HEADER_BYTES + bench.block_bytes() as usize);
    assert_eq!(built.bytes()[..HEADER_BYTES], header.to_bytes());
    assert!(built.bytes()[HEADER_BYTES..].iter().all(|&b| b == 0));
}

#[test]
fn lists_grow_in_place_or_move_and_keep_what_they_have() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.set_i32s(bench.at("numbers"), &[0, 1]);
    m.list::<i32>(bench.at("numbers")).extend(2..50);
    m.set_str(bench.at("text"), "in the way");
    m.list::<i32>(bench.at("numbers")).extend(50..100);
    for i in 0..100 {
        m.list::<i32>(bench.at("numbers")).push(100 + i);
        m.list::<str>(bench.at("texts")).push(&i.to_string());
    }
    let mut flags = m.list::<bool>(bench.at("flags"));
    assert!(flags.is_empty());
    flags.reserve(10);
    flags.extend((0..10).map(|i| i % 3 == 0));
    assert_eq!(flags.len(), 10);
    let used = builder.len_bytes();
    assert!(used < 6000, "reopening a list a hundred times must not copy it each time: {used} bytes");
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    assert!(view.i32s(bench.at("numbers")).iter().copied().eq(0..200));
    assert!(view.list::<&str>(bench.at("texts")).iter().eq((0..100).map(|i| i.to_string())));
    assert!(view.list::<bool>(bench.at("flags")).iter().eq((0..10).map(|i| i % 3 == 0)));
}

#[test]
fn a_list_that_shrank_and_grows_again_overwrites_nothing() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.list::<i32>(bench.at("numbers")).extend(0..9);
    m.set_str(bench.at("text"), "behind");
    m.set_i32s(bench.at("numbers"), &[7]);
    m.list::<i32>(bench.at("numbers")).extend(8..30);
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    assert!(view.i32s(bench.at("numbers")).iter().copied().eq(7..30));
    assert_eq!(view.str(bench.at("text")), "behind");
}

#[test]
fn what_is_set_again_reuses_its_place() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.set_str(bench.at("text"), "a long text");
    m.set_i32s(bench.at("numbers"), &[1, 2, 3]);
    let _ = m.message(bench.at("inner"), bench.block_bytes());
    let used = builder.len_bytes();
    let mut m = builder.root();
    m.set_str(bench.at("text"), "short");
    m.set_i32s(bench.at("numbers"), &[4]);
    m.message(bench.at("inner"), bench.block_bytes()).set_bool(bench.at("b"), true);
    m.set_str(bench.at("text"), "");
    assert_eq!(builder.len_bytes(), used);
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    assert_eq!((view.str(bench.at("text")), view.i32s(bench.at("numbers"))), ("", [4].as_slice()));
    assert!(view.has(bench.at("text")), "empty is not absent");
    assert!(view.message(bench.at("inner")).unwrap().bool(bench.at("b")));
    assert!(!extent.bytes()[..used].windows(4).any(|w| w == b"long"), "nothing of the old text is left");
}

#[test]
fn oneof_members_displace_one_another() {
    let bench = Bench::new();
    let message = bench.schema.message(bench.root);
    let oneof = OneofAt::from(&message.oneofs[0]);
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.switch(oneof, bench.at("wide"));
    m.set_u64(bench.at("wide"), u64::MAX);
    m.switch(oneof, bench.at("narrow"));
    m.set_bool(bench.at("narrow"), true);
    let slot = HEADER_BYTES + bench.field("narrow").slot as usize;
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    assert!(view.bool(bench.at("narrow")) && !view.has(bench.at("wide")));
    assert_eq!(view.u64(bench.at("wide")), 0, "an absent member reads as zero whatever lies in the slot");
    assert_eq!(extent.bytes()[slot..slot + 8], [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_message_of_a_oneof_is_kept_when_asked_for_again() {
    let bench = Bench::new();
    let message = bench.schema.message(bench.root);
    let oneof = OneofAt::from(&message.oneofs[0]);
    let mut builder = bench.builder();
    let mut m = builder.root();
    for flag in ["b", "narrow"] {
        m.switch(oneof, bench.at("deep"));
        m.message(bench.at("deep"), bench.block_bytes()).set_bool(bench.at(flag), true);
    }
    let extent = bench.finish(builder);
    let deep = View::root(extent.bytes()).message(bench.at("deep")).unwrap();
    assert!(deep.bool(bench.at("b")) && deep.bool(bench.at("narrow")));
}

#[test]
fn bytes_are_filled_in_place() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    m.fill_bytes(bench.at("blob"), 100_000)[99_999] = 9;
    m.fill_f64s(bench.at("weights"), 3).copy_from_slice(&[1.0, 2.0, 3.0]);
    let mut writer = m.bytes_writer(bench.at("text"));
    for i in 0..3 {
        write!(writer, "line {i}; ").unwrap();
    }
    let extent = bench.finish(builder);
    let view = View::root(extent.bytes());
    let blob = view.bytes(bench.at("blob"));
    assert_eq!((blob.len(), blob[99_998], blob[99_999]), (100_000, 0, 9));
    assert_eq!(view.f64s(bench.at("weights")), [1.0, 2.0, 3.0]);
    assert_eq!(view.str(bench.at("text")), "line 0; line 1; line 2; ");
}

#[test]
fn a_full_extent_is_an_error_at_the_end_and_harmless_before() {
    let bench = Bench::new();
    let limit = HEADER_BYTES + bench.block_bytes() as usize + 64;
    let mut builder = Builder::new(AlignedBuf::with_limit(limit), bench.block_bytes());
    let mut m = builder.root();
    m.set_str(bench.at("text"), "fits");
    m.set_bytes(bench.at("blob"), &[1; 100]);
    m.message(bench.at("inner"), bench.block_bytes())
        .message(bench.at("inner"), 8)
        .set_bool(bench.at("b"), true);
    m.list::<str>(bench.at("texts")).extend(["a"; 100]);
    m.blocks::<()>(bench.at("many"), bench.block_bytes()).push_block().set_str(bench.at("text"), "lost");
    assert!(m.fill_bytes(bench.at("blob"), 1000).is_empty());
    assert!(m.fill_i32s(bench.at("numbers"), 1000).is_empty());
    m.list::<i32>(bench.at("numbers")).reserve(usize::MAX);
    m.set_unknown(&[0; 200]);
    let error = builder.finish(0).unwrap_err();
    let BuildError::Limit(LimitError { wanted_bytes, limit_bytes }) = error else { panic!("{error}") };
    assert_eq!(limit_bytes, limit, "the first error, not the last");
    assert!(wanted_bytes > limit && wanted_bytes < limit + 200);
}

#[test]
fn too_deep_is_an_error_at_the_end() {
    let bench = Bench::new();
    let mut builder = bench.builder();
    let mut m = builder.root();
    for _ in 0..DEPTH_MAX + 1 {
        m = m.into_message(bench.at("inner"), bench.block_bytes());
    }
    m.set_bool(bench.at("b"), true);
    assert_eq!(builder.finish(0).map(drop), Err(BuildError::Depth));
}

/// An extent whose `grow` says it grew.
struct Liar(AlignedBuf);

impl Extent for Liar {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    fn grow(&mut self, min_len: usize) -> Result<(), LimitError> {
        self.0.grow(min_len.min(128))
    }
}

#[test]
fn an_extent_that_lies_about_growing_is_found_out() {
    let mut builder = Builder::new(Liar(AlignedBuf::new()), 24);
    builder.root().set_bytes(FieldAt::new(8, 0), &[1; 200]);
    assert!(matches!(builder.finish(0), Err(BuildError::Limit(LimitError { limit_bytes: 128, .. }))));
}

/// HPRPC's wide message: thousands of members, of which few are set.
#[test]
fn wide_messages() {
    for (kind, last) in [("sint32", 8192), ("string", 8192), ("bool", 9_000)] {
        let fields: String = (1..=last).map(|i| format!("{kind} f{i} = {i};")).collect();
        let text = format!(r#"syntax = "proto3"; message W {{ {fields} }}"#);
        let schema = Schema::from_proto_source("w.proto", &text).unwrap();
        let root = schema.message_named("W").unwrap();
        let message = schema.message(root);
        let mut builder = Builder::new(AlignedBuf::new(), message.layout.block_bytes);
        let mut block = builder.root();
        for field in message.fields.iter().step_by(97) {
            match kind {
                "sint32" => block.set_i32(field.into(), -(field.number as i32)),
                "string" => block.set_str(field.into(), &field.number.to_string()),
                _ => block.set_bool(field.into(), true),
            }
        }
        let built = builder.finish(schema.fingerprint(root)).unwrap();
        let verified = check(&schema, root, built.bytes()).unwrap();
        for (i, field) in message.fields.iter().enumerate() {
            let (view, set) = (verified.view(), i % 97 == 0);
            assert_eq!(view.has(field.into()), set);
            match kind {
                "sint32" => assert_eq!(view.i32(field.into()), if set { -(field.number as i32) } else { 0 }),
                "string" if set => assert_eq!(view.str(field.into()), field.number.to_string()),
                "string" => assert_eq!(view.str(field.into()), ""),
                _ => assert_eq!(view.bool(field.into()), set),
            }
        }
    }
}

#[test]
fn views_of_anything_read_as_nothing() {
    let field = FieldAt::new(1 << 30, 7);
    for bytes in [[].as_slice(), &[0xff; 23], &[0xff; 24], &[0xff; 400]] {
        for place in [FieldAt::new(8, 0), FieldAt::new(16, 31), field] {
            let view = View::root(bytes);
            let _ = (view.bool(place), view.u32(place), view.f64(place));
            assert!(view.bytes(place).is_empty() && view.u64s(place).is_empty() && view.unknown().is_empty());
            assert!(view.list::<&str>(place).is_empty());
            assert_eq!(
                view.message(place).and_then(|m| m.message(place)).map(|m| m.u32(place)).unwrap_or(0),
                0
            );
        }
    }
    assert!(!View::EMPTY.has(field));
}
