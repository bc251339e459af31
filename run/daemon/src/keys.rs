//! Keys and certificates: loaded at the start, and again when their files change.
//!
//! The control thread looks at the files every few seconds; shards get what was loaded by a command. Orchestrators
//! replace such files by renaming folders or links, which a watch on the file itself would miss.

use crate::config::Tls;
use crate::pending::TlsKeys;
use std::time::Duration;
use trunkline_net::{TlsClient, TlsError, TlsServer, TlsWatch};

/// How often the files are looked at. Certificates live for hours at least, and two calls of `stat` cost nothing.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What is configured, and what was seen of it.
pub(crate) struct KeyFiles {
    tls: Tls,
    watches: Vec<TlsWatch>,
}

impl KeyFiles {
    pub fn new(tls: Tls) -> Self {
        let server = tls.server().map(|files| files.watch());
        let watches = server.into_iter().chain([tls.client().watch()]).collect();
        Self { tls, watches }
    }

    /// Loads everything. Without roots, nothing can be called with `tls://`; that is told when somebody does.
    ///
    /// # Errors
    /// What is wrong with the files that are named in the configuration.
    pub fn load(&self) -> Result<TlsKeys, TlsError> {
        let server = self.tls.server().map(|files| TlsServer::load(&files)).transpose()?;
        let client = match TlsClient::load(&self.tls.client()) {
            Ok(client) => Some(client),
            Err(TlsError::NoRoots { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(TlsKeys { server, client, is_required: self.tls.required })
    }

    /// Loads everything if a file has changed. The old keys stay in use if the new ones cannot be: a certificate and
    /// its key are two files, and seldom change at the same instant.
    pub fn reload(&mut self) -> Option<TlsKeys> {
        // Each is asked, so that each forgets what it saw before.
        if !self.watches.iter_mut().fold(false, |changed, watch| changed | watch.has_changed()) {
            return None;
        }
        match self.load() {
            Ok(keys) => {
                tracing::info!("keys and certificates loaded anew");
                Some(keys)
            }
            Err(error) => {
                tracing::error!(%error, "keys and certificates not loaded anew; the old ones stay in use");
                None
            }
        }
    }

    /// Whether there is anything to look at.
    pub fn is_empty(&self) -> bool {
        self.watches.iter().all(TlsWatch::is_empty)
    }
}
