//! What daemons are replaced under: calls that never pause, streams that say something all the time, on one host or
//! between two; and what must be true of them afterwards.

use crate::once::{Load, are_true_of_the_logs, finish};
use crate::support::{Host, Keys, Process, channel, client, until, until_served};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trunkline::Wait;
use trunkline_system_tests::proto::probe::Text;
use trunkline_system_tests::proto::probe::probe_client::ProbeClient;

/// Streams that say something all the time.
pub const STREAMS: usize = 3;
/// What must have been answered and said before the next thing happens.
const CALLS: usize = 50;
const WORDS: u64 = 20;

/// Hosts, a server, and callers.
pub struct Scene {
    pub near: Host,
    /// On the way there, if it is.
    gateway: Option<Host>,
    /// Where the server is, if that is another host.
    far: Option<Host>,
    _server: Process,
    /// Where its calls go.
    pub target: String,
    pub load: Arc<Load>,
    threads: Vec<JoinHandle<()>>,
    talk: Option<Talk>,
    longest_pause: Duration,
}

impl Scene {
    /// Two hosts that speak over TCP.
    pub fn between_two() -> Self {
        let far = Host::over_tcp();
        let target = far.endpoint().to_owned();
        Self::new(Host::alone(), Some(far), &target, true)
    }

    /// Two hosts that speak over TCP with TLS, and know each other by it.
    pub fn secured() -> Self {
        let keys = Keys::new();
        let far = Host::secured(&keys, true);
        let target = far.secured_endpoint();
        Self::new(Host::secured(&keys, false), Some(far), &target, true)
    }

    /// The same, with daemons of one shard: modules count on each shard by themselves, and a busy application may be
    /// moved to another.
    pub fn secured_of_one_shard() -> Self {
        let keys = Keys::new();
        let [far, near] = [true, false].map(|listens| {
            let mut host = Host::secured(&keys, listens);
            host.set_shards(1);
            host.daemon().replace();
            host
        });
        let target = far.secured_endpoint();
        Self::new(near, Some(far), &target, true)
    }

    /// Two hosts that speak gRPC, as with any other server and any other client.
    pub fn over_grpc() -> Self {
        let far = Host::over_tcp();
        let near = Host::routed_as(vec![far.endpoint().to_owned()], "", "[grpc]\nalways = true\n");
        Self::new(near, Some(far), "", false)
    }

    /// Two hosts and a gateway between them, which is to be replaced: it speaks gRPC with the near one, and with the
    /// far one what these lines of its configuration say.
    pub fn through_gateway(more: &str) -> Self {
        let far = Host::over_tcp();
        let gateway = Host::gateway_to(&far, more);
        let near = Host::routed(vec![gateway.gateway()]);
        let mut scene = Self::new(near, Some(far), "", false);
        scene.gateway = Some(gateway);
        scene
    }

    /// One host.
    pub fn on_one() -> Self {
        Self::new(Host::alone(), None, "", true)
    }

    /// These hosts: the server on the far one, if there is one, and calls from the near one to `target`.
    pub fn new(near: Host, far: Option<Host>, target: &str, streams: bool) -> Self {
        let _server = far.as_ref().unwrap_or(&near).server("server");
        let caller = client(&near, target);
        until_served(&caller);
        let (load, threads) = Load::start(&caller);
        let talk = streams.then(|| Talk::start(&ProbeClient::new(channel(&near, target))));
        Self {
            near,
            gateway: None,
            far,
            _server,
            target: target.to_owned(),
            load,
            threads,
            talk,
            longest_pause: Duration::ZERO,
        }
    }

    /// The host of the server.
    pub fn far(&mut self) -> &mut Host {
        self.far.as_mut().unwrap_or(&mut self.near)
    }

    /// Near or far, in turn; or the gateway.
    pub fn host(&mut self, round: usize) -> &mut Host {
        match &mut self.gateway {
            Some(gateway) => gateway,
            None if round.is_multiple_of(2) => &mut self.near,
            None => self.far.as_mut().unwrap_or(&mut self.near),
        }
    }

    /// Waits until calls were answered and streams have spoken again.
    pub fn go_on(&self) {
        self.load.until_answered(CALLS);
        if let Some(talk) = &self.talk {
            talk.until_said(WORDS);
        }
    }

    /// Has a daemon replaced under all of it.
    pub fn replace(&mut self, round: usize) {
        self.go_on();
        let paused = self.host(round).replace_daemon();
        self.longest_pause = self.longest_pause.max(paused);
    }

    /// Has successors of either daemon die, or refuse when they have everything.
    pub fn replace_in_vain(&mut self) {
        for (round, order) in ["replace-by dies", "replace-by refuses"].into_iter().enumerate() {
            self.go_on();
            let answer = self.host(round).daemon().ask(order);
            assert!(answer.starts_with("goes on: "), "{answer}");
        }
    }

    /// No call has failed, none was executed twice, no stream has broken, and nothing is held. What is worth a line.
    pub fn end_untouched(mut self) -> String {
        self.go_on();
        let said = self.talk.take().map_or(0, Talk::end);
        finish(&self.load, std::mem::take(&mut self.threads));
        assert_eq!(self.load.failures(), "", "a call failed");
        let (pause, call) = (self.longest_pause, self.load.longest());
        self.end_true();
        format!("{said} messages on {STREAMS} streams; longest pause {pause:?}, longest call {call:?}")
    }

    /// Whatever became of calls, callers were told the truth: none was executed twice, none that was *not executed*
    /// was.
    pub fn end_true(mut self) {
        finish(&self.load, std::mem::take(&mut self.threads));
        let server = self.far.as_ref().unwrap_or(&self.near);
        are_true_of_the_logs(&self.load, std::slice::from_ref(server));
        self.near.until_idle();
        self.gateway.iter_mut().for_each(Host::until_idle);
        if let Some(far) = &mut self.far {
            far.until_idle();
        }
    }
}

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
        until("streams that go on", || {
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
        let tail = if number.is_multiple_of(16) { "x".repeat(60_000) } else { String::new() };
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
