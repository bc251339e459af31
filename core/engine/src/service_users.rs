//! Who serves which service: a name belongs to the user whose session serves it, while one does.

use crate::SessionKey;
use std::collections::{HashMap, HashSet};

/// The users that serve services, by full name. Bounded by the routes of the sessions that are attached.
#[derive(Debug, Default)]
pub(crate) struct ServiceUsers {
    services: HashMap<Box<str>, Vec<Owner>>,
    /// What each session brought, and takes along when it leaves.
    brought: HashMap<SessionKey, Brought>,
}

/// What a session serves, and for whom.
#[derive(Debug)]
struct Brought {
    identity: Box<str>,
    services: Vec<Box<str>>,
}

/// A user that serves a service. There are several only where a rule of the host permits them.
#[derive(Debug)]
struct Owner {
    identity: Box<str>,
    sessions: HashSet<SessionKey>,
}

impl ServiceUsers {
    /// A user other than this one that serves the service.
    pub fn other_than(&self, identity: &str, service: &str) -> Option<&str> {
        let owners = self.services.get(service)?;
        owners.iter().map(|owner| &*owner.identity).find(|owner| *owner != identity)
    }

    /// Every service with each of its users.
    pub fn all(&self) -> Vec<(Box<str>, Box<str>)> {
        let mut all = Vec::new();
        for (service, owners) in &self.services {
            all.extend(owners.iter().map(|owner| (service.clone(), owner.identity.clone())));
        }
        all
    }

    /// A session of this user serves a service from now on.
    pub fn enter(&mut self, session: SessionKey, identity: &str, service: &str) {
        let owners = self.services.entry(service.into()).or_default();
        let is_new = match owners.iter_mut().find(|owner| *owner.identity == *identity) {
            Some(owner) => owner.sessions.insert(session),
            None => {
                owners.push(Owner { identity: identity.into(), sessions: HashSet::from([session]) });
                true
            }
        };
        if is_new {
            let new = || Brought { identity: identity.into(), services: Vec::new() };
            self.brought.entry(session).or_insert_with(new).services.push(service.into());
        }
    }

    /// Whether any session serves the service.
    pub fn has(&self, service: &str) -> bool {
        self.services.contains_key(service)
    }

    /// The user whose session this is, if it serves something.
    pub fn of_session(&self, session: SessionKey) -> Option<&str> {
        self.brought.get(&session).map(|brought| &*brought.identity)
    }

    /// The services a session serves.
    pub fn services_of(&self, session: SessionKey) -> &[Box<str>] {
        self.brought.get(&session).map_or(&[], |brought| &brought.services)
    }

    /// A session serves nothing any more.
    pub fn leave(&mut self, session: SessionKey) {
        let Some(Brought { identity, services }) = self.brought.remove(&session) else { return };
        for service in services {
            let Some(owners) = self.services.get_mut(&service) else { continue };
            if let Some(at) = owners.iter().position(|owner| owner.identity == identity) {
                owners[at].sessions.remove(&session);
                if owners[at].sessions.is_empty() {
                    owners.swap_remove(at);
                }
            }
            if owners.is_empty() {
                self.services.remove(&service);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows whose a name is, and that nothing stays of those who have left.
    use super::*;

    #[test]
    fn a_name_belongs_to_a_user_while_its_sessions_are_there() {
        let mut table = crate::Table::new();
        let mut key = || table.insert(crate::session::Session::new(String::new(), 0));
        let (first, second, other) = (key(), key(), key());
        let mut owners = ServiceUsers::default();
        assert_eq!(owners.other_than("uid:1", "a.B"), None);
        owners.enter(first, "uid:1", "a.B");
        owners.enter(first, "uid:1", "a.B");
        assert_eq!(owners.services_of(first).len(), 1, "once, however often it is said");
        owners.enter(second, "uid:1", "a.B");
        assert_eq!(owners.other_than("uid:1", "a.B"), None);
        assert_eq!(owners.other_than("uid:2", "a.B"), Some("uid:1"));
        assert_eq!(owners.other_than("uid:2", "a.C"), None);
        owners.enter(other, "uid:2", "a.B");
        assert_eq!(owners.other_than("uid:1", "a.B"), Some("uid:2"));
        assert_eq!(owners.of_session(other), Some("uid:2"));
        owners.leave(other);
        assert_eq!(owners.of_session(other), None);
        owners.leave(first);
        assert_eq!(owners.other_than("uid:2", "a.B"), Some("uid:1"), "one is still there");
        assert!(owners.has("a.B"));
        owners.leave(second);
        owners.leave(second);
        assert!(!owners.has("a.B"));
        assert_eq!(owners.other_than("uid:2", "a.B"), None);
        assert!(owners.services.is_empty() && owners.brought.is_empty());
    }
}
