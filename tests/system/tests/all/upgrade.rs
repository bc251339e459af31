//! Shows that daemons are replaced under load and nobody notices: no call fails, none is executed twice, no stream
//! breaks; that a successor that does not take over leaves everything as it was; and that a daemon that took over and
//! is then killed is no different from any other that is.

use crate::once::{Load, are_true_of_the_logs, finish};
use crate::support::{Host, channel, client, until_served};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trunkline::Wait;
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;

/// Environment variable: replacements of each daemon. Ten are asked for; three are what every run can afford.
const ROUNDS_VARIABLE: &str = "UPGRADE_ROUNDS";
const ROUNDS: u32 = 3;
/// Streams that say something all the time.
const STREAMS: usize = 3;

/// Streams under way: each says a number and hears it again, in order, and never begins anew.
struct Talk {
    stop: Arc<AtomicBool>,
    said: Arc<AtomicU64>,
    threads: Vec<JoinHandle<u64>>,
}

impl Talk {
    fn start(client: &ProbeClient) -> Self {
        let (stop, said) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = |_| {
            let (client, stop, said) = (client.clone(), Arc::clone(&stop), Arc::clone(&said));
            std::thread::spawn(move || talk(&client, &stop, &said))
        };
        let threads = (0..STREAMS).map(thread).collect();
        Self { stop, said, threads }
    }

    fn until_said(&self, more: u64) {
        let before = self.said.load(Ordering::Relaxed);
        crate::support::until("streams that go on", || {
            let broken = self.threads.iter().any(JoinHandle::is_finished);
            (broken || self.said.load(Ordering::Relaxed) >= before + more).then_some(())
        });
    }

    /// How much was said, in all.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().expect("a stream was not broken")).sum()
    }
}

fn talk(client: &ProbeClient, stop: &AtomicBool, said: &AtomicU64) -> u64 {
    let (mut tx, mut rx) = client.chat().split();
    let mut number = 0;
    // Two are under way at any time, so that windows are never whole when a daemon stops.
    let mut say = |number: u64| {
        // Some of them long: put together in a heap while daemons change.
        let tail = if number % 16 == 0 { "x".repeat(60_000) } else { String::new() };
        tx.send(Text { text: format!("{number} {tail}") }).wait().unwrap();
    };
    say(0);
    while !stop.load(Ordering::Relaxed) {
        say(number + 1);
        let heard = rx.recv().wait().unwrap().expect("the stream goes on").into_inner().text;
        assert_eq!(heard.split(' ').next(), Some(number.to_string().as_str()));
        number += 1;
        said.fetch_add(1, Ordering::Relaxed);
    }
    drop(tx);
    while rx.recv().wait().unwrap().is_some() {}
    number
}

fn rounds() -> u32 {
    std::env::var(ROUNDS_VARIABLE).ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

#[test]
fn nobody_notices_that_daemons_are_replaced() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let _server = far.server("server");
    let caller = client(&near, far.endpoint());
    until_served(&caller);
    let (load, threads) = Load::start(&caller);
    let talk = Talk::start(&ProbeClient::new(channel(&near, far.endpoint())));
    let mut longest = Duration::ZERO;
    for round in 0..2 * rounds() {
        load.until_answered(50);
        talk.until_said(20);
        let paused = if round % 2 == 0 { near.replace_daemon() } else { far.replace_daemon() };
        longest = longest.max(paused);
    }
    load.until_answered(50);
    talk.until_said(20);
    finish(&load, threads);
    let said = talk.end();
    assert_eq!(load.failures(), "", "a call failed");
    are_true_of_the_logs(&load, std::slice::from_ref(&far));
    println!(
        "{} replacements of each daemon: no call failed, {said} messages on {STREAMS} streams, \
         longest pause {longest:?}, longest call {:?}",
        rounds(),
        load.longest()
    );
    near.until_idle();
    far.until_idle();
}

#[test]
fn a_successor_that_does_not_take_over_changes_nothing() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let _server = far.server("server");
    let caller = client(&near, far.endpoint());
    until_served(&caller);
    let (load, threads) = Load::start(&caller);
    let talk = Talk::start(&ProbeClient::new(channel(&near, far.endpoint())));
    // The port is the other host's: this successor has received everything when it finds out.
    let broken = near.folder().join("broken.toml");
    let text = std::fs::read_to_string(near.folder().join("daemon.toml")).unwrap();
    let elsewhere = text.replace("listen = []", &format!("listen = [{:?}]", far.endpoint()));
    assert_ne!(text, elsewhere);
    std::fs::write(&broken, elsewhere).unwrap();
    let orders = [
        ("replace-by dies".to_owned(), "ended"),
        ("replace-by refuses".to_owned(), "it does not want to"),
        ("replace-by hangs".to_owned(), "the new daemon did not take over"),
        (format!("replace-with {}", broken.display()), "cannot listen on"),
    ];
    for (order, why) in orders {
        load.until_answered(50);
        talk.until_said(20);
        let answer = near.daemon().ask(&order);
        assert!(answer.starts_with("goes on: ") && answer.contains(why), "{order}: {answer}");
    }
    load.until_answered(50);
    talk.until_said(20);
    // And the next one may be better.
    near.replace_daemon();
    load.until_answered(50);
    talk.until_said(20);
    finish(&load, threads);
    talk.end();
    assert_eq!(load.failures(), "", "a call failed");
    are_true_of_the_logs(&load, std::slice::from_ref(&far));
    near.until_idle();
    far.until_idle();
}

#[test]
fn a_daemon_that_took_over_is_killed() {
    let mut far = Host::over_tcp();
    let mut near = Host::alone();
    let _server = far.server("server");
    let caller = client(&near, far.endpoint());
    until_served(&caller);
    let (load, threads) = Load::start(&caller);
    for round in 0..4 {
        let host = if round % 2 == 0 { &mut near } else { &mut far };
        load.until_answered(50);
        host.replace_daemon();
        load.until_answered(50);
        host.kill_daemon();
        host.start();
        load.until_answered(50);
    }
    finish(&load, threads);
    are_true_of_the_logs(&load, std::slice::from_ref(&far));
    near.until_idle();
    far.until_idle();
}

#[test]
fn on_one_host() {
    let mut host = Host::alone();
    let _server = host.server("server");
    let caller = client(&host, "");
    until_served(&caller);
    let (load, threads) = Load::start(&caller);
    let talk = Talk::start(&ProbeClient::new(channel(&host, "")));
    for _ in 0..rounds() {
        load.until_answered(50);
        talk.until_said(20);
        host.replace_daemon();
    }
    load.until_answered(50);
    talk.until_said(20);
    finish(&load, threads);
    talk.end();
    assert_eq!(load.failures(), "", "a call failed");
    are_true_of_the_logs(&load, std::slice::from_ref(&host));
    host.until_idle();
}
