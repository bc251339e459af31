//! One field: its kind, its cardinality and its features, from what three generations of syntax say about it.

use crate::default::DefaultValue;
use crate::descriptor::FieldProto;
use crate::error::SchemaError;
use crate::features::{Features, Presence};
use crate::kind::{Cardinality, Enum, EnumIndex, Kind, MessageIndex};
use crate::limits::FIELD_NUMBER_MAX;
use crate::message::Field;
use crate::names::{Declared, MessageDeclaration, Names, Type, is_identifier};

/// Resolves fields against everything the set declares.
pub(crate) struct FieldBuilder<'b, 'p, 'a> {
    pub(crate) declared: &'b Declared<'p, 'a>,
    pub(crate) names: &'b Names<'b>,
    pub(crate) enums: &'b [Enum],
}

impl FieldBuilder<'_, '_, '_> {
    /// A field without its place in the block, which is the layout's to give. Its `oneof` is still the declared
    /// index: synthetic oneofs are yet to be taken out of the count.
    pub(crate) fn field(
        &self,
        declared: &MessageDeclaration<'_, '_>,
        proto: &FieldProto<'_>,
    ) -> Result<Field, SchemaError> {
        let invalid = |reason| declared.invalid(proto.name, reason);
        let number = number_of_named(proto).map_err(invalid)?;
        let (kind, message, enumeration) = self.kind(declared, proto)?;
        let features = inherited(declared, proto);
        let cardinality = cardinality(proto, kind, features).map_err(invalid)?;
        let is_map = self.is_map_entry(message);
        if is_map && cardinality != Cardinality::Repeated {
            return Err(invalid("a map entry is the type of a field that is not repeated"));
        }
        let repeated = cardinality == Cardinality::Repeated;
        let delimited = features.delimited && !is_map && !declared.proto.map_entry;
        let enum_type = enumeration.and_then(|EnumIndex(i)| self.enums.get(i as usize));
        let default = proto.default.map(|text| DefaultValue::read(kind, text, enum_type)).transpose();
        Ok(Field {
            number,
            name: proto.name.to_owned(),
            json_name: proto.json_name.map_or_else(|| lower_camel_case(proto.name), str::to_owned),
            kind,
            cardinality,
            packed: repeated && kind.is_scalar() && proto.packed.unwrap_or(features.packed),
            message,
            enumeration,
            oneof: declared_oneof(declared, proto).map_err(invalid)?,
            slot: 0,
            presence_bit: 0,
            utf8: kind == Kind::String && features.utf8,
            group: kind == Kind::Message && (proto.kind == TYPE_GROUP || delimited),
            is_map,
            default: default.map_err(invalid)?,
        })
    }

    fn kind(
        &self,
        declared: &MessageDeclaration<'_, '_>,
        proto: &FieldProto<'_>,
    ) -> Result<(Kind, Option<MessageIndex>, Option<EnumIndex>), SchemaError> {
        let kind = kind_of_type(proto.kind).map_err(|reason| declared.invalid(proto.name, reason))?;
        if kind.is_some_and(|kind| !matches!(kind, Kind::Message | Kind::Enum)) {
            return Ok((kind.unwrap_or(Kind::Bytes), None, None));
        }
        let found = self.names.find(proto.type_name);
        match (found, kind) {
            (Some(Type::Message(i)), None | Some(Kind::Message)) => Ok((Kind::Message, Some(i), None)),
            (Some(Type::Enum(i)), None | Some(Kind::Enum)) => Ok((Kind::Enum, None, Some(i))),
            (Some(_), _) => Err(declared.invalid(proto.name, "the named type is not of the field's kind")),
            (None, _) => Err(SchemaError::Unresolved {
                place: declared.place(proto.name),
                name: proto.type_name.to_owned(),
            }),
        }
    }

    fn is_map_entry(&self, message: Option<MessageIndex>) -> bool {
        let declared = message.and_then(|i| self.declared.messages.get(i.0 as usize));
        declared.is_some_and(|declared| declared.proto.map_entry)
    }
}

/// The number of a field whose name is one.
fn number_of_named(proto: &FieldProto<'_>) -> Result<u32, &'static str> {
    let number = u32::try_from(proto.number).ok().filter(|n| (1..=FIELD_NUMBER_MAX).contains(n));
    if is_identifier(proto.name) {
        number.ok_or("the field number is out of range")
    } else {
        Err("the field's name is not an identifier")
    }
}

/// `FieldDescriptorProto.Type` of a group.
const TYPE_GROUP: i32 = 10;

/// `FieldDescriptorProto.Type`; `None` if the descriptor leaves it to the type's name.
fn kind_of_type(number: i32) -> Result<Option<Kind>, &'static str> {
    Ok(Some(match number {
        0 => return Ok(None),
        1 => Kind::Double,
        2 => Kind::Float,
        3 => Kind::Int64,
        4 => Kind::Uint64,
        5 => Kind::Int32,
        6 => Kind::Fixed64,
        7 => Kind::Fixed32,
        8 => Kind::Bool,
        9 => Kind::String,
        TYPE_GROUP | 11 => Kind::Message,
        12 => Kind::Bytes,
        13 => Kind::Uint32,
        14 => Kind::Enum,
        15 => Kind::Sfixed32,
        16 => Kind::Sfixed64,
        17 => Kind::Sint32,
        18 => Kind::Sint64,
        _ => return Err("the field's type does not exist"),
    }))
}

/// The features a field ends up with: its message's, its oneof's on top, its own on top of those.
fn inherited(declared: &MessageDeclaration<'_, '_>, proto: &FieldProto<'_>) -> Features {
    let oneof = proto.oneof.and_then(|i| declared.proto.oneofs.get(usize::try_from(i).ok()?));
    let outer = oneof.map_or(declared.features, |oneof| declared.features.with(oneof.features));
    outer.with(proto.features)
}

fn cardinality(proto: &FieldProto<'_>, kind: Kind, features: Features) -> Result<Cardinality, &'static str> {
    const REQUIRED: i32 = 2;
    const REPEATED: i32 = 3;
    match (proto.label, proto.oneof, features.presence) {
        (REPEATED, Some(_), _) => Err("a repeated field is a member of a oneof"),
        (REPEATED, None, _) if proto.default.is_some() => Err("a repeated field has a default"),
        (REPEATED, None, _) => Ok(Cardinality::Repeated),
        (REQUIRED, Some(_), _) => Err("a required field is a member of a oneof"),
        (REQUIRED, None, _) => Ok(Cardinality::Required),
        (_, Some(_), _) => Ok(Cardinality::Optional),
        (_, None, Presence::Required) => Ok(Cardinality::Required),
        (_, None, Presence::Implicit) if kind != Kind::Message => Ok(Cardinality::Implicit),
        (_, None, _) => Ok(Cardinality::Optional),
    }
}

/// The declared index of the field's real oneof. proto3 `optional` puts a field alone in a synthetic one.
fn declared_oneof(
    declared: &MessageDeclaration<'_, '_>,
    proto: &FieldProto<'_>,
) -> Result<Option<u16>, &'static str> {
    let Some(index) = proto.oneof else { return Ok(None) };
    let index = u16::try_from(index).ok().filter(|i| usize::from(*i) < declared.proto.oneofs.len());
    let index = index.ok_or("the field is in a oneof that its message does not declare")?;
    Ok((!proto.proto3_optional).then_some(index))
}

/// The JSON name protoc derives: underscores go, the letter after one is raised.
fn lower_camel_case(name: &str) -> String {
    let mut raise = false;
    let mut camel = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter == '_' {
            raise = true;
        } else {
            camel.push(if raise { letter.to_ascii_uppercase() } else { letter });
            raise = false;
        }
    }
    camel
}
