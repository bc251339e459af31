//! `[metrics]`: where Prometheus reads what the daemon has counted.

use super::error::{Breach, breach};
use super::{Address, Config};
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
}

impl Metrics {
    /// The addresses, as they are bound.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().filter_map(address)
    }
}

fn address(address: &Address) -> Option<SocketAddr> {
    match address.0 {
        Endpoint::Tcp(address) => Some(address),
        _ => None,
    }
}

impl Config {
    pub(super) fn check_metrics(&self) -> Result<(), Breach> {
        const KEY: &str = "metrics.listen";
        for at in &self.metrics.listen {
            if address(at).is_none() {
                let advice = "write an address and a port for HTTP, such as \"tcp://127.0.0.1:9464\"";
                return Err(breach(KEY, format!("has {at}, where Prometheus cannot read"), advice));
            }
            let others = self.daemon.listen.iter().chain(&self.metrics.listen);
            let has_port = address(at).is_some_and(|address| address.port() != 0);
            if has_port && others.filter(|other| *other == at).count() > 1 {
                let advice = "write an address of its own for metrics";
                return Err(breach(KEY, format!("has {at}, which is listened at already"), advice));
            }
        }
        Ok(())
    }
}
