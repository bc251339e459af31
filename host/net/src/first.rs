//! What an accepted connection is, by its first bytes.

/// What its first bytes say a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Too few bytes to tell.
    Unclear,
    /// The native protocol.
    Native,
    /// HTTP/2, known beforehand (RFC 9113, section 3.3).
    Http2,
    /// A TLS ClientHello (RFC 8446, section 5.1).
    Tls,
    /// A request of HTTP/1: [`HTTP1_ANSWER`] is the polite end.
    Http1,
    /// Nothing that is known here.
    Unknown,
}

/// What a client of HTTP/1 is told.
pub const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain\r\ncontent-length: 63\r\nconnection: close\r\n\r\n\
    This port speaks gRPC: HTTP/2 with prior knowledge, or TLS h2.\n";

/// What a client of TLS is told where no certificate is configured: the alert handshake_failure.
pub const TLS_REFUSAL: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];

/// Most bytes that are needed to tell: a request line of HTTP/1 has no end of its own.
pub const FIRST_BYTES_MAX: usize = 4096;

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HTTP1: &[u8] = b" HTTP/1.";
/// Handshake record, any version of TLS.
const TLS: [u8; 2] = [0x16, 3];
/// Longest method: those registered have up to 17 letters.
const METHOD_BYTES_MAX: usize = 20;

impl First {
    /// Reads the first bytes. `native` is what the native protocol begins with.
    pub fn of(bytes: &[u8], native: &[u8]) -> Self {
        let known = [(native, Self::Native), (HTTP2, Self::Http2), (&TLS[..], Self::Tls)];
        if let Some((_, found)) = known.iter().find(|(start, _)| bytes.starts_with(start)) {
            return *found;
        }
        if known.iter().any(|(start, _)| start.starts_with(bytes)) {
            return Self::Unclear;
        }
        match bytes.iter().take(METHOD_BYTES_MAX + 1).position(|byte| !byte.is_ascii_uppercase()) {
            Some(letters) if letters > 0 && bytes[letters] == b' ' => Self::of_request_line(bytes),
            None if bytes.len() <= METHOD_BYTES_MAX => Self::Unclear,
            _ => Self::Unknown,
        }
    }

    /// After a method, the line must say HTTP/1: to anything else, an answer of HTTP/1 would be noise.
    fn of_request_line(bytes: &[u8]) -> Self {
        match bytes.iter().take(FIRST_BYTES_MAX).position(|byte| *byte == b'\n') {
            Some(end) if bytes[..end].windows(HTTP1.len()).any(|part| part == HTTP1) => Self::Http1,
            None if bytes.len() < FIRST_BYTES_MAX => Self::Unclear,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what each beginning means, that more bytes never change a verdict, and that the answers are well formed.
    use super::*;
    use proptest::prelude::*;

    fn first(bytes: &[u8]) -> First {
        First::of(bytes, b"TRK1")
    }

    #[test]
    fn beginnings() {
        for (bytes, says) in [
            (&b""[..], First::Unclear),
            (b"TRK", First::Unclear),
            (b"TRK1\0", First::Native),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", First::Unclear),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", First::Http2),
            (b"PRI * HTTP/1.1\r\n", First::Http1),
            (b"\x16", First::Unclear),
            (b"\x16\x03\x01\x02\0", First::Tls),
            (b"GET", First::Unclear),
            (b"GET / HTTP/1.1\r", First::Unclear),
            (b"GET / HTTP/1.1\r\n", First::Http1),
            (b"INVALID CONNECTION PREFACE\r\n\r\n", First::Unknown),
            (b"get / HTTP/1.1\r\n", First::Unknown),
            (b"SSH-2.0", First::Unknown),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", First::Unknown),
            (b"\0\0\x12\x04\0", First::Unknown),
        ] {
            assert_eq!(first(bytes), says, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_answer_has_the_length_it_says() {
        let answer = std::str::from_utf8(HTTP1_ANSWER).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{} bytes", body.len());
    }

    proptest! {
        #[test]
        fn a_verdict_stands(bytes in "[A-Z]{0,9} /[a-z \\n]{0,30} ?(HTTP/1.1)?[\r\n]{0,2}", cut in 0usize..60) {
            let bytes = bytes.as_bytes();
            let early = first(&bytes[..cut.min(bytes.len())]);
            prop_assert!(early == First::Unclear || early == first(bytes));
        }

        #[test]
        fn any_bytes_have_a_verdict_in_the_end(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            bytes.resize(FIRST_BYTES_MAX, b'A');
            prop_assert!(first(&bytes) != First::Unclear);
        }
    }
}
