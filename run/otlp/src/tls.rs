//! Whom a collector must prove to be, and what it is shown of the daemon.

use std::io;
use trunkline_net::{ClientFiles, TlsClient, TlsError, TlsWatch};

/// What connections to a collector are made with; replaced when the files change.
#[derive(Debug)]
pub(crate) struct CollectorTls {
    files: ClientFiles,
    watch: TlsWatch,
    client: TlsClient,
    /// Why the files could not be used when they were last read; empty if they could.
    failed: String,
}

impl CollectorTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: ClientFiles) -> Result<Self, TlsError> {
        // Looked at first: what changes while they are read is read once more.
        let watch = files.watch();
        let client = TlsClient::load(&files)?;
        Ok(Self { files, watch, client, failed: String::new() })
    }

    /// For the next connection.
    pub fn client(&self) -> &TlsClient {
        &self.client
    }

    /// Reads the files again if they have changed. The old ones stay in use while the new ones cannot be: a certificate
    /// and its key are two files, and seldom change at the same instant.
    pub fn renew(&mut self) {
        if !self.watch.has_changed() {
            return;
        }
        match TlsClient::load(&self.files) {
            Ok(client) => {
                self.client = client;
                self.failed.clear();
                tracing::info!("keys and certificates loaded anew");
            }
            Err(error) => {
                self.watch.try_again();
                let error = error.to_string();
                // Tried for each connection, and told once.
                if self.failed != error {
                    tracing::error!(%error, "keys and certificates not loaded anew; the old ones stay in use");
                    self.failed = error;
                }
            }
        }
    }

    /// Why there is no TLS with a collector, and what says whom it is believed by.
    pub fn told(&self, error: &io::Error) -> io::Error {
        let roots = match &self.files.ca {
            Some(path) => format!("the roots in {}, otlp.ca", path.display()),
            None => "the system's roots, as otlp.ca is empty".to_owned(),
        };
        io::Error::new(error.kind(), format!("no TLS with it: {error} (by {roots})"))
    }
}
