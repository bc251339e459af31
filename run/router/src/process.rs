//! The router's loop: sockets, the time, and the core between them.

use crate::proxy::Proxy;
use crate::report::{Report, Shared};
use crate::seals::Seals;
use crate::settings::{Forwarding, Settings};
use rustix::process::{Resource, getrlimit};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trunkline_call::Instant;
use trunkline_net::{
    DatagramBatch, Datagrams, Disguised, Interest, Outgoing, Poller, RawDatagrams, Ready, ReceivedDatagram,
    Token,
};
use trunkline_r2p2::{Forward, OnBehalf, Router, Sending, Transmit, WorkerRow};

/// A router and its sockets.
pub struct RouterProcess {
    router: Router,
    data: Datagrams,
    control: Datagrams,
    way: Way,
    seals: Seals,
    /// Of `data` and `control`.
    own: [SocketAddrV4; 2],
    /// What is sent on at the end of a turn; in proxy mode also parts of requests that are known already.
    forwards: Vec<Forward>,
    poller: Poller,
    ready: Vec<Ready>,
    batch: DatagramBatch,
    shared: Arc<Shared>,
    reported: Instant,
    /// Something could not be sent on, whose place others may have now.
    has_unsent: bool,
}

/// How requests are sent on.
enum Way {
    /// On behalf, or from clients' addresses.
    Raw(RawDatagrams),
    OnBehalf,
    Proxy(Box<Proxy>),
}

/// Why a router cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket cannot be had.
    #[error("{what}: {error}")]
    Socket {
        /// Which.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// The right to send in clients' names is missing.
    #[error(
        "forwarding is preserve, which needs CAP_NET_RAW: grant it, or write on-behalf (extended mode only) or proxy"
    )]
    NoRawSocket,
    /// Workers would send FEEDBACK nowhere.
    #[error("control is {0}: write the address workers reach this host at")]
    ControlUnspecified(std::net::SocketAddrV4),
}

const DATA: Token = Token(1 << 32);
const CONTROL: Token = Token(2 << 32);
/// Descriptors that are no client's: ports, the poller, the log, those who ask for metrics.
const OTHER_DESCRIPTORS: usize = 64;
/// Batches taken from one socket before the others get their turn.
const BATCHES_PER_TURN: usize = 2;
/// How often the report is renewed, and at the latest the flag looked at that ends the loop.
const REPORT_NS: u64 = 100_000_000;

impl RouterProcess {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`StartError`], with what to do about it.
    pub fn start(mut settings: Settings) -> Result<Self, StartError> {
        if settings.control.ip().is_unspecified() {
            return Err(StartError::ControlUnspecified(settings.control));
        }
        let named = |what: &str| {
            let what = what.to_owned();
            move |error| StartError::Socket { what, error }
        };
        let bound =
            |what: &str, address| Datagrams::bind(address).map_err(named(&format!("{what} {address}")));
        let data = bound("listen", settings.listen)?;
        let control = bound("control", settings.control)?;
        settings.router.control = control.address().map_err(named("control"))?;
        let own = [data.address().map_err(named("listen"))?, settings.router.control];
        let way = Way::choose(&settings).map_err(named("raw socket"))?.ok_or(StartError::NoRawSocket)?;
        settings.router.on_behalf = way.on_behalf();
        let poller = Poller::new().map_err(named("poller"))?;
        poller.add(&data, DATA, Interest::Read).map_err(named("poller"))?;
        poller.add(&control, CONTROL, Interest::Read).map_err(named("poller"))?;
        let now = now();
        Ok(Self {
            router: Router::new(settings.router, now),
            data,
            control,
            way,
            seals: Seals::new(settings.keys.take()),
            own,
            forwards: Vec::new(),
            poller,
            ready: Vec::new(),
            batch: DatagramBatch::new(),
            shared: Arc::default(),
            reported: Instant::default(),
            has_unsent: false,
        })
    }

    /// Where clients send, and where workers do.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn addresses(&self) -> io::Result<[std::net::SocketAddrV4; 2]> {
        Ok([self.data.address()?, self.control.address()?])
    }

    /// How requests are sent on; never [`Forwarding::Auto`].
    pub fn forwarding(&self) -> Forwarding {
        match self.way {
            Way::Raw(_) => Forwarding::Preserve,
            Way::OnBehalf => Forwarding::OnBehalf,
            Way::Proxy(_) => Forwarding::Proxy,
        }
    }

    /// What the loop shows while it runs.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Turns until told to stop.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.turn();
        }
        self.report(now());
    }

    fn turn(&mut self) {
        let has_unsent = std::mem::take(&mut self.has_unsent);
        let due_ns = self.router.next_timeout().map_or(REPORT_NS, |at| at.since_ns(now()));
        let due_ns = if has_unsent { 0 } else { due_ns };
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.wait(due_ns.min(REPORT_NS), &mut ready) {
            tracing::error!(%error, "cannot poll");
        }
        let now = now();
        // Word of what has ended comes first: a request that came with it goes to a worker that is free.
        ready.sort_by_key(|event| event.token != CONTROL);
        for event in ready.drain(..) {
            match event.token {
                DATA => self.take_requests(now),
                CONTROL => self.take_feedback(now),
                flow => self.take_answers(flow),
            }
        }
        self.ready = ready;
        if has_unsent || self.router.next_timeout().is_some_and(|at| at <= now) {
            self.router.handle_timeout(now);
        }
        self.let_out(now);
        if now.since_ns(self.reported) >= REPORT_NS {
            self.report(now);
        }
    }

    /// Waits for datagrams. Gives the core away once before it sleeps: on a busy host whoever runs then sends some, and
    /// to be woken for them costs several times as much.
    fn wait(&self, timeout_ns: u64, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.poller.wait(Some(0), ready)?;
        if ready.is_empty() {
            sched_yield();
            self.poller.wait(Some(timeout_ns), ready)?;
        }
        Ok(())
    }

    fn take_requests(&mut self, now: Instant) {
        let Self { data, router, way, forwards, batch, seals, own, .. } = self;
        let passes = matches!(way, Way::Proxy(_));
        take(data, batch, |received| {
            let ReceivedDatagram { from: client, datagram, came_ns, .. } = received;
            let Some(datagram) = seals.open(own[0], client, datagram) else { return };
            match passes.then(|| router.worker_of(client, datagram)).flatten() {
                Some(to) => {
                    let datagram = datagram.to_vec();
                    forwards.push(Forward { client, to, datagram, on_behalf: false, of: Sending::Follows });
                }
                None => router.handle_request(now, Instant(came_ns), client, datagram),
            }
        });
    }

    fn take_feedback(&mut self, now: Instant) {
        let Self { control, router, way, batch, seals, own, .. } = self;
        take(control, batch, |ReceivedDatagram { from, datagram, .. }| {
            let Some(datagram) = seals.open(own[1], from, datagram) else { return };
            match way {
                Way::Proxy(proxy) => {
                    let mut datagram = datagram.to_vec();
                    proxy.translate(&mut datagram);
                    router.handle_feedback(now, from, &datagram);
                }
                Way::Raw(_) | Way::OnBehalf => router.handle_feedback(now, from, datagram),
            }
        });
    }

    /// Proxy mode: what a worker says to a client.
    fn take_answers(&mut self, flow: Token) {
        let Self { data, router, way: Way::Proxy(proxy), batch, seals, own: [own, _], .. } = self else {
            return;
        };
        let Some((socket, client)) = proxy.flow(flow) else { return };
        let at = proxy.address(flow);
        take_batches(socket, batch, |batch| {
            let mut answers = Vec::new();
            for (worker, datagram) in batch.iter() {
                let Some(opened) = seals.open(at, worker, datagram).map(<[u8]>::to_vec) else { continue };
                if router.is_answer(worker, &opened) {
                    answers.push(seals.sealed(*own, client, &[&opened]));
                }
            }
            let out = answers.iter().map(|answer| Outgoing { to: client, pieces: [answer, &[]] });
            data.send(&out.collect::<Vec<_>>());
        });
    }

    /// What came of it goes where it belongs.
    fn let_out(&mut self, now: Instant) {
        let mut forwards = std::mem::take(&mut self.forwards);
        forwards.extend(std::iter::from_fn(|| self.router.poll_forward()));
        let [data, control] = self.own;
        let proxied = matches!(self.way, Way::Proxy(_));
        self.seals.seal_forwards(&mut forwards, |one| match one.on_behalf {
            true => control,
            // A proxy's sockets have any port.
            false if proxied => SocketAddrV4::new(*control.ip(), 0),
            false => one.client,
        });
        match &mut self.way {
            Way::Raw(raw) => {
                let in_disguise = forwards.iter().filter(|one| !one.on_behalf);
                raw.send(&in_disguise.map(disguised).collect::<Vec<_>>());
            }
            Way::OnBehalf => {}
            Way::Proxy(proxy) => {
                forwards.sort_by_key(|one| one.client);
                for of_client in forwards.chunk_by(|one, next| one.client == next.client) {
                    let is_sent = proxy.send(now, &self.poller, of_client, |key| self.router.moved(key));
                    self.has_unsent |= !is_sent;
                    for one in of_client.iter().filter(|_| !is_sent) {
                        if let Sending::Begins(key) = one.of {
                            self.router.unsent(now, key);
                        }
                    }
                }
                proxy.close_idle(now);
            }
        }
        let on_behalf = forwards.iter().filter(|one| one.on_behalf);
        self.control.send(&on_behalf.map(in_own_name).collect::<Vec<_>>());
        self.router.take_back(forwards.drain(..));
        self.forwards = forwards;
        let greetings: Vec<Transmit> = std::iter::from_fn(|| self.router.poll_greeting()).collect();
        send(&self.control, &mut self.seals, control, &greetings);
        let transmits: Vec<Transmit> = std::iter::from_fn(|| self.router.poll_transmit()).collect();
        send(&self.data, &mut self.seals, data, &transmits);
    }

    fn report(&mut self, now: Instant) {
        self.reported = now;
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let report = Report::of(&self.router, self.seals.counters(), cpu_ns);
        let before = std::mem::replace(&mut *self.shared.report.lock(), report.clone());
        tell_of_workers(&before, &report);
    }
}

/// Logs who has come and who has gone since the report before.
fn tell_of_workers(before: &Report, now: &Report) {
    // By address, in both.
    let missing = |from: &Report, worker: &WorkerRow| {
        from.workers.binary_search_by_key(&worker.address, |row| row.address).is_err()
    };
    for worker in now.workers.iter().filter(|worker| missing(before, worker)) {
        tracing::info!(worker = %worker.address, slots = worker.slots, "worker joined");
    }
    for worker in before.workers.iter().filter(|worker| missing(now, worker)) {
        let WorkerRow { address, outstanding, served, .. } = worker;
        tracing::warn!(worker = %address, outstanding, served, "worker is gone: it has left, or is silent");
    }
}

impl Way {
    /// A proxy's workers do not answer clients: where one is asked for, they may not be within their reach.
    fn on_behalf(&self) -> OnBehalf {
        match self {
            Self::Raw(_) => OnBehalf::Preferred,
            Self::OnBehalf => OnBehalf::Only,
            Self::Proxy(_) => OnBehalf::Never,
        }
    }

    /// `None` if the wanted way needs a right that is missing.
    fn choose(settings: &Settings) -> io::Result<Option<Self>> {
        let proxy =
            || Self::Proxy(Box::new(Proxy::new(*settings.control.ip(), flows_max(settings.flows_max))));
        Ok(match settings.forwarding {
            Forwarding::Proxy => Some(proxy()),
            Forwarding::OnBehalf => Some(Self::OnBehalf),
            Forwarding::Preserve => RawDatagrams::open()?.map(Self::Raw),
            Forwarding::Auto => Some(RawDatagrams::open()?.map_or_else(proxy, Self::Raw)),
        })
    }
}

/// So many, or as many as there may be descriptors beside those of the rest.
fn flows_max(wanted: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    descriptors.map_or(wanted, |most| wanted.min(most.saturating_sub(OTHER_DESCRIPTORS)))
}

/// Sends datagrams from the socket that has this address.
fn send(socket: &Datagrams, seals: &mut Seals, own: SocketAddrV4, all: &[Transmit]) {
    match seals.sealed_transmits(own, all) {
        None => _ = socket.send(&all.iter().map(outgoing).collect::<Vec<_>>()),
        Some(sealed) => {
            let batch = sealed.iter().map(|(to, datagram)| Outgoing { to: *to, pieces: [datagram, &[]] });
            _ = socket.send(&batch.collect::<Vec<_>>());
        }
    }
}

/// Takes what waits at a socket, one datagram after the other.
fn take(socket: &Datagrams, batch: &mut DatagramBatch, mut each: impl FnMut(ReceivedDatagram<'_>)) {
    take_batches(socket, batch, |batch| batch.received().for_each(&mut each));
}

/// Takes what waits at a socket, a few batches at most; the poller tells again.
fn take_batches(socket: &Datagrams, batch: &mut DatagramBatch, mut each: impl FnMut(&DatagramBatch)) {
    for _ in 0..BATCHES_PER_TURN {
        if let Err(error) = socket.receive_batch(batch) {
            return tracing::error!(%error, "cannot receive datagrams");
        }
        each(batch);
        if !batch.is_full() {
            return;
        }
    }
}

fn disguised(one: &Forward) -> Disguised<'_> {
    Disguised { from: one.client, to: one.to, datagram: &one.datagram }
}

fn in_own_name(one: &Forward) -> Outgoing<'_> {
    Outgoing { to: one.to, pieces: [&one.datagram, &[]] }
}

fn outgoing(one: &Transmit) -> Outgoing<'_> {
    Outgoing { to: one.to, pieces: [one.head.as_slice(), &one.body] }
}

/// CLOCK_MONOTONIC.
fn now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
