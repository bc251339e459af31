//! Shows that envelopes are what docs/r2p2.md says, that what is written is read again, and that no bytes panic.

use proptest::prelude::*;
use trunkline_call::{Code, Execution};
use trunkline_r2p2::{EnvelopeError, ReplyEnvelope, RequestEnvelope};

const PAGE: &str = include_str!("../../../../docs/r2p2.md");
const ADA: &[u8] = b"\x0a\x03Ada";

/// A fenced `hex` block of the page.
fn example(name: &str) -> Vec<u8> {
    let begin = format!("```hex {name}\n");
    let (_, rest) = PAGE.split_once(&begin).unwrap_or_else(|| panic!("no example {name}"));
    let (block, _) = rest.split_once("```").unwrap();
    let digits: String =
        block.lines().flat_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_pages_examples() {
    let path = "/greeter.v1.Greeter/SayHello";
    let request = RequestEnvelope { path, message: ADA, ..RequestEnvelope::default() };
    assert_eq!(request.encode().unwrap(), example("envelope-request"));
    assert_eq!(RequestEnvelope::parse(&example("envelope-request")), Ok(request));
    let reply = ReplyEnvelope { message: Some(ADA), ..ReplyEnvelope::of(Code::Ok, Execution::Executed) };
    assert_eq!(reply.encode().unwrap(), example("envelope-reply"));
    assert_eq!(ReplyEnvelope::parse(&example("envelope-reply")), Ok(reply));
}

#[test]
fn what_is_wrong_is_said() {
    let whole = example("envelope-request");
    assert_eq!(RequestEnvelope::parse(&[]), Err(EnvelopeError::Short { found: 0, needed: 24 }));
    assert_eq!(RequestEnvelope::parse(&whole[..30]), Err(EnvelopeError::Short { found: 30, needed: 52 }));
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        RequestEnvelope::parse(&bytes).err()
    };
    assert_eq!(with(0, 2), Some(EnvelopeError::Version(2)));
    assert_eq!(with(24, 0xff), Some(EnvelopeError::Path));
    let long = "x".repeat(70_000);
    assert_eq!(RequestEnvelope { path: &long, ..RequestEnvelope::default() }.encode(), None);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        path in "[ -~]{0,40}",
        words in proptest::collection::vec(any::<u8>(), 0..50),
        message in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        is_linear: bool,
        is_unreadable: bool,
        fingerprints: [u64; 2],
        code in 0u16..17,
    ) {
        let metadata = words.as_slice();
        let said = message.as_deref().unwrap_or_default();
        let request = RequestEnvelope { path: &path, is_linear, fingerprints, metadata, message: said };
        let bytes = request.encode().unwrap();
        prop_assert_eq!(RequestEnvelope::parse(&bytes), Ok(request));
        let reply = ReplyEnvelope {
            code: Code::from_number(code),
            execution: Execution::Unknown,
            is_linear,
            is_unreadable,
            fingerprint: fingerprints[0],
            headers: is_linear.then_some(metadata),
            trailers: metadata,
            message: message.as_deref(),
        };
        let bytes = reply.encode().unwrap();
        prop_assert_eq!(ReplyEnvelope::parse(&bytes), Ok(reply));
    }

    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), version: bool) {
        if let Some(first) = bytes.first_mut().filter(|_| version) {
            *first = 1;
        }
        let _ = (RequestEnvelope::parse(&bytes), ReplyEnvelope::parse(&bytes));
    }
}
