//! What the calls of services say inside requests and replies: which method, in which form, and how it ended.
//!
//! The rest of the room carries bytes and does not look. A host that serves methods by name puts these words before
//! the message; docs/r2p2.md has the tables. Strings and metadata are checked for length here, for sense by whoever
//! uses them.

use crate::wire::{u16_at, u64_at};
use thiserror::Error;
use trunkline_call::{Code, Execution};

/// A request: a method and its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestEnvelope<'a> {
    /// `/package.Service/Method`; nothing in a greeting, which is answered and never executed.
    pub path: &'a str,
    /// The message is a linear extent of the type with the first fingerprint; else protobuf.
    pub is_linear: bool,
    /// The client's types of request and response; zero for none it speaks of.
    pub fingerprints: [u64; 2],
    /// In the encoded form of [`trunkline_call::Metadata`].
    pub metadata: &'a [u8],
    /// The message.
    pub message: &'a [u8],
}

/// A reply: how the call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyEnvelope<'a> {
    /// The status.
    pub code: Code,
    /// What is known of the handler.
    pub execution: Execution,
    /// The message is a linear extent of the type with the second fingerprint of the request; else protobuf.
    pub is_linear: bool,
    /// The request was linear, and nobody here has its type: it was not executed, and may be sent as protobuf.
    pub is_unreadable: bool,
    /// The server's type of the request: linear requests of this type will be read. Zero for none.
    pub fingerprint: u64,
    /// Leading metadata, if the handler sent any.
    pub headers: Option<&'a [u8]>,
    /// Trailing metadata, the status's words among it.
    pub trailers: &'a [u8],
    /// The message.
    pub message: Option<&'a [u8]>,
}

/// What is wrong with an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EnvelopeError {
    /// It ends early.
    #[error("envelope has {found} bytes, and should have {needed} before its message")]
    Short {
        /// Its bytes.
        found: usize,
        /// Those it claims to have.
        needed: usize,
    },
    /// Of another version, or no envelope at all.
    #[error("envelope is of version {0}, and this is 1")]
    Version(u8),
    /// A path that is not text.
    #[error("path is not UTF-8")]
    Path,
}

const VERSION: u8 = 1;
/// Bytes before a request's path.
const REQUEST_BYTES: usize = 24;
/// Bytes before a reply's headers.
const REPLY_BYTES: usize = 16;

const LINEAR: u8 = 0x01;
const MESSAGE: u8 = 0x02;
const HEADERS: u8 = 0x04;
const UNREADABLE: u8 = 0x08;

impl<'a> RequestEnvelope<'a> {
    /// Takes a request apart.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let rest = behind_head(bytes, REQUEST_BYTES)?;
        let (path_bytes, metadata_bytes) = (usize::from(u16_at(bytes, 2)), usize::from(u16_at(bytes, 4)));
        let needed = path_bytes + metadata_bytes;
        let (words, message) = rest.split_at_checked(needed).ok_or(short(bytes, REQUEST_BYTES + needed))?;
        let (path, metadata) = words.split_at(path_bytes);
        Ok(Self {
            path: std::str::from_utf8(path).map_err(|_| EnvelopeError::Path)?,
            is_linear: bytes[1] & LINEAR != 0,
            fingerprints: [u64_at(bytes, 8), u64_at(bytes, 16)],
            metadata,
            message,
        })
    }

    /// The bytes of a request; `None` if path or metadata are longer than 65,535 bytes.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let words = [u16::try_from(self.path.len()).ok()?, u16::try_from(self.metadata.len()).ok()?];
        let bytes = REQUEST_BYTES + self.path.len() + self.metadata.len() + self.message.len();
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&[VERSION, if self.is_linear { LINEAR } else { 0 }]);
        words.iter().for_each(|len| out.extend_from_slice(&len.to_be_bytes()));
        out.extend_from_slice(&[0; 2]);
        self.fingerprints.iter().for_each(|one| out.extend_from_slice(&one.to_be_bytes()));
        out.extend_from_slice(self.path.as_bytes());
        out.extend_from_slice(self.metadata);
        out.extend_from_slice(self.message);
        Some(out)
    }
}

impl<'a> ReplyEnvelope<'a> {
    /// A reply without words and message.
    pub fn of(code: Code, execution: Execution) -> Self {
        Self {
            code,
            execution,
            is_linear: false,
            is_unreadable: false,
            fingerprint: 0,
            headers: None,
            trailers: &[],
            message: None,
        }
    }

    /// Takes a reply apart.
    ///
    /// # Errors
    /// [`EnvelopeError`] says what is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let rest = behind_head(bytes, REPLY_BYTES)?;
        let (header_bytes, trailer_bytes) = (usize::from(u16_at(bytes, 4)), usize::from(u16_at(bytes, 6)));
        let needed = header_bytes + trailer_bytes;
        let (words, message) = rest.split_at_checked(needed).ok_or(short(bytes, REPLY_BYTES + needed))?;
        let (headers, trailers) = words.split_at(header_bytes);
        let has = |bit: u8| bytes[1] & bit != 0;
        Ok(Self {
            code: Code::from_number(bytes[2].into()),
            execution: Execution::from_number(bytes[3]),
            is_linear: has(LINEAR),
            is_unreadable: has(UNREADABLE),
            fingerprint: u64_at(bytes, 8),
            headers: has(HEADERS).then_some(headers),
            trailers,
            message: has(MESSAGE).then_some(message),
        })
    }

    /// The bytes of a reply; `None` if metadata is longer than 65,535 bytes.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (headers, message) = (self.headers.unwrap_or_default(), self.message.unwrap_or_default());
        let words = [u16::try_from(headers.len()).ok()?, u16::try_from(self.trailers.len()).ok()?];
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let bits = bit(self.is_linear, LINEAR)
            | bit(self.message.is_some(), MESSAGE)
            | bit(self.headers.is_some(), HEADERS)
            | bit(self.is_unreadable, UNREADABLE);
        let mut out = Vec::with_capacity(REPLY_BYTES + headers.len() + self.trailers.len() + message.len());
        out.extend_from_slice(&[VERSION, bits, self.code.number() as u8, self.execution as u8]);
        words.iter().for_each(|len| out.extend_from_slice(&len.to_be_bytes()));
        out.extend_from_slice(&self.fingerprint.to_be_bytes());
        out.extend_from_slice(headers);
        out.extend_from_slice(self.trailers);
        out.extend_from_slice(message);
        Some(out)
    }
}

/// What follows a head of so many bytes, of this version.
fn behind_head(bytes: &[u8], head: usize) -> Result<&[u8], EnvelopeError> {
    let (_, rest) = bytes.split_at_checked(head).ok_or(short(bytes, head))?;
    if bytes[0] == VERSION { Ok(rest) } else { Err(EnvelopeError::Version(bytes[0])) }
}

fn short(bytes: &[u8], needed: usize) -> EnvelopeError {
    EnvelopeError::Short { found: bytes.len(), needed }
}
