//! Messages of calls that are sampled: copied, as protobuf, and with the fields emptied that are nobody's to read
//! (`samples.rs` says which calls).
//!
//! A call is sampled where it is a call of somebody: where an application of this host makes it, or where it comes from
//! another host. Its attempts, its copies and its other half on another shard are not, nor is one that a client of the
//! gateway has forwarded, whose messages pass unread. Only calls with one request and at most one response are kept.

use crate::CallKey;
use crate::call::{Body, Call, ClientEnd, Direction, Item};
use crate::convert::private;
use crate::gateway::Gateway;
use crate::owners::Owners;
use crate::registry::{Form, MessageType, MethodTypes};
use crate::samples::{SampleRule, TakenSample, Unsampled};
use crate::turn::Turn;
use std::sync::Arc;
use trunkline_call::{Code, Encoding};
use trunkline_message::transcode::Encoded;
use trunkline_message::{HEADER_BYTES, Header, Redaction};

/// A call's request goes on its way.
#[inline]
pub(crate) fn sample_request(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    call: (CallKey, &Call),
    item: &Item<'_>,
) {
    if owners.samples.is_on() {
        begin(owners, turn, call, item);
    }
}

/// Something comes back to whoever made the call.
#[inline(always)]
pub(crate) fn sample_answer(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    call: (CallKey, &Call),
    item: &Item<'_>,
) {
    if owners.samples.awaits_answers() {
        go_on(owners, turn, call, item);
    }
}

fn begin(owners: &mut Owners, turn: &mut Turn<'_>, (key, call): (CallKey, &Call), item: &Item<'_>) {
    let Item::Open { body: Some(body), end: true, .. } = item else { return };
    let Owners { samples, registry, gateway, .. } = owners;
    if !is_sampled(call) || samples.of(key).is_some() {
        return;
    }
    let path: Arc<str> = match &call.path {
        Some(path) => path.clone().into(),
        None => Arc::clone(registry.path(call.method)),
    };
    let served = !matches!(call.client, ClientEnd::Session { .. });
    let timeout_ns = call.deadline.remaining_ns(turn.now);
    let Some((index, rule)) = samples.choose(turn.now, &path) else { return };
    let forms = forms_of(gateway, call, Direction::Request);
    match message_of(turn, forms, body, (&rule.redaction, rule.message_bytes_max)) {
        Err(why) => samples.count(why),
        Ok(Taken { bytes, emptied, of }) => {
            let SampleRule { redaction, message_bytes_max, .. } = rule;
            let sample = TakenSample {
                path,
                served,
                began: turn.now,
                duration_ns: 0,
                timeout_ns,
                code: Code::Unknown,
                schema: of.map(|of| of.schema),
                redaction,
                emptied,
                request: bytes,
                response: None,
                message_bytes_max,
                rule: index,
            };
            samples.begin(key, sample);
        }
    }
}

fn go_on(owners: &mut Owners, turn: &mut Turn<'_>, (key, call): (CallKey, &Call), item: &Item<'_>) {
    let Owners { samples, gateway, .. } = owners;
    let Some(sample) = samples.of(key) else { return };
    let (redaction, bytes_max) = (Arc::clone(&sample.redaction), sample.message_bytes_max);
    let has_response = sample.response.is_some();
    if let Some(body) = item.body() {
        if has_response {
            return samples.forget(key);
        }
        let forms = forms_of(gateway, call, Direction::Response);
        match message_of(turn, forms, body, (&redaction, bytes_max)) {
            Ok(Taken { bytes, emptied, .. }) => samples.respond(key, bytes, emptied),
            Err(why) => samples.count(why),
        }
    }
    if let Item::Finish { code, .. } = item {
        samples.finish(turn.now, key, *code);
    }
}

fn is_sampled(call: &Call) -> bool {
    let is_somebodys = match &call.client {
        ClientEnd::Session { .. } | ClientEnd::Peer { .. } | ClientEnd::R2p2 { .. } => true,
        ClientEnd::Grpc { types, .. } => types.is_none(),
        ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } | ClientEnd::Shard { .. } => false,
    };
    let ends = [call.sender_types(Direction::Response), call.sender_types(Direction::Request)];
    let streams = |types: &Arc<MethodTypes>| !types.output.is_opaque() && types.pattern.server_streams();
    is_somebodys && !ends.iter().flatten().any(streams)
}

/// A message that was copied.
struct Taken {
    bytes: Vec<u8>,
    emptied: bool,
    of: Option<MessageType>,
}

/// A private copy of a message that has the first of these forms, as protobuf, with these fields emptied and of so many
/// bytes at most. They go by the names that any of the types gives them: whoever sends a message may have names of its
/// own, and whoever wrote the rule knew the other's.
fn message_of(
    turn: &mut Turn<'_>,
    forms: [Option<Form>; 2],
    body: &Body<'_>,
    (redaction, bytes_max): (&Redaction, u32),
) -> Result<Taken, Unsampled> {
    if body.len() > bytes_max {
        return Err(Unsampled::TooLarge);
    }
    let (bytes, encoding) = copy_of(turn, forms[0].as_ref(), body)?;
    let [of, other] = forms.map(|form| match form {
        Some(Form::Typed(of)) => Some(of),
        Some(Form::Opaque) | None => None,
    });
    let mut bytes = match (encoding, &of) {
        (Encoding::Protobuf, _) => bytes,
        (Encoding::Linear, None) => return Err(Unsampled::Unreadable),
        (Encoding::Linear, Some(of)) => {
            // Samples are few: what they need is not kept for the next one.
            let mut wire = Encoded::new();
            let done = of.schema.transcoder.encode_into(of.index, &bytes, &mut wire);
            done.map_err(|_| Unsampled::Unreadable)?.to_vec()
        }
    };
    let mut emptied = false;
    if !redaction.is_empty() {
        let of = of.as_ref().ok_or(Unsampled::Unreadable)?;
        for of in [of].into_iter().chain(other.as_ref().filter(|other| other.fingerprint != of.fingerprint)) {
            let redacted = redaction.apply(&of.schema.schema, of.index, &bytes);
            let redacted = redacted.map_err(|_| Unsampled::Unreadable)?;
            (bytes, emptied) = (redacted.bytes, emptied || redacted.emptied + redacted.unknown > 0);
        }
    }
    if bytes.len() > bytes_max as usize {
        return Err(Unsampled::TooLarge);
    }
    Ok(Taken { bytes, emptied, of })
}

/// The form in which messages travel in this direction: that of whoever sends them, or, where only the other end knows
/// their type, of whoever gets them; and that of whoever gets them, if it is known here.
fn forms_of(gateway: &Gateway, call: &Call, direction: Direction) -> [Option<Form>; 2] {
    let sent = match direction {
        Direction::Request => gateway.request_form(call),
        Direction::Response => call.sender_types(direction).map(|types| types.of(direction).clone()),
    };
    let got = call.receiver_types(direction).map(|types| types.of(direction).clone());
    [sent.filter(|form| !form.is_opaque()).or_else(|| got.clone()), got]
}

fn copy_of(
    turn: &mut Turn<'_>,
    form: Option<&Form>,
    body: &Body<'_>,
) -> Result<(Vec<u8>, Encoding), Unsampled> {
    if body.packed().is_some() {
        return Err(Unsampled::Unreadable);
    }
    let Body::Placed { session, block, encoding, .. } = body else {
        let mut copy = Vec::new();
        let encoding = private(&*turn.heaps, form, body, &mut copy).map_err(|_| Unsampled::Unreadable)?;
        return Ok((copy, encoding));
    };
    let mut bytes = turn.heaps.receive_block(*session, *block).to_vec();
    if let (Encoding::Linear, Some(Form::Typed(of))) = (encoding, form) {
        if bytes.len() < HEADER_BYTES {
            return Err(Unsampled::Unreadable);
        }
        Header { total_bytes: bytes.len() as u32, fingerprint: of.fingerprint }.write(&mut bytes);
    }
    Ok((bytes, *encoding))
}
