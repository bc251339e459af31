//! A call as a policy sees it, and its end.

use crate::lent::{bytes, text};
use crate::wants::Field;
use std::time::Duration;
use trunkline_module_abi as abi;

/// A call that begins. Everything in it is borrowed for the time of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(crate) raw: &'a abi::Call,
    pub(crate) metadata: &'a [abi::MetadataPair],
    pub(crate) values: &'a [abi::Value],
}

/// Whose side of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The application makes it.
    Client,
    /// The application serves it.
    Server,
}

/// How a call ended that had passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its status code as gRPC numbers it: 0 is OK.
    pub code: u32,
    /// The daemon's clock.
    pub now_ns: u64,
    /// From the decision to the end.
    pub elapsed: Duration,
    /// What [`Verdict::pass_with`](crate::Verdict::pass_with) said.
    pub token: u64,
}

impl<'a> Call<'a> {
    /// Whose side this is.
    pub fn side(&self) -> Side {
        if self.raw.side == abi::SIDE_SERVER { Side::Server } else { Side::Client }
    }

    /// The daemon's clock: nanoseconds from some moment on. It only goes forward.
    pub fn now_ns(&self) -> u64 {
        self.raw.now_ns
    }

    /// Time left until the call's deadline.
    pub fn time_left(&self) -> Option<Duration> {
        let at = Some(self.raw.deadline_ns).filter(|at| *at != abi::NO_DEADLINE)?;
        Some(Duration::from_nanos(at.saturating_sub(self.raw.now_ns)))
    }

    /// Size of the request as its sender encoded it; 0 where there is none yet.
    pub fn request_bytes(&self) -> u64 {
        self.raw.request_bytes
    }

    /// Whether requests are a stream.
    pub fn streams(&self) -> bool {
        self.raw.flags & abi::CALL_STREAMS != 0
    }

    /// `/package.Service/Method`
    pub fn path(&self) -> &'a str {
        text(&self.raw.path)
    }

    /// `package.Service` and `Method`.
    pub fn names(&self) -> (&'a str, &'a str) {
        self.path().trim_start_matches('/').split_once('/').unwrap_or_default()
    }

    /// The application whose side this is.
    pub fn application(&self) -> &'a str {
        text(&self.raw.application)
    }

    /// Who calls, as far as it is proven: `uid:1000`, a name in a certificate, or empty.
    pub fn peer_identity(&self) -> &'a str {
        text(&self.raw.peer_identity)
    }

    /// Where the call comes from; empty for this host.
    pub fn peer_address(&self) -> &'a str {
        text(&self.raw.peer_address)
    }

    /// The metadata, if it was [wanted](crate::Wants::metadata).
    pub fn metadata(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.metadata.iter().map(|pair| (text(&pair.key), bytes(&pair.value)))
    }

    /// The value of a text field.
    pub fn text(&self, field: Field) -> Option<&'a str> {
        self.value(field, abi::KIND_TEXT).map(|value| text(&value.text))
    }

    /// Of a field of bytes.
    pub fn bytes(&self, field: Field) -> Option<&'a [u8]> {
        self.value(field, abi::KIND_BYTES).map(|value| bytes(&value.text))
    }

    /// Of an integer with a sign.
    pub fn int(&self, field: Field) -> Option<i64> {
        self.value(field, abi::KIND_INT).map(|value| value.bits.cast_signed())
    }

    /// Of an integer without one.
    pub fn uint(&self, field: Field) -> Option<u64> {
        self.value(field, abi::KIND_UINT).map(|value| value.bits)
    }

    /// Of a double.
    pub fn double(&self, field: Field) -> Option<f64> {
        self.value(field, abi::KIND_DOUBLE).map(|value| f64::from_bits(value.bits))
    }

    /// Of a yes or no.
    pub fn bool(&self, field: Field) -> Option<bool> {
        self.value(field, abi::KIND_BOOL).map(|value| value.bits != 0)
    }

    fn value(&self, field: Field, kind: u32) -> Option<&'a abi::Value> {
        self.values.get(field.0).filter(|value| value.kind == kind)
    }
}
