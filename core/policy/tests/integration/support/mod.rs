//! A message type with every kind of field, and one message of it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::{Arc, LazyLock};
use trunkline_message::{AlignedBuf, Built, DynamicBuilder, MismatchError, Value, View};
use trunkline_policy::{Expression, Inputs, Program, Wanted};
use trunkline_schema::{MessageIndex, Schema};

pub static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let text = r#"
        syntax = "proto3";
        package shop.v1;
        enum Mood { CALM = 0; WILD = 7; }
        message Item { string name = 1; int64 price = 2; repeated string tags = 3; Item part = 4; }
        message Order {
            bool urgent = 1; int32 small = 2; int64 big = 3; uint32 count = 4; uint64 wide = 5; float ratio = 6;
            double weight = 7; string tenant = 8; bytes token = 9; Mood mood = 10; Item item = 11;
            repeated Item items = 12; repeated int64 numbers = 13; repeated string names = 14;
            map<string, int64> scores = 15; map<int32, string> labels = 16; optional int32 maybe = 17;
            oneof way { string road = 18; int32 rail = 19; } repeated bool flags = 20; repeated double reals = 21;
        }
        service Shop { rpc Buy(Order) returns (Item); rpc Stream(stream Order) returns (Item); }
    "#;
    Arc::new(Schema::from_proto_source("shop.proto", text).expect("the schema is sound"))
});

pub fn order() -> MessageIndex {
    SCHEMA.message_named("shop.v1.Order").expect("it is there")
}

/// Builds an order.
pub fn build(
    fill: impl FnOnce(&mut DynamicBuilder<'_, AlignedBuf>) -> Result<(), MismatchError>,
) -> Built<AlignedBuf> {
    DynamicBuilder::build(&SCHEMA, order(), AlignedBuf::new(), fill).expect("it fits")
}

/// An order with most fields set.
pub fn sample() -> Built<AlignedBuf> {
    build(|order| {
        order.set_named("urgent", Value::Bool(true))?;
        order.set_named("small", Value::I32(-3))?;
        order.set_named("big", Value::I64(1 << 40))?;
        order.set_named("count", Value::U32(5))?;
        order.set_named("wide", Value::U64(u64::MAX))?;
        order.set_named("weight", Value::F64(2.5))?;
        order.set_named("tenant", Value::String("blåbär".as_bytes()))?;
        order.set_named("token", Value::Bytes(b"\x00\xff"))?;
        order.set_named("mood", Value::Enum(7))?;
        order.set_named("maybe", Value::I32(0))?;
        order.set_named("rail", Value::I32(0))?;
        let descriptor = order.descriptor();
        let item = descriptor.field_named("item").expect("it is there");
        order.message(item)?.set_named("name", Value::String(b"lamp"))?;
        let items = descriptor.field_named("items").expect("it is there");
        for (name, price) in [("a", 10), ("b", 200)] {
            let mut item = order.push_message(items)?;
            item.set_named("name", Value::String(name.as_bytes()))?;
            item.set_named("price", Value::I64(price))?;
        }
        for number in [4, 5, 6] {
            order.push(descriptor.field_named("numbers").expect("it is there"), Value::I64(number))?;
        }
        let scores = descriptor.field_named("scores").expect("it is there");
        for (key, value) in [("x", 1), ("y", 2), ("x", 3)] {
            let mut entry = order.push_message(scores)?;
            entry.set_named("key", Value::String(key.as_bytes()))?;
            entry.set_named("value", Value::I64(value))?;
        }
        Ok(())
    })
}

pub fn compile(text: &str) -> Result<Program, String> {
    let expression = Expression::parse(text, Wanted::Bool).map_err(|error| error.to_string())?;
    expression.compile(Some((&SCHEMA, order()))).map_err(|error| error.to_string())
}

/// The application that calls.
static CALLER: LazyLock<trunkline_call::VouchedCaller> = LazyLock::new(|| trunkline_call::VouchedCaller {
    identity: "uid:1000".into(),
    name: "till".into(),
    program: "/usr/bin/till".into(),
    services: vec!["shop.v1.Shop".into(), "shop.v1.Till".into()],
});

pub fn inputs<'a>(request: View<'a>, metadata: &'a [u8]) -> Inputs<'a> {
    Inputs {
        request,
        metadata,
        path: "/shop.v1.Shop/Buy",
        application: "till",
        peer_identity: "uid:1000",
        caller: Some(&CALLER),
        peer_address: "",
        deadline: trunkline_call::Deadline::NONE,
        request_bytes: 0,
    }
}

/// `{"tenant": "blue", "retries": "3"}`, encoded.
pub fn metadata() -> Vec<u8> {
    let mut metadata = trunkline_call::Metadata::new();
    metadata.insert("tenant", "blue").expect("legal");
    metadata.insert("retries", "3").expect("legal");
    ["red", "green"].iter().for_each(|value| metadata.insert("two", value).expect("legal"));
    ["same", "same"].iter().for_each(|value| metadata.insert("twice", value).expect("legal"));
    let mut encoded = Vec::new();
    metadata.encode(&mut encoded);
    encoded
}
