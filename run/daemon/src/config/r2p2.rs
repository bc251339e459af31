//! `[r2p2]`: requests and replies over datagrams.

use super::UdpAddress;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use trunkline_net::{KeyFileError, read_key_file};
use trunkline_r2p2::{SEAL_KEYS_MAX, SealKeys};

/// `[r2p2]`: requests and replies over datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct R2p2 {
    /// Where requests are served. Empty: nowhere.
    pub listen: UdpAddress,
    /// What may be said beyond the authors' protocol.
    pub mode: R2p2Mode,
    /// File of the keys this cluster's hosts share: one a line. Empty: datagrams prove nothing.
    pub key_file: PathBuf,
    /// Control ports of the routers requests may come from.
    pub routers: Vec<SocketAddrV4>,
    /// Requests worked on at once, as routers are told. Zero: as many as there are processors.
    pub slots: u16,
}

/// What may be said beyond the protocol of R2P2's authors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum R2p2Mode {
    /// The extended mode is shown, and spoken with whoever shows it, too.
    #[default]
    Offer,
    /// It is spoken from the first datagram on: every server and router named understands it.
    Extended,
    /// Nothing.
    Compatible,
}

impl R2p2 {
    /// The keys of the cluster, if there are any.
    ///
    /// # Errors
    /// What is wrong with their file.
    pub fn keys(&self) -> Result<Option<SealKeys>, KeyFileError> {
        if self.key_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let keys = read_key_file(&self.key_file, SealKeys::BYTES_MIN, SEAL_KEYS_MAX)?;
        Ok(SealKeys::new(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }
}
