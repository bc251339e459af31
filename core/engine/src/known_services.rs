//! The services whose methods are known, and who serves one as a whole: each of its methods, whether it is known or
//! not. Such a server is written down once, however many methods have been named.

use crate::SessionKey;
use crate::method_key::MethodKey;
use crate::servers::{self, Server};
use std::collections::HashMap;

/// The place of a service, for its methods: while one of them is known, it is that service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceSlot(u32);

impl Default for ServiceSlot {
    /// No service's.
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// All services. Bounded by the methods that are known.
#[derive(Debug, Default)]
pub(crate) struct KnownServices {
    by_name: HashMap<Box<str>, ServiceSlot>,
    slots: Vec<KnownService>,
    free: Vec<ServiceSlot>,
}

#[derive(Debug, Default)]
struct KnownService {
    /// How many of its methods are known.
    methods: usize,
    whole: Option<Box<WholeService>>,
}

/// A service whose methods only its servers know. It is remembered while a method of it is.
#[derive(Debug)]
pub(crate) struct WholeService {
    /// `/package.Service/*`.
    pub all: MethodKey,
    /// Those who stand by are behind the others.
    pub servers: Vec<Server>,
    /// Methods peers have named.
    pub learned: usize,
    /// Methods that nobody would use if nobody served all of it.
    pub resting: Vec<MethodKey>,
}

impl KnownServices {
    /// A method of a service is known from now on.
    pub fn enter(&mut self, name: &str) -> ServiceSlot {
        let slot = match self.by_name.get(name) {
            Some(slot) => *slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(KnownService::default());
                    ServiceSlot((self.slots.len() - 1) as u32)
                });
                self.by_name.insert(name.into(), slot);
                slot
            }
        };
        self.slots[slot.0 as usize].methods += 1;
        slot
    }

    /// A method of a service is forgotten.
    pub fn leave(&mut self, slot: ServiceSlot, name: &str) {
        let Some(service) = self.slots.get_mut(slot.0 as usize) else { return };
        service.methods = service.methods.saturating_sub(1);
        if service.methods == 0 {
            *service = KnownService::default();
            self.by_name.remove(name);
            self.free.push(slot);
        }
    }

    /// Where a service is, if a method of it is known.
    pub fn find(&self, name: &str) -> Option<ServiceSlot> {
        self.by_name.get(name).copied()
    }

    /// A service that is served as a whole, or was.
    #[inline]
    pub fn whole(&self, slot: ServiceSlot) -> Option<&WholeService> {
        self.slots.get(slot.0 as usize)?.whole.as_deref()
    }

    /// The same, to be changed.
    pub fn whole_mut(&mut self, slot: ServiceSlot) -> Option<&mut WholeService> {
        self.slots.get_mut(slot.0 as usize)?.whole.as_deref_mut()
    }

    /// Those who serve a service as a whole.
    #[inline]
    pub fn servers(&self, slot: ServiceSlot) -> &[Server] {
        self.whole(slot).map_or(&[], |whole| whole.servers.as_slice())
    }

    /// Every service that is served as a whole, or was.
    pub fn every_whole(&self) -> impl Iterator<Item = &WholeService> {
        self.slots.iter().filter_map(|service| service.whole.as_deref())
    }

    /// The same, to be changed.
    pub fn every_whole_mut(&mut self) -> impl Iterator<Item = &mut WholeService> {
        self.slots.iter_mut().filter_map(|service| service.whole.as_deref_mut())
    }

    /// The service, served as a whole by whoever is there; nobody is there yet, if it is new.
    pub fn make_whole(&mut self, slot: ServiceSlot, all: MethodKey) -> Option<&mut WholeService> {
        let service = self.slots.get_mut(slot.0 as usize)?;
        let new = || WholeService { all, servers: Vec::new(), learned: 0, resting: Vec::new() };
        let whole = service.whole.get_or_insert_with(|| Box::new(new()));
        whole.all = all;
        Some(whole)
    }

    pub fn shrink(&mut self) {
        self.by_name.shrink_to(2 * self.by_name.len());
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.free.len() == self.slots.len()
    }
}

impl WholeService {
    pub fn enter(&mut self, server: Server) {
        servers::enter(&mut self.servers, server);
    }

    /// A session does not serve it any more. The methods that nobody uses now.
    pub fn withdraw(&mut self, session: SessionKey) -> Vec<MethodKey> {
        self.servers.retain(|server| server.session != session);
        if self.servers.is_empty() { std::mem::take(&mut self.resting) } else { Vec::new() }
    }
}
