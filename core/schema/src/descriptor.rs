//! `descriptor.proto` as it lies in the bytes: the few fields this room needs, borrowed, bounded, unresolved.
//!
//! Field numbers are those of `google/protobuf/descriptor.proto`. A generated reader (prost's) would own every
//! string, know nothing of editions' features and turn a two-byte empty message into hundreds of bytes; this one
//! counts what it meets against the limits while it reads.

use crate::error::{Place, SchemaError};
use crate::features::FeatureSettings;
use crate::limits::{
    DESCRIPTOR_SET_BYTES_MAX, ENUM_VALUES_MAX, FIELDS_MAX, FIELDS_PER_MESSAGE_MAX, FILES_MAX, MESSAGES_MAX,
    METHODS_MAX, NESTING_MAX,
};
use crate::wire::{Fields, Malformed, Value};

#[derive(Debug, Default)]
pub(crate) struct FileProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) package: &'a str,
    pub(crate) syntax: &'a str,
    /// `Edition`; 0 if the file states none.
    pub(crate) edition: i32,
    pub(crate) messages: Vec<MessageProto<'a>>,
    pub(crate) enums: Vec<EnumProto<'a>>,
    pub(crate) services: Vec<ServiceProto<'a>>,
    pub(crate) features: FeatureSettings,
}

#[derive(Debug, Default)]
pub(crate) struct MessageProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) fields: Vec<FieldProto<'a>>,
    pub(crate) messages: Vec<MessageProto<'a>>,
    pub(crate) enums: Vec<EnumProto<'a>>,
    pub(crate) oneofs: Vec<OneofProto<'a>>,
    pub(crate) map_entry: bool,
    pub(crate) features: FeatureSettings,
}

#[derive(Debug, Default)]
pub(crate) struct FieldProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) number: i32,
    pub(crate) label: i32,
    pub(crate) kind: i32,
    pub(crate) type_name: &'a str,
    pub(crate) default: Option<&'a str>,
    pub(crate) oneof: Option<i32>,
    pub(crate) json_name: Option<&'a str>,
    pub(crate) proto3_optional: bool,
    pub(crate) packed: Option<bool>,
    pub(crate) features: FeatureSettings,
}

#[derive(Debug, Default)]
pub(crate) struct OneofProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) features: FeatureSettings,
}

#[derive(Debug, Default)]
pub(crate) struct EnumProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<(&'a str, i32)>,
    pub(crate) features: FeatureSettings,
}

#[derive(Debug, Default)]
pub(crate) struct ServiceProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) methods: Vec<MethodProto<'a>>,
}

#[derive(Debug, Default)]
pub(crate) struct MethodProto<'a> {
    pub(crate) name: &'a str,
    pub(crate) input: &'a str,
    pub(crate) output: &'a str,
    pub(crate) client_streaming: bool,
    pub(crate) server_streaming: bool,
    pub(crate) idempotency: i32,
}

/// Reads an encoded `FileDescriptorSet`.
pub(crate) fn read_set(bytes: &[u8]) -> Result<Vec<FileProto<'_>>, SchemaError> {
    let mut reader = Reader::default();
    reader.within("descriptor set bytes", bytes.len(), DESCRIPTOR_SET_BYTES_MAX)?;
    let mut files = Vec::new();
    for field in Fields::new(bytes) {
        match field.map_err(|e| reader.malformed(e))? {
            (1, value) => {
                let file = value.message().map_err(|e| reader.malformed(e))?;
                reader.within("files", files.len() + 1, FILES_MAX)?;
                files.push(reader.file(file)?);
            }
            _ => continue,
        }
    }
    Ok(files)
}

/// Counts of what was read so far, and the place for an error message.
#[derive(Default)]
struct Reader {
    place: Place,
    messages: usize,
    fields: usize,
    enum_values: usize,
    methods: usize,
}

/// Reads the fields of one message: `$arm`s on `(number, value)`, errors with the reader's place.
macro_rules! read {
    ($self:ident, $bytes:expr, { $($number:literal, $value:ident => $body:expr,)* }) => {
        for field in Fields::new($bytes) {
            match field.map_err(|e| $self.malformed(e))? {
                $(($number, $value) => { $body; })*
                _ => {}
            }
        }
    };
}

impl Reader {
    fn file<'a>(&mut self, bytes: &'a [u8]) -> Result<FileProto<'a>, SchemaError> {
        let mut file = FileProto::default();
        self.place = Place::default();
        read!(self, bytes, {
            1, v => { file.name = self.text(v)?; self.place.file = file.name.to_owned() },
            2, v => file.package = self.text(v)?,
            4, v => { let m = self.bytes(v)?; file.messages.push(self.message(m, 1)?) },
            5, v => { let e = self.bytes(v)?; file.enums.push(self.enumeration(e)?) },
            6, v => { let s = self.bytes(v)?; file.services.push(self.service(s)?) },
            8, v => { let o = self.bytes(v)?; self.features(o, 50, &mut file.features)? },
            12, v => file.syntax = self.text(v)?,
            14, v => file.edition = self.number(v)?,
        });
        Ok(file)
    }

    fn message<'a>(&mut self, bytes: &'a [u8], depth: usize) -> Result<MessageProto<'a>, SchemaError> {
        let mut message = MessageProto::default();
        self.within("nested declarations", depth, NESTING_MAX)?;
        self.messages += 1;
        self.within("messages", self.messages, MESSAGES_MAX)?;
        read!(self, bytes, {
            1, v => { message.name = self.text(v)?; self.place.owner = message.name.to_owned() },
            2, v => { let f = self.bytes(v)?; message.fields.push(self.field(f)?) },
            3, v => { let m = self.bytes(v)?; message.messages.push(self.message(m, depth + 1)?) },
            4, v => { let e = self.bytes(v)?; message.enums.push(self.enumeration(e)?) },
            7, v => { let o = self.bytes(v)?; self.message_options(o, &mut message)? },
            8, v => { let o = self.bytes(v)?; message.oneofs.push(self.oneof(o)?) },
        });
        self.within("fields of one message", message.fields.len(), FIELDS_PER_MESSAGE_MAX)?;
        Ok(message)
    }

    fn message_options(&mut self, bytes: &[u8], message: &mut MessageProto<'_>) -> Result<(), SchemaError> {
        read!(self, bytes, {
            7, v => message.map_entry = self.number(v)? != 0,
        });
        self.features(bytes, 12, &mut message.features)
    }

    fn field<'a>(&mut self, bytes: &'a [u8]) -> Result<FieldProto<'a>, SchemaError> {
        let mut field = FieldProto::default();
        self.fields += 1;
        self.within("fields", self.fields, FIELDS_MAX)?;
        read!(self, bytes, {
            1, v => field.name = self.text(v)?,
            3, v => field.number = self.number(v)?,
            4, v => field.label = self.number(v)?,
            5, v => field.kind = self.number(v)?,
            6, v => field.type_name = self.text(v)?,
            7, v => field.default = Some(self.text(v)?),
            8, v => { let o = self.bytes(v)?; self.field_options(o, &mut field)? },
            9, v => field.oneof = Some(self.number(v)?),
            10, v => field.json_name = Some(self.text(v)?),
            17, v => field.proto3_optional = self.number(v)? != 0,
        });
        Ok(field)
    }

    fn field_options(&mut self, bytes: &[u8], field: &mut FieldProto<'_>) -> Result<(), SchemaError> {
        read!(self, bytes, {
            2, v => field.packed = Some(self.number(v)? != 0),
        });
        self.features(bytes, 21, &mut field.features)
    }

    fn oneof<'a>(&mut self, bytes: &'a [u8]) -> Result<OneofProto<'a>, SchemaError> {
        let mut oneof = OneofProto::default();
        self.fields += 1; // a oneof costs what a field costs
        self.within("fields", self.fields, FIELDS_MAX)?;
        read!(self, bytes, {
            1, v => oneof.name = self.text(v)?,
            2, v => { let o = self.bytes(v)?; self.features(o, 1, &mut oneof.features)? },
        });
        Ok(oneof)
    }

    fn enumeration<'a>(&mut self, bytes: &'a [u8]) -> Result<EnumProto<'a>, SchemaError> {
        let mut enumeration = EnumProto::default();
        self.enum_values += 1;
        self.within("enum values", self.enum_values, ENUM_VALUES_MAX)?;
        read!(self, bytes, {
            1, v => enumeration.name = self.text(v)?,
            2, v => { let e = self.bytes(v)?; enumeration.values.push(self.enum_value(e)?) },
            3, v => { let o = self.bytes(v)?; self.features(o, 7, &mut enumeration.features)? },
        });
        Ok(enumeration)
    }

    fn enum_value<'a>(&mut self, bytes: &'a [u8]) -> Result<(&'a str, i32), SchemaError> {
        let mut value = ("", 0);
        self.enum_values += 1;
        self.within("enum values", self.enum_values, ENUM_VALUES_MAX)?;
        read!(self, bytes, {
            1, v => value.0 = self.text(v)?,
            2, v => value.1 = self.number(v)?,
        });
        Ok(value)
    }

    fn service<'a>(&mut self, bytes: &'a [u8]) -> Result<ServiceProto<'a>, SchemaError> {
        let mut service = ServiceProto::default();
        self.methods += 1;
        self.within("services and methods", self.methods, METHODS_MAX)?;
        read!(self, bytes, {
            1, v => { service.name = self.text(v)?; self.place.owner = service.name.to_owned() },
            2, v => { let m = self.bytes(v)?; service.methods.push(self.method(m)?) },
        });
        Ok(service)
    }

    fn method<'a>(&mut self, bytes: &'a [u8]) -> Result<MethodProto<'a>, SchemaError> {
        let mut method = MethodProto::default();
        self.methods += 1;
        self.within("services and methods", self.methods, METHODS_MAX)?;
        read!(self, bytes, {
            1, v => method.name = self.text(v)?,
            2, v => method.input = self.text(v)?,
            3, v => method.output = self.text(v)?,
            4, v => { let o = self.bytes(v)?; self.method_options(o, &mut method)? },
            5, v => method.client_streaming = self.flag(v)?,
            6, v => method.server_streaming = self.flag(v)?,
        });
        Ok(method)
    }

    fn method_options(&mut self, bytes: &[u8], method: &mut MethodProto<'_>) -> Result<(), SchemaError> {
        read!(self, bytes, {
            34, v => method.idempotency = self.number(v)?,
        });
        Ok(())
    }

    /// Reads the `features` of an options message, in which they have the given number.
    fn features(&self, options: &[u8], number: u32, into: &mut FeatureSettings) -> Result<(), SchemaError> {
        for field in Fields::new(options) {
            let (found, value) = field.map_err(|e| self.malformed(e))?;
            if found == number {
                into.merge(self.bytes(value)?).map_err(|e| self.malformed(e))?;
            }
        }
        Ok(())
    }

    fn text<'a>(&self, value: Value<'a>) -> Result<&'a str, SchemaError> {
        value.text().map_err(|e| self.malformed(e))
    }

    fn bytes<'a>(&self, value: Value<'a>) -> Result<&'a [u8], SchemaError> {
        value.message().map_err(|e| self.malformed(e))
    }

    fn number(&self, value: Value<'_>) -> Result<i32, SchemaError> {
        value.int32().map_err(|e| self.malformed(e))
    }

    fn flag(&self, value: Value<'_>) -> Result<bool, SchemaError> {
        value.bool().map_err(|e| self.malformed(e))
    }

    fn within(&self, what: &'static str, count: usize, limit: usize) -> Result<(), SchemaError> {
        if count <= limit {
            Ok(())
        } else {
            Err(SchemaError::Limit { place: self.place.clone(), what, limit })
        }
    }

    fn malformed(&self, reason: Malformed) -> SchemaError {
        SchemaError::Malformed { place: self.place.clone(), reason }
    }
}
