//! Random messages of any type, and a table of the generated types.

use std::sync::{Arc, LazyLock};

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};
use trunkline_message::Transcoder;
use trunkline_schema::Schema;

/// The schemas of `proto/`, compiled at run time and not by the generator.
pub struct Both {
    pub transcoder: Transcoder,
    pub pool: DescriptorPool,
}

pub static BOTH: LazyLock<Both> = LazyLock::new(|| {
    let files = ["shapes", "legacy", "names", "shadows", "known", "library", "library_shelf", "bare"];
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let files = files.map(|name| format!("{dir}/{name}.proto"));
    let schema = Schema::from_proto_files(&files, &[dir]).unwrap();
    let pool = DescriptorPool::decode(schema.descriptor_set()).unwrap();
    Both { transcoder: Transcoder::new(Arc::new(schema)), pool }
});

/// Calls `$run!(path, "full.name")` for every generated message type.
#[macro_export]
macro_rules! for_each_message {
    ($run:ident) => {
        $run!(shapes::v1::Scalars, "shapes.v1.Scalars");
        $run!(shapes::v1::Optionals, "shapes.v1.Optionals");
        $run!(shapes::v1::Lists, "shapes.v1.Lists");
        $run!(shapes::v1::Maps, "shapes.v1.Maps");
        $run!(shapes::v1::Choice, "shapes.v1.Choice");
        $run!(shapes::v1::choice::Nested, "shapes.v1.Choice.Nested");
        $run!(shapes::v1::choice::nested::Deeper, "shapes.v1.Choice.Nested.Deeper");
        $run!(shapes::v1::Tree, "shapes.v1.Tree");
        $run!(shapes::v1::Egg, "shapes.v1.Egg");
        $run!(shapes::v1::Hen, "shapes.v1.Hen");
        $run!(shapes::v1::Empty, "shapes.v1.Empty");
        $run!(shapes::v1::Blob, "shapes.v1.Blob");
        $run!(shapes::v1::Old, "shapes.v1.Old");
        $run!(legacy::Defaults, "legacy.Defaults");
        $run!(legacy::Required, "legacy.Required");
        $run!(legacy::Grouped, "legacy.Grouped");
        $run!(legacy::grouped::Single, "legacy.Grouped.Single");
        $run!(legacy::Collisions, "legacy.Collisions");
        $run!(names::r#type::v1::Keywords, "names.type.v1.Keywords");
        $run!(names::r#type::v1::Collisions, "names.type.v1.Collisions");
        $run!(names::r#type::v1::CollisionsView, "names.type.v1.CollisionsView");
        $run!(names::r#type::v1::Collisions_, "names.type.v1.collisions");
        $run!(names::r#type::v1::Rt, "names.type.v1.rt");
        $run!(names::r#type::v1::Self_, "names.type.v1.Self");
        $run!(names::r#type::v1::HttpServer2Config, "names.type.v1.HTTPServer2Config");
        $run!(shadows::Option, "shadows.Option");
        $run!(shadows::String, "shadows.String");
        $run!(shadows::Vec, "shadows.Vec");
        $run!(shadows::Box, "shadows.Box");
        $run!(shadows::Clone, "shadows.Clone");
        $run!(shadows::Debug, "shadows.Debug");
        $run!(shadows::Iterator, "shadows.Iterator");
        $run!(known::Known, "known.Known");
        $run!(google::protobuf::Struct, "google.protobuf.Struct");
        $run!(library::v1::Book, "library.v1.Book");
        $run!(library::v1::shelf::Place, "library.v1.shelf.Place");
        $run!(Bare, "Bare");
    };
}

/// A small generator of random numbers: what proptest shrinks is its seed.
pub struct Random(pub u64);

impl Random {
    /// Steele, Lea and Flood: SplitMix.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Zero, small and extreme numbers more often than chance has it.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(3),
            1 => u64::MAX - self.below(3),
            2 => 1 << self.below(64),
            _ => self.next(),
        }
    }

    fn text(&mut self) -> String {
        let len = [0, 1, 7, 8, 40].map(|n| n + self.below(3))[self.below(5) as usize];
        (0..len).map(|_| ['a', 'Z', ' ', 'ä', '日', '\0'][self.below(6) as usize]).collect()
    }
}

/// A message with about half of its fields set, and all required ones.
pub fn random_message(random: &mut Random, of: &MessageDescriptor, depth: u32) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        let required = field.cardinality() == prost_reflect::Cardinality::Required;
        // A required message is only left out where it could never end.
        let nests = matches!(field.kind(), Kind::Message(inner) if !required || inner == *of);
        if (required || random.below(2) == 0) && !(nests && depth == 0) {
            message.set_field(&field, random_field(random, &field, depth));
        }
    }
    message
}

fn random_field(random: &mut Random, field: &FieldDescriptor, depth: u32) -> Value {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { unreachable!("a map's entries are messages") };
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        let pairs = (0..random.below(4)).map(|_| {
            let key = random_value(random, &key.kind(), depth);
            (key.into_map_key().expect("keys are of key types"), random_value(random, &value.kind(), depth))
        });
        return Value::Map(pairs.collect());
    }
    if field.is_list() {
        let len = [0, 1, 3, 9][random.below(4) as usize];
        return Value::List((0..len).map(|_| random_value(random, &field.kind(), depth)).collect());
    }
    random_value(random, &field.kind(), depth)
}

fn random_value(random: &mut Random, kind: &Kind, depth: u32) -> Value {
    let number = random.number();
    match kind {
        // Quotients are never NaN, which would not be equal to itself.
        Kind::Double => Value::F64(number as i64 as f64 / 3.0),
        Kind::Float => Value::F32(number as i64 as f32 / 3.0),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number),
        Kind::Bool => Value::Bool(number & 1 == 1),
        Kind::String => Value::String(random.text()),
        Kind::Bytes => Value::Bytes(random.text().into_bytes().into()),
        Kind::Message(of) => Value::Message(random_message(random, of, depth.saturating_sub(1))),
        Kind::Enum(of) => {
            let closed = of.parent_file().syntax() == prost_reflect::Syntax::Proto2;
            let declared: Vec<i32> = of.values().map(|value| value.number()).collect();
            match random.below(4) {
                0 if !closed => Value::EnumNumber(number as i32),
                _ => Value::EnumNumber(declared[number as usize % declared.len()]),
            }
        }
    }
}
