//! Shows what proto2, proto3 and editions' files come to: the same few facts per field.

use crate::support;

use support::wire::{Wire, field, file, message, set};
use trunkline_schema::{Cardinality, DefaultValue, Kind, Schema};

fn schema(text: &str) -> Schema {
    Schema::from_proto_source("test.proto", text).unwrap()
}

/// `(cardinality, packed, utf8, group)` of a field of message `M`.
fn facts(schema: &Schema, name: &str) -> (Cardinality, bool, bool, bool) {
    let message = schema.message(schema.message_named("M").unwrap());
    let field = message.field_named(name).unwrap();
    (field.cardinality, field.packed, field.utf8, field.group)
}

#[test]
fn proto3() {
    let schema = schema(
        r#"syntax = "proto3";
           enum E { ZERO = 0; }
           message M {
             string plain = 1; optional string explicit = 2; M inner = 3; repeated int32 packed = 4;
             repeated int32 expanded = 5 [packed = false]; oneof o { string member = 6; } E e = 7; bytes b = 8;
             repeated string strings = 9;
           }"#,
    );
    use Cardinality::{Implicit, Optional, Repeated};
    assert_eq!(facts(&schema, "plain"), (Implicit, false, true, false));
    assert_eq!(facts(&schema, "explicit"), (Optional, false, true, false));
    assert_eq!(facts(&schema, "inner"), (Optional, false, false, false));
    assert_eq!(facts(&schema, "packed"), (Repeated, true, false, false));
    assert_eq!(facts(&schema, "expanded"), (Repeated, false, false, false));
    assert_eq!(facts(&schema, "member"), (Optional, false, true, false));
    assert_eq!(facts(&schema, "b"), (Implicit, false, false, false));
    assert_eq!(facts(&schema, "strings"), (Repeated, false, true, false));
    assert!(!schema.enums()[0].closed);
    let message = schema.message(schema.message_named("M").unwrap());
    let oneofs: Vec<_> = message.oneofs.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(oneofs, ["o"], "the synthetic oneof of `explicit` is none");
}

#[test]
fn proto2() {
    let schema = schema(
        r#"syntax = "proto2";
           enum E { SEVEN = 7; ONE = 1; UNO = -1; }
           message M {
             required string must = 1; optional string may = 2; repeated int32 expanded = 4;
             repeated int32 packed = 5 [packed = true]; optional group Grp = 6 { optional int32 x = 1; }
             optional E e = 7; extensions 100 to max;
           }
           extend M { optional int32 ext = 100; }"#,
    );
    use Cardinality::{Optional, Repeated, Required};
    assert_eq!(facts(&schema, "must"), (Required, false, false, false));
    assert_eq!(facts(&schema, "may"), (Optional, false, false, false));
    assert_eq!(facts(&schema, "expanded"), (Repeated, false, false, false));
    assert_eq!(facts(&schema, "packed"), (Repeated, true, false, false));
    assert_eq!(facts(&schema, "grp"), (Optional, false, false, true));
    let e = &schema.enums()[0];
    assert!(e.closed);
    assert_eq!(e.numbers, [-1, 1, 7]);
    assert_eq!(e.default_number(), 7);
    assert!(e.declares(-1) && !e.declares(0));
    let message = schema.message(schema.message_named("M").unwrap());
    assert!(message.field(100).is_none(), "an extension has no slot");
    assert!(schema.message_named("M.Grp").is_some());
}

#[test]
fn defaults_of_proto2() {
    let schema = schema(
        r#"syntax = "proto2";
           enum E { A = 1; B = 2; }
           message M {
             optional int32 i = 1 [default = -5]; optional string s = 2 [default = "x\"y"];
             optional bytes b = 3 [default = "\x00\xff"]; optional E e = 4 [default = B];
             optional double d = 5 [default = inf]; optional bool t = 6 [default = true]; optional E none = 7;
           }"#,
    );
    let message = schema.message(schema.message_named("M").unwrap());
    let defaults: Vec<_> = message.fields.iter().map(|f| f.default.clone()).collect();
    let expected = [
        Some(DefaultValue::I32(-5)),
        Some(DefaultValue::String("x\"y".into())),
        Some(DefaultValue::Bytes(vec![0, 255])),
        Some(DefaultValue::Enum(2)),
        Some(DefaultValue::F64(f64::INFINITY)),
        Some(DefaultValue::Bool(true)),
        None,
    ];
    assert_eq!(defaults, expected);
}

#[test]
fn maps_are_repeated_entries() {
    let schema = schema(r#"syntax = "proto3"; message M { map<string, M> children = 3; }"#);
    let message = schema.message(schema.message_named("M").unwrap());
    let field = message.field(3).unwrap();
    assert!(field.is_map && field.is_repeated());
    let entry = schema.message(field.message.unwrap());
    assert!(entry.is_map_entry);
    assert_eq!(entry.full_name, "M.ChildrenEntry");
    let kinds: Vec<_> = entry.fields.iter().map(|f| (f.number, f.kind)).collect();
    assert_eq!(kinds, [(1, Kind::String), (2, Kind::Message)]);
}

#[test]
fn services() {
    let schema = schema(
        r#"syntax = "proto3"; package p.v1;
           message M {}
           service S {
             rpc Unary(M) returns (M) { option idempotency_level = NO_SIDE_EFFECTS; }
             rpc Bidi(stream M) returns (stream M) { option idempotency_level = IDEMPOTENT; }
             rpc Plain(stream M) returns (p.v1.M);
           }"#,
    );
    let service = &schema.services()[0];
    assert_eq!(service.full_name, "p.v1.S");
    let facts: Vec<_> = service
        .methods
        .iter()
        .map(|m| (m.path.as_str(), m.client_streaming, m.server_streaming, m.idempotent, m.no_side_effects))
        .collect();
    let expected = [
        ("/p.v1.S/Unary", false, false, true, true),
        ("/p.v1.S/Bidi", true, true, true, false),
        ("/p.v1.S/Plain", true, false, false, false),
    ];
    assert_eq!(facts, expected);
    assert_eq!(schema.method_at("/p.v1.S/Bidi"), schema.method("p.v1.S", "Bidi"));
    assert!(schema.method_at("p.v1.S/Bidi").is_none());
}

/// `FeatureSet` with one feature.
fn feature(number: u32, value: u64) -> Wire {
    Wire::default().number(number, value)
}

/// A field with a feature of its own.
fn with_feature(field: Wire, feature: Wire) -> Wire {
    field.message(8, Wire::default().message(21, feature))
}

const INT32: u64 = 5;
const STRING: u64 = 9;
const MESSAGE: u64 = 11;
const ENUM: u64 = 14;

fn repeated(field: Wire) -> Wire {
    field.number(4, 3)
}

fn edition_2023(messages: impl IntoIterator<Item = Wire>) -> Wire {
    let file = file("e.proto").text(12, "editions").number(14, 1000);
    messages.into_iter().fold(file, |file, message| file.message(4, message))
}

#[test]
fn editions_defaults_and_field_features() {
    let fields = [
        field("plain", 1, INT32),
        with_feature(field("implicit", 2, INT32), feature(1, 2)),
        with_feature(field("must", 3, INT32), feature(1, 3)),
        repeated(field("packed", 4, INT32)),
        with_feature(repeated(field("expanded", 5, INT32)), feature(3, 2)),
        field("verified", 6, STRING),
        with_feature(field("any", 7, STRING), feature(4, 3)),
        field("plain_message", 8, MESSAGE).text(6, ".M"),
        with_feature(field("delimited", 9, MESSAGE).text(6, ".M"), feature(5, 2)),
        with_feature(field("implicit_message", 10, MESSAGE).text(6, ".M"), feature(1, 2)),
    ];
    let schema = Schema::from_descriptor_set(&set(edition_2023([message("M", fields)]))).unwrap();
    use Cardinality::{Implicit, Optional, Repeated, Required};
    assert_eq!(facts(&schema, "plain"), (Optional, false, false, false));
    assert_eq!(facts(&schema, "implicit"), (Implicit, false, false, false));
    assert_eq!(facts(&schema, "must"), (Required, false, false, false));
    assert_eq!(facts(&schema, "packed"), (Repeated, true, false, false));
    assert_eq!(facts(&schema, "expanded"), (Repeated, false, false, false));
    assert_eq!(facts(&schema, "verified"), (Optional, false, true, false));
    assert_eq!(facts(&schema, "any"), (Optional, false, false, false));
    assert_eq!(facts(&schema, "plain_message"), (Optional, false, false, false));
    assert_eq!(facts(&schema, "delimited"), (Optional, false, false, true));
    assert_eq!(facts(&schema, "implicit_message"), (Optional, false, false, false));
}

#[test]
fn features_are_inherited_from_file_and_message() {
    let enumeration = |name: &str, options: Option<Wire>| {
        let value = Wire::default().text(1, &format!("{name}_0")).number(2, 0);
        let e = Wire::default().text(1, name).message(2, value);
        options.into_iter().fold(e, |e, options| e.message(3, options))
    };
    let inner = message("Inner", [field("i", 1, INT32)]);
    let explicit = message("M", [field("i", 1, INT32), field("e", 2, ENUM).text(6, "Closed")])
        .message(3, inner)
        .message(4, enumeration("InM", None))
        .message(7, Wire::default().message(12, feature(1, 1)));
    let file = edition_2023([explicit, message("Other", [field("i", 1, INT32)])])
        .message(5, enumeration("Closed", None))
        .message(5, enumeration("Open", Some(Wire::default().message(7, feature(2, 1)))))
        .message(8, Wire::default().message(50, feature(1, 2)).message(50, feature(2, 2)));
    let schema = Schema::from_descriptor_set(&set(file)).unwrap();
    let cardinality = |name: &str| schema.message(schema.message_named(name).unwrap()).fields[0].cardinality;
    assert_eq!(cardinality("M"), Cardinality::Optional, "the message overrides the file");
    assert_eq!(cardinality("M.Inner"), Cardinality::Optional, "and passes it on");
    assert_eq!(cardinality("Other"), Cardinality::Implicit, "the file's setting");
    let closed: Vec<_> = schema.enums().iter().map(|e| (e.full_name.as_str(), e.closed)).collect();
    assert_eq!(closed, [("Closed", true), ("Open", false), ("M.InM", true)]);
}

#[test]
fn delimited_encoding_spares_maps() {
    let entry = message("FEntry", [field("key", 1, INT32), field("value", 2, MESSAGE).text(6, ".M")])
        .message(7, Wire::default().number(7, 1));
    let map = repeated(field("f", 1, MESSAGE).text(6, ".M.FEntry"));
    let plain = field("m", 2, MESSAGE).text(6, ".M");
    let file = edition_2023([message("M", [map, plain]).message(3, entry)])
        .message(8, Wire::default().message(50, feature(5, 2)));
    let schema = Schema::from_descriptor_set(&set(file)).unwrap();
    assert!(!facts(&schema, "f").3 && facts(&schema, "m").3);
    let entry = schema.message(schema.message_named("M.FEntry").unwrap());
    assert!(entry.fields.iter().all(|f| !f.group));
}
