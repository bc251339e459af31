//! What a daemon says about itself, and what it may be told to do: what the services ask.

use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline_daemon::{ChangeError, Observation, PoliciesKept, TakenOver};
use trunkline_policy::{Definition, PolicyRow};
use trunkline_telemetry::{Ask, CallsAnswer, CallsAsk, Entry, TaxTotals};

/// A daemon, as far as it is asked about itself.
pub trait Host: Send + Sync + 'static {
    /// What every shard knows, in order.
    fn observe(&self, ask: &Ask) -> Vec<Observation>;
    /// The same, and what readers of counters are told of all shards' series, which are taken out.
    fn observe_counters(&self) -> (Vec<Observation>, Vec<Entry>);
    /// Calls of every shard one by one, by the shard's place.
    fn calls(&self, ask: &dyn Fn(usize) -> CallsAsk) -> Vec<CallsAnswer>;
    /// What does not depend on a shard.
    fn facts(&self) -> Facts;
    /// The chain at work.
    fn policies(&self) -> Vec<PolicyRow>;
    /// How far a replacement of it is.
    fn upgrade_state(&self) -> UpgradeState;
    /// The program that goes on in its place: this one, or its own.
    fn successor(&self, asked: Option<&Path>) -> PathBuf;
    /// Begins to replace it.
    ///
    /// # Errors
    /// Why not.
    fn begin_upgrade(&self, wish: UpgradeWish) -> Result<(), String>;
    /// Has all sessions of an application go to a shard. How many went.
    ///
    /// # Errors
    /// Why not, or not all.
    fn move_application(&self, application: &str, shard: usize) -> Result<usize, String>;
    /// Puts a chain to work, or only says whether it would do. Policies of these names were written anew; modules of
    /// others stay as they are. Returns which modules are upgraded with it, in words.
    ///
    /// # Errors
    /// What is wrong with it; nothing has changed then.
    fn edit_policies(
        &self,
        definitions: &[Definition],
        written: &[String],
        dry_run: bool,
    ) -> Result<Vec<String>, ChangeError>;
    /// What becomes of this chain, the one at work, when the daemon ends.
    fn policies_kept(&self, at_work: &[Definition]) -> PoliciesKept;
}

/// What a daemon knows about itself as a process.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Name shown to peers.
    pub node: String,
    /// Time since it started, in nanoseconds.
    pub uptime_ns: u64,
    /// Where applications attach.
    pub socket: String,
    /// Where other daemons reach it.
    pub listening: Vec<String>,
    /// Where operators reach it.
    pub admin_listening: Vec<String>,
    /// Where gRPC clients have their calls forwarded.
    pub gateway_listening: Vec<String>,
    /// Services whose endpoints its configuration names.
    pub services: Vec<String>,
    /// Memory of its process, in bytes.
    pub resident_bytes: u64,
    /// What the processor time of its shards' threads went into.
    pub tax: TaxTotals,
}

/// What a replacement is to be.
#[derive(Clone, Debug)]
pub struct UpgradeWish {
    /// The program; the running one's file if nobody said.
    pub binary: Option<PathBuf>,
    /// Time gRPC connections get.
    pub grace: Duration,
    /// Who asked, for the audit log.
    pub identity: String,
}

/// How far a replacement is.
#[derive(Clone, Debug, Default)]
pub struct UpgradeState {
    /// It goes on.
    pub under_way: bool,
    /// What has happened, in words.
    pub steps: Vec<String>,
    /// Why the last one failed.
    pub failure: String,
    /// What this daemon took over itself.
    pub taken: Option<TakenOver>,
}
