//! Descriptors written field by field: prost-types knows no editions, and no generator writes broken ones.

/// Bytes of protobuf fields, in the order written.
#[derive(Clone, Default)]
pub struct Wire(pub Vec<u8>);

impl Wire {
    pub fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn message(self, field: u32, message: Wire) -> Self {
        self.bytes(field, &message.0)
    }

    pub fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// A set of one file.
pub fn set(file: Wire) -> Vec<u8> {
    Wire::default().message(1, file).0
}

/// A file in proto2 with nothing in it.
pub fn file(name: &str) -> Wire {
    Wire::default().text(1, name)
}

/// `FieldDescriptorProto` of an optional field; `kind` is `FieldDescriptorProto.Type`.
pub fn field(name: &str, number: u64, kind: u64) -> Wire {
    Wire::default().text(1, name).number(3, number).number(4, 1).number(5, kind)
}

/// A message with these fields.
pub fn message(name: &str, fields: impl IntoIterator<Item = Wire>) -> Wire {
    fields.into_iter().fold(Wire::default().text(1, name), |message, field| message.message(2, field))
}
