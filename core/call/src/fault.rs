//! Everything that can go wrong in the infrastructure, and whose doing it was.

use crate::{Code, Execution, Status};

/// What the message of [`Fault::NoRoute`] begins with: whoever knows why there is nobody adds to it.
pub const NOBODY_SERVES: &str = "nobody serves ";

/// The party that has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The application that made the call.
    Caller,
    /// The application that serves it.
    Handler,
    /// The daemon or process at the other end of a connection.
    Peer,
    /// The configuration of this host.
    Operator,
    /// Nobody: time ran out or someone went away.
    Circumstance,
}

/// Why the infrastructure ended a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The deadline passed while the call was in the named station.
    DeadlinePassed { executed: Execution },
    /// The caller cancelled, went away, or its parent call ended.
    Cancelled { executed: Execution },
    /// No application or endpoint serves this.
    NoRoute { what: String },
    /// The service is known and the method is not.
    NoMethod { path: String },
    /// The endpoint could not be reached.
    Unreachable { endpoint: String, why: String },
    /// The connection to the peer ended with the call in flight.
    ConnectionLost { endpoint: String, executed: Execution },
    /// Bytes were changed on their way from or to an endpoint: a checksum says so. Nothing of them is believed, and the
    /// connection is over.
    Corrupted { endpoint: String, executed: Execution },
    /// The serving application went away with the call in flight.
    HandlerGone { executed: Execution },
    /// The daemon is leaving and takes no new calls.
    Draining,
    /// The call has ended already. Whoever finds that out has nobody to tell it to.
    Ended,
    /// A policy of the host refused the call.
    Denied { policy: String, code: Code, why: String },
    /// A limit was reached: what it bounds and, in brackets, the configuration key that sets it, or who else does.
    Limit { name: &'static str, limit: u64 },
    /// The caller's message is not a valid message of its type.
    MalformedRequest { why: String },
    /// The handler's message is not a valid message of its type.
    MalformedResponse { why: String },
    /// The caller's metadata is not well formed.
    MalformedMetadata { why: String },
    /// The peer broke the protocol.
    PeerProtocol { why: String, executed: Execution },
    /// The two ends hold schemas that cannot be bridged.
    SchemaMismatch { why: String },
    /// The handler broke the calling pattern (no response, or two).
    HandlerProtocol { why: &'static str },
    /// One end streams where the other has a single message, and none or more than one came.
    Cardinality { why: &'static str, executed: Execution },
    /// What lies there carries one request and one reply, and the method streams.
    Streams { endpoint: String },
    /// A server, or a router in front of many, refused a request, or fell silent.
    Dropped { by: String, why: String, code: Code, executed: Execution },
}

impl Fault {
    /// Whose doing it was.
    pub fn blame(&self) -> Blame {
        match self {
            Self::DeadlinePassed { .. } | Self::Cancelled { .. } | Self::Draining | Self::Ended => {
                Blame::Circumstance
            }
            Self::NoRoute { .. } | Self::Denied { .. } => Blame::Operator,
            Self::NoMethod { .. } | Self::MalformedRequest { .. } | Self::MalformedMetadata { .. } => {
                Blame::Caller
            }
            Self::Limit { .. } => Blame::Caller,
            Self::Unreachable { .. }
            | Self::ConnectionLost { .. }
            | Self::Corrupted { .. }
            | Self::PeerProtocol { .. } => Blame::Peer,
            Self::SchemaMismatch { .. } | Self::Streams { .. } => Blame::Operator,
            Self::Dropped { .. } => Blame::Peer,
            Self::Cardinality { executed: Execution::NotExecuted, .. } => Blame::Caller,
            Self::HandlerGone { .. }
            | Self::MalformedResponse { .. }
            | Self::HandlerProtocol { .. }
            | Self::Cardinality { .. } => Blame::Handler,
        }
    }

    /// What is known about whether the handler ran.
    pub fn execution(&self) -> Execution {
        match self {
            Self::DeadlinePassed { executed }
            | Self::Cancelled { executed }
            | Self::ConnectionLost { executed, .. }
            | Self::Corrupted { executed, .. }
            | Self::HandlerGone { executed }
            | Self::Cardinality { executed, .. }
            | Self::Dropped { executed, .. }
            | Self::PeerProtocol { executed, .. } => *executed,
            Self::Ended => Execution::Unknown,
            Self::MalformedResponse { .. } | Self::HandlerProtocol { .. } => Execution::Executed,
            Self::NoRoute { .. }
            | Self::NoMethod { .. }
            | Self::Unreachable { .. }
            | Self::Draining
            | Self::Denied { .. }
            | Self::Limit { .. }
            | Self::MalformedRequest { .. }
            | Self::MalformedMetadata { .. }
            | Self::Streams { .. }
            | Self::SchemaMismatch { .. } => Execution::NotExecuted,
        }
    }

    /// Whether [`Fault::execution`] is what was known of this call, and not merely where such a fault usually strikes.
    pub fn knows_execution(&self) -> bool {
        matches!(
            self,
            Self::DeadlinePassed { .. }
                | Self::Cancelled { .. }
                | Self::ConnectionLost { .. }
                | Self::Corrupted { .. }
                | Self::HandlerGone { .. }
                | Self::Cardinality { .. }
                | Self::Dropped { .. }
                | Self::PeerProtocol { .. }
                | Self::Ended
        )
    }

    /// The gRPC status of this fault: total, and with codes gRPC's own libraries generate; but a request that is none
    /// is INVALID_ARGUMENT, for INTERNAL would look like a fault of whoever serves it.
    pub fn status(&self) -> Status {
        Status::new(self.code(), self.message()).with_execution(self.execution())
    }

    fn code(&self) -> Code {
        match self {
            Self::DeadlinePassed { .. } => Code::DeadlineExceeded,
            Self::Cancelled { .. } | Self::Ended => Code::Cancelled,
            // gRPC's status codes page: "unary or server-streaming call with no or more than one message".
            Self::NoMethod { .. } | Self::Cardinality { .. } | Self::Streams { .. } => Code::Unimplemented,
            Self::NoRoute { .. }
            | Self::Unreachable { .. }
            | Self::ConnectionLost { .. }
            | Self::Corrupted { .. }
            | Self::HandlerGone { .. }
            | Self::Draining => Code::Unavailable,
            Self::Denied { code, .. } | Self::Dropped { code, .. } => *code,
            Self::Limit { .. } => Code::ResourceExhausted,
            // Those who sent it mend it; a retry, another endpoint or an operator would not.
            Self::MalformedRequest { .. } => Code::InvalidArgument,
            Self::MalformedResponse { .. }
            | Self::MalformedMetadata { .. }
            | Self::PeerProtocol { .. }
            | Self::SchemaMismatch { .. }
            | Self::HandlerProtocol { .. } => Code::Internal,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::DeadlinePassed { .. } => "deadline passed".into(),
            Self::Cancelled { .. } => "cancelled by the caller".into(),
            Self::NoRoute { what } => {
                format!("{NOBODY_SERVES}{what}: no attached application, no configured endpoint")
            }
            Self::NoMethod { path } => format!("{path} is not implemented"),
            Self::Unreachable { endpoint, why } => format!("cannot reach {endpoint}: {why}"),
            Self::ConnectionLost { endpoint, .. } => format!("connection to {endpoint} lost"),
            Self::Corrupted { endpoint, .. } => {
                format!("bytes between here and {endpoint} were changed on the way: a checksum does not fit")
            }
            Self::HandlerGone { .. } => "the serving application went away".into(),
            Self::Draining => "the daemon is draining and takes no new calls".into(),
            Self::Ended => "the call has ended already".into(),
            Self::Denied { policy, why, .. } if why.is_empty() => format!("refused by policy {policy:?}"),
            Self::Denied { policy, why, .. } => format!("refused by policy {policy:?}: {why}"),
            Self::Limit { name, limit } => format!("limit of {limit} reached: {name}"),
            Self::MalformedRequest { why } => format!("request is malformed: {why}"),
            Self::MalformedResponse { why } => format!("response is malformed: {why}"),
            Self::MalformedMetadata { why } => format!("metadata is malformed: {why}"),
            Self::PeerProtocol { why, .. } => format!("peer broke the protocol: {why}"),
            Self::SchemaMismatch { why } => format!("schemas cannot be bridged: {why}"),
            Self::HandlerProtocol { why } => format!("handler broke the calling pattern: {why}"),
            Self::Cardinality { why, .. } => format!("number of messages does not fit the method: {why}"),
            Self::Streams { endpoint } => {
                format!(
                    "{endpoint} carries one request and one reply, and the method streams: call it by tcp://"
                )
            }
            Self::Dropped { by, why, .. } => format!("{by}: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Lists every fault with the status a caller sees, the blame, and what is known of the execution.
    use super::*;
    use Execution::{Executed, NotExecuted, Unknown};

    #[test]
    fn every_fault_has_its_status() {
        let s = || "x".to_string();
        let dropped = Fault::Dropped { by: s(), why: s(), code: Code::Aborted, executed: Unknown };
        #[rustfmt::skip]
        let table = [
            (Fault::DeadlinePassed { executed: Unknown }, Code::DeadlineExceeded, Blame::Circumstance, Unknown),
            (Fault::Cancelled { executed: NotExecuted }, Code::Cancelled, Blame::Circumstance, NotExecuted),
            (Fault::NoRoute { what: s() }, Code::Unavailable, Blame::Operator, NotExecuted),
            (Fault::NoMethod { path: s() }, Code::Unimplemented, Blame::Caller, NotExecuted),
            (Fault::Unreachable { endpoint: s(), why: s() }, Code::Unavailable, Blame::Peer, NotExecuted),
            (Fault::ConnectionLost { endpoint: s(), executed: Unknown }, Code::Unavailable, Blame::Peer, Unknown),
            (Fault::Corrupted { endpoint: s(), executed: Unknown }, Code::Unavailable, Blame::Peer, Unknown),
            (Fault::HandlerGone { executed: Unknown }, Code::Unavailable, Blame::Handler, Unknown),
            (Fault::Draining, Code::Unavailable, Blame::Circumstance, NotExecuted),
            (Fault::Ended, Code::Cancelled, Blame::Circumstance, Unknown),
            (Fault::Denied { policy: s(), code: Code::Aborted, why: s() }, Code::Aborted, Blame::Operator, NotExecuted),
            (Fault::Limit { name: "calls", limit: 1 }, Code::ResourceExhausted, Blame::Caller, NotExecuted),
            (Fault::MalformedRequest { why: s() }, Code::InvalidArgument, Blame::Caller, NotExecuted),
            (Fault::MalformedResponse { why: s() }, Code::Internal, Blame::Handler, Executed),
            (Fault::MalformedMetadata { why: s() }, Code::Internal, Blame::Caller, NotExecuted),
            (Fault::PeerProtocol { why: s(), executed: Unknown }, Code::Internal, Blame::Peer, Unknown),
            (Fault::SchemaMismatch { why: s() }, Code::Internal, Blame::Operator, NotExecuted),
            (Fault::HandlerProtocol { why: "x" }, Code::Internal, Blame::Handler, Executed),
            (Fault::Cardinality { why: "x", executed: NotExecuted }, Code::Unimplemented, Blame::Caller, NotExecuted),
            (Fault::Cardinality { why: "x", executed: Executed }, Code::Unimplemented, Blame::Handler, Executed),
            (Fault::Streams { endpoint: s() }, Code::Unimplemented, Blame::Operator, NotExecuted),
            (dropped, Code::Aborted, Blame::Peer, Unknown),
        ];
        for (fault, code, blame, execution) in table {
            let status = fault.status();
            assert_eq!(
                (status.code(), fault.blame(), status.execution()),
                (code, blame, execution),
                "{fault:?}"
            );
            assert!(!status.message().is_empty());
        }
    }
}
