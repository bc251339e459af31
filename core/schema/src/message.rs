//! What a message, a field and an enum are, once every name and every default rule is resolved.

use crate::{DefaultValue, Layout};

/// The position of a message in [`Schema::messages`](crate::Schema::messages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageIndex(pub u32);

/// The position of an enum in [`Schema::enums`](crate::Schema::enums).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnumIndex(pub u32);

/// A message type.
#[derive(Clone, Debug)]
pub struct Message {
    /// Package and enclosing messages included, without a leading dot.
    pub full_name: String,
    /// Ascending by number; a field's index here is its presence bit.
    pub fields: Vec<Field>,
    /// Real oneofs in order of declaration; the synthetic ones of proto3 `optional` are not among them.
    pub oneofs: Vec<Oneof>,
    /// Where each field lies in this message's block.
    pub layout: Layout,
    /// The synthetic `{key = 1, value = 2}` type of a map field.
    pub is_map_entry: bool,
}

impl Message {
    /// The field with this number.
    pub fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }

    /// The field with this name, as written in the `.proto` file.
    pub fn field_named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// The number on the wire, 1 to 2^29 - 1.
    pub number: u32,
    /// As written in the `.proto` file.
    pub name: String,
    /// The name in JSON: the declared `json_name`, or lowerCamelCase of the name.
    pub json_name: String,
    /// The declared type.
    pub kind: Kind,
    /// How often the field may occur and how absence is told from zero.
    pub cardinality: Cardinality,
    /// Repeated scalars: the encoder writes them packed. Decoders accept both forms always.
    pub packed: bool,
    /// The type of a [`Kind::Message`] field.
    pub message: Option<MessageIndex>,
    /// The type of a [`Kind::Enum`] field.
    pub enumeration: Option<EnumIndex>,
    /// Index into [`Message::oneofs`] of the real oneof this field belongs to.
    pub oneof: Option<u16>,
    /// Byte offset of the slot from the start of the block.
    pub slot: u32,
    /// Index of the presence bit: bit `presence_bit % 32` of presence word `presence_bit / 32`.
    pub presence_bit: u32,
    /// String fields: invalid UTF-8 is an error (proto3 and editions' default; proto2 does not verify).
    pub utf8: bool,
    /// The message travels between start-group and end-group tags.
    pub group: bool,
    /// A repeated field of map entries.
    pub is_map: bool,
    /// The declared default (proto2, editions); `None` means the kind's zero, or an enum's first value.
    pub default: Option<DefaultValue>,
}

impl Field {
    /// Repeated and map fields: the slot holds `{offset, count}`.
    pub fn is_repeated(&self) -> bool {
        self.cardinality == Cardinality::Repeated
    }

    /// Absent and zero are told apart for this field: it has a `has_` accessor.
    pub fn has_presence(&self) -> bool {
        matches!(self.cardinality, Cardinality::Optional | Cardinality::Required)
    }
}

/// A oneof declared as such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oneof {
    /// As written in the `.proto` file.
    pub name: String,
    /// Indices into [`Message::fields`], ascending.
    pub fields: Vec<u32>,
    /// Byte offset of the slot all members share.
    pub slot: u32,
    /// Size of that slot: that of the widest member.
    pub slot_bytes: u32,
}

/// An enum type.
#[derive(Clone, Debug)]
pub struct Enum {
    /// Package and enclosing messages included, without a leading dot.
    pub full_name: String,
    /// In order of declaration; the first one is the default.
    pub values: Vec<EnumValue>,
    /// Every number that occurs, ascending, once.
    pub numbers: Vec<i32>,
    /// Numbers not declared are kept as unknown fields instead of being stored (proto2's rule).
    pub closed: bool,
    /// Positions of the values, ordered by name.
    pub(crate) by_name: Vec<u32>,
}

impl Enum {
    /// Whether a number is declared.
    pub fn declares(&self, number: i32) -> bool {
        self.numbers.binary_search(&number).is_ok()
    }

    /// The value with a name.
    pub fn value_named(&self, name: &str) -> Option<&EnumValue> {
        let value = |i: u32| self.values.get(i as usize);
        let at =
            self.by_name.binary_search_by(|&i| value(i).map(|v| v.name.as_str()).cmp(&Some(name))).ok()?;
        self.by_name.get(at).and_then(|&i| value(i))
    }

    /// The first value declared with this number.
    pub fn value(&self, number: i32) -> Option<&EnumValue> {
        self.values.iter().find(|value| value.number == number)
    }

    /// The value of a field that is absent.
    pub fn default_number(&self) -> i32 {
        self.values.first().map_or(0, |value| value.number)
    }
}

/// One value of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumValue {
    /// As written in the `.proto` file.
    pub name: String,
    /// Its number; several names may share one.
    pub number: i32,
}

/// The declared type of a field. Groups are messages with [`Field::group`] set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are protobuf's own")]
pub enum Kind {
    Bool,
    Int32,
    Sint32,
    Sfixed32,
    Uint32,
    Fixed32,
    Float,
    Enum,
    Int64,
    Sint64,
    Sfixed64,
    Uint64,
    Fixed64,
    Double,
    String,
    Bytes,
    Message,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 17] = [
        Self::Bool,
        Self::Int32,
        Self::Sint32,
        Self::Sfixed32,
        Self::Uint32,
        Self::Fixed32,
        Self::Float,
        Self::Enum,
        Self::Int64,
        Self::Sint64,
        Self::Sfixed64,
        Self::Uint64,
        Self::Fixed64,
        Self::Double,
        Self::String,
        Self::Bytes,
        Self::Message,
    ];

    /// Bytes of one value: a singular field's slot, or, for scalars, an array's element.
    pub fn size_bytes(self) -> u32 {
        match self {
            Self::Bool => 1,
            Self::Int32 | Self::Sint32 | Self::Sfixed32 | Self::Uint32 | Self::Fixed32 => 4,
            Self::Float | Self::Enum | Self::Message => 4,
            Self::Int64 | Self::Sint64 | Self::Sfixed64 | Self::Uint64 | Self::Fixed64 => 8,
            Self::Double | Self::String | Self::Bytes => 8,
        }
    }

    /// Numbers, bools and enums: kinds that may be packed and whose value lies in the slot itself.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Self::String | Self::Bytes | Self::Message)
    }
}

/// How often a field may occur, and whether absence is told from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cardinality {
    /// At most once, absence is told from zero: proto2 `optional`, proto3 `optional`, oneof members, messages.
    Optional,
    /// At most once, zero is not sent: plain proto3 scalars.
    Implicit,
    /// Exactly once: proto2 `required`, editions' `LEGACY_REQUIRED`. Held at the gRPC edge, not by the check.
    Required,
    /// Any number of times; maps too.
    Repeated,
}
