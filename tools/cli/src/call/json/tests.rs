//! Shows the mapping as a whole: which JSON is which message, that every message makes the round, and what is refused.

use super::read::Reader;
use super::{Style, to_json};
use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

const PROTO: &str = r#"
    syntax = "proto3";
    package t;
    import "google/protobuf/any.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/empty.proto";
    import "google/protobuf/field_mask.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    enum Color { RED = 0; GREEN = 1; ALSO_BELOW = -1; }
    message All {
      double double_field = 1;
      float float_field = 2;
      int32 int32_field = 3;
      int64 int64_field = 4;
      uint32 uint32_field = 5;
      uint64 uint64_field = 6;
      sint32 sint32_field = 7;
      sint64 sint64_field = 8;
      fixed32 fixed32_field = 9;
      fixed64 fixed64_field = 10;
      sfixed32 sfixed32_field = 11;
      sfixed64 sfixed64_field = 12;
      bool bool_field = 13;
      string string_field = 14;
      bytes bytes_field = 15;
      Color color = 16;
      optional double maybe = 17;
      repeated double doubles = 18;
      repeated Color colors = 19;
      repeated All children = 20;
      All child = 21;
      map<int32, string> by_number = 22;
      map<bool, double> by_flag = 23;
      map<string, All> by_name = 24;
      oneof either { int32 left = 25; google.protobuf.NullValue nothing = 26; }
      google.protobuf.DoubleValue wrapped_double = 30;
      google.protobuf.FloatValue wrapped_float = 31;
      google.protobuf.Int64Value wrapped_int64 = 32;
      google.protobuf.UInt64Value wrapped_uint64 = 33;
      google.protobuf.Int32Value wrapped_int32 = 34;
      google.protobuf.BoolValue wrapped_bool = 35;
      google.protobuf.StringValue wrapped_string = 36;
      google.protobuf.BytesValue wrapped_bytes = 37;
      google.protobuf.Timestamp at = 40;
      google.protobuf.Duration lasts = 41;
      google.protobuf.FieldMask mask = 42;
      google.protobuf.Struct object = 43;
      google.protobuf.Value value = 44;
      google.protobuf.ListValue list = 45;
      google.protobuf.Any any = 46;
      google.protobuf.Empty empty = 47;
      repeated google.protobuf.Value values = 48;
    }
"#;

fn all() -> MessageDescriptor {
    let set = trunkline_schema::compile_proto_source("t.proto", PROTO).unwrap();
    DescriptorPool::decode(&*set).unwrap().get_message_by_name("t.All").unwrap()
}

/// The JSON of the message that JSON stands for.
fn round(json: &str) -> Result<String, String> {
    let value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let bytes = Reader { allow_unknown: false }.message(&all(), &value).map_err(|wrong| wrong.to_string())?;
    to_json(&all(), &bytes, Style::LINE)
}

#[test]
fn every_form_is_read_and_one_is_written() {
    for (json, written) in [
        (
            r#"{"doubleField": "NaN", "floatField": "-Infinity"}"#,
            r#"{"doubleField":"NaN","floatField":"-Infinity"}"#,
        ),
        (r#"{"doubleField": -0.0, "floatField": "-0"}"#, r#"{"doubleField":-0.0,"floatField":-0.0}"#),
        (
            r#"{"double_field": "1e3", "doubles": [-0.0, "Infinity"]}"#,
            r#"{"doubleField":1000.0,"doubles":[-0.0,"Infinity"]}"#,
        ),
        (
            r#"{"int32Field": 1e2, "int64Field": "-1.0", "uint32Field": "4294967295"}"#,
            r#"{"int32Field":100,"int64Field":"-1","uint32Field":4294967295}"#,
        ),
        (
            r#"{"uint64Field": 18446744073709551615, "sint64Field": -9223372036854775808}"#,
            r#"{"uint64Field":"18446744073709551615","sint64Field":"-9223372036854775808"}"#,
        ),
        (
            r#"{"sint32Field": -2, "fixed32Field": 7, "fixed64Field": "8", "sfixed32Field": -9, "sfixed64Field": -10}"#,
            r#"{"sint32Field":-2,"fixed32Field":7,"fixed64Field":"8","sfixed32Field":-9,"sfixed64Field":"-10"}"#,
        ),
        (
            r#"{"color": 1, "colors": ["RED", 1.0, -1, 77]}"#,
            r#"{"color":"GREEN","colors":["RED","GREEN","ALSO_BELOW",77]}"#,
        ),
        (
            r#"{"bytesField": "-_8", "boolField": true, "stringField": "\u00e9"}"#,
            r#"{"boolField":true,"stringField":"é","bytesField":"+/8="}"#,
        ),
        (
            r#"{"maybe": 0, "child": {}, "children": [{"maybe": 1}]}"#,
            r#"{"maybe":0.0,"children":[{"maybe":1.0}],"child":{}}"#,
        ),
        (
            r#"{"byNumber": {"1e1": "a", "-1": ""}, "byFlag": {"true": -0.0}}"#,
            r#"{"byNumber":{"-1":"","10":"a"},"byFlag":{"true":-0.0}}"#,
        ),
        (
            r#"{"byName": {"": {"left": 0}}, "int32Field": null, "child": null}"#,
            r#"{"byName":{"":{"left":0}}}"#,
        ),
        (r#"{"nothing": null, "left": null}"#, r#"{"nothing":null}"#),
        (
            r#"{"wrappedDouble": "NaN", "wrappedFloat": -0.0, "wrappedInt64": 1, "wrappedUint64": "0"}"#,
            r#"{"wrappedDouble":"NaN","wrappedFloat":-0.0,"wrappedInt64":"1","wrappedUint64":"0"}"#,
        ),
        (
            r#"{"wrappedInt32": "1e1", "wrappedBool": false, "wrappedString": "", "wrappedBytes": "AA"}"#,
            r#"{"wrappedInt32":10,"wrappedBool":false,"wrappedString":"","wrappedBytes":"AA=="}"#,
        ),
        (
            r#"{"at": "2026-01-31T01:00:00.5+01:00", "lasts": "-0.25s"}"#,
            r#"{"at":"2026-01-31T00:00:00.500Z","lasts":"-0.250s"}"#,
        ),
        (r#"{"mask": "a.bC,d"}"#, r#"{"mask":"a.bC,d"}"#),
        (r#"{"mask": "", "empty": {}}"#, r#"{"mask":"","empty":{}}"#),
        (
            r#"{"object": {"a": [1, null, {"b": "c"}]}, "list": [], "value": null}"#,
            r#"{"object":{"a":[1.0,null,{"b":"c"}]},"value":null,"list":[]}"#,
        ),
        (r#"{"values": [null, true]}"#, r#"{"values":[null,true]}"#),
        (
            r#"{"any": {"@type": "x/t.All", "int32Field": 1}}"#,
            r#"{"any":{"@type":"x/t.All","int32Field":1}}"#,
        ),
        (
            r#"{"any": {"value": "1s", "@type": "x/google.protobuf.Duration"}}"#,
            r#"{"any":{"@type":"x/google.protobuf.Duration","value":"1s"}}"#,
        ),
        (r#"{"any": {}}"#, r#"{"any":{}}"#),
    ] {
        assert_eq!(round(json).as_deref(), Ok(written), "{json}");
        assert_eq!(round(written).as_deref(), Ok(written), "{json}");
    }
}

#[test]
fn what_is_refused_is_named() {
    for (json, reason) in [
        (r#"{"at": "1972-06-30T23:59:60Z"}"#, "at: \"1972-06-30T23:59:60Z\" is not a time"),
        (r#"{"at": "2026-01-01T00:00:00.1234567891Z"}"#, "the fraction has 1 to 9 digits"),
        (r#"{"lasts": "1.1234567891s"}"#, "lasts: \"1.1234567891s\" is not a length of time"),
        (r#"{"mask": "a,,b"}"#, "mask: \"\" in \"a,,b\" is not a path of fields"),
        (r#"{"int32Field": 2147483648}"#, "int32Field: 2147483648 is not between -2147483648 and 2147483647"),
        (r#"{"uint64Field": 1.8446744073709552e19}"#, "uint64Field: "),
        (r#"{"int64Field": 9.223372036854775808e18}"#, "int64Field: "),
        (r#"{"child": {"doubles": [1, "inf"]}}"#, "child.doubles.1: \"inf\" is not a number"),
        (r#"{"byNumber": {"x": ""}}"#, "byNumber.[\"x\"]: "),
        (r#"{"doubles": [null]}"#, "doubles.0: expected a number, found null"),
        (r#"{"color": "BLUE"}"#, "color: t.Color has no value \"BLUE\""),
        (r#"{"colors": [1.5]}"#, "colors.0: 1.5 is not an integer"),
        (r#"{"left": 1, "nothing": null}"#, "is the second of oneof \"either\""),
        (r#"{"int32Field": 1, "int32_field": 2}"#, "is there twice, by both of its names"),
        (r#"{"any": {"int32Field": 1}}"#, "any: there is no \"@type\""),
        (r#"{"any": {"@type": "x/t.Other"}}"#, "any: \"@type\": \"x/t.Other\" names no message"),
        (
            r#"{"any": {"@type": "x/google.protobuf.Duration", "value": "1s", "more": 1}}"#,
            "\"more\" stands beside",
        ),
        (r#"{"bytesField": "*"}"#, "bytesField: \"*\" is not base64"),
        (r#"{"child": []}"#, "child: expected an object of fields, found an array"),
        ("[]", "expected an object of fields, found an array"),
        (r#"{"boolField": "true"}"#, "boolField: expected a boolean, found a string"),
    ] {
        let error = round(json).unwrap_err();
        assert!(error.contains(reason), "{json}: {error}");
    }
}

#[test]
fn what_has_no_json_is_said() {
    let written = |name: &str, value: Value| {
        let mut message = DynamicMessage::new(all());
        let field = all().get_field_by_name(name).unwrap();
        let mut inner = DynamicMessage::new(field.kind().as_message().unwrap().clone());
        inner.set_field_by_number(1, value);
        message.set_field(&field, Value::Message(inner));
        to_json(&all(), &message.encode_to_vec(), Style::LINE)
    };
    for (name, value, reason) in [
        ("mask", Value::List(vec![Value::String(String::new())]), "the path \"\" has no JSON"),
        ("mask", Value::List(vec![Value::String("fooBar".to_owned())]), "the path \"fooBar\" has no JSON"),
        ("at", Value::I64(i64::MAX), "out of range"),
        ("lasts", Value::I64(i64::MIN), "out of range"),
        ("any", Value::String("x/t.Other".to_owned()), "not known here"),
    ] {
        let error = written(name, value).unwrap_err();
        assert!(error.contains(reason), "{name}: {error}");
    }
}

#[test]
fn anys_within_each_other_end_somewhere() {
    let any = |url: &str, value: Vec<u8>| {
        let mut out = Vec::new();
        prost::encoding::string::encode(1, &url.to_owned(), &mut out);
        prost::encoding::bytes::encode(2, &value, &mut out);
        out
    };
    let nested = |depth: usize| {
        let inner = (0..depth).fold(Vec::new(), |inner, _| any("x/google.protobuf.Any", inner));
        let mut out = Vec::new();
        prost::encoding::bytes::encode(46, &inner, &mut out);
        to_json(&all(), &out, Style::LINE)
    };
    assert!(nested(20).is_ok());
    assert!(nested(2_000).unwrap_err().contains("more than 32 Anys within each other"));
}

#[test]
fn unknown_names_are_passed_over_if_that_is_asked_for() {
    let value = serde_json::json!({"new": 1, "color": "BLUE", "colors": ["BLUE", "GREEN"], "int32Field": 1});
    let bytes = Reader { allow_unknown: true }.message(&all(), &value).unwrap();
    assert_eq!(to_json(&all(), &bytes, Style::LINE).unwrap(), r#"{"int32Field":1,"colors":["GREEN"]}"#);
}

proptest! {
    #[test]
    fn every_message_makes_the_round(
        double: u64, float: u32, int64: i64, uint64: u64, int32: i32, uint32: u32, flag: bool,
        text in ".{0,8}", blob: Vec<u8>, seconds in 0i64..253_402_300_799, nanos in 0i32..1_000_000_000,
    ) {
        let mut message = DynamicMessage::new(all());
        // All NaNs are one in JSON.
        let double = Some(f64::from_bits(double)).filter(|d| !d.is_nan()).unwrap_or(f64::NAN);
        let float = Some(f32::from_bits(float)).filter(|f| !f.is_nan()).unwrap_or(f32::NAN);
        for (number, value) in [
            (1, Value::F64(double)), (2, Value::F32(float)), (3, Value::I32(int32)), (4, Value::I64(int64)),
            (5, Value::U32(uint32)), (6, Value::U64(uint64)), (7, Value::I32(int32)), (8, Value::I64(int64)),
            (9, Value::U32(uint32)), (10, Value::U64(uint64)), (11, Value::I32(int32)), (12, Value::I64(int64)),
            (13, Value::Bool(flag)), (14, Value::String(text.clone())), (15, Value::Bytes(blob.clone().into())),
            (16, Value::EnumNumber(int32)), (17, Value::F64(double)),
            (18, Value::List(vec![Value::F64(double)])),
        ] {
            message.set_field_by_number(number, value);
        }
        for (number, first, second) in [
            (30, Value::F64(double), None), (31, Value::F32(float), None), (37, Value::Bytes(blob.into()), None),
            (40, Value::I64(seconds), Some(Value::I32(nanos))), (41, Value::I64(-seconds), Some(Value::I32(-nanos))),
        ] {
            let of = all().get_field(number).unwrap().kind().as_message().unwrap().clone();
            let mut inner = DynamicMessage::new(of);
            inner.set_field_by_number(1, first);
            second.into_iter().for_each(|second| inner.set_field_by_number(2, second));
            message.set_field_by_number(number, Value::Message(inner));
        }
        let bytes = message.encode_to_vec();
        let json = to_json(&all(), &bytes, Style::LINE).unwrap();
        let back = Reader { allow_unknown: false }.message(&all(), &serde_json::from_str(&json).unwrap()).unwrap();
        prop_assert_eq!(DynamicMessage::decode(all(), &*back).unwrap().encode_to_vec(), bytes, "{}", json);
        prop_assert_eq!(to_json(&all(), &back, Style::LINE).unwrap(), json);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        if let Ok(json) = to_json(&all(), &bytes, Style::LINE) {
            prop_assert!(round(&json).is_ok(), "{}", json);
        }
    }
}
