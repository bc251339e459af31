//! How R2P2 is spoken, as the host says.

use crate::limits::Limits;
use core::net::SocketAddrV4;
use trunkline_r2p2::{Config, Mode};

/// How R2P2 is spoken.
#[derive(Clone, Debug)]
pub struct R2p2Settings {
    /// What may be said beyond the authors' protocol.
    pub mode: Mode,
    /// Whether requests are served; the host then has the server's port.
    pub serves: bool,
    /// Control ports of the routers requests may come from.
    pub routers: Vec<SocketAddrV4>,
    /// Requests worked on at once: what routers are told.
    pub slots: u16,
}

/// One of the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum R2p2Port {
    /// Where replies arrive.
    Client,
    /// Where requests arrive.
    Server,
}

impl Default for R2p2Settings {
    fn default() -> Self {
        Self { mode: Mode::Offer, serves: false, routers: Vec::new(), slots: 1 }
    }
}

impl R2p2Settings {
    /// What the ports are told.
    pub(crate) fn config(&self, limits: &Limits) -> Config {
        let default = Config::default();
        Config {
            mode: self.mode,
            routers: self.routers.clone(),
            slots: self.slots.max(1),
            message_bytes_max: default.message_bytes_max.min(limits.message_bytes as usize),
            stall_ns: limits.message_stall_ns().unwrap_or(0),
            held_bytes_per_peer_max: limits.held_bytes_per_source,
            held_bytes_max: limits.held_bytes,
            ..default
        }
    }
}
