//! The daemon, as far as it is asked here; and what was asked once and holds until it changes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use trunkline_daemon::{Daemon, Observation, Services, Watcher};
use trunkline_telemetry::Ask;

/// A daemon that may be asked.
pub trait Host: Clone + Send + Sync + 'static {
    /// What is served.
    fn services(&self) -> Services;
    /// Waits for changes of that; `None` when the daemon is gone.
    fn watch(&self) -> Option<Watcher>;
    /// What every shard knows, in order.
    fn observe(&self, ask: &Ask) -> Vec<Observation>;
    /// Where others reach it.
    fn listening(&self) -> Vec<String>;
}

/// Weak, so that a service that has yet to notice its end does not keep the daemon from its own.
impl Host for Weak<Daemon> {
    fn services(&self) -> Services {
        self.upgrade().map_or_else(Services::gone, |daemon| daemon.services())
    }

    fn watch(&self) -> Option<Watcher> {
        self.upgrade().map(|daemon| daemon.watch())
    }

    fn observe(&self, ask: &Ask) -> Vec<Observation> {
        self.upgrade().map_or_else(Vec::new, |daemon| daemon.observe(ask))
    }

    fn listening(&self) -> Vec<String> {
        self.upgrade().map_or_else(Vec::new, |daemon| daemon.endpoints().to_vec())
    }
}

/// Something made from what is served, made anew when that has changed.
pub(crate) struct Kept<H, T> {
    host: H,
    state: Mutex<Option<(Watcher, Arc<T>)>>,
}

impl<H: Host, T> Kept<H, T> {
    pub fn new(host: H) -> Self {
        Self { host, state: Mutex::new(None) }
    }

    pub fn host(&self) -> &H {
        &self.host
    }

    /// What holds now. `make` gets what was made before, too.
    pub fn get(&self, make: impl FnOnce(Services, Option<&T>) -> T) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((watcher, made)) = &mut *state
            && !watcher.has_changed()
        {
            return Arc::clone(made);
        }
        // Watched before it is asked: a change in between is seen next time.
        let watcher = self.host.watch();
        let before = state.take().map(|(_, made)| made);
        let made = Arc::new(make(self.host.services(), before.as_deref()));
        *state = watcher.map(|watcher| (watcher, Arc::clone(&made)));
        made
    }
}
