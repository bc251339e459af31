//! Trace context: `grpc-trace-bin`, read and told as W3C `traceparent`.
//!
//! `traceparent` and `tracestate` themselves are ordinary ASCII metadata and pass as they are. The binary form is what
//! OpenCensus libraries send (its BinaryEncoding.md): version 0, then fields of one id byte each: 0 a trace id of 16
//! bytes, 1 a span id of 8 bytes, 2 options of one byte.

use crate::metadata::decode_base64;
use crate::names::{GRPC_TRACE_BIN, TRACEPARENT};
use http::HeaderMap;

/// `00-` trace id `-` span id `-` flags.
const TRACEPARENT_BYTES: usize = 55;
const TRACE_ID: (u8, usize) = (0, 16);
const SPAN_ID: (u8, usize) = (1, 8);
const OPTIONS: (u8, usize) = (2, 1);
const SAMPLED: u8 = 1;

/// The `traceparent` to add to a call that came with the binary form only. What is not well formed is ignored, as both
/// specifications ask.
pub fn traceparent(headers: &HeaderMap) -> Option<[u8; TRACEPARENT_BYTES]> {
    let value = headers.get(GRPC_TRACE_BIN)?;
    if headers.contains_key(TRACEPARENT) || value.len() > 64 {
        return None;
    }
    let mut bytes = Vec::new();
    decode_base64(value.as_bytes(), &mut bytes).then(|| of_binary(&bytes)).flatten()
}

fn of_binary(bytes: &[u8]) -> Option<[u8; TRACEPARENT_BYTES]> {
    let (&version, rest) = bytes.split_first()?;
    if version != 0 {
        return None;
    }
    let (trace_id, rest) = field(rest, TRACE_ID)?;
    let (span_id, rest) = field(rest, SPAN_ID)?;
    let sampled = field(rest, OPTIONS).is_some_and(|(options, _)| options[0] & SAMPLED != 0);
    // All zeros names no trace and no span (W3C, "trace-id", "parent-id").
    if trace_id.iter().chain([&0]).all(|byte| *byte == 0) || span_id.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut out = *b"00-00000000000000000000000000000000-0000000000000000-00";
    hex(trace_id, &mut out[3..35]);
    hex(span_id, &mut out[36..52]);
    hex(&[u8::from(sampled)], &mut out[53..]);
    Some(out)
}

fn field(bytes: &[u8], (id, len): (u8, usize)) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    if found == id { rest.split_at_checked(len) } else { None }
}

fn hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, out) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        out[0] = DIGITS[usize::from(byte >> 4)];
        out[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    //! Shows the binary form told as text, on the example of its specification, and that anything else is ignored.
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const EXAMPLE: [u8; 29] = [
        0, 0, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 1, 97, 98, 99, 100, 101, 102,
        103, 104, 2, 1,
    ];
    const TOLD: &[u8] = b"00-404142434445464748494a4b4c4d4e4f-6162636465666768-01";

    #[test]
    fn the_example_of_the_specification() {
        assert_eq!(of_binary(&EXAMPLE).as_ref().map(|told| &told[..]), Some(TOLD));
        let unsampled = of_binary(&EXAMPLE[..27]).unwrap();
        assert_eq!(&unsampled[..], [&TOLD[..53], b"00"].concat());
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TRACE_BIN, HeaderValue::from_static("AABAQUJDREVGR0hJSktMTU5PAWFiY2RlZmdoAgE"));
        assert_eq!(traceparent(&headers).as_ref().map(|told| &told[..]), Some(TOLD));
        headers.insert(TRACEPARENT, HeaderValue::from_static("theirs"));
        assert_eq!(traceparent(&headers), None);
    }

    #[test]
    fn anything_else_is_ignored() {
        for len in 0..27 {
            assert_eq!(of_binary(&EXAMPLE[..len]), None);
        }
        let changed = |at: usize, value: u8| {
            let mut bytes = EXAMPLE;
            bytes[at] = value;
            bytes
        };
        assert_eq!(of_binary(&changed(0, 1)), None);
        assert_eq!(of_binary(&changed(18, 2)), None);
        let mut nobody = EXAMPLE;
        nobody[2..18].fill(0);
        assert_eq!(of_binary(&nobody), None);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = of_binary(&bytes);
        }
    }
}
