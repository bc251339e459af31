//! What client and server tell each other about attempts (gRFC A6): how many came before, and when the next is welcome.

use crate::metadata::first;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use trunkline_call::{MetadataError, MetadataReader, MetadataWriter};

const PUSHBACK_KEY: &str = "grpc-retry-pushback-ms";
const ATTEMPTS_KEY: &str = "grpc-previous-rpc-attempts";
/// Attempts at a call, this one among them, as Envoy counts them.
pub(crate) const ENVOY_ATTEMPT_COUNT: &str = "x-envoy-attempt-count";
/// What is in the `user-agent` of every daemon.
const OWN_AGENT: &[u8] = b"grpc-trunkline/";

/// What a server says about another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// Not before so many milliseconds, and then without back-off of the client's own.
    After {
        /// From now.
        ms: u32,
    },
    /// None at all.
    Never,
}

/// What trailing metadata says about another attempt, if it says anything. Negative numbers, and what is no number,
/// mean that none is wanted.
pub fn pushback(metadata: &[u8]) -> Option<Pushback> {
    let text = std::str::from_utf8(first(metadata, PUSHBACK_KEY)?).unwrap_or("");
    Some(text.parse().map_or(Pushback::Never, |ms| Pushback::After { ms }))
}

/// The attempts a request says came before it; none if it says nothing sensible.
pub fn previous_attempts(metadata: &[u8]) -> u32 {
    let value = first(metadata, ATTEMPTS_KEY).and_then(|value| std::str::from_utf8(value).ok());
    value.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether others say that they have sent this call before, a client's library or a proxy. A daemon adds up itself what
/// its attempts have come to, so it is told of each by itself.
pub(crate) fn is_repeated(headers: &HeaderMap) -> bool {
    let more_than = |count: Option<&HeaderValue>, least: u32| {
        let count = count.and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        count.is_some_and(|count| count > least)
    };
    let is_daemon =
        |agent: &HeaderValue| agent.as_bytes().windows(OWN_AGENT.len()).any(|part| part == OWN_AGENT);
    more_than(headers.get(ENVOY_ATTEMPT_COUNT), 1)
        || more_than(headers.get(ATTEMPTS_KEY), 0) && !headers.get(USER_AGENT).is_some_and(is_daemon)
}

/// A request's metadata with the number of attempts before it. The first attempt says nothing.
///
/// # Errors
/// [`MetadataError`] if the metadata is malformed, or full.
pub fn with_previous_attempts(metadata: &[u8], attempts: u32) -> Result<Vec<u8>, MetadataError> {
    let mut out = MetadataWriter::with_capacity(metadata.len() + ATTEMPTS_KEY.len() + 16);
    for pair in MetadataReader::read(metadata)? {
        let (key, value) = pair?;
        if key != ATTEMPTS_KEY {
            out.insert(key, value)?;
        }
    }
    if attempts > 0 {
        out.insert(ATTEMPTS_KEY, attempts.to_string().as_bytes())?;
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    //! Shows what a server's words mean, and that the count of attempts is said once.
    use super::*;

    fn metadata(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut out = MetadataWriter::default();
        for (key, value) in pairs {
            out.insert(key, value.as_bytes()).unwrap();
        }
        out.into_bytes()
    }

    #[test]
    fn pushback_table() {
        for (text, pushed) in [
            ("0", Pushback::After { ms: 0 }),
            ("250", Pushback::After { ms: 250 }),
            ("-1", Pushback::Never),
            ("4294967296", Pushback::Never),
            ("soon", Pushback::Never),
            ("", Pushback::Never),
        ] {
            assert_eq!(pushback(&metadata(&[("grpc-retry-pushback-ms", text)])), Some(pushed), "{text}");
        }
        assert_eq!(pushback(&metadata(&[("tenant", "blue")])), None);
        assert_eq!(pushback(b"\xff"), None);
    }

    #[test]
    fn attempts_are_said_once() {
        let said = metadata(&[("tenant", "blue"), ("grpc-previous-rpc-attempts", "1")]);
        let again = with_previous_attempts(&said, 2).unwrap();
        assert_eq!(again, metadata(&[("tenant", "blue"), ("grpc-previous-rpc-attempts", "2")]));
        assert_eq!(previous_attempts(&again), 2);
        assert_eq!(with_previous_attempts(&again, 0).unwrap(), metadata(&[("tenant", "blue")]));
        assert_eq!((previous_attempts(&[]), with_previous_attempts(&[], 0)), (0, Ok(Vec::new())));
        assert!(with_previous_attempts(b"\x01", 1).is_err());
    }
}
