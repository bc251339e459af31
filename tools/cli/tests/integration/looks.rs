//! Shows that questions without end about a daemon, of a user who may look, disturb nobody: not the calls of a good
//! pair, and not an operator who looks, too; and that nothing is left of them. Needs root, which alone can start a
//! program of another user.

use crate::support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{ADMIN_PROTO, Host, trunkline, watched};
use trunkline::Wait;
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_measure::Child;

/// Who asks without end. Nobody has it.
const USER: u32 = 54_321;
/// What is asked, by a program each.
const QUESTIONS: [&str; 4] = ["Explain", "List", "Calls", "History"];
/// Questions of a program that are under way at once: together more than may wait.
const AT_ONCE: &str = "32";
/// Calls of the good pair before the questions begin, and beside them.
const CALLS: usize = 300;
/// How often the operator looks beside them.
const LOOKS: usize = 5;
/// What the daemon may have grown by meanwhile: answers under way, and what the allocator keeps.
const GROWN_BYTES_MAX: u64 = 32 << 20;

/// A program of the other user that asks all the time.
fn asker(host: &Host, question: &str) -> Child {
    let method = format!("trunkline.admin.v1.Admin/{question}");
    // Every sample there is, and every call.
    let data = match question {
        "Explain" => r#"{"samplesMax": 20000}"#,
        "Calls" => r#"{"next": [0]}"#,
        _ => "",
    };
    let socket = host.socket();
    let mut command = trunkline(&["--socket", socket.to_str().unwrap(), "bench"]);
    command.args(["--proto", ADMIN_PROTO, "--closed", "--concurrency", AT_ONCE, "--duration", "1h"]);
    command.args(["--data", data, &method]);
    command.uid(USER).gid(USER).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap().into()
}

/// What the daemon has for itself, beside what it shares.
fn own_bytes(host: &Host) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.child.id())).unwrap();
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a live process has a size");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap() << 10
}

/// Sessions that are attached, and how often the admin API was asked, as an operator finds them.
fn listed(host: &Host) -> serde_json::Value {
    let listed = host.verb(&["list", "--json"], "");
    assert_eq!(listed.code, Some(0), "{listed:?}");
    serde_json::from_str(&listed.out).unwrap()
}

fn sessions(host: &Host) -> usize {
    listed(host)["applications"].as_array().unwrap().len()
}

fn print(what: &str, took: &mut [Duration]) {
    took.sort();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    eprintln!("{what}: {} calls of the good pair, p50 {:?}, p99 {:?}", took.len(), at(50), at(99));
}

fn calls(client: &SearchClient, times: usize) -> Vec<Duration> {
    let call = |_| {
        let began = Instant::now();
        let request = QueryRequest { query: "bell".into(), ..QueryRequest::default() };
        client.query(request).wait().expect("a good pair is not disturbed");
        began.elapsed()
    };
    (0..times).map(call).collect()
}

#[test]
fn questions_without_end_disturb_nobody() {
    watched();
    if !rustix::process::geteuid().is_root() {
        eprintln!("looks: NOT SHOWN, because only root can start a program of another user");
        return;
    }
    let host = Host::start("[daemon]\nsocket_mode = \"0666\"\n");
    std::fs::set_permissions(host.folder(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let (_server, client) = host.serve_search();
    print("undisturbed", &mut calls(&client, CALLS));
    let (before, before_bytes) = (sessions(&host), own_bytes(&host));
    let askers: Vec<Child> = QUESTIONS.iter().map(|question| asker(&host, question)).collect();
    let (stop, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                let found = sessions(&host);
                eprintln!("an operator found {found} sessions within {:?}", began.elapsed());
                looks.fetch_add(usize::from(found >= before + QUESTIONS.len()), Ordering::Relaxed);
            }
        });
        // Until all of them are there, and have been looked at for some time.
        while looks.load(Ordering::Relaxed) < LOOKS || took.len() < CALLS {
            took.extend(calls(&client, 20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let grown_bytes = own_bytes(&host).saturating_sub(before_bytes);
    print("beside questions without end", &mut took);
    eprintln!("the daemon has grown by {} KiB", grown_bytes >> 10);
    assert!(grown_bytes <= GROWN_BYTES_MAX, "{grown_bytes} bytes");
    let refused = host.verb(&["explain"], "");
    assert_eq!(refused.code, Some(0), "another user is answered: {refused:?}");
    drop(askers);
    while sessions(&host) > before {
        std::thread::yield_now();
    }
}
