//! Shows policy modules upgraded with their state under constant load, on both hosts of every call, alone and while
//! chains change and daemons are replaced: no call fails or is executed twice, no stream breaks, and no count is lost
//! on the way from one instance to the next.

use crate::once::{Load, are_true_of_the_logs, finish};
use crate::scene::Scene;
use crate::support::{Host, client, echo, until, until_served};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use trunkline::{Code, Request, Wait};
use trunkline_daemon::{Config, Daemon};
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;
use trunkline_test_modules as built;

const UPGRADES: usize = 20;
/// Environment variable: changes of the chain and upgrades of its modules, on each host, in a run that replaces each
/// daemon at every second one. Twenty are asked for; four are what every run can afford.
const CHANGES_VARIABLE: &str = "UPGRADE_CHANGES";
const CHANGES: usize = 4;

/// Modules on the side of the caller: a token bucket nobody empties, changing from version 1 to 2 in the middle.
fn near_chain(folder: &Path, round: usize) -> String {
    let version = if round < UPGRADES / 2 { built::TOKEN_BUCKET_1 } else { built::TOKEN_BUCKET_2 };
    let path = built::rust(folder, version);
    let config = format!("config = {{ calls_per_second = 1000000, burst = {} }}", 1_000_000 + round);
    policy("bucket", "client", "", &path, &config)
}

/// On the side of the server: one that counts every call of the service, and one that counts those it refuses.
fn far_chain(folder: &Path, round: usize) -> String {
    let counts = format!("config = {{ round = {round} }}");
    let checks = format!(
        "config = {{ field = \"request.text\", allowed = [\"{round}\"] }}\nwhen = 'request.text == \"no\"'"
    );
    let counting = policy("counting", "server", "", &built::rust(folder, built::FAULTY), &counts);
    counting + &policy("checking", "server", "method = \"Echo\"", &folder.join("libfield_check.so"), &checks)
}

fn policy(name: &str, side: &str, method: &str, path: &Path, more: &str) -> String {
    let path = path.display().to_string();
    format!(
        "[[policy]]\nname = \"{name}\"\nkind = \"module\"\nside = \"{side}\"\nservice = \"probe.v1.Probe\"\n{method}\n\
         path = {path:?}\n{more}\n\n"
    )
}

fn apply(host: &mut Host, file: &PathBuf, chain: &str, upgraded: usize) {
    std::fs::write(file, chain).unwrap();
    let said = host.daemon().ask(&format!("policies {}", file.display()));
    assert_eq!(said, format!("applied, {upgraded} upgraded"), "{said}");
}

#[test]
fn what_a_module_adds_reaches_the_handler_and_its_faults_end_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = built::rust(folder.path(), built::FAULTY);
    let file = folder.path().join("chain.toml");
    let mut host = Host::alone();
    let _server = host.server("server");
    let client = client(&host, "");
    until_served(&client);
    for side in ["client", "server"] {
        let adds = policy("adds", side, "", &path, "config = { does = \"add-metadata\" }");
        apply(&mut host, &file, &adds, 0);
        let forged = Request::new(Text { text: "x".into() }).with_metadata("answer", "forged").unwrap();
        let reply = client.echo(forged).wait().unwrap();
        assert_eq!(reply.headers().text("answer"), Some("from a module"), "the handler says it back");
        apply(&mut host, &file, "", 0);
    }
    host.expect("failed in finish: panicked at", "the module is told to panic when a call has ended");
    // It breaks when the call has ended: that call is well, and the next passes it by.
    let breaks = "on_fault = \"pass\"\nconfig = { does = \"panic-finish\" }";
    apply(&mut host, &file, &policy("breaks", "server", "", &path, breaks), 0);
    (0..3).for_each(|_| assert_eq!(echo(&client, "x").unwrap(), "x"));
    host.until_idle();
}

/// What sessions have bound is held against the rules of the daemon that takes over.
#[test]
fn a_bind_that_the_next_daemons_rules_forbid_ends_its_session() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let client = client(&host, "");
    until_served(&client);
    let file = host.folder().join("daemon.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n[[call]]\nservice = \"probe.v1.*\"\nwho = []\n")).unwrap();
    host.daemon().replace();
    // The session ends, and a new one asks whether it may.
    let refused = || echo(&client, "x").err().filter(|status| status.code() == Code::PermissionDenied);
    let refused = until("a call is refused", refused);
    assert!(refused.message().contains("[[call]]"), "{refused}");
    // Those who may are left alone.
    std::fs::write(&file, text).unwrap();
    host.daemon().replace();
    until_served(&client);
}

/// An application that a policy does not fit, and that came after it, has its own calls refused. It keeps neither the
/// next daemon from taking over nor the operator from changing other policies.
#[test]
fn an_application_that_a_policy_does_not_fit_keeps_no_daemon_from_taking_over() {
    let mut host = Host::alone();
    let access = |name: &str, deny: &str| {
        let scope = "kind = \"access\"\nside = \"server\"\nservice = \"probe.v1.Probe\"\nmethod = \"Echo\"";
        format!("[[policy]]\nname = {name:?}\n{scope}\ndeny = {deny:?}\n")
    };
    host.expect("policy does not fit what is bound", "it is told to the operator, by each daemon");
    let file = host.folder().join("chain.toml");
    apply(&mut host, &file, &access("misfit", "request.nothing == 'x'"), 0);
    let _server = host.server("server");
    let client = client(&host, "");
    let refused = || echo(&client, "x").err().filter(|status| status.code() == Code::Internal);
    until("its calls are refused", refused);
    host.daemon().replace();
    let refused = until("its calls are refused still", refused);
    assert!(refused.message().contains("misfit"), "{refused}");
    let both = access("misfit", "request.nothing == 'x'") + &access("other", "request.text == 'no'");
    apply(&mut host, &file, &both, 0);
    apply(&mut host, &file, "", 0);
    until_served(&client);
}

#[test]
fn states_go_from_one_daemon_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = built::rust(folder.path(), built::FAULTY);
    trunkline_test_logs::watch();
    let daemon = |text: &str| {
        let daemon = Daemon::embedded(Config::default()).unwrap();
        daemon.apply_policies(&Config::policies_from_toml(text, "chain").unwrap(), false).unwrap();
        daemon
    };
    let counting = policy("counting", "server", "", &path, "");
    let (states, errors) = daemon(&counting).export_modules();
    assert_eq!((&states[..4], errors), (&b"TLMS"[..], vec![]));
    assert_eq!(daemon(&counting).import_modules(&states), Ok(vec![]));
    let refuses = policy("counting", "server", "", &path, "config = { does = \"refuse-state\" }");
    let refused = daemon(&refuses).import_modules(&states).unwrap();
    assert_eq!(refused[0].to_string(), "policy \"counting\".path: it was told to refuse this state");
    assert!(daemon(&counting).import_modules(&states[..9]).is_err());
}

/// Ping-pong on one stream until told to stop; how many rounds.
fn stream(client: &ProbeClient, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let (mut tx, mut rx) = client.chat().split();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            tx.send(Text { text: format!("ping {round}") }).wait().unwrap();
            let heard = rx.recv().wait().unwrap().expect("the stream goes on");
            assert_eq!(heard.view().text(), format!("ping {round}"));
            round += 1;
        }
        tx.close();
        assert!(rx.recv().wait().unwrap().is_none(), "it ends in peace");
        round
    })
}

/// How many refusals the module on the server's side has counted with this one.
fn refusal(client: &ProbeClient) -> usize {
    let status = echo(client, "no").unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    let number = status.message().rsplit_once("(refusal ").and_then(|(_, rest)| rest.split(')').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number: {status}"))
}

#[test]
fn modules_are_upgraded_under_load_and_nobody_notices() {
    let folder = tempfile::tempdir().unwrap();
    built::field_check(folder.path());
    let mut far = Host::over_tcp();
    // Modules count on each shard by themselves, and a busy application may be moved to another.
    far.set_shards(1);
    far.daemon().replace();
    let mut near = Host::alone();
    let _server = far.server("server");
    let client = client(&near, far.endpoint());
    until_served(&client);
    let files = [folder.path().join("near.toml"), folder.path().join("far.toml")];
    apply(&mut near, &files[0], &near_chain(folder.path(), 0), 0);
    apply(&mut far, &files[1], &far_chain(folder.path(), 0), 0);

    let (load, threads) = Load::start(&client);
    let stop = Arc::new(AtomicBool::new(false));
    let streams = [stream(&client, &stop), stream(&client, &stop)];
    load.until_answered(50);
    for round in 1..=UPGRADES {
        apply(&mut near, &files[0], &near_chain(folder.path(), round), 1);
        assert_eq!(refusal(&client), 2 * round - 1, "the count of refusals goes on");
        apply(&mut far, &files[1], &far_chain(folder.path(), round), 2);
        assert_eq!(refusal(&client), 2 * round, "the count of refusals goes on");
        load.until_answered(20);
    }
    stop.store(true, Ordering::Relaxed);
    let rounds: u32 = streams.into_iter().map(|stream| stream.join().expect("no stream broke")).sum();
    finish(&load, threads);
    assert_eq!(load.failures(), "", "a call has failed");
    println!(
        "{UPGRADES} upgrades on each host; {rounds} rounds on streams; longest call {:?}",
        load.longest()
    );
    are_true_of_the_logs(&load, std::slice::from_ref(&far));
    near.until_idle();
    far.until_idle();
}

/// A rule that is new in every round, and keeps nobody out.
fn rule(side: &str, round: usize) -> String {
    format!(
        "[[policy]]\nname = \"rule-{round}\"\nkind = \"access\"\nside = \"{side}\"\nservice = \"probe.v1.Probe\"\n\
         deny = 'application == \"nobody {round}\"'\n\n"
    )
}

#[test]
fn chains_modules_and_daemons_change_in_one_run_and_nobody_notices() {
    let changes = std::env::var(CHANGES_VARIABLE).map_or(CHANGES, |changes| changes.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    built::field_check(folder.path());
    let files = [folder.path().join("near.toml"), folder.path().join("far.toml")];
    let mut scene = Scene::secured_of_one_shard();
    let client = client(&scene.near, &scene.target);
    apply(&mut scene.near, &files[0], &near_chain(folder.path(), 0), 0);
    apply(scene.far(), &files[1], &far_chain(folder.path(), 0), 0);
    for round in 1..=changes {
        let near = rule("client", round) + &near_chain(folder.path(), round);
        apply(&mut scene.near, &files[0], &near, 1);
        assert_eq!(refusal(&client), 2 * round - 1, "the count of refusals goes on");
        apply(scene.far(), &files[1], &(far_chain(folder.path(), round) + &rule("server", round)), 2);
        assert_eq!(refusal(&client), 2 * round, "the count of refusals goes on");
        scene.go_on();
        if round.is_multiple_of(2) {
            scene.replace(0);
            scene.replace(1);
        }
    }
    println!(
        "{changes} changes of the chain, with modules upgraded, on each host, {} replacements of each daemon, TLS: {}",
        changes / 2,
        scene.end_untouched()
    );
}
