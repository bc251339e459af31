//! Field values of types known at run time only.

use trunkline_schema::{Field, Kind, Schema};

use crate::list::{Element, List};
use crate::place::FieldAt;
use crate::view::View;

use super::view::DynamicView;

/// A field's value.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "one variant per value type")]
pub enum Value<'a> {
    Bool(bool),
    I32(i32),
    U32(u32),
    F32(f32),
    I64(i64),
    U64(u64),
    F64(f64),
    /// An enum's number, declared or not.
    Enum(i32),
    /// A string's bytes: UTF-8 in a verified message if the schema demands it, else not necessarily.
    String(&'a [u8]),
    Bytes(&'a [u8]),
    Message(DynamicView<'a>),
    /// A repeated field; a map as a list of its entries.
    List(DynamicList<'a>),
}

impl<'a> Value<'a> {
    /// Reads a singular field that is present.
    pub(super) fn singular(schema: &'a Schema, field: &Field, view: View<'a>) -> Self {
        let at = FieldAt::from(field);
        match field.kind {
            Kind::Bool => Self::Bool(view.bool(at)),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Self::I32(view.i32(at)),
            Kind::Uint32 | Kind::Fixed32 => Self::U32(view.u32(at)),
            Kind::Float => Self::F32(view.f32(at)),
            Kind::Enum => Self::Enum(view.i32(at)),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Self::I64(view.i64(at)),
            Kind::Uint64 | Kind::Fixed64 => Self::U64(view.u64(at)),
            Kind::Double => Self::F64(view.f64(at)),
            Kind::String => Self::String(view.bytes(at)),
            Kind::Bytes => Self::Bytes(view.bytes(at)),
            Kind::Message => Self::Message(DynamicView::of_field(schema, field, view.message(at))),
        }
    }
}

impl<'a> DynamicView<'a> {
    /// A field's value; `None` if it is absent. The field must be one of [`DynamicView::descriptor`].
    pub fn value(self, field: &'a Field) -> Option<Value<'a>> {
        if !self.has(field) {
            return None;
        }
        Some(match field.is_repeated() {
            true => Value::List(DynamicList::new(self.schema, field, self.view)),
            false => Value::singular(self.schema, field, self.view),
        })
    }

    /// A field's value by its name; `None` if it is absent or there is no such field.
    pub fn value_named(self, name: &str) -> Option<Value<'a>> {
        self.value(self.message.field_named(name)?)
    }

    /// The fields that are present, ascending by number.
    pub fn fields(self) -> impl Iterator<Item = (&'a Field, Value<'a>)> {
        self.message.fields.iter().filter_map(move |field| Some((field, self.value(field)?)))
    }
}

/// Names and values of the fields that are present.
impl std::fmt::Debug for DynamicView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct(&self.message.full_name);
        for (field, value) in self.fields() {
            shown.field(&field.name, &value);
        }
        shown.finish()
    }
}

/// A repeated field's elements.
#[derive(Clone, Copy)]
pub struct DynamicList<'a> {
    schema: &'a Schema,
    field: &'a Field,
    view: View<'a>,
}

impl<'a> DynamicList<'a> {
    pub(super) fn new(schema: &'a Schema, field: &'a Field, view: View<'a>) -> Self {
        Self { schema, field, view }
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        let at = FieldAt::from(self.field);
        match self.field.kind {
            Kind::Bool => self.list::<bool>().len(),
            Kind::String | Kind::Bytes => self.list::<&[u8]>().len(),
            Kind::Message => self.list::<View<'_>>().len(),
            kind if kind.size_bytes() == 4 => self.view.u32s(at).len(),
            _ => self.view.u64s(at).len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub fn get(self, index: usize) -> Option<Value<'a>> {
        let (at, view) = (FieldAt::from(self.field), self.view);
        Some(match self.field.kind {
            Kind::Bool => Value::Bool(self.list().get(index)?),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(*view.i32s(at).get(index)?),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(*view.u32s(at).get(index)?),
            Kind::Float => Value::F32(*view.f32s(at).get(index)?),
            Kind::Enum => Value::Enum(*view.i32s(at).get(index)?),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(*view.i64s(at).get(index)?),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(*view.u64s(at).get(index)?),
            Kind::Double => Value::F64(*view.f64s(at).get(index)?),
            Kind::String => Value::String(self.list().get(index)?),
            Kind::Bytes => Value::Bytes(self.list().get(index)?),
            Kind::Message => Value::Message(DynamicView::of_field(
                self.schema,
                self.field,
                self.list::<View<'_>>().get(index),
            )),
        })
    }

    /// The elements in order.
    pub fn iter(self) -> impl Iterator<Item = Value<'a>> {
        (0..self.len()).filter_map(move |index| self.get(index))
    }

    fn list<T: Element<'a>>(self) -> List<'a, T> {
        self.view.list(FieldAt::from(self.field))
    }
}

impl std::fmt::Debug for DynamicList<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
