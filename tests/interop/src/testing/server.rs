//! The server's side.

use super::{ECHO_INITIAL, ECHO_TRAILING, LOAD_REPORT, payload};
use crate::codec::Codec;
use crate::proto::grpc::testing::test_service_server::TestService;
use crate::proto::grpc::testing::{
    EchoStatus, Empty, Payload, PayloadType, ResponseParameters, SimpleRequest, SimpleResponse,
    StreamingInputCallRequest, StreamingInputCallResponse, StreamingOutputCallRequest,
    StreamingOutputCallResponse, TestOrcaReport,
};
use crate::proto::xds::data::orca::v3::OrcaLoadReport;
use crate::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaService;
use crate::proto::xds::service::orca::v3::{FILE_DESCRIPTOR_SET, OrcaLoadReportRequest};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trunkline::{Code, Incoming, Metadata, Receiver, Response, Sender, Status};

/// Largest body a request may ask for: what gRPC's own cases ask for is below 1 MiB.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest pause a request may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Shortest time between two load reports, whatever is asked for.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Serves `grpc.testing.TestService`.
#[derive(Clone, Debug)]
pub struct TestServer {
    load: Load,
    codec: Arc<Codec>,
}

/// Serves `xds.service.orca.v3.OpenRcaService` with the load a [`TestServer`] was told to have.
#[derive(Clone, Debug)]
pub struct OrcaService {
    load: Load,
}

type Load = Arc<Mutex<OrcaLoadReport>>;

impl TestServer {
    /// The server, and its load reports.
    ///
    /// # Panics
    /// If the descriptors this program was compiled with are not in order.
    pub fn new() -> (Self, OrcaService) {
        let load = Load::default();
        let codec = Codec::new(FILE_DESCRIPTOR_SET).expect("descriptors compiled into the program");
        (Self { load: Arc::clone(&load), codec: Arc::new(codec) }, OrcaService { load })
    }

    fn report(&self, asked: Option<TestOrcaReport>) -> Result<Option<Vec<u8>>, Status> {
        let report = asked.map(|asked| self.codec.encode(&report(asked))).transpose();
        report.map_err(|error| Status::internal(error.to_string()))
    }
}

impl TestService for TestServer {
    async fn empty_call(&self, _: Incoming<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(&self, request: Incoming<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        let echo = Echo::of(request.metadata());
        let asked = request.into_inner();
        if let Some(status) = asked.response_status.and_then(echoed) {
            return Err(echo.beside(status));
        }
        let payload = answer(asked.response_type, asked.response_size)?;
        let mut response =
            echo.within(Response::new(SimpleResponse { payload, ..SimpleResponse::default() }))?;
        if let Some(report) = self.report(asked.orca_per_query_report)? {
            response = response.with_trailer(LOAD_REPORT, report).map_err(refused)?;
        }
        Ok(response)
    }

    async fn cacheable_unary_call(
        &self,
        request: Incoming<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        self.unary_call(request).await
    }

    async fn streaming_output_call(
        &self,
        request: Incoming<StreamingOutputCallRequest>,
        mut out: Sender<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        Echo::of(request.metadata()).through(&mut out).await?;
        let asked = request.into_inner();
        send_all(&mut out, &asked).await?;
        asked.response_status.and_then(echoed).map_or(Ok(()), Err)
    }

    async fn streaming_input_call(
        &self,
        mut input: Receiver<StreamingInputCallRequest>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut total = 0;
        while let Some(request) = input.recv().await? {
            total += request.view().payload().map_or(0, |payload| payload.body().len());
        }
        let aggregated_payload_size = i32::try_from(total).unwrap_or(i32::MAX);
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
    }

    async fn full_duplex_call(
        &self,
        mut input: Receiver<StreamingOutputCallRequest>,
        mut out: Sender<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        Echo::of(input.metadata()).through(&mut out).await?;
        while let Some(request) = input.recv().await? {
            let mut asked = request.into_inner();
            if let Some(status) = asked.response_status.take().and_then(echoed) {
                return Err(status);
            }
            if let Some(asked) = asked.orca_oob_report.take() {
                *self.load.lock().unwrap_or_else(PoisonError::into_inner) = report(asked);
            }
            send_all(&mut out, &asked).await?;
        }
        Ok(())
    }

    async fn half_duplex_call(
        &self,
        mut input: Receiver<StreamingOutputCallRequest>,
        mut out: Sender<StreamingOutputCallResponse>,
    ) -> Result<(), Status> {
        Echo::of(input.metadata()).through(&mut out).await?;
        let mut asked = Vec::new();
        while let Some(request) = input.recv().await? {
            asked.push(request.into_inner());
        }
        for asked in asked {
            send_all(&mut out, &asked).await?;
        }
        Ok(())
    }

    async fn unimplemented_call(&self, _: Incoming<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("nobody implements UnimplementedCall"))
    }
}

impl OpenRcaService for OrcaService {
    async fn stream_core_metrics(
        &self,
        request: Incoming<OrcaLoadReportRequest>,
        mut out: Sender<OrcaLoadReport>,
    ) -> Result<(), Status> {
        let interval = request.view().report_interval().map_or(Duration::ZERO, |interval| {
            let seconds = u64::try_from(interval.seconds()).unwrap_or(0);
            Duration::new(seconds, u32::try_from(interval.nanos()).unwrap_or(0))
        });
        loop {
            let report = self.load.lock().unwrap_or_else(PoisonError::into_inner).clone();
            out.send(report).await?;
            tokio::time::sleep(interval.clamp(REPORT_INTERVAL_MIN, PAUSE_MAX)).await;
        }
    }
}

/// What the request's metadata wants to see again.
#[derive(Debug, Default)]
struct Echo {
    initial: Metadata,
    trailing: Metadata,
}

impl Echo {
    fn of(request: &Metadata) -> Self {
        let mut echo = Self::default();
        // What was legal in the request is legal in the response.
        if let Some(value) = request.first(ECHO_INITIAL) {
            let _ = echo.initial.insert(ECHO_INITIAL, value);
        }
        if let Some(value) = request.first(ECHO_TRAILING) {
            let _ = echo.trailing.insert(ECHO_TRAILING, value);
        }
        echo
    }

    fn within(&self, mut response: Response<SimpleResponse>) -> Result<Response<SimpleResponse>, Status> {
        for (key, value) in self.initial.iter() {
            response = response.with_header(key, value).map_err(refused)?;
        }
        for (key, value) in self.trailing.iter() {
            response = response.with_trailer(key, value).map_err(refused)?;
        }
        Ok(response)
    }

    fn beside(&self, mut status: Status) -> Status {
        for (key, value) in self.initial.iter().chain(self.trailing.iter()) {
            let _ = status.metadata_mut().insert(key, value);
        }
        status
    }

    async fn through(self, out: &mut Sender<StreamingOutputCallResponse>) -> Result<(), Status> {
        out.send_headers(&self.initial).await?;
        out.set_trailers(self.trailing);
        Ok(())
    }
}

async fn send_all(
    out: &mut Sender<StreamingOutputCallResponse>,
    asked: &StreamingOutputCallRequest,
) -> Result<(), Status> {
    for ResponseParameters { size, interval_us, .. } in &asked.response_parameters {
        if *interval_us > 0 {
            let pause = Duration::from_micros(u64::from(interval_us.unsigned_abs()));
            tokio::time::sleep(pause.min(PAUSE_MAX)).await;
        }
        let payload = answer(asked.response_type, *size)?;
        out.send(StreamingOutputCallResponse { payload }).await?;
    }
    Ok(())
}

fn answer(kind: PayloadType, bytes: i32) -> Result<Option<Payload>, Status> {
    if kind != PayloadType::Compressable {
        return Err(Status::invalid_argument(format!("payload type {kind:?} is not supported")));
    }
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= BODY_BYTES_MAX => Ok(payload(bytes)),
        _ => {
            Err(Status::invalid_argument(format!("a body of {bytes} bytes; 0 to {BODY_BYTES_MAX} are made")))
        }
    }
}

fn echoed(EchoStatus { code, message }: EchoStatus) -> Option<Status> {
    let number = u16::try_from(code).unwrap_or(u16::MAX);
    (code != 0).then(|| Status::new(Code::from_number(number), message))
}

fn report(asked: TestOrcaReport) -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: asked.cpu_utilization,
        mem_utilization: asked.memory_utilization,
        request_cost: asked.request_cost,
        utilization: asked.utilization,
        ..OrcaLoadReport::default()
    }
}

fn refused(error: trunkline::MetadataError) -> Status {
    Status::invalid_argument(error.to_string())
}
