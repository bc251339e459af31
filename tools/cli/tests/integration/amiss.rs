//! Shows how verbs end where something is amiss: readers that go away, daemons that are stopped, replaced or absent,
//! files that are there already or are none of theirs. None hangs, and each says in a sentence what to do.

use crate::support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use support::{Ended, Host, Recording, SEARCH_PROTO, end, trunkline, watched};
use trunkline::Wait;
use trunkline_example_search::proto::QueryRequest;

/// A daemon with a socket for operators, and the arguments that name it.
fn host_with_operators(folder: &Path) -> (Host, String) {
    let admin = folder.join("admin.sock").display().to_string();
    (Host::start(&format!("[admin]\nlisten = [\"unix:{admin}\"]")), admin)
}

/// `trunkline list | head -1`
#[test]
fn a_reader_that_goes_away_ends_every_verb_quietly() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let own = host.socket().display().to_string();
    for verb in [
        &["sim", "--requests", "100", "--load", "50", "--policy", "random"][..],
        &["completions", "bash"],
        &["daemon", "--print-config"],
        &["doctor"],
        &["--socket", &own, "list"],
        &["--socket", &own, "policy", "list"],
        &["--socket", &own, "shards"],
        &["--socket", &own, "top", "--interval", "100ms"],
        &["--socket", &own, "call", "list"],
        &["--socket", &own, "call", "describe", "search.v1.Search"],
        &["--socket", &own, "call", "Search/Query", "{\"query\": \"ring\"}"],
        &["--socket", &own, "bench", "-n", "1", "-d", "{\"query\": \"ring\"}", "Search/Query"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = trunkline(verb).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), Some(141), "{verb:?}: {ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{verb:?}");
    }
}

/// A terminal that closes is no reason to drop calls and to leave a socket behind.
#[test]
fn a_terminal_that_closes_ends_a_daemon_in_peace() {
    watched();
    let ignored = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0 {
        eprintln!("amiss: NOT SHOWN, because this process is started under nohup, and so is every daemon");
        return;
    }
    let mut host = Host::start("");
    // Held, because `wait` closes it, and a daemon whose standard input is closed ends for that reason.
    let _held = host.child.stdin.take();
    kill_process(Pid::from_child(&host.child), Signal::HUP).unwrap();
    assert_eq!(host.child.wait().unwrap().code(), Some(0), "{}", host.log());
    assert!(!host.socket().exists() && host.log().contains("trunkline upgrade"), "{}", host.log());
}

/// A daemon that is stopped takes connections and says nothing, at either of its sockets.
#[test]
fn a_daemon_that_is_stopped_is_not_waited_for() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let (host, admin) = host_with_operators(folder.path());
    let (own, file) = (host.socket().display().to_string(), folder.path().join("a.rec"));
    let file = file.to_str().unwrap();
    kill_process(Pid::from_child(&host.child), Signal::STOP).unwrap();
    let verbs: [&[&str]; 7] = [
        &["list"],
        &["shards"],
        &["explain"],
        &["policy", "list"],
        &["top", "--once"],
        &["upgrade"],
        &["record", "--for", "1s", "-o", file],
    ];
    let told: Vec<(String, Ended)> = std::thread::scope(|scope| {
        let ways = [["--socket", &own], ["--admin-socket", &admin]];
        let all = ways.iter().flat_map(|way| verbs.map(|verb| [way, verb].concat()));
        let run = |arguments: Vec<&str>| (arguments.join(" "), end(&mut trunkline(&arguments), ""));
        let under_way: Vec<_> = all.map(|arguments| scope.spawn(move || run(arguments))).collect();
        under_way.into_iter().map(|one| one.join().unwrap()).collect()
    });
    kill_process(Pid::from_child(&host.child), Signal::CONT).unwrap();
    for (line, ended) in told {
        assert_eq!(ended.code, Some(1), "{line}: {ended:?}");
        assert!(ended.err.contains("it is stopped, or hangs"), "{line}: {ended:?}");
    }
    assert!(!Path::new(file).exists(), "a recording that never began has left a file");
}

/// Who looks on sees the daemon's successor, by either socket.
#[test]
fn top_follows_a_daemon_that_is_replaced() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let (host, admin) = host_with_operators(folder.path());
    let own = host.socket().display().to_string();
    for way in [["--socket", &own], ["--admin-socket", &admin]] {
        let mut top = trunkline(&[&way[..], &["top", "--json", "--interval", "100ms"]].concat());
        let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pictures = BufReader::new(top.stdout.take().unwrap()).lines();
        let mut picture = || {
            let line = pictures.next().unwrap_or_else(|| panic!("{way:?}: no more pictures")).unwrap();
            assert!(serde_json::from_str::<Value>(&line).unwrap()["methods"].is_array(), "{line}");
        };
        picture();
        for _ in 0..2 {
            let upgraded = host.verb(&["upgrade", "--grace", "200ms"], "");
            assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
            // Of those that the daemon before has sent a few may still be under way.
            (0..12).for_each(|_| picture());
        }
        kill_process(Pid::from_child(&top), Signal::TERM).unwrap();
        top.wait().unwrap();
    }
}

/// A recording that is ended before its time has all that ended until then.
#[test]
fn a_recording_that_is_interrupted_keeps_what_it_has() {
    const CALLS: usize = 30;
    watched();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let file = folder.path().join(format!("{signal:?}.rec"));
        let recording = Recording::begin(&host.socket(), &file, &[]);
        for _ in 0..CALLS {
            client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
        }
        let out = recording.stop_by(signal);
        let kept = out.split_once(": ").and_then(|(_, rest)| rest.split_once(" of ")).unwrap().0;
        // Of the last a daemon hears with the next.
        assert!(kept.parse::<usize>().unwrap() >= CALLS - 1, "{out}");
        let csv = end(&mut trunkline(&["export", "--csv", file.to_str().unwrap()]), "");
        let calls = csv.out.lines().filter(|line| line.contains("/search.v1.Search/Query")).count();
        assert!(calls >= CALLS - 1, "{csv:?}");
    }
}

/// No verb replaces a file unasked, or appends records to something else; all say the same of it.
#[test]
fn files_that_are_there_are_kept() {
    watched();
    let host = Host::start("");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [fleet, notes] = ["fleet.rec", "notes.txt"].map(path);
    let synth = |more: &[&str]| {
        let line = ["synth", "--methods", "20", "--calls", "10", "-o", &fleet];
        end(&mut trunkline(&[&line[..], more].concat()), "")
    };
    assert_eq!(synth(&[]).code, Some(0));
    std::fs::write(&notes, "not records").unwrap();
    let own = host.socket().display().to_string();
    let recorded = |more: &[&str]| {
        let line = ["--socket", &own, "record", "--for", "100ms", "-o"];
        end(&mut trunkline(&[&line[..], more].concat()), "")
    };
    let line =
        ["--socket", &own, "drive", &fleet, "--to", "tcp://127.0.0.1:1", "--server-socket", &own, "-o"];
    let drive = end(&mut trunkline(&[&line[..], &[&notes]].concat()), "");
    for refused in [synth(&[]), recorded(&[&notes]), drive] {
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let wanted = "a file is there already: name another, or say --force to replace it";
        assert!(refused.err.contains(wanted), "{refused:?}");
    }
    let appended = recorded(&[&notes, "--append"]);
    assert!(appended.code == Some(1) && appended.err.contains("is no file of records"), "{appended:?}");
    let page = end(&mut trunkline(&["characterize", &fleet, "-o", &notes]), "");
    assert!(
        page.code == Some(1) && page.err.contains("a file is there, and pages need a folder"),
        "{page:?}"
    );
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "not records");
    assert_eq!(synth(&["--force"]).code, Some(0));
    assert_eq!(recorded(&[&fleet, "--append"]).code, Some(0));
    assert_eq!(recorded(&[&notes, "--force"]).code, Some(0));
}

/// What cannot be reached is named, at once, and nothing is left behind.
#[test]
fn a_drive_and_a_replay_say_where_nobody_is() {
    watched();
    let host = Host::start("");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [fleet, driven] = ["fleet.rec", "driven.rec"].map(path);
    let synth = ["synth", "--methods", "20", "--calls", "10", "-o", &fleet];
    assert_eq!(end(&mut trunkline(&synth), "").code, Some(0));
    let own = host.socket().display().to_string();
    let (nowhere, unheard) = ("/nonexistent/d.sock", "tcp://127.0.0.1:1");
    for (socket, servers, to, code, says) in [
        (nowhere, own.as_str(), unheard, 1, "no daemon at /nonexistent/d.sock"),
        (&own, nowhere, unheard, 1, "--server-socket /nonexistent/d.sock: UNAVAILABLE: no daemon"),
        (
            &own,
            &own,
            unheard,
            1,
            "--to tcp://127.0.0.1:1: a first call to the servers there ended with UNAVAILABLE",
        ),
        (&own, &own, "127.0.0.1:none", 2, "no port from 0 to 65535"),
    ] {
        let line =
            ["--socket", socket, "drive", &fleet, "--server-socket", servers, "--to", to, "-o", &driven];
        let ended = end(&mut trunkline(&line), "");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(says), "{ended:?}");
        assert!(!Path::new(&driven).exists(), "{line:?} has left a file");
    }
    let wrong = end(&mut trunkline(&["replay", &fleet, "--to", "http://10.0.0.7:80"]), "");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

/// What means nothing is refused where it stands, with what to write instead.
#[test]
fn what_means_nothing_is_refused() {
    watched();
    let host = Host::start("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    std::fs::write(&file, "").unwrap();
    let own = host.socket().display().to_string();
    for (line, code, says) in [
        (&["sim", "--load", "0"][..], 2, "0 is not in 1..=1000"),
        (&["daemon", "--drain", "9000h"], 2, "write 8760h at most"),
        (&["daemon", "--admin-socket", &file], 2, "where admin.listen of its configuration says"),
        (&["call", "--admin-socket", &file, "list"], 2, "use --socket"),
        (&["--socket", &own, "whatif", &file], 2, "--socket: this verb reads files, and asks no daemon"),
        (
            &["--admin-socket", &own, "tax", &file],
            2,
            "--admin-socket: this verb reads files, and asks no daemon",
        ),
        (&["record", "-o", &file, "--for", "0s"], 2, "write a time of more than nothing"),
        (&["demo", &file], 1, "name a folder whose text is to be searched"),
        (&["--socket", &file, "list"], 1, "exists and is not a socket"),
        (&["--socket", &own, "top", "--interval", "0s"], 2, "write a time from 100ms to 60s"),
        (&["--socket", &own, "explain", "--last", "0s"], 2, "is no time at all"),
        (&["--socket", &own, "call", "--timeout", "0s", "Health/Check"], 2, "is no time at all"),
        (&["--socket", &own, "call", "Health/Check", "-d", "@/"], 1, "cannot read /: is a directory"),
        (&["--socket", &own, "call", "grpc.health.v1.Health"], 1, "write grpc.health.v1.Health/METHOD"),
        (&["--socket", &own, "bench", "-n", "0", "Health/Check"], 2, "0 is not in 1.."),
        (&["--socket", &own, "bench", "--rate", "1e9", "Health/Check"], 2, "at most 10000000"),
        (&["--socket", &own, "policy", "apply", "/dev/zero"], 1, "the most that policies may have"),
        (&["--socket", &own, "record", "-o", "/"], 1, "/: that is a folder: name a file in it"),
    ] {
        let ended = end(&mut trunkline(line), "");
        assert_eq!(ended.code, Some(code), "{line:?}: {ended:?}");
        assert!(ended.err.contains(says), "{line:?}: {ended:?}");
    }
    let helped = end(&mut trunkline(&["help", "record"]), "");
    assert!(helped.code == Some(0) && helped.out.contains("--append"), "{helped:?}");
}

#[test]
fn a_wrong_bench_is_a_wrong_command_line_and_leaves_no_files() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let [page, report] = ["page.html", "report.txt"].map(|name| folder.path().join(name));
    let files = ["--html", page.to_str().unwrap(), "--out", report.to_str().unwrap()];
    let bench = |more: &[&str]| {
        let nobody = ["--socket", "/nonexistent/d.sock", "bench", "--proto", SEARCH_PROTO];
        end(&mut trunkline(&[&nobody[..], &files, more].concat()), "")
    };
    for wrong in [
        &["--rate", "0", "Search/Query"][..],
        &["--rate", "5", "--rate-end", "nan", "Search/Query"],
        &["nowhere", "Search/Query"],
    ] {
        let refused = bench(wrong);
        assert_eq!(refused.code, Some(2), "{wrong:?}: {refused:?}");
        assert!(refused.err.contains("write "), "{wrong:?}: {refused:?}");
    }
    assert_eq!(bench(&["Search/Query"]).code, Some(1));
    assert!(!page.exists() && !report.exists(), "no run, and a report");
    let refused = end(&mut trunkline(&["call", "-H", "x-bin: !!", "a.v1.B/C", "{}"]), "");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("\"!!\" is no base64"), "{refused:?}");
}
