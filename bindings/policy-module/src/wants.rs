//! What an instance wants to see of calls.

use trunkline_module_abi as abi;

/// Collects what an instance asks for. At most 16 fields.
#[derive(Debug, Default)]
pub struct Wants {
    pub(crate) fields: Vec<(String, u32, u32)>,
    pub(crate) bits: u32,
}

/// A field that was asked for: its place among the values of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub(crate) usize);

impl Wants {
    /// A text by an expression as in docs/policy.md: `request.tenant`, `metadata.tier`.
    pub fn text(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_TEXT)
    }

    /// Bytes.
    pub fn bytes(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_BYTES)
    }

    /// An integer with a sign, or an enum's number.
    pub fn int(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_INT)
    }

    /// An integer without a sign.
    pub fn uint(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_UINT)
    }

    /// A float or a double.
    pub fn double(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_DOUBLE)
    }

    /// Yes or no.
    pub fn bool(&mut self, expression: &str) -> Field {
        self.field(expression, abi::KIND_BOOL)
    }

    /// Makes the last field optional: where a message's type does not have it, it has no value, and the policy fits all
    /// the same.
    pub fn optional(&mut self) -> &mut Self {
        if let Some((_, _, flags)) = self.fields.last_mut() {
            *flags |= abi::FIELD_OPTIONAL;
        }
        self
    }

    /// The end of calls that pass: [`Policy::finish`](crate::Policy::finish).
    pub fn end(&mut self) -> &mut Self {
        self.bits |= abi::WANTS_END;
        self
    }

    /// The metadata of calls.
    pub fn metadata(&mut self) -> &mut Self {
        self.bits |= abi::WANTS_METADATA;
        self
    }

    fn field(&mut self, expression: &str, kind: u32) -> Field {
        self.fields.push((expression.to_owned(), kind, 0));
        Field(self.fields.len() - 1)
    }
}
