//! Reading a message by its descriptor.

use trunkline_schema::{Field, Message, MessageIndex, Schema};

use crate::place::FieldAt;
use crate::view::View;

/// A message and its type.
///
/// ```
/// use trunkline_message::{AlignedBuf, DynamicBuilder, DynamicView, Value};
/// use trunkline_schema::Schema;
///
/// let text = r#"syntax = "proto3"; message Point { int32 x = 1; int32 y = 2; }"#;
/// let schema = Schema::from_proto_source("a.proto", text)?;
/// let point = schema.message_named("Point").unwrap();
/// let built = DynamicBuilder::build(&schema, point, AlignedBuf::new(), |b| b.set_named("y", Value::I32(7)))?;
/// let view = DynamicView::root(&schema, point, built.bytes());
/// assert!(view.value_named("x").is_none());
/// assert!(matches!(view.value_named("y"), Some(Value::I32(7))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct DynamicView<'a> {
    pub(super) schema: &'a Schema,
    pub(super) message: &'a Message,
    pub(super) view: View<'a>,
}

impl<'a> DynamicView<'a> {
    /// The root message of an extent.
    ///
    /// # Panics
    /// If the index is not one of the schema's.
    pub fn root(schema: &'a Schema, message: MessageIndex, extent: &'a [u8]) -> Self {
        Self { schema, message: schema.message(message), view: View::root(extent) }
    }

    /// The message a field of message type refers to.
    pub(super) fn of_field(schema: &'a Schema, field: &Field, view: Option<View<'a>>) -> Self {
        // Only message fields get here, and theirs is an index of this schema.
        let message = schema.message(field.message.unwrap_or(MessageIndex(0)));
        Self { schema, message, view: view.unwrap_or_default() }
    }

    /// The message's type.
    pub fn descriptor(self) -> &'a Message {
        self.message
    }

    /// The message without its type.
    pub fn view(self) -> View<'a> {
        self.view
    }

    /// Whether the field is present.
    pub fn has(self, field: &Field) -> bool {
        self.view.has(FieldAt::from(field))
    }

    /// The unknown fields, in wire form.
    pub fn unknown(self) -> &'a [u8] {
        self.view.unknown()
    }
}
