//! Random wire bytes that fit a schema: any order, repeated and interleaved, packed or not, with unknown fields.

use trunkline_schema::{Field, Kind, MessageIndex, Schema};

use super::Random;

/// Appends a varint, now and then longer than it need be.
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v > 0x7f {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

pub fn put_delimited(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What values enums get.
#[derive(Clone, Copy, PartialEq)]
pub enum Enums {
    /// Closed ones those they have, for prost does not know that they are closed.
    Declared,
    /// Any.
    Any,
}

/// Random fields for a message, `weight` of them about.
pub fn random_wire(random: &mut Random, schema: &Schema, index: MessageIndex, weight: usize) -> Vec<u8> {
    wire_with(random, schema, index, weight, Enums::Declared)
}

/// As [`random_wire`], with a choice of enum values.
pub fn wire_with(
    random: &mut Random,
    schema: &Schema,
    index: MessageIndex,
    weight: usize,
    enums: Enums,
) -> Vec<u8> {
    let message = schema.message(index);
    let mut out = Vec::new();
    let occurrences = random.below(weight + 1);
    for _ in 0..occurrences {
        if !message.is_map_entry && (message.fields.is_empty() || random.once_in(12)) {
            unknown_field(random, schema, index, &mut out);
            continue;
        }
        let field = &message.fields[random.below(message.fields.len())];
        let run = if field.is_repeated() { 1 + random.below(4) } else { 1 };
        for _ in 0..run {
            put_field(random, schema, field, weight / 2, enums, &mut out);
        }
    }
    out
}

fn put_field(
    random: &mut Random,
    schema: &Schema,
    field: &Field,
    weight: usize,
    enums: Enums,
    out: &mut Vec<u8>,
) {
    match (field.kind, field.message) {
        (Kind::Message, Some(child)) => {
            let body = wire_with(random, schema, child, weight, enums);
            if field.group {
                put_tag(out, field.number, 3);
                out.extend_from_slice(&body);
                put_tag(out, field.number, 4);
            } else {
                put_delimited(out, field.number, &body);
            }
        }
        (Kind::String, _) => put_delimited(out, field.number, random_text(random).as_bytes()),
        (Kind::Bytes, _) => put_delimited(out, field.number, &random_bytes(random)),
        _ if field.is_repeated() && random.once_in(2) => {
            let mut body = Vec::new();
            for _ in 0..random.below(6) {
                put_scalar(random, schema, field, enums, &mut body);
            }
            put_delimited(out, field.number, &body);
        }
        _ => {
            put_tag(out, field.number, scalar_wire_type(field.kind));
            put_scalar(random, schema, field, enums, out);
        }
    }
}

fn scalar_wire_type(kind: Kind) -> u32 {
    match kind {
        Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
        Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
        _ => 0,
    }
}

fn put_scalar(random: &mut Random, schema: &Schema, field: &Field, enums: Enums, out: &mut Vec<u8>) {
    // All lengths of number are as likely as one another.
    let v = random.bits() >> random.below(64);
    match field.kind {
        Kind::Bool => put_varint(out, v & 1),
        Kind::Int32 | Kind::Int64 | Kind::Uint64 | Kind::Sint64 => put_varint(out, v),
        Kind::Uint32 | Kind::Sint32 => put_varint(out, u64::from(v as u32)),
        Kind::Enum => put_varint(out, enum_value(random, schema, field, v, enums)),
        Kind::Fixed32 | Kind::Sfixed32 => out.extend_from_slice(&(v as u32).to_le_bytes()),
        Kind::Fixed64 | Kind::Sfixed64 => out.extend_from_slice(&v.to_le_bytes()),
        // Numbers, since NaN is not equal to itself and minus zero is to zero.
        Kind::Float => out.extend_from_slice(&(v as u16 as f32).to_le_bytes()),
        _ => out.extend_from_slice(&(v as u32 as f64).to_le_bytes()),
    }
}

fn enum_value(random: &mut Random, schema: &Schema, field: &Field, v: u64, enums: Enums) -> u64 {
    let enumeration = schema.enumeration(field.enumeration.unwrap());
    let known = enumeration.closed && (enums == Enums::Declared || random.once_in(2));
    let number = if known { *random.pick(&enumeration.numbers) } else { v as i32 };
    i64::from(number) as u64
}

pub fn random_text(random: &mut Random) -> String {
    let alphabet: Vec<char> = "abcdefghijklmnopqrstuvwxyz0123456789 _äß\u{20ac}\u{1f9ed}".chars().collect();
    let len = random.below(6) * random.below(12);
    let ascii = random.once_in(2);
    (0..len).map(|_| alphabet[random.below(if ascii { 36 } else { alphabet.len() })]).collect()
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let len = random.below(6) * random.below(12);
    (0..len).map(|_| random.bits() as u8).collect()
}

/// A field with a number the message does not have.
pub fn unknown_field(random: &mut Random, schema: &Schema, index: MessageIndex, out: &mut Vec<u8>) {
    let mut number = 1 + random.below(40) as u32 * (1 + random.below(60) as u32);
    while schema.message(index).field(number).is_some() {
        number += 1;
    }
    unknown_value(random, number, 3, out);
}

pub fn unknown_value(random: &mut Random, number: u32, depth: usize, out: &mut Vec<u8>) {
    let v = random.bits() >> random.below(64);
    match random.below(if depth == 0 { 4 } else { 5 }) {
        0 => {
            put_tag(out, number, 0);
            put_varint(out, v);
        }
        1 => {
            put_tag(out, number, 1);
            out.extend_from_slice(&v.to_le_bytes());
        }
        2 => {
            put_tag(out, number, 5);
            out.extend_from_slice(&(v as u32).to_le_bytes());
        }
        3 => put_delimited(out, number, &random_bytes(random)),
        _ => {
            put_tag(out, number, 3);
            for _ in 0..random.below(3) {
                let inner = 1 + random.below(3000) as u32;
                unknown_value(random, inner, depth - 1, out);
            }
            put_tag(out, number, 4);
        }
    }
}

/// Changes a few bytes: flips, sets, cuts, doubles.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return bytes.push(random.bits() as u8);
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = *random.pick(&[0, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.bits() as u8),
            4 => drop(bytes.remove(at)),
            _ => {
                let until = at + random.below(bytes.len() - at + 1);
                let piece = bytes[at..until].to_vec();
                bytes.extend_from_slice(&piece);
            }
        }
    }
}
