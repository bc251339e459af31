//! A running daemon: started from a configuration, asked and stopped through a handle.

use crate::changes::{Changes, Watcher};
use crate::clients::AttachedSession;
use crate::clock::now;
use crate::command::{Command, ControlMessage, Observation, Services, ShardSender, shard_channel};
use crate::config::Config;
use crate::control::{Control, ControlParts};
use crate::crossings::Crossings;
use crate::elastic::Elastic;
use crate::endpoints::Endpoints;
use crate::fresh::fresh_engine;
use crate::group::{Group, ThreadOrder, Threaded};
use crate::handover::{self, Arrival, Inherited, InheritedShard, KeptCounts, TakeOverError};
use crate::heaps::SessionHeaps;
use crate::http::HttpSockets;
use crate::keys::{KeySource, TlsKeys};
use crate::listening::{control_listener, raise_descriptor_limit};
use crate::load::{BusyTime, LoadMeter};
use crate::memory::FreedMemory;
use crate::names::Names;
use crate::pending_connections::{ConnectionPlaces, PendingConnections};
use crate::policies_file::Kept;
use crate::reports::{Reported, Reports};
use crate::samples::{SampleSink, SampleThread, SampleTotals};
use crate::session_rings::Sessions;
use crate::shard::{ControlSender, Shard};
use crate::shard_threads::{ShardThreads, THREAD_NAME, ThreadOfShard};
use crate::sockets::NativeSockets;
use crate::start_error::StartError;
use crate::tenants::Tenants;
use crate::threads::Threads;
use crate::token::Token;
use crate::unmapper::Unmapper;
use crate::waker::Waker;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use trunkline_call::TimerTable;
use trunkline_engine::{Engine, ServiceState, SessionKey, take_over};
use trunkline_grpc::service_config::ServiceConfig;
use trunkline_module::Loader;
use trunkline_net::{Buffers, Interest, Poller};
use trunkline_share::HostLimits;
use trunkline_shm::{ControlListener, ControlSocket, WaitLimits, Waiter, monotonic_ns};
use trunkline_telemetry::{Ask, CallsAnswer, CallsAsk, TaxSetup, TaxTimes, TaxTotals};

/// How long it is waited for what keeps a session on its shard, and between two attempts.
const MOVE_SOON: Duration = Duration::from_secs(1);
const MOVE_LOOK: Duration = Duration::from_millis(5);

/// A running daemon. Dropping the handle stops it.
pub struct Daemon {
    shards: Vec<ShardSender>,
    /// How busy each is.
    busy: Vec<Arc<BusyTime>>,
    control: ControlSender,
    names: Arc<Names>,
    pub(crate) threads: Arc<Threads>,
    control_path: Option<PathBuf>,
    pub(crate) endpoints: Endpoints,
    changes: Arc<Changes>,
    pub(crate) modules: Loader,
    /// Where the chain comes from, and where it is kept.
    pub(crate) kept: Kept,
    /// What writes samples of calls, if any are kept.
    samples: Option<SampleThread>,
    /// What its threads' processor time goes into.
    tax: Arc<TaxTimes>,
    /// Where the memory of sessions that are over goes.
    unmapper: Arc<Unmapper>,
}

/// What was taken over from another daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Its process.
    pub from: u32,
    /// Sessions of applications.
    pub sessions: usize,
    /// Connections to other daemons.
    pub connections: usize,
    /// Calls in flight.
    pub calls: usize,
    /// From the other's last turn until every shard here had turned.
    pub paused_ns: u64,
}

/// A shard's place among the others.
struct Among {
    index: usize,
    count: usize,
    waker: Arc<Waker>,
    crossings: Crossings,
    shared: Arc<HostLimits>,
    samples: Option<SampleSink>,
    load: LoadMeter,
}

/// The control socket and its path, where there is one.
pub(crate) type ControlPlace = (Option<ControlListener>, Option<PathBuf>);

/// A daemon whose threads have not begun.
pub(crate) struct Prepared {
    /// Goes first where all that does not begin: the daemon waits for its word.
    pub control: Control,
    pub shards: Vec<Threaded>,
    /// On how many threads they begin.
    pub open: usize,
    pub daemon: Daemon,
}

impl Daemon {
    /// Starts the shards and the control thread, listening wherever the configuration says.
    ///
    /// # Errors
    /// [`StartError`] names what could not be had; nothing keeps running then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        raise_descriptor_limit();
        let path = config.socket().map(PathBuf::from);
        let listener = path.as_ref().map(|path| control_listener(path, &config)).transpose()?;
        Self::assemble(config, (listener, path))
    }

    /// Takes the place of a running daemon, which hands everything over and ends ([`Daemon::hand_over`]). `build` is
    /// what this program is called. Applications, connections and calls go on; the control socket stays where it is.
    /// What is known of what was counted comes along ([`HandOver::counts`](crate::HandOver::counts)).
    ///
    /// # Errors
    /// [`StartError`]; the other daemon goes on then, and says why if it is told ([`Arrival::refuse`]).
    pub fn take_over(
        config: Config,
        arrival: &Arrival,
        build: &str,
    ) -> Result<(Self, TakenOver, KeptCounts), StartError> {
        handover::take_over(config, arrival, build)
    }

    /// Starts a daemon inside this process, without a control socket: applications of this process attach with
    /// [`Daemon::connect`] (embedded mode).
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn embedded(mut config: Config) -> Result<Self, StartError> {
        // The admin API is the program `trunkline`'s: nobody would serve who connects there.
        config.admin.listen.clear();
        Self::assemble(config, (None, None))
    }

    /// A fresh control connection to this daemon, as if an application had connected to its socket.
    ///
    /// # Errors
    /// If the kernel has no socket pair left.
    pub fn connect(&self) -> io::Result<ControlSocket> {
        let (ours, theirs) = ControlSocket::pair().map_err(io::Error::other)?;
        self.tell_control(ControlMessage::Adopt(ours));
        Ok(theirs)
    }

    /// Where applications attach; `None` for an embedded daemon.
    pub fn control_path(&self) -> Option<&std::path::Path> {
        self.control_path.as_deref()
    }

    /// Where peers connect, with the ports the kernel chose.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints.peers
    }

    /// Where operators connect.
    pub fn admin_endpoints(&self) -> &[String] {
        &self.endpoints.operators
    }

    /// Where gRPC clients have their calls forwarded, with the ports the kernel chose.
    pub fn gateway_endpoints(&self) -> &[String] {
        &self.endpoints.gateways
    }

    /// What every shard knows about itself, in order.
    pub fn observe(&self, ask: &Ask) -> Vec<Observation> {
        let observe = |(shard, busy): (&ShardSender, &Arc<BusyTime>)| {
            let reported = shard.ask(|reply| Command::Observe { ask: ask.clone(), reply })?;
            Some((reported, busy.has_thread(), busy.permille(monotonic_ns())))
        };
        let reported = self.shards.iter().zip(&self.busy).filter_map(observe);
        // What takes time is done here, on the thread of whoever asks.
        let seen = |(Reported { state, measured }, has_thread, busy_permille)| {
            let (telemetry, samples) = (measured.finish(), SampleTotals::default());
            let snapshot = state.finish();
            Observation { snapshot, telemetry, samples, has_thread, busy_permille }
        };
        let mut observed: Vec<Observation> = reported.map(seen).collect();
        if let (Some(first), Some(samples)) = (observed.first_mut(), &self.samples) {
            first.samples = samples.totals();
        }
        observed
    }

    /// Calls of every shard one by one; `ask` says for each shard, in order, which.
    pub fn calls(&self, ask: impl Fn(usize) -> CallsAsk) -> Vec<CallsAnswer> {
        let shards = self.shards.iter().enumerate();
        let answers = shards.map(|(index, shard)| {
            let ask = ask(index);
            let from = ask.from.unwrap_or(0);
            let answer = shard.ask(|reply| Command::Calls { ask, reply });
            // A shard that ends has no more calls.
            answer.unwrap_or(CallsAnswer { next: from, ..CallsAnswer::default() })
        });
        answers.collect()
    }

    /// What the processor time of shards' threads went into.
    pub fn tax(&self) -> TaxTotals {
        self.tax.totals()
    }

    /// What is served on this host.
    pub fn services(&self) -> Services {
        let shards = self.shards.iter().filter_map(|shard| shard.ask(|reply| Command::Services { reply }));
        let shards: Vec<Services> = shards.collect();
        let draining = shards.is_empty() || shards.iter().any(|shard| shard.draining);
        let mut merged: BTreeMap<String, ServiceState> = BTreeMap::new();
        for state in shards.into_iter().flat_map(|shard| shard.states) {
            match merged.entry(state.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(state)),
                Entry::Occupied(mut known) => {
                    known.get_mut().serving |= state.serving;
                    known.get_mut().schemas.extend(state.schemas);
                }
            }
        }
        Services { states: merged.into_values().collect(), draining }
    }

    /// Waits for changes of [`Daemon::services`].
    pub fn watch(&self) -> Watcher {
        self.changes.watch()
    }

    /// Has a session go from one shard to another, with its calls in flight; its key there.
    ///
    /// # Errors
    /// What keeps it where it is for now.
    pub fn move_session(&self, shard: usize, session: SessionKey, to: usize) -> Result<SessionKey, String> {
        if shard.max(to) >= self.shards.len() {
            return Err(format!("there are {} shards", self.shards.len()));
        }
        let (reply, answer) = channel();
        self.tell_control(ControlMessage::Move {
            session: AttachedSession { shard, key: session },
            to,
            reply,
        });
        answer.recv().unwrap_or_else(|_| Err("the daemon has ended".into()))
    }

    /// Has all sessions of an application ([`Daemon::observe`]) go to a shard that has a thread. How many went.
    ///
    /// # Errors
    /// What is wrong with the wish, or what keeps the first session that stays.
    pub fn move_application(&self, application: &str, to: usize) -> Result<usize, String> {
        match self.busy.get(to) {
            Some(busy) if busy.has_thread() => {}
            Some(_) => {
                return Err(format!(
                    "shard {to} has no thread now: with daemon.shards = \"auto\" it gets one when the others are \
                     busy; set daemon.shards to a number to have so many at all times"
                ));
            }
            None => {
                let last = self.shards.len() - 1;
                return Err(format!("there is no shard {to}: the last one is {last} (daemon.shards)"));
            }
        }
        let (mut found, mut moved) = (false, 0);
        for (shard, observed) in self.observe(&Ask::default()).into_iter().enumerate() {
            let own = observed.snapshot.sessions.into_iter().filter(|row| row.label == application);
            for row in own {
                found = true;
                if shard != to {
                    self.move_soon(shard, row.key, to)?;
                    moved += 1;
                }
            }
        }
        if found { Ok(moved) } else { Err(format!("no application {application:?} is attached")) }
    }

    /// [`Daemon::move_session`], as soon as nothing keeps it.
    fn move_soon(&self, shard: usize, session: SessionKey, to: usize) -> Result<SessionKey, String> {
        let began = Instant::now();
        loop {
            match self.move_session(shard, session, to) {
                Err(_) if began.elapsed() < MOVE_SOON => std::thread::park_timeout(MOVE_LOOK),
                answer => return answer,
            }
        }
    }

    /// Says where calls to a service go that nobody on this host serves.
    pub fn configure_service(&self, service: &str, endpoints: &[String]) {
        for shard in &self.shards {
            let (service, endpoints) = (service.to_owned(), endpoints.to_vec());
            shard.send(Command::ConfigureService { service, endpoints });
        }
    }

    /// Says what holds for calls of a service that are made on this host.
    pub fn configure_calls(&self, service: &str, config: &ServiceConfig) {
        for shard in &self.shards {
            let (service, config) = (service.to_owned(), config.clone());
            shard.send(Command::ConfigureCalls { service, config });
        }
    }

    /// Takes no new calls from now on; those in flight go on.
    pub fn drain(&self) {
        for shard in &self.shards {
            shard.send(Command::Drain);
        }
    }

    /// Whether no call is in flight, and what was said to peers has left.
    pub fn is_idle(&self) -> bool {
        let observed = self.observe(&Ask::default());
        let mut snapshots = observed.iter().map(|shard| &shard.snapshot);
        snapshots.all(|one| one.calls == 0 && one.peers.iter().all(|peer| peer.queued_bytes == 0))
    }

    /// Stops every thread and waits. Calls in flight end as their connections do; peers get a second to read why.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    /// Starts the threads of a configuration.
    fn assemble(config: Config, control: ControlPlace) -> Result<Self, StartError> {
        let Prepared { daemon, shards, open, control } =
            Self::prepare(config, control, Endpoints::default(), None)?;
        daemon.begin(shards, open)?;
        daemon.begin_with_policies()?;
        daemon.threads.spawn("trunkline-control", move || control.run())?;
        Ok(daemon)
    }

    /// Starts the shards.
    fn begin(&self, shards: Vec<Threaded>, open: usize) -> Result<(), StartError> {
        for group in Group::spread(shards, open)? {
            self.threads.spawn(THREAD_NAME, move || group.run())?;
        }
        Ok(())
    }

    /// Makes everything but the threads.
    pub(crate) fn prepare(
        config: Config,
        (listener, control_path): ControlPlace,
        endpoints: Endpoints,
        mut inherited: Option<&mut Inherited>,
    ) -> Result<Prepared, StartError> {
        let kept = Kept::begin(&config, inherited.as_deref().map(|inherited| inherited.from))?;
        let failed = |error| StartError::Samples { path: config.samples.file.clone(), error };
        let (sink, samples) = crate::samples::start(&config).map_err(failed)?.unzip();
        let (messages, inbox) = channel();
        let control = ControlSender::new(messages)?;
        let mut daemon = Self {
            shards: Vec::new(),
            busy: Vec::new(),
            control,
            names: Names::new(),
            threads: Arc::default(),
            control_path,
            endpoints,
            changes: Arc::default(),
            modules: Loader::default(),
            kept,
            samples,
            tax: Arc::default(),
            unmapper: Arc::default(),
        };
        // The inbox goes first if what follows fails: the end of the daemon waits for an answer from there.
        let (inbox, mut shards) = (inbox, Vec::new());
        let (keys, loaded) = match inherited.as_deref_mut().and_then(|inherited| inherited.keys.take()) {
            Some(keys) => keys,
            None => KeySource::begin(config.tls.clone())?,
        };
        let (least, most) = (config.daemon.shards.least(), config.daemon.shards.most());
        let open = inherited.as_deref().map_or(least, |inherited| inherited.in_use().clamp(least, most));
        let all =
            inherited.as_deref_mut().map_or(Ok(most), |inherited| inherited.settle_shards(open, most))?;
        let wakers = new_wakers(all)?;
        let places = ConnectionPlaces::new(config.connections());
        let shared = Arc::new(HostLimits::new(wakers.len() as u16));
        daemon.busy = wakers.iter().map(|_| Arc::default()).collect();
        for (index, crossings) in Crossings::between(&wakers).into_iter().enumerate() {
            let shard = inherited.as_deref_mut().and_then(|inherited| inherited.shards.get_mut(index));
            let (waker, shared) = (Arc::clone(&wakers[index]), Arc::clone(&shared));
            // A fixed number of shards have sockets of their own, and the kernel spreads over them who connects.
            let accepting = if least < most { &daemon.busy[..] } else { &[] };
            let load = LoadMeter::new(Arc::clone(&daemon.busy[index]), accepting, now());
            let among = Among { index, count: open, waker, crossings, shared, samples: sink.clone(), load };
            shards.push(daemon.make_shard(among, &config, loaded.clone(), &places, shard)?);
        }
        daemon.configure_services(&config);
        if let Some(inherited) = inherited.as_deref_mut() {
            inherited.settle_into(&mut shards, &daemon.modules)?;
        }
        let (threads, inboxes) = daemon.shard_threads(Elastic::new(least, most, open));
        let control = Control::new(ControlParts {
            listener,
            shards: daemon.shards.clone(),
            threads,
            messages: inbox,
            waker: Arc::clone(&daemon.control.waker),
            config: Arc::new(config),
            programs_are_read: Arc::clone(&daemon.kept.programs_are_read),
            sessions: inherited.map_or(0, |inherited| inherited.sessions),
            keys,
            unwritten: Arc::clone(&daemon.control.unwritten),
            memory: FreedMemory::new(Arc::clone(&daemon.control.ended)),
        })?;
        let threaded = shards.into_iter().zip(inboxes).map(|(shard, orders)| Threaded { shard, orders });
        Ok(Prepared { control, shards: threaded.collect(), open, daemon })
    }

    /// Whoever orders the threads of shards, and where each hears of it.
    fn shard_threads(&self, elastic: Elastic) -> (ShardThreads, Vec<Receiver<ThreadOrder>>) {
        let (orders, inboxes): (Vec<_>, Vec<_>) = self.shards.iter().map(|_| channel()).unzip();
        let of_shards = self.shards.iter().zip(&self.busy).zip(orders);
        let of_shards = of_shards.map(|((shard, busy), orders)| ThreadOfShard {
            shard: shard.clone(),
            orders,
            busy: Arc::clone(busy),
        });
        (ShardThreads::new(of_shards.collect(), elastic, Arc::clone(&self.threads)), inboxes)
    }

    fn configure_services(&self, config: &Config) {
        for (service, configured) in &config.services {
            let endpoints: Vec<String> = configured.endpoints.iter().map(ToString::to_string).collect();
            self.configure_service(service, &endpoints);
            if let Some(config) = configured.calls() {
                self.configure_calls(service, &config);
            }
        }
    }

    fn make_shard(
        &mut self,
        among: Among,
        config: &Config,
        tls: TlsKeys,
        places: &ConnectionPlaces,
        mut inherited: Option<&mut InheritedShard>,
    ) -> Result<Shard, StartError> {
        let Among { index, count, waker, crossings, shared, samples, load } = among;
        let (sender, commands) = shard_channel(waker);
        let poller = Poller::new()?;
        poller.add(&*commands.waker, Token::Waker.to_poller(), Interest::Read)?;
        let listening =
            self.endpoints.listen_for((index, count), config, &poller, inherited.as_deref_mut())?;
        let bound = inherited.as_deref_mut().map(|inherited| std::mem::take(&mut inherited.datagrams));
        let udp = self.endpoints.open_udp(index, config, bound.unwrap_or_default(), &poller)?;
        let engine = make_engine(index, &shared, config, inherited.as_deref())?;
        let patience_ns_max = config.patience_ns_max();
        let shard = Shard {
            index,
            engine,
            heaps: SessionHeaps::default(),
            unmapper: Arc::clone(&self.unmapper),
            sessions: Sessions::default(),
            tenants: Tenants::new(config.tenant.clone()),
            sockets: NativeSockets::new(config.debug.read_stall_us),
            accepts_are_held: false,
            https: HttpSockets::new(config.http2.server(), config.http2.client()),
            udp,
            pending: PendingConnections::new(places.clone(), config.call.clone()),
            socket_timers: TimerTable::new(),
            tls,
            listening,
            poller,
            ready: Vec::new(),
            waiter: Waiter::on_credit(WaitLimits { patience_ns_max, ..WaitLimits::of_this_process() }),
            commands,
            control: self.control.clone(),
            changes: Arc::clone(&self.changes),
            told: 0,
            names: Arc::clone(&self.names),
            reports: Reports::default(),
            samples,
            load,
            tax: self.tax_setup(config),
            wall_clock_set_by_ns: config.debug.wall_clock_set_by_us.saturating_mul(1000),
            beside_rang: false,
            thread_is_ordered: false,
            crossings,
            stopping: false,
            ordered_to_stand: None,
            resumes: None,
            pressing: false,
            turns_unlooked: 0,
            full_looks: 0,
            sockets_worked: now(),
            choked: Vec::new(),
            buffers: Buffers::new(),
        };
        self.names.add_shard(sender.clone());
        places.unidentified.add_shard(sender.clone());
        self.shards.push(sender);
        Ok(shard)
    }

    fn tax_setup(&self, config: &Config) -> TaxSetup {
        TaxSetup { one_in: config.recorder.tax_rounds, spin: config.debug.spin(), times: self.tax.clone() }
    }

    pub(crate) fn shards(&self) -> &[ShardSender] {
        &self.shards
    }

    pub(crate) fn tell_control(&self, message: ControlMessage) {
        let _ = self.control.messages.send(message);
        self.control.waker.wake();
    }

    fn stop_threads(&mut self) {
        self.names.stop();
        // Applications hear of the end from the shards. Without a control thread there are none.
        let (given, connections_given) = channel();
        self.tell_control(ControlMessage::Stop(given));
        let _ = connections_given.recv();
        for shard in &self.shards {
            shard.send(Command::Stop);
        }
        self.threads.join();
        self.samples.take().into_iter().for_each(SampleThread::end);
    }
}

fn new_wakers(count: usize) -> io::Result<Vec<Arc<Waker>>> {
    (0..count).map(|_| Ok(Arc::new(Waker::new()?))).collect()
}

/// An engine of this configuration; with what was handed over, if anything was.
fn make_engine(
    index: usize,
    shared: &Arc<HostLimits>,
    config: &Config,
    inherited: Option<&InheritedShard>,
) -> Result<Engine, StartError> {
    let gateway = config.gateway.settings().map_err(StartError::Schemas)?;
    let engine = fresh_engine(index, shared, config, gateway);
    let Some(inherited) = inherited else { return Ok(engine) };
    if inherited.state.is_empty() {
        // The other daemon had fewer shards.
        return Ok(engine);
    }
    let taken = take_over(engine, &inherited.state, &inherited.schemas);
    Ok(taken.map_err(|error| TakeOverError::Broken(error.to_string()))?)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Makes shards whose threads have not begun, for tests that say what each does when.
    use super::*;
    use trunkline_engine::SessionKey;
    use trunkline_shm::{AppEnd, SessionConfig, create_session, open_session};

    /// As many shards as this configuration says. They may work as long as the daemon lives.
    pub(crate) fn shards_at_rest(config: &str) -> (Daemon, Vec<Shard>) {
        let (_, daemon, shards) = all_at_rest(config);
        (daemon, shards)
    }

    /// The same, with where orders for their threads come.
    pub(crate) fn threaded_at_rest(config: &str) -> (Daemon, Vec<Threaded>) {
        let config = Config::from_toml(config, "test").unwrap();
        let prepared = Daemon::prepare(config, (None, None), Endpoints::default(), None);
        let Ok(Prepared { daemon, shards, .. }) = prepared else { panic!("shards can be made") };
        (daemon, shards)
    }

    /// The same, with the control thread's part, which is to be dropped first.
    pub(crate) fn all_at_rest(config: &str) -> (Control, Daemon, Vec<Shard>) {
        let config = Config::from_toml(config, "test").unwrap();
        let prepared = Daemon::prepare(config, (None, None), Endpoints::default(), None);
        let Ok(Prepared { control, daemon, shards, .. }) = prepared else { panic!("shards can be made") };
        (control, daemon, shards.into_iter().map(|threaded| threaded.shard).collect())
    }

    /// Attaches an application of this name to a shard, with heaps of a mebibyte: its session, and its end of it.
    pub(crate) fn attach(shard: &mut Shard, name: &str) -> (SessionKey, AppEnd) {
        let config =
            SessionConfig { send_heap_bytes: 1 << 20, receive_heap_bytes: 1 << 20, ..<_>::default() };
        attach_as(shard, name, &config)
    }

    /// The same, with rings and heaps as it likes.
    pub(crate) fn attach_as(shard: &mut Shard, name: &str, config: &SessionConfig) -> (SessionKey, AppEnd) {
        let (end, fds) = create_session(config).unwrap();
        let app = open_session(fds, config).unwrap();
        let (reply, attached) = std::sync::mpsc::channel();
        shard.obey(Command::Attach {
            end: Box::new(end),
            label: name.to_owned(),
            identity: "uid:1".to_owned(),
            program: String::new(),
            cgroup: String::new(),
            stands_by: false,
            tells_callers: false,
            reply,
        });
        (attached.recv().unwrap(), app)
    }
}
