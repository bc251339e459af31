//! Message fields by their Rust types: what generated code would otherwise say in three calls.

use crate::block::Block;
use crate::extent::Extent;
use crate::message::Message;
use crate::place::FieldAt;
use crate::view::View;

impl<'b, E: Extent> Block<'b, E> {
    /// The builder of a message field: of the message it has, or of a new, empty one.
    pub fn child<M: Message>(&mut self, field: FieldAt) -> M::Builder<'_, E> {
        self.message(field, M::BLOCK_BYTES).into()
    }

    /// As [`Block::child`], for as long as this block was lent.
    pub fn into_child<M: Message>(self, field: FieldAt) -> M::Builder<'b, E> {
        self.into_message(field, M::BLOCK_BYTES).into()
    }

    /// Sets a message field to a copy of `value`; replaces a message set before.
    pub fn set_message<M: Message>(&mut self, field: FieldAt, value: &M) {
        if self.has(field) {
            self.clear(field);
        }
        value.write(self.message(field, M::BLOCK_BYTES));
    }

    /// Appends copies of `values` to a repeated message field.
    pub fn extend_messages<M: Message>(&mut self, field: FieldAt, values: &[M]) {
        let mut list = self.messages::<M>(field);
        list.reserve(values.len());
        values.iter().for_each(|value| list.push_owned(value));
    }
}

impl<'a> View<'a> {
    /// A copy of a message field, if present.
    pub fn read<M: Message>(self, field: FieldAt) -> Option<M> {
        self.message(field).map(|view| M::read(view.into()))
    }

    /// A boxed copy of a message field, if present. The message never lies in the caller's frame, which may have
    /// room for one of it and not for one per field.
    pub fn read_boxed<M: Message>(self, field: FieldAt) -> Option<Box<M>> {
        self.message(field).map(|view| Box::new(M::read(view.into())))
    }

    /// Copies of a repeated message field.
    pub fn read_all<M: Message>(self, field: FieldAt) -> Vec<M> {
        self.list::<View<'a>>(field).iter().map(|view| M::read(view.into())).collect()
    }
}
