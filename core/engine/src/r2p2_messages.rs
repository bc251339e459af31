//! What is said over R2P2, as calls and items: nothing here remembers anything.

use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::convert::{Scratch, reencode};
use crate::convert_error::{conversion_fault, untyped};
use crate::limits::{HELD_OF_HOST, HELD_OF_SOURCE, R2P2_REPLY};
use crate::registry::{Called, Form, MethodTypes};
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{
    Code, Deadline, Encoding, Execution, Fault, Instant, MetadataReader, Pattern, Status, WorkerChoice,
};
use trunkline_r2p2::{CallFailure, PortFull, Reason, ReplyEnvelope, Request, RequestEnvelope};

/// Why a request becomes no call.
#[derive(Debug)]
pub(crate) enum RequestRefused {
    /// It is answered so.
    Refused(Status),
    /// It is linear, and of a type nobody here has.
    Unreadable {
        /// The type that whoever serves it has.
        fingerprint: u64,
    },
}

impl RequestRefused {
    /// Whoever wrote it made a mistake, and nobody here.
    pub fn malformed(why: &str) -> Self {
        let status = Status::new(Code::InvalidArgument, format!("the request cannot be read: {why}"));
        Self::Refused(status.with_execution(Execution::NotExecuted))
    }
}

impl From<Fault> for RequestRefused {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault.status())
    }
}

/// What a request says.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_request(body: &[u8]) -> Result<RequestEnvelope<'_>, RequestRefused> {
    RequestEnvelope::parse(body).map_err(|error| RequestRefused::malformed(&error.to_string()))
}

/// # Errors
/// A request's metadata cannot be read.
pub(crate) fn check_metadata(said: &RequestEnvelope<'_>) -> Result<(), RequestRefused> {
    if said.metadata.is_empty() {
        return Ok(());
    }
    let read = MetadataReader::read(said.metadata);
    let checked = read.and_then(|mut pairs| pairs.try_for_each(|pair| pair.map(drop)));
    checked.map_err(|error| RequestRefused::malformed(&error.to_string()))
}

/// The call a request means that came at `arrived`, for a method that is served with these types.
///
/// Nobody has an identity here: a seal says that the sender has the key of the cluster, and not which host it is.
///
/// # Errors
/// It can be none.
pub(crate) fn call_of(
    request: &Request,
    said: &RequestEnvelope<'_>,
    (called, pattern): (Called, Pattern),
    served: &[&Arc<MethodTypes>],
    (arrived, now): (Instant, Instant),
) -> Result<Call, RequestRefused> {
    let first = served.first();
    let fingerprint = first.map_or(0, |types| types.input.fingerprint());
    // A fingerprint that is zero stands for no type.
    if first.is_some_and(|types| !types.input.is_opaque())
        && (pattern.client_streams() || pattern.server_streams())
    {
        return Err(Fault::Streams { endpoint: "R2P2".into() }.into());
    }
    let reads = |types: &&Arc<MethodTypes>| {
        said.is_linear && said.fingerprints[0] != 0 && types.input.fingerprint() == said.fingerprints[0]
    };
    let agreed = served.iter().copied().find(reads).cloned();
    if said.is_linear && agreed.is_none() {
        return Err(RequestRefused::Unreadable { fingerprint });
    }
    let client = ClientEnd::R2p2 { request: request.key };
    let mut call = Call::new(called.method, client, ServerEnd::Nobody, Deadline::NONE);
    call.path = called.path;
    call.offered = Some(said.fingerprints);
    call.agreed = agreed;
    call.deadline = request.deadline;
    call.choice.class = WorkerChoice::class_of(request.class.into()).filter(|class| *class > 0);
    (call.server_stamps.k7, call.server_stamps.d8) = (arrived, now);
    Ok(call)
}

/// The opening of a call that a request is.
pub(crate) fn opening_of<'r>(said: &RequestEnvelope<'r>) -> Item<'r> {
    let body = Some(wire_body(said.message, said.is_linear));
    Item::Open { metadata: Cow::Borrowed(said.metadata), body, end: true }
}

/// What a reply says.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_reply(body: &[u8]) -> Result<ReplyEnvelope<'_>, Fault> {
    let unread = |why| Fault::PeerProtocol { why, executed: Execution::Unknown };
    ReplyEnvelope::parse(body).map_err(|error| unread(error.to_string()))
}

/// The end of a call that a reply is.
///
/// # Errors
/// It is none.
pub(crate) fn finish_of<'r>(reply: &ReplyEnvelope<'r>) -> Result<Item<'r>, Fault> {
    let (code, execution) = (reply.code, reply.execution);
    let message = reply.message.filter(|_| code == Code::Ok);
    if code == Code::Ok && message.is_none() {
        let (why, executed) = ("a reply without a message".into(), Execution::Executed);
        return Err(Fault::PeerProtocol { why, executed });
    }
    let body = message.map(|bytes| wire_body(bytes, reply.is_linear));
    Ok(Item::Finish { code, execution, body, metadata: Cow::Borrowed(reply.trailers) })
}

/// A linear request that a server could not read, and did not execute, as protobuf. `linear` is empty if it was none.
///
/// # Errors
/// What ends the call.
pub(crate) fn as_protobuf(call: &Call, scratch: &mut Scratch, linear: &Bytes) -> Result<Bytes, Fault> {
    if linear.is_empty() {
        let (why, executed) = ("it cannot read protobuf".into(), Execution::NotExecuted);
        return Err(Fault::PeerProtocol { why, executed });
    }
    let types = call.types_sent(Direction::Request).ok_or_else(untyped)?;
    let malformed = |why: String| Fault::MalformedRequest { why };
    let said = RequestEnvelope::parse(linear).map_err(|error| malformed(error.to_string()))?;
    let Form::Typed(of) = &types.input else { return Err(malformed("its type is not known".into())) };
    let message =
        reencode(scratch, of, said.message).map_err(|error| conversion_fault(error, Direction::Request))?;
    let again = RequestEnvelope { is_linear: false, message, ..said }.encode();
    Ok(again.unwrap_or_default().into())
}

/// Whether the caller knows that the method streams. Who does not know its types is held to one message.
pub(crate) fn streams_from_here(call: &Call) -> bool {
    let types = call.types_sent(Direction::Request);
    types.is_some_and(|types| {
        let pattern = types.pattern;
        !types.input.is_opaque() && (pattern.client_streams() || pattern.server_streams())
    })
}

/// What a call hears that has ended without a reply, `by` whom it was to be given.
pub(crate) fn fault_of_failure(failure: CallFailure, by: String) -> Fault {
    let executed = failure.execution();
    let dropped = |code| Fault::Dropped { by, why: failure.to_string(), code, executed };
    match failure {
        CallFailure::Deadline => Fault::DeadlinePassed { executed },
        CallFailure::Dropped { reason: Reason::Deadline, .. } => Fault::DeadlinePassed { executed },
        CallFailure::Silent => dropped(Code::Unavailable),
        CallFailure::Full(full) => fault_of(full),
        CallFailure::TooLong { limit } => Fault::Limit { name: R2P2_REPLY, limit: limit as u64 },
        CallFailure::Dropped { reason, .. } => dropped(code_of(reason)),
    }
}

/// The status of a refusal. What is full may be free in a moment, and says so as gRPC's libraries do.
fn code_of(reason: Reason) -> Code {
    match reason {
        Reason::Busy | Reason::QueueFull | Reason::QueueDelay | Reason::TooLong => Code::ResourceExhausted,
        Reason::Deadline => Code::DeadlineExceeded,
        Reason::Cancelled => Code::Cancelled,
        Reason::Unsaid | Reason::NoWorker | Reason::Partial | Reason::Forgotten | Reason::Served => {
            Code::Unavailable
        }
    }
}

/// What a call hears that met it.
pub(crate) fn fault_of(full: PortFull) -> Fault {
    match full {
        PortFull::Peer { limit } => Fault::Limit { name: HELD_OF_SOURCE, limit: limit as u64 },
        PortFull::Port { limit } => Fault::Limit { name: HELD_OF_HOST, limit: limit as u64 },
    }
}

fn wire_body(bytes: &[u8], is_linear: bool) -> Body<'_> {
    let encoding = if is_linear { Encoding::Linear } else { Encoding::Protobuf };
    Body::Wire { bytes: Cow::Borrowed(bytes), encoding, charged: 0, compressed: false }
}
