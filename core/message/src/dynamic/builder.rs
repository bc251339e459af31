//! Building a message by its descriptor.

use trunkline_schema::{Field, Kind, Message, MessageIndex, Schema};

use crate::block::Block;
use crate::builder::{BuildError, Builder, Built};
use crate::extent::Extent;
use crate::place::{FieldAt, OneofAt};

use super::value::Value;
use super::view::DynamicView;

/// One message within a [`Builder`], and its type.
///
/// Members of a oneof displace one another, as protobuf's do.
#[derive(Debug)]
pub struct DynamicBuilder<'b, E> {
    schema: &'b Schema,
    message: &'b Message,
    block: Block<'b, E>,
}

/// A value that does not fit its field, or a field that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MismatchError {
    /// The message has no field of this name.
    #[error("{message} has no field {field:?}")]
    NoSuchField {
        /// The message's full name.
        message: String,
        /// The name asked for.
        field: String,
    },
    /// The field has another type or cardinality.
    #[error("{message}.{field} does not take a value of this type")]
    Type {
        /// The message's full name.
        message: String,
        /// The field's name.
        field: String,
    },
    /// The message could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl<'b, E: Extent> DynamicBuilder<'b, E> {
    /// Builds a message in an extent.
    ///
    /// # Errors
    /// What `fill` returns, or [`MismatchError::Build`].
    ///
    /// # Panics
    /// If the index is not one of the schema's.
    pub fn build(
        schema: &Schema,
        message: MessageIndex,
        extent: E,
        fill: impl FnOnce(&mut DynamicBuilder<'_, E>) -> Result<(), MismatchError>,
    ) -> Result<Built<E>, MismatchError> {
        let descriptor = schema.message(message);
        let mut builder = Builder::new(extent, descriptor.layout.block_bytes);
        fill(&mut DynamicBuilder { schema, message: descriptor, block: builder.root() })?;
        Ok(builder.finish(schema.fingerprint(message))?)
    }

    /// The message's type.
    pub fn descriptor(&self) -> &'b Message {
        self.message
    }

    /// Sets a field: a singular one to a value (messages are copied deeply), a repeated one to a list.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the value does not fit the field.
    pub fn set(&mut self, field: &Field, value: Value<'_>) -> Result<(), MismatchError> {
        match value {
            Value::List(list) if field.is_repeated() => {
                self.clear(field);
                self.reserve(field, list.len())?;
                list.iter().try_for_each(|element| self.push(field, element))
            }
            Value::Message(view) if self.takes_message(field, view) && !field.is_repeated() => {
                self.clear(field);
                self.message_builder(field).copy_from(view)
            }
            _ if field.is_repeated() => Err(self.mismatch(field)),
            _ => {
                self.switch(field);
                self.set_scalar(field, value)
            }
        }
    }

    /// [`DynamicBuilder::set`] by name.
    ///
    /// # Errors
    /// [`MismatchError`].
    pub fn set_named(&mut self, name: &str, value: Value<'_>) -> Result<(), MismatchError> {
        self.set(self.named(name)?, value)
    }

    /// A singular message field: the message it has, or a new one.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the field is not a singular message.
    pub fn message(&mut self, field: &Field) -> Result<DynamicBuilder<'_, E>, MismatchError> {
        match field.kind {
            Kind::Message if !field.is_repeated() => Ok(self.message_builder(field)),
            _ => Err(self.mismatch(field)),
        }
    }

    /// Appends to a repeated field; messages are copied deeply.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the field is not repeated or the value does not fit it.
    pub fn push(&mut self, field: &Field, value: Value<'_>) -> Result<(), MismatchError> {
        let at = FieldAt::from(field);
        match (field.kind, value) {
            _ if !field.is_repeated() => return Err(self.mismatch(field)),
            (Kind::Message, Value::Message(view)) if self.takes_message(field, view) => {
                return self.push_message(field)?.copy_from(view);
            }
            (Kind::Bool, Value::Bool(v)) => self.block.list::<bool>(at).push(v),
            (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, Value::I32(v)) => {
                self.block.list::<i32>(at).push(v)
            }
            (Kind::Enum, Value::Enum(v)) => self.block.list::<i32>(at).push(v),
            (Kind::Uint32 | Kind::Fixed32, Value::U32(v)) => self.block.list::<u32>(at).push(v),
            (Kind::Float, Value::F32(v)) => self.block.list::<f32>(at).push(v),
            (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, Value::I64(v)) => {
                self.block.list::<i64>(at).push(v)
            }
            (Kind::Uint64 | Kind::Fixed64, Value::U64(v)) => self.block.list::<u64>(at).push(v),
            (Kind::Double, Value::F64(v)) => self.block.list::<f64>(at).push(v),
            (Kind::String, Value::String(v)) | (Kind::Bytes, Value::Bytes(v)) => {
                self.block.list::<[u8]>(at).push(v);
            }
            _ => return Err(self.mismatch(field)),
        }
        Ok(())
    }

    /// Appends an empty message to a repeated message field.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the field is not a repeated message or a map.
    pub fn push_message(&mut self, field: &Field) -> Result<DynamicBuilder<'_, E>, MismatchError> {
        let Some(index) = field.message.filter(|_| field.is_repeated()) else {
            return Err(self.mismatch(field));
        };
        let (schema, message) = (self.schema, self.schema.message(index));
        let block = self.block.push_block(FieldAt::from(field), message.layout.block_bytes);
        Ok(DynamicBuilder { schema, message, block })
    }

    /// Makes room for as many more elements of a repeated field at once.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the field is not repeated.
    pub fn reserve(&mut self, field: &Field, elements: usize) -> Result<(), MismatchError> {
        let at = FieldAt::from(field);
        match (field.kind, field.kind.size_bytes()) {
            _ if !field.is_repeated() => return Err(self.mismatch(field)),
            (Kind::String | Kind::Bytes, _) => self.block.list::<[u8]>(at).reserve(elements),
            (_, 1) => self.block.list::<bool>(at).reserve(elements),
            (_, 4) => self.block.list::<u32>(at).reserve(elements),
            _ => self.block.list::<u64>(at).reserve(elements),
        }
        Ok(())
    }

    /// Makes a field absent.
    pub fn clear(&mut self, field: &Field) {
        self.block.clear(FieldAt::from(field));
    }

    /// Sets the unknown fields, in wire form: those that the type does not declare, as by [`Block::set_unknown`].
    pub fn set_unknown(&mut self, wire: &[u8]) {
        self.block.set_unknown(wire);
    }

    /// Copies all fields of a message of the same type, unknown ones included. Copies what the view reaches: for a
    /// view that was not verified that may be more than its extent holds.
    ///
    /// # Errors
    /// [`MismatchError::Type`] if the view is of another type.
    pub fn copy_from(&mut self, view: DynamicView<'_>) -> Result<(), MismatchError> {
        for (field, value) in view.fields() {
            let own = self.message.field(field.number);
            self.set(own.ok_or_else(|| self.mismatch(field))?, value)?;
        }
        if !view.unknown().is_empty() {
            self.set_unknown(view.unknown());
        }
        Ok(())
    }

    /// The field with a name.
    ///
    /// # Errors
    /// [`MismatchError::NoSuchField`].
    pub fn named(&self, name: &str) -> Result<&'b Field, MismatchError> {
        self.message.field_named(name).ok_or_else(|| MismatchError::NoSuchField {
            message: self.message.full_name.clone(),
            field: name.to_owned(),
        })
    }

    fn set_scalar(&mut self, field: &Field, value: Value<'_>) -> Result<(), MismatchError> {
        let (at, block) = (FieldAt::from(field), &mut self.block);
        match (field.kind, value) {
            (Kind::Bool, Value::Bool(v)) => block.set_bool(at, v),
            (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, Value::I32(v)) => block.set_i32(at, v),
            (Kind::Enum, Value::Enum(v)) => block.set_i32(at, v),
            (Kind::Uint32 | Kind::Fixed32, Value::U32(v)) => block.set_u32(at, v),
            (Kind::Float, Value::F32(v)) => block.set_f32(at, v),
            (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, Value::I64(v)) => block.set_i64(at, v),
            (Kind::Uint64 | Kind::Fixed64, Value::U64(v)) => block.set_u64(at, v),
            (Kind::Double, Value::F64(v)) => block.set_f64(at, v),
            (Kind::String, Value::String(v)) | (Kind::Bytes, Value::Bytes(v)) => block.set_bytes(at, v),
            _ => return Err(self.mismatch(field)),
        }
        Ok(())
    }

    fn message_builder(&mut self, field: &Field) -> DynamicBuilder<'_, E> {
        self.switch(field);
        let (schema, message) = (self.schema, self.schema.message(field.message.unwrap_or(MessageIndex(0))));
        let block = self.block.message(FieldAt::from(field), message.layout.block_bytes);
        DynamicBuilder { schema, message, block }
    }

    /// Displaces the other members of the field's oneof.
    fn switch(&mut self, field: &Field) {
        if let Some(oneof) = field.oneof.and_then(|i| self.message.oneofs.get(usize::from(i))) {
            self.block.switch(OneofAt::from(oneof), FieldAt::from(field));
        }
    }

    fn takes_message(&self, field: &Field, view: DynamicView<'_>) -> bool {
        let own = field.message.map(|index| self.schema.message(index));
        own.is_some_and(|own| own.full_name == view.descriptor().full_name)
    }

    fn mismatch(&self, field: &Field) -> MismatchError {
        MismatchError::Type { message: self.message.full_name.clone(), field: field.name.clone() }
    }
}
