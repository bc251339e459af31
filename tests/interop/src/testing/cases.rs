//! The cases a client plays, and the simplest of them.

use super::{Soak, load, metadata, payload, soak, streams};
use crate::proto::grpc::testing::test_service_client::TestServiceClient;
use crate::proto::grpc::testing::unimplemented_service_client::UnimplementedServiceClient;
use crate::proto::grpc::testing::{EchoStatus, Empty, PayloadType, SimpleRequest, SimpleResponse};
use crate::proto::xds::service::orca::v3::open_rca_service_client::OpenRcaServiceClient;
use std::time::Duration;
use trunkline::{Channel, Code, Metadata, Request, Response, Status, Wait};

/// Bytes in the body of the large request, and of the large response, by gRPC's test descriptions.
pub(super) const LARGE: (usize, i32) = (271_828, 314_159);
/// A call that must not take long gets this much.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// A named case.
pub type Case = (&'static str, fn(&Caller) -> Result<(), CaseError>);

/// Every case, by the name gRPC's test descriptions give it.
pub const ALL: &[Case] = &[
    ("empty_unary", empty_unary),
    ("large_unary", large_unary),
    ("client_streaming", streams::client_streaming),
    ("server_streaming", streams::server_streaming),
    ("ping_pong", streams::ping_pong),
    ("empty_stream", streams::empty_stream),
    ("half_duplex", streams::half_duplex),
    ("timeout_on_sleeping_server", streams::timeout_on_sleeping_server),
    ("cancel_after_begin", streams::cancel_after_begin),
    ("cancel_after_first_response", streams::cancel_after_first_response),
    ("status_code_and_message", status_code_and_message),
    ("special_status_message", special_status_message),
    ("custom_metadata", metadata::custom_metadata),
    ("unimplemented_method", unimplemented_method),
    ("unimplemented_service", unimplemented_service),
    ("rpc_soak", soak::rpc_soak),
    ("channel_soak", soak::channel_soak),
    ("orca_per_rpc", load::orca_per_rpc),
    ("orca_oob", load::orca_oob),
];

/// The case with this name.
pub fn named(name: &str) -> Option<Case> {
    ALL.iter().find(|(known, _)| *known == name).copied()
}

/// Makes the calls of a case.
pub struct Caller {
    open: Box<dyn Fn() -> Channel + Send + Sync>,
    channel: Channel,
    metadata: Metadata,
    soak: Soak,
}

/// Why a case failed.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// A call that should have gone well did not.
    #[error("{call}: {status}")]
    Call {
        /// The method.
        call: &'static str,
        /// How it ended.
        status: Status,
    },
    /// It went well, and something is wrong with what came back.
    #[error("{0}")]
    Wrong(String),
}

impl Caller {
    /// Calls through channels that `open` makes: one for all cases but `channel_soak`.
    pub fn new(open: impl Fn() -> Channel + Send + Sync + 'static) -> Self {
        let channel = open();
        Self { open: Box::new(open), channel, metadata: Metadata::new(), soak: Soak::default() }
    }

    /// Sends these with every unary call.
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// How the soak cases go.
    pub fn with_soak(mut self, soak: Soak) -> Self {
        self.soak = soak;
        self
    }

    pub(super) fn service(&self) -> TestServiceClient {
        TestServiceClient::new(self.channel.clone())
    }

    pub(super) fn orca(&self) -> OpenRcaServiceClient {
        OpenRcaServiceClient::new(self.channel.clone())
    }

    pub(super) fn fresh(&self) -> TestServiceClient {
        TestServiceClient::new((self.open)())
    }

    pub(super) fn soak(&self) -> &Soak {
        &self.soak
    }

    pub(super) fn request<M: trunkline::codegen::Message>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message).with_timeout(LIMIT);
        *request.metadata_mut() = self.metadata.clone();
        request
    }

    pub(super) fn unary(&self, request: SimpleRequest) -> Result<Response<SimpleResponse>, CaseError> {
        self.service().unary_call(self.request(request)).wait().map_err(call("UnaryCall"))
    }
}

/// A call that should have gone well.
pub(super) fn call(call: &'static str) -> impl FnOnce(Status) -> CaseError {
    move |status| CaseError::Call { call, status }
}

/// Fails unless the two are equal.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), CaseError> {
    if got == wanted {
        return Ok(());
    }
    Err(CaseError::Wrong(format!("{what}: got {got:?}, wanted {wanted:?}")))
}

/// The status of a call that must not go well.
pub(super) fn failed<T>(what: &str, result: Result<T, Status>) -> Result<Status, CaseError> {
    match result {
        Ok(_) => Err(CaseError::Wrong(format!("{what} went well"))),
        Err(status) => Ok(status),
    }
}

pub(super) fn large_request((request, response): (usize, i32)) -> SimpleRequest {
    let response_type = PayloadType::Compressable;
    SimpleRequest {
        response_type,
        response_size: response,
        payload: payload(request),
        ..SimpleRequest::default()
    }
}

pub(super) fn body_of(response: &Response<SimpleResponse>) -> Option<usize> {
    response.view().payload().map(|payload| payload.body().len())
}

fn empty_unary(caller: &Caller) -> Result<(), CaseError> {
    let reply = caller.service().empty_call(caller.request(Empty {})).wait().map_err(call("EmptyCall"))?;
    same("reply", reply.into_inner(), Empty {})
}

fn large_unary(caller: &Caller) -> Result<(), CaseError> {
    let reply = caller.unary(large_request(LARGE))?;
    same("bytes of the body", body_of(&reply), Some(LARGE.1 as usize))?;
    let payload = reply.into_inner().payload.unwrap_or_default();
    same("type", payload.r#type, PayloadType::Compressable)?;
    same("zeros", payload.body.iter().all(|byte| *byte == 0), true)
}

fn status_code_and_message(caller: &Caller) -> Result<(), CaseError> {
    echo_status(caller, "test status message")?;
    streams::echo_status(caller, "test status message")
}

fn special_status_message(caller: &Caller) -> Result<(), CaseError> {
    echo_status(caller, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")
}

fn echo_status(caller: &Caller, message: &str) -> Result<(), CaseError> {
    let wanted = EchoStatus { code: Code::Unknown.number().into(), message: message.into() };
    let request = SimpleRequest { response_status: Some(wanted), ..SimpleRequest::default() };
    let status = failed("UnaryCall", caller.service().unary_call(caller.request(request)).wait())?;
    same("status", (status.code(), status.message()), (Code::Unknown, message))
}

fn unimplemented_method(caller: &Caller) -> Result<(), CaseError> {
    let reply = caller.service().unimplemented_call(caller.request(Empty {})).wait();
    same("code", failed("UnimplementedCall", reply)?.code(), Code::Unimplemented)
}

fn unimplemented_service(caller: &Caller) -> Result<(), CaseError> {
    let client = UnimplementedServiceClient::new(caller.channel.clone());
    let reply = client.unimplemented_call(caller.request(Empty {})).wait();
    same("code", failed("UnimplementedCall", reply)?.code(), Code::Unimplemented)
}
