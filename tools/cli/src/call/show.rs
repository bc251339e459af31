//! `list` and `describe`: what there is, as `.proto` files would say it.

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, SerializeOptions, ServiceDescriptor,
};
use serde_json::{Map, Value};
use std::fmt::Write;
use trunkline_call::printable;

/// The methods of a service, a line each; `None` if there is no such service.
pub fn methods(pool: &DescriptorPool, service: &str) -> Option<String> {
    let service = pool.get_service_by_name(service)?;
    let name = |method: MethodDescriptor| printable(&format!("{}/{}", service.full_name(), method.name()));
    Some(service.methods().map(|method| name(method) + "\n").collect())
}

/// A symbol, described; `None` if nothing has that name.
pub fn describe(pool: &DescriptorPool, symbol: &str) -> Option<String> {
    let symbol = symbol.trim_matches(['.', '/']);
    let (kind, text) = definition(pool, symbol)?;
    let article = if kind == "enum" { "an" } else { "a" };
    Some(format!("{} is {article} {kind}:\n{text}", printable(symbol)))
}

/// A message's JSON to be filled in: every field, and of each oneof the first.
pub fn template(message: &MessageDescriptor) -> Value {
    template_within(message, &mut Place::default())
}

fn definition(pool: &DescriptorPool, symbol: &str) -> Option<(&'static str, String)> {
    let mut out = Printer::default();
    if let Some(service) = pool.get_service_by_name(symbol) {
        out.service(&service);
        return Some(("service", out.text));
    }
    if let Some(message) = pool.get_message_by_name(symbol) {
        out.message(&message);
        return Some(("message", out.text));
    }
    if let Some(definition) = pool.get_enum_by_name(symbol) {
        out.enumeration(&definition);
        return Some(("enum", out.text));
    }
    let (parent, name) = symbol.rsplit_once(['/', '.'])?;
    if let Some(service) = pool.get_service_by_name(parent) {
        out.method(&service.methods().find(|method| method.name() == name)?);
        return Some(("method", out.text));
    }
    let message = pool.get_message_by_name(parent)?;
    if let Some(field) = message.get_field_by_name(name) {
        out.field(&field);
        return Some(("field", out.text));
    }
    let oneof = message.oneofs().find(|oneof| oneof.name() == name)?;
    out.block(&format!("oneof {name}"), |out| oneof.fields().for_each(|field| out.field(&field)));
    Some(("oneof", out.text))
}

/// Writes definitions, indented.
#[derive(Default)]
struct Printer {
    text: String,
    depth: usize,
}

impl Printer {
    fn service(&mut self, service: &ServiceDescriptor) {
        self.block(&format!("service {}", service.name()), |out| {
            service.methods().for_each(|method| out.method(&method));
        });
    }

    fn method(&mut self, method: &MethodDescriptor) {
        let side = |streams, message: MessageDescriptor| {
            format!("({}.{})", if streams { "stream " } else { "" }, message.full_name())
        };
        let input = side(method.is_client_streaming(), method.input());
        let output = side(method.is_server_streaming(), method.output());
        self.line(&format!("rpc {}{input} returns {output};", method.name()));
    }

    fn message(&mut self, message: &MessageDescriptor) {
        self.block(&format!("message {}", message.name()), |out| out.members(message));
    }

    fn members(&mut self, message: &MessageDescriptor) {
        let real = |field: &FieldDescriptor| field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        for field in message.fields().filter(|field| real(field).is_none()) {
            self.field(&field);
        }
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            self.block(&format!("oneof {}", oneof.name()), |out| {
                oneof.fields().for_each(|field| out.field(&field));
            });
        }
        for range in message.extension_ranges() {
            self.line(&format!("extensions {} to {};", range.start, range.end - 1));
        }
        message.child_enums().for_each(|nested| self.enumeration(&nested));
        message
            .child_messages()
            .filter(|nested| !nested.is_map_entry())
            .for_each(|nested| self.message(&nested));
    }

    fn field(&mut self, field: &FieldDescriptor) {
        let label = if field.is_map() {
            ""
        } else if field.is_list() {
            "repeated "
        } else if field.is_required() {
            "required "
        } else if field.containing_oneof().is_some_and(|oneof| oneof.is_synthetic()) {
            "optional "
        } else {
            ""
        };
        self.line(&format!("{label}{} {} = {};", type_name(field), field.name(), field.number()));
    }

    fn enumeration(&mut self, definition: &EnumDescriptor) {
        self.block(&format!("enum {}", definition.name()), |out| {
            definition
                .values()
                .for_each(|value| out.line(&format!("{} = {};", value.name(), value.number())));
        });
    }

    fn block(&mut self, head: &str, fill: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        fill(self);
        self.depth -= 1;
        self.line("}");
    }

    fn line(&mut self, line: &str) {
        // Names are those of a server that reflects, whatever it writes into its descriptors.
        let _ = writeln!(self.text, "{:indent$}{}", "", printable(line), indent = self.depth * 2);
    }
}

fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("map<{}, {}>", type_name(&key), type_name(&value))
        }
        Kind::Message(message) => format!(".{}", message.full_name()),
        Kind::Enum(definition) => format!(".{}", definition.full_name()),
        // Scalars are called in Kind as they are in .proto files.
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// Members a template has, and messages within each other: types that refer to each other could fill any memory.
const MEMBERS_MAX: usize = 4096;
const DEPTH_MAX: usize = 32;

/// Where a template is, and what it may still have.
#[derive(Default)]
struct Place {
    /// The messages this one lies in: one that holds itself is shown once.
    path: Vec<String>,
    members: usize,
}

/// A message for which there is no room is `{}`.
fn template_within(message: &MessageDescriptor, place: &mut Place) -> Value {
    let name = message.full_name().to_owned();
    if name.starts_with("google.protobuf.") {
        let options = SerializeOptions::new().skip_default_fields(false);
        let empty = DynamicMessage::new(message.clone());
        return empty.serialize_with_options(serde_json::value::Serializer, &options).unwrap_or(Value::Null);
    }
    if place.path.len() >= DEPTH_MAX || place.path.contains(&name) {
        return Value::Object(Map::new());
    }
    place.path.push(name);
    let mut members = Map::new();
    // JSON may hold one member of a oneof; the first stands for all.
    let other = |field: &FieldDescriptor| {
        field.containing_oneof().is_some_and(|oneof| oneof.fields().next().as_ref() != Some(field))
    };
    for field in message.fields().filter(|field| !other(field)) {
        if place.members >= MEMBERS_MAX {
            break;
        }
        place.members += 1;
        let value = match field.kind() {
            Kind::Message(entry) if field.is_map() => {
                let value = element(&entry.map_entry_value_field(), place);
                Value::Object(Map::from_iter([(String::new(), value)]))
            }
            _ if field.is_list() => Value::Array(vec![element(&field, place)]),
            _ => element(&field, place),
        };
        members.insert(field.json_name().to_owned(), value);
    }
    place.path.pop();
    Value::Object(members)
}

fn element(field: &FieldDescriptor, place: &mut Place) -> Value {
    match field.kind() {
        Kind::Message(message) => template_within(&message, place),
        Kind::Enum(definition) => definition.default_value().name().into(),
        Kind::String | Kind::Bytes => "".into(),
        Kind::Bool => false.into(),
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => "0".into(),
        _ => 0.into(),
    }
}

#[cfg(test)]
mod tests {
    //! Shows every kind of definition as text, and a template.
    use super::*;

    fn pool() -> DescriptorPool {
        let text = r#"
            syntax = "proto3";
            package a.v1;
            message Ask {
              string text = 1;
              optional int64 limit = 2;
              repeated Inner inner = 3;
              map<string, Kind> kinds = 4;
              oneof either { bytes raw = 5; Ask again = 6; }
              message Inner { double x = 1; }
              enum Kind { NONE = 0; SOME = 1; }
            }
            service Echo { rpc Say(Ask) returns (stream Ask); }
        "#;
        let mut pool = DescriptorPool::new();
        let file = protox::file::File::from_source("a.proto", text).unwrap();
        pool.add_file_descriptor_proto(file.into()).unwrap();
        pool
    }

    #[test]
    fn everything_has_a_description() {
        let ask = "\
a.v1.Ask is a message:
message Ask {
  string text = 1;
  optional int64 limit = 2;
  repeated .a.v1.Ask.Inner inner = 3;
  map<string, .a.v1.Ask.Kind> kinds = 4;
  oneof either {
    bytes raw = 5;
    .a.v1.Ask again = 6;
  }
  enum Kind {
    NONE = 0;
    SOME = 1;
  }
  message Inner {
    double x = 1;
  }
}
";
        let say = "a.v1.Echo.Say is a method:\nrpc Say(.a.v1.Ask) returns (stream .a.v1.Ask);\n";
        for (symbol, text) in [
            ("a.v1.Ask", ask),
            (".a.v1.Ask.Inner", ".a.v1.Ask.Inner"),
            ("a.v1.Echo.Say", say),
            ("a.v1.Echo/Say", "a.v1.Echo/Say is a method:\nrpc Say"),
            ("a.v1.Ask.limit", "a.v1.Ask.limit is a field:\noptional int64 limit = 2;\n"),
            ("a.v1.Ask.either", "a.v1.Ask.either is a oneof:\noneof either {\n  bytes raw = 5;\n"),
            ("a.v1.Ask.Kind", "a.v1.Ask.Kind is an enum:\nenum Kind {\n  NONE = 0;\n"),
        ] {
            let described = describe(&pool(), symbol).unwrap();
            assert!(described.starts_with(text.trim_start_matches('.')), "{symbol}: {described}");
        }
        assert_eq!(describe(&pool(), "a.v1.Nothing"), None);
        assert_eq!(methods(&pool(), "a.v1.Echo").unwrap(), "a.v1.Echo/Say\n");
    }

    #[test]
    fn templates_have_every_field_and_an_end() {
        let ask = pool().get_message_by_name("a.v1.Ask").unwrap();
        let expected = serde_json::json!({
            "text": "", "limit": "0", "inner": [{"x": 0}], "kinds": {"": "NONE"}, "raw": "",
        });
        assert_eq!(template(&ask), expected);
    }

    /// Types are as whoever is called tells them.
    #[test]
    fn templates_are_bounded() {
        let fan: String = (0..40)
            .map(|n| format!("message M{n} {{ M{0} a = 1; M{0} b = 2; M{0} c = 3; }}", n + 1))
            .collect();
        let chain: String = (0..30_000).map(|n| format!("message C{n} {{ C{} next = 1; }}", n + 1)).collect();
        for (first, text) in
            [("M0", format!("{fan} message M40 {{}}")), ("C0", format!("{chain} message C30000 {{}}"))]
        {
            let mut pool = DescriptorPool::new();
            let file =
                protox::file::File::from_source("a.proto", &format!("syntax = \"proto3\"; {text}")).unwrap();
            pool.add_file_descriptor_proto(file.into()).unwrap();
            let shown = template(&pool.get_message_by_name(first).unwrap()).to_string();
            assert!(shown.len() < 8 * MEMBERS_MAX * DEPTH_MAX, "{}", shown.len());
        }
    }
}
