//! What an expression may ask about a call, and what its value may be.

use super::types::Type;
use trunkline_call::{Deadline, VouchedCaller};
use trunkline_message::View;

/// What an expression is to result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// True or false.
    Bool,
    /// A value calls can be told apart by: string, bytes, bool or an integer.
    Key,
    /// A value of one kind.
    Value(ValueKind),
}

/// The kinds of values an expression may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the types say all there is to say")]
pub enum ValueKind {
    Bool,
    /// Enums, too.
    Int,
    Uint,
    Double,
    Text,
    Bytes,
}

/// A value an expression has for a call; it lies in the call's message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "as above")]
pub enum FieldValue<'a> {
    /// None: a key that is not there, an overflow.
    #[default]
    None,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// UTF-8.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
}

/// What an expression may ask about a call.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The message, of the type the program was compiled for. [`View::EMPTY`] where there is none.
    pub request: View<'a>,
    /// Metadata in its encoded form.
    pub metadata: &'a [u8],
    /// `/package.Service/Method`
    pub path: &'a str,
    /// Name of the application that calls, or of the one that serves, whichever side this is.
    pub application: &'a str,
    /// Who calls, as far as it is proven: `uid:1000` for a process of this host, the name in the certificate for a
    /// peer over TLS, empty for anybody else.
    pub peer_identity: &'a str,
    /// The application that calls, as this host knows it, or by the word of another host's daemon. `None` for anybody
    /// else.
    pub caller: Option<&'a VouchedCaller>,
    /// Where the call comes from: a peer's address, empty for this host.
    pub peer_address: &'a str,
    /// When the call must have ended.
    pub deadline: Deadline,
    /// Size of the message as its sender encoded it; 0 if there is none yet.
    pub request_bytes: u64,
}

impl ValueKind {
    pub(super) fn of_type(self) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::Text => Type::Str,
            Self::Bytes => Type::Bytes,
        }
    }

    /// As expressions call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
        }
    }
}

impl<'a> Inputs<'a> {
    /// `package.Service`
    pub fn service(&self) -> &'a str {
        self.split().0
    }

    /// `Method`
    pub fn method(&self) -> &'a str {
        self.split().1
    }

    fn split(&self) -> (&'a str, &'a str) {
        self.path.strip_prefix('/').unwrap_or(self.path).split_once('/').unwrap_or_default()
    }
}
