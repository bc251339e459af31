//! The protobuf wire format, as far as descriptors need it: bytes cut into numbered fields, nothing copied.

/// One field of an encoded message. Fixed-width fields do not occur in descriptors and are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
}

/// What about the bytes is not protobuf.
pub(crate) type Malformed = &'static str;

/// Groups within groups that are skipped; the same bound protobuf parsers put on nesting.
const GROUP_DEPTH_MAX: u32 = 100;

/// The fields of one encoded message in wire order. Ends after the first error.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn step(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        let mut group_depth = 0;
        while !self.rest.is_empty() {
            let (number, wire_type) = self.tag()?;
            let value = match wire_type {
                0 => Some(Value::Varint(self.varint()?)),
                2 => Some(Value::Bytes(self.length_delimited()?)),
                _ => {
                    self.skip(wire_type, &mut group_depth)?;
                    None
                }
            };
            if let (Some(value), 0) = (value, group_depth) {
                return Ok(Some((number, value)));
            }
        }
        if group_depth == 0 { Ok(None) } else { Err("a group is not closed") }
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = u32::try_from(self.varint()?).map_err(|_| "a tag exceeds 32 bits")?;
        if tag >> 3 == 0 { Err("field number 0") } else { Ok((tag >> 3, (tag & 7) as u8)) }
    }

    fn skip(&mut self, wire_type: u8, group_depth: &mut u32) -> Result<(), Malformed> {
        match wire_type {
            1 => self.take(8).map(drop),
            5 => self.take(4).map(drop),
            3 if *group_depth < GROUP_DEPTH_MAX => {
                *group_depth += 1;
                Ok(())
            }
            4 if *group_depth > 0 => {
                *group_depth -= 1;
                Ok(())
            }
            3 => Err("groups are nested too deeply"),
            4 => Err("a group ends that never began"),
            _ => Err("a wire type that does not exist"),
        }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                if i == 9 && byte > 1 {
                    return Err("a varint exceeds 64 bits");
                }
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err("a varint does not end")
    }

    fn length_delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a length exceeds memory")?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or("a length reaches past the end")?;
        self.rest = rest;
        Ok(head)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        step.transpose()
    }
}

impl<'a> Value<'a> {
    /// The value as text, if it is a length-delimited field.
    pub(crate) fn text(self) -> Result<&'a str, Malformed> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| "text is not UTF-8"),
            Self::Varint(_) => Err("text has the wire type of a number"),
        }
    }

    /// The value as an encoded message.
    pub(crate) fn message(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) => Err("a message has the wire type of a number"),
        }
    }

    /// The value as an `int32` or enum: the low 32 bits, as every protobuf parser takes them.
    pub(crate) fn int32(self) -> Result<i32, Malformed> {
        match self {
            Self::Varint(value) => Ok(value as u32 as i32),
            Self::Bytes(_) => Err("a number has the wire type of text"),
        }
    }

    pub(crate) fn bool(self) -> Result<bool, Malformed> {
        self.int32().map(|value| value != 0)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that fields come out in order, that fixed-width fields and groups are passed over, and that every
    //! way of being cut short is an error, once.
    use super::*;

    fn cut(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        Fields::new(bytes).collect()
    }

    #[test]
    fn fields_in_order() {
        let bytes = [0x08, 0x96, 0x01, 0x0d, 1, 2, 3, 4, 0x13, 0x08, 0x01, 0x14, 0x1a, 0x02, b'h', b'i'];
        assert_eq!(cut(&bytes).unwrap(), [(1, Value::Varint(150)), (3, Value::Bytes(b"hi"))]);
    }

    #[test]
    fn cut_short_anywhere_is_an_error() {
        let cases: [&[u8]; 9] = [
            &[0x08],
            &[0x08, 0x80],
            &[0x0a, 0x02, 1],
            &[0x0d, 1, 2],
            &[0x13, 0x08, 0x01],
            &[0x14],
            &[0x00, 0x00],
            &[0x0e],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ];
        for bytes in cases {
            assert!(cut(bytes).is_err(), "{bytes:?}");
            assert_eq!(Fields::new(bytes).count(), 1, "{bytes:?} must err once and end");
        }
    }

    #[test]
    fn groups_nest_to_a_limit() {
        let nested = |n: usize| [vec![0x0b; n], vec![0x0c; n]].concat();
        assert_eq!(cut(&nested(100)).unwrap(), []);
        assert!(cut(&nested(101)).is_err());
    }
}
