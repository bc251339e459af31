//! `[r2p2]`: requests and replies over datagrams.

use super::UdpAddress;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// `[r2p2]`: requests and replies over datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct R2p2 {
    /// Where requests are served. Empty: nowhere.
    pub listen: UdpAddress,
    /// What may be said beyond the authors' protocol.
    pub mode: R2p2Mode,
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
