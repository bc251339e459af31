//! Types of expressions.

use trunkline_schema::{Field, Kind, MessageIndex, Schema};

/// What an expression's value will be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Comes from a message whose schema is not known yet; agrees with everything.
    Unknown,
    Null,
    Bool,
    /// Enums are integers, as in CEL.
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Message(MessageIndex),
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    /// The call's metadata: a map of strings that lies elsewhere.
    Metadata,
    /// What `peer` is before its member is named.
    Peer,
    /// What `caller` is before its member is named.
    Caller,
}

impl Type {
    /// The type of a singular field's value, or of a repeated field's element.
    pub fn of_kind(field: &Field) -> Self {
        match field.kind {
            Kind::Bool => Self::Bool,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                Self::Int
            }
            Kind::Enum => Self::Int,
            Kind::Uint32 | Kind::Fixed32 | Kind::Uint64 | Kind::Fixed64 => Self::Uint,
            Kind::Float | Kind::Double => Self::Double,
            Kind::String => Self::Str,
            Kind::Bytes => Self::Bytes,
            // Fields of message type have one, in a schema that was built.
            Kind::Message => field.message.map_or(Self::Unknown, Self::Message),
        }
    }

    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value of this type may stand where `wanted` is wanted.
    pub fn fits(&self, wanted: &Self) -> bool {
        self == wanted || *self == Self::Unknown || *wanted == Self::Unknown
    }

    /// Whether `==` is defined between the two.
    pub fn equates(&self, other: &Self) -> bool {
        let scalar =
            |of: &Self| of.is_number() || matches!(of, Self::Bool | Self::Str | Self::Bytes | Self::Unknown);
        scalar(self) && scalar(other) && (self.fits(other) || self.is_number() && other.is_number())
    }

    /// The type in words.
    pub fn name(&self, schema: Option<&Schema>) -> String {
        match self {
            Self::Unknown => "a value of a type not known yet".into(),
            Self::Null => "null".into(),
            Self::Bool => "bool".into(),
            Self::Int => "int".into(),
            Self::Uint => "uint".into(),
            Self::Double => "double".into(),
            Self::Str => "string".into(),
            Self::Bytes => "bytes".into(),
            Self::Message(index) => {
                schema.map_or_else(|| "message".into(), |schema| schema.message(*index).full_name.clone())
            }
            Self::List(of) => format!("list({})", of.name(schema)),
            Self::Map(key, value) => format!("map({}, {})", key.name(schema), value.name(schema)),
            Self::Metadata => "map(string, string)".into(),
            Self::Peer => "peer".into(),
            Self::Caller => "caller".into(),
        }
    }
}
