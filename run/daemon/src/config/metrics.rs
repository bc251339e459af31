//! `[metrics]`: where Prometheus reads what the daemon has counted.

use super::Address;
use super::error::{Breach, breach};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use trunkline_net::Endpoint;

/// `[metrics]`: where Prometheus reads what the daemon has counted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Addresses it listens at, for `/metrics`. None: nothing listens. Whoever reaches them reads names of
    /// applications, services and endpoints, and may change nothing.
    pub listen: Vec<Address>,
    /// Names it answers under there, beside addresses, `localhost` and the host's own: `*.` for those below one, `*`
    /// for all.
    pub hosts: Vec<String>,
}

impl Metrics {
    /// The addresses, as they are bound.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().filter_map(address)
    }

    /// Whether a name can be one of `hosts`.
    pub fn can_be_host(name: &str) -> bool {
        let is_part = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let below = name.strip_prefix("*.").unwrap_or(name);
        name == "*" || below.strip_suffix('.').unwrap_or(below).split('.').all(is_part)
    }

    /// Checks its addresses, beside those the daemon listens at for peers.
    pub(super) fn check(&self, of_peers: &[Address]) -> Result<(), Breach> {
        const KEY: &str = "metrics.listen";
        if let Some(name) = self.hosts.iter().find(|name| !Self::can_be_host(name)) {
            let advice = "write a name without a port, such as \"rack3-host7.example\", \"*.example\" for all below \
                          one, or \"*\" for any; addresses need none";
            return Err(breach("metrics.hosts", format!("has {name:?}, which is no name of a host"), advice));
        }
        for at in &self.listen {
            if address(at).is_none() {
                let advice = "write an address and a port for HTTP, such as \"tcp://127.0.0.1:9464\"";
                return Err(breach(KEY, format!("has {at}, where Prometheus cannot read"), advice));
            }
            let others = of_peers.iter().chain(&self.listen);
            let has_port = address(at).is_some_and(|address| address.port() != 0);
            if has_port && others.filter(|other| *other == at).count() > 1 {
                let advice = "write an address of its own for metrics";
                return Err(breach(KEY, format!("has {at}, which is listened at already"), advice));
            }
        }
        Ok(())
    }
}

fn address(address: &Address) -> Option<SocketAddr> {
    match address.0 {
        Endpoint::Tcp(address) => Some(address),
        _ => None,
    }
}
