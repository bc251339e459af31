//! Responses and statuses as text.

use super::json::{Style, to_json};
use crate::table::count;
use prost::Message;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use trunkline_call::entry::Payload;
use trunkline_call::{Encoding, Execution, Metadata, Status, printable};
use trunkline_message::Transcoder;
use trunkline_schema::{MessageIndex, Schema};

/// Turns what the daemon delivers into JSON.
pub struct Responses {
    descriptor: MessageDescriptor,
    transcoder: Transcoder,
    root: MessageIndex,
}

impl Responses {
    /// For responses of the described type, whose descriptors are in `descriptor_set`.
    ///
    /// # Errors
    /// What the schema room has against the descriptors.
    pub fn new(descriptor: MessageDescriptor, descriptor_set: &[u8]) -> Result<Self, String> {
        let schema = Schema::from_descriptor_set(descriptor_set).map_err(|error| error.to_string())?;
        let root = schema.message_named(descriptor.full_name());
        let root = root.ok_or_else(|| format!("no layout for {}", descriptor.full_name()))?;
        Ok(Self { descriptor, transcoder: Transcoder::new(Arc::new(schema)), root })
    }

    /// A response as JSON.
    ///
    /// # Errors
    /// If the bytes are no message of the type.
    pub fn json(&self, payload: Payload, bytes: &[u8], style: Style) -> Result<String, String> {
        if payload.encoding == Encoding::Protobuf {
            return to_json(&self.descriptor, bytes, style);
        }
        let mut protobuf = Vec::new();
        let encoded = self.transcoder.encode(self.root, bytes, &mut protobuf);
        encoded.map_err(|error| error.to_string())?;
        to_json(&self.descriptor, &protobuf, style)
    }
}

/// A failure as a person needs it: code and message, what is known of the execution, details, trailing metadata.
pub fn describe(status: &Status, trailers: &Metadata, pool: &DescriptorPool) -> String {
    let mut out = status.code().to_string();
    if !status.message().is_empty() {
        let _ = write!(out, ": {}", printable(status.message()));
    }
    let execution = match status.execution() {
        Execution::Executed => "executed: the handler ran, and this is its answer",
        Execution::NotExecuted => "not executed: the call did not reach the handler; repeating it is sound",
        Execution::Unknown => "unknown: the handler may have run; repeat the call only if that does no harm",
    };
    let _ = write!(out, "\n  execution  {execution}");
    for detail in details(status.details(), pool) {
        let _ = write!(out, "\n  detail     {detail}");
    }
    for (key, value) in trailers.iter() {
        let _ = write!(out, "\n  trailer    {}", pair(key, value));
    }
    out
}

/// A metadata pair as `--metadata` takes it: binary values in base64.
pub fn pair(key: &str, value: &[u8]) -> String {
    use base64::Engine;
    let value = match key.ends_with("-bin") {
        true => base64::engine::general_purpose::STANDARD.encode(value),
        false => printable(&String::from_utf8_lossy(value)),
    };
    format!("{}: {value}", printable(key))
}

/// `google.rpc.Status`, of which only the details are news.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The details most services use; their types are seldom among those a method needs.
static USUAL_DETAILS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let text = include_str!("../../../../proto/google/rpc/error_details.proto");
    let mut pool = DescriptorPool::global();
    if let Ok(file) = protox::file::File::from_source("google/rpc/error_details.proto", text) {
        // Left out, they are shown by their size, as any type nobody knows.
        let _ = pool.add_file_descriptor_proto(file.into());
    }
    pool
});

fn details(bytes: &[u8], pool: &DescriptorPool) -> Vec<String> {
    if bytes.is_empty() {
        return Vec::new();
    }
    match RpcStatus::decode(bytes) {
        Ok(status) => status.details.iter().map(|any| detail(any, pool)).collect(),
        Err(_) => vec![format!("{}, not a google.rpc.Status", count(bytes.len() as u64, "byte"))],
    }
}

fn detail(any: &Any, pool: &DescriptorPool) -> String {
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let known = pool.get_message_by_name(name).or_else(|| USUAL_DETAILS.get_message_by_name(name));
    let name = printable(name);
    let json = known.and_then(|known| to_json(&known, &any.value, Style::LINE).ok());
    match json {
        Some(json) => format!("{name} {json}"),
        None => {
            format!("{name} ({}; its type is not among those given)", count(any.value.len() as u64, "byte"))
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what a failure looks like, with known and unknown details.
    use super::*;
    use crate::call::descriptors::tests::pool;
    use trunkline_call::Code;

    #[test]
    fn a_failure_says_what_is_known() {
        let known = Any { type_url: "type.googleapis.com/a.v1.Answer".into(), value: vec![10, 1, b'x'] };
        let violation = vec![10, 8, 10, 1, b'f', 18, 3, b'b', b'a', b'd'];
        let usual = Any { type_url: "type.googleapis.com/google.rpc.BadRequest".into(), value: violation };
        let unknown = Any { type_url: "type.googleapis.com/who.Knows".into(), value: vec![1, 2, 3] };
        let details = RpcStatus { details: vec![known, usual, unknown] }.encode_to_vec();
        let status = Status::new(Code::NotFound, "no such user").with_details(details);
        let mut trailers = Metadata::new();
        trailers.insert("hint-bin", [0xff]).unwrap();
        assert_eq!(
            describe(&status, &trailers, &pool()),
            "NOT_FOUND: no such user\n  \
             execution  executed: the handler ran, and this is its answer\n  \
             detail     a.v1.Answer {\"text\":\"x\"}\n  \
             detail     google.rpc.BadRequest \
             {\"fieldViolations\":[{\"field\":\"f\",\"description\":\"bad\"}]}\n  \
             detail     who.Knows (3 bytes; its type is not among those given)\n  \
             trailer    hint-bin: /w=="
        );
    }

    #[test]
    fn nothing_a_server_says_acts_on_the_terminal() {
        let named = Any { type_url: "a/\u{1b}]0;type".into(), value: vec![1] };
        let details = RpcStatus { details: vec![named] }.encode_to_vec();
        let status = Status::new(Code::NotFound, "\u{1b}]0;message\u{7}\u{202e}").with_details(details);
        // Those of another daemon are not looked at.
        let text = describe(&status, &Metadata::new(), &pool()) + &pair("hint\u{9b}", b"\x1b[2J");
        let said = "\u{9b}31m\u{85}\u{7f}\u{202e}";
        let wire = [&[10, said.len() as u8], said.as_bytes()].concat();
        let answer = pool().get_message_by_name("a.v1.Answer").unwrap();
        let json = to_json(&answer, &wire, Style::LINE).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(value.as_object().unwrap().values().any(|text| text == said), "{json}");
        let text = text + &json;
        let acts = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert!(acts.is_none() && text.contains("]0;type") && text.contains("[2J"), "{text:?}");
    }

    #[test]
    fn infrastructure_failures_say_whether_to_repeat() {
        let status = Status::unavailable("").with_execution(Execution::NotExecuted).with_details([0xff]);
        let text = describe(&status, &Metadata::new(), &pool());
        assert!(text.starts_with("UNAVAILABLE\n  execution  not executed"), "{text}");
        assert!(text.ends_with("1 byte, not a google.rpc.Status"), "{text}");
    }

    #[test]
    fn linear_and_protobuf_responses_read_alike() {
        let (pool, mut extent) = (pool(), trunkline_message::AlignedBuf::default());
        let set = pool.encode_to_vec();
        let responses = Responses::new(pool.get_message_by_name("a.v1.Answer").unwrap(), &set).unwrap();
        let wire = [10, 1, b'x'];
        let limits = trunkline_message::transcode::DecodeLimits::default();
        let len = responses.transcoder.decode(responses.root, &wire, &mut extent, &limits).unwrap();
        let linear = Payload::new(Default::default(), Encoding::Linear);
        let protobuf = Payload { encoding: Encoding::Protobuf, ..linear };
        use trunkline_message::Extent;
        assert_eq!(
            responses.json(linear, &extent.bytes()[..len], Style::LINE),
            responses.json(protobuf, &wire, Style::LINE)
        );
        assert!(responses.json(linear, &wire, Style::LINE).is_err());
    }
}
