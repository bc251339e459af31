//! What a server does in every corner, against a daemon moved by hand or by the stand-in.

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use support::peer::finish;
use support::text::{Echo, EchoServer, Parrot};
use support::{EchoClient, Peer, Place, Text, channel, foreign, own_test, watched};
use trunkline::codegen::{Incoming, Receiver, Sender};
use trunkline::{
    Channel, Code, Execution, Request, Response, Server, ServerCall, ServerHandle, Status, Wait,
};
use trunkline_call::entry::{Call, Completion, Finish, Span, Submission};
use trunkline_call::{CallId, Deadline, Instant};

/// A delivered call of `/test.Echo/Say` (or another method) with this text.
fn deliver(peer: &mut Peer, id: u64, path: &str, text: Option<&str>) -> CallId {
    let call = CallId(CallId::DELIVERED | id);
    let payload = text.map(|text| peer.put_text(text));
    let entered = Instant(1);
    let delivered = Call {
        route: peer.route_of(path).unwrap(),
        call,
        payload,
        metadata: Span::default(),
        end: text.is_some(),
        wait_for_ready: false,
        deadline: Deadline::at(Instant(u64::MAX - 1)),
        entered,
        published: Instant(0),
        parent: CallId(0),
    };
    peer.complete(&Completion::Call(delivered));
    call
}

fn next_finish(peer: &mut Peer) -> Finish {
    match peer.next_but_release() {
        Submission::Finish(finish) => finish,
        other => panic!("an answer was expected, not {other:?}"),
    }
}

/// A server with one worker, attached and bound by hand.
fn serve(place: &Place, service: impl Echo) -> (ServerHandle, Peer) {
    let server = Server::builder().socket(place.path()).add_service(EchoServer::new(service));
    let handle = server.spawn().unwrap();
    let mut peer = place.accept();
    peer.answer_control_until_bound();
    (handle, peer)
}

#[test]
fn an_answer_carries_its_stamps_and_the_request_block_returns() {
    watched(|| {
        let place = Place::new();
        let (_server, mut peer) = serve(&place, Parrot);
        let call = deliver(&mut peer, 1, "/test.Echo/Say", Some("hello"));
        let Submission::Release { block, .. } = peer.next() else { panic!("the request is returned first") };
        assert!(block.len > 0);
        let Submission::Finish(answer) = peer.next() else { panic!("the answer") };
        assert_eq!((answer.call, answer.code, answer.execution), (call, Code::Ok, Execution::Executed));
        assert_eq!(peer.text(answer.payload), "hello");
        assert!(answer.taken.0 > 0 && answer.taken <= answer.published, "a10 and a11");
    });
}

#[test]
fn an_unknown_route_is_unimplemented() {
    watched(|| {
        let place = Place::new();
        let (_server, mut peer) = serve(&place, Parrot);
        peer.paths.push("/test.Echo/Nothing".into());
        deliver(&mut peer, 1, "/test.Echo/Nothing", Some("hello"));
        assert_eq!(next_finish(&mut peer).code, Code::Unimplemented);
    });
}

/// A block of the receive heap that is not returned is gone for as long as the session lives.
#[test]
fn the_request_of_a_call_whose_interceptor_panics_returns() {
    watched(|| {
        let place = Place::new();
        let server = Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot));
        let panics = |_: &mut ServerCall<'_>| -> Result<(), Status> { panic!("an interceptor's own fault") };
        let _server = server.with_interceptor(panics).spawn().unwrap();
        let mut peer = place.accept();
        peer.answer_control_until_bound();
        for (id, method) in (1..).zip(["Say", "Repeat", "Collect", "Chat"]) {
            let call = deliver(&mut peer, id, &format!("/test.Echo/{method}"), Some("hello"));
            let (mut returned, mut answer) = (false, None);
            while !returned || answer.is_none() {
                match peer.next() {
                    Submission::Release { block, metadata, .. } => {
                        returned |= block.len > 0;
                        peer.take_back(block, metadata);
                    }
                    Submission::Finish(finish) => answer = Some((finish.call, finish.code)),
                    other => panic!("{method}: {other:?}"),
                }
            }
            assert_eq!(answer, Some((call, Code::Internal)), "{method}");
        }
    });
}

/// Counts itself down when it is dropped.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for ever, and counts who waits.
#[derive(Clone, Default)]
struct Waits {
    waiting: Arc<AtomicUsize>,
}

impl Waits {
    async fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _alive = Alive(Arc::clone(&self.waiting));
        std::future::pending::<()>().await;
    }

    fn until(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) != count {
            thread::yield_now();
        }
    }
}

impl Echo for Waits {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        if request.view().text() == "wait" {
            self.wait().await;
        }
        Ok(Response::new(request.into_inner()))
    }
    async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
    async fn collect(&self, mut input: Receiver<Text>) -> Result<Response<Text>, Status> {
        let first = input.recv().await?;
        self.wait().await;
        drop(first);
        Ok(Response::new(Text::default()))
    }
    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

#[test]
fn a_cancelled_call_drops_its_handler_and_is_not_answered() {
    watched(|| {
        let place = Place::new();
        let service = Waits::default();
        let (_server, mut peer) = serve(&place, service.clone());
        let call = deliver(&mut peer, 1, "/test.Echo/Say", Some("wait"));
        service.until(1);
        peer.complete(&Completion::Cancelled { call, code: Code::Cancelled });
        service.until(0);
        deliver(&mut peer, 2, "/test.Echo/Say", Some("hello"));
        let answer = next_finish(&mut peer);
        assert_eq!(answer.call, CallId(CallId::DELIVERED | 2), "the first is not answered");
    });
}

#[test]
fn a_waiting_handler_does_not_hold_up_others() {
    watched(|| {
        let place = Place::new();
        let service = Waits::default();
        let (_server, mut peer) = serve(&place, service.clone());
        deliver(&mut peer, 1, "/test.Echo/Say", Some("wait"));
        for id in 2..10 {
            let call = deliver(&mut peer, id, "/test.Echo/Say", Some("hello"));
            assert_eq!(next_finish(&mut peer).call, call);
        }
        service.until(1);
    });
}

#[test]
fn what_a_dropped_handler_did_not_read_is_returned() {
    watched(|| {
        let place = Place::new();
        let service = Waits::default();
        let (_server, mut peer) = serve(&place, service.clone());
        let call = deliver(&mut peer, 1, "/test.Echo/Collect", None);
        for text in ["read", "unread", "unread too"] {
            let payload = peer.put_text(text);
            peer.complete(&Completion::Message { call, payload, end: false });
        }
        service.until(1);
        peer.complete(&Completion::Cancelled { call, code: Code::DeadlineExceeded });
        for _ in 0..3 {
            let Submission::Release { block, .. } = peer.next() else { panic!("a returned block") };
            peer.take_back(block, Span::default());
        }
        assert_eq!(peer.end.receive_heap.bytes_in_use(), 0);
    });
}

/// Calls the same service again before it answers.
struct Nested(EchoClient);

impl Echo for Nested {
    async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
        match request.view().text() {
            "await" => self.0.say(Text::new("nested")).await,
            "wait" => self.0.say(Text::new("nested")).wait(),
            "elsewhere" => {
                let call = self.0.say(Request::new(Text::new("nested")).in_context(&request));
                thread::spawn(move || foreign(call)).join().unwrap()
            }
            _ => Ok(Response::new(request.into_inner())),
        }
    }
    async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
    async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
        Ok(Response::new(Text::default()))
    }
    async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
        Ok(())
    }
}

#[test]
fn a_handlers_calls_name_the_call_they_are_made_for() {
    for way in ["await", "wait", "elsewhere"] {
        watched(move || {
            let place = Place::new();
            let (_server, mut peer) = serve(&place, Nested(EchoClient::new(channel(&place.path()))));
            let outer = deliver(&mut peer, 1, "/test.Echo/Say", Some(way));
            let inner = peer.next_call();
            assert_eq!(inner.parent, outer, "{way}");
            assert_eq!(inner.deadline, Deadline::at(Instant(u64::MAX - 1)), "the deadline is inherited");
            let reply = peer.put_text("from below");
            peer.complete(&Completion::Finish(finish(inner.call, Code::Ok, Some(reply))));
            let answer = next_finish(&mut peer);
            assert_eq!((answer.call, answer.subtree), (outer, 1));
            assert_eq!(peer.text(answer.payload), "from below");
        });
    }
}

#[test]
fn shutdown_drains_finishes_what_runs_and_gives_up_on_what_does_not() {
    watched(|| {
        let place = Place::new();
        let service = Waits::default();
        let (server, mut peer) = serve(&place, service.clone());
        let call = deliver(&mut peer, 1, "/test.Echo/Say", Some("wait"));
        service.until(1);
        let server = Arc::new(server);
        let stop = |limit| {
            let server = Arc::clone(&server);
            thread::spawn(move || server.shutdown(limit).wait())
        };
        let patient = stop(Duration::from_secs(3600));
        assert_eq!(peer.next_but_release(), Submission::Drain { answer: true });
        // Delivered before the daemon saw the order: served.
        let late = deliver(&mut peer, 2, "/test.Echo/Say", Some("last"));
        assert_eq!(next_finish(&mut peer).call, late);
        let impatient = stop(Duration::ZERO);
        let given_up = next_finish(&mut peer);
        assert_eq!((given_up.call, given_up.code), (call, Code::Unavailable));
        patient.join().unwrap().unwrap();
        impatient.join().unwrap().unwrap();
        while peer.answer_control() {
            thread::yield_now();
        }
    });
}

/// A server with nothing to do that is told to stop, and a daemon that has taken its word for that.
fn stopping(place: &Place) -> (thread::JoinHandle<Result<(), Status>>, Peer) {
    let (server, mut peer) = serve(place, Parrot);
    let stopping = thread::spawn(move || server.shutdown(Duration::from_secs(3600)).wait());
    assert_eq!(peer.next(), Submission::Drain { answer: true });
    (stopping, peer)
}

#[test]
fn shutdown_without_calls_ends_at_once() {
    watched(|| {
        let place = Place::new();
        let (stopping, mut peer) = stopping(&place);
        peer.complete(&Completion::Drained);
        stopping.join().unwrap().unwrap();
    });
}

#[test]
fn a_call_on_its_way_when_the_order_to_stop_is_taken_is_served() {
    watched(|| {
        let place = Place::new();
        while !serves_a_late_call(&place) {}
    });
}

/// Plays a daemon that sends a call after it has taken the order. `false`: the server waited a second for an answer to
/// its order and left, because the daemon had no processor for so long.
fn serves_a_late_call(place: &Place) -> bool {
    let began = std::time::Instant::now();
    let (stopping, mut peer) = stopping(place);
    // Its ring is empty and it has nothing to do, and has had time to see both.
    thread::sleep(Duration::from_millis(20));
    let late = deliver(&mut peer, 1, "/test.Echo/Say", Some("late"));
    let answer = loop {
        let has_left = stopping.is_finished();
        match peer.try_next_but_release() {
            Some(Submission::Finish(answer)) => break answer,
            Some(other) => panic!("an answer was expected, not {other:?}"),
            None if has_left => {
                assert!(began.elapsed() >= Duration::from_secs(1), "it did not wait for the daemon");
                return false;
            }
            None => peer.doze(),
        }
    };
    assert_eq!((answer.call, answer.code), (late, Code::Ok));
    peer.complete(&Completion::Drained);
    stopping.join().unwrap().unwrap();
    true
}

#[test]
fn a_daemon_that_does_not_answer_an_order_to_stop_holds_nobody_up() {
    watched(|| {
        let place = Place::new();
        let (stopping, _peer) = stopping(&place);
        stopping.join().unwrap().unwrap();
    });
}

#[test]
fn a_server_attaches_anew_when_its_daemon_comes_back() {
    watched(|| {
        let relay = Place::new().relay();
        let server = Server::builder().socket(relay.path()).add_service(EchoServer::new(Parrot)).workers(2);
        let server = server.spawn().unwrap();
        server.ready().wait().unwrap();
        let client = EchoClient::new(channel(&relay.path()));
        client.say(Text::new("before")).wait().unwrap();
        let dir = relay.stop();
        let _relay = Place::again(dir).relay();
        // Until client and server are both back, calls fail; none is lost.
        loop {
            match client.say(Request::new(Text::new("after")).wait_for_ready()).wait() {
                Ok(reply) => return assert_eq!(reply.view().text(), "after"),
                Err(status) => assert_eq!(status.code(), Code::Unavailable),
            }
        }
    });
}

#[test]
fn a_server_waits_for_a_daemon_and_can_be_stopped_meanwhile() {
    watched(|| {
        let dir = Place::deserted();
        let path = dir.path().join("daemon.sock");
        let start = || Server::builder().socket(&path).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        start().shutdown(Duration::ZERO).wait().unwrap();
        let server = start();
        let relay = Place::again(dir).relay();
        server.ready().wait().unwrap();
        let client = EchoClient::new(channel(&relay.path()));
        assert_eq!(client.say(Text::new("came")).wait().unwrap().view().text(), "came");
    });
}

/// Whose a name is may change: the server goes on asking, and whoever waits for it learns why it is not ready.
#[test]
fn a_service_the_daemon_refuses_for_now_is_told_to_who_waits() {
    watched(|| {
        let place = Place::new();
        let server =
            Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        let mut peer = place.accept();
        peer.refuse_bind(Code::PermissionDenied, "the name is another's");
        let status = server.ready().wait().unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("another's"), "{status}");
        drop(peer);
        // Asked again, it serves.
        let mut peer = place.accept();
        peer.answer_control_until_bound();
        while server.ready().wait().is_err() {
            thread::yield_now();
        }
        server.shutdown(Duration::ZERO).wait().unwrap();
    });
}

/// Other programs have the room that is wanted, and may let go of it. Each question costs the daemon its descriptors'
/// reading: it asks less and less often.
#[test]
fn a_worker_the_daemon_has_no_room_for_asks_again_and_disturbs_no_other() {
    watched(|| {
        let place = Place::new();
        let server = Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot)).workers(2);
        let server = server.spawn().unwrap();
        let mut one = place.accept();
        one.answer_control_until_bound();
        let began = std::time::Instant::now();
        let mut other = place.accept();
        other.refuse_bind(Code::ResourceExhausted, "too many routes");
        assert_eq!(server.ready().wait().unwrap_err().code(), Code::ResourceExhausted);
        deliver(&mut one, 1, "/test.Echo/Say", Some("served"));
        assert_eq!(next_finish(&mut one).code, Code::Ok);
        drop(other);
        place.accept().refuse_bind(Code::ResourceExhausted, "too many routes");
        let mut other = place.accept();
        assert!(began.elapsed() >= Duration::from_secs(1 + 2), "{:?}", began.elapsed());
        other.answer_control_until_bound();
        while server.ready().wait().is_err() {
            thread::yield_now();
        }
        server.shutdown(Duration::ZERO).wait().unwrap();
    });
}

#[test]
fn a_worker_that_cannot_serve_stops_the_others_gracefully() {
    watched(|| {
        let place = Place::new();
        let server = Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot)).workers(2);
        let server = server.grace(support::WATCHDOG).spawn().unwrap();
        let mut one = place.accept();
        one.answer_control_until_bound();
        let call = deliver(&mut one, 1, "/test.Echo/Collect", None);
        let mut other = place.accept();
        other.refuse_bind(Code::FailedPrecondition, "no such type");
        assert_eq!(one.next_but_release(), Submission::Drain { answer: true });
        one.complete(&Completion::HalfClose { call });
        let answer = next_finish(&mut one);
        assert_eq!((answer.call, answer.code), (call, Code::Ok));
        one.complete(&Completion::Drained);
        assert_eq!(server.wait().unwrap_err().code(), Code::FailedPrecondition);
    });
}

/// Each attach costs the daemon two heaps, and its thread is everybody's.
#[test]
fn a_server_whose_sessions_end_at_their_bind_attaches_after_longer_and_longer_pauses() {
    watched(|| {
        let place = Place::new();
        let server =
            Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        let asked = |peer: &Peer| {
            let ready = support::WATCHDOG.as_nanos() as u64;
            trunkline_shm::sleep_on(&[rustix::fd::AsFd::as_fd(&peer.control)], Some(ready)).unwrap();
        };
        let began = std::time::Instant::now();
        for _ in 0..5 {
            let peer = place.accept();
            asked(&peer);
        }
        let mut peer = place.accept();
        let pauses = Duration::from_millis(10 + 20 + 40 + 80 + 160);
        assert!(began.elapsed() >= pauses, "{:?}", began.elapsed());
        peer.answer_control_until_bound();
        server.ready().wait().unwrap();
    });
}

/// The longest grace there is does not mean that the server is never told to stop.
#[test]
fn a_server_with_grace_without_end_stops_when_its_handle_is_dropped() {
    watched(|| {
        let place = Place::new();
        let server = Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot));
        let server = server.grace(Duration::MAX).spawn().unwrap();
        let mut peer = place.accept();
        peer.answer_control_until_bound();
        drop(server);
        assert_eq!(peer.next(), Submission::Drain { answer: true });
        peer.complete(&Completion::Drained);
        peer.settle();
    });
}

#[test]
fn a_service_the_daemon_refuses_ends_the_server_with_the_reason() {
    watched(|| {
        let place = Place::new();
        let server =
            Server::builder().socket(place.path()).add_service(EchoServer::new(Parrot)).spawn().unwrap();
        let mut peer = place.accept();
        peer.refuse_bind(Code::FailedPrecondition, "message test.Text: unknown type");
        let status = server.wait().unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("unknown type"), "{status}");
    });
}

/// Whoever has started it before its daemon was there waits for nothing any more.
#[test]
fn a_server_that_ends_by_a_refusal_says_so_once() {
    const ITSELF: &str = "TRUNKLINE_TEST_SERVER_SAYS";
    if std::env::var_os(ITSELF).is_some() {
        // Nobody collects logs in this process: what is said goes to standard error.
        let place = Place::new();
        let service = EchoServer::new(Parrot);
        let server = Server::builder().socket(place.path()).add_service(service).spawn().unwrap();
        let mut peer = place.accept();
        peer.refuse_bind(Code::FailedPrecondition, "unknown type");
        server.wait().unwrap_err();
        return;
    }
    let name = "server::a_server_that_ends_by_a_refusal_says_so_once";
    watched(|| {
        let ended = own_test(name).env(ITSELF, "1").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        assert_eq!(said.matches("serves no more: ").count(), 1, "{said}");
    });
}

#[test]
fn workers_run_inside_the_scope_they_were_given() {
    thread_local! {
        static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    struct Asks(mpsc::Sender<bool>);
    impl Echo for Asks {
        async fn say(&self, request: Incoming<Text>) -> Result<Response<Text>, Status> {
            self.0.send(INSIDE.get()).unwrap();
            Ok(Response::new(request.into_inner()))
        }
        async fn repeat(&self, _request: Incoming<Text>, _out: Sender<Text>) -> Result<(), Status> {
            Ok(())
        }
        async fn collect(&self, _input: Receiver<Text>) -> Result<Response<Text>, Status> {
            Ok(Response::new(Text::default()))
        }
        async fn chat(&self, _input: Receiver<Text>, _out: Sender<Text>) -> Result<(), Status> {
            Ok(())
        }
    }
    watched(|| {
        let relay = Place::new().relay();
        let (tell, hear) = mpsc::channel();
        let server = Server::builder().socket(relay.path()).add_service(EchoServer::new(Asks(tell)));
        let server = server
            .worker_scope(|run| {
                INSIDE.set(true);
                run();
            })
            .spawn()
            .unwrap();
        server.ready().wait().unwrap();
        EchoClient::new(channel(&relay.path())).say(Text::default()).wait().unwrap();
        assert!(hear.recv().unwrap());
    });
}

#[test]
fn a_channel_can_be_made_before_there_is_anything() {
    let channel =
        Channel::builder().socket("/nonexistent/daemon.sock").target("tcp://10.0.0.7:1").connect_lazy();
    assert_eq!(channel.target(), "tcp://10.0.0.7:1");
    let eager = Channel::builder().socket("/nonexistent/daemon.sock").connect().wait();
    assert_eq!(eager.unwrap_err().code(), Code::Unavailable);
}
