//! Names of methods that clients of the gateway have brought, or that were announced on a connection for somebody's
//! calls, and under which no server has answered yet.
//!
//! A client may name any method of a service that has endpoints, and so many names of a service are told apart
//! (`limits.methods_learned_per_service`). Whoever names what is not there must not use them up for the others: of
//! those without an answer, each client may bring a quarter. A message of an answer shows that the method is there.

use std::collections::HashMap;
use std::hash::Hash;
use trunkline_call::KeyedMap;

/// The names, and who brought how many. Bounded by the names the registry learns, or by the numbers of a connection.
#[derive(Debug)]
pub(crate) struct Unproven<K> {
    names: KeyedMap<K, Whose>,
    counts: HashMap<Whose, usize>,
}

/// A client, and the service it names methods of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    pub client: Box<str>,
    pub service: Box<str>,
}

impl<K: Eq + Hash> Unproven<K> {
    /// Whether a client may bring another name, of so many a service may have.
    pub fn has_room(&self, whose: &Whose, names_max: usize) -> bool {
        self.counts.get(whose).is_none_or(|count| *count < names_max.div_ceil(4))
    }

    /// A client has brought a name.
    pub fn bring(&mut self, method: K, whose: Whose) {
        *self.counts.entry(whose.clone()).or_default() += 1;
        if let Some(before) = self.names.insert(method, whose) {
            self.count_off(&before);
        }
    }

    /// A server has answered under this name.
    #[inline]
    pub fn answered(&mut self, method: K) {
        if !self.names.is_empty()
            && let Some(whose) = self.names.remove(&method)
        {
            self.count_off(&whose);
        }
    }

    fn count_off(&mut self, whose: &Whose) {
        if let Some(count) = self.counts.get_mut(whose) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(whose);
            }
        }
    }
}

impl<K> Default for Unproven<K> {
    fn default() -> Self {
        Self { names: KeyedMap::default(), counts: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    //! Shows whose share a name takes, and until when.
    use super::*;

    fn whose(client: &str, service: &str) -> Whose {
        Whose { client: client.into(), service: service.into() }
    }

    #[test]
    fn a_client_has_a_quarter_until_it_is_answered() {
        let mut names = Unproven::default();
        let [own, others, elsewhere] = [whose("uid:1", "a.B"), whose("uid:2", "a.B"), whose("uid:1", "a.C")];
        for method in 0..2 {
            assert!(names.has_room(&own, 8));
            names.bring(method, own.clone());
        }
        assert!(!names.has_room(&own, 8) && names.has_room(&own, 9));
        assert!(names.has_room(&others, 8) && names.has_room(&elsewhere, 8));
        names.answered(7);
        assert!(!names.has_room(&own, 8));
        names.answered(1);
        names.answered(1);
        assert!(names.has_room(&own, 8));
        names.answered(0);
        assert!(names.names.is_empty() && names.counts.is_empty());
        assert!(names.has_room(&own, 1), "however few there are, one may be tried");
    }
}
