//! Where the calls of a route go.

use crate::cluster::ClusterKey;

/// Where a route's calls go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Target {
    /// Whoever serves the method: sessions of this host, else the configured endpoints.
    Anyone,
    /// Sessions of this host only. Calls of peers are forwarded at the gateway alone (`gateway.rs`), which counts hops:
    /// two daemons that are each other's endpoint for a service that nobody serves would pass such a call around until
    /// its deadline.
    Here,
    /// One target: an endpoint, or those a name stands for.
    Cluster(ClusterKey),
}
