//! Shows the same tonic program, its generated code unchanged, over tonic's transport and over Trunkline in every
//! topology; one end over Trunkline and the other tonic's own; and tonic's ends with ours at the other side.

use std::future::Future;
use std::time::Duration;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use trunkline_tonic_tests::stage::{Host, Serves, Stage, Topology, service, stock_channel, stock_server};
use trunkline_tonic_tests::stubs::Question;
use trunkline_tonic_tests::stubs::absent_client::AbsentClient;
use trunkline_tonic_tests::stubs::exam_client::ExamClient;
use trunkline_tonic_tests::{examiner, intercept, typed};

/// No exam may hang.
const WATCHDOG: Duration = Duration::from_secs(400);

fn watched(exam: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WATCHDOG, exam).await.expect("the exam hangs") });
    runtime.shutdown_background();
}

fn through(topology: Topology, serves: Serves) {
    watched(async move {
        let stage = Stage::set(topology, serves).await;
        let channel = trunkline_tonic::Channel::from(stage.channel.clone());
        examiner::examine(channel.clone()).await;
        examiner::examine_moved(channel.clone()).await;
        let late = ExamClient::new(channel.clone()).ask(examiner::soon("hang", 0)).await.unwrap_err();
        assert_eq!(late.code(), tonic::Code::DeadlineExceeded, "{late:?}");
        intercept!(channel);
    });
}

#[test]
fn over_tonics_own_transport() {
    watched(async {
        let channel = stock_channel(stock_server().await).await;
        examiner::examine(channel.clone()).await;
        intercept!(channel);
    });
}

#[test]
fn embedded() {
    through(Topology::Embedded, Serves::Tonic);
}

#[test]
fn through_one_daemon() {
    through(Topology::OneDaemon, Serves::Tonic);
}

#[test]
fn through_two_daemons() {
    through(Topology::TwoDaemons, Serves::Tonic);
}

#[test]
fn handlers_in_place() {
    through(Topology::OneDaemon, Serves::TonicInPlace);
}

/// tonic's own client at the daemon's port, handlers behind the adapter.
#[test]
fn only_the_server_moved() {
    watched(async {
        let stage = Stage::set(Topology::OneDaemon, Serves::Tonic).await;
        let channel = stock_channel(stage.address()).await;
        examiner::examine(channel.clone()).await;
        intercept!(channel);
    });
}

/// The client behind the adapter, and tonic's own server somewhere.
#[test]
fn only_the_client_moved() {
    watched(async {
        let host = Host::start();
        let channel = trunkline_tonic::Channel::from(host.channel_to(stock_server().await));
        examiner::examine(channel.clone()).await;
        examiner::examine_moved(channel.clone()).await;
        intercept!(channel);
    });
}

/// A server on a single thread, busy with a stream that never ends and whose client always keeps up.
#[test]
fn a_stream_without_end_lets_other_calls_in() {
    let host = Host::start();
    let socket = host.socket.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = trunkline_tonic::Server::builder().socket(socket).add_service(service());
        runtime.block_on(server.serve_with_shutdown(async { drop(stopped.await) }))
    });
    watched(async {
        let mut client = ExamClient::new(trunkline_tonic::Channel::from(host.channel()));
        examiner::answers(client.clone()).await;
        let endless = examiner::question("count, watched", u32::MAX);
        let mut answers = client.count(endless).await.unwrap().into_inner();
        let taking = tokio::spawn(async move { while answers.message().await.unwrap().is_some() {} });
        for number in 0..100 {
            client.ask(examiner::question("echo", number)).await.unwrap();
        }
        assert!(!taking.is_finished());
        taking.abort();
        examiner::at_work("answers nobody takes", client, 0).await;
    });
    drop(stop);
    server.join().unwrap().unwrap();
}

/// Its second message does not encode, or its task is dropped before there is one: no server takes the first for all.
#[test]
fn a_request_stream_that_fails_has_no_end() {
    watched(async {
        let stage = Stage::set(Topology::OneDaemon, Serves::Tonic).await;
        let client = ExamClient::new(trunkline_tonic::Channel::from(stage.channel.clone()));
        let mut limited = client.clone().max_encoding_message_size(1000);
        let watcher = client.clone();
        let failed = limited.sum(tokio_stream::iter(0..3).then(move |number| {
            let watcher = watcher.clone();
            async move {
                tokio::task::yield_now().await;
                if number == 1 {
                    examiner::at_work("a sum", watcher, 1).await;
                }
                Question { blob: vec![0; 2000 * (number % 2)], ..examiner::question("sum", 1) }
            }
        }));
        let failed = failed.await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::OutOfRange, "{failed:?}");
        examiner::at_work("a sum whose stream failed", client.clone(), 0).await;

        let (says, said) = tokio::sync::mpsc::channel(4);
        let mut summing = client.clone();
        let summing = tokio::spawn(async move { summing.sum(ReceiverStream::new(said)).await });
        says.send(examiner::question("sum", 1)).await.unwrap();
        examiner::at_work("a sum", client.clone(), 1).await;
        summing.abort();
        assert!(summing.await.unwrap_err().is_cancelled());
        examiner::at_work("a sum nobody waits for", client.clone(), 0).await;
        let sums = client.clone().ask(examiner::question("sums", 0)).await.unwrap().into_inner();
        assert_eq!(sums.number, 0, "taken for the whole");
    });
}

/// A server that is told to stop answers what it has begun, and takes nothing new.
#[test]
fn a_server_that_stops_finishes_its_calls() {
    watched(async {
        let host = Host::start();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = trunkline_tonic::Server::builder().socket(&host.socket).add_service(service());
        let server = tokio::spawn(server.serve_with_shutdown(async { drop(stopped.await) }));
        let mut client = ExamClient::new(trunkline_tonic::Channel::from(host.channel()));
        examiner::answers(client.clone()).await;
        let mut caller = client.clone();
        let lingering = tokio::spawn(async move { caller.ask(examiner::question("linger", 7)).await });
        examiner::at_work("a handler that takes its time", client.clone(), 1).await;
        drop(stop);
        assert_eq!(lingering.await.unwrap().unwrap().into_inner().number, 7);
        server.await.unwrap().unwrap();
        let mut late = tonic::Request::new(examiner::question("echo", 1));
        late.set_timeout(Duration::from_millis(100));
        client.ask(late).await.expect_err("nobody serves any more");
    });
}

#[test]
fn tonics_client_and_our_server() {
    for topology in [Topology::OneDaemon, Topology::TwoDaemons] {
        watched(async move {
            let stage = Stage::set(topology, Serves::Typed).await;
            let mut client = ExamClient::new(trunkline_tonic::Channel::from(stage.channel.clone()));
            examiner::patterns(client.clone()).await;
            let status = client.ask(examiner::question("fail", 5)).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (tonic::Code::NotFound, "größer als 50%"));
            assert_eq!(status.details(), [0, 1, 254, 255]);
        });
    }
}

#[test]
fn our_client_and_tonics_server() {
    for topology in [Topology::OneDaemon, Topology::TwoDaemons] {
        watched(async move {
            let stage = Stage::set(topology, Serves::Tonic).await;
            typed::examine(stage.channel.clone()).await;
        });
    }
}

#[test]
fn what_nobody_serves_and_what_panics() {
    watched(async {
        let stage = Stage::set(Topology::OneDaemon, Serves::Tonic).await;
        let channel = trunkline_tonic::Channel::from(stage.channel.clone());
        let mut absent = AbsentClient::new(channel.clone());
        let status = absent.ask(examiner::question("echo", 1)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        let mut client = ExamClient::new(channel);
        let status = client.ask(examiner::question("panic", 0)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (tonic::Code::Internal, "the handler panicked"));
        client.ask(examiner::question("echo", 1)).await.expect("the server lives on");
    });
}
