//! Shows each way in which an extent can be wrong, by one message that is right but for that.

use trunkline_message::{
    AlignedBuf, Block, Builder, CheckErrorKind, DEPTH_MAX, Extent, FieldAt, HEADER_BYTES, HeaderError, check,
};
use trunkline_schema::{MessageIndex, Schema};

/// `M`: unknown 0, presence 4, text 8, many 16, array 24, word 32 (shared by `m` and `i`), inner 36, flags 40.
const SCHEMA: &str = r#"
    syntax = "proto3";
    message M {
      string text = 1; repeated M many = 2; repeated uint64 array = 3; oneof o { int32 i = 4; uint32 u = 5; }
      M inner = 6; repeated string texts = 7;
    }"#;

const TEXT: FieldAt = FieldAt::new(8, 0);
const MANY: FieldAt = FieldAt::new(16, 1);
const ARRAY: FieldAt = FieldAt::new(24, 2);
const I: FieldAt = FieldAt::new(40, 3);
const INNER: FieldAt = FieldAt::new(44, 5);
const TEXTS: FieldAt = FieldAt::new(32, 6);
const BLOCK: u32 = 48;
const ROOT: usize = HEADER_BYTES;

struct Bench {
    schema: Schema,
    root: MessageIndex,
}

impl Bench {
    fn new() -> Self {
        let schema = Schema::from_proto_source("m.proto", SCHEMA).unwrap();
        let root = schema.message_named("M").unwrap();
        let message = schema.message(root);
        let places: Vec<_> = message.fields.iter().map(FieldAt::from).collect();
        assert_eq!(places[..4], [TEXT, MANY, ARRAY, I]);
        assert_eq!((places[5], places[6], message.layout.block_bytes), (INNER, TEXTS, BLOCK));
        Self { schema, root }
    }

    /// A message with every field set, as whole words; the header's length leaves the padding out.
    fn message(&self) -> Vec<u64> {
        self.message_with(&[0x98, 0x06, 0x01])
    }

    fn message_with(&self, unknown: &[u8]) -> Vec<u64> {
        let mut builder = Builder::new(AlignedBuf::new(), BLOCK);
        let mut root = builder.root();
        root.set_str(TEXT, "a text");
        root.set_u64s(ARRAY, &[1, 2, 3]);
        root.set_i32(I, 7);
        root.list::<str>(TEXTS).extend(["one", "two"]);
        root.message(INNER, BLOCK).set_str(TEXT, "inner");
        root.blocks::<()>(MANY, BLOCK).push_block().set_str(TEXT, "many");
        root.set_unknown(unknown);
        let built = builder.finish(self.schema.fingerprint(self.root)).unwrap();
        let mut bytes = built.bytes().to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn verdict(&self, words: &[u64]) -> Result<(), CheckErrorKind> {
        check(&self.schema, self.root, bytemuck::cast_slice::<u64, u8>(words)).map(drop).map_err(|e| e.kind)
    }

    /// The verdict on the message with the `u32` at `at` replaced.
    fn with(&self, at: usize, value: u32) -> CheckErrorKind {
        let mut words = self.message();
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.verdict(&words).unwrap_err()
    }

    fn slot(&self, field: FieldAt) -> usize {
        ROOT + field.slot() as usize
    }

    fn read(&self, at: usize) -> u32 {
        let words = self.message();
        u32::from_le_bytes(bytemuck::cast_slice::<u64, u8>(&words)[at..at + 4].try_into().unwrap())
    }
}

#[test]
fn the_message_itself_is_right() {
    let bench = Bench::new();
    assert_eq!(bench.verdict(&bench.message()), Ok(()));
}

#[test]
fn headers() {
    let bench = Bench::new();
    assert_eq!(bench.with(0, 0), CheckErrorKind::Header(HeaderError::Magic));
    assert_eq!(bench.with(8, 32), CheckErrorKind::Header(HeaderError::Reserved("root offset")));
    assert!(matches!(bench.with(16, 1), CheckErrorKind::Fingerprint(_)));
    assert_eq!(bench.with(4, 4096), CheckErrorKind::Length(4096));
    assert_eq!(bench.with(4, 23), CheckErrorKind::Length(23));
    assert_eq!(bench.with(4, 24), CheckErrorKind::OutOfBounds, "no room for the root");
    assert!(matches!(bench.verdict(&[]), Err(CheckErrorKind::Header(HeaderError::Short(0)))));
}

#[test]
fn misaligned_memory() {
    let bench = Bench::new();
    let mut words = bench.message();
    words.insert(0, 0);
    let bytes = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[4..];
    bytes.copy_within(4.., 0);
    let error = check(&bench.schema, bench.root, &*bytes).unwrap_err();
    assert_eq!(error.kind, CheckErrorKind::Misaligned);
}

#[test]
fn bounds() {
    let bench = Bench::new();
    for field in [TEXT, ARRAY, MANY, TEXTS] {
        let slot = bench.slot(field);
        assert_eq!(bench.with(slot, !7), CheckErrorKind::OutOfBounds, "{field:?} offset");
        assert_eq!(bench.with(slot + 4, u32::MAX), CheckErrorKind::OutOfBounds, "{field:?} length");
    }
    assert_eq!(bench.with(bench.slot(INNER), 1 << 30), CheckErrorKind::OutOfBounds);
    assert_eq!(bench.with(ROOT, 1 << 30), CheckErrorKind::OutOfBounds, "unknown bytes' offset");
    let unknown = bench.read(ROOT) as usize;
    assert_eq!(bench.with(unknown, 1 << 30), CheckErrorKind::OutOfBounds, "unknown bytes' length");
    let element = bench.read(bench.slot(TEXTS)) as usize;
    assert_eq!(bench.with(element + 4, 1 << 20), CheckErrorKind::OutOfBounds, "a string in an array");
}

#[test]
fn alignment() {
    let bench = Bench::new();
    let moved = |field: FieldAt, by: u32| bench.with(bench.slot(field), bench.read(bench.slot(field)) - by);
    assert_eq!(moved(ARRAY, 4), CheckErrorKind::Misaligned);
    assert_eq!(moved(MANY, 2), CheckErrorKind::Misaligned);
    assert_eq!(moved(TEXTS, 1), CheckErrorKind::Misaligned);
    assert_eq!(moved(INNER, 4), CheckErrorKind::Misaligned);
    assert_eq!(bench.with(ROOT, bench.read(ROOT) - 2), CheckErrorKind::Misaligned, "unknown bytes");
}

#[test]
fn null_messages() {
    let bench = Bench::new();
    assert_eq!(bench.with(bench.slot(INNER), 0), CheckErrorKind::Null);
    let element = bench.read(bench.slot(MANY)) as usize;
    assert_eq!(bench.with(element, 0), CheckErrorKind::Null);
}

#[test]
fn presence_bits() {
    let bench = Bench::new();
    let presence = bench.read(ROOT + 4);
    assert_eq!(bench.with(ROOT + 4, presence | 1 << 7), CheckErrorKind::NoSuchField);
    assert_eq!(bench.with(ROOT + 4, presence | 1 << 31), CheckErrorKind::NoSuchField);
    assert_eq!(bench.with(ROOT + 4, presence | 1 << 4), CheckErrorKind::Oneof);
}

#[test]
fn text() {
    let bench = Bench::new();
    let text = bench.read(bench.slot(TEXT)) as usize;
    assert_eq!(bench.with(text / 4 * 4, u32::MAX), CheckErrorKind::Utf8);
    let element = bench.read(bench.slot(TEXTS)) as usize;
    let string = bench.read(element) as usize;
    let mut words = bench.message();
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[string] = 0xff;
    assert_eq!(bench.verdict(&words), Err(CheckErrorKind::Utf8));
}

#[test]
fn cycles() {
    let bench = Bench::new();
    let element = bench.read(bench.slot(MANY)) as usize;
    assert_eq!(bench.with(bench.slot(INNER), ROOT as u32), CheckErrorKind::Overlap, "the root within itself");
    assert_eq!(bench.with(element, ROOT as u32), CheckErrorKind::Overlap);
    let inner = bench.read(bench.slot(INNER));
    let (slot, presence) = (inner as usize + INNER.slot() as usize, inner as usize + 4);
    let mut words = bench.message();
    let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut words);
    bytes[slot..slot + 4].copy_from_slice(&inner.to_le_bytes());
    bytes[presence] |= 1 << 5;
    assert_eq!(bench.verdict(&words), Err(CheckErrorKind::Overlap), "a child within itself");
}

/// A message of three messages, the last of which again, and so on.
fn three_each(mut block: Block<'_, AlignedBuf>, levels: u32) {
    if levels > 0 {
        block.push_block(MANY, BLOCK);
        block.push_block(MANY, BLOCK);
        three_each(block.push_block(MANY, BLOCK), levels - 1);
    }
}

/// Every level refers three times to the next: 3^30 messages if parts could be shared freely.
#[test]
fn shared_parts_do_not_multiply() {
    let bench = Bench::new();
    let mut builder = Builder::new(AlignedBuf::new(), BLOCK);
    three_each(builder.root(), 30);
    let built = builder.finish(bench.schema.fingerprint(bench.root)).unwrap();
    let length = built.len_bytes();
    let mut extent = built.into_extent();
    // Turn each list's first two elements into its third: all three are the next level.
    let mut at = ROOT as u32;
    for _ in 0..30 {
        let bytes = extent.bytes_mut();
        let word = |bytes: &[u8], at: u32| u32::from_le_bytes(bytes[at as usize..][..4].try_into().unwrap());
        let array = word(bytes, at + MANY.slot());
        let next = word(bytes, array + 8);
        for element in [array, array + 4] {
            bytes[element as usize..][..4].copy_from_slice(&next.to_le_bytes());
        }
        at = next;
    }
    let error = check(&bench.schema, bench.root, &extent.bytes()[..length]).unwrap_err();
    assert_eq!(error.kind, CheckErrorKind::Overlap);
}

#[test]
fn depth() {
    let bench = Bench::new();
    let nested = |levels: u32| {
        let mut builder = Builder::new(AlignedBuf::new(), BLOCK);
        let mut block = builder.root();
        for _ in 0..levels {
            block = block.into_message(INNER, BLOCK);
        }
        block.set_i32(I, 1);
        builder.finish(bench.schema.fingerprint(bench.root))
    };
    let deepest = nested(DEPTH_MAX).unwrap();
    assert!(check(&bench.schema, bench.root, deepest.bytes()).is_ok());
    assert!(nested(DEPTH_MAX + 1).is_err(), "the builder itself stops there");
    // One level more by hand: the innermost message made to hold a block put behind everything.
    let length = deepest.len_bytes();
    let mut extent = deepest.into_extent();
    let total = length + BLOCK as usize;
    extent.grow(total).unwrap();
    let bytes = extent.bytes_mut();
    bytes[length..total].fill(0);
    let innermost = length - BLOCK as usize;
    bytes[innermost + 4] |= 1 << 5;
    bytes[innermost + INNER.slot() as usize..][..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    let error = check(&bench.schema, bench.root, &extent.bytes()[..total]).unwrap_err();
    assert_eq!(error.kind, CheckErrorKind::Depth);
}

#[test]
fn errors_name_message_and_field() {
    let bench = Bench::new();
    let mut words = bench.message();
    let slot = bench.slot(ARRAY) + 4;
    bytemuck::cast_slice_mut::<u64, u8>(&mut words)[slot + 3] = 0x7f;
    let error = check(&bench.schema, bench.root, bytemuck::cast_slice::<u64, u8>(&words)).unwrap_err();
    let place = format!("reaches out of the extent in M.array at offset {}", bench.read(bench.slot(ARRAY)));
    assert_eq!(error.describe(&bench.schema), place);
}

/// What stands among the unknown fields is what a reader of protobuf will find, one field after the other.
#[test]
fn unknown_fields() {
    let bench = Bench::new();
    let verdict = |run: &str| bench.verdict(&bench.message_with(&hex(run)));
    let deepest = |groups: u32| ["a306".repeat(groups as usize), "a406".repeat(groups as usize)].concat();
    let sound =
        ["98060198060298ffff7f01", "9a060161", "9d0601020304", "9906 0102030405060708", "9b06 0801 9c06"];
    for run in sound.map(str::to_owned).into_iter().chain([deepest(DEPTH_MAX)]) {
        assert_eq!(verdict(&run), Ok(()), "{run}");
    }
    // Wire types that the declared fields do not have: text as a varint, the message as a group, a number as text.
    for run in ["0801", "33080134", "220161", "1d01020304"] {
        assert_eq!(verdict(run), Ok(()), "{run}");
    }
    let ill_formed = [
        "98",
        "9806",
        "9806ffffffffffffffffffff01",
        "9a0605aabb",
        "9d0601",
        "9b060801",
        "9c06",
        "9e06",
        "00",
        "9a06818080808000aa",
        "9b06 ac06",
        "0001",
        "98068001 07",
        "f8ffffff1f01",
    ];
    for run in ill_formed {
        assert_eq!(verdict(run), Err(CheckErrorKind::Unknown), "{run}");
    }
    assert_eq!(verdict(&deepest(DEPTH_MAX + 1)), Err(CheckErrorKind::Depth));
    // Each field as it is declared, alone and behind an unknown one; a list of numbers either way.
    for run in ["0a0161", "1200", "1801", "1a0101", "2001", "2801", "3200", "3a00"] {
        assert_eq!(verdict(run), Err(CheckErrorKind::Declared), "{run}");
        assert_eq!(verdict(&format!("980601{run}")), Err(CheckErrorKind::Declared), "{run}");
    }
    let words = bench.message_with(&hex("9806012001"));
    let error = check(&bench.schema, bench.root, bytemuck::cast_slice::<u64, u8>(&words)).unwrap_err();
    let run_at = bench.read(ROOT) + 4;
    assert_eq!((error.message, error.field, error.offset), (bench.root, 4, run_at + 3));
    assert_eq!(
        error.describe(&bench.schema),
        format!("declared field among the unknown ones in M.i at offset {}", run_at + 3)
    );
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}
