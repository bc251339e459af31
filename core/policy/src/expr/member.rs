//! Checking what follows a dot or stands in brackets: fields, entries, enum values.

use super::ast::{Expr, ExprKind};
use super::check::{Checked, Checker, NAMES, conversion};
use super::error::{Complaint, did_you_mean};
use super::metadata::{metadata_key, sent_key, text};
use super::node::{Constant, Input, Node, Presence, Read, Slot};
use super::types::Type;
use trunkline_message::FieldAt;
use trunkline_schema::{DefaultValue, Field, Kind, MessageIndex, Schema};

/// Names of fields in advice: what is said of a type is kept while the type is bound.
const FIELDS_SHOWN_CHARS: usize = 240;

impl Checker<'_> {
    pub(super) fn select(&mut self, expr: &Expr, of: &Expr, name: &str) -> Checked {
        if let Some(value) = self.enum_value(expr)? {
            return Ok(value);
        }
        let (found, node) = self.check(of)?;
        match found {
            Type::Unknown => Ok((Type::Unknown, Node::Unknown)),
            Type::Message(index) => self.field(expr.at, index, node, name),
            Type::Metadata => Ok((Type::Str, Node::Metadata(metadata_key(expr.at, name)?.into()))),
            Type::Map(key, value) if *key == Type::Str => {
                Ok((*value, Node::Entry { map: node.into(), key: text(name).into() }))
            }
            Type::Peer => peer(expr.at, name),
            Type::Caller => caller(expr.at, name),
            other => {
                let problem = format!("{} has no member {name:?}", self.name(&other));
                Err(Complaint::new(expr.at, problem, "only messages and maps have members"))
            }
        }
    }

    pub(super) fn index(&mut self, at: u32, of: &Expr, index: &Expr) -> Checked {
        let (found, node) = self.check(of)?;
        match found {
            Type::Unknown => {
                self.check(index)?;
                Ok((Type::Unknown, Node::Unknown))
            }
            Type::List(element) => {
                let index = self.wanted(index, &Type::Int, "a list index")?;
                Ok((*element, Node::Element { list: node.into(), index: index.into() }))
            }
            Type::Metadata => {
                let key = self.wanted(index, &Type::Str, "metadata")?;
                Ok((Type::Str, Node::Metadata(sent_key(index.at, key)?.into())))
            }
            Type::Map(key, value) => {
                let (given, index_node) = self.check(index)?;
                if !given.equates(&key) {
                    let problem =
                        format!("the map has keys of {}, and this is {}", self.name(&key), self.name(&given));
                    return Err(Complaint::new(index.at, problem, conversion(&given, &key)));
                }
                Ok((*value, Node::Entry { map: node.into(), key: index_node.into() }))
            }
            other => {
                let problem = format!("[] takes a list or a map, and this is {}", self.name(&other));
                Err(Complaint::new(at, problem, "name a repeated field, a map field or metadata"))
            }
        }
    }

    /// `has(a.b)`: whether the last member is there, without an error if it is not.
    pub(super) fn has(&mut self, at: u32, args: &[Expr]) -> Checked {
        let [Expr { kind: ExprKind::Select(of, name), at: member_at, .. }] = args else {
            let (problem, advice) =
                ("has() takes one member", "write has(request.field) or has(metadata.key)");
            return Err(Complaint::new(at, problem, advice));
        };
        let (found, node) = self.check(of)?;
        let node = match found {
            Type::Unknown => Node::Unknown,
            Type::Caller if name == "uid" => Node::HasCallerUid,
            Type::Caller => {
                caller(*member_at, name)?;
                let problem = format!("caller.{name} is always there");
                return Err(Complaint::new(
                    *member_at,
                    problem,
                    "compare it with what is empty: '' or size() 0",
                ));
            }
            Type::Metadata => Node::HasMetadata(metadata_key(*member_at, name)?.into()),
            Type::Map(key, _) if *key == Type::Str => {
                Node::HasEntry { map: node.into(), key: text(name).into() }
            }
            Type::Message(index) => {
                let (schema, field) = self.field_of(*member_at, index, name)?;
                Node::HasField(node.into(), slot_of(schema, field).into(), presence(field))
            }
            other => {
                let problem = format!("{} has no member {name:?}", self.name(&other));
                return Err(Complaint::new(*member_at, problem, "only messages and maps have members"));
            }
        };
        Ok((Type::Bool, node))
    }

    fn field(&self, at: u32, index: MessageIndex, of: Node, name: &str) -> Checked {
        let (schema, field) = self.field_of(at, index, name)?;
        let slot = slot_of(schema, field);
        Ok((type_of(schema, field), Node::Field(of.into(), slot.into())))
    }

    fn field_of(&self, at: u32, index: MessageIndex, name: &str) -> Result<(&Schema, &Field), Complaint> {
        let missing = |advice| Complaint::new(at, format!("there is no field {name:?}"), advice);
        let (schema, _) = self.schema.ok_or_else(|| missing(String::new()))?;
        let message = schema.message(index);
        if let Some(field) = message.field_named(name) {
            return Ok((schema, field));
        }
        let names = || message.fields.iter().map(|field| field.name.as_str());
        let advice = did_you_mean(name, names()).unwrap_or_else(|| {
            let known: Vec<_> = names().take(12).collect();
            let known = known.join(", ");
            let shown = known.char_indices().nth(FIELDS_SHOWN_CHARS).map_or(&*known, |(at, _)| &known[..at]);
            format!("its fields: {shown}")
        });
        Err(Complaint::new(at, format!("{} has no field {name:?}", message.full_name), advice))
    }

    /// `package.Enum.VALUE`, looked up from the request's package outwards. `None` if the root is a name of ours.
    fn enum_value(&mut self, expr: &Expr) -> Result<Option<(Type, Node)>, Complaint> {
        let Some(dotted) = dotted(expr) else { return Ok(None) };
        let root = dotted.split('.').next().unwrap_or_default();
        if NAMES.contains(&root) || self.variables.iter().any(|(name, _)| name == root) {
            return Ok(None);
        }
        let Some((schema, request)) = self.schema else {
            // A value of an enum, in all likelihood: the check with the schema will tell.
            let typo = !dotted.contains('.') || did_you_mean(root, NAMES.into_iter()).is_some();
            self.needs.schema |= !typo;
            return Ok((!typo).then_some((Type::Unknown, Node::Unknown)));
        };
        let mut scope = schema.message(request).full_name.as_str();
        loop {
            let full = if scope.is_empty() { dotted.clone() } else { format!("{scope}.{dotted}") };
            if let Some(number) = enum_number(schema, &full) {
                return Ok(Some((Type::Int, Node::Constant(Constant::Int(number.into())))));
            }
            if scope.is_empty() {
                let advice = "names here: request, metadata, method, service, path, application, peer, caller, and \
                              values of enums by their full name";
                return Err(Complaint::new(expr.at, format!("there is no {dotted:?}"), advice));
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}

fn peer(at: u32, name: &str) -> Checked {
    match name {
        "identity" => Ok((Type::Str, Node::Input(Input::PeerIdentity))),
        "address" => Ok((Type::Str, Node::Input(Input::PeerAddress))),
        _ => Err(Complaint::new(
            at,
            format!("peer has no member {name:?}"),
            "write peer.identity or peer.address",
        )),
    }
}

fn caller(at: u32, name: &str) -> Checked {
    match name {
        "uid" => Ok((Type::Int, Node::CallerUid)),
        "identity" => Ok((Type::Str, Node::Input(Input::CallerIdentity))),
        "name" => Ok((Type::Str, Node::Input(Input::CallerName))),
        "program" => Ok((Type::Str, Node::Input(Input::CallerProgram))),
        "services" => Ok((Type::List(Type::Str.into()), Node::CallerServices)),
        _ => Err(Complaint::new(
            at,
            format!("caller has no member {name:?}"),
            "write caller.uid, caller.identity, caller.name, caller.program or caller.services",
        )),
    }
}

fn enum_number(schema: &Schema, full: &str) -> Option<i32> {
    let (of, value) = full.rsplit_once('.')?;
    schema.enum_named(of)?.value_named(value).map(|value| value.number)
}

/// `a.b.c` as text, if the expression is nothing else.
fn dotted(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.clone()),
        ExprKind::Select(of, name) => Some(format!("{}.{name}", dotted(of)?)),
        _ => None,
    }
}

fn type_of(schema: &Schema, field: &Field) -> Type {
    match entry_of(schema, field) {
        Some((key, value)) => Type::Map(Type::of_kind(key).into(), Type::of_kind(value).into()),
        None if field.is_repeated() => Type::List(Type::of_kind(field).into()),
        None => Type::of_kind(field),
    }
}

fn slot_of(schema: &Schema, field: &Field) -> Slot {
    let read = match entry_of(schema, field) {
        Some((key, value)) => Read::Map(Box::new((slot_of(schema, key), slot_of(schema, value)))),
        None if field.is_repeated() => Read::List(read_of(field.kind).into()),
        None => read_of(field.kind),
    };
    Slot { at: FieldAt::from(field), read, default: default_of(schema, field) }
}

/// Key and value fields of a map field.
fn entry_of<'s>(schema: &'s Schema, field: &Field) -> Option<(&'s Field, &'s Field)> {
    let entry = schema.message(field.message.filter(|_| field.is_map)?);
    Some((entry.field(1)?, entry.field(2)?))
}

fn read_of(kind: Kind) -> Read {
    match kind {
        Kind::Bool => Read::Bool,
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Enum => Read::I32,
        Kind::Uint32 | Kind::Fixed32 => Read::U32,
        Kind::Float => Read::F32,
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Read::I64,
        Kind::Uint64 | Kind::Fixed64 => Read::U64,
        Kind::Double => Read::F64,
        Kind::String => Read::Str,
        Kind::Bytes => Read::Bytes,
        Kind::Message => Read::Message,
    }
}

fn presence(field: &Field) -> Presence {
    match field.kind {
        _ if field.is_repeated() => Presence::NotEmpty,
        _ if field.has_presence() || field.oneof.is_some() || field.kind == Kind::Message => Presence::Set,
        _ => Presence::NotZero,
    }
}

/// The declared default; for an enum without one its first value, which proto2 does not demand to be zero.
fn default_of(schema: &Schema, field: &Field) -> Option<Constant> {
    let Some(default) = &field.default else {
        let number = schema.enumeration(field.enumeration?).default_number();
        return (number != 0).then(|| Constant::Int(number.into()));
    };
    Some(match default {
        DefaultValue::Bool(value) => Constant::Bool(*value),
        DefaultValue::I32(value) | DefaultValue::Enum(value) => Constant::Int((*value).into()),
        DefaultValue::I64(value) => Constant::Int(*value),
        DefaultValue::U32(value) => Constant::Uint((*value).into()),
        DefaultValue::U64(value) => Constant::Uint(*value),
        DefaultValue::F32(value) => Constant::Double((*value).into()),
        DefaultValue::F64(value) => Constant::Double(*value),
        DefaultValue::String(value) => Constant::Str(value.as_bytes().into()),
        DefaultValue::Bytes(value) => Constant::Bytes(value.as_slice().into()),
    })
}
