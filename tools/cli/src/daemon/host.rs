//! The running daemon as the admin API sees it.

use super::program::successor;
use crate::admin::{Chronicle, Facts, Host, UpgradeState, UpgradeWish};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use trunkline_daemon::{ChangeError, Daemon, Observation, PoliciesKept, PoliciesSource};
use trunkline_policy::{Definition, PolicyRow};
use trunkline_telemetry::{Ask, CallsAnswer, CallsAsk, Entry, Snapshot, ToldApart};

/// A daemon of this process.
pub struct DaemonHost {
    /// Itself.
    pub daemon: Arc<Daemon>,
    /// Its name.
    pub node: String,
    /// Where applications attach.
    pub socket: PathBuf,
    /// Services whose endpoints its configuration names.
    pub services: Vec<String>,
    /// Where changes are written down.
    pub audit_log: PathBuf,
    /// What was counted when.
    pub history: Chronicle,
    /// Which series whoever reads counters is told of one by one.
    pub told_apart: Mutex<ToldApart>,
    /// When it was started.
    pub started: Instant,
    /// How far its replacement is.
    pub upgrade: Mutex<UpgradeState>,
    /// Who carries orders out.
    pub orders: Sender<Order>,
}

/// What the process is to do.
#[derive(Debug)]
pub enum Order {
    /// Look again at what is waited for.
    Look,
    /// End, because of this.
    End(&'static str),
    /// Hand over to another process.
    Upgrade(UpgradeWish),
}

/// Weak, so that a worker of the admin API that has yet to notice its end does not keep the daemon from its own.
impl Host for Weak<DaemonHost> {
    fn observe(&self, ask: &Ask) -> Vec<Observation> {
        self.upgrade().map_or_else(Vec::new, |host| host.daemon.observe(ask))
    }

    fn calls(&self, ask: &dyn Fn(usize) -> CallsAsk) -> Vec<CallsAnswer> {
        self.upgrade().map_or_else(Vec::new, |host| host.daemon.calls(ask))
    }

    fn observe_counters(&self) -> (Vec<Observation>, Vec<Entry>) {
        self.upgrade().map_or_else(Default::default, |host| host.observe_counters())
    }

    fn policies(&self) -> Vec<PolicyRow> {
        self.upgrade().map_or_else(Vec::new, |host| host.daemon.policies())
    }

    fn edit_policies(
        &self,
        definitions: &[Definition],
        written: &[String],
        dry_run: bool,
    ) -> Result<Vec<String>, ChangeError> {
        self.upgrade().map_or(Ok(Vec::new()), |host| host.daemon.edit_policies(definitions, written, dry_run))
    }

    fn policies_kept(&self, at_work: &[Definition]) -> PoliciesKept {
        let gone = || PoliciesKept { source: PoliciesSource::Changes, file: None, set_aside: Vec::new() };
        self.upgrade().map_or_else(gone, |host| host.daemon.policies_kept(at_work))
    }

    fn upgrade_state(&self) -> UpgradeState {
        self.upgrade().map_or_else(UpgradeState::default, |host| host.upgrading().clone())
    }

    fn successor(&self, asked: Option<&Path>) -> PathBuf {
        successor(asked)
    }

    fn begin_upgrade(&self, wish: UpgradeWish) -> Result<(), String> {
        let host = self.upgrade().ok_or("the daemon ends")?;
        let mut state = host.upgrading();
        if state.under_way {
            return Err("a replacement is under way already".into());
        }
        *state = UpgradeState { under_way: true, taken: state.taken, ..UpgradeState::default() };
        drop(state);
        host.orders.send(Order::Upgrade(wish)).map_err(|_| "the daemon ends".to_owned())
    }

    fn move_application(&self, application: &str, shard: usize) -> Result<usize, String> {
        self.upgrade().ok_or("the daemon ends")?.daemon.move_application(application, shard)
    }

    fn facts(&self) -> Facts {
        self.upgrade().map_or_else(Facts::default, |host| host.facts())
    }
}

impl DaemonHost {
    /// The state of its replacement.
    pub fn upgrading(&self) -> MutexGuard<'_, UpgradeState> {
        self.upgrade.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe_counters(&self) -> (Vec<Observation>, Vec<Entry>) {
        // Until it is told: what was seen before somebody else's look is less than they were told.
        let mut told_apart = self.told_apart();
        let mut shards = self.daemon.observe(&Ask::default());
        let mut all = Snapshot::default();
        shards.iter_mut().for_each(|shard| all.merge(std::mem::take(&mut shard.telemetry)));
        let series = told_apart.tell(all.series, shards.len());
        (shards, series)
    }

    /// Which series are told of one by one.
    pub fn told_apart(&self) -> MutexGuard<'_, ToldApart> {
        self.told_apart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self) -> Facts {
        Facts {
            node: self.node.clone(),
            uptime_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            socket: self.socket.display().to_string(),
            listening: self.daemon.endpoints().to_vec(),
            admin_listening: self.daemon.admin_endpoints().to_vec(),
            gateway_listening: self.daemon.gateway_endpoints().to_vec(),
            services: self.services.clone(),
            resident_bytes: resident_bytes(),
            tax: self.daemon.tax(),
        }
    }
}

/// Memory of this process, from proc(5) statm; 0 where there is none.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
