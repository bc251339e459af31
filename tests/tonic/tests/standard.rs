//! Shows that tonic-health and tonic-reflection, served like any service of tonic's, are what clients reach, by gRPC
//! and through the adapter; and that they come before those the daemon brings itself, for as long as they are there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Said;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use trunkline::ServerHandle;
use trunkline_tonic_tests::DESCRIPTORS;
use trunkline_tonic_tests::examiner::Transport;
use trunkline_tonic_tests::handler::Handler;
use trunkline_tonic_tests::stage::{Host, service, stock_channel};
use trunkline_tonic_tests::stubs::exam_server::ExamServer;

const WATCHDOG: Duration = Duration::from_secs(300);
/// A name only tonic-health has heard of.
const ONLY_THERE: &str = "only.there";

#[test]
fn health_and_reflection_are_the_applications_own() {
    watched(async {
        let host = Host::start();
        let stand_in = stand_in(&host);
        stand_in.ready().await.unwrap();
        let (server, reporter) = serve(&host).await;
        let edge = stock_channel(host.address()).await;
        let adapter = trunkline_tonic::Channel::from(host.channel());
        health(edge.clone(), &reporter).await;
        health(adapter.clone(), &reporter).await;
        reflection(edge.clone()).await;
        reflection(adapter).await;

        server.shutdown(WATCHDOG).await.unwrap();
        let mut client = HealthClient::new(edge);
        let status = client.check(asking(ONLY_THERE)).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "the daemon answers again: {status:?}");
    });
}

/// The services the daemon's program brings.
fn stand_in(host: &Host) -> ServerHandle {
    let server = trunkline::Server::builder().socket(&host.socket).stand_by();
    let wanted = trunkline_daemon::Config::default().grpc_services;
    trunkline_services::add_to(server, &Arc::downgrade(&host.daemon), &wanted).spawn().unwrap()
}

async fn serve(host: &Host) -> (ServerHandle, HealthReporter) {
    let (reporter, health) = health_reporter();
    reporter.set_service_status(ONLY_THERE, ServingStatus::NotServing).await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()
        .unwrap();
    let server = trunkline_tonic::Server::builder()
        .socket(&host.socket)
        .add_service(health)
        .add_service(reflection)
        .add_service(service())
        .spawn()
        .unwrap();
    server.ready().await.unwrap();
    (server, reporter)
}

async fn health(transport: impl Transport, reporter: &HealthReporter) {
    reporter.set_serving::<ExamServer<Handler>>().await;
    let mut client = HealthClient::new(transport);
    let said = client.check(asking(ONLY_THERE)).await.unwrap().into_inner();
    assert_eq!(said.status(), Said::NotServing);
    let mut watch = client.watch(asking("exam.v1.Exam")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), Said::Serving);
    reporter.set_not_serving::<ExamServer<Handler>>().await;
    assert_eq!(watch.message().await.unwrap().unwrap().status(), Said::NotServing);
}

async fn reflection(transport: impl Transport) {
    let list = MessageRequest::ListServices(String::new());
    let asked = ServerReflectionRequest { message_request: Some(list), ..ServerReflectionRequest::default() };
    let mut client = ServerReflectionClient::new(transport);
    let answers = client.server_reflection_info(tokio_stream::iter([asked])).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list: {answer:?}")
    };
    assert!(list.service.iter().any(|service| service.name == "exam.v1.Exam"), "{list:?}");
}

fn asking(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn watched(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WATCHDOG, test).await.expect("it hangs") });
    runtime.shutdown_background();
}
