//! The fields of a protobuf message as they stand on the wire, one by one, without a type.
//!
//! For what looks at few messages and keeps none: samples are redacted and compared by it. What carries calls uses the
//! transcoder, which is many times as fast.

use crate::place::DEPTH_MAX;
use thiserror::Error;

/// A protobuf message that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlainFault {
    /// It ends within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// A tag or a length that is none.
    #[error("a tag or a length that is none")]
    Tag,
    /// A group's end without its start, or the other way round.
    #[error("a group without its other end")]
    Group,
    /// More than [`DEPTH_MAX`] messages within each other.
    #[error("more than {DEPTH_MAX} messages within each other")]
    Depth,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainValue<'a> {
    /// A varint.
    Varint(u64),
    /// Eight bytes.
    Fixed64(&'a [u8]),
    /// Four bytes.
    Fixed32(&'a [u8]),
    /// A string, bytes, a message, or packed numbers.
    Delimited(&'a [u8]),
    /// What stands between a group's tags.
    Group(&'a [u8]),
}

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainField<'a> {
    /// Its number.
    pub number: u32,
    /// What it holds.
    pub value: PlainValue<'a>,
    /// All of it, tags included.
    pub bytes: &'a [u8],
}

/// The fields of a message, in their order.
#[derive(Clone, Copy, Debug)]
pub struct PlainFields<'a> {
    rest: &'a [u8],
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const DELIMITED: u32 = 2;
const START: u32 = 3;
const END: u32 = 4;
const FIXED32: u32 = 5;

impl<'a> PlainFields<'a> {
    /// Of these bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; `None` after the last.
    fn read(&mut self) -> Result<PlainField<'a>, PlainFault> {
        let all = self.rest;
        let (number, kind, mut at) = tag(all)?;
        let value = match kind {
            START => {
                let (inner, bytes) = group(&all[at..], number)?;
                at += bytes;
                PlainValue::Group(inner)
            }
            END => return Err(PlainFault::Group),
            _ => {
                let (value, bytes) = scalar(&all[at..], kind)?;
                at += bytes;
                value
            }
        };
        let (bytes, rest) = all.split_at(at);
        self.rest = rest;
        Ok(PlainField { number, value, bytes })
    }
}

impl<'a> Iterator for PlainFields<'a> {
    type Item = Result<PlainField<'a>, PlainFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

impl PlainValue<'_> {
    /// The number that says on the wire how it is written.
    pub(crate) fn wire_type(&self) -> u32 {
        match self {
            Self::Varint(_) => VARINT,
            Self::Fixed64(_) => FIXED64,
            Self::Fixed32(_) => FIXED32,
            Self::Delimited(_) => DELIMITED,
            Self::Group(_) => START,
        }
    }
}

/// Writes a tag.
pub(crate) fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

/// Writes the tag that ends a group.
pub(crate) fn put_group_end(out: &mut Vec<u8>, number: u32) {
    put_tag(out, number, END);
}

/// Writes a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Number, wire type and length of the tag at the beginning.
fn tag(bytes: &[u8]) -> Result<(u32, u32, usize), PlainFault> {
    let (tag, at) = read_varint(bytes)?;
    let tag = u32::try_from(tag).map_err(|_| PlainFault::Tag)?;
    if at > 5 || tag >> 3 == 0 {
        return Err(PlainFault::Tag);
    }
    Ok((tag >> 3, tag & 7, at))
}

/// The varint at the beginning, and its length.
pub(crate) fn read_varint(bytes: &[u8]) -> Result<(u64, usize), PlainFault> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Ok((value, index + 1));
        }
    }
    Err(if bytes.len() < 10 { PlainFault::Truncated } else { PlainFault::Tag })
}

/// A value that is no group, and its length.
fn scalar(bytes: &[u8], kind: u32) -> Result<(PlainValue<'_>, usize), PlainFault> {
    let first = |count: usize| bytes.get(..count).ok_or(PlainFault::Truncated);
    match kind {
        VARINT => read_varint(bytes).map(|(value, count)| (PlainValue::Varint(value), count)),
        FIXED64 => Ok((PlainValue::Fixed64(first(8)?), 8)),
        FIXED32 => Ok((PlainValue::Fixed32(first(4)?), 4)),
        DELIMITED => {
            let (len, at) = read_varint(bytes)?;
            let end = usize::try_from(len).ok().and_then(|len| len.checked_add(at));
            let end = end.ok_or(PlainFault::Truncated)?;
            let inner = bytes.get(at..end).ok_or(PlainFault::Truncated)?;
            Ok((PlainValue::Delimited(inner), end))
        }
        _ => Err(PlainFault::Tag),
    }
}

/// What stands before the end of the group whose start has been read, and the length up to behind that end.
fn group(bytes: &[u8], number: u32) -> Result<(&[u8], usize), PlainFault> {
    let mut open = vec![number];
    let mut at = 0;
    while at < bytes.len() {
        let (number, kind, len) = tag(&bytes[at..])?;
        let begins = at;
        at += len;
        match kind {
            START if open.len() >= DEPTH_MAX as usize => return Err(PlainFault::Depth),
            START => open.push(number),
            END if open.pop() != Some(number) => return Err(PlainFault::Group),
            END if open.is_empty() => return Ok((&bytes[..begins], at)),
            END => {}
            _ => at += scalar(&bytes[at..], kind)?.1,
        }
    }
    Err(PlainFault::Group)
}

#[cfg(test)]
mod tests {
    //! Shows fields of every wire type, and what is refused.
    use super::*;
    use proptest::prelude::*;

    fn fields(bytes: &[u8]) -> Result<Vec<PlainField<'_>>, PlainFault> {
        PlainFields::of(bytes).collect()
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = [
            &[0x08, 0x96, 0x01][..],
            &[0x11, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1a, 2, b'h', b'i'],
            &[0x23, 0x08, 1, 0x2b, 0x2c, 0x24],
            &[0x35, 1, 2, 3, 4],
        ]
        .concat();
        let read = fields(&bytes).unwrap();
        let values: Vec<(u32, PlainValue<'_>)> =
            read.iter().map(|field| (field.number, field.value)).collect();
        let expected = [
            (1, PlainValue::Varint(150)),
            (2, PlainValue::Fixed64(&[1, 2, 3, 4, 5, 6, 7, 8])),
            (3, PlainValue::Delimited(b"hi")),
            (4, PlainValue::Group(&[0x08, 1, 0x2b, 0x2c])),
            (6, PlainValue::Fixed32(&[1, 2, 3, 4])),
        ];
        assert_eq!(values, expected);
        assert_eq!(read.iter().map(|field| field.bytes.len()).sum::<usize>(), bytes.len());
    }

    #[test]
    fn what_is_no_message_is_named() {
        let deep = [0x0b].repeat(DEPTH_MAX as usize + 1);
        for (bytes, fault) in [
            (&[0x08][..], PlainFault::Truncated),
            (&[0x0a, 5, 1], PlainFault::Truncated),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], PlainFault::Truncated),
            (&[0x00, 1], PlainFault::Tag),
            (&[0x0e], PlainFault::Tag),
            (&[0xff; 12], PlainFault::Tag),
            (&[0x0b, 0x14], PlainFault::Group),
            (&[0x0b], PlainFault::Group),
            (&[0x0c], PlainFault::Group),
            (&deep, PlainFault::Depth),
        ] {
            assert_eq!(fields(bytes), Err(fault), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn fields_are_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(read) = fields(&bytes) {
                let again: Vec<u8> = read.iter().flat_map(|field| field.bytes).copied().collect();
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
