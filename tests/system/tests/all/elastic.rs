//! Shows that sessions leave a shard that one of them floods, and that shards begin and stop as there is work for them,
//! while calls go on.

use crate::support::{Host, Process, until};
use std::num::NonZero;

/// What the daemon calls this process' sessions.
fn label(process: &Process) -> String {
    format!("probe[{}]", process.id())
}

/// The shards an application has sessions on.
fn shards_of(host: &mut Host, process: &Process) -> Vec<usize> {
    let label = label(process);
    let shards = host.shards().into_iter().filter(|(_, labels)| labels.contains(&label));
    shards.map(|(shard, _)| shard).collect()
}

/// Has an application's sessions on this shard.
fn place(host: &mut Host, process: &Process, shard: usize) {
    let said = host.daemon().ask(&format!("move {} {shard}", label(process)));
    assert!(said.starts_with("moved "), "{said}");
    assert_eq!(shards_of(host, process), [shard]);
}

/// Threads of the daemon that carry calls, by the kernel's word.
fn threads(host: &mut Host) -> usize {
    let tasks = format!("/proc/{}/task", host.daemon().answering_id());
    let names = std::fs::read_dir(tasks).unwrap().map(|task| {
        // One may end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    });
    names.filter(|name| name.trim_end() == "trunkline-shard").count()
}

fn ends_well(flood: &mut Process) {
    let said = flood.ask("flood-ends");
    assert!(said.starts_with("OK ") && said != "OK 0", "{said}");
}

/// One application floods the shard it shares with another. On two shards they part.
fn parts_from_a_flood(far: Option<&Host>) {
    let mut near = Host::of_shards(2);
    let target = far.map_or("", |far| far.endpoint()).to_owned();
    let server = far.unwrap_or(&near).server("server");
    let [mut flood, mut small] = [(); 2].map(|()| near.client(&target));
    for client in [&mut flood, &mut small] {
        assert_eq!(client.ask("echo-when-ready begins"), "OK");
    }
    let on_near = if far.is_none() { vec![&server, &flood, &small] } else { vec![&flood, &small] };
    on_near.into_iter().for_each(|process| place(&mut near, process, 0));
    let before = near.daemon().log();
    assert_eq!(flood.ask("flood 262144"), "begun");
    until("the two on different shards", || {
        assert_eq!(small.ask("echo beside it"), "OK");
        let [flooded, left] = [&flood, &small].map(|process| shards_of(&mut near, process));
        (flooded != left).then_some(())
    });
    let log = near.daemon().log();
    let moves = log.strip_prefix(&before).unwrap().lines();
    let moves: Vec<_> = moves.filter(|line| line.contains("session moved to another shard")).collect();
    assert!(moves.iter().any(|line| line.contains("from=0 to=1")), "{moves:?}");
    ends_well(&mut flood);
    assert_eq!(small.ask("echo afterwards"), "OK");
    near.until_idle();
}

#[test]
fn whoever_shares_a_shard_with_a_flood_leaves_it() {
    parts_from_a_flood(None);
}

#[test]
fn whoever_shares_a_shard_with_a_flood_to_another_host_leaves_it() {
    parts_from_a_flood(Some(&Host::over_tcp()));
}

#[test]
fn an_order_to_move_says_what_is_wrong_with_it() {
    let mut host = Host::of_shards(2);
    let client = host.server("server");
    let own = label(&client);
    let table = [
        (format!("move {own} 7"), "there is no shard 7: the last one is 1 (daemon.shards)"),
        ("move nobody[1] 1".to_owned(), "no application \"nobody[1]\" is attached"),
    ];
    for (order, why) in table {
        assert_eq!(host.daemon().ask(&order), why);
    }
    let mut alone = Host::elastic();
    if alone.shards().len() < processors() {
        let said = alone.daemon().ask("move nobody[1] 1");
        assert!(said.contains("shard 1 has no thread now: with daemon.shards = \"auto\""), "{said}");
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Where the host has one processor a daemon never has more than one shard.
#[test]
fn shards_begin_when_there_is_work_for_them_and_stop_when_there_is_none() {
    let mut host = Host::elastic();
    assert_eq!((host.shards().len(), threads(&mut host)), (1, 1));
    if processors() < 2 {
        return;
    }
    let _servers = [(); 2].map(|()| host.server("server"));
    let mut floods = [(); 3].map(|()| host.client(""));
    for flood in &mut floods {
        assert_eq!(flood.ask("echo-when-ready begins"), "OK");
    }
    let stretched = |host: &mut Host| {
        let shards = host.shards();
        (shards.len() > 1 && shards.iter().all(|(_, labels)| !labels.is_empty())).then_some(())
    };
    for round in 0..2 {
        for flood in &mut floods {
            assert_eq!(flood.ask("flood 20"), "begun");
        }
        until("another shard with sessions", || stretched(&mut host));
        let begun = host.shards().len();
        assert_eq!(threads(&mut host), begun, "each has a thread");
        let log = host.daemon().log();
        assert!(log.contains("another shard has begun") && log.contains("session moved to another shard"));
        // Whoever takes over goes on with as many as have sessions.
        host.replace_daemon();
        until("a successor whose shards have sessions", || stretched(&mut host));
        floods.iter_mut().for_each(ends_well);
        until("one shard with all sessions", || {
            let shards = host.shards();
            (shards.len() == 1 && threads(&mut host) == 1).then_some(())
        });
        assert!(host.daemon().log().contains("a shard has stopped"));
        for flood in &mut floods {
            assert_eq!(flood.ask("echo afterwards"), "OK", "round {round}");
            assert_eq!(shards_of(&mut host, flood), [0]);
        }
        host.until_idle();
    }
}
