//! The keys of `[tls]` for a program beside the daemon that serves TLS of its own.

use crate::config::Tls;
use crate::keys::KeySource;
use std::fmt;
use std::io;
use trunkline_net::TlsServer;

/// The certificate and key that `[tls]` names, and whom they believe; looked at again now and then.
pub struct ServerKeys {
    source: KeySource,
}

impl ServerKeys {
    /// Begins to look, and loads them. An agent of the Workload API is waited for some seconds.
    ///
    /// # Errors
    /// What is wrong with the files, that there is no certificate, or that the system has no thread to spare.
    pub fn load(tls: &Tls) -> io::Result<(Self, TlsServer)> {
        let (source, keys) = KeySource::begin(tls.clone()).map_err(io::Error::other)?;
        let server =
            keys.server.ok_or_else(|| io::Error::other("there is no certificate (tls.certificate)"))?;
        Ok((Self { source }, server))
    }

    /// Other keys, if there are any by now.
    pub fn renewed(&mut self) -> Option<TlsServer> {
        self.source.reload()?.server
    }
}

impl fmt::Debug for ServerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKeys").finish_non_exhaustive()
    }
}
