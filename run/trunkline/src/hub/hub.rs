//! A hub: its lanes, and which of them a thread calls through.

use super::dial::Daemon;
use super::handle::ReactorHandle;
use super::lane::{Lane, LaneFound, Patience, Role};
use super::pool::LanePool;
use super::reactor;
use crate::kick::Kick;
use crate::session::HubId;
use crate::settings;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_shm::{ForkGuard, PerProcess};

/// Most sessions leased to blocking threads. Each costs the daemon a session and this process some tens of KiB; more
/// threads than cores cannot wait for replies at the same time anyway.
const THREAD_LANES_MAX: usize = 8;

/// The hubs of this process.
static HUBS: PerProcess<Mutex<Vec<Arc<Hub>>>> = PerProcess::new();

/// The way to one daemon.
#[derive(Debug)]
pub(crate) struct Hub {
    daemon: Daemon,
    name: Arc<str>,
    /// For threads that wait.
    threads: LanePool,
    /// For tasks of other executors, by the threads that poll them.
    tasks: LanePool,
    reactor: Arc<ReactorHandle>,
    guard: ForkGuard,
}

impl Hub {
    /// The hub of this process for `daemon`; made if there is none. The first user's `name` is the one operators see.
    pub(crate) fn of(daemon: Daemon, name: &str) -> Arc<Self> {
        let mut hubs = HUBS.get().lock();
        if let Some(hub) = hubs.iter().find(|hub| hub.daemon == daemon) {
            return Arc::clone(hub);
        }
        let hub = Self::new(daemon, name);
        hubs.push(Arc::clone(&hub));
        hub
    }

    /// This hub, or in a forked child the one that stands for it there.
    pub(crate) fn here(self: &Arc<Self>) -> Cow<'_, Arc<Self>> {
        if !self.guard.is_foreign() {
            return Cow::Borrowed(self);
        }
        self.reactor.close_inherited();
        Cow::Owned(Self::of(self.daemon.clone(), &self.name))
    }

    fn new(daemon: Daemon, name: &str) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let reactor = ReactorHandle::new(daemon.clone(), reactor::start);
        let name: Arc<str> = name.into();
        let threads = LanePool::new(&name, cores.min(THREAD_LANES_MAX));
        let tasks = LanePool::new(&name, settings::task_sessions(cores));
        Arc::new(Self { daemon, name, threads, tasks, reactor, guard: ForkGuard::new() })
    }

    /// Lanes for threads that wait.
    pub(crate) fn threads(&self) -> &LanePool {
        &self.threads
    }

    /// Lanes for tasks of other executors.
    pub(crate) fn tasks(&self) -> &LanePool {
        &self.tasks
    }

    /// Attaches a lane for which nobody waits, unless that is being done, or failed a moment ago.
    pub(crate) fn attach_in_background(&self, lane: &Arc<Lane>) {
        let mut state = lane.lock();
        let failures = state.failures();
        if matches!(state.find(Patience::FailFast, failures), LaneFound::Attach)
            && self.reactor.attach(lane).is_ok()
        {
            state.attaching();
        }
    }

    /// A lane of its own for a server's worker, whose thread `kick` wakes.
    pub(crate) fn worker_lane(&self, name: &str, kick: Arc<Kick>, role: Role) -> Arc<Lane> {
        Lane::of_worker(&name.into(), kick, role)
    }

    /// The thread that attaches, listens and keeps timers.
    pub(crate) fn reactor(&self) -> &Arc<ReactorHandle> {
        &self.reactor
    }

    /// What this hub's sessions know it by.
    pub(crate) fn id(&self) -> HubId {
        self.reactor.hub()
    }

    /// Whether this hub is that of the parent of this forked process.
    pub(crate) fn is_foreign(&self) -> bool {
        self.guard.is_foreign()
    }
}
