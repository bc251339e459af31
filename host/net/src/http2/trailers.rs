//! Finds pseudo-headers in trailers, which make a request malformed (RFC 9113, section 8.1).
//!
//! h2 takes such trailers as if nothing were in them. Pseudo-headers come before all other fields, so the beginning of
//! the header block tells, without decoding it; a name that only the dynamic table knows is passed over.

/// Bytes of a HEADERS frame that are looked at: padding length, priority, two table sizes, and how a field begins.
pub(super) const BEGINNING_BYTES: usize = 24;

const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The last of the static table's pseudo-headers (RFC 7541, appendix A).
const STATIC_PSEUDO_MAX: u8 = 14;
/// The first byte of a Huffman-coded string that begins with a colon: its code has seven bits (RFC 7541, appendix B).
const HUFFMAN_COLON: u8 = 0b1011_1000;

/// Whether the payload of a HEADERS frame, of which this is the beginning, begins with a pseudo-header.
pub(super) fn begins_with_pseudo_header(flags: u8, payload: &[u8]) -> bool {
    let skipped = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let block = without_table_sizes(payload.get(skipped..).unwrap_or_default());
    let Some((&first, rest)) = block.split_first() else { return false };
    let index = match first {
        0x80.. => return (1..=STATIC_PSEUDO_MAX).contains(&(first & 0x7f)),
        0x40.. => first & 0x3f,
        _ => first & 0x0f,
    };
    match (index, rest) {
        (0, [length, byte, ..]) if length & 0x80 != 0 => byte & 0xfe == HUFFMAN_COLON,
        (0, [_, byte, ..]) => *byte == b':',
        (0, _) => false,
        (index, _) => index <= STATIC_PSEUDO_MAX,
    }
}

/// A block may begin with new sizes of the dynamic table (RFC 7541, section 4.2).
fn without_table_sizes(mut block: &[u8]) -> &[u8] {
    while let Some((&first, rest)) = block.split_first().filter(|(first, _)| **first & 0xe0 == 0x20) {
        block = rest;
        if first & 0x1f == 0x1f {
            let more = block.iter().take_while(|byte| **byte & 0x80 != 0).count();
            block = block.get(more + 1..).unwrap_or_default();
        }
    }
    block
}

#[cfg(test)]
mod tests {
    //! Shows which beginnings are pseudo-headers, in every way to write one.
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn beginnings() {
        for (flags, payload, is_pseudo) in [
            (0, &[][..], false),
            (0, &[0x83], true),
            (0, &[0x88], true),
            (0, &[0x8f], false),
            (0, &[0xbe], false),
            (0, b"\x40\x07:status\x03200", true),
            (0, b"\x00\x07:method\x01x", true),
            (0, b"\x10\x07:method\x01x", true),
            (0, b"\x40\x0bgrpc-status\x010", false),
            (0, b"\x44\x06/a.B/C", true),
            (0, b"\x04\x06/a.B/C", true),
            (0, b"\x0f\x10\x01x", false),
            (0, &[0x40, 0x85, 0xb8, 0x84, 0x8d, 0x36, 0xa3], true),
            (0, &[0x40, 0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12], false),
            (0, &[0x20, 0x3f, 0xe1, 0x1f, 0x83], true),
            (0, &[0x3f, 0xff], false),
            (PADDED, &[0x00, 0x83], true),
            (PADDED | PRIORITY, &[0, 0, 0, 0, 1, 7, 0x83], true),
            (PRIORITY, &[0x83, 0x83, 0x83], false),
        ] {
            assert_eq!(begins_with_pseudo_header(flags, payload), is_pseudo, "{flags:#x} {payload:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_harm(
            flags in any::<u8>(),
            payload in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            begins_with_pseudo_header(flags, &payload);
        }
    }
}
