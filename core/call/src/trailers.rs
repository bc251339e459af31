//! A status in metadata: `grpc-message`, `grpc-status-details-bin`, and its own metadata beside them.

use crate::{Code, Metadata, MetadataError, Status};

const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";

impl Status {
    /// Takes a status out of trailing metadata: message, details, and what else there is.
    pub fn take_from(trailers: &mut Metadata, code: Code) -> Self {
        take_from(trailers, code)
    }

    /// Adds message, details and metadata to trailing metadata, in this order of importance.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`]; what did fit is there.
    pub fn put_into(&self, trailers: &mut Metadata) -> Result<(), MetadataError> {
        put_into(trailers, self)
    }
}

fn take_from(trailers: &mut Metadata, code: Code) -> Status {
    let message = trailers.remove(MESSAGE).map_or_else(String::new, |bytes| unescape(&bytes));
    let mut status = Status::new(code, message);
    if let Some(details) = trailers.remove(DETAILS) {
        status = status.with_details(details);
    }
    *status.metadata_mut() = std::mem::take(trailers);
    status
}

fn put_into(trailers: &mut Metadata, status: &Status) -> Result<(), MetadataError> {
    if !status.message().is_empty() {
        trailers.insert(MESSAGE, escape(status.message()))?;
    }
    if !status.details().is_empty() {
        trailers.insert(DETAILS, status.details())?;
    }
    let own = |key: &str| key != MESSAGE && key != DETAILS;
    status
        .metadata()
        .iter()
        .filter(|(key, _)| own(key))
        .try_for_each(|(key, value)| trailers.insert(key, value))
}

/// gRPC's percent-encoding of status messages (PROTOCOL-HTTP2, "Status-Message"): all but printable ASCII, and `%`.
fn escape(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The reverse; what is not an escape stays as it is, what is not UTF-8 is replaced (the specification asks for both).
fn unescape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.first_chunk::<2>()).flatten().and_then(hex);
        match escaped {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(digits: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

#[cfg(test)]
mod tests {
    //! Shows that any message survives, and that foreign text is never refused.
    use super::*;

    #[test]
    fn messages_survive() {
        for message in ["plain", "50% off", "größer\nzwei", "", "%zz", "a%"] {
            let mut trailers = Metadata::new();
            put_into(&mut trailers, &Status::aborted(message).with_details([1, 2])).unwrap();
            let status = take_from(&mut trailers, Code::Aborted);
            assert_eq!((status.message(), status.details()), (message, &[1, 2][..]));
            assert!(trailers.is_empty() && status.metadata().is_empty());
        }
        assert_eq!(unescape(b"100%"), "100%");
        assert_eq!(unescape(b"%ff"), "\u{fffd}");
    }

    #[test]
    fn metadata_survives_and_cannot_pose_as_the_message() {
        let status = Status::aborted("first").with_metadata("tries", "3").unwrap();
        let status =
            status.with_metadata(MESSAGE, "second").unwrap().with_metadata("why-bin", [0, 255]).unwrap();
        let mut trailers = Metadata::new();
        put_into(&mut trailers, &status).unwrap();
        let status = take_from(&mut trailers, Code::Aborted);
        let pairs: Vec<_> = status.metadata().iter().collect();
        assert_eq!((status.message(), pairs), ("first", vec![("tries", &b"3"[..]), ("why-bin", &[0, 255])]));
    }
}
