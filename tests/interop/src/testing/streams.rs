//! Cases about streams.

use super::cases::{Caller, CaseError, LIMIT, call, failed, same};
use super::payload;
use crate::proto::grpc::testing::{
    EchoStatus, PayloadType, ResponseParameters, StreamingInputCallRequest, StreamingOutputCallRequest,
    StreamingOutputCallResponse,
};
use std::time::Duration;
use trunkline::codegen::Received;
use trunkline::{Code, Receiver, Wait};

/// Bodies of the requests, and of the responses, by gRPC's test descriptions.
const REQUESTS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSES: [i32; 4] = [31_415, 9, 2_653, 58_979];

type Responses = Receiver<StreamingOutputCallResponse>;

pub(super) fn client_streaming(caller: &Caller) -> Result<(), CaseError> {
    let mut stream = caller.service().streaming_input_call().with_timeout(LIMIT);
    for bytes in REQUESTS {
        let request = StreamingInputCallRequest { payload: payload(bytes), ..Default::default() };
        stream.send(request).wait().map_err(call("StreamingInputCall"))?;
    }
    let reply = stream.finish().wait().map_err(call("StreamingInputCall"))?;
    same("bytes in all", reply.view().aggregated_payload_size(), REQUESTS.iter().sum::<usize>() as i32)
}

pub(super) fn server_streaming(caller: &Caller) -> Result<(), CaseError> {
    let request = caller.request(asking(0, &RESPONSES));
    let mut stream =
        caller.service().streaming_output_call(request).wait().map_err(call("StreamingOutputCall"))?;
    for bytes in RESPONSES {
        next(&mut stream, bytes)?;
    }
    no_more(&mut stream)
}

pub(super) fn ping_pong(caller: &Caller) -> Result<(), CaseError> {
    let (mut tx, mut rx) = caller.service().full_duplex_call().with_timeout(LIMIT).split();
    for (sent, wanted) in REQUESTS.into_iter().zip(RESPONSES) {
        tx.send(asking(sent, &[wanted])).wait().map_err(call("FullDuplexCall"))?;
        next(&mut rx, wanted)?;
    }
    tx.close();
    no_more(&mut rx)
}

pub(super) fn empty_stream(caller: &Caller) -> Result<(), CaseError> {
    let (tx, mut rx) = caller.service().full_duplex_call().with_timeout(LIMIT).split();
    tx.close();
    no_more(&mut rx)
}

/// Nothing is answered before everything was said.
pub(super) fn half_duplex(caller: &Caller) -> Result<(), CaseError> {
    let (mut tx, mut rx) = caller.service().half_duplex_call().with_timeout(LIMIT).split();
    for (sent, wanted) in REQUESTS.into_iter().zip(RESPONSES) {
        tx.send(asking(sent, &[wanted])).wait().map_err(call("HalfDuplexCall"))?;
    }
    tx.close();
    for bytes in RESPONSES {
        next(&mut rx, bytes)?;
    }
    no_more(&mut rx)
}

pub(super) fn timeout_on_sleeping_server(caller: &Caller) -> Result<(), CaseError> {
    let call = caller.service().full_duplex_call().with_timeout(Duration::from_millis(1));
    let (mut tx, mut rx) = call.split();
    // The deadline may have passed before; then this says so, and receiving says it again.
    if let Err(status) = tx.send(asking(27_182, &[])).wait() {
        return same("code", status.code(), Code::DeadlineExceeded);
    }
    same("code", failed("FullDuplexCall", rx.recv().wait())?.code(), Code::DeadlineExceeded)
}

/// Metadata is sent, and the call cancelled before the first message. Dropping is cancelling: what can be looked at is
/// that the channel serves on.
pub(super) fn cancel_after_begin(caller: &Caller) -> Result<(), CaseError> {
    let stream = caller.service().streaming_input_call();
    let stream =
        stream.with_metadata("key1", "value1").and_then(|stream| stream.with_metadata("key2", "value2"));
    let mut stream = stream.map_err(|error| CaseError::Wrong(error.to_string()))?;
    stream.start().wait().map_err(call("StreamingInputCall"))?;
    drop(stream);
    empty_stream(caller)
}

pub(super) fn cancel_after_first_response(caller: &Caller) -> Result<(), CaseError> {
    let (mut tx, mut rx) = caller.service().full_duplex_call().split();
    tx.send(asking(27_182, &[31_415])).wait().map_err(call("FullDuplexCall"))?;
    next(&mut rx, 31_415)?;
    drop(rx);
    same("code", failed("sending", tx.send(asking(1, &[])).wait())?.code(), Code::Cancelled)?;
    empty_stream(caller)
}

pub(super) fn echo_status(caller: &Caller, message: &str) -> Result<(), CaseError> {
    let (mut tx, mut rx) = caller.service().full_duplex_call().with_timeout(LIMIT).split();
    let wanted = EchoStatus { code: Code::Unknown.number().into(), message: message.into() };
    let request = StreamingOutputCallRequest { response_status: Some(wanted), ..Default::default() };
    tx.send(request).wait().map_err(call("FullDuplexCall"))?;
    tx.close();
    let status = failed("FullDuplexCall", rx.recv().wait())?;
    same("status", (status.code(), status.message()), (Code::Unknown, message))
}

pub(super) fn asking(body: usize, responses: &[i32]) -> StreamingOutputCallRequest {
    let response = |size: &i32| ResponseParameters { size: *size, ..ResponseParameters::default() };
    StreamingOutputCallRequest {
        response_type: PayloadType::Compressable,
        response_parameters: responses.iter().map(response).collect(),
        payload: payload(body),
        ..StreamingOutputCallRequest::default()
    }
}

/// Takes a response, which must have a body of so many bytes.
pub(super) fn next(
    stream: &mut Responses,
    bytes: i32,
) -> Result<Received<StreamingOutputCallResponse>, CaseError> {
    let response = stream.recv().wait().map_err(call("receiving"))?;
    let response = response.ok_or_else(|| CaseError::Wrong("the stream ended early".into()))?;
    let body = response.view().payload().map(|payload| payload.body().len());
    same("bytes of the body", body, Some(bytes as usize))?;
    Ok(response)
}

/// The stream must end well.
pub(super) fn no_more(stream: &mut Responses) -> Result<(), CaseError> {
    match stream.recv().wait().map_err(call("receiving"))? {
        None => Ok(()),
        Some(_) => Err(CaseError::Wrong("a response more than was asked for".into())),
    }
}
