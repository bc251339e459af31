//! Shows `trunkline policy` against a running daemon: changes are whole or not at all, permitted or not, written down,
//! and unnoticed by calls in flight.

use crate::support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Ended, Host, end, trunkline, until, watched};
use trunkline::{Code, Execution, Wait};
use trunkline_example_search::proto::QueryRequest;
use trunkline_example_search::proto::search_client::SearchClient;

const DENY: &str = r#"
[[policy]]
name = "no-bells"
kind = "access"
side = "server"
service = "search.v1.Search"
method = "Query"
deny = 'request.query.contains("bell")'
message = "bells are out"
"#;

const LIMIT: &str = r#"
[[policy]]
name = "limit"
kind = "rate-limit"
side = "client"
calls_per_second = 1000000.0
key = "peer.identity"
"#;

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn policy(host: &Host, arguments: &[&str]) -> Ended {
    host.verb(&[&["policy"], arguments].concat(), "")
}

fn query(client: &SearchClient, text: &str) -> Result<(), trunkline::Status> {
    client.query(QueryRequest { query: text.into(), ..Default::default() }).wait().map(drop)
}

#[test]
fn a_chain_is_added_to_changed_and_emptied_at_run_time() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let host = Host::start(&format!("[admin]\naudit_log = \"{}\"", audit.display()));
    let (_server, client) = host.serve_search();
    query(&client, "bell").unwrap();
    assert_eq!(policy(&host, &["list"]).out, "no policies\n");

    let deny = file(folder.path(), "deny.toml", DENY);
    let deny = deny.to_str().unwrap();
    let dry = policy(&host, &["apply", deny, "--dry-run"]);
    let told = "added: no-bells\na dry run: nothing has changed; the chain would have 1 policy\n";
    assert_eq!((dry.code, dry.out.as_str()), (Some(0), told), "{dry:?}");
    query(&client, "bell").unwrap();

    assert_eq!(policy(&host, &["apply", deny]).out, "added: no-bells\nthe chain has 1 policy\n");
    let refused = query(&client, "a bell").unwrap_err();
    assert_eq!((refused.code(), refused.execution()), (Code::PermissionDenied, Execution::NotExecuted));
    assert_eq!(refused.message(), "refused by policy \"no-bells\": bells are out");
    query(&client, "ring").unwrap();

    let limit = file(folder.path(), "limit.toml", LIMIT);
    let limit = limit.to_str().unwrap();
    assert_eq!(policy(&host, &["add", limit, "--before", "no-bells"]).code, Some(0));
    let again = policy(&host, &["add", limit]);
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("there is a policy \"limit\" already"), "{}", again.err);
    let list: Value = serde_json::from_str(&policy(&host, &["list", "--json"]).out).unwrap();
    let names: Vec<_> =
        list["policies"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["limit", "no-bells"]);
    assert_eq!((&list["policies"][1]["seen"], &list["policies"][1]["refused"]), (&2.into(), &1.into()));

    // What is listed can be applied again.
    let document = policy(&host, &["list", "--toml"]).out;
    let whole = file(folder.path(), "whole.toml", &document);
    assert_eq!(policy(&host, &["apply", whole.to_str().unwrap()]).out, "the chain has 2 policies\n");
    let rings = file(folder.path(), "rings.toml", &DENY.replace("bell\"", "ring\""));
    assert_eq!(
        policy(&host, &["set", rings.to_str().unwrap()]).out,
        "changed: no-bells\nthe chain has 2 policies\n"
    );
    query(&client, "bell").unwrap();
    assert_eq!(query(&client, "ring").unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(policy(&host, &["remove", "no-bells", "limit"]).code, Some(0));
    query(&client, "ring").unwrap();
    assert_eq!(policy(&host, &["apply", rings.to_str().unwrap()]).code, Some(0));
    for nothing in ["", "# what a program left that failed\n", "policy = []\n"] {
        for (verb, says) in
            [("apply", "nothing has changed; to empty the chain, say --empty"), ("set", ""), ("add", "")]
        {
            let refused = host.verb(&["policy", verb, "-"], nothing);
            assert_eq!((refused.code, &*refused.out), (Some(1), ""), "{verb}: {refused:?}");
            let said = format!("- has no [[policy]] table: {says}");
            assert!(refused.err.contains(&said), "{verb}: {refused:?}");
        }
    }
    assert_eq!(query(&client, "ring").unwrap_err().code(), Code::PermissionDenied);
    let emptied = host.verb(&["policy", "apply", "--empty", "-"], "");
    assert_eq!(emptied.out, "removed: no-bells\nthe chain has 0 policies\n", "{emptied:?}");
    query(&client, "ring").unwrap();

    let lines = std::fs::read_to_string(audit).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |key: &str| lines.iter().map(|line| line[key].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(of("change"), ["apply", "apply", "add", "add", "apply", "set", "remove", "apply", "apply"]);
    assert_eq!(of("outcome")[..3], ["possible", "applied", "applied"]);
    assert!(of("outcome")[3].starts_with("there is a policy"));
    let own = format!("uid:{}", rustix::process::geteuid().as_raw());
    assert!(of("identity").iter().all(|who| *who == own), "{lines:?}");

    // A slip is told, and taken: what it names may come.
    let slip = file(folder.path(), "slip.toml", &DENY.replace("v1.Search", "v1.Serch"));
    let slipped = policy(&host, &["apply", slip.to_str().unwrap(), "--dry-run"]);
    assert_eq!((slipped.code, &*slipped.out, &*dry.err), (Some(0), told, ""));
    let warning = "warning: policy \"no-bells\": no service \"search.v1.Serch\" is served or configured here at \
                   present (did you mean \"search.v1.Search\"?); it holds once there is one\n";
    assert_eq!(slipped.err, warning);
}

#[test]
fn what_is_wrong_is_refused_with_its_place_and_changes_nothing() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(DENY);
    let (_server, client) = host.serve_search();
    for (text, expected) in [
        (
            DENY.replace("request.query", "request.qery"),
            "x.toml:8:8: policy[0].deny: (policy \"no-bells\") 1:9: search.v1.QueryRequest has no field \"qery\" (for \
          /search.v1.Search/Query), as \"searcher\" (uid:",
        ),
        (
            DENY.replace("contains(\"bell\")", "matches(\"(\")"),
            "x.toml:8:8: policy[0].deny: (policy \"no-bells\") 1:23: bad pattern: missing ): (",
        ),
        (
            DENY.replace("deny", "denny"),
            "x.toml:8:1: policy[0].denny: there is no key \"denny\" here; did you mean \"deny\"?",
        ),
        (
            DENY.repeat(2),
            "x.toml:12:8: policy[1].name: (policy \"no-bells\") there are two policies named \"no-bells\"",
        ),
    ] {
        let path = file(folder.path(), "x.toml", &text);
        let refused = policy(&host, &["apply", path.to_str().unwrap()]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.err.contains(expected), "{}\nwanted {expected}", refused.err);
        assert_eq!(
            query(&client, "bell").unwrap_err().code(),
            Code::PermissionDenied,
            "the chain is as it was"
        );
    }
    let missing = policy(&host, &["remove", "other"]);
    assert!(missing.err.contains("there is no policy \"other\"; there are: no-bells"), "{}", missing.err);
}

#[test]
fn only_who_may_changes_and_only_who_may_looks() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let deny = file(folder.path(), "deny.toml", DENY);
    let host = Host::start("[admin]\nchange = [\"uid:4294967294\"]");
    let refused = policy(&host, &["apply", deny.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("admin.change in the daemon's configuration says who may"),
        "{}",
        refused.err
    );
    assert_eq!(policy(&host, &["list"]).out, "no policies\n");

    let host = Host::start("[admin]\nread = []");
    let refused = policy(&host, &["list"]);
    assert!(refused.err.contains("admin.read in the daemon's configuration"), "{}", refused.err);
}

#[test]
fn twenty_changes_under_load_fail_no_call() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start("");
    let (_server, client) = host.serve_search();
    let chains = [
        file(folder.path(), "a.toml", DENY),
        file(folder.path(), "b.toml", &(LIMIT.to_owned() + DENY)),
        file(folder.path(), "c.toml", LIMIT),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut calls = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    query(&client, "ring").unwrap();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for round in 0..20 {
        let changed = policy(&host, &["apply", chains[round % 3].to_str().unwrap()]);
        assert_eq!(changed.code, Some(0), "{changed:?}");
    }
    stop.store(true, Ordering::Relaxed);
    let calls: u64 = callers.into_iter().map(|caller| caller.join().expect("no call failed")).sum();
    assert!(calls > 20, "{calls}");
}

/// A daemon with [`DENY`] in its configuration that keeps changes in `kept.toml` of its folder.
fn keeping(more: &str) -> (Host, PathBuf) {
    let folder = tempfile::tempdir().unwrap().keep();
    let kept = folder.join("kept.toml");
    let file = kept.display().to_string();
    (Host::start(&format!("[admin]\npolicies_file = {file:?}\n{more}\n{DENY}")), kept)
}

/// `policy list`: the names in it, and its last line.
fn listed(host: &Host) -> (Vec<String>, String) {
    let list = policy(host, &["list"]).out;
    let last = list.lines().last().unwrap().to_owned();
    let rows: Value = serde_json::from_str(&policy(host, &["list", "--json"]).out).unwrap();
    let names = rows["policies"].as_array().unwrap().iter();
    (names.map(|row| row["name"].as_str().unwrap().to_owned()).collect(), last)
}

/// A daemon with the configuration of this one, at another socket.
fn second_daemon_is_refused(host: &Host, kept: &str) {
    let (socket, file) = (host.folder().join("second.sock"), host.folder().join("d.toml"));
    let mut second = trunkline(&["daemon", "--until-stdin-closes", "--socket", socket.to_str().unwrap()]);
    let refused = end(second.arg("--config").arg(file), "");
    let owner = host.child.id();
    let says =
        format!("{kept} (admin.policies_file) is the file of another daemon, process {owner}; write a file");
    assert!(refused.code == Some(1) && refused.err.contains(&says), "{refused:?}");
}

#[test]
fn a_chain_that_is_kept_outlives_a_daemon_that_is_killed() {
    watched();
    let (mut host, kept) = keeping("");
    let path = kept.display().to_string();
    let limit = file(kept.parent().unwrap(), "limit.toml", LIMIT);
    assert_eq!(listed(&host).1, format!("as the configuration says; changes will be kept in {path}"));
    host.kill_and_start();
    assert!(!kept.exists(), "nothing has changed, so there is nothing to keep");

    assert_eq!(policy(&host, &["add", limit.to_str().unwrap()]).code, Some(0));
    second_daemon_is_refused(&host, &path);
    host.kill_and_start();
    let both = ["no-bells", "limit"].map(str::to_owned).to_vec();
    assert_eq!(listed(&host), (both, format!("kept in {path}")));
    {
        let (_server, client) = host.serve_search();
        assert_eq!(query(&client, "a bell").unwrap_err().code(), Code::PermissionDenied);
        query(&client, "ring").unwrap();
    }

    assert_eq!(policy(&host, &["remove", "no-bells"]).code, Some(0));
    host.kill_and_start();
    let aside =
        format!("kept in {path}, which counts before the configuration: not in force from there: no-bells");
    assert_eq!(listed(&host), (vec!["limit".to_owned()], aside));
    std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
    // Its folder is gone: a change that cannot be kept is not made.
    let refused = policy(&host, &["remove", "limit"]);
    assert!(refused.err.contains(&format!("cannot write {path} (admin.policies_file)")), "{}", refused.err);
    assert_eq!(listed(&host).0, ["limit"]);
}

#[test]
fn a_chain_that_is_kept_is_the_one_a_daemon_hands_over() {
    watched();
    let audit = tempfile::NamedTempFile::new().unwrap();
    let (mut host, kept) = keeping(&format!("audit_log = {:?}", audit.path().display().to_string()));
    host.expect("not handed over; this daemon goes on", "the next daemon finds another chain in the file");
    let path = kept.display().to_string();
    assert_eq!(policy(&host, &["remove", "no-bells"]).code, Some(0));
    // What somebody else puts there while the daemon runs is neither taken up unseen nor overwritten.
    let own = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, LIMIT).unwrap();
    let refused = host.verb(&["upgrade"], "");
    assert!(refused.err.contains(&format!("{path} (admin.policies_file) has another chain")), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), LIMIT);

    std::fs::write(&kept, own).unwrap();
    let upgraded = host.verb(&["upgrade"], "");
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    assert!(
        listed(&host).1.starts_with(&format!("kept in {path}, which counts before")),
        "{:?}",
        listed(&host)
    );
    let outcomes = std::fs::read_to_string(audit.path()).unwrap();
    let outcomes: Vec<String> = outcomes
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["outcome"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((outcomes.len(), &*outcomes[1], &*outcomes[3]), (5, "begun", "begun"), "{outcomes:?}");
    assert!(
        outcomes[2].starts_with("not handed over: ") && outcomes[2].contains("another chain"),
        "{outcomes:?}"
    );
    assert!(outcomes[4].starts_with("handed over to process "), "{outcomes:?}");
    let limit = file(kept.parent().unwrap(), "limit.toml", LIMIT);
    assert_eq!(policy(&host, &["add", limit.to_str().unwrap()]).code, Some(0));
    assert!(std::fs::read_to_string(&kept).unwrap().contains("name = \"limit\""));
    std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
}

#[test]
fn a_chain_that_was_kept_and_is_damaged_keeps_a_daemon_from_starting() {
    watched();
    let (mut host, kept) = keeping("");
    assert_eq!(policy(&host, &["remove", "no-bells"]).code, Some(0));
    let limit = file(kept.parent().unwrap(), "limit.toml", LIMIT);
    assert_eq!(policy(&host, &["add", limit.to_str().unwrap()]).code, Some(0));
    host.child.kill().unwrap();
    host.child.wait().unwrap();
    let whole = std::fs::read_to_string(&kept).unwrap();
    for (text, expected) in [
        (whole[..whole.len() - 20].to_owned(), "was cut short, damaged or edited"),
        (LIMIT.replace("rate-limit", "rate"), "kept.toml:4:8: policy[0].kind: unknown variant"),
    ] {
        std::fs::write(&kept, text).unwrap();
        for more in [&[][..], &["--check-config"]] {
            let config = host.folder().join("d.toml");
            let mut daemon = trunkline(&["daemon", "--config", config.to_str().unwrap()]);
            let refused = end(daemon.arg("--socket").arg(host.socket()).args(more), "");
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.err.contains(expected), "{}\nwanted {expected}", refused.err);
            assert!(
                refused.err.contains("or remove it to begin with the [[policy]] tables"),
                "{}",
                refused.err
            );
        }
    }
    std::fs::remove_file(&kept).unwrap();
    host.kill_and_start();
    assert_eq!(listed(&host).0, ["no-bells"]);
    std::fs::remove_dir_all(kept.parent().unwrap()).unwrap();
}

#[test]
fn what_a_mirror_sends_is_shown_and_noticed_by_nobody() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let shadow = Host::start("[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]");
    let (_shadow_server, _) = shadow.serve_search();
    let listed: Value = serde_json::from_str(&shadow.verb(&["list", "--json"], "").out).unwrap();
    let target = listed["listening"][0].as_str().unwrap();
    let mirror = format!(
        "[[policy]]\nname = \"shadow\"\nkind = \"mirror\"\nside = \"client\"\nservice = \"search.v1.Search\"\n\
         target = {target:?}\n"
    );
    let host = Host::start(&mirror);
    let (_server, client) = host.serve_search();
    for _ in 0..5 {
        query(&client, "bell").unwrap();
    }
    let wanted = format!("shadow: copies to {target}: 5 sent, 0 of them failed; 0 left out\n");
    until(&wanted, || {
        let list = policy(&host, &["list"]).out;
        if list.ends_with(&wanted) { Ok(()) } else { Err(list) }
    });
    let top = || shadow.verb(&["explain"], "").out;
    while !top().contains("5 calls") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Nobody there any more: callers do not notice, operators do.
    drop(shadow);
    for _ in 0..5 {
        query(&client, "bell").unwrap();
    }
    until("10 sent, 5 of them failed; 0 left out", || {
        let list = policy(&host, &["list"]).out;
        if list.contains("10 sent, 5 of them failed; 0 left out") { Ok(()) } else { Err(list) }
    });
    let wrong = file(folder.path(), "wrong.toml", &mirror.replace("side = \"client\"", "side = \"server\""));
    let refused = policy(&host, &["apply", wrong.to_str().unwrap()]);
    assert!(refused.err.contains("wrong.toml:4:8: policy[0].side"), "{}", refused.err);
}
