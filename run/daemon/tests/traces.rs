//! Shows that what several hosts record of calls that make calls is one tree: its calls above each other, at times that
//! fit, with all stamps; and that nothing is recorded of a trace where no trace is kept.

mod raw;

use raw::*;
use trunkline_call::entry::{Completion, Payload, Span, Submission};
use trunkline_call::{CallId, Code, Encoding, Instant};
use trunkline_daemon::{Config, Daemon};
use trunkline_insight::{BlockHead, Fleet, RecordBlock, WholeTree, count_ancestors};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{CallsAsk, Side};

fn daemon(more: &str) -> Daemon {
    let text = format!("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{more}");
    Daemon::embedded(Config::from_toml(&text, "test").unwrap()).unwrap()
}

const TRACED: &str = "[recorder]\ntraces = true\nsample = 1.0\n";

fn call(client: &mut RawApp, parent: CallId) -> Code {
    let payload = client.blob(b"whose tree is this?");
    let mut call = client.call(0, Some(payload), true);
    let now = Instant(monotonic_ns());
    (call.entered, call.published, call.parent) = (now, now, parent);
    client.submit(Submission::Call(call));
    loop {
        if let Completion::Finish(end) = client.next() {
            let block = end.payload.map_or(Span::default(), |payload: Payload| payload.span);
            let a18 = Instant(monotonic_ns());
            client.submit(Submission::Release { call: end.call, block, metadata: end.metadata, a18 });
            return end.code;
        }
    }
}

/// Serves calls, for each of which it makes `below` calls itself.
fn hand_on(mut app: RawApp, below: usize) {
    std::thread::spawn(move || {
        while let Completion::Call(given) = app.next_call() {
            for _ in 0..below {
                assert_eq!(call(&mut app, given.call), Code::Ok);
            }
            let data = app.received(given.payload.unwrap());
            let reply = app.bytes(&data, Encoding::Linear);
            app.submit(Submission::Finish(finish(given.call, Code::Ok, Some(reply))));
        }
    });
}

/// What a daemon has recorded, as soon as so many calls are there.
fn add(fleet: &mut Fleet, host: &str, daemon: &Daemon, calls: usize) {
    let ask = CallsAsk { from: Some(0), rows_max: usize::MAX, ..CallsAsk::default() };
    let began = std::time::Instant::now();
    let answers = loop {
        let answers = daemon.calls(|_| ask);
        let seen: usize = answers.iter().map(|answer| answer.rows.len()).sum();
        if seen >= calls {
            break answers;
        }
        assert!(began.elapsed() < WATCHDOG, "{host}: {seen} calls of {calls}");
        std::thread::yield_now();
    };
    for answer in answers {
        let (methods, peers) = (answer.methods, answer.peers);
        let head =
            BlockHead { host: host.into(), ended_ns: u64::MAX, methods, peers, ..BlockHead::default() };
        let block = RecordBlock { head, rows: answer.rows, traces: answer.traces };
        // The way of a file.
        fleet.read(&block.encode());
    }
    assert!(fleet.faults.is_empty(), "{}", fleet.faults);
}

#[test]
fn a_tree_over_three_hosts_is_whole() {
    let [near, middle, leaf] = [daemon(TRACED), daemon(TRACED), daemon(TRACED)];
    hand_on(RawApp::attach(&leaf, "", true), 0);
    hand_on(RawApp::attach(&middle, &leaf.endpoints()[0], true), 2);
    let mut client = RawApp::attach(&near, &middle.endpoints()[0], false);
    assert_eq!(call(&mut client, CallId(0)), Code::Ok);

    let mut fleet = Fleet::default();
    add(&mut fleet, "near", &near, 1);
    add(&mut fleet, "middle", &middle, 3);
    add(&mut fleet, "leaf", &leaf, 2);
    count_ancestors(&mut fleet);
    assert_eq!((fleet.calls.len(), fleet.traces.len()), (6, 6), "each is of the trace");
    let traces: Vec<u128> = fleet.traces.iter().map(|own| own.trace.ids.trace).collect();
    assert!(traces.iter().all(|trace| *trace == traces[0]), "{traces:x?}");
    let above = |host: &str, side: Side| -> Vec<Option<u16>> {
        let of = fleet.calls.iter().filter(|call| fleet.heads[call.block as usize].host == host);
        of.filter(|call| call.row.side == side).map(|call| call.ancestors).collect()
    };
    assert_eq!(above("near", Side::Made), [Some(0)]);
    assert_eq!(above("middle", Side::Served), [Some(0)]);
    assert_eq!(above("middle", Side::Made), [Some(1), Some(1)]);
    assert_eq!(above("leaf", Side::Served), [Some(1), Some(1)]);

    let trees = WholeTree::all(&fleet);
    let [tree] = &trees[..] else { panic!("{trees:?}") };
    let depths: Vec<u16> = tree.calls.iter().map(|call| call.depth).collect();
    assert_eq!(depths, [0, 1, 1]);
    let critical: u64 = tree.calls.iter().map(|call| call.critical_ns).sum();
    assert_eq!(critical, tree.total_ns(), "the path is as long as the tree");
    assert!(tree.calls.iter().all(|call| call.critical_ns > 0), "one behind the other: {tree:?}");
    let top = tree.calls[0].placed;
    for inner in &tree.calls[1..] {
        let placed = inner.placed;
        assert!(top.began_ns < placed.began_ns && placed.ended_ns < top.ended_ns, "{placed:?} in {top:?}");
    }
    for own in &fleet.traces {
        let row = &fleet.calls[own.call as usize].row;
        // Nobody asks the kernel when the last byte of every write left.
        let stamps: Vec<&str> =
            own.trace.stamps().map(|(name, _)| name).filter(|name| *name != "k6").collect();
        let servers = ["k7", "d8", "d9", "a10", "a11", "d12", "k14"];
        match row.side {
            Side::Served => assert_eq!(stamps, servers),
            _ => assert_eq!(stamps.len(), 16, "{stamps:?}"),
        }
    }
}

#[test]
fn a_host_between_that_keeps_no_traces_leaves_a_gap() {
    let [near, middle, leaf] = [daemon(TRACED), daemon(""), daemon(TRACED)];
    hand_on(RawApp::attach(&leaf, "", true), 0);
    hand_on(RawApp::attach(&middle, &leaf.endpoints()[0], true), 1);
    let mut client = RawApp::attach(&near, &middle.endpoints()[0], false);
    assert_eq!(call(&mut client, CallId(0)), Code::Ok);
    let mut fleet = Fleet::default();
    add(&mut fleet, "near", &near, 1);
    add(&mut fleet, "middle", &middle, 2);
    add(&mut fleet, "leaf", &leaf, 1);
    count_ancestors(&mut fleet);
    assert_eq!(fleet.traces.len(), 2, "what the client's host began, and the leaf went on with");
    assert_eq!(WholeTree::all(&fleet).len(), 1);
    let leaf = fleet.calls.iter().find(|call| fleet.heads[call.block as usize].host == "leaf").unwrap();
    // The attempt is the client's, as far as anybody told the leaf.
    assert_eq!(leaf.ancestors, Some(0));
}

#[test]
fn a_tree_begins_within_a_host() {
    let [near, leaf] = [daemon(TRACED), daemon(TRACED)];
    hand_on(RawApp::attach(&leaf, "", true), 0);
    hand_on(RawApp::attach(&near, &leaf.endpoints()[0], true), 1);
    let mut client = RawApp::attach(&near, "", false);
    assert_eq!(call(&mut client, CallId(0)), Code::Ok);
    let mut fleet = Fleet::default();
    add(&mut fleet, "near", &near, 2);
    add(&mut fleet, "leaf", &leaf, 1);
    count_ancestors(&mut fleet);
    let trees = WholeTree::all(&fleet);
    assert_eq!((trees.len(), trees[0].calls.len()), (1, 2), "{trees:?}");
}

#[test]
fn without_the_key_nothing_is_kept() {
    let [near, leaf] = [daemon(""), daemon("")];
    hand_on(RawApp::attach(&leaf, "", true), 0);
    let mut client = RawApp::attach(&near, &leaf.endpoints()[0], false);
    assert_eq!(call(&mut client, CallId(0)), Code::Ok);
    let mut fleet = Fleet::default();
    add(&mut fleet, "near", &near, 1);
    add(&mut fleet, "leaf", &leaf, 1);
    assert_eq!((fleet.calls.len(), fleet.traces.len()), (2, 0));
}
