//! Shows that many use one daemon at once, and that a slow one costs the daemon no memory.

use crate::support::{Host, channel, client, echo, until, until_served};
use trunkline::Wait;
use trunkline_system_tests::proto::probe::Wanted;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;

/// What a daemon may grow by while a reader is slow: a window for each of the stream's stations and the pages its
/// rings, heaps and buffers touch; far less than the 120 MB that are sent.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

#[test]
fn processes_and_threads_share_a_daemon() {
    let mut host = Host::alone();
    // Client and server at once: relays its calls to itself or to the other, through the daemon.
    let servers = [host.server("server"), host.program("both", "")];
    let mut clients: Vec<_> = (0..6).map(|_| host.client("")).collect();
    for name in ["many threads", "calls within calls", "both directions at once", "unary, every size"] {
        clients.iter_mut().for_each(|client| client.tell(&format!("scenario {name}")));
        for client in &mut clients {
            let said = client.hear();
            assert!(said.starts_with("ok: "), "{name}: {said}");
        }
    }
    drop((clients, servers));
    host.until_idle();
    host.until_held("sessions", 0);
}

#[test]
fn a_slow_reader_costs_the_daemons_no_memory() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let _server = far.server("server");
    let client = ProbeClient::new(channel(&near, far.endpoint()));
    until_served(&client);
    let before = [near.daemon().resident_bytes(), far.daemon().resident_bytes()];
    let mut items = client.count(Wanted { count: 2000, bytes: 60_000, label: "slow".into() }).wait().unwrap();
    let mut next = 0;
    while let Some(item) = items.recv().wait().unwrap() {
        assert_eq!(item.view().number(), next);
        next += 1;
        if next % 10 == 0 {
            assert_eq!(echo(&client, "meanwhile").unwrap(), "meanwhile");
        }
        if next % 100 == 0 {
            for (host, before) in [&mut near, &mut far].into_iter().zip(before) {
                let grown = host.daemon().resident_bytes().saturating_sub(before);
                assert!(
                    grown < GROWTH_BYTES_MAX,
                    "after {next} messages a daemon has grown by {grown} bytes"
                );
            }
        }
    }
    assert_eq!(next, 2000);
    drop(items);
    near.until_idle();
    far.until_idle();
}

#[test]
fn a_reader_that_stops_holds_nobody_up() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let client = client(&host, "");
    let before = host.daemon().resident_bytes();
    let wanted = || Wanted { count: u32::MAX, bytes: 100_000, label: "stopped".into() };
    let mut stopped: Vec<_> = (0..20).map(|_| client.count(wanted()).wait().unwrap()).collect();
    for items in &mut stopped {
        assert_eq!(items.recv().wait().unwrap().unwrap().view().number(), 0);
    }
    for _ in 0..300 {
        assert_eq!(echo(&client, "others go on").unwrap(), "others go on");
    }
    let grown = host.daemon().resident_bytes().saturating_sub(before);
    assert!(grown < 2 * 20 * (1 << 20) + GROWTH_BYTES_MAX, "{grown} bytes for 20 windows of 1 MiB");
    drop(stopped);
    // What had arrived for them goes back with the next thing this process does.
    until("nothing held", || {
        assert_eq!(echo(&client, "next").unwrap(), "next");
        host.holds_nothing().then_some(())
    });
}
