//! JSON values as protobuf on the wire.
//!
//! The bytes are written here and not by way of a dynamic message: that one takes a negative zero for no value.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{
    Cardinality, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor,
};
use serde_json::{Map, Value};

use super::known;
use super::number::{self, integer, integer_text, kind};

/// What is wrong with a value, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Names of fields, outermost last.
    path: Vec<String>,
    reason: String,
}

impl Wrong {
    fn within(mut self, name: impl Into<String>) -> Self {
        self.path.push(name.into());
        self
    }
}

impl From<String> for Wrong {
    fn from(reason: String) -> Self {
        Self { path: Vec::new(), reason }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        if !path.is_empty() {
            write!(f, "{}: ", path.join("."))?;
        }
        f.write_str(&self.reason)
    }
}

/// How JSON is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    /// Members and names of enum values that the type does not have are passed over.
    pub(super) allow_unknown: bool,
}

/// A field or an extension: the same to a reader, and two types.
struct Slot {
    number: u32,
    kind: Kind,
    cardinality: Cardinality,
    is_map: bool,
    is_group: bool,
    is_packed: bool,
    has_presence: bool,
    /// Index of the oneof it is a member of.
    oneof: Option<String>,
}

impl From<FieldDescriptor> for Slot {
    fn from(of: FieldDescriptor) -> Self {
        Self {
            number: of.number(),
            kind: of.kind(),
            cardinality: of.cardinality(),
            is_map: of.is_map(),
            is_group: of.is_group(),
            is_packed: of.is_packed(),
            has_presence: of.supports_presence(),
            oneof: of.containing_oneof().map(|oneof| oneof.name().to_owned()),
        }
    }
}

impl From<ExtensionDescriptor> for Slot {
    fn from(of: ExtensionDescriptor) -> Self {
        Self {
            number: of.number(),
            kind: of.kind(),
            cardinality: of.cardinality(),
            is_map: of.is_map(),
            is_group: of.is_group(),
            is_packed: of.is_packed(),
            has_presence: of.supports_presence(),
            oneof: None,
        }
    }
}

/// One value as it lies on the wire.
enum Wire {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    Bytes(Vec<u8>),
}

impl Wire {
    fn wire_type(&self) -> WireType {
        match self {
            Self::Varint(_) => WireType::Varint,
            Self::Fixed32(_) => WireType::ThirtyTwoBit,
            Self::Fixed64(_) => WireType::SixtyFourBit,
            Self::Bytes(_) => WireType::LengthDelimited,
        }
    }

    /// What stands for absence where there is no presence; negative zero has a bit set.
    fn is_zero(&self) -> bool {
        match self {
            Self::Varint(value) => *value == 0,
            Self::Fixed32(bytes) => *bytes == [0; 4],
            Self::Fixed64(bytes) => *bytes == [0; 8],
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Varint(value) => encode_varint(*value, out),
            Self::Fixed32(bytes) => out.extend_from_slice(bytes),
            Self::Fixed64(bytes) => out.extend_from_slice(bytes),
            Self::Bytes(bytes) => {
                encode_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }

    fn put_field(&self, number: u32, out: &mut Vec<u8>) {
        encode_key(number, self.wire_type(), out);
        self.put(out);
    }
}

impl Reader {
    /// The message of this type that `value` stands for. Recursion is as deep as the value, which whoever parsed it has
    /// limited.
    ///
    /// # Errors
    /// [`Wrong`], with the names of the fields around it.
    pub(super) fn message(self, of: &MessageDescriptor, value: &Value) -> Result<Vec<u8>, Wrong> {
        let mut out = Vec::new();
        match of.full_name().strip_prefix("google.protobuf.") {
            Some("Any") => self.any(of, members(of, value)?, &mut out)?,
            Some("Timestamp") => parts(known::timestamp(text(value)?)?, &mut out),
            Some("Duration") => parts(known::duration(text(value)?)?, &mut out),
            Some("FieldMask") => {
                known::paths(text(value)?)?.iter().for_each(|path| put_text(1, path, &mut out))
            }
            Some("Struct") => structure(members(of, value)?, &mut out),
            Some("ListValue") => {
                list_value(value.as_array().ok_or_else(|| expected("an array", value))?, &mut out)
            }
            Some("Value") => any_value(value, &mut out),
            Some(
                "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
                | "BoolValue" | "StringValue" | "BytesValue",
            ) => {
                if let Some(field) = of.get_field(1) {
                    self.single(&field.into(), value, &mut out)?;
                }
            }
            _ => self.fields(of, members(of, value)?, &mut out)?,
        }
        Ok(out)
    }

    fn fields(
        self,
        of: &MessageDescriptor,
        members: &Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        let mut oneofs = BTreeSet::new();
        for (name, value) in members {
            let field =
                of.get_field_by_json_name(name).or_else(|| of.get_field_by_name(name)).map(Slot::from);
            let slot = match field.or_else(|| of.get_extension_by_json_name(name).map(Slot::from)) {
                Some(slot) => slot,
                None if self.allow_unknown => continue,
                None => return Err(format!("{} has no field {name:?}", of.full_name()).into()),
            };
            if !seen.insert(slot.number) {
                return Err(format!("field {name:?} is there twice, by both of its names").into());
            }
            if value.is_null() && !takes_null(&slot) {
                continue;
            }
            if let Some(oneof) = slot.oneof.as_ref().filter(|oneof| !oneofs.insert((*oneof).clone())) {
                return Err(format!("field {name:?} is the second of oneof {oneof:?}").into());
            }
            self.field(&slot, value, out).map_err(|wrong| wrong.within(name))?;
        }
        Ok(())
    }

    fn field(self, slot: &Slot, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
        if slot.is_map {
            return self.map(slot, value, out);
        }
        if slot.cardinality != Cardinality::Repeated {
            return self.single(slot, value, out);
        }
        let elements = value.as_array().ok_or_else(|| expected("an array", value))?;
        let mut packed = Vec::new();
        for (index, element) in elements.iter().enumerate() {
            let within = |wrong: Wrong| wrong.within(index.to_string());
            match self.value(&slot.kind, element).map_err(within)? {
                Some(wire) if slot.is_packed => wire.put(&mut packed),
                Some(wire) => put(slot, &wire, out),
                None => {}
            }
        }
        if !packed.is_empty() {
            Wire::Bytes(packed).put_field(slot.number, out);
        }
        Ok(())
    }

    fn single(self, slot: &Slot, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
        if let Some(wire) = self.value(&slot.kind, value)?.filter(|wire| slot.has_presence || !wire.is_zero())
        {
            put(slot, &wire, out);
        }
        Ok(())
    }

    fn map(self, slot: &Slot, value: &Value, out: &mut Vec<u8>) -> Result<(), Wrong> {
        let Kind::Message(entry) = &slot.kind else { return Ok(()) };
        let (key_kind, value_kind) =
            (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        for (key, value) in members(entry, value)? {
            let within = |wrong: Wrong| wrong.within(format!("[{key:?}]"));
            let key_wire = self.key(&key_kind, key).map_err(within)?;
            if let Some(value) = self.value(&value_kind, value).map_err(within)? {
                let mut entry = Vec::new();
                key_wire.put_field(1, &mut entry);
                value.put_field(2, &mut entry);
                Wire::Bytes(entry).put_field(slot.number, out);
            }
        }
        Ok(())
    }

    fn key(self, of: &Kind, key: &str) -> Result<Wire, Wrong> {
        match (of, key) {
            (Kind::Bool, "true") => Ok(Wire::Varint(1)),
            (Kind::Bool, "false") => Ok(Wire::Varint(0)),
            (Kind::Bool, _) => Err(format!("expected \"true\" or \"false\", found {key:?}").into()),
            (Kind::String, _) => Ok(Wire::Bytes(key.as_bytes().to_vec())),
            _ => match self.value(of, &Value::String(key.to_owned()))? {
                Some(wire) if integer_text(key).is_some() => Ok(wire),
                _ => Err(format!("{key:?} is no key").into()),
            },
        }
    }

    /// One value; none if it is the unknown name of an enum's value, and that is allowed.
    fn value(self, of: &Kind, value: &Value) -> Result<Option<Wire>, Wrong> {
        let signed = |bits: u32| integer(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1);
        let unsigned = |bits: u32| integer(value, 0, (1 << bits) - 1);
        let wire = match of {
            Kind::Double => Wire::Fixed64(number::double(value)?.to_le_bytes()),
            Kind::Float => Wire::Fixed32(number::float(value)?.to_le_bytes()),
            Kind::Int32 => Wire::Varint(signed(32)? as i64 as u64),
            Kind::Int64 => Wire::Varint(signed(64)? as i64 as u64),
            Kind::Uint32 => Wire::Varint(unsigned(32)? as u64),
            Kind::Uint64 => Wire::Varint(unsigned(64)? as u64),
            Kind::Sint32 => Wire::Varint(zigzag(signed(32)? as i64)),
            Kind::Sint64 => Wire::Varint(zigzag(signed(64)? as i64)),
            Kind::Fixed32 => Wire::Fixed32((unsigned(32)? as u32).to_le_bytes()),
            Kind::Fixed64 => Wire::Fixed64((unsigned(64)? as u64).to_le_bytes()),
            Kind::Sfixed32 => Wire::Fixed32((signed(32)? as i32).to_le_bytes()),
            Kind::Sfixed64 => Wire::Fixed64((signed(64)? as i64).to_le_bytes()),
            Kind::Bool => Wire::Varint(value.as_bool().ok_or_else(|| expected("a boolean", value))?.into()),
            Kind::String => Wire::Bytes(text(value)?.as_bytes().to_vec()),
            Kind::Bytes => Wire::Bytes(bytes(text(value)?)?),
            Kind::Message(of) => Wire::Bytes(self.message(of, value)?),
            Kind::Enum(of) => {
                return Ok(self.enumeration(of, value)?.map(|number| Wire::Varint(i64::from(number) as u64)));
            }
        };
        Ok(Some(wire))
    }

    fn enumeration(self, of: &EnumDescriptor, value: &Value) -> Result<Option<i32>, Wrong> {
        match value {
            Value::Null if of.full_name() == NULL_VALUE => Ok(Some(0)),
            Value::String(name) => match of.get_value_by_name(name) {
                Some(value) => Ok(Some(value.number())),
                None if self.allow_unknown => Ok(None),
                None => Err(format!("{} has no value {name:?}", of.full_name()).into()),
            },
            Value::Number(_) => {
                let number = integer(value, i32::MIN.into(), i32::MAX.into())?;
                Ok(i32::try_from(number).ok())
            }
            _ => Err(expected("the name or number of an enum's value", value)),
        }
    }

    fn any(
        self,
        of: &MessageDescriptor,
        members: &Map<String, Value>,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        if members.is_empty() {
            return Ok(());
        }
        let url = members
            .get("@type")
            .ok_or_else(|| "there is no \"@type\", which names the message".to_owned())?;
        let url = text(url).map_err(|wrong| wrong.within("@type"))?;
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let of = of.parent_pool().get_message_by_name(name);
        let of = of.ok_or_else(|| format!("\"@type\": {url:?} names no message that is known here"))?;
        let mut members = members.clone();
        members.remove("@type");
        let payload = if has_own_form(&of) {
            let value = members.remove("value").unwrap_or(Value::Null);
            if let Some(name) = members.keys().next().filter(|_| !self.allow_unknown) {
                return Err(format!("{name:?} stands beside the \"value\" of {}", of.full_name()).into());
            }
            self.message(&of, &value).map_err(|wrong| wrong.within("value"))?
        } else {
            self.message(&of, &Value::Object(members))?
        };
        put_text(1, url, out);
        if !payload.is_empty() {
            Wire::Bytes(payload).put_field(2, out);
        }
        Ok(())
    }
}

const NULL_VALUE: &str = "google.protobuf.NullValue";

/// Whether the JSON of a message is something else than an object of its fields.
pub(super) fn has_own_form(of: &MessageDescriptor) -> bool {
    of.full_name().strip_prefix("google.protobuf.").is_some_and(|name| {
        name.ends_with("Value")
            || matches!(name, "Any" | "Timestamp" | "Duration" | "FieldMask" | "Struct" | "Empty")
    })
}

/// Whether null is a value of this field and not its absence.
fn takes_null(slot: &Slot) -> bool {
    match &slot.kind {
        _ if slot.cardinality == Cardinality::Repeated => false,
        Kind::Message(of) => of.full_name() == "google.protobuf.Value",
        Kind::Enum(of) => of.full_name() == NULL_VALUE,
        _ => false,
    }
}

fn put(slot: &Slot, wire: &Wire, out: &mut Vec<u8>) {
    match wire {
        Wire::Bytes(group) if slot.is_group => {
            encode_key(slot.number, WireType::StartGroup, out);
            out.extend_from_slice(group);
            encode_key(slot.number, WireType::EndGroup, out);
        }
        wire => wire.put_field(slot.number, out),
    }
}

fn put_text(number: u32, text: &str, out: &mut Vec<u8>) {
    Wire::Bytes(text.as_bytes().to_vec()).put_field(number, out);
}

/// Seconds and nanoseconds, fields 1 and 2 of both messages of time.
fn parts((seconds, nanos): (i64, i32), out: &mut Vec<u8>) {
    for (number, part) in [(1, seconds), (2, i64::from(nanos))] {
        if part != 0 {
            Wire::Varint(part.cast_unsigned()).put_field(number, out);
        }
    }
}

fn structure(members: &Map<String, Value>, out: &mut Vec<u8>) {
    for (name, value) in members {
        let (mut entry, mut inner) = (Vec::new(), Vec::new());
        any_value(value, &mut inner);
        put_text(1, name, &mut entry);
        Wire::Bytes(inner).put_field(2, &mut entry);
        Wire::Bytes(entry).put_field(1, out);
    }
}

fn list_value(elements: &[Value], out: &mut Vec<u8>) {
    for element in elements {
        let mut inner = Vec::new();
        any_value(element, &mut inner);
        Wire::Bytes(inner).put_field(1, out);
    }
}

/// A `google.protobuf.Value`: the field that holds the kind of value this is.
fn any_value(value: &Value, out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    match value {
        Value::Null => Wire::Varint(0).put_field(1, out),
        Value::Number(number) => {
            Wire::Fixed64(number.as_f64().unwrap_or_default().to_le_bytes()).put_field(2, out);
        }
        Value::String(text) => put_text(3, text, out),
        Value::Bool(value) => Wire::Varint((*value).into()).put_field(4, out),
        Value::Object(members) => {
            structure(members, &mut inner);
            Wire::Bytes(inner).put_field(5, out);
        }
        Value::Array(elements) => {
            list_value(elements, &mut inner);
            Wire::Bytes(inner).put_field(6, out);
        }
    }
}

/// Either alphabet, with or without padding.
fn bytes(text: &str) -> Result<Vec<u8>, Wrong> {
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    let lenient = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = GeneralPurpose::new(alphabet, lenient).decode(text);
    decoded.map_err(|error| format!("{text:?} is not base64: {error}").into())
}

fn members<'v>(of: &MessageDescriptor, value: &'v Value) -> Result<&'v Map<String, Value>, Wrong> {
    let object = || if of.is_map_entry() { "an object" } else { "an object of fields" };
    value.as_object().ok_or_else(|| expected(object(), value))
}

fn text(value: &Value) -> Result<&str, Wrong> {
    value.as_str().ok_or_else(|| expected("a string", value))
}

fn expected(what: &str, found: &Value) -> Wrong {
    format!("expected {what}, found {}", kind(found)).into()
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}
