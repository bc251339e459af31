//! Keys and certificates: loaded at the start, and again when they change.
//!
//! The control thread looks every few seconds: at files, or at what the Workload API has told (`workload_api.rs`).
//! Shards get what was loaded by a command. Orchestrators replace files by renaming folders or links, which a watch on
//! the file itself would miss.

use crate::config::Tls;
use crate::workload_api::WorkloadApi;
use std::io;
use std::time::Duration;
use trunkline_net::{Svid, TlsClient, TlsError, TlsServer, TlsWatch};

/// How often is looked. Certificates live for hours at least, and two calls of `stat` cost nothing.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long a daemon that begins waits for an agent's first word.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(5);
/// The same for one that goes on in another's place: callers wait for it.
pub(crate) const TAKEOVER_PATIENCE: Duration = Duration::from_millis(250);

/// Keys and certificates connections are made with; replaced when the files change.
#[derive(Clone, Default)]
pub(crate) struct TlsKeys {
    pub server: Option<TlsServer>,
    pub client: Option<TlsClient>,
    pub is_required: bool,
}

/// What is configured, and where it comes from.
pub(crate) struct KeySource {
    tls: Tls,
    from: From,
    /// Why the files could not be used when they were last read; empty if they could.
    failed: String,
}

enum From {
    /// Files, and what was seen of them.
    Files(Vec<TlsWatch>),
    /// An agent, and which of its answers is in use.
    Agent(WorkloadApi, u64),
}

impl KeySource {
    /// Begins to look.
    ///
    /// # Errors
    /// No thread can be had to ask the Workload API.
    pub fn new(tls: Tls) -> io::Result<Self> {
        let from = match &tls.workload_api.0 {
            Some(agent) => From::Agent(WorkloadApi::ask(agent.clone())?, 0),
            None => {
                let server = tls.server().map(|files| files.watch());
                From::Files(server.into_iter().chain([tls.client().watch()]).collect())
            }
        };
        Ok(Self { tls, from, failed: String::new() })
    }

    /// Loads everything. An agent is waited for so long; one that has told nothing by then is waited for without
    /// anybody standing still, and until then no connection with TLS is made or taken.
    ///
    /// # Errors
    /// What is wrong with the files that are named in the configuration.
    pub fn load(&mut self, patience: Duration) -> Result<TlsKeys, TlsError> {
        let From::Agent(agent, used) = &mut self.from else { return of_files(&self.tls) };
        let keys = agent.newest(patience).and_then(|(svid, number)| {
            *used = number;
            of_svid(&self.tls, &svid)
        });
        Ok(keys.unwrap_or_else(|why| {
            tracing::error!(agent = %self.tls.workload_api, %why, "no certificate yet: no TLS until there is one");
            TlsKeys { server: None, client: None, is_required: self.tls.required }
        }))
    }

    /// Loads everything if it has changed. The old keys stay in use if the new ones cannot be: a certificate and its
    /// key are two files, and seldom change at the same instant.
    pub fn reload(&mut self) -> Option<TlsKeys> {
        let loaded = match &mut self.from {
            // Each is asked, so that each forgets what it saw before.
            From::Files(watches) => watches
                .iter_mut()
                .fold(false, |changed, watch| changed | watch.has_changed())
                .then(|| of_files(&self.tls).map_err(|error| error.to_string())),
            From::Agent(agent, used) => {
                let (svid, number) = agent.newest(Duration::ZERO).ok()?;
                (std::mem::replace(used, number) != number).then(|| of_svid(&self.tls, &svid))
            }
        };
        match loaded? {
            Ok(keys) => {
                self.failed.clear();
                tracing::info!("keys and certificates loaded anew");
                Some(keys)
            }
            Err(error) => {
                if let From::Files(watches) = &mut self.from {
                    watches.iter_mut().for_each(TlsWatch::try_again);
                }
                // Tried at each look, and told once.
                if self.failed != error {
                    tracing::error!(%error, "keys and certificates not loaded anew; the old ones stay in use");
                    self.failed = error;
                }
                None
            }
        }
    }

    /// Whether there is anything to look at.
    pub fn is_empty(&self) -> bool {
        matches!(&self.from, From::Files(watches) if watches.iter().all(TlsWatch::is_empty))
    }
}

/// Loads what files have. Without roots, nothing can be called with `tls://`; that is told when somebody does.
///
/// # Errors
/// What is wrong with the files that are named in the configuration.
pub(crate) fn of_files(tls: &Tls) -> Result<TlsKeys, TlsError> {
    let server = tls.server().map(|files| TlsServer::load(&files)).transpose()?;
    let client = match TlsClient::load(&tls.client()) {
        Ok(client) => Some(client),
        Err(TlsError::NoRoots { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(TlsKeys { server, client, is_required: tls.required })
}

fn of_svid(tls: &Tls, svid: &Svid) -> Result<TlsKeys, String> {
    let (server, client) = svid.keys(tls.versions(), tls.client_certificate_optional)?;
    Ok(TlsKeys { server: Some(server), client: Some(client), is_required: tls.required })
}
