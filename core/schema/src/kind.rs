//! What a field may hold: kinds, enums, and how often.

/// The position of a message in [`Schema::messages`](crate::Schema::messages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageIndex(pub u32);

/// The position of an enum in [`Schema::enums`](crate::Schema::enums).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EnumIndex(pub u32);

/// The declared type of a field. Groups are messages with [`Field::group`](crate::Field::group) set.
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
    /// Exactly once: proto2 `required`, editions' `LEGACY_REQUIRED`. Neither the check nor the transcoder asks for it.
    Required,
    /// Any number of times; maps too.
    Repeated,
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
