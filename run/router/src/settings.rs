//! What a router is told at its start.

use std::net::SocketAddrV4;
use std::str::FromStr;
use trunkline_r2p2::{RouterConfig, SealKeys};

/// How requests are sent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// *Preserve* where the right to do so is there, else *proxy*.
    #[default]
    Auto,
    /// On behalf of clients where that can be, else with the client's address as source.
    Preserve,
    /// On behalf of clients; what cannot be sent so is refused. Needs no right.
    OnBehalf,
    /// From an address of the router.
    Proxy,
}

/// Everything a router needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients send requests.
    pub listen: SocketAddrV4,
    /// Where workers send FEEDBACK: an address they reach.
    pub control: SocketAddrV4,
    /// How requests are sent on.
    pub forwarding: Forwarding,
    /// Client addresses in proxy mode: each is a socket. Fewer, where the process may not have as many descriptors.
    pub flows_max: usize,
    /// The keys of the cluster: what is not sealed with one is refused. `None`: everybody is believed.
    pub keys: Option<SealKeys>,
    /// Policy, workers, limits.
    pub router: RouterConfig,
}

impl Settings {
    /// The same, unless somebody wants it otherwise.
    pub const FLOWS_MAX: usize = 4096;
    /// The control port of the authors' router.
    pub const CONTROL_PORT: u16 = 9000;
}

impl FromStr for Forwarding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "preserve" => Ok(Self::Preserve),
            "on-behalf" => Ok(Self::OnBehalf),
            "proxy" => Ok(Self::Proxy),
            _ => Err(format!("forwarding is {text:?}: write auto, preserve, on-behalf or proxy")),
        }
    }
}
