//! The running daemon as the admin API sees it.

use crate::admin::{Facts, Host};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Instant;
use trunkline_daemon::{Daemon, Observation};
use trunkline_policy::{Definition, PolicyError, PolicyRow};
use trunkline_telemetry::Ask;

/// A daemon of this process.
pub struct DaemonHost {
    /// Itself.
    pub daemon: Arc<Daemon>,
    /// Its name.
    pub node: String,
    /// Where applications attach.
    pub socket: PathBuf,
    /// Where changes are written down.
    pub audit_log: PathBuf,
    /// When it was started.
    pub started: Instant,
}

/// Weak, so that a worker of the admin API that has yet to notice its end does not keep the daemon from its own.
impl Host for Weak<DaemonHost> {
    fn observe(&self, ask: &Ask) -> Vec<Observation> {
        self.upgrade().map_or_else(Vec::new, |host| host.daemon.observe(ask))
    }

    fn policies(&self) -> Vec<PolicyRow> {
        self.upgrade().map_or_else(Vec::new, |host| host.daemon.policies())
    }

    fn apply_policies(&self, definitions: &[Definition], dry_run: bool) -> Result<Vec<String>, PolicyError> {
        self.upgrade().map_or(Ok(Vec::new()), |host| host.daemon.apply_policies(definitions, dry_run))
    }

    fn facts(&self) -> Facts {
        self.upgrade().map_or_else(Facts::default, |host| host.facts())
    }
}

impl DaemonHost {
    fn facts(&self) -> Facts {
        Facts {
            node: self.node.clone(),
            uptime_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            socket: self.socket.display().to_string(),
            listening: self.daemon.endpoints().to_vec(),
            resident_bytes: resident_bytes(),
        }
    }
}

/// Memory of this process, from proc(5) statm; 0 where there is none.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
