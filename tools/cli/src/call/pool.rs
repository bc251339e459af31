//! Descriptor sets from anywhere as a pool of types.
//!
//! The pool knows proto2 and proto3, and panics at a syntax it does not know. So sets are looked at first: a file in an
//! edition is written anew in the syntax that says the same of each field (what that is, `trunkline-schema` knows), and
//! a file in another syntax is refused.

use std::collections::BTreeSet;

use prost::Message as _;
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, OneofDescriptorProto,
};
use trunkline_schema::{Cardinality, Kind, Schema};

/// The last of `Edition` that stands for a syntax: `EDITION_PROTO3`.
const EDITION_PROTO3: i32 = 999;

/// What a set says of the language of its files.
#[derive(Clone, PartialEq, prost::Message)]
struct Languages {
    #[prost(message, repeated, tag = "1")]
    file: Vec<Language>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Language {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "12")]
    syntax: String,
    #[prost(int32, tag = "14")]
    edition: i32,
}

impl Language {
    /// # Errors
    /// If the syntax is not known.
    fn is_edition(&self) -> Result<bool, String> {
        match self.syntax.as_str() {
            "" | "proto2" | "proto3" => Ok(self.edition > EDITION_PROTO3),
            "editions" => Ok(true),
            other => Err(format!(
                "{}: syntax {other:?} is not known to this version; proto2, proto3 and editions 2023 and 2024 are",
                self.name
            )),
        }
    }
}

/// Adds the files of an encoded `FileDescriptorSet`, which need not be trusted.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub fn add(pool: &mut DescriptorPool, set: &[u8]) -> Result<(), String> {
    let malformed = |error: prost::DecodeError| format!("not a descriptor set: {error}");
    let mut editions = BTreeSet::new();
    for language in Languages::decode(set).map_err(malformed)?.file {
        if language.is_edition()? {
            editions.insert(language.name);
        }
    }
    if editions.is_empty() {
        return pool.decode_file_descriptor_set(set).map_err(|error| error.to_string());
    }
    let schema = Schema::from_descriptor_set(set).map_err(|error| error.to_string())?;
    let mut set = FileDescriptorSet::decode(set).map_err(malformed)?;
    for file in set.file.iter_mut().filter(|file| editions.contains(file.name())) {
        rewrite(file, &schema);
    }
    pool.add_file_descriptor_set(set).map_err(|error| error.to_string())
}

/// Says by syntax, labels and options what an edition says by features. proto3 has a word for everything but closed
/// enums; in proto2 a field without presence seems to have it.
fn rewrite(file: &mut FileDescriptorProto, schema: &Schema) {
    let scope = file.package().to_owned();
    let mut enums: BTreeSet<String> = file.enum_type.iter().map(|of| joined(&scope, of.name())).collect();
    file.message_type.iter().for_each(|message| enums_within(message, &scope, &mut enums));
    let closed = schema.enums().iter().any(|of| of.closed && enums.contains(&of.full_name));
    file.syntax = (!closed).then(|| "proto3".to_owned());
    for message in &mut file.message_type {
        fields(message, &scope, schema, closed);
    }
}

fn enums_within(message: &DescriptorProto, scope: &str, into: &mut BTreeSet<String>) {
    let scope = joined(scope, message.name());
    into.extend(message.enum_type.iter().map(|of| joined(&scope, of.name())));
    message.nested_type.iter().for_each(|nested| enums_within(nested, &scope, into));
}

/// Recursion is as deep as the schema allows declarations to nest.
fn fields(message: &mut DescriptorProto, scope: &str, schema: &Schema, is_proto2: bool) {
    let full_name = joined(scope, message.name());
    for nested in &mut message.nested_type {
        fields(nested, &full_name, schema, is_proto2);
    }
    let Some(index) = schema.message_named(&full_name) else { return };
    let of = schema.message(index);
    for field in &mut message.field {
        let number = u32::try_from(field.number()).unwrap_or_default();
        let Some(known) = of.field(number) else { continue };
        restate(field, known);
        let is_single = known.cardinality == Cardinality::Optional && field.oneof_index.is_none();
        if is_single && known.kind != Kind::Message && !is_proto2 && !of.is_map_entry {
            // As protoc writes `optional` of proto3: alone in a oneof that is none.
            field.proto3_optional = Some(true);
            field.oneof_index = i32::try_from(message.oneof_decl.len()).ok();
            let name = Some(format!("_{}", field.name()));
            message.oneof_decl.push(OneofDescriptorProto { name, options: None });
        }
    }
}

fn restate(field: &mut FieldDescriptorProto, known: &trunkline_schema::Field) {
    field.set_label(match known.cardinality {
        Cardinality::Required => Label::Required,
        Cardinality::Repeated => Label::Repeated,
        Cardinality::Implicit | Cardinality::Optional => Label::Optional,
    });
    if known.group {
        field.set_type(Type::Group);
    }
    let packable = !matches!(known.kind, Kind::Message | Kind::String | Kind::Bytes);
    if known.cardinality == Cardinality::Repeated && packable {
        field.options.get_or_insert_default().packed = Some(known.packed);
    }
}

fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

#[cfg(test)]
mod tests {
    //! Shows that sets in editions are taken as what they say, and that no set makes the pool panic.
    use super::*;
    use prost_reflect::Cardinality as Label;

    /// A file of edition 2023 as protoc writes it. Features are not in the types at hand, so options are bytes.
    fn edition_set(edition: i32, syntax: &str) -> Vec<u8> {
        #[derive(Clone, PartialEq, prost::Message)]
        struct Set {
            #[prost(message, repeated, tag = "1")]
            file: Vec<File>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct File {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(string, tag = "2")]
            package: String,
            #[prost(message, repeated, tag = "4")]
            message_type: Vec<Message>,
            #[prost(string, tag = "12")]
            syntax: String,
            #[prost(int32, tag = "14")]
            edition: i32,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Message {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(message, repeated, tag = "2")]
            field: Vec<Field>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Field {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(int32, tag = "3")]
            number: i32,
            #[prost(int32, tag = "4")]
            label: i32,
            #[prost(int32, tag = "5")]
            kind: i32,
            #[prost(string, optional, tag = "6")]
            type_name: Option<String>,
            #[prost(message, optional, tag = "8")]
            options: Option<Options>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Options {
            #[prost(message, optional, tag = "21")]
            features: Option<Features>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Features {
            #[prost(int32, optional, tag = "1")]
            presence: Option<i32>,
            #[prost(int32, optional, tag = "3")]
            packed: Option<i32>,
            #[prost(int32, optional, tag = "5")]
            delimited: Option<i32>,
        }
        let field = |name: &str, number, label, kind, features| Field {
            name: name.to_owned(),
            number,
            label,
            kind,
            type_name: (kind == 11).then(|| ".e.M".to_owned()),
            options: Some(Options { features: Some(features) }),
        };
        let none = Features::default();
        let message = Message {
            name: "M".to_owned(),
            field: vec![
                field("explicit", 1, 1, 5, none.clone()),
                field("implicit", 2, 1, 5, Features { presence: Some(2), ..none.clone() }),
                field("required", 3, 1, 5, Features { presence: Some(3), ..none.clone() }),
                field("packed", 4, 3, 5, none.clone()),
                field("expanded", 5, 3, 5, Features { packed: Some(2), ..none.clone() }),
                field("delimited", 6, 1, 11, Features { delimited: Some(2), ..none }),
            ],
        };
        let file = File {
            name: "e.proto".to_owned(),
            package: "e".to_owned(),
            message_type: vec![message],
            syntax: syntax.to_owned(),
            edition,
        };
        Set { file: vec![file] }.encode_to_vec()
    }

    #[test]
    fn an_edition_means_what_its_features_say() {
        let mut pool = DescriptorPool::new();
        add(&mut pool, &edition_set(1000, "editions")).unwrap();
        let message = pool.get_message_by_name("e.M").unwrap();
        let field = |name: &str| message.get_field_by_name(name).unwrap();
        let presence = ["explicit", "implicit", "delimited"].map(|name| field(name).supports_presence());
        assert_eq!(presence, [true, false, true]);
        assert_eq!(field("required").cardinality(), Label::Required);
        assert!(
            field("packed").is_packed() && !field("expanded").is_packed() && field("delimited").is_group()
        );
        // What goes to the daemon is read as the same types.
        let schema = Schema::from_descriptor_set(&pool.encode_to_vec()).unwrap();
        let original = Schema::from_descriptor_set(&edition_set(1000, "editions")).unwrap();
        let fingerprint = |of: &Schema| of.fingerprint(of.message_named("e.M").unwrap());
        assert_eq!(fingerprint(&schema), fingerprint(&original));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (edition, syntax, reason) in [
            (0, "proto4", "e.proto: syntax \"proto4\" is not known"),
            (9999, "editions", "a syntax or edition this version does not know"),
        ] {
            let error = add(&mut DescriptorPool::new(), &edition_set(edition, syntax)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn no_byte_makes_it_panic() {
        for set in [edition_set(1000, "editions"), edition_set(0, "proto3")] {
            for at in 0..set.len() {
                let _ = add(&mut DescriptorPool::new(), &set[..at]);
                for bits in [0x01, 0x04, 0x80, 0xff] {
                    let mut set = set.clone();
                    set[at] ^= bits;
                    let _ = add(&mut DescriptorPool::new(), &set);
                }
            }
        }
    }
}
