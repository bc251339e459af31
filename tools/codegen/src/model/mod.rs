//! The language-neutral half: what is generated, before any language has a say in how it is written.
//!
//! [`Model::read`] turns a descriptor set (names, comments, declaration order) and the schema made of it (presence,
//! slots, fingerprints) into a tree of plain values. A renderer for another language starts here and needs neither.
//! Every type a model refers to is in its [`TypeTable`], and every name is a plain identifier.

mod comments;
mod cycles;
mod read;
mod strip;

pub use trunkline_schema::DefaultValue;

use crate::CodegenError;

/// All packages that code is generated for.
#[derive(Clone, Debug)]
pub struct Model {
    /// By package name.
    pub packages: Vec<Package>,
    /// Every named type that can be referred to, including those nothing is generated for.
    pub types: TypeTable,
}

impl Model {
    /// Reads an encoded `FileDescriptorSet` and keeps the packages of the files named in `files` (of all files of the
    /// set, if none is named). The set need not be trusted.
    ///
    /// # Errors
    /// [`CodegenError`] if the set is malformed, breaks a rule of protobuf or lacks one of the files.
    pub fn read(set: &[u8], files: &[String]) -> Result<Self, CodegenError> {
        read::model(set, files)
    }

    /// Whether any message, field or enum is deprecated, imported types included.
    pub fn has_deprecated(&self) -> bool {
        let mut types = self.types.iter();
        types.any(|(_, origin)| origin.deprecated)
            || self.packages.iter().any(|package| {
                package.messages.iter().any(Message::has_deprecated)
                    || package.enums.iter().any(|e| e.notes.deprecated)
            })
    }
}

/// One protobuf package: all that its files declare.
#[derive(Clone, Debug)]
pub struct Package {
    /// Dotted, without a leading dot; empty if the files name none.
    pub name: String,
    /// Names of its files, as imports write them.
    pub files: Vec<String>,
    /// Top-level messages in the order of their declaration.
    pub messages: Vec<Message>,
    /// Top-level enums.
    pub enums: Vec<Enum>,
    /// Services.
    pub services: Vec<Service>,
    /// Encoded `FileDescriptorSet` of its files and all they import, without source positions and comments.
    pub descriptor_set: Vec<u8>,
}

impl Package {
    /// Full names of the types that its messages and services mention, some of them more than once.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        let mut names = Vec::new();
        self.messages.iter().for_each(|message| message.mentioned(&mut names));
        for method in self.services.iter().flat_map(|service| &service.methods) {
            names.extend([method.input.as_str(), method.output.as_str()]);
        }
        names.into_iter()
    }
}

/// Comments and options that every declaration can carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Lines of the leading and trailing comment, without comment marks.
    pub docs: Vec<String>,
    /// `option deprecated = true`.
    pub deprecated: bool,
}

/// A message type.
#[derive(Clone, Debug)]
pub struct Message {
    /// With package, without a leading dot.
    pub full_name: String,
    /// As declared.
    pub name: String,
    /// Comments and options.
    pub notes: Notes,
    /// All fields in the order of their declaration, members of oneofs included.
    pub fields: Vec<Field>,
    /// Real oneofs; those that only express an optional field do not count.
    pub oneofs: Vec<Oneof>,
    /// Nested messages without map entries.
    pub messages: Vec<Message>,
    /// Nested enums.
    pub enums: Vec<Enum>,
    /// What the linear format needs to know.
    pub layout: Layout,
}

impl Message {
    /// Adds the types it and its nested messages mention. Recursion is as deep as declarations nest, which the schema
    /// limits.
    fn mentioned<'m>(&'m self, names: &mut Vec<&'m str>) {
        names.extend(self.fields.iter().filter_map(|field| match &field.shape {
            Shape::Implicit(of) | Shape::Optional(of) | Shape::Required(of) | Shape::Repeated(of) => {
                of.name()
            }
            Shape::Map(entry) => entry.value.name(),
        }));
        self.messages.iter().for_each(|nested| nested.mentioned(names));
    }

    fn has_deprecated(&self) -> bool {
        self.notes.deprecated
            || self.fields.iter().any(|field| field.notes.deprecated)
            || self.messages.iter().any(Self::has_deprecated)
            || self.enums.iter().any(|e| e.notes.deprecated)
    }
}

/// Where a message's parts lie (docs/linear.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Size of the block, in bytes.
    pub block_bytes: u32,
    /// Identity of the shape.
    pub fingerprint: u64,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// As declared.
    pub name: String,
    /// Its number on the wire.
    pub number: u32,
    /// Comments and options.
    pub notes: Notes,
    /// What it holds, and how often.
    pub shape: Shape,
    /// Byte offset of its slot in the block.
    pub slot: u32,
    /// Its presence bit.
    pub bit: u32,
    /// What stands for a value that is absent, where that is not the zero of its type: the declared default of a
    /// proto2 or editions field, or the first value of an enum that has no zero.
    pub default: Option<DefaultValue>,
    /// Index into [`Message::oneofs`].
    pub oneof: Option<usize>,
    /// The field closes a cycle of messages that hold each other by value: it needs an indirection.
    pub closes_cycle: bool,
}

impl Field {
    /// A singular field of a type, without a name or a place: what an entry of a map holds.
    pub(crate) fn unnamed(of: Type) -> Self {
        Self {
            name: String::new(),
            number: 0,
            notes: Notes::default(),
            shape: Shape::Implicit(of),
            slot: 0,
            bit: 0,
            default: None,
            oneof: None,
            closes_cycle: false,
        }
    }
}

/// What a field holds, and how often.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// One value; zero means absent.
    Implicit(Type),
    /// One value or none. Members of oneofs are of this shape.
    Optional(Type),
    /// Exactly one value (proto2).
    Required(Type),
    /// Any number of values.
    Repeated(Type),
    /// Keys and values.
    Map(Box<MapEntry>),
}

/// The entry message of a map field.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// An integer, bool or string.
    pub key: Type,
    /// Anything but a map.
    pub value: Type,
    /// Where key and value lie in the entry's block.
    pub layout: Layout,
    /// Slot and presence bit of the key.
    pub key_at: (u32, u32),
    /// Slot and presence bit of the value.
    pub value_at: (u32, u32),
    /// What stands for a value that is absent, where that is not the zero of its type.
    pub value_default: Option<DefaultValue>,
}

/// The type of one value. Wire encodings of the same value (`sint32`, `fixed32`) have become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// One byte.
    Bool,
    /// `int32`, `sint32`, `sfixed32`.
    I32,
    /// `uint32`, `fixed32`.
    U32,
    /// `int64`, `sint64`, `sfixed64`.
    I64,
    /// `uint64`, `fixed64`.
    U64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// An enum, by full name.
    Enum(String),
    /// A message or group, by full name.
    Message(String),
}

impl Type {
    /// The full name of an enum or a message.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Enum(name) | Self::Message(name) => Some(name),
            _ => None,
        }
    }
}

/// Fields of which at most one is set.
#[derive(Clone, Debug)]
pub struct Oneof {
    /// As declared.
    pub name: String,
    /// Comments.
    pub notes: Notes,
    /// Indices into [`Message::fields`].
    pub fields: Vec<usize>,
    /// Byte offset of the slot its members share.
    pub slot: u32,
    /// Size of that slot.
    pub slot_bytes: u32,
}

/// An enum type.
#[derive(Clone, Debug)]
pub struct Enum {
    /// With package, without a leading dot.
    pub full_name: String,
    /// As declared.
    pub name: String,
    /// Comments and options.
    pub notes: Notes,
    /// In the order of their declaration; the first is the default. Several may share a number.
    pub values: Vec<EnumValue>,
}

/// A named number.
#[derive(Clone, Debug)]
pub struct EnumValue {
    /// As declared.
    pub name: String,
    /// Its number.
    pub number: i32,
    /// Comments and options.
    pub notes: Notes,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// The file that declares it, as imports write it.
    pub file: String,
    /// With package.
    pub full_name: String,
    /// As declared.
    pub name: String,
    /// Comments and options.
    pub notes: Notes,
    /// In the order of their declaration.
    pub methods: Vec<Method>,
}

/// A method of a service.
#[derive(Clone, Debug)]
pub struct Method {
    /// As declared.
    pub name: String,
    /// `/package.Service/Method`.
    pub path: String,
    /// Comments and options.
    pub notes: Notes,
    /// Full name of the request message.
    pub input: String,
    /// Full name of the response message.
    pub output: String,
    /// The caller sends a stream.
    pub client_streaming: bool,
    /// The server sends a stream.
    pub server_streaming: bool,
    /// Declared idempotent or free of side effects: a retry is sound even when execution is unknown.
    pub idempotent: bool,
}

/// Where each named type was declared.
#[derive(Clone, Debug, Default)]
pub struct TypeTable {
    entries: std::collections::BTreeMap<String, TypeOrigin>,
}

/// The declaration of a named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeOrigin {
    /// Package it was declared in.
    pub package: String,
    /// Names of the enclosing messages, outermost first, then its own.
    pub nesting: Vec<String>,
    /// It is an enum, not a message.
    pub is_enum: bool,
    /// Identity of a message's shape; 0 for an enum.
    pub fingerprint: u64,
    /// `option deprecated = true`.
    pub deprecated: bool,
}

impl TypeTable {
    /// Where `full_name` (no leading dot) was declared.
    pub fn origin(&self, full_name: &str) -> Option<&TypeOrigin> {
        self.entries.get(full_name)
    }

    /// Every type by full name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TypeOrigin)> {
        self.entries.iter().map(|(name, origin)| (name.as_str(), origin))
    }
}
