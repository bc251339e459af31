//! `peers.toml`: who can be measured, by which route, and what daemons are told of policies.

use super::foreign::library;
use crate::harness::children::Failure;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

static FILE: LazyLock<PeersFile> =
    LazyLock::new(|| toml::from_str(include_str!("../../peers.toml")).expect("a test reads peers.toml"));

#[derive(Deserialize)]
struct PeersFile {
    peers: BTreeMap<String, PeerData>,
    policies: BTreeMap<String, String>,
}

/// A peer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerData {
    /// For people.
    pub what: String,
    /// From who calls to who serves.
    pub route: Vec<String>,
    /// Whether something on the way refuses what bears a certain name.
    #[serde(default)]
    pub refuses: bool,
}

/// The peer of a name.
pub fn peer(name: &str) -> Result<&'static PeerData, Failure> {
    FILE.peers.get(name).ok_or_else(|| format!("peers.toml has no {name:?}").into())
}

/// What a daemon's configuration says of such policies.
pub fn policies(name: &str) -> Result<&'static str, Failure> {
    let policies = FILE.policies.get(name).map(String::as_str);
    policies.ok_or_else(|| format!("peers.toml has no policies {name:?}").into())
}

/// A part of a route, and how it is to be.
pub fn part(of: &str) -> (&str, &str) {
    of.split_once(':').unwrap_or((of, ""))
}

impl PeerData {
    /// What of the field's it needs.
    pub fn libraries(&self) -> impl Iterator<Item = &str> {
        self.route.iter().map(|of| part(of).0).filter(|name| library(name).is_ok())
    }
}

#[cfg(test)]
mod tests {
    //! The file is read, every part of every route is one that can be started, and policies refuse who is refused.
    use super::*;
    use crate::harness::work::FORBIDDEN;

    #[test]
    fn routes_are_of_known_parts() {
        const OWN: [&str; 5] = ["chain", "tcp", "trunkline", "daemon", "gateway"];
        for (name, peer) in &FILE.peers {
            assert!(peer.route.len() >= 2, "{name}");
            for (part, how) in peer.route.iter().map(|of| part(of)) {
                assert!(OWN.contains(&part) || library(part).is_ok(), "{name}: {part}");
                let named = how.split_once(':').filter(|_| part == "trunkline").map_or("bare", |(_, of)| of);
                assert!(policies(named).is_ok(), "{name}: {named}");
            }
        }
        let envoys: Vec<&str> = peer("envoy-two").unwrap().libraries().collect();
        assert_eq!(envoys, ["grpc-cpp", "envoy", "envoy", "grpc-cpp"]);
        assert!(policies("content").unwrap().contains(&format!("request.name == \"{FORBIDDEN}\"")));
    }
}
