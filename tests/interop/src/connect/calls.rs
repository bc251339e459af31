//! One call of each pattern, as the runner wants it made.

use super::words::{Words, headers, metadata};
use crate::codec::CodecError;
use crate::proto::connectrpc::conformance::v1::client_compat_request::cancel::CancelTiming;
use crate::proto::connectrpc::conformance::v1::conformance_service_client::ConformanceServiceClient;
use crate::proto::connectrpc::conformance::v1::{
    BidiStreamRequest, BidiStreamResponse, ClientCompatRequest, ClientResponseResult, ClientStreamRequest,
    ConformancePayload, StreamType, UnimplementedRequest,
};
use std::future::{Future, IntoFuture};
use std::time::Duration;
use trunkline::codegen::Message;
use trunkline::{Channel, Metadata, MetadataError, Receiver, Request, Response, Status};

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The runner wants something this client does not know.
    #[error("method {0:?} is not known here")]
    Method(String),
    /// A unary call, or one whose server streams, needs a request.
    #[error("{0} request messages where one is needed")]
    Requests(usize),
    /// A message is not what it should be.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A header cannot be sent.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

type Reported = Result<ClientResponseResult, CallError>;

/// What the runner wants, and with whose words it is told.
struct Wanted<'w> {
    words: &'w Words,
    request: ClientCompatRequest,
    metadata: Metadata,
    cancel: Cancel,
}

/// When the call is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancel {
    Never,
    BeforeCloseSend,
    AfterCloseSend(Duration),
    AfterResponses(usize),
}

pub(super) async fn make(words: &Words, request: ClientCompatRequest, channel: Channel) -> Reported {
    let client = ConformanceServiceClient::new(channel);
    let metadata = metadata(&request.request_headers)?;
    let cancel = Cancel::of(&request);
    let wanted = Wanted { words, request, metadata, cancel };
    match wanted.request.method.as_deref().unwrap_or_default() {
        "Unary" => {
            let request = wanted.only()?;
            wanted.unary(client.unary(request), |response| response.payload.unwrap_or_default()).await
        }
        "IdempotentUnary" => {
            let request = wanted.only()?;
            wanted
                .unary(client.idempotent_unary(request), |response| response.payload.unwrap_or_default())
                .await
        }
        "Unimplemented" => {
            let request: Request<UnimplementedRequest> = wanted.only()?;
            wanted.unary(client.unimplemented(request), |_| ConformancePayload::default()).await
        }
        "ServerStream" => {
            let request = wanted.only()?;
            let receiver = match client.server_stream(request).await {
                Ok(receiver) => receiver,
                Err(status) => return wanted.failed(status),
            };
            wanted.receive(receiver, |response| response.payload.unwrap_or_default()).await
        }
        "ClientStream" => wanted.client_stream(&client).await,
        "BidiStream" => wanted.bidi_stream(&client).await,
        other => Err(CallError::Method(other.to_owned())),
    }
}

impl Cancel {
    fn of(request: &ClientCompatRequest) -> Self {
        let Some(cancel) = &request.cancel else { return Self::Never };
        match &cancel.cancel_timing {
            Some(CancelTiming::BeforeCloseSend(_)) => Self::BeforeCloseSend,
            Some(CancelTiming::AfterCloseSendMs(ms)) => {
                Self::AfterCloseSend(Duration::from_millis(u64::from(*ms)))
            }
            Some(CancelTiming::AfterNumResponses(responses)) => Self::AfterResponses(*responses as usize),
            None => Self::AfterCloseSend(Duration::ZERO),
        }
    }
}

impl Wanted<'_> {
    /// The only request message, ready to be sent.
    fn only<M: Message>(&self) -> Result<Request<M>, CallError> {
        let [message] = self.request.request_messages.as_slice() else {
            return Err(CallError::Requests(self.request.request_messages.len()));
        };
        let mut request = Request::new(self.words.unpacked(message)?);
        *request.metadata_mut() = self.metadata.clone();
        Ok(match self.timeout() {
            Some(timeout) => request.with_timeout(timeout),
            None => request,
        })
    }

    fn timeout(&self) -> Option<Duration> {
        self.request.timeout_ms.map(|ms| Duration::from_millis(ms.into()))
    }

    async fn delay(&self) {
        if self.request.request_delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.request.request_delay_ms.into())).await;
        }
    }

    /// A call with one response, whatever is sent.
    async fn unary<R: Message>(
        &self,
        call: impl IntoFuture<Output = Result<Response<R>, Status>>,
        payload: impl FnOnce(R) -> ConformancePayload,
    ) -> Reported {
        match self.or_cancelled(call.into_future()).await {
            Err(status) => self.failed(status),
            Ok(response) => {
                let (response_headers, response_trailers) =
                    (headers(response.headers()), headers(response.trailers()));
                let payloads = vec![payload(response.into_inner())];
                Ok(ClientResponseResult {
                    response_headers,
                    response_trailers,
                    payloads,
                    ..Default::default()
                })
            }
        }
    }

    /// Everything has been sent: gives the call up in a while, if that is wanted.
    async fn or_cancelled<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        match self.cancel {
            Cancel::AfterCloseSend(after) => tokio::select! {
                biased;
                ended = call => ended,
                () = tokio::time::sleep(after) => Err(given_up()),
            },
            _ => call.await,
        }
    }

    /// A call that failed before there were responses: its metadata is one bag, which the runner takes for trailers.
    fn failed(&self, status: Status) -> Reported {
        let error = Some(self.words.error(&status)?);
        let response_trailers = headers(status.metadata());
        Ok(ClientResponseResult { error, response_trailers, ..ClientResponseResult::default() })
    }

    async fn client_stream(&self, client: &ConformanceServiceClient) -> Reported {
        let mut call = client.client_stream();
        for (key, value) in self.metadata.iter() {
            call = call.with_metadata(key, value)?;
        }
        if let Some(timeout) = self.timeout() {
            call = call.with_timeout(timeout);
        }
        let mut unsent = self.request.request_messages.len();
        for message in &self.request.request_messages {
            let message: ClientStreamRequest = self.words.unpacked(message)?;
            self.delay().await;
            // How the call ended says its end.
            if call.send(message).await.is_err() {
                break;
            }
            unsent -= 1;
        }
        if self.cancel == Cancel::BeforeCloseSend {
            drop(call);
            return self.failed(given_up());
        }
        let result = self.unary(call.finish(), |response| response.payload.unwrap_or_default()).await?;
        Ok(ClientResponseResult { num_unsent_requests: unsent as i32, ..result })
    }

    async fn bidi_stream(&self, client: &ConformanceServiceClient) -> Reported {
        let mut call = client.bidi_stream();
        for (key, value) in self.metadata.iter() {
            call = call.with_metadata(key, value)?;
        }
        if let Some(timeout) = self.timeout() {
            call = call.with_timeout(timeout);
        }
        let (mut tx, rx) = call.split();
        let payload = |response: BidiStreamResponse| response.payload.unwrap_or_default();
        let mut responses = Responses::new(self, rx, payload);
        let answers_each = self.request.stream_type == StreamType::FullDuplexBidiStream;
        let mut unsent = self.request.request_messages.len();
        for message in &self.request.request_messages {
            let message: BidiStreamRequest = self.words.unpacked(message)?;
            self.delay().await;
            if tx.send(message).await.is_err() {
                break;
            }
            unsent -= 1;
            if answers_each && !responses.next().await {
                break;
            }
        }
        responses.result.num_unsent_requests = unsent as i32;
        if self.cancel == Cancel::BeforeCloseSend {
            return responses.give_up();
        }
        tx.close();
        responses.all().await
    }

    /// Takes what a server streams, everything having been sent.
    async fn receive<R: Message>(
        &self,
        receiver: Receiver<R>,
        payload: impl Fn(R) -> ConformancePayload,
    ) -> Reported {
        Responses::new(self, receiver, payload).all().await
    }
}

/// The responses of a stream as they come, and what is to be reported of them.
struct Responses<'w, R, F> {
    wanted: &'w Wanted<'w>,
    receiver: Receiver<R>,
    payload: F,
    result: ClientResponseResult,
    /// How it ended, once it has.
    end: Option<Result<(), Status>>,
}

impl<'w, R: Message, F: Fn(R) -> ConformancePayload> Responses<'w, R, F> {
    fn new(wanted: &'w Wanted<'w>, receiver: Receiver<R>, payload: F) -> Self {
        Self { wanted, receiver, payload, result: ClientResponseResult::default(), end: None }
    }

    /// Takes one, and says whether there may be more.
    async fn next(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        match self.receiver.recv().await {
            Ok(Some(response)) => {
                self.result.payloads.push((self.payload)(response.into_inner()));
                if self.wanted.cancel == Cancel::AfterResponses(self.result.payloads.len()) {
                    self.end = Some(Err(given_up()));
                }
            }
            Ok(None) => self.end = Some(Ok(())),
            Err(status) => self.end = Some(Err(status)),
        }
        self.end.is_none()
    }

    /// Takes all that is left, and reports.
    async fn all(mut self) -> Reported {
        match self.wanted.cancel {
            Cancel::AfterCloseSend(after) if self.end.is_none() => {
                tokio::select! {
                    biased;
                    () = async { while self.next().await {} } => {}
                    () = tokio::time::sleep(after) => {}
                }
                if self.end.is_none() {
                    return self.give_up();
                }
            }
            _ => while self.next().await {},
        }
        self.report()
    }

    /// Cancels the call, and reports.
    fn give_up(mut self) -> Reported {
        self.end = Some(Err(given_up()));
        self.report()
    }

    fn report(self) -> Reported {
        let Self { wanted, receiver, mut result, end, .. } = self;
        result.response_headers = headers(receiver.metadata());
        result.response_trailers = headers(receiver.trailers());
        if let Some(Err(status)) = end {
            result.error = Some(wanted.words.error(&status)?);
            result.response_trailers = headers(status.metadata());
        }
        Ok(result)
    }
}

/// The status of a call this client gave up itself.
fn given_up() -> Status {
    Status::cancelled("the client gave the call up")
}
