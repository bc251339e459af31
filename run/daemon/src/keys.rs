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
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Keys and certificates connections are made with; replaced when the files change.
#[derive(Clone, Default)]
pub(crate) struct TlsKeys {
    pub server: Option<TlsServer>,
    pub client: Option<TlsClient>,
    pub is_required: bool,
}

/// Why there are no keys to begin with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySourceError {
    /// No thread can be had to ask the Workload API.
    #[error(transparent)]
    System(#[from] io::Error),
    /// What is wrong with the files that are named in the configuration.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The agent gives a daemon that is to succeed another no certificate.
    #[error("{agent} tells no certificate: {why}")]
    Agent {
        /// Where it is asked.
        agent: String,
        /// Why it tells none.
        why: String,
    },
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
    /// Of a daemon that starts: an agent that does not answer is waited for while it serves.
    ///
    /// # Errors
    /// [`KeySourceError`], but for the agent.
    pub fn begin(tls: Tls) -> Result<(Self, TlsKeys), KeySourceError> {
        let mut this = Self::new(tls)?;
        let loaded = this.load(START_PATIENCE)?;
        Ok((this, loaded))
    }

    /// Of a daemon that is to go on in another's place, before that one stands still. With an agent that does not
    /// answer it would have no certificate, where the other has one.
    ///
    /// # Errors
    /// [`KeySourceError`].
    pub fn of_successor(tls: Tls) -> Result<(Self, TlsKeys), KeySourceError> {
        let agent = tls.workload_api.to_string();
        let mut this = Self::new(tls)?;
        let loaded = match this.ask(START_PATIENCE) {
            Some(asked) => asked.map_err(|why| KeySourceError::Agent { agent, why })?,
            None => of_files(&this.tls)?,
        };
        Ok((this, loaded))
    }

    /// Begins to look.
    ///
    /// # Errors
    /// No thread can be had to ask the Workload API.
    fn new(tls: Tls) -> io::Result<Self> {
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
    fn load(&mut self, patience: Duration) -> Result<TlsKeys, TlsError> {
        let Some(asked) = self.ask(patience) else { return of_files(&self.tls) };
        Ok(asked.unwrap_or_else(|why| {
            tracing::error!(agent = %self.tls.workload_api, %why, "no certificate yet: no TLS until there is one");
            TlsKeys { server: None, client: None, is_required: self.tls.required }
        }))
    }

    /// What an agent tells first, within so long, or why it tells nothing. `None` where there are files.
    fn ask(&mut self, patience: Duration) -> Option<Result<TlsKeys, String>> {
        let From::Agent(agent, used) = &mut self.from else { return None };
        Some(agent.newest(patience).and_then(|(svid, number)| {
            *used = number;
            of_svid(&self.tls, &svid)
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

#[cfg(test)]
mod tests {
    //! Shows that a daemon that starts waits for its agent while it serves, and one that succeeds another is refused.
    use super::*;
    use crate::config::Config;

    #[test]
    fn an_agent_that_is_away_keeps_a_successor_from_taking_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("agent.sock");
        let text = format!("[tls]\nworkload_api = \"unix:{}\"\n", at.display());
        let tls = Config::from_toml(&text, "test").unwrap().tls;
        let why = KeySource::of_successor(tls.clone()).err().unwrap().to_string();
        assert!(why.starts_with(&format!("unix://{} tells no certificate: ", at.display())), "{why}");
        assert!(why.contains("cannot be reached"), "{why}");
        assert!(KeySource::begin(tls).unwrap().1.server.is_none());
    }
}
