//! What applications hold at a relay, by identity: connections, and bytes that a connection makes the relay keep.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How much an identity, and all of them, may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountLimits {
    /// Connections of one identity.
    pub connections_of_identity: usize,
    /// Bytes of one identity: descriptor sets that are not whole yet, and pages of send heaps.
    pub bytes_of_identity: u64,
    /// Bytes of all.
    pub bytes_in_all: u64,
}

/// Who holds what. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Accounts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: AccountLimits,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes_in_all: u64,
    /// Kept while there is a connection of it: as many as there are connections at most.
    identities: HashMap<String, OfIdentity>,
}

#[derive(Debug, Default)]
struct OfIdentity {
    connections: usize,
    bytes: u64,
}

/// One connection's part; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Account {
    shared: Arc<Shared>,
    identity: String,
    bytes: u64,
}

impl Accounts {
    pub fn new(limits: AccountLimits) -> Self {
        Self(Arc::new(Shared { limits, held: Mutex::default() }))
    }

    /// A connection of an identity.
    ///
    /// # Errors
    /// It has as many as one may have, and which key says so.
    pub fn open(&self, identity: &str) -> Result<Account, String> {
        let most = self.0.limits.connections_of_identity;
        let mut held = self.0.held.lock();
        if held.identities.get(identity).is_some_and(|of| of.connections >= most) {
            return Err(format!(
                "{identity} has {most} connections already (relay.connections_per_identity_max)"
            ));
        }
        held.identities.entry(identity.to_owned()).or_default().connections += 1;
        Ok(Account { shared: Arc::clone(&self.0), identity: identity.to_owned(), bytes: 0 })
    }
}

impl Account {
    /// Whose it is.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// So many bytes more.
    ///
    /// # Errors
    /// Which limit is in the way; nothing was taken.
    pub fn take(&mut self, bytes: u64) -> Result<(), String> {
        let limits = self.shared.limits;
        let mut held = self.shared.held.lock();
        if held.bytes_in_all + bytes > limits.bytes_in_all {
            let most = limits.bytes_in_all;
            return Err(format!(
                "applications hold {most} bytes at the relay already (relay.held_bytes_max)"
            ));
        }
        let Held { bytes_in_all, identities } = &mut *held;
        // There is one as long as there is a connection.
        let of = identities.entry(self.identity.clone()).or_default();
        if of.bytes + bytes > limits.bytes_of_identity {
            let (identity, most) = (&self.identity, limits.bytes_of_identity);
            return Err(format!(
                "{identity} holds {most} bytes at the relay already (relay.held_bytes_per_identity_max)"
            ));
        }
        of.bytes += bytes;
        *bytes_in_all += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// So many bytes less: no more than were taken.
    pub fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut held = self.shared.held.lock();
        held.bytes_in_all -= bytes;
        if let Some(of) = held.identities.get_mut(&self.identity) {
            of.bytes -= bytes;
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.give_back(self.bytes);
        let mut held = self.shared.held.lock();
        if let Some(of) = held.identities.get_mut(&self.identity) {
            of.connections -= 1;
            if of.connections == 0 {
                held.identities.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows which limit is named, and that everything is given back with its connection.
    use super::*;

    fn accounts() -> Accounts {
        Accounts::new(AccountLimits { connections_of_identity: 2, bytes_of_identity: 10, bytes_in_all: 15 })
    }

    #[test]
    fn connections_of_an_identity_are_counted() {
        let accounts = accounts();
        let first = accounts.open("a").unwrap();
        let _second = accounts.open("a").unwrap();
        let why = accounts.open("a").unwrap_err();
        assert_eq!(why, "a has 2 connections already (relay.connections_per_identity_max)");
        accounts.open("b").unwrap();
        drop(first);
        accounts.open("a").unwrap();
    }

    #[test]
    fn bytes_are_of_an_identity_and_of_all() {
        let accounts = accounts();
        let [mut a, mut again, mut b] = ["a", "a", "b"].map(|identity| accounts.open(identity).unwrap());
        a.take(6).unwrap();
        let why = again.take(5).unwrap_err();
        assert_eq!(why, "a holds 10 bytes at the relay already (relay.held_bytes_per_identity_max)");
        again.take(4).unwrap();
        let why = b.take(6).unwrap_err();
        assert_eq!(why, "applications hold 15 bytes at the relay already (relay.held_bytes_max)");
        a.give_back(100);
        b.take(6).unwrap();
        drop((a, again, b));
        assert_eq!(accounts.0.held.lock().bytes_in_all, 0);
        assert!(accounts.0.held.lock().identities.is_empty());
    }
}
