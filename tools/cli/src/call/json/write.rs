//! Messages as JSON.

use std::fmt::Display;

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage as _, Value};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq as _, Serializer};

use super::known;
use super::read::has_own_form;

/// Messages in an Any within each other. Each is decoded on its own, so that the decoder's own limit, 100, does not
/// count them together.
const ANYS_MAX: usize = 32;

/// A message that serializes to its JSON.
pub(super) struct Json<'m> {
    message: &'m DynamicMessage,
    how: How,
}

/// What holds for a message and all within it.
#[derive(Clone, Copy)]
struct How {
    /// Fields without presence are written even if they are zero.
    defaults: bool,
    /// How many Anys it is in.
    anys: usize,
}

impl<'m> Json<'m> {
    /// `message`, with fields without presence even if they are zero, if `defaults` says so.
    pub(super) fn new(message: &'m DynamicMessage, defaults: bool) -> Self {
        Self { message, how: How { defaults, anys: 0 } }
    }
}

/// A value of a field; its kind tells how it is written.
struct Field<'m> {
    value: &'m Value,
    kind: &'m Kind,
    how: How,
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { message, how } = *self;
        let of = message.descriptor();
        match of.full_name().strip_prefix("google.protobuf.") {
            Some("Any") => self.any(to),
            Some("Timestamp") => parts(message, to, known::timestamp_text),
            Some("Duration") => parts(message, to, known::duration_text),
            Some("FieldMask") => {
                let paths = field(message, 1);
                let paths = paths.as_list().unwrap_or_default().iter().filter_map(Value::as_str);
                to.serialize_str(&known::paths_text(paths).map_err(S::Error::custom)?)
            }
            Some("Struct" | "ListValue" | "Value") => message.serialize(to),
            Some(name) if name.ends_with("Value") => match of.get_field(1) {
                Some(wrapped) => {
                    let value = message.get_field(&wrapped);
                    Field { value: &value, kind: &wrapped.kind(), how }.serialize(to)
                }
                None => to.serialize_none(),
            },
            _ => {
                let mut members = to.serialize_map(None)?;
                self.members(&mut members)?;
                members.end()
            }
        }
    }
}

impl Json<'_> {
    fn members<M: SerializeMap>(&self, members: &mut M) -> Result<(), M::Error> {
        let Self { message, how } = *self;
        let of = message.descriptor();
        let mut fields: Vec<_> = of.fields().collect();
        fields.sort_unstable_by_key(prost_reflect::FieldDescriptor::number);
        for field in fields {
            let value = message.get_field(&field);
            let shown = message.has_field(&field)
                || (!field.supports_presence() && (how.defaults || is_negative_zero(&value)));
            if shown {
                let value = Field { value: &value, kind: &field.kind(), how };
                members.serialize_entry(field.json_name(), &value)?;
            }
        }
        for (extension, value) in message.extensions() {
            let value = Field { value, kind: &extension.kind(), how };
            members.serialize_entry(extension.json_name(), &value)?;
        }
        Ok(())
    }

    /// The message within, by the types that are known here.
    fn any<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (url, bytes) = (field(self.message, 1), field(self.message, 2));
        let (url, bytes) =
            (url.as_str().unwrap_or_default(), bytes.as_bytes().map_or(&[][..], |bytes| bytes));
        let mut members = to.serialize_map(None)?;
        if url.is_empty() && bytes.is_empty() {
            return members.end();
        }
        if self.how.anys >= ANYS_MAX {
            return Err(S::Error::custom(format!("more than {ANYS_MAX} Anys within each other")));
        }
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let of = self.message.descriptor().parent_pool().get_message_by_name(name);
        let of =
            of.ok_or_else(|| S::Error::custom(format!("an Any holds {url:?}, which is not known here")))?;
        let own_form = has_own_form(&of);
        let message = DynamicMessage::decode(of, bytes).map_err(S::Error::custom)?;
        let inner = Json { message: &message, how: How { anys: self.how.anys + 1, ..self.how } };
        members.serialize_entry("@type", url)?;
        match own_form {
            true => members.serialize_entry("value", &inner)?,
            false => inner.members(&mut members)?,
        }
        members.end()
    }
}

impl Serialize for Field<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { kind, how, .. } = *self;
        match self.value {
            Value::Bool(value) => to.serialize_bool(*value),
            Value::I32(value) => to.serialize_i32(*value),
            Value::U32(value) => to.serialize_u32(*value),
            Value::I64(value) => to.collect_str(value),
            Value::U64(value) => to.collect_str(value),
            Value::F32(value) if value.is_finite() => to.serialize_f32(*value),
            Value::F32(value) => to.serialize_str(word(f64::from(*value))),
            Value::F64(value) if value.is_finite() => to.serialize_f64(*value),
            Value::F64(value) => to.serialize_str(word(*value)),
            Value::String(value) => to.serialize_str(value),
            Value::Bytes(value) => to.collect_str(&Base64Display::new(value, &BASE64_STANDARD)),
            Value::EnumNumber(number) => match kind.as_enum() {
                Some(of) if of.full_name() == "google.protobuf.NullValue" => to.serialize_none(),
                Some(of) if of.get_value(*number).is_some() => {
                    to.serialize_str(of.get_value(*number).as_ref().map_or("", |value| value.name()))
                }
                _ => to.serialize_i32(*number),
            },
            Value::Message(message) => Json { message, how }.serialize(to),
            Value::List(values) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&Field { value, kind, how })?;
                }
                list.end()
            }
            Value::Map(values) => {
                let kind = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
                let mut map = to.serialize_map(Some(values.len()))?;
                let mut entries: Vec<_> = values.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let kind = kind.as_ref().unwrap_or(self.kind);
                    map.serialize_entry(&key_text(key), &Field { value, kind, how })?;
                }
                map.end()
            }
        }
    }
}

/// The value of a field by number: its default if it is not set.
fn field(message: &DynamicMessage, number: u32) -> Value {
    message.get_field_by_number(number).map_or(Value::Bool(false), std::borrow::Cow::into_owned)
}

/// Seconds and nanoseconds as text.
fn parts<S: Serializer>(
    message: &DynamicMessage,
    to: S,
    text: impl Fn(i64, i32) -> Result<String, String>,
) -> Result<S::Ok, S::Error> {
    let (seconds, nanos) = (field(message, 1), field(message, 2));
    let text = text(seconds.as_i64().unwrap_or_default(), nanos.as_i32().unwrap_or_default());
    to.serialize_str(&text.map_err(S::Error::custom)?)
}

/// What JSON has no number for.
fn word(value: f64) -> &'static str {
    match value {
        _ if value.is_nan() => "NaN",
        _ if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

/// A value that compares equal to the one that stands for absence, and is none.
fn is_negative_zero(value: &Value) -> bool {
    match value {
        Value::F32(value) => *value == 0.0 && value.is_sign_negative(),
        Value::F64(value) => *value == 0.0 && value.is_sign_negative(),
        _ => false,
    }
}

fn key_text(key: &MapKey) -> String {
    let text = |value: &dyn Display| value.to_string();
    match key {
        MapKey::Bool(value) => text(value),
        MapKey::I32(value) => text(value),
        MapKey::I64(value) => text(value),
        MapKey::U32(value) => text(value),
        MapKey::U64(value) => text(value),
        MapKey::String(value) => value.clone(),
    }
}
