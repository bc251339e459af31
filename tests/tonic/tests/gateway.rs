//! Shows the same tonic program where its calls pass a daemon's gateway: tonic's own client, at the Unix socket and at
//! the port, and behind the daemon tonic's own server, or another daemon with applications of either kind.

use std::future::Future;
use std::time::Duration;
use tonic::{Code, Request};
use trunkline_tonic_tests::stage::{Host, Serves, Stage, Topology, stock_channel, stock_server};
use trunkline_tonic_tests::stubs::absent_client::AbsentClient;
use trunkline_tonic_tests::stubs::exam_client::ExamClient;
use trunkline_tonic_tests::{examiner, intercept};

const WATCHDOG: Duration = Duration::from_secs(400);

fn watched(exam: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(WATCHDOG, exam).await.expect("the exam hangs") });
    runtime.shutdown_background();
}

#[test]
fn to_tonics_own_server() {
    watched(async {
        let host = Host::start_gateway(stock_server().await, "");
        let channel = host.gateway_channel().await;
        examiner::examine(channel.clone()).await;
        intercept!(channel);
        let by_port = stock_channel(host.gateway_address()).await;
        examiner::patterns(ExamClient::new(by_port)).await;
    });
}

#[test]
fn to_another_daemon_and_a_tonic_server_behind_it() {
    watched(async {
        let stage = Stage::set(Topology::OneDaemon, Serves::Tonic).await;
        let host = Host::start_gateway(stage.address(), "");
        let channel = host.gateway_channel().await;
        examiner::examine(channel.clone()).await;
        intercept!(channel);
    });
}

#[test]
fn to_another_daemon_and_our_server_behind_it() {
    watched(async {
        let stage = Stage::set(Topology::OneDaemon, Serves::Typed).await;
        let host = Host::start_gateway(stage.address(), "");
        let mut client = ExamClient::new(host.gateway_channel().await);
        examiner::patterns(client.clone()).await;
        let status = client.ask(examiner::question("fail", 5)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "größer als 50%"));
        assert_eq!(status.details(), [0, 1, 254, 255]);
    });
}

/// What the gateway has no endpoint for, and what has passed too many of them.
#[test]
fn what_it_refuses() {
    watched(async {
        let host = Host::start_gateway(stock_server().await, "hops_max = 2");
        let channel = host.gateway_channel().await;
        let status = AbsentClient::new(channel.clone()).ask(examiner::question("echo", 1)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().contains("services.\"exam.v1.Absent\".endpoints"), "{status:?}");
        let mut request = Request::new(examiner::question("echo", 1));
        request.metadata_mut().insert("trunkline-hops", "2".parse().unwrap());
        let status = ExamClient::new(channel).ask(request).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("gateway.hops_max"), "{status:?}");
    });
}

/// Rules hold for the user of the Unix socket; who came by a port is nobody they could name.
#[test]
fn rules_of_users() {
    watched(async {
        let server = stock_server().await;
        for (who, by_socket, by_port) in
            [("owner", true, false), ("uid:4000000000", false, false), ("*", true, true)]
        {
            let rule = format!("[[call]]\nservice = \"exam.v1.*\"\nwho = [{who:?}]");
            let host = Host::start_gateway(server, &rule);
            let channels = [host.gateway_channel().await, stock_channel(host.gateway_address()).await];
            for (channel, may) in channels.into_iter().zip([by_socket, by_port]) {
                match ExamClient::new(channel).ask(examiner::question("echo", 1)).await {
                    Ok(_) => assert!(may, "{who}"),
                    Err(status) => {
                        assert_eq!(
                            (status.code(), may),
                            (Code::PermissionDenied, false),
                            "{who}: {status:?}"
                        );
                        assert!(status.message().contains("[[call]]"), "{status:?}");
                    }
                }
            }
        }
    });
}

/// A gateway whose endpoint is itself: a call ends, and says why.
#[test]
fn a_circle() {
    watched(async {
        let host = Host::start_gateway_to_itself();
        let status = ExamClient::new(host.gateway_channel().await).ask(examiner::question("echo", 1)).await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("lead back to a gateway"), "{status:?}");
    });
}
