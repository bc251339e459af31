//! What protobuf's conformance runner asks: bytes of a type in, the same message's bytes out, by the transcoder.
//!
//! The runner's own messages go through the transcoder too, by descriptor, so that a fault in it cannot hide behind
//! another decoder.

use std::io::{self, Read, Write};
use std::sync::Arc;
use trunkline_message::transcode::{DecodeLimits, Encoded};
use trunkline_message::{AlignedBuf, DynamicBuilder, DynamicView, Extent, MismatchError, Transcoder, Value};
use trunkline_schema::{MessageIndex, Schema, SchemaError};

use crate::framed::{self, ByteOrder};

const REQUEST: &str = "conformance.ConformanceRequest";
const RESPONSE: &str = "conformance.ConformanceResponse";
/// What the runner asks for first: the names of cases expected to fail. There are none.
const FAILURES: &str = "conformance.FailureSet";
/// `WireFormat.PROTOBUF`.
const PROTOBUF: i32 = 1;

/// Answers a conformance runner.
#[derive(Debug)]
pub struct Testee {
    transcoder: Transcoder,
    request: MessageIndex,
    response: MessageIndex,
}

/// Why a testee cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum TesteeError {
    /// The descriptors are not in order.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The runner's messages are not among them.
    #[error("{0} is not in the descriptor set")]
    Missing(&'static str),
    /// The runner said something else than a request.
    #[error("not a request: {0}")]
    Request(String),
    /// A response could not be written.
    #[error("response: {0}")]
    Response(String),
    /// The pipe broke.
    #[error(transparent)]
    Pipe(#[from] io::Error),
}

/// What becomes of a case: a field of `ConformanceResponse`, and its value.
enum Outcome {
    Payload(Vec<u8>),
    ParseError(String),
    SerializeError(String),
    RuntimeError(String),
    Skipped(&'static str),
}

impl Testee {
    /// For an encoded `FileDescriptorSet` with the runner's messages and all test messages.
    ///
    /// # Errors
    /// [`TesteeError::Schema`], [`TesteeError::Missing`]
    pub fn new(descriptor_set: &[u8]) -> Result<Self, TesteeError> {
        let schema = Arc::new(Schema::from_descriptor_set(descriptor_set)?);
        let named = |name| schema.message_named(name).ok_or(TesteeError::Missing(name));
        let (request, response) = (named(REQUEST)?, named(RESPONSE)?);
        Ok(Self { transcoder: Transcoder::new(schema), request, response })
    }

    /// Answers requests until there are no more.
    ///
    /// # Errors
    /// [`TesteeError`]
    pub fn serve(&self, from: &mut impl Read, to: &mut impl Write) -> Result<(), TesteeError> {
        while let Some(request) = framed::read(from, ByteOrder::Little)? {
            framed::write(to, ByteOrder::Little, &self.answer(&request)?)?;
        }
        Ok(())
    }

    /// Answers one request.
    ///
    /// # Errors
    /// [`TesteeError::Request`], [`TesteeError::Response`]
    pub fn answer(&self, request: &[u8]) -> Result<Vec<u8>, TesteeError> {
        let schema = self.transcoder.schema();
        let mut linear = AlignedBuf::new();
        let decoded = self.transcoder.decode(self.request, request, &mut linear, &DecodeLimits::default());
        decoded.map_err(|error| TesteeError::Request(error.describe(schema)))?;
        let request = DynamicView::root(schema, self.request, linear.bytes());
        self.response(self.outcome(request))
    }

    fn outcome(&self, request: DynamicView<'_>) -> Outcome {
        let Some(Value::Bytes(wire)) = request.value_named("protobuf_payload") else {
            return Outcome::Skipped("input is not protobuf");
        };
        if !matches!(request.value_named("requested_output_format"), Some(Value::Enum(PROTOBUF))) {
            return Outcome::Skipped("output is not protobuf");
        }
        let Some(Value::String(name)) = request.value_named("message_type") else {
            return Outcome::RuntimeError("no message_type".into());
        };
        let name = String::from_utf8_lossy(name);
        if name == FAILURES {
            return Outcome::Payload(Vec::new());
        }
        match self.transcoder.schema().message_named(&name) {
            Some(message) => self.round_trip(message, wire),
            None => Outcome::RuntimeError(format!("{name} is not in the descriptor set")),
        }
    }

    fn round_trip(&self, message: MessageIndex, wire: &[u8]) -> Outcome {
        let (mut linear, mut encoded) = (AlignedBuf::new(), Encoded::new());
        let len = match self.transcoder.decode(message, wire, &mut linear, &DecodeLimits::default()) {
            Ok(len) => len,
            Err(error) => return Outcome::ParseError(error.describe(self.transcoder.schema())),
        };
        let linear = linear.bytes().get(..len).unwrap_or_default();
        match self.transcoder.encode_into(message, linear, &mut encoded) {
            Ok(bytes) => Outcome::Payload(bytes.to_vec()),
            Err(error) => Outcome::SerializeError(error.to_string()),
        }
    }

    fn response(&self, outcome: Outcome) -> Result<Vec<u8>, TesteeError> {
        let failed = |why: String| TesteeError::Response(why);
        let schema = self.transcoder.schema();
        let built = DynamicBuilder::build(schema, self.response, AlignedBuf::new(), |b| fill(b, &outcome));
        let built = built.map_err(|error| failed(error.to_string()))?;
        let mut out = Vec::new();
        self.transcoder
            .encode(self.response, built.bytes(), &mut out)
            .map_err(|error| failed(error.to_string()))?;
        Ok(out)
    }
}

fn fill<E: Extent>(response: &mut DynamicBuilder<'_, E>, outcome: &Outcome) -> Result<(), MismatchError> {
    let (field, value) = match outcome {
        Outcome::Payload(bytes) => ("protobuf_payload", Value::Bytes(bytes)),
        Outcome::ParseError(why) => ("parse_error", Value::String(why.as_bytes())),
        Outcome::SerializeError(why) => ("serialize_error", Value::String(why.as_bytes())),
        Outcome::RuntimeError(why) => ("runtime_error", Value::String(why.as_bytes())),
        Outcome::Skipped(why) => ("skipped", Value::String(why.as_bytes())),
    };
    response.set_named(field, value)
}

#[cfg(test)]
mod tests {
    //! Plays the runner with a cut-down protocol of its own.
    use super::*;

    const PROTO: &str = r#"
        syntax = "proto3";
        package conformance;
        enum WireFormat { UNSPECIFIED = 0; PROTOBUF = 1; JSON = 2; }
        message FailureSet {}
        message ConformanceRequest {
          oneof payload { bytes protobuf_payload = 1; string json_payload = 2; }
          WireFormat requested_output_format = 3;
          string message_type = 4;
        }
        message ConformanceResponse {
          oneof result {
            string parse_error = 1; string serialize_error = 6; string runtime_error = 2;
            bytes protobuf_payload = 3; string skipped = 5;
          }
        }
    "#;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn payloads_come_back_and_nothing_is_skipped_in_silence() {
        let schema = Schema::from_proto_source("conformance.proto", PROTO).unwrap();
        let testee = Testee::new(schema.descriptor_set()).unwrap();
        let ask = |payload: &[u8], format: u8, name: &str| {
            let request = [payload, &[0x18, format], &field(4, name.as_bytes())].concat();
            let mut pipe = Vec::new();
            framed::write(&mut pipe, ByteOrder::Little, &request).unwrap();
            let mut answer = Vec::new();
            testee.serve(&mut pipe.as_slice(), &mut answer).unwrap();
            framed::read(&mut answer.as_slice(), ByteOrder::Little).unwrap().unwrap()
        };
        let message = field(4, b"x");
        assert_eq!(ask(&field(1, &message), 1, REQUEST), field(3, &message));
        assert_eq!(ask(&field(1, b""), 1, FAILURES), field(3, b""));
        assert_eq!(ask(&field(1, &[0x22, 9]), 1, REQUEST)[0] >> 3, 1, "a parse error");
        assert_eq!(ask(&field(1, b""), 1, "no.Such")[0] >> 3, 2, "a runtime error");
        assert_eq!(ask(&field(2, b"{}"), 1, REQUEST)[0] >> 3, 5, "JSON in is skipped");
        assert_eq!(ask(&field(1, b""), 2, REQUEST)[0] >> 3, 5, "JSON out is skipped");
    }
}
