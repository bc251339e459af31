//! `[relay]`: applications of other hosts and containers, attached over TLS.

use super::error::{Breach, breach, quoted};
use super::{Address, Bytes, Principal};
use serde::{Deserialize, Serialize};
use trunkline_net::Endpoint;
use trunkline_shm::{HEAP_BYTES_MAX, HEAP_BYTES_MIN, PeerCredentials};

/// `[relay]`: where `trunkline relay` takes applications that are elsewhere, and who may attach them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayKeys {
    /// Ports of the relay. None: there is none, and nobody attaches in another's name.
    pub listen: Vec<Address>,
    /// Whose processes may attach applications by what their certificates say.
    pub by: Vec<Principal>,
    /// Connections at once, each of which is a session.
    pub connections_max: usize,
    /// The same of one identity.
    pub connections_per_identity_max: usize,
    /// Connections at once that have not shown a certificate yet: each is a descriptor.
    pub handshakes_max: usize,
    /// Bytes of either heap of such a session.
    pub heap_bytes: Bytes,
    /// Bytes that connections of one identity make the relay keep: pages of send heaps, parts of descriptor sets.
    pub held_bytes_per_identity_max: Bytes,
    /// The same of all.
    pub held_bytes_max: Bytes,
}

/// More are a mistake: each is a thread.
const CONNECTIONS_MAX: usize = 4096;
/// Nobody's identity is longer: that of a SPIFFE id.
const IDENTITY_BYTES_MAX: usize = 2048;

impl Default for RelayKeys {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            by: vec![Principal::Owner],
            connections_max: 256,
            connections_per_identity_max: 64,
            handshakes_max: 256,
            heap_bytes: Bytes(64 << 20),
            held_bytes_per_identity_max: Bytes(1 << 30),
            held_bytes_max: Bytes(4 << 30),
        }
    }
}

impl RelayKeys {
    /// Whether a process may attach an application that has proved to be this one.
    ///
    /// # Errors
    /// Why not, and which key says so.
    pub(crate) fn permit(&self, peer: PeerCredentials, identity: &str) -> Result<(), String> {
        if self.listen.is_empty() {
            return Err("this daemon has no relay (relay.listen in its configuration)".into());
        }
        if !self.by.iter().any(|principal| principal.covers(peer.uid, peer.gid)) {
            let uid = peer.uid;
            return Err(format!(
                "uid {uid} may not attach in the name of others: relay.by in the daemon's configuration says who may"
            ));
        }
        let is_one = identity.len() <= IDENTITY_BYTES_MAX && !identity.contains(char::is_control);
        if !is_one || identity.starts_with("uid:") {
            return Err(
                "an identity is printable text of at most 2048 bytes, and no user of this host".into()
            );
        }
        Ok(())
    }

    /// Checks every value; `certifies`: TLS is served, and clients are asked for certificates.
    pub(super) fn check(&self, certifies: bool) -> Result<(), Breach> {
        if let Some(address) = self.listen.iter().find(|address| !matches!(address.0, Endpoint::Tcp(_))) {
            let problem = format!("has {}, which is no TCP port", quoted(&address.to_string()));
            return Err(breach(
                "relay.listen",
                problem,
                "write tcp://ADDRESS:PORT; TLS is spoken there always",
            ));
        }
        if !self.listen.is_empty() && !certifies {
            let problem = "would attach nobody: who an application is, its certificate says".to_owned();
            let advice = "write tls.certificate, tls.key and tls.client_ca, too, or tls.workload_api";
            return Err(breach("relay.listen", problem, advice));
        }
        for (key, count) in [
            ("relay.connections_max", self.connections_max),
            ("relay.connections_per_identity_max", self.connections_per_identity_max),
            ("relay.handshakes_max", self.handshakes_max),
        ] {
            if !(1..=CONNECTIONS_MAX).contains(&count) {
                let advice = format!("write a number from 1 to {CONNECTIONS_MAX}");
                return Err(breach(key, format!("is {count}"), &advice));
            }
        }
        let (least, most) = (u64::from(HEAP_BYTES_MIN), u64::from(HEAP_BYTES_MAX));
        if !(least..=most).contains(&self.heap_bytes.0) || !self.heap_bytes.0.is_multiple_of(least) {
            let advice = "write a multiple of 64 KiB, from 64 KiB to 2 GiB";
            return Err(breach("relay.heap_bytes", format!("is {}", self.heap_bytes.0), advice));
        }
        let [heap, identity, all] =
            [&self.heap_bytes, &self.held_bytes_per_identity_max, &self.held_bytes_max].map(|bytes| bytes.0);
        for (key, bytes, least_key, least) in [
            ("relay.held_bytes_per_identity_max", identity, "relay.heap_bytes", heap),
            ("relay.held_bytes_max", all, "relay.held_bytes_per_identity_max", identity),
        ] {
            if bytes < least {
                let problem = format!("is {bytes}, and {least_key} is {least}");
                return Err(breach(key, problem, &format!("write at least as much as {least_key} says")));
            }
        }
        Ok(())
    }
}
