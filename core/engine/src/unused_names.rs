//! Names of methods and hosts that nobody uses any more are forgotten, and with them what is kept by them.

use crate::call::Calls;
use crate::ended::EndedCalls;
use crate::gateway::Gateway;
use crate::host_numbers::HostNumbers;
use crate::peers::PeerEnds;
use crate::r2p2::R2p2;
use crate::registry::{MethodKey, Registry};
use crate::remote::Remotes;
use crate::workers::Workers;
use std::collections::HashSet;
use trunkline_telemetry::{MethodIndex, PeerIndex, Telemetry};

/// The owners that keep something by the name or number of a method or host, lent to have them forget.
pub(crate) struct UnusedNames<'e> {
    pub calls: &'e Calls,
    pub registry: &'e mut Registry,
    pub workers: &'e mut Workers,
    pub gateway: &'e mut Gateway,
    pub remotes: &'e mut Remotes,
    pub peers: &'e mut PeerEnds,
    pub r2p2: &'e mut R2p2,
    pub ended: &'e mut EndedCalls,
    pub host_numbers: &'e HostNumbers,
    pub telemetry: &'e mut Telemetry,
}

impl UnusedNames<'_> {
    /// Forgets methods that nobody uses; where numbers are wanted, methods that are only remembered lose theirs.
    pub fn forget(&mut self, wants_numbers: bool) {
        let in_flight: HashSet<MethodKey> = self.calls.iter().map(|(_, call)| call.method).collect();
        if wants_numbers {
            self.registry.give_numbers_back(&in_flight);
        }
        self.registry.forget_unused(&in_flight);
        let registry = &*self.registry;
        self.workers.forget(|method| registry.knows(method));
        self.gateway.forget_methods(|method| registry.knows(method));
        self.remotes.forget_methods(|method| registry.knows(method));
        self.peers.forget_methods(|method| registry.knows(method));
        self.forget_series();
    }

    /// The figures of methods and hosts that are gone go, too.
    fn forget_series(&mut self) {
        let mut methods = self.registry.numbers();
        methods.insert(MethodIndex::OTHER);
        let connected = self.host_numbers.connected();
        let calls = self.calls.iter().map(|(_, call)| call.peer_index);
        let always = [PeerIndex::OTHER, PeerIndex::LOCAL];
        let hosts: HashSet<PeerIndex> = connected.chain(calls).chain(always).collect();
        self.ended.retain(|method, host| methods.contains(&method) && hosts.contains(&host));
        self.r2p2.forget_numbers(|host| hosts.contains(&host));
        self.telemetry.forget(|method| methods.contains(&method), |host| hosts.contains(&host));
        let Self { registry, telemetry, .. } = self;
        registry.number_again(|path| telemetry.method(path));
    }
}
