//! What a message, a field and an enum are, once every name and every default rule is resolved.

use crate::default::DefaultValue;
use crate::kind::{Cardinality, EnumIndex, Kind, MessageIndex};
use crate::layout::Layout;

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
    /// Positions of fields, by name.
    pub(crate) by_name: Box<[u32]>,
}

impl Message {
    /// The field with this number.
    pub fn field(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }

    /// The field with this name, as written in the `.proto` file. Takes a few comparisons, however many fields there
    /// are.
    pub fn field_named(&self, name: &str) -> Option<&Field> {
        let named = |at: &u32| self.fields.get(*at as usize).map_or("", |field| field.name.as_str());
        let at = self.by_name.binary_search_by(|at| named(at).cmp(name)).ok()?;
        self.fields.get(*self.by_name.get(at)? as usize)
    }

    /// Positions of fields, by name.
    pub(crate) fn index_of(fields: &[Field]) -> Box<[u32]> {
        let mut by_name: Box<[u32]> = (0..fields.len() as u32).collect();
        by_name.sort_unstable_by_key(|&at| fields.get(at as usize).map(|field| field.name.as_str()));
        by_name
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
