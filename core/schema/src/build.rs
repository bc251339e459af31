//! Descriptors as read to a schema as used: messages, enums and services, resolved and placed.

use crate::descriptor::{self, EnumProto, FileProto, MethodProto, ServiceProto};
use crate::error::{Place, SchemaError};
use crate::features::Features;
use crate::field::FieldBuilder;
use crate::kind::{Enum, EnumValue, Kind};
use crate::layout::Layout;
use crate::limits::{BLOCK_BYTES_MAX, ONEOF_MEMBERS_MAX, ONEOF_WORDS_MAX};
use crate::message::{Field, Message, Oneof};
use crate::names::{Declaration, Declared, MessageDeclaration, Names, Scope, Type, is_identifier};
use crate::service::{Method, Service};

/// What a [`Schema`](crate::Schema) is made of.
pub(crate) struct Resolved {
    pub(crate) messages: Vec<Message>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) services: Vec<Service>,
}

/// Reads and resolves a descriptor set.
pub(crate) fn resolve(bytes: &[u8]) -> Result<Resolved, SchemaError> {
    let files = descriptor::read_set(bytes)?;
    let mut declared = Declared::default();
    for file in &files {
        declared.file(file)?;
    }
    let names = Names::of(&declared)?;
    let enums: Vec<_> = declared.enums.iter().map(enumeration).collect::<Result<_, _>>()?;
    let fields = FieldBuilder { declared: &declared, names: &names, enums: &enums };
    let messages: Vec<_> = declared.messages.iter().map(|m| message(&fields, m)).collect::<Result<_, _>>()?;
    let mut services = Vec::new();
    for file in &files {
        for proto in &file.services {
            services.push(service(&names, file, proto)?);
        }
    }
    distinct(&services)?;
    Ok(Resolved { messages, enums, services })
}

fn message(
    builder: &FieldBuilder<'_, '_, '_>,
    declared: &MessageDeclaration<'_, '_>,
) -> Result<Message, SchemaError> {
    let mut fields: Vec<_> =
        declared.proto.fields.iter().map(|proto| builder.field(declared, proto)).collect::<Result<_, _>>()?;
    fields.sort_unstable_by_key(|field: &Field| field.number);
    if let Some([_, second]) = fields.windows(2).find(|p| matches!(p, [a, b] if a.number == b.number)) {
        let place = declared.place(&second.name);
        return Err(SchemaError::Duplicate { place, what: "field number", name: second.number.to_string() });
    }
    if declared.proto.map_entry {
        check_map_entry(&fields).map_err(|reason| declared.invalid("", reason))?;
    }
    let mut oneofs = oneofs(declared, &mut fields)?;
    let layout =
        Layout::place(&mut fields, &mut oneofs, builder.enums).ok_or_else(|| SchemaError::Limit {
            place: declared.place(""),
            what: "bytes of the message's block",
            limit: BLOCK_BYTES_MAX as usize,
        })?;
    let (full_name, by_name) = (declared.full_name.clone(), Message::index_of(&fields));
    Ok(Message { full_name, fields, oneofs, layout, is_map_entry: declared.proto.map_entry, by_name })
}

/// The oneofs that have members, and their fields' indices turned from declared positions to positions here.
/// Synthetic oneofs have no members by now, so they vanish.
fn oneofs(declared: &MessageDeclaration<'_, '_>, fields: &mut [Field]) -> Result<Vec<Oneof>, SchemaError> {
    let mut members = vec![Vec::new(); declared.proto.oneofs.len()];
    for (i, field) in (0..).zip(fields.iter()) {
        if let Some(list) = field.oneof.and_then(|o| members.get_mut(usize::from(o))) {
            list.push(i);
        }
    }
    let mut oneofs = Vec::new();
    for (proto, members) in declared.proto.oneofs.iter().zip(members) {
        if members.is_empty() {
            continue;
        }
        if !is_identifier(proto.name) {
            return Err(declared.invalid(proto.name, "the oneof's name is not an identifier"));
        }
        let words = members.chunk_by(|a, b| a / 32 == b / 32).count();
        for (what, count, limit) in [
            ("members of the oneof", members.len(), ONEOF_MEMBERS_MAX),
            ("words of 32 fields with members of the oneof", words, ONEOF_WORDS_MAX),
        ] {
            if count > limit {
                return Err(SchemaError::Limit { place: declared.place(proto.name), what, limit });
            }
        }
        for &i in &members {
            if let Some(field) = fields.get_mut(i as usize) {
                field.oneof = Some(oneofs.len() as u16);
            }
        }
        oneofs.push(Oneof { name: proto.name.to_owned(), fields: members, slot: 0, slot_bytes: 0 });
    }
    Ok(oneofs)
}

/// A map entry is `{key = 1, value = 2}`, both singular, with a key that compares: everyone downstream relies on it.
fn check_map_entry(fields: &[Field]) -> Result<(), &'static str> {
    let [key, value] = fields else { return Err("a map entry has other fields than key and value") };
    let singular = !key.is_repeated() && !value.is_repeated() && key.oneof.is_none() && value.oneof.is_none();
    if (key.number, value.number) != (1, 2) || !singular {
        return Err("a map entry is not {key = 1, value = 2}");
    }
    match key.kind {
        Kind::Float | Kind::Double | Kind::Bytes | Kind::Enum | Kind::Message => {
            Err("a map's key is neither an integer nor a bool nor a string")
        }
        _ => Ok(()),
    }
}

fn enumeration(declared: &Declaration<'_, EnumProto<'_>>) -> Result<Enum, SchemaError> {
    let values = &declared.proto.values;
    if values.is_empty() {
        return Err(declared.invalid("", "an enum needs at least one value"));
    }
    let mut numbers: Vec<_> = values.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut by_name: Vec<_> = (0..values.len() as u32).collect();
    by_name.sort_unstable_by_key(|&i| values.get(i as usize).map(|(name, _)| *name));
    Ok(Enum {
        full_name: declared.full_name.clone(),
        by_name,
        values: values.iter().map(|&(name, number)| EnumValue { name: name.to_owned(), number }).collect(),
        numbers,
        closed: declared.features.closed_enums,
    })
}

fn service(
    names: &Names<'_>,
    file: &FileProto<'_>,
    proto: &ServiceProto<'_>,
) -> Result<Service, SchemaError> {
    let scope = Scope { file: file.name, name: file.package, features: Features::PROTO3 };
    let full_name = scope.full_name(proto.name)?;
    let declared = Declaration { proto, file: file.name, full_name, features: scope.features };
    let methods = proto.methods.iter().map(|m| method(names, &declared, m)).collect::<Result<_, _>>()?;
    Ok(Service { full_name: declared.full_name, methods })
}

/// `MethodOptions.IdempotencyLevel`.
const NO_SIDE_EFFECTS: i32 = 1;
const IDEMPOTENT: i32 = 2;

fn method(
    names: &Names<'_>,
    service: &Declaration<'_, ServiceProto<'_>>,
    proto: &MethodProto<'_>,
) -> Result<Method, SchemaError> {
    if !is_identifier(proto.name) {
        return Err(service.invalid(proto.name, "the method's name is not an identifier"));
    }
    let message = |name: &str| match names.find(name) {
        Some(Type::Message(index)) => Ok(index),
        _ => Err(SchemaError::Unresolved { place: service.place(proto.name), name: name.to_owned() }),
    };
    Ok(Method {
        name: proto.name.to_owned(),
        path: format!("/{}/{}", service.full_name, proto.name),
        input: message(proto.input)?,
        output: message(proto.output)?,
        client_streaming: proto.client_streaming,
        server_streaming: proto.server_streaming,
        idempotent: matches!(proto.idempotency, NO_SIDE_EFFECTS | IDEMPOTENT),
        no_side_effects: proto.idempotency == NO_SIDE_EFFECTS,
    })
}

/// No two services, and no two methods of a service, share a name: a path means one method.
fn distinct(services: &[Service]) -> Result<(), SchemaError> {
    first_repeated(services.iter().map(|s| s.full_name.as_str())).map_or(Ok(()), |name| {
        Err(SchemaError::Duplicate { place: Place::default(), what: "service", name })
    })?;
    for service in services {
        if let Some(name) = first_repeated(service.methods.iter().map(|m| m.name.as_str())) {
            let place = Place { owner: service.full_name.clone(), ..Place::default() };
            return Err(SchemaError::Duplicate { place, what: "method", name });
        }
    }
    Ok(())
}

fn first_repeated<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.windows(2).find_map(|pair| match pair {
        [a, b] if a == b => Some((*a).to_owned()),
        _ => None,
    })
}
