//! The four calling patterns between a client and a server of one process, carried by the stand-in.

use crate::support;

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use support::text::{EchoServer, Parrot};
use support::{EchoClient, Place, Relay, Text, channel, watched};
use trunkline::{Code, Request, Server, ServerHandle, Wait};

fn serve(relay: &Relay, workers: usize) -> ServerHandle {
    let server = Server::builder().socket(relay.path()).add_service(EchoServer::new(Parrot)).workers(workers);
    let handle = server.spawn().unwrap();
    handle.ready().wait().unwrap();
    handle
}

#[test]
fn unary_calls_are_answered() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        for round in 0..100 {
            let reply = client.say(Text::new(format!("hello {round}"))).wait().unwrap();
            assert_eq!(reply.view().text(), format!("hello {round}"));
        }
        assert_eq!(client.say(Text::default()).wait().unwrap().into_inner(), Text::default());
    });
}

#[test]
fn a_status_reaches_the_caller_whole() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let status = client.say(Text::new("fail")).wait().unwrap_err();
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::NotFound, "50% gone", &[1, 2, 3][..])
        );
        assert_eq!(status.metadata().iter().collect::<Vec<_>>(), [("found", &b"nothing"[..])]);
    });
}

#[test]
fn metadata_goes_both_ways() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let request = Request::new(Text::new("headers")).with_metadata("tenant", "blue").unwrap();
        let reply = client.say(request).wait().unwrap();
        assert_eq!(reply.view().text(), "blue");
        assert_eq!((reply.headers().text("h"), reply.trailers().text("t")), (Some("1"), Some("2")));
        assert_eq!(reply.load_report().unwrap().cpu_utilization, 0.5);
    });
}

#[test]
fn a_server_streams_and_its_status_ends_the_stream() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let mut words = client.repeat(Text::new("one two three")).into_future().wait().unwrap();
        let mut heard = Vec::new();
        while let Some(word) = words.recv().wait().unwrap() {
            heard.push(word.into_inner().text);
        }
        assert_eq!(heard, ["one", "two", "three"]);
        assert!(words.recv().wait().unwrap().is_none(), "the end stays the end");
        assert_eq!(words.trailers().text("words"), Some("3"));

        let mut words = client.repeat(Text::new("fail")).wait().unwrap();
        assert_eq!(words.recv().wait().unwrap().unwrap().view().text(), "fail");
        let status = words.recv().wait().unwrap_err();
        assert_eq!((status.code(), status.metadata().text("words")), (Code::Aborted, Some("1")));
    });
}

#[test]
fn a_client_streams_more_than_the_window_holds() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let mut call = client.collect();
        let words: Vec<String> = (0..200).map(|number| format!("word{number}")).collect();
        for word in &words {
            call.send(Text::new(word.as_str())).wait().unwrap();
        }
        assert_eq!(call.finish().wait().unwrap().into_inner().text, words.join(" "));

        let nothing = client.collect().finish().wait().unwrap();
        assert_eq!(nothing.view().text(), "", "a call without messages is a call too");
    });
}

#[test]
fn both_sides_stream_at_once() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let (mut tx, mut rx) = client.chat().split();
        for round in 0..50 {
            tx.send(Text::new(format!("ping {round}"))).wait().unwrap();
            assert_eq!(rx.recv().wait().unwrap().unwrap().view().text(), format!("ping {round}"));
        }
        tx.close();
        assert!(rx.recv().wait().unwrap().is_none());
    });
}

#[test]
fn a_receiver_may_be_asked_first() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let (tx, mut rx) = client.chat().split();
        drop(tx);
        assert!(rx.recv().wait().unwrap().is_none(), "an empty stream is echoed as one");
    });
}

/// A message that is no longer waited for, by a timeout or a `select!`.
#[test]
fn who_gives_up_waiting_for_a_message_leaves_nothing_of_its_task_behind() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let (mut tx, mut rx) = client.chat().split();
        tx.send(Text::new("one")).wait().unwrap();
        assert_eq!(rx.recv().wait().unwrap().unwrap().view().text(), "one");
        let task = Arc::new(Task);
        let waker = Waker::from(Arc::clone(&task));
        let before = Arc::strong_count(&task);
        let mut waits = Box::pin(rx.recv());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(Arc::strong_count(&task) > before);
        drop(waits);
        assert_eq!(Arc::strong_count(&task), before);
        tx.send(Text::new("two")).wait().unwrap();
        assert_eq!(rx.recv().wait().unwrap().unwrap().view().text(), "two");
    });
}

#[test]
fn a_panic_ends_its_call_and_nothing_else() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let status = client.say(Text::new("panic")).wait().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "the handler panicked"));
        assert_eq!(client.say(Text::new("still here")).wait().unwrap().view().text(), "still here");
    });
}

#[test]
fn messages_are_built_and_read_in_place() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let channel = channel(&relay.path());
        let client = EchoClient::new(channel.clone());
        for round in ["before there is a session", "with one"] {
            let built = channel.build::<Text>(|b| b.set_text(round)).unwrap();
            assert_eq!(built.view().text(), round);
            assert_eq!(client.say(built).wait().unwrap().view().text(), round);
        }
        let large = "x".repeat(1 << 20);
        let built = channel.build::<Text>(|b| b.set_text(&large)).unwrap();
        assert_eq!(client.say(built).wait().unwrap().view().text().len(), 1 << 20);
    });
}

#[test]
fn many_threads_share_few_sessions() {
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 2);
        let client = EchoClient::new(channel(&relay.path()));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let client = client.clone();
                std::thread::spawn(move || {
                    for round in 0..200 {
                        let text = format!("{thread}/{round}");
                        assert_eq!(client.say(Text::new(text.as_str())).wait().unwrap().view().text(), text);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Destructors of thread-local values run after the library's own values of the thread are gone, or before.
#[test]
fn calls_may_be_made_while_a_thread_ends() {
    struct CallsAtEnd(EchoClient, std::sync::mpsc::Sender<String>);
    impl Drop for CallsAtEnd {
        fn drop(&mut self) {
            let unary = self.0.say(Text::new("good")).wait().unwrap().view().text().to_owned();
            let (mut tx, mut rx) = self.0.chat().split();
            tx.send(Text::new("bye")).wait().unwrap();
            let streamed = rx.recv().wait().unwrap().unwrap().view().text().to_owned();
            self.1.send(unary + &streamed).unwrap();
        }
    }
    thread_local! {
        static BEFORE: std::cell::RefCell<Option<CallsAtEnd>> = const { std::cell::RefCell::new(None) };
        static AFTER: std::cell::RefCell<Option<CallsAtEnd>> = const { std::cell::RefCell::new(None) };
    }
    watched(|| {
        let relay = Place::new().relay();
        let _server = serve(&relay, 1);
        let client = EchoClient::new(channel(&relay.path()));
        let (tell, hear) = std::sync::mpsc::channel();
        let at_end = || CallsAtEnd(client.clone(), tell.clone());
        let (before, after) = (at_end(), at_end());
        let thread = std::thread::spawn({
            let client = client.clone();
            move || {
                BEFORE.set(Some(before));
                client.say(Text::new("x")).wait().unwrap();
                AFTER.set(Some(after));
            }
        });
        thread.join().unwrap();
        assert_eq!(hear.try_iter().collect::<Vec<_>>(), ["goodbye", "goodbye"]);
    });
}
