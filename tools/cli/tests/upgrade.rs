//! Shows `trunkline upgrade`: a daemon is replaced again and again under load, and it is said of every attempt whether
//! it took place; and why not, in the words of the daemon that did not take over.

mod support;

use serde_json::Value;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::{Host, Recording, end, trunkline, watched};
use trunkline::Wait;
use trunkline_example_search::proto::search_client::SearchClient;
use trunkline_example_search::proto::{Ask, QueryRequest, ask};

/// The admin API, generated for the binary.
#[allow(dead_code, reason = "the tests are clients of one service of it")]
mod admin {
    trunkline::include_proto!("trunkline.admin.v1");
}

/// gRPC's health service.
#[allow(dead_code, reason = "the tests are clients of one method of it")]
mod health {
    trunkline::include_proto!("grpc.health.v1");
}

/// Environment variable: how often the daemon is replaced. Hundreds are asked for; a few are what every run can afford.
const ROUNDS_VARIABLE: &str = "UPGRADE_ROUNDS";
const ROUNDS: usize = 6;

/// The line that the daemon which goes on has in its log.
const GOES_ON: &str = "not handed over; this daemon goes on";

fn process(host: &Host) -> u64 {
    json(host, &["list", "--json"])["processId"].as_u64().unwrap()
}

/// What a verb says as JSON.
fn json(host: &Host, arguments: &[&str]) -> Value {
    let told = host.verb(arguments, "");
    serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"))
}

fn query(client: &SearchClient) {
    client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
}

#[test]
fn every_replacement_under_load_is_known_to_have_taken_place() {
    watched();
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    query(&client);
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut before = process(&host);
    for round in 0..rounds {
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
        let after = process(&host);
        assert_ne!(before, after, "round {round}: {upgraded:?}");
        assert!(upgraded.out.contains(&format!("process {after}, goes on")), "round {round}: {upgraded:?}");
        before = after;
    }
    stop.store(true, Ordering::Relaxed);
    let calls: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    println!("{rounds} replacements under {calls} calls");
    // Each daemon went on counting where the one before it stopped.
    let counted = || {
        let told = json(&host, &["explain", "--json", "Search/Query"]);
        told[0]["calls"].as_u64().unwrap_or_else(|| panic!("{told}"))
    };
    let until = std::time::Instant::now() + support::WATCHDOG;
    // The library says how the last calls went when it has something else to say.
    while counted() < calls as u64 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(counted(), calls as u64, "no call is missing, and none counts twice");
}

/// Whoever was called by whom under one daemon is written down by that one, up to its last moment.
#[test]
fn no_line_of_the_access_log_is_missing() {
    const CALLERS: usize = 8;
    // A daemon leaves lines out when some thousands wait.
    const UNWRITTEN_MAX: usize = 2000;
    watched();
    let host = Host::start("[[policy]]\nname = \"all\"\nside = \"client\"\nkind = \"access-log\"\n");
    let (_server, client) = host.serve_search();
    let (made, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            let (made, written) = (Arc::clone(&made), Arc::clone(&written));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if made.load(Ordering::Relaxed) < written.load(Ordering::Relaxed) + UNWRITTEN_MAX {
                        made.fetch_add(1, Ordering::Relaxed);
                        query(&client);
                    } else {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    let look = || {
        let lines = host.log().matches("Search/Query").count();
        written.store(lines, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(20));
        lines
    };
    for _ in 0..4 {
        let mut upgrade = trunkline(&["--socket", host.socket().to_str().unwrap(), "upgrade"]);
        let mut upgrade = upgrade.stdout(Stdio::null()).spawn().unwrap();
        while upgrade.try_wait().unwrap().is_none() {
            look();
        }
        assert!(upgrade.wait().unwrap().success(), "{}", host.log());
    }
    stop.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    let made = made.load(Ordering::Relaxed);
    let until = std::time::Instant::now() + support::WATCHDOG;
    while look() < made && std::time::Instant::now() < until {}
    assert_eq!(look(), made, "each call has a line");
}

/// A daemon that a client of gRPC has a call at which does not end, asked to hand over within ten minutes: it waits.
/// The hosts, the call, and who asked.
fn waiting_for_a_call(folder: &std::path::Path) -> ([Host; 2], impl Sized, std::process::Child) {
    let peers = format!("unix:{}", folder.join("peers.sock").display());
    let host = Host::start(&format!("[daemon]\nlisten = [{peers:?}]\n"));
    let far = Host::start("[grpc]\nalways = true\n");
    let (server, _) = host.serve_search();
    let channel = far.channel().target(&peers).connect_lazy();
    let mut call = SearchClient::new(channel).session();
    call.send(Ask { kind: Some(ask::Kind::Query("ring".into())) }).wait().unwrap();
    assert!(call.recv().wait().unwrap().is_some());
    let mut upgrade = trunkline(&["--socket", host.socket().to_str().unwrap(), "upgrade", "--grace", "10m"]);
    let upgrade = upgrade.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(&host, "it has the schemas");
    ([host, far], (server, call), upgrade)
}

fn until(host: &Host, line: &str) {
    while !host.log().contains(line) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn an_order_to_end_is_heard_while_calls_are_waited_for() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let ([host, _far], _call, mut upgrade) = waiting_for_a_call(folder.path());
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&host.child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    until(&host, "daemon ends");
    // Who asked may not have heard of it before the daemon was gone, and waits for one that answers.
    upgrade.kill().unwrap();
    upgrade.wait().unwrap();
    assert!(host.log().contains("hand-over called off: this daemon is to end"), "{}", host.log());
}

#[test]
fn a_successor_that_dies_while_calls_are_waited_for_is_missed_at_once() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let ([mut host, _far], _call, upgrade) = waiting_for_a_call(folder.path());
    host.expect(GOES_ON, "the successor is killed");
    let log = host.log();
    let (_, process) = log.split_once(", process ").unwrap_or_else(|| panic!("{log}"));
    let process = process.split(|other: char| !other.is_ascii_digit()).next().unwrap().parse().unwrap();
    let process = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let asked = upgrade.wait_with_output().unwrap();
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    assert!(String::from_utf8_lossy(&asked.stderr).contains("ended before it took over"), "{asked:?}");
    assert_eq!(host.verb(&["list"], "").code, Some(0), "and this one serves on");
}

/// Whoever cleans up a folder may take the socket's name away; the daemon still has the socket, and so has the next.
#[test]
fn a_daemon_whose_sockets_name_is_gone_is_replaced_and_ends() {
    watched();
    let host = Host::start("");
    let aside = host.folder().join("aside.sock");
    std::fs::rename(host.socket(), &aside).unwrap();
    let verb = |arguments: &[&str]| {
        let ended = end(trunkline(&["--socket", aside.to_str().unwrap()]).args(arguments), "");
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended.out
    };
    let process = || serde_json::from_str::<Value>(&verb(&["list", "--json"])).unwrap()["processId"].clone();
    let before = process();
    for _ in 0..2 {
        verb(&["upgrade"]);
    }
    let after = process();
    assert_ne!(before, after);
    let after = after.as_u64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(after).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while !host.log().contains("daemon ends") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// `--last` looks back over a replacement, and who records misses no call.
#[test]
fn records_and_minutes_go_on() {
    const CALLS: usize = 300;
    watched();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let call = || query(&client);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.rec");
    let recording = Recording::begin(&host.socket(), &file, &[]);
    for _ in 0..2 {
        (0..CALLS).for_each(|_| call());
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    }
    let said = recording.stop();
    assert!(!said.contains("overwritten"), "{said}");
    let csv = end(&mut trunkline(&["export", "--csv", file.to_str().unwrap()]), "");
    let recorded =
        csv.out.lines().filter(|line| line.contains(",made,") && line.contains("Search/Query")).count();
    // The last answer's end is told with the next call.
    assert!((2 * CALLS - 1..=2 * CALLS).contains(&recorded), "{recorded} of {}", 2 * CALLS);

    let past = json(&host, &["explain", "--json", "Search/Query", "--last", "5m"]);
    let sides = past["now"]["sides"].as_array().unwrap();
    let made = sides.iter().find(|side| side["side"] == "made here").unwrap_or_else(|| panic!("{past}"));
    assert!(made["calls"].as_u64() >= Some(2 * CALLS as u64 - 1), "{past}");
    // How sure a mean is is told as before: what minutes keep of it came along, too.
    let of_handler = made["components"].as_array().unwrap();
    let of_handler = of_handler.iter().find(|one| one["name"] == "server_application").unwrap();
    let [low, high] = [0, 1].map(|end| of_handler["interval_ns"][end].as_f64().unwrap());
    assert!(low < high, "{of_handler}");
}

/// A daemon of an earlier version knows no records. It is sent none, and counts; who takes its place goes on with that.
#[test]
fn a_daemon_that_knows_no_records_is_sent_none() {
    const CALLS: u64 = 100;
    watched();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let call = || query(&client);
    let told = |more: &[&str]| {
        let told = json(&host, &[&["explain", "--json", "Search/Query"], more].concat());
        let calls = if more.is_empty() { &told[0]["calls"] } else { &told["now"]["sides"][0]["calls"] };
        calls.as_u64().unwrap_or(0)
    };
    for (round, debug) in ["earlier_hand_over = true", ""].into_iter().enumerate() {
        std::fs::write(host.folder().join("d.toml"), format!("[debug]\n{debug}\n")).unwrap();
        (0..CALLS).for_each(|_| call());
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
        call();
        // The library says how the last call went when it has something else to say.
        let made = (round as u64 + 1) * (CALLS + 1);
        let counted = told(&[]);
        assert!((made - 1..=made).contains(&counted), "round {round}: {counted} of {made}");
        // Its minutes begin anew; who takes its place goes on with those.
        let (past, since) = (told(&["--last", "5m"]), CALLS * round as u64);
        assert!((since..=since + 2).contains(&past), "round {round}: {past} in the last minutes");
    }
}

/// A manager that saw its main process end, and had not heard of another, would end the service.
#[test]
fn the_service_manager_hears_of_the_next_process_before_the_old_one_ends() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let heard = || {
        let mut buffer = [0; 256];
        let bytes = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..bytes].to_vec()).unwrap()
    };
    let mut host = Host::start_notifying(&path);
    let first = host.child.id();
    assert_eq!(heard(), format!("READY=1\nMAINPID={first}\n"));
    let upgraded = host.verb(&["upgrade"], "");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    // The first process says so itself, as its last word; when the second says so is its own affair.
    let stdin = host.child.stdin.take();
    assert_eq!(host.child.wait().unwrap().code(), Some(0));
    host.child.stdin = stdin;
    let second = process(&host);
    let mut said = [heard(), heard()];
    said.sort();
    assert_eq!(said, [format!("MAINPID={second}\n"), format!("READY=1\nMAINPID={second}\n")]);
}

/// Asks whether the host is well until told to stop. How often it was.
fn probe(prober: &health::health_client::HealthClient, stop: &AtomicBool) -> usize {
    let mut heard = 0;
    while !stop.load(Ordering::Relaxed) {
        let probe = prober.check(health::HealthCheckRequest::default()).wait();
        assert!(probe.is_ok(), "after {heard} answers: {probe:?}");
        heard += 1;
    }
    heard
}

/// Runs a verb that looks until told to stop. How often it was answered.
fn look(host: &Host, way: [&str; 2], stop: &AtomicBool) -> usize {
    let mut heard = 0;
    while !stop.load(Ordering::Relaxed) {
        let listed = support::end(support::trunkline(&way).arg("list"), "");
        assert_eq!(listed.code, Some(0), "after {heard} answers: {listed:?}\n{}", host.log());
        heard += 1;
    }
    heard
}

/// `trunkline call` and `trunkline bench` attach by themselves, and follow as the library does: an open stream goes on,
/// words of the next daemons are read where they lie, and a run is measured to its end.
#[test]
fn calls_and_benches_of_the_command_line_go_on() {
    watched();
    let host = Host::start("");
    let (_server, _client) = host.serve_search();
    let socket = host.socket().display().to_string();
    let begin = |arguments: &[&str]| {
        let mut command = trunkline(&["--socket", &socket]);
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    // Of no call yet is told as a failure.
    let made = |method: &str| {
        let told = host.verb(&["explain", "--json", method], "");
        let told: Option<Value> = serde_json::from_str(&told.out).ok();
        told.and_then(|told| told[0]["calls"].as_u64()).unwrap_or(0)
    };
    let until_more = |method: &str, than: u64| {
        while made(method) <= than {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let mut stream = begin(&["call", "--proto", support::SEARCH_PROTO, "Search/Session"]);
    let (mut asks, answers) = (stream.stdin.take().unwrap(), stream.stdout.take().unwrap());
    let mut answers = std::io::BufReader::new(answers).lines();
    let mut ask = |text: &str| {
        asks.write_all(text.as_bytes()).unwrap();
        answers.next().unwrap().unwrap()
    };
    assert!(ask("{\"query\": \"ring\"}\n").contains("\"page\""));
    // Every call fails, so that its words are read from the receive heap.
    let bench = ["bench", "Search/Query", "--proto", support::SEARCH_PROTO, "--duration", "10m", "-d"];
    let mut run = begin(&[&bench[..], &[r#"{"query": ""}"#]].concat());
    for round in 0..3 {
        until_more("Search/Query", made("Search/Query"));
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
        let answer = ask("{\"query\": \"bell\"}\n");
        assert!(answer.contains("\"page\""), "round {round}: {answer}");
    }
    until_more("Search/Query", made("Search/Query"));
    drop(asks);
    let stream = stream.wait_with_output().unwrap();
    assert_eq!(stream.status.code(), Some(0), "{stream:?}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT)
        .unwrap();
    let mut report = String::new();
    run.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    let ended = run.wait_with_output().unwrap();
    assert!(ended.status.code() == Some(1) && ended.stderr.is_empty(), "{ended:?}");
    assert!(report.contains("no word") && !report.contains("UNAVAILABLE"), "{report}");
    // Nobody takes the place of a daemon that is killed: what was measured until then is shown all the same.
    let cut =
        begin(&["bench", "Search/Query", "--proto", support::SEARCH_PROTO, "-d", r#"{"query": "ring"}"#]);
    until_more("Search/Query", made("Search/Query"));
    let serving = i32::try_from(process(&host)).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(serving, rustix::process::Signal::KILL).unwrap();
    let cut = cut.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&cut.stdout), String::from_utf8_lossy(&cut.stderr));
    assert_eq!(cut.status.code(), Some(1), "{err}");
    assert!(out.contains(" OK") && err.contains("the daemon ended the session"), "{out}\n{err}");
}

/// Probes and operators ask all the time, on every way there is, and a replacement is no reason to think that the host
/// is ill: with time for gRPC connections to end, and without.
#[test]
fn the_daemons_own_services_answer_through_every_replacement() {
    watched();
    let rounds = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let (peers, operators) = (at("peers.sock"), at("operators.sock"));
    let config = format!("[daemon]\nlisten = [{peers:?}]\nshards = 2\n[admin]\nlisten = [{operators:?}]\n");
    let host = Host::start(&config);
    // Two other hosts: one calls as every client of gRPC does, the other as a daemon.
    let others = ["[grpc]\nalways = true\n", ""].map(Host::start);
    let stop = AtomicBool::new(false);
    let channel = host.channel().wait_for_ready(false).connect_lazy();
    let operator = admin::admin_client::AdminClient::new(channel.clone());
    let prober = health::health_client::HealthClient::new(channel);
    let remote = others.each_ref().map(|other| {
        let channel = other.channel().wait_for_ready(false).target(&peers).connect_lazy();
        health::health_client::HealthClient::new(channel)
    });
    std::thread::scope(|scope| {
        let far = remote.each_ref().map(|prober| scope.spawn(|| probe(prober, &stop)));
        let socket = host.socket().display().to_string();
        let operators = operators.trim_start_matches("unix:").to_owned();
        let (host, stop) = (&host, &stop);
        let looks = [("--socket", socket), ("--admin-socket", operators)]
            .map(|(option, path)| scope.spawn(move || look(host, [option, &path], stop)));
        let lists = scope.spawn(|| {
            let mut heard = 0;
            while !stop.load(Ordering::Relaxed) {
                let list = operator.list(admin::ListRequest::default()).wait();
                assert!(list.is_ok(), "after {heard} answers: {list:?}");
                heard += 1;
            }
            heard
        });
        let probes = scope.spawn(|| probe(&prober, stop));
        for round in 0..rounds {
            let verb: &[&str] = if round % 2 == 0 { &["upgrade"] } else { &["upgrade", "--grace", "0s"] };
            let upgraded = host.verb(verb, "");
            assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
        }
        stop.store(true, Ordering::Relaxed);
        let (lists, probes) = (lists.join().unwrap(), probes.join().unwrap());
        let far = far.map(|probes| probes.join().unwrap());
        let looks = looks.map(|looks| looks.join().unwrap());
        println!(
            "{rounds} replacements, {lists} lists, {probes} health checks; from other hosts, over gRPC and natively \
             {far:?}; `trunkline list` at both sockets {looks:?}"
        );
    });
}

#[test]
fn why_a_daemon_did_not_take_over_is_said_to_who_asked() {
    watched();
    let mut host = Host::start("[daemon]\nnode = \"alpha\"");
    host.expect(GOES_ON, "the next daemon cannot take over");
    let before = process(&host);
    let file = host.folder().join("d.toml");
    for (text, wanted) in [
        (
            "[daemon]\nlisen = []",
            "d.toml:2:1: daemon.lisen: there is no key \"lisen\" here; did you mean \"listen\"?",
        ),
        ("[tls]\nca = \"/nonexistent/ca.pem\"", "d.toml:2:6: tls.ca: /nonexistent/ca.pem: cannot be read"),
        ("[log]\nlevel = \"chatty\"", "d.toml:2:9: log.level: has \"chatty\", which is no level"),
        (
            "[daemon]\nlisten = [\"tcp://192.0.2.1:7\"]",
            "d.toml:2:11: daemon.listen[0]: is 192.0.2.1:7, where",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = host.verb(&["upgrade"], "");
        assert_eq!(refused.code, Some(1), "{text}: {refused:?}");
        assert!(refused.err.contains(wanted), "{text}: {refused:?}");
        assert!(
            refused.err.contains(&format!("the daemon goes on, process {before}")),
            "{text}: {refused:?}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    let refused = host.verb(&["upgrade"], "");
    assert!(refused.err.contains("cannot read") && refused.err.contains("d.toml"), "{refused:?}");
    // Programs that are no daemon.
    for (program, wanted) in [("/bin/true", "exit status: 0"), ("/bin/false", "exit status: 1")] {
        let refused = host.verb(&["upgrade", "--binary", program], "");
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(&format!("ended before it took over ({wanted})")), "{refused:?}");
    }
    // The very program, in a file that others could write.
    let copy = host.folder().join("copy");
    std::fs::copy(env!("CARGO_BIN_EXE_trunkline"), &copy).unwrap();
    let mut cases = vec![(0o777, None, "may be written by others (mode 777)")];
    if rustix::process::geteuid().is_root() {
        cases.push((0o755, Some(12_345), "belongs to user 12345"));
    }
    for (mode, owner, wanted) in cases {
        std::os::unix::fs::chown(&copy, owner, None).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode)).unwrap();
        let refused = host.verb(&["upgrade", "--binary", copy.to_str().unwrap()], "");
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(wanted), "{refused:?}");
    }
    assert_eq!(process(&host), before);
    std::fs::write(&file, "").unwrap();
    let upgraded = host.verb(&["upgrade"], "");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let after = process(&host);
    assert_ne!(after, before);
    let name = std::fs::read_to_string(format!("/proc/{after}/comm")).unwrap();
    assert_eq!(name.trim(), "trunkline", "what process lists show");
}

/// A port that somebody else has is found out while the old daemon serves, before it stops for anybody.
#[test]
fn addresses_that_are_new_are_bound_while_the_old_daemon_serves() {
    watched();
    let mut host = Host::start("[daemon]\nnode = \"alpha\"");
    host.expect(GOES_ON, "the next daemon cannot take over");
    let before = process(&host);
    let (file, socket) = (host.folder().join("d.toml"), host.folder().join("new.sock"));
    let (tcp, udp) = (
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let (port, datagrams) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
    let unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let path = format!("unix://{}", socket.display());
    for (text, key, address) in [
        (format!("[daemon]\nlisten = [\"tcp://{port}\"]"), "daemon.listen[0]", format!("tcp://{port}")),
        (format!("[gateway]\nlisten = [\"{path}\"]"), "gateway.listen[0]", path.clone()),
        (format!("[metrics]\nlisten = [\"tcp://{port}\"]"), "metrics.listen[0]", format!("tcp://{port}")),
        (format!("[r2p2]\nlisten = \"{datagrams}\""), "r2p2.listen", datagrams.to_string()),
    ] {
        std::fs::write(&file, &text).unwrap();
        let refused = host.verb(&["upgrade"], "");
        assert_eq!(refused.code, Some(1), "{text}: {refused:?}");
        let wanted =
            format!("{key}: is {address}, where another program listens already; end that program (`ss -l");
        assert!(
            refused.err.contains("d.toml:2:") && refused.err.contains(&wanted),
            "{refused:?}\nwanted {wanted}"
        );
        assert!(!refused.out.contains("can take over"), "it never said that it can: {refused:?}");
        assert_eq!(process(&host), before);
    }
    drop((unix, udp));
    let text = format!(
        "[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n[gateway]\nlisten = [\"{path}\"]\nsocket_mode = \"0600\"\n\
         [r2p2]\nlisten = \"{datagrams}\""
    );
    std::fs::write(&file, text).unwrap();
    // The second time all of them are the old daemon's.
    for round in 0..2 {
        let upgraded = host.verb(&["upgrade"], "");
        assert_eq!(upgraded.code, Some(0), "round {round}: {upgraded:?}");
        std::os::unix::net::UnixStream::connect(&socket).expect("the new daemon listens");
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        std::net::UdpSocket::bind(datagrams).expect_err("the new daemon's");
        // Its own services attach where the test's folder is.
        while host.log().matches("daemon is ready").count() < round + 2 {
            std::thread::yield_now();
        }
    }
}

/// A host that is busy with something else may have the daemon answer late: that is no reason not to begin.
#[test]
fn a_daemon_that_answers_late_is_replaced() {
    watched();
    let host = Host::start("");
    let before = process(&host);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&host.child),
        rustix::process::Signal::STOP,
    )
    .unwrap();
    let mut upgrade = trunkline(&["--socket", host.socket().to_str().unwrap(), "upgrade"]);
    let upgrade = upgrade.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&host.child),
        rustix::process::Signal::CONT,
    )
    .unwrap();
    let upgraded = upgrade.wait_with_output().unwrap();
    assert!(upgraded.status.success(), "{upgraded:?}");
    assert_ne!(process(&host), before);
}

#[test]
fn nothing_is_begun_where_nobody_answers() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("d.sock");
    let mut command = support::trunkline(&["--socket", nobody.to_str().unwrap(), "upgrade"]);
    let refused = support::end(&mut command, "");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("nothing was begun"), "{refused:?}");
}
