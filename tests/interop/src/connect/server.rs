//! The server under test: every request says how it is to be answered.

use super::words::{Words, headers, metadata};
use crate::codec::CodecError;
use crate::proto::connectrpc::conformance::v1::conformance_payload::RequestInfo;
use crate::proto::connectrpc::conformance::v1::conformance_service_server::ConformanceService;
use crate::proto::connectrpc::conformance::v1::unary_response_definition::Response as Wanted;
use crate::proto::connectrpc::conformance::v1::{
    BidiStreamRequest, BidiStreamResponse, ClientStreamRequest, ClientStreamResponse, ConformancePayload,
    Error, Header, IdempotentUnaryRequest, IdempotentUnaryResponse, ServerStreamRequest,
    ServerStreamResponse, StreamResponseDefinition, UnaryRequest, UnaryResponse, UnaryResponseDefinition,
    UnimplementedRequest, UnimplementedResponse,
};
use std::sync::Arc;
use std::time::Duration;
use trunkline::codegen::Message;
use trunkline::wkt::Any;
use trunkline::{Incoming, Metadata, MetadataError, Receiver, Response, Sender, Status};

/// Serves `connectrpc.conformance.v1.ConformanceService`.
#[derive(Clone, Debug)]
pub struct ConformanceServer {
    words: Arc<Words>,
}

/// What a handler saw of a request, apart from its messages.
struct Seen {
    headers: Vec<Header>,
    timeout_ms: Option<i64>,
}

impl Seen {
    fn new(metadata: &Metadata, time_left: Option<Duration>) -> Self {
        let timeout_ms = time_left.map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
        Self { headers: headers(metadata), timeout_ms }
    }

    fn info(self, requests: Vec<Any>) -> RequestInfo {
        RequestInfo { request_headers: self.headers, timeout_ms: self.timeout_ms, requests }
    }
}

impl ConformanceServer {
    /// A server with its words.
    pub fn new(words: Words) -> Self {
        Self { words: Arc::new(words) }
    }

    fn any<M: Message>(&self, message: &M) -> Result<Any, Status> {
        self.words.any(message).map_err(untold)
    }

    /// A definition's error; the request is added to its details if no response has told it.
    fn error(&self, mut error: Error, info: Option<RequestInfo>) -> Status {
        let told = info.map(|info| self.words.any(&info)).transpose();
        told.and_then(|told| {
            error.details.extend(told);
            self.words.status(&error)
        })
        .unwrap_or_else(untold)
    }

    /// Answers a call whose server does not stream.
    async fn answer<R: Message>(
        &self,
        definition: Option<UnaryResponseDefinition>,
        seen: Seen,
        requests: Vec<Any>,
        response: impl FnOnce(ConformancePayload) -> R,
    ) -> Result<Response<R>, Status> {
        let definition = definition.unwrap_or_default();
        pause(definition.response_delay_ms).await;
        let (headers, trailers) = (sent(&definition.response_headers)?, sent(&definition.response_trailers)?);
        let info = seen.info(requests);
        let data = match definition.response {
            Some(Wanted::Error(error)) => {
                let mut status = self.error(error, Some(info));
                let both = headers.iter().chain(trailers.iter());
                for (key, value) in both {
                    status.metadata_mut().insert(key, value).map_err(refused)?;
                }
                return Err(status);
            }
            Some(Wanted::ResponseData(data)) => data,
            None => Vec::new(),
        };
        let mut answer = Response::new(response(ConformancePayload { data, request_info: Some(info) }));
        for (key, value) in headers.iter() {
            answer = answer.with_header(key, value).map_err(refused)?;
        }
        for (key, value) in trailers.iter() {
            answer = answer.with_trailer(key, value).map_err(refused)?;
        }
        Ok(answer)
    }
}

impl ConformanceService for ConformanceServer {
    async fn unary(&self, request: Incoming<UnaryRequest>) -> Result<Response<UnaryResponse>, Status> {
        let seen = Seen::new(request.metadata(), request.time_left());
        let request = request.into_inner();
        let any = self.any(&request)?;
        let response = |payload| UnaryResponse { payload: Some(payload) };
        self.answer(request.response_definition, seen, vec![any], response).await
    }

    async fn idempotent_unary(
        &self,
        request: Incoming<IdempotentUnaryRequest>,
    ) -> Result<Response<IdempotentUnaryResponse>, Status> {
        let seen = Seen::new(request.metadata(), request.time_left());
        let request = request.into_inner();
        let any = self.any(&request)?;
        let response = |payload| IdempotentUnaryResponse { payload: Some(payload) };
        self.answer(request.response_definition, seen, vec![any], response).await
    }

    async fn client_stream(
        &self,
        mut input: Receiver<ClientStreamRequest>,
    ) -> Result<Response<ClientStreamResponse>, Status> {
        let seen = Seen::new(input.metadata(), input.time_left());
        let (mut definition, mut requests) = (None, Vec::new());
        while let Some(request) = input.recv().await? {
            let mut request = request.into_inner();
            requests.push(self.any(&request)?);
            if requests.len() == 1 {
                definition = request.response_definition.take();
            }
        }
        let response = |payload| ClientStreamResponse { payload: Some(payload) };
        self.answer(definition, seen, requests, response).await
    }

    async fn server_stream(
        &self,
        request: Incoming<ServerStreamRequest>,
        out: Sender<ServerStreamResponse>,
    ) -> Result<(), Status> {
        let seen = Seen::new(request.metadata(), request.time_left());
        let request = request.into_inner();
        let requests = vec![self.any(&request)?];
        let Some(definition) = request.response_definition else { return Ok(()) };
        let response = |payload| ServerStreamResponse { payload: Some(payload) };
        let mut answers = Answers::begin(definition, out, seen, response).await?;
        while answers.send(&requests, false).await? {}
        answers.end(self, requests)
    }

    async fn bidi_stream(
        &self,
        mut input: Receiver<BidiStreamRequest>,
        out: Sender<BidiStreamResponse>,
    ) -> Result<(), Status> {
        let seen = Seen::new(input.metadata(), input.time_left());
        let Some(first) = input.recv().await? else { return Ok(()) };
        let mut first = first.into_inner();
        let mut requests = vec![self.any(&first)?];
        let response = |payload| BidiStreamResponse { payload: Some(payload) };
        let definition = first.response_definition.take().unwrap_or_default();
        let mut answers = Answers::begin(definition, out, seen, response).await?;
        // Full duplex: an answer to each request, as long as there are answers. Half duplex: all of them afterwards.
        loop {
            if first.full_duplex {
                if !answers.send(&requests, true).await? {
                    break;
                }
                requests.clear();
            }
            let Some(request) = input.recv().await? else { break };
            requests.push(self.any(&request.into_inner())?);
        }
        while answers.send(&requests, false).await? {}
        answers.end(self, requests)
    }

    async fn unimplemented(
        &self,
        _: Incoming<UnimplementedRequest>,
    ) -> Result<Response<UnimplementedResponse>, Status> {
        Err(Status::unimplemented("Unimplemented is not implemented"))
    }
}

/// The responses of a stream, sent one by one.
struct Answers<R, F> {
    out: Sender<R>,
    response: F,
    data: std::vec::IntoIter<Vec<u8>>,
    delay_ms: u32,
    error: Option<Error>,
    /// Until the first response has told it.
    seen: Option<Seen>,
}

impl<R: Message, F: Fn(ConformancePayload) -> R> Answers<R, F> {
    /// Sends the headers.
    async fn begin(
        definition: StreamResponseDefinition,
        mut out: Sender<R>,
        seen: Seen,
        response: F,
    ) -> Result<Self, Status> {
        out.send_headers(&sent(&definition.response_headers)?).await?;
        out.set_trailers(sent(&definition.response_trailers)?);
        Ok(Self {
            out,
            response,
            data: definition.response_data.into_iter(),
            delay_ms: definition.response_delay_ms,
            error: definition.error,
            seen: Some(seen),
        })
    }

    /// Sends the next response, and says whether there was one. The first tells everything about the request, later
    /// ones nothing, or (`tells`) the requests they answer.
    async fn send(&mut self, requests: &[Any], tells: bool) -> Result<bool, Status> {
        let Some(data) = self.data.next() else { return Ok(false) };
        let request_info = match self.seen.take() {
            Some(seen) => Some(seen.info(requests.to_vec())),
            None if tells => Some(RequestInfo { requests: requests.to_vec(), ..RequestInfo::default() }),
            None => None,
        };
        pause(self.delay_ms).await;
        self.out.send((self.response)(ConformancePayload { data, request_info })).await?;
        Ok(true)
    }

    fn end(self, server: &ConformanceServer, requests: Vec<Any>) -> Result<(), Status> {
        let info = self.seen.map(|seen| seen.info(requests));
        self.error.map_or(Ok(()), |error| Err(server.error(error, info)))
    }
}

async fn pause(delay_ms: u32) {
    if delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(delay_ms.into())).await;
    }
}

fn sent(headers: &[Header]) -> Result<Metadata, Status> {
    metadata(headers).map_err(refused)
}

fn refused(error: MetadataError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn untold(error: CodecError) -> Status {
    Status::internal(error.to_string())
}
