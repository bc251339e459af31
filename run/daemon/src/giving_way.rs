//! Which connection gives way where there is no place for another: the oldest of all shards that has not said what it
//! wants. One of another shard is closed there, at that shard's next turn. Each is looked at first (`room.rs`): what it
//! has said may lie unread.

use crate::command::{Command, ShardSender};
use crate::unidentified::{Unidentified, UnidentifiedAt, UnidentifiedKey, UnidentifiedOrder};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trunkline_engine::PeerKey;
use trunkline_net::Source;

/// Connections that other shards were asked to close and have not closed yet, at most: by so many there may be more
/// than `daemon.connections_max` for a moment.
const LEAVING_MAX: usize = 64;
/// Why a connection of the native protocol is closed that gives way.
pub(crate) const GAVE_WAY: &str = "it has not greeted, and others want its place";

/// The unidentified connections of all shards. Clones are of the same.
#[derive(Clone, Default)]
pub(crate) struct UnidentifiedConnections(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    order: UnidentifiedOrder,
    /// How each shard is asked to close one.
    shards: Vec<ShardSender>,
    /// Those that other shards were asked to close, by number, and of which source another may give way instead: of
    /// any, if `None`.
    leaving: HashMap<u64, Option<Source>>,
}

/// Which connection gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesWay {
    /// One of the shard that asks, which looks at it first, and closes it if it can remove it then.
    Own(UnidentifiedKey, Unidentified),
    /// Another shard's, which has been asked to close it.
    Others,
    /// Nobody's yet: other shards have not closed what they were asked to.
    Later,
}

/// What becomes of the place of a connection that has identified itself, or has begun to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identified {
    /// It keeps it.
    Stays,
    /// Another shard has given its place to another connection: one of this source is to give way instead, of any if
    /// `None`, or there would be one too many.
    Owes(Option<Source>),
}

impl UnidentifiedConnections {
    /// Another shard, which is asked so: the next by its number.
    pub fn add_shard(&self, sender: ShardSender) {
        self.shared().shards.push(sender);
    }

    /// One has been accepted, and is among the pending connections of a shard under this number.
    pub fn enter(&self, shard: usize, source: Source, pending: u64) -> UnidentifiedKey {
        let place = Unidentified::Pending(pending);
        self.shared().order.enter(source, UnidentifiedAt { shard, place })
    }

    /// It has begun to speak the native protocol, and has not greeted yet.
    pub fn begins(&self, shard: usize, key: UnidentifiedKey, peer: PeerKey) {
        let place = Unidentified::Peer(peer);
        self.shared().order.insert(key, UnidentifiedAt { shard, place });
    }

    /// It is gone, or is about to be closed. `false` if it was gone, or if another shard has given its place to another
    /// connection.
    pub fn remove(&self, key: UnidentifiedKey) -> bool {
        self.shared().order.remove(key)
    }

    /// It has identified itself, or has begun to.
    pub fn identify(&self, key: UnidentifiedKey) -> Identified {
        let mut shared = self.shared();
        if shared.order.remove(key) {
            return Identified::Stays;
        }
        Identified::Owes(shared.leaving.get(&key.number).copied().unwrap_or(Some(key.source)))
    }

    /// Whether other shards are to be left time to close what they were asked to: whoever connects waits in the backlog
    /// then, and need not be refused.
    pub fn is_behind(&self) -> bool {
        self.shared().leaving.len() >= LEAVING_MAX / 2
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shared().order.count()
    }

    /// The oldest of this source, or of the one that has most, is to give way. `None` if there is none.
    pub fn give_way(&self, shard: usize, source: Option<Source>) -> Option<GivesWay> {
        let mut shared = self.shared();
        let (key, at) = shared.order.oldest(source)?;
        if at.shard == shard {
            return Some(GivesWay::Own(key, at.place));
        }
        if shared.leaving.len() >= LEAVING_MAX {
            return Some(GivesWay::Later);
        }
        // A shard that has ended has closed what it had.
        let command = Command::GiveWay { key, unidentified: at.place };
        if shared.shards.get(at.shard).is_some_and(|other| other.send(command)) {
            shared.leaving.insert(key.number, source);
        }
        shared.order.remove(key);
        Some(GivesWay::Others)
    }

    /// A shard has done what another asked it by [`Command::GiveWay`].
    pub fn gave_way(&self, key: UnidentifiedKey) {
        self.shared().leaving.remove(&key.number);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that another shard is asked for what it has, and for no more at once than it has time for.
    use super::*;
    use crate::command::shard_channel;
    use crate::waker::Waker;

    #[test]
    fn who_says_what_it_wants_when_its_place_is_given_away_is_told() {
        let unidentified = UnidentifiedConnections::default();
        let (sender, asked) = shard_channel(Arc::new(Waker::new().unwrap()));
        unidentified.add_shard(sender);
        let keys = [1, 2].map(|pending| unidentified.enter(0, Source::User(0), pending));
        assert_eq!(unidentified.give_way(1, None), Some(GivesWay::Others));
        assert!(asked.next().is_some());
        assert_eq!(keys.map(|key| unidentified.identify(key)), [Identified::Owes(None), Identified::Stays]);
        assert_eq!(unidentified.give_way(1, None), None, "who has said it gives way no more");
    }

    #[test]
    fn another_shard_is_asked_for_what_it_has() {
        let unidentified = UnidentifiedConnections::default();
        let [first, second] = [(); 2].map(|()| {
            let (sender, receiver) = shard_channel(Arc::new(Waker::new().unwrap()));
            unidentified.add_shard(sender);
            receiver
        });
        let [one, other] = [Source::User(0), Source::User(1)];
        let keys: Vec<_> =
            (0..LEAVING_MAX as u64 + 1).map(|pending| unidentified.enter(1, one, pending)).collect();
        unidentified.enter(0, other, 7);
        for pending in 0..LEAVING_MAX as u64 {
            assert_eq!(unidentified.is_behind(), pending >= LEAVING_MAX as u64 / 2);
            assert_eq!(unidentified.give_way(0, Some(one)), Some(GivesWay::Others));
            let Some(Command::GiveWay { unidentified: asked, .. }) = second.next() else {
                panic!("the shard that has it is asked")
            };
            assert_eq!(asked, Unidentified::Pending(pending));
        }
        assert_eq!(
            unidentified.give_way(0, Some(one)),
            Some(GivesWay::Later),
            "it has not done yet what it was asked to"
        );
        let Some(GivesWay::Own(own, _)) = unidentified.give_way(0, Some(other)) else {
            panic!("it is its own")
        };
        assert!(unidentified.remove(own));
        unidentified.gave_way(keys[0]);
        assert_eq!(unidentified.give_way(0, None), Some(GivesWay::Others));
        assert!(first.next().is_none() && unidentified.count() == 0);
    }
}
