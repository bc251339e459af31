//! Who watches: streams that show a picture again and again.
//!
//! A stream keeps the figures of its last picture while it waits for the next. Who opens streams without end would make
//! the daemon keep them all, so a user has [`WATCHERS_PER_USER_MAX`], and all users have [`WATCHERS_MAX`].

use super::looks::user;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trunkline::{Execution, Status};

/// Streams of one user.
const WATCHERS_PER_USER_MAX: usize = 8;
/// Streams of all users.
const WATCHERS_MAX: usize = 64;

/// The streams there are. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A stream's place; given back when it is dropped.
#[derive(Debug)]
pub(super) struct WatcherPlace {
    watchers: Watchers,
    user: u32,
}

impl Watchers {
    /// A place for a stream of a user, by its identity.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if it has all it may have, or all users have.
    pub fn admit(&self, identity: &str) -> Result<WatcherPlace, Status> {
        let user = user(identity);
        let mut places = self.lock();
        let (own, all) = (places.get(&user).copied().unwrap_or_default(), places.values().sum::<usize>());
        let why = if own >= WATCHERS_PER_USER_MAX {
            format!("{identity} watches {own} times already (WATCHERS_PER_USER_MAX); end one of those")
        } else if all >= WATCHERS_MAX {
            format!("{all} streams watch the daemon already (WATCHERS_MAX); ask again when one has ended")
        } else {
            places.insert(user, own + 1);
            return Ok(WatcherPlace { watchers: self.clone(), user });
        };
        Err(Status::resource_exhausted(why).with_execution(Execution::NotExecuted))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatcherPlace {
    fn drop(&mut self) {
        let mut places = self.watchers.lock();
        match places.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(places.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that one user leaves places to others, that there is a last one, and that places are given back.
    use super::*;

    #[test]
    fn a_user_leaves_places_to_others() {
        let watchers = Watchers::default();
        let admit = |user: usize| watchers.admit(&format!("uid:{user}"));
        let mut places: Vec<_> = (0..WATCHERS_PER_USER_MAX).map(|_| admit(1).unwrap()).collect();
        let refused = admit(1).unwrap_err();
        assert!(refused.message().contains("WATCHERS_PER_USER_MAX"), "{refused}");
        places.extend((WATCHERS_PER_USER_MAX..WATCHERS_MAX).map(|place| admit(place).unwrap()));
        let refused = admit(1000).unwrap_err();
        assert!(refused.message().contains("WATCHERS_MAX"), "{refused}");
        drop(places.remove(0));
        let again = admit(1).unwrap();
        assert!(admit(1).is_err());
        drop((again, places));
        assert!(watchers.lock().is_empty());
    }
}
