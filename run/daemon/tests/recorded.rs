//! Shows that every call is in the books, whoever ended it: cancelled ones, those whose caller died or whose deadline
//! passed, at both hosts; hedges that lost and attempts that failed, beside the call they were made for; and how many
//! calls there were below one.

mod raw;

use raw::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Deadline, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{Ask, Coverage, Series, Side};

fn daemon(more: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{more}");
    Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
}

/// What is counted of calls of `raw.Echo/Once` on one side.
fn series(daemon: &Daemon, side: Side) -> Series {
    let ask = Ask { method: "/raw.Echo/Once".into(), ..Ask::default() };
    let mut sum = Series::default();
    for shard in daemon.observe(&ask) {
        sum.merge(&shard.telemetry.sum(side));
    }
    sum
}

fn codes(daemon: &Daemon, side: Side) -> BTreeMap<&'static str, u64> {
    let series = series(daemon, side);
    let counted = Code::ALL.into_iter().zip(series.codes).filter(|(_, calls)| *calls > 0);
    counted.map(|(code, calls)| (code.name(), calls)).collect()
}

/// Waits until these calls are in the books, and no other.
fn expect(daemon: &Daemon, side: Side, wanted: &[(&'static str, u64)]) {
    let wanted: BTreeMap<_, _> = wanted.iter().copied().collect();
    let began = std::time::Instant::now();
    loop {
        let found = codes(daemon, side);
        if found == wanted {
            return;
        }
        assert!(began.elapsed() < WATCHDOG, "{side:?}: {found:?}, wanted {wanted:?}");
        std::thread::yield_now();
    }
}

/// What a handler that is cancelled says it took.
const WASTED_NS: u64 = 5_000_000;

/// Takes calls and answers none; tells of each, and what it took when it is cancelled.
fn hold(mut server: RawApp) -> Receiver<CallId> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        loop {
            match server.next() {
                Completion::Call(call) if tell.send(call.call).is_err() => return,
                Completion::Cancelled { call, .. } => {
                    let mut end = finish(call, Code::Cancelled, None);
                    end.cpu_ns = WASTED_NS;
                    // Twice: it counts once.
                    server.submit(Submission::Finish(end));
                    server.submit(Submission::Finish(end));
                }
                _ => {}
            }
        }
    });
    told
}

/// Answers the calls for which `code` has one, and leaves the others.
fn answer(mut server: RawApp, code: impl Fn() -> Option<Code> + Send + 'static) {
    std::thread::spawn(move || {
        while let Completion::Call(call) = server.next_call() {
            let Some(code) = code() else { continue };
            let reply = (code == Code::Ok).then(|| {
                let data = server.received(call.payload.unwrap());
                server.bytes(&data, Encoding::Linear)
            });
            server.submit(Submission::Finish(finish(call.call, code, reply)));
        }
    });
}

/// Waits until a daemon knows what was taken for calls that did not end well.
fn expect_wasted(daemon: &Daemon, side: Side) {
    let began = std::time::Instant::now();
    while series(daemon, side).failed_cpu_ns == 0 {
        assert!(began.elapsed() < WATCHDOG, "nobody knows what the handler took");
        std::thread::yield_now();
    }
    let series = series(daemon, side);
    assert_eq!((series.failed_cpu_ns, series.cpu.count()), (WASTED_NS, 1));
}

/// Makes a call and waits for nothing.
fn begin(client: &mut RawApp, deadline: Deadline, parent: CallId) -> CallId {
    let payload = client.blob(b"who ends this?");
    let mut call = client.call(0, Some(payload), true);
    let now = Instant(monotonic_ns());
    (call.entered, call.published, call.deadline, call.parent) = (now, now, deadline, parent);
    client.submit(Submission::Call(call));
    call.call
}

/// Waits for the end of a call, and takes it.
fn end(client: &mut RawApp) -> Code {
    loop {
        if let Completion::Finish(end) = client.next() {
            let block = end.payload.map_or(Span::default(), |payload: Payload| payload.span);
            let a18 = Instant(monotonic_ns());
            client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18 });
            return end.code;
        }
    }
}

#[test]
fn a_cancelled_call_is_in_the_books_of_both() {
    let (near, far) = (daemon(""), daemon(""));
    let held = hold(RawApp::attach(&far, "", true));
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    let call = begin(&mut client, Deadline::NONE, CallId(0));
    held.recv_timeout(WATCHDOG).unwrap();
    client.submit(Submission::Cancel { call });
    expect(&near, Side::Made, &[("CANCELLED", 1)]);
    expect(&far, Side::Served, &[("CANCELLED", 1)]);
    assert!(series(&far, Side::Served).total.max() > 0, "with the time it took");
    expect_wasted(&far, Side::Served);
}

#[test]
fn a_call_whose_caller_died_is_in_the_books_of_both() {
    let (near, far) = (daemon(""), daemon(""));
    let held = hold(RawApp::attach(&far, "", true));
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    begin(&mut client, Deadline::NONE, CallId(0));
    held.recv_timeout(WATCHDOG).unwrap();
    drop(client);
    expect(&near, Side::Made, &[("CANCELLED", 1)]);
    expect(&far, Side::Served, &[("CANCELLED", 1)]);
}

#[test]
fn a_deadline_that_passes_is_in_the_books_of_both() {
    let (near, far) = (daemon(""), daemon(""));
    let held = hold(RawApp::attach(&far, "", true));
    let mut client = RawApp::attach(&near, &far.endpoints()[0], false);
    // Time enough to get there also where the host is busy with something else.
    begin(&mut client, Deadline::at(Instant(monotonic_ns() + 3_000_000_000)), CallId(0));
    held.recv_timeout(WATCHDOG).unwrap();
    assert_eq!(end(&mut client), Code::DeadlineExceeded);
    expect(&near, Side::Made, &[("DEADLINE_EXCEEDED", 1)]);
    expect(&far, Side::Served, &[("DEADLINE_EXCEEDED", 1)]);
    expect_wasted(&far, Side::Served);
}

/// A daemon whose calls may take two attempts, by this policy, at two servers.
fn near_with(policy: &str, servers: &[&Daemon]) -> Daemon {
    let endpoints: Vec<String> =
        servers.iter().map(|server| format!("{:?}", server.endpoints()[0])).collect();
    let config = format!(r#"{{"methodConfig": [{{"name": [{{}}], {policy}}}]}}"#);
    daemon(&format!(
        "[services.\"raw.Echo\"]\nendpoints = [{}]\nservice_config = '{config}'\n",
        endpoints.join(", ")
    ))
}

#[test]
fn the_loser_of_a_hedge_is_in_the_books() {
    let servers = [daemon(""), daemon("")];
    let seen = Arc::new(AtomicUsize::new(0));
    for server in &servers {
        let seen = Arc::clone(&seen);
        // The first is not answered, at whichever of the two.
        let code = move || (seen.fetch_add(1, Ordering::SeqCst) > 0).then_some(Code::Ok);
        answer(RawApp::attach(server, "", true), code);
    }
    let policy = r#""hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.02s"}"#;
    let near = near_with(policy, &[&servers[0], &servers[1]]);
    let mut client = RawApp::attach(&near, "", false);
    begin(&mut client, Deadline::NONE, CallId(0));
    assert_eq!(end(&mut client), Code::Ok);
    expect(&near, Side::Made, &[("OK", 1)]);
    expect(&near, Side::Attempt, &[("CANCELLED", 1), ("OK", 1)]);
    let figures = near.observe(&Ask::default()).remove(0).snapshot.attempts;
    assert_eq!((figures.calls, figures.hedges, figures.retries), (1, 1, 0), "{figures:?}");
    let mut served = codes(&servers[0], Side::Served);
    let began = std::time::Instant::now();
    while served.len() + codes(&servers[1], Side::Served).len() < 2 {
        assert!(began.elapsed() < WATCHDOG, "{served:?}");
        served = codes(&servers[0], Side::Served);
    }
    served.extend(codes(&servers[1], Side::Served));
    assert_eq!(served.into_iter().collect::<Vec<_>>(), [("CANCELLED", 1), ("OK", 1)]);
}

#[test]
fn an_attempt_that_failed_is_in_the_books() {
    let server = daemon("");
    let seen = AtomicUsize::new(0);
    let code =
        move || Some(if seen.fetch_add(1, Ordering::SeqCst) == 0 { Code::Unavailable } else { Code::Ok });
    answer(RawApp::attach(&server, "", true), code);
    let waits = r#""initialBackoff": "0.01s", "maxBackoff": "0.02s", "backoffMultiplier": 2"#;
    let codes = r#""retryableStatusCodes": ["UNAVAILABLE"]"#;
    let policy = &format!(r#""retryPolicy": {{"maxAttempts": 2, {waits}, {codes}}}"#);
    let near = near_with(policy, &[&server]);
    let mut client = RawApp::attach(&near, "", false);
    begin(&mut client, Deadline::NONE, CallId(0));
    assert_eq!(end(&mut client), Code::Ok);
    expect(&near, Side::Made, &[("OK", 1)]);
    expect(&near, Side::Attempt, &[("OK", 1), ("UNAVAILABLE", 1)]);
    let figures = near.observe(&Ask::default()).remove(0).snapshot.attempts;
    assert_eq!((figures.calls, figures.hedges, figures.retries), (1, 0, 1), "{figures:?}");
    expect(&server, Side::Served, &[("OK", 1), ("UNAVAILABLE", 1)]);
}

/// Serves calls, for each of which it makes `below` calls itself.
fn hand_on(mut app: RawApp, below: usize) {
    std::thread::spawn(move || {
        while let Completion::Call(call) = app.next_call() {
            for _ in 0..below {
                begin(&mut app, Deadline::NONE, call.call);
                assert_eq!(end(&mut app), Code::Ok);
            }
            let data = app.received(call.payload.unwrap());
            let reply = app.bytes(&data, Encoding::Linear);
            app.submit(Submission::Finish(finish(call.call, Code::Ok, Some(reply))));
        }
    });
}

#[test]
fn the_whole_subtree_comes_back() {
    let [near, middle, inner, leaf] = [daemon(""), daemon(""), daemon(""), daemon("")];
    hand_on(RawApp::attach(&leaf, "", true), 0);
    hand_on(RawApp::attach(&inner, &leaf.endpoints()[0], true), 1);
    hand_on(RawApp::attach(&middle, &inner.endpoints()[0], true), 2);
    let mut client = RawApp::attach(&near, &middle.endpoints()[0], false);
    begin(&mut client, Deadline::NONE, CallId(0));
    assert_eq!(end(&mut client), Code::Ok);
    expect(&near, Side::Made, &[("OK", 1)]);
    let subtree = series(&near, Side::Made).subtree;
    assert_eq!((subtree.count(), subtree.max()), (1, 5), "itself, two calls, and one below each");
}

#[test]
fn calls_of_one_host_have_no_wire() {
    let daemon = daemon("");
    hand_on(RawApp::attach(&daemon, "", true), 0);
    let mut client = RawApp::attach(&daemon, "", false);
    begin(&mut client, Deadline::NONE, CallId(0));
    assert_eq!(end(&mut client), Code::Ok);
    expect(&daemon, Side::Made, &[("OK", 1)]);
    let ask = Ask { samples_max: 10, ..Ask::default() };
    let samples: Vec<_> =
        daemon.observe(&ask).into_iter().flat_map(|shard| shard.telemetry.samples).collect();
    assert_eq!(samples.len(), 1);
    assert_eq!((samples[0].coverage, samples[0].coverage.measured()), (Coverage::OneHost, 7));
    let series = series(&daemon, Side::Made);
    assert_eq!((series.one_host, series.kernel_stamped), (1, 0), "no kernel has seen it");
}
