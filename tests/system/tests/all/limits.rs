//! Shows that what an operator writes once for a host counts for all shards of its daemon: processes that sit on
//! different ones have together what one would have.

use crate::support::{Host, Process};

/// Applies one policy to all calls of the probe service, or none.
fn apply(host: &mut Host, policy: &str) {
    let head = "[[policy]]\nname = \"limit\"\nside = \"client\"\nservice = \"probe.v1.Probe\"\n";
    let text = if policy.is_empty() { String::new() } else { format!("{head}{policy}") };
    let file = host.folder().join("limit.toml");
    std::fs::write(&file, text).unwrap();
    let applied = host.daemon().ask(&format!("policies {}", file.display()));
    assert_eq!(applied, "applied, 0 upgraded");
}

/// Processes that call, which the daemon spreads over its shards.
fn clients(host: &Host) -> Vec<Process> {
    let mut clients: Vec<Process> = (0..4).map(|_| host.client("")).collect();
    for client in &mut clients {
        assert_eq!(client.ask("echo-when-ready begins"), "OK");
    }
    clients
}

#[test]
fn a_rate_is_the_hosts() {
    for shards in [1, 2, 3] {
        let mut host = Host::of_shards(shards);
        let _server = host.server("server");
        let mut clients = clients(&host);
        for burst in [10, 200] {
            apply(&mut host, "");
            apply(&mut host, &format!("kind = \"rate-limit\"\ncalls_per_second = 0.001\nburst = {burst}\n"));
            let mut passed = 0;
            for _ in 0..burst / 2 {
                for client in &mut clients {
                    let answer = client.ask("echo it");
                    assert!(answer == "OK" || answer.contains("rate limit reached"), "{answer}");
                    passed += u32::from(answer == "OK");
                }
            }
            // Twice as many were made. What shards keep is no more than a sixteenth of it.
            assert!(passed <= burst && passed >= burst - burst / 16, "{passed} of {burst}, {shards} shards");
        }
    }
}

#[test]
fn a_number_of_calls_is_the_hosts() {
    for shards in [2, 3] {
        let mut host = Host::of_shards(shards);
        let _server = host.server("server");
        let mut clients = clients(&host);
        apply(&mut host, "kind = \"concurrency-limit\"\ncalls_max = 3\n");
        for (index, client) in clients[..3].iter_mut().enumerate() {
            assert_eq!(client.ask(&format!("hang {index}")), "begun");
            host.until_held("delivered", index as u64 + 1);
        }
        for client in &mut clients {
            let answer = client.ask("echo it");
            assert!(answer.contains("3 calls are under way"), "{answer}");
        }
        // Whoever ends gives room to somebody else, wherever that is.
        drop(clients.remove(0));
        host.until_held("delivered", 2);
        for client in &mut clients {
            assert_eq!(client.ask("echo it"), "OK");
        }
    }
}
