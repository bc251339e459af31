//! Shows what comes of calls of one request and one response that no generated code reads.

use crate::support::{poll_once, watched};
use std::future::poll_fn;
use trunkline::codegen::Handling;
use trunkline::opaque::{Client, Delivered, Outcome, Service};
use trunkline::{Channel, Code, Execution, Metadata, Server, ServerHandle, Wait};

/// Answers with headers, as many messages as its request says first, and the code that it says second.
struct Counts;

impl Service for Counts {
    fn name(&self) -> &str {
        "test.Counts"
    }

    fn call(&self, call: Delivered) -> Handling {
        Box::pin(async move {
            let Delivered { mut incoming, mut responder, .. } = call;
            let request = poll_fn(|cx| incoming.poll_message(cx)).await.unwrap().unwrap();
            let [messages, code] = *request.as_ref() else { panic!("{request:?}") };
            responder.send_headers(&pair("begins", "now")).await.unwrap();
            for number in 1..messages {
                if responder.send(vec![number]).await.is_err() {
                    return;
                }
            }
            let last = (messages > 0).then(|| vec![messages].into());
            let code = Code::from_number(code.into());
            let outcome = Outcome { code, trailers: pair("ends", "now"), execution: Execution::Executed };
            let _is_wanted = responder.finish(&outcome, last).await;
        })
    }
}

fn pair(key: &str, value: &str) -> Metadata {
    let mut pairs = Metadata::new();
    pairs.insert(key, value).unwrap();
    pairs
}

fn stage() -> (ServerHandle, Client) {
    let server = Server::builder().embedded(true).add_opaque_service(Counts).spawn().unwrap();
    (server, Client::new(Channel::builder().embedded(true).wait_for_ready(true).connect_lazy()))
}

#[test]
fn a_unary_call_comes_to_one_response_or_to_a_status() {
    watched(|| {
        let (_server, client) = stage();
        let answer =
            |request: [u8; 2]| client.call("/test.Counts/Count").with_message(request.to_vec()).unary();
        let one = answer([1, 0]).wait();
        assert_eq!((one.outcome.code, one.message.unwrap().as_ref()), (Code::Ok, &[1][..]));
        assert_eq!(
            (one.headers.text("begins"), one.outcome.trailers.text("ends")),
            (Some("now"), Some("now"))
        );
        for messages in [0, 2, 3] {
            let other = answer([messages, 0]).wait();
            let outcome = other.outcome;
            assert!(other.message.is_none(), "{messages} messages are no response");
            assert_eq!((outcome.code, outcome.execution), (Code::Unimplemented, Execution::Executed));
        }
        let failed = answer([0, 5]).wait();
        assert!(failed.message.is_none());
        assert_eq!(
            (failed.outcome.code, failed.outcome.trailers.text("ends")),
            (Code::NotFound, Some("now"))
        );
        assert_eq!(answer([1, 0]).wait().outcome.code, Code::Ok, "the session is as it was");
    });
}

#[test]
fn a_unary_call_that_is_given_up_says_whether_it_was_made() {
    watched(|| {
        let (_server, client) = stage();
        let call = || client.call("/test.Counts/Count").with_message(vec![1, 0]).unary();
        assert_eq!(call().wait().outcome.code, Code::Ok);
        let unmade = call().cancel();
        assert_eq!(
            (unmade.outcome.code, unmade.outcome.execution),
            (Code::Cancelled, Execution::NotExecuted)
        );
        // A task has a session of its own, which is attached and bound before the call is made.
        let mut made = call();
        let mut is_over = false;
        while !is_over && !format!("{made:?}").contains("waiting") {
            is_over = poll_once(&mut made).is_ready();
            std::thread::yield_now();
        }
        if !is_over {
            let given_up = made.cancel().outcome;
            assert_eq!((given_up.code, given_up.execution), (Code::Cancelled, Execution::Unknown));
        }
        assert_eq!(call().wait().outcome.code, Code::Ok, "the session is as it was");
    });
}
