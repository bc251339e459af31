//! Descriptor set and schema to model.

use std::collections::BTreeMap;

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, ServiceDescriptorProto,
};
use trunkline_schema::{Cardinality, Kind, MessageIndex, Schema};

use super::comments::Comments;
use super::cycles::{Cycles, Holdings};
use super::strip::Files;
use super::{
    DefaultValue, Enum, EnumValue, Field, Layout, MapEntry, Message, Method, Model, Notes, Oneof, Package,
    Service, Shape, Type, TypeOrigin, TypeTable,
};
use crate::CodegenError;

/// Field numbers of descriptor.proto, of which the paths of source positions are made.
mod number {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_SERVICE: i32 = 6;
    pub(super) const MESSAGE_FIELD: i32 = 2;
    pub(super) const MESSAGE_NESTED: i32 = 3;
    pub(super) const MESSAGE_ENUM: i32 = 4;
    pub(super) const MESSAGE_ONEOF: i32 = 8;
    pub(super) const ENUM_VALUE: i32 = 2;
    pub(super) const SERVICE_METHOD: i32 = 2;
}

/// See [`Model::read`].
pub(super) fn model(set: &[u8], wanted: &[String]) -> Result<Model, CodegenError> {
    let schema = Schema::from_descriptor_set(set)?;
    let (files, decoded) = Files::split(set)?;
    for name in wanted {
        if !decoded.iter().any(|file| file.name() == name) {
            return Err(CodegenError::NoSuchFile(name.clone()));
        }
    }
    let types = type_table(&decoded, &schema);
    let cycles = holdings(&schema).cycles();
    let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
    for file in decoded.iter().filter(|file| wanted.is_empty() || wanted.iter().any(|w| w == file.name())) {
        let package = packages.entry(file.package()).or_insert_with(|| empty(file.package()));
        let comments = Comments::of(file.source_code_info.as_ref());
        FileReader { schema: &schema, cycles: &cycles, comments }.read(file, package)?;
    }
    let mut packages: Vec<Package> = packages.into_values().collect();
    for package in &mut packages {
        package.descriptor_set = files.closure(&package.files);
    }
    Ok(Model { packages, types })
}

fn empty(name: &str) -> Package {
    Package {
        name: name.to_owned(),
        files: Vec::new(),
        messages: Vec::new(),
        enums: Vec::new(),
        services: Vec::new(),
        descriptor_set: Vec::new(),
    }
}

/// What is needed to read one file.
struct FileReader<'a> {
    schema: &'a Schema,
    cycles: &'a Cycles,
    comments: Comments,
}

impl FileReader<'_> {
    fn read(&self, file: &FileDescriptorProto, package: &mut Package) -> Result<(), CodegenError> {
        package.files.push(file.name().to_owned());
        for (message, path) in each(&file.message_type, &[], number::FILE_MESSAGE) {
            package.messages.push(self.message(message, file.package(), &path)?);
        }
        for (enumeration, path) in each(&file.enum_type, &[], number::FILE_ENUM) {
            package.enums.push(self.enumeration(enumeration, file.package(), &path)?);
        }
        for (service, path) in each(&file.service, &[], number::FILE_SERVICE) {
            package.services.push(self.service(service, file, &path)?);
        }
        Ok(())
    }

    fn message(&self, from: &DescriptorProto, scope: &str, path: &[i32]) -> Result<Message, CodegenError> {
        let full_name = joined(scope, from.name());
        let index = self.index(&full_name)?;
        let resolved = self.schema.message(index);
        let mut message = Message {
            name: from.name().to_owned(),
            notes: self.notes(path, from.options.as_ref().is_some_and(|o| o.deprecated())),
            fields: Vec::with_capacity(from.field.len()),
            oneofs: self.oneofs(from, resolved, path),
            messages: Vec::new(),
            enums: Vec::new(),
            layout: self.layout(index),
            full_name,
        };
        for (field, path) in each(&from.field, path, number::MESSAGE_FIELD) {
            let read = self.field(field, resolved, &path)?;
            if let Some(oneof) = read.oneof.and_then(|oneof| message.oneofs.get_mut(oneof)) {
                oneof.fields.push(message.fields.len());
            }
            message.fields.push(read);
        }
        for (nested, path) in each(&from.nested_type, path, number::MESSAGE_NESTED) {
            if !nested.options.as_ref().is_some_and(|o| o.map_entry()) {
                message.messages.push(self.message(nested, &message.full_name, &path)?);
            }
        }
        for (nested, path) in each(&from.enum_type, path, number::MESSAGE_ENUM) {
            message.enums.push(self.enumeration(nested, &message.full_name, &path)?);
        }
        Ok(message)
    }

    /// The oneofs the schema calls real, in its order, with the comments found at their place in the descriptor.
    fn oneofs(&self, from: &DescriptorProto, to: &trunkline_schema::Message, path: &[i32]) -> Vec<Oneof> {
        let comment_of = |name: &str| {
            let at = each(&from.oneof_decl, path, number::MESSAGE_ONEOF).find(|(o, _)| o.name() == name);
            at.map(|(_, path)| self.notes(&path, false)).unwrap_or_default()
        };
        let oneof = |o: &trunkline_schema::Oneof| Oneof {
            name: o.name.clone(),
            notes: comment_of(&o.name),
            fields: Vec::new(),
            slot: o.slot,
            slot_bytes: o.slot_bytes,
        };
        to.oneofs.iter().map(oneof).collect()
    }

    fn field(
        &self,
        from: &FieldDescriptorProto,
        owner: &trunkline_schema::Message,
        path: &[i32],
    ) -> Result<Field, CodegenError> {
        let mismatch = || CodegenError::Mismatch(joined(&owner.full_name, from.name()));
        let number = u32::try_from(from.number()).map_err(|_| mismatch())?;
        let field = owner.field(number).ok_or_else(mismatch)?;
        let held = field.message.map(|index| self.schema.message(index).full_name.as_str());
        Ok(Field {
            name: from.name().to_owned(),
            number,
            notes: self.notes(path, from.options.as_ref().is_some_and(|o| o.deprecated())),
            shape: self.shape(field).ok_or_else(mismatch)?,
            slot: field.slot,
            bit: field.presence_bit,
            default: self.default_value(field),
            oneof: field.oneof.map(usize::from),
            closes_cycle: !field.is_repeated()
                && held.is_some_and(|h| self.cycles.closes(&owner.full_name, h)),
        })
    }

    fn shape(&self, field: &trunkline_schema::Field) -> Option<Shape> {
        if field.is_map {
            return self.map_entry(field.message?).map(|entry| Shape::Map(Box::new(entry)));
        }
        let value = self.value_type(field)?;
        Some(match field.cardinality {
            Cardinality::Implicit => Shape::Implicit(value),
            Cardinality::Optional => Shape::Optional(value),
            Cardinality::Required => Shape::Required(value),
            Cardinality::Repeated => Shape::Repeated(value),
        })
    }

    fn map_entry(&self, index: MessageIndex) -> Option<MapEntry> {
        let entry = self.schema.message(index);
        let (key, value) = (entry.field(1)?, entry.field(2)?);
        Some(MapEntry {
            key: self.value_type(key)?,
            value: self.value_type(value)?,
            layout: self.layout(index),
            key_at: (key.slot, key.presence_bit),
            value_at: (value.slot, value.presence_bit),
            value_default: self.default_value(value),
        })
    }

    /// What stands for a value that is absent, where that is not the zero of its type.
    fn default_value(&self, field: &trunkline_schema::Field) -> Option<DefaultValue> {
        let first = field.enumeration.map(|index| self.schema.enumeration(index).default_number());
        let first = first.filter(|&number| number != 0 && !field.is_repeated());
        field.default.clone().or(first.map(DefaultValue::Enum))
    }

    fn value_type(&self, field: &trunkline_schema::Field) -> Option<Type> {
        Some(match field.kind {
            Kind::Bool => Type::Bool,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Type::I32,
            Kind::Uint32 | Kind::Fixed32 => Type::U32,
            Kind::Float => Type::F32,
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Type::I64,
            Kind::Uint64 | Kind::Fixed64 => Type::U64,
            Kind::Double => Type::F64,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Enum => Type::Enum(self.schema.enumeration(field.enumeration?).full_name.clone()),
            Kind::Message => Type::Message(self.schema.message(field.message?).full_name.clone()),
        })
    }

    fn enumeration(
        &self,
        from: &EnumDescriptorProto,
        scope: &str,
        path: &[i32],
    ) -> Result<Enum, CodegenError> {
        let full_name = joined(scope, from.name());
        let mut values = Vec::with_capacity(from.value.len());
        for (value, path) in each(&from.value, path, number::ENUM_VALUE) {
            // The schema has seen to all names but these.
            if !is_identifier(value.name()) {
                return Err(CodegenError::BadName { owner: full_name, name: value.name().to_owned() });
            }
            let deprecated = value.options.as_ref().is_some_and(|o| o.deprecated());
            let notes = self.notes(&path, deprecated);
            values.push(EnumValue { name: value.name().to_owned(), number: value.number(), notes });
        }
        let notes = self.notes(path, from.options.as_ref().is_some_and(|o| o.deprecated()));
        Ok(Enum { full_name, name: from.name().to_owned(), notes, values })
    }

    fn service(
        &self,
        from: &ServiceDescriptorProto,
        file: &FileDescriptorProto,
        path: &[i32],
    ) -> Result<Service, CodegenError> {
        let full_name = joined(file.package(), from.name());
        let name_of = |index: MessageIndex| self.schema.message(index).full_name.clone();
        let mut methods = Vec::with_capacity(from.method.len());
        for (method, path) in each(&from.method, path, number::SERVICE_METHOD) {
            let missing = || CodegenError::Mismatch(joined(&full_name, method.name()));
            let resolved = self.schema.method(&full_name, method.name()).ok_or_else(missing)?;
            methods.push(Method {
                name: resolved.name.clone(),
                path: resolved.path.clone(),
                notes: self.notes(&path, method.options.as_ref().is_some_and(|o| o.deprecated())),
                input: name_of(resolved.input),
                output: name_of(resolved.output),
                client_streaming: resolved.client_streaming,
                server_streaming: resolved.server_streaming,
                idempotent: resolved.idempotent,
            });
        }
        let notes = self.notes(path, from.options.as_ref().is_some_and(|o| o.deprecated()));
        let (file, name) = (file.name().to_owned(), from.name().to_owned());
        Ok(Service { file, name, full_name, notes, methods })
    }

    fn index(&self, full_name: &str) -> Result<MessageIndex, CodegenError> {
        self.schema.message_named(full_name).ok_or_else(|| CodegenError::Mismatch(full_name.to_owned()))
    }

    fn layout(&self, index: MessageIndex) -> Layout {
        Layout {
            block_bytes: self.schema.message(index).layout.block_bytes,
            fingerprint: self.schema.fingerprint(index),
        }
    }

    fn notes(&self, path: &[i32], deprecated: bool) -> Notes {
        Notes { docs: self.comments.at(path), deprecated }
    }
}

/// Items of a list in a descriptor, each with its path.
fn each<'a, T>(items: &'a [T], path: &[i32], number: i32) -> impl Iterator<Item = (&'a T, Vec<i32>)> {
    items.iter().enumerate().map(move |(index, item)| {
        let mut path = path.to_vec();
        path.extend([number, i32::try_from(index).unwrap_or(i32::MAX)]);
        (item, path)
    })
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

fn holdings(schema: &Schema) -> Holdings {
    let mut holdings = Holdings::default();
    for message in schema.messages() {
        for field in message.fields.iter().filter(|field| !field.is_repeated()) {
            if let Some(held) = field.message {
                holdings.add(&message.full_name, &schema.message(held).full_name);
            }
        }
    }
    holdings
}

fn type_table(files: &[FileDescriptorProto], schema: &Schema) -> TypeTable {
    let mut table = TypeTable::default();
    for file in files {
        for enumeration in &file.enum_type {
            add_enum(&mut table, file.package(), &[], enumeration);
        }
        for message in &file.message_type {
            add_message(&mut table, file.package(), &[], message);
        }
    }
    for (full_name, origin) in &mut table.entries {
        origin.fingerprint = schema.message_named(full_name).map_or(0, |index| schema.fingerprint(index));
    }
    table
}

/// Recursion is bounded: the schema has refused sets that nest deeper than its limit.
fn add_message(table: &mut TypeTable, package: &str, outer: &[String], message: &DescriptorProto) {
    let nesting = [outer, &[message.name().to_owned()]].concat();
    let deprecated = message.options.as_ref().is_some_and(|o| o.deprecated());
    add(table, package, &nesting, false, deprecated);
    for enumeration in &message.enum_type {
        add_enum(table, package, &nesting, enumeration);
    }
    for nested in &message.nested_type {
        add_message(table, package, &nesting, nested);
    }
}

fn add_enum(table: &mut TypeTable, package: &str, outer: &[String], of: &EnumDescriptorProto) {
    let nesting = [outer, &[of.name().to_owned()]].concat();
    let deprecated = of.options.as_ref().is_some_and(|o| o.deprecated());
    add(table, package, &nesting, true, deprecated);
}

fn add(table: &mut TypeTable, package: &str, nesting: &[String], is_enum: bool, deprecated: bool) {
    let (package, nesting) = (package.to_owned(), nesting.to_vec());
    let full_name = joined(&package, &nesting.join("."));
    table.entries.insert(full_name, TypeOrigin { package, nesting, is_enum, fingerprint: 0, deprecated });
}
