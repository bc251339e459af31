//! Shows that tasks of an executor of several threads spread over sessions, no more than are allowed, and that calls do
//! not mind on which thread their tasks are polled, or dropped.

use crate::support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use support::executor::Executor;
use support::text::{EchoServer, Parrot};
use support::{EchoClient, Place, Relay, Text, channel, poll_once, with_task_sessions};
use trunkline::{Code, Receiver, Sender, Server, ServerBuilder, ServerHandle, Unary, Wait};

/// More than the sessions of any test.
const THREADS: usize = 6;

fn stage() -> (Relay, ServerHandle, EchoClient) {
    stage_with(usize::MAX)
}

/// A daemon with so many sessions to give, a server, and a client.
fn stage_with(sessions_max: usize) -> (Relay, ServerHandle, EchoClient) {
    let relay = Place::new().relay_of(sessions_max);
    let server = Server::builder().socket(relay.path()).add_service(EchoServer::new(Parrot)).spawn().unwrap();
    server.ready().wait().unwrap();
    let client = EchoClient::new(channel(&relay.path()));
    (relay, server, client)
}

/// The end of a test, in which there were at most so many sessions, the server's among them: what was given up has come
/// to its end when a last call behind it has, in every session.
fn finish(relay: Relay, server: ServerHandle, client: &EchoClient, executor: Executor, sessions_max: usize) {
    server.shutdown(ServerBuilder::GRACE).wait().unwrap();
    let refused = |client: EchoClient| async move {
        assert_eq!(client.say(Text::new("last")).await.unwrap_err().code(), Code::Unavailable);
    };
    all(&executor, THREADS, || refused(client.clone()));
    executor.finish();
    assert!(relay.sessions() <= sessions_max, "{} sessions", relay.sessions());
    assert_eq!(relay.stop_and_count(), 0, "bytes of receive heaps were not returned");
}

/// Runs so many tasks to their ends.
fn all<F: Future<Output = ()> + Send + 'static>(executor: &Executor, count: usize, task: impl Fn() -> F) {
    let tasks: Vec<_> = (0..count).map(|_| executor.spawn(task())).collect();
    tasks.iter().for_each(|task| task.recv().unwrap());
}

/// Calls one after the other until `enough`.
async fn call_until(client: EchoClient, enough: Arc<AtomicBool>) -> u64 {
    let mut calls = 0;
    while !enough.load(Ordering::Relaxed) {
        let said = format!("call {calls}");
        assert_eq!(client.say(Text::new(said.as_str())).await.unwrap().view().text(), said);
        calls += 1;
    }
    calls
}

#[test]
fn tasks_spread_over_as_many_sessions_as_are_allowed() {
    with_task_sessions("3", "lanes::tasks_spread_over_as_many_sessions_as_are_allowed", || {
        let (relay, server, client) = stage();
        let executor = Executor::new(THREADS);
        let enough = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..2 * THREADS)
            .map(|_| executor.spawn(call_until(client.clone(), Arc::clone(&enough))))
            .collect();
        while relay.callers() < 3 {
            thread::yield_now();
        }
        enough.store(true, Ordering::Relaxed);
        tasks.iter().for_each(|task| assert!(task.recv().unwrap() > 0));
        // By now each thread has called often enough for a session of its own.
        all(&executor, 50 * THREADS, || call_once(client.clone()));
        assert_eq!(relay.callers(), 3);
        finish(relay, server, &client, executor, 4);
    });
}

async fn call_once(client: EchoClient) {
    assert_eq!(client.say(Text::new("once")).await.unwrap().view().text(), "once");
}

#[test]
fn tasks_of_one_thread_share_one_session() {
    with_task_sessions("3", "lanes::tasks_of_one_thread_share_one_session", || {
        let (relay, server, client) = stage();
        let executor = Executor::new(1);
        all(&executor, 200, || call_once(client.clone()));
        assert_eq!(relay.callers(), 1);
        finish(relay, server, &client, executor, 2);
    });
}

/// A thread that polls now and then is not worth a session.
#[test]
fn threads_that_call_once_share_one_session() {
    with_task_sessions("3", "lanes::threads_that_call_once_share_one_session", || {
        let (relay, server, client) = stage();
        let executor = Executor::new(THREADS);
        all(&executor, THREADS, || call_once(client.clone()));
        assert_eq!(relay.callers(), 1);
        finish(relay, server, &client, executor, 2);
    });
}

/// Every message of these is sent, and received, by another thread than the one before.
#[test]
fn streams_go_on_wherever_their_tasks_are_polled() {
    with_task_sessions("3", "lanes::streams_go_on_wherever_their_tasks_are_polled", || {
        let (relay, server, client) = stage();
        let executor = Executor::new(THREADS);
        let chat = |client: EchoClient| async move {
            for round in 0..20 {
                let (mut tx, mut rx) = client.chat().split();
                for word in 0..10 {
                    let said = format!("{round}/{word}");
                    tx.send(Text::new(said.as_str())).await.unwrap();
                    assert_eq!(rx.recv().await.unwrap().unwrap().view().text(), said);
                }
                tx.close();
                assert!(rx.recv().await.unwrap().is_none());
            }
        };
        all(&executor, 2 * THREADS, || chat(client.clone()));
        finish(relay, server, &client, executor, 4);
    });
}

/// What a task of the next test gives away to be dropped.
type Dropped = (Vec<Unary<Text, Text>>, Sender<Text>, Receiver<Text>);

/// Calls are begun on one thread and dropped on another: before they are made, while they wait, when they are answered.
#[test]
fn calls_may_be_dropped_on_any_thread() {
    with_task_sessions("3", "lanes::calls_may_be_dropped_on_any_thread", || {
        let (relay, server, client) = stage();
        let executor = Executor::new(THREADS);
        let drops = |client: EchoClient, other: mpsc::Sender<Dropped>| async move {
            for round in 0..60 {
                let mut calls: Vec<_> = (0..4).map(|_| client.say(Text::new("dropped"))).collect();
                calls.push(client.say(Text::new("pend")));
                calls.iter_mut().skip(round % 2).for_each(|call| drop(poll_once(call)));
                let (tx, rx) = client.chat().split();
                call_once(client.clone()).await;
                other.send((calls, tx, rx)).unwrap();
            }
        };
        let (other, dropped) = mpsc::channel::<Dropped>();
        let dropper = thread::spawn(move || dropped.into_iter().for_each(drop));
        let tasks: Vec<_> =
            (0..2 * THREADS).map(|_| executor.spawn(drops(client.clone(), other.clone()))).collect();
        drop(other);
        tasks.iter().for_each(|task| task.recv().unwrap());
        dropper.join().unwrap();
        finish(relay, server, &client, executor, 4);
    });
}

/// A host may have no session left: that is no reason for a call to fail or to wait.
#[test]
fn where_no_more_sessions_are_given_tasks_share_what_there_is() {
    with_task_sessions("3", "lanes::where_no_more_sessions_are_given_tasks_share_what_there_is", || {
        let (relay, server, client) = stage_with(2);
        let executor = Executor::new(THREADS);
        all(&executor, 50 * THREADS, || call_once(client.clone()));
        while relay.refused() == 0 {
            all(&executor, THREADS, || call_once(client.clone()));
        }
        all(&executor, 50 * THREADS, || call_once(client.clone()));
        assert_eq!(relay.callers(), 1);
        finish(relay, server, &client, executor, 2);
    });
}
