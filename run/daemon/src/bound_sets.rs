//! The descriptor sets that applications have bound: whose they are, and how many bytes each user may have.
//!
//! A set counts what it takes in memory, as far as that follows from what it declares: itself, its schema, and the
//! tables for its messages. That is about twelve times its bytes mostly, and a hundred times at worst; the smallest
//! takes some KiB and counts [`SET_BYTES_MIN`] at least. Sets that are the same are one, however many connections have
//! bound them: a user pays for each once, and so does the host. A set is here from the bind that brought it, once that
//! has taken effect, until the last connection that has it ends: nothing else keeps it by its bytes.

use crate::config::Sessions;
use crate::heap_accounts::UserKey;
use crate::rights::Refused;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::Code;
use trunkline_engine::BoundSchema;

/// Bytes the smallest set counts: the tables of a schema without any type are as large as those of so many bytes.
const SET_BYTES_MIN: u64 = 1 << 10;

/// Sets by connection, by user, and all. Bounded by the limits it has.
pub(crate) struct BoundSets {
    user_bytes_max: u64,
    bytes_max: u64,
    /// Each set by its address.
    of_connection: HashMap<u64, (UserKey, HashMap<usize, Arc<BoundSchema>>)>,
    of_user: HashMap<UserKey, Uses>,
    all: Uses,
    /// The sets in `all` by the bytes they were built from, so that whoever sends the same has the same.
    by_source: HashMap<Arc<[u8]>, Arc<BoundSchema>>,
}

/// Sets by address, which is theirs while a connection has them, and who uses each how often.
#[derive(Default)]
struct Uses {
    of_set: HashMap<usize, usize>,
    bytes: u64,
}

impl BoundSets {
    pub fn new(limits: &Sessions) -> Self {
        Self {
            user_bytes_max: limits.descriptor_bytes_of_user_max(),
            bytes_max: limits.descriptor_bytes_max.0,
            of_connection: HashMap::new(),
            of_user: HashMap::new(),
            all: Uses::default(),
            by_source: HashMap::new(),
        }
    }

    /// The schema of a descriptor set, if a connection has bound it.
    pub fn known(&self, set: &[u8]) -> Option<Arc<BoundSchema>> {
        self.by_source.get(set).cloned()
    }

    /// Whether a user may have another set, which takes so many bytes; one that is `known` may be its own already, and
    /// what it takes is known, too.
    ///
    /// # Errors
    /// The limit, in a sentence for the application: RESOURCE_EXHAUSTED if there may be room later, and
    /// FAILED_PRECONDITION of a set that alone takes more than the limit.
    pub fn may_have(
        &self,
        (user, name): (UserKey, &str),
        known: Option<&Arc<BoundSchema>>,
        bytes: u64,
    ) -> Result<(), Refused> {
        let bytes = known.map_or(bytes, |schema| bytes_of(schema)).max(SET_BYTES_MIN);
        let new_for = |uses: Option<&Uses>| {
            let has = known.is_some_and(|schema| uses.is_some_and(|uses| uses.has(schema)));
            let held = uses.map_or(0, |uses| uses.bytes);
            if has { None } else { Some(held.saturating_add(bytes)) }
        };
        let refuse = |whose: &str, wanted: u64, key: &str, max: u64| -> Refused {
            if bytes > max {
                return format!("the descriptor set would take {bytes} bytes of memory; {key} is {max}")
                    .into();
            }
            let why =
                format!("descriptor sets of {whose} would take {wanted} bytes of memory; {key} is {max}");
            Refused { code: Code::ResourceExhausted, why }
        };
        if let Some(wanted) = new_for(self.of_user.get(&user)).filter(|wanted| *wanted > self.user_bytes_max)
        {
            let whose = format!("the applications of {name}");
            let key = "sessions.descriptor_bytes_per_user_max";
            return Err(refuse(&whose, wanted, key, self.user_bytes_max));
        }
        if let Some(wanted) = new_for(Some(&self.all)).filter(|wanted| *wanted > self.bytes_max) {
            let key = "sessions.descriptor_bytes_max";
            return Err(refuse("this host's applications", wanted, key, self.bytes_max));
        }
        Ok(())
    }

    /// A connection of this user has bound a set.
    pub fn enter(&mut self, user: UserKey, connection: u64, schema: &Arc<BoundSchema>) {
        let (_, own) = self.of_connection.entry(connection).or_insert_with(|| (user, HashMap::new()));
        if own.insert(address(schema), Arc::clone(schema)).is_some() {
            return;
        }
        self.of_user.entry(user).or_default().enter(schema);
        self.all.enter(schema);
        if let Some(source) = &schema.source {
            self.by_source.entry(Arc::clone(source)).or_insert_with(|| Arc::clone(schema));
        }
    }

    /// A connection has gone, with what it had bound.
    pub fn leave(&mut self, connection: u64) {
        let Some((user, own)) = self.of_connection.remove(&connection) else { return };
        for schema in own.into_values() {
            if let Some(uses) = self.of_user.get_mut(&user) {
                uses.leave(&schema);
                if uses.of_set.is_empty() {
                    self.of_user.remove(&user);
                }
            }
            self.all.leave(&schema);
            if !self.all.has(&schema) {
                self.forget(&schema);
            }
        }
    }

    /// Nobody has a set any more. Another of the same bytes may have its place.
    fn forget(&mut self, schema: &Arc<BoundSchema>) {
        let Some(source) = &schema.source else { return };
        if self.by_source.get(source).is_some_and(|known| Arc::ptr_eq(known, schema)) {
            self.by_source.remove(source);
        }
    }
}

impl Uses {
    fn has(&self, schema: &Arc<BoundSchema>) -> bool {
        self.of_set.contains_key(&address(schema))
    }

    fn enter(&mut self, schema: &Arc<BoundSchema>) {
        let uses = self.of_set.entry(address(schema)).or_default();
        *uses += 1;
        if *uses == 1 {
            self.bytes += bytes_of(schema);
        }
    }

    fn leave(&mut self, schema: &Arc<BoundSchema>) {
        let Some(uses) = self.of_set.get_mut(&address(schema)) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.of_set.remove(&address(schema));
            self.bytes -= bytes_of(schema);
        }
    }
}

fn address(schema: &Arc<BoundSchema>) -> usize {
    Arc::as_ptr(schema).addr()
}

fn bytes_of(schema: &BoundSchema) -> u64 {
    let set = schema.source.as_ref().map_or(0, |set| set.len() as u64);
    (set + schema.schema.memory_bytes()).max(SET_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    //! Shows that a user pays for each of its sets once, that the limits name their keys, and that nothing is kept of
    //! connections that have gone.
    use super::*;
    use crate::config::Bytes;
    use trunkline_schema::Schema;

    const KIB: u64 = 1 << 10;

    fn set(kib: usize) -> Arc<BoundSchema> {
        let schema = Schema::from_proto_source("a.proto", "syntax = \"proto3\"; message M {}").unwrap();
        Arc::new(BoundSchema::with_source(schema, vec![0; kib << 10].into()))
    }

    #[test]
    fn each_user_pays_for_each_set_once() {
        let limits = Sessions {
            descriptor_bytes_max: Bytes(100 * KIB),
            descriptor_bytes_per_user_max: Bytes(60 * KIB),
            ..Sessions::default()
        };
        let mut sets = BoundSets::new(&limits);
        let (one, other) = (set(40), set(30));
        for connection in [1, 2] {
            sets.enter(7, connection, &one);
            sets.enter(7, connection, &one);
        }
        assert_eq!(sets.may_have((7, "user"), Some(&one), 40 * KIB), Ok(()));
        assert_eq!(sets.may_have((7, "user"), None, 19 * KIB), Ok(()));
        let refused = sets.may_have((7, "user"), Some(&other), 30 * KIB).unwrap_err();
        assert!(refused.why.contains("sessions.descriptor_bytes_per_user_max"), "{refused:?}");
        assert_eq!(refused.code, Code::ResourceExhausted);
        let alone = sets.may_have((7, "user"), None, 61 * KIB).unwrap_err();
        assert_eq!(alone.code, Code::FailedPrecondition, "no other set's end makes room for it");
        sets.enter(8, 3, &one);
        assert_eq!(sets.may_have((8, "user"), None, 19 * KIB), Ok(()));
        sets.enter(8, 3, &set(20));
        sets.enter(9, 4, &set(30));
        let refused = sets.may_have((9, "user"), None, 20 * KIB).unwrap_err();
        assert!(refused.why.contains("sessions.descriptor_bytes_max"), "{refused:?}");
        sets.leave(1);
        assert!(sets.may_have((7, "user"), Some(&other), 30 * KIB).is_err(), "another connection has it");
        [2, 3, 4, 4].into_iter().for_each(|connection| sets.leave(connection));
        assert!(sets.of_user.is_empty() && sets.of_connection.is_empty() && sets.all.of_set.is_empty());
        assert_eq!(sets.all.bytes, 0);
    }

    /// What a set took in the control thread's memory goes with the last connection, its bytes included; and one that
    /// no bind has brought into effect was never there.
    #[test]
    fn a_set_leaves_with_the_last_connection_that_has_it() {
        let mut sets = BoundSets::new(&Sessions::default());
        let weak: Vec<_> = (0..100)
            .map(|connection| {
                let one = set(connection as usize);
                let source = one.source.clone().unwrap();
                assert!(sets.known(&source).is_none(), "nobody has bound it yet");
                sets.enter(7, connection, &one);
                sets.enter(8, 1000 + connection, &one);
                assert!(sets.known(&source).is_some_and(|known| Arc::ptr_eq(&known, &one)));
                sets.leave(connection);
                assert!(sets.known(&source).is_some(), "another connection has it");
                sets.leave(1000 + connection);
                assert!(sets.known(&source).is_none());
                (Arc::downgrade(&one), Arc::downgrade(&source))
            })
            .collect();
        assert!(sets.by_source.is_empty());
        assert!(weak.iter().all(|(set, bytes)| set.upgrade().is_none() && bytes.upgrade().is_none()));
        // Two of the same bytes, as when one was built while the other was about to go: each takes itself along.
        let (first, second) = (set(1), set(1));
        sets.enter(7, 1, &first);
        sets.enter(7, 2, &second);
        sets.leave(2);
        assert!(sets.known(first.source.as_ref().unwrap()).is_some());
        sets.leave(1);
        assert!(sets.by_source.is_empty());
    }

    /// A message is declared in a few bytes and takes hundreds.
    #[test]
    fn what_is_declared_counts_and_not_how_short() {
        let text: String = (0..1000).map(|i| format!("message M{i} {{}}")).collect();
        let schema = Schema::from_proto_source("a.proto", &format!("syntax = \"proto3\"; {text}")).unwrap();
        let set: Arc<[u8]> = schema.descriptor_set().into();
        let bytes = bytes_of(&BoundSchema::with_source(schema, set));
        assert!(bytes > 600_000, "{bytes}");
    }

    #[test]
    fn the_smallest_sets_are_paid_for_too() {
        let limits = Sessions { descriptor_bytes_per_user_max: Bytes(3 * KIB), ..Sessions::default() };
        let mut sets = BoundSets::new(&limits);
        for _ in 0..3 {
            assert_eq!(sets.may_have((7, "user"), None, 1), Ok(()));
            sets.enter(7, 1, &set(0));
        }
        let refused = sets.may_have((7, "user"), None, 1).unwrap_err();
        assert!(refused.why.contains("would take 4096 bytes"), "{refused:?}");
        sets.leave(1);
        assert_eq!(sets.all.bytes, 0);
    }
}
