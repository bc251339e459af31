//! Requests as somebody types them, responses as somebody reads them.

use super::read::Reader;
use super::write::Json;
use crate::call::unique::Unique;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde::Serialize as _;
use serde_json::de::IoRead;
use std::io::Read;
use trunkline_call::printable_json;

/// Reads JSON values, one message each: separated by blanks, lines, or nothing at all.
///
/// Each is read when it is asked for, so that a person can type requests and see responses in between.
pub struct Requests<R: Read> {
    descriptor: MessageDescriptor,
    values: serde_json::StreamDeserializer<'static, IoRead<R>, Unique>,
    reader: Reader,
    count: usize,
}

/// Why a request is no message of its type.
#[derive(Debug, thiserror::Error)]
#[error("request {number} is not JSON of {type_name}: {why}")]
pub struct JsonError {
    number: usize,
    type_name: String,
    why: String,
}

impl<R: Read> Requests<R> {
    /// Requests of the described type from `input`.
    pub fn new(descriptor: MessageDescriptor, input: R) -> Self {
        let values = serde_json::Deserializer::from_reader(input).into_iter();
        Self { descriptor, values, reader: Reader { allow_unknown: false }, count: 0 }
    }

    /// Whether members the type does not have are passed over instead of refused.
    pub fn allow_unknown(mut self, allow: bool) -> Self {
        self.reader.allow_unknown = allow;
        self
    }

    fn encode(&self, value: Result<Unique, serde_json::Error>) -> Result<Vec<u8>, String> {
        let Unique(value) = value.map_err(|error| error.to_string())?;
        self.reader.message(&self.descriptor, &value).map_err(|wrong| wrong.to_string())
    }
}

impl<R: Read> Iterator for Requests<R> {
    /// A request in protobuf.
    type Item = Result<Vec<u8>, JsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        let value = self.values.next()?;
        self.count += 1;
        Some(self.encode(value).map_err(|why| JsonError {
            number: self.count,
            type_name: self.descriptor.full_name().to_owned(),
            why,
        }))
    }
}

/// How responses are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Indented, for people; else one line per message, for streams and programs.
    pub pretty: bool,
    /// Fields without presence are written even if they are zero.
    pub defaults: bool,
}

impl Style {
    /// A line of all that is set.
    pub const LINE: Self = Self { pretty: false, defaults: false };
}

/// Writes a protobuf message as JSON.
///
/// # Errors
/// What the protobuf decoder says, or which value has no JSON.
pub fn to_json(descriptor: &MessageDescriptor, protobuf: &[u8], style: Style) -> Result<String, String> {
    let message = DynamicMessage::decode(descriptor.clone(), protobuf).map_err(|error| error.to_string())?;
    let json = Json::new(&message, style.defaults);
    let mut out = Vec::new();
    let written = match style.pretty {
        false => json.serialize(&mut serde_json::Serializer::new(&mut out)),
        true => json.serialize(&mut serde_json::Serializer::pretty(&mut out)),
    };
    written.map_err(|error| error.to_string())?;
    String::from_utf8(out).map(|json| printable_json(&json)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    //! Shows how requests are separated, that they are read one at a time, and where errors are.
    use super::*;
    use crate::call::descriptors::tests::pool;

    const ALL: Style = Style { pretty: false, defaults: true };

    fn ask() -> MessageDescriptor {
        pool().get_message_by_name("a.v1.Ask").unwrap()
    }

    fn requests(text: &str) -> Vec<Result<String, String>> {
        let requests = Requests::new(ask(), text.as_bytes());
        requests.map(|request| to_json(&ask(), &request.map_err(|e| e.to_string())?, ALL)).collect()
    }

    #[test]
    fn any_separation_will_do() {
        let one = r#"{"text":"x","numbers":[]}"#.to_owned();
        assert_eq!(
            requests(
                r#"{"text":"x"}{"text":"x"} {"text": "x"}
            {"text":
            "x"}"#
            ),
            vec![Ok(one); 4]
        );
        assert_eq!(requests(" \n "), []);
    }

    #[test]
    fn errors_say_which_request_and_where() {
        for (text, error) in [
            (r#"{} {"txet": "x"}"#, "request 2 is not JSON of a.v1.Ask: a.v1.Ask has no field \"txet\""),
            (r#"{"text": 1}"#, "request 1 is not JSON of a.v1.Ask: text: expected a string, found a number"),
            (
                r#"{"text": "x", "text": "y"}"#,
                "request 1 is not JSON of a.v1.Ask: member \"text\" is there twice; leave one of them at line 1 \
                 column 21",
            ),
            (
                "{\"text\"",
                "request 1 is not JSON of a.v1.Ask: EOF while parsing an object at line 1 column 7",
            ),
        ] {
            assert_eq!(requests(text).pop().unwrap().unwrap_err(), error);
        }
    }

    #[test]
    fn a_request_is_read_when_it_is_asked_for() {
        struct Typist<'a>(&'a [u8]);
        impl Read for Typist<'_> {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                assert!(!self.0.is_empty(), "read beyond what was needed");
                let (now, later) = self.0.split_at(1);
                into[0] = now[0];
                self.0 = later;
                Ok(1)
            }
        }
        let mut requests = Requests::new(ask(), Typist(br#"{"text":"x"}{"text":"y"}"#));
        assert!(requests.next().unwrap().is_ok() && requests.next().unwrap().is_ok());
    }

    #[test]
    fn unknown_members_are_refused_unless_allowed() {
        let read = |allow| Requests::new(ask(), &br#"{"new": 1}"#[..]).allow_unknown(allow).next().unwrap();
        assert!(read(false).is_err() && read(true).is_ok());
    }

    #[test]
    fn bytes_and_zeros_are_shown() {
        let answer = pool().get_message_by_name("a.v1.Answer").unwrap();
        let json = to_json(&answer, &[0x12, 2, 0xff, 0], ALL).unwrap();
        assert_eq!(json, r#"{"text":"","raw":"/wA="}"#);
        assert_eq!(to_json(&answer, &[0x12, 2, 0xff, 0], Style::LINE).unwrap(), r#"{"raw":"/wA="}"#);
        assert!(to_json(&answer, &[0x12, 9], ALL).is_err());
    }
}
