//! The daemon inside this process: the same engine, started when first needed, configured by `TRUNKLINE_CONFIG`.

use crate::refusals::unavailable;
use parking_lot::Mutex;
use trunkline_call::Status;
use trunkline_daemon::{Config, Daemon};
use trunkline_shm::{ControlSocket, PerProcess};

/// Environment variable that names the embedded daemon's configuration file, for those who serve other hosts without a
/// daemon of their own.
const CONFIG_VARIABLE: &str = "TRUNKLINE_CONFIG";

/// This process's daemon. Leaked on purpose: applications may call until the very end of the process. A forked child
/// has the memory of its parent's daemon and none of its threads, so it starts one of its own.
static DAEMON: PerProcess<Mutex<Option<&'static Daemon>>> = PerProcess::new();

/// A fresh control connection to it.
///
/// # Errors
/// UNAVAILABLE, not executed, if it cannot be started: what is wrong with the configuration, or what the kernel says.
pub(crate) fn connect() -> Result<ControlSocket, Status> {
    let mut slot = DAEMON.get().lock();
    let daemon = match *slot {
        Some(daemon) => daemon,
        None => slot.insert(Box::leak(Box::new(start()?))),
    };
    daemon.connect().map_err(|error| unavailable(&format!("embedded daemon: {error}")))
}

fn start() -> Result<Daemon, Status> {
    // Empty is as good as unset, as for the daemon.
    let config = match std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
        None => Config::default(),
        Some(path) => {
            let path = path.to_string_lossy();
            let text = std::fs::read_to_string(&*path).map_err(|e| unavailable(&format!("{path}: {e}")))?;
            Config::from_toml(&text, &path).map_err(|e| unavailable(&e.to_string()))?
        }
    };
    Daemon::embedded(config).map_err(|error| unavailable(&format!("embedded daemon: {error}")))
}
