//! Room that several sources share, so that none of them takes all of it.
//!
//! What a source may take follows from what is free: at most so many times as much. Whoever comes next therefore finds
//! some, however many others take what they can, and one that is alone has as good as all. These are the dynamic
//! thresholds of shared buffers (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A quarter of the
//! room is anybody's, and not told apart: who is far from the end of it pays a comparison.
//!
//! Sources that come by the hundred use that up all the same: each leaves a third of what it found. So a part is there
//! for those that hold nothing, one thing for each; and another for users and tenants of this host, a little for each,
//! since addresses are easily had and those are not.

use crate::CallKey;
use crate::held::is_of_host;
use std::sync::Arc;
use trunkline_call::KeyedMap;

/// A source may have so many times as much as is free.
const FREE_TIMES: u64 = 2;
/// Beside what one source may have, so large a part of it is there for others.
const OTHERS_PART: u64 = 2;
/// Beside all that, so large a part is there for sources that hold nothing, and what one of them may have of that.
const NEWCOMERS_PART: u64 = 8;
const NEWCOMER_PART: u64 = 256;
/// Beside that, so large a part is there for sources of this host, and so much may each always have.
const HOST_PART: u64 = 4;
const HOST_SOURCE_PART: u64 = 16;
/// So large a part is not told apart.
const ANYBODYS_PART: u64 = 4;

/// Room of a limit, in calls or in bytes, and what is taken of it.
///
/// With a limit of `n` one source alone has about `n`, and all together never more than `n` and seven eighths as much:
/// half for others, an eighth for those that hold nothing, a quarter for sources of this host. Of the half each that
/// takes all it may leaves a third of what it found.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(from = "u64")]
pub(crate) struct SharedRoom {
    used: u64,
    /// Who holds what of it, of those that came when more than a quarter was taken. Bounded by the limit.
    told: ToldParts,
}

/// What sources hold of something that is counted elsewhere.
#[derive(Debug, Default)]
pub(crate) struct ToldParts {
    holders: KeyedMap<CallKey, (Arc<str>, u64)>,
    of_sources: KeyedMap<Arc<str>, u64>,
}

impl SharedRoom {
    /// What all together may have of a limit.
    pub fn whole(limit: u64) -> u64 {
        for_anybody(limit).saturating_add(limit / HOST_PART)
    }

    /// What is taken.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Whether a source may have so much more of it. It is asked for only where that matters.
    #[inline]
    pub fn has_room(&self, more: u64, limit: u64, source: impl FnOnce() -> Arc<str>) -> bool {
        self.is_anybodys(more, limit) || self.has_share(more, limit, &source())
    }

    /// A call takes so much of what is anybody's, if that is there.
    #[inline]
    pub fn take_of_anybodys(&mut self, more: u64, limit: u64) -> bool {
        let is_anybodys = self.is_anybodys(more, limit);
        self.used += if is_anybodys { more } else { 0 };
        is_anybodys
    }

    /// A call takes so much of it, whether there is room or not.
    #[inline]
    pub fn take(&mut self, call: CallKey, more: u64, limit: u64, source: impl FnOnce() -> Arc<str>) {
        if !self.take_of_anybodys(more, limit) {
            self.told.count(call, more, source());
            self.used += more;
        }
    }

    /// So much of it is taken by calls that are not told apart: they began elsewhere.
    pub fn take_untold(&mut self, more: u64) {
        self.used += more;
    }

    /// So much of what a call had taken is free again.
    #[inline]
    pub fn give_back(&mut self, call: CallKey, less: u64) {
        self.used = self.used.saturating_sub(less);
        self.told.count_off(call, less);
    }

    /// Whether so much more is anybody's, whoever takes it.
    #[inline]
    pub fn is_anybodys(&self, more: u64, limit: u64) -> bool {
        is_anybodys(self.used, more, limit)
    }

    #[cold]
    fn has_share(&self, more: u64, limit: u64, source: &str) -> bool {
        may_take(self.used, (more, self.told.of(source)), limit, source)
    }
}

/// Whether a source that holds so much (`held`) of what is `used` may have so much `more`.
pub(crate) fn may_take(used: u64, (more, held): (u64, u64), limit: u64, source: &str) -> bool {
    let free = for_all(limit).saturating_sub(used);
    let is_shared = more <= free && held + more <= free.saturating_mul(FREE_TIMES);
    is_shared || is_reserved(used + more, (more, held), limit, source)
}

/// Whether so much more, with which so much is used, is kept for a source like this one.
fn is_reserved(used: u64, (more, held): (u64, u64), limit: u64, source: &str) -> bool {
    let is_new = held == 0 && more <= (limit / NEWCOMER_PART).max(1);
    let is_little = || held + more <= limit / HOST_SOURCE_PART && is_of_host(source);
    is_new && used <= for_anybody(limit) || used <= SharedRoom::whole(limit) && is_little()
}

/// What sources share by what is free.
fn for_all(limit: u64) -> u64 {
    limit.saturating_add(limit / OTHERS_PART)
}

/// What others than those of this host may have together.
fn for_anybody(limit: u64) -> u64 {
    for_all(limit).saturating_add(limit / NEWCOMERS_PART)
}

/// Whether so much more of what is shared is not told apart.
#[inline]
pub(crate) fn is_anybodys(used: u64, more: u64, limit: u64) -> bool {
    used + more <= limit / ANYBODYS_PART
}

impl ToldParts {
    /// What a source holds.
    pub fn of(&self, source: &str) -> u64 {
        self.of_sources.get(source).copied().unwrap_or_default()
    }

    /// Whether a source may have so much more where so much is free.
    pub fn may_have(&self, more: u64, free: u64, source: &str) -> bool {
        self.of(source) + more <= free.saturating_mul(FREE_TIMES)
    }

    /// The calls that hold something, and how much.
    pub fn held(&self) -> impl Iterator<Item = (CallKey, u64)> {
        self.holders.iter().map(|(call, (_, held))| (*call, *held))
    }

    /// Whether nobody holds anything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// A call of this source holds so much more.
    #[cold]
    pub fn count(&mut self, call: CallKey, more: u64, source: Arc<str>) {
        *self.of_sources.entry(Arc::clone(&source)).or_default() += more;
        self.holders.entry(call).or_insert((source, 0)).1 += more;
    }

    /// A call holds so much less.
    #[inline]
    pub fn count_off(&mut self, call: CallKey, less: u64) {
        if !self.holders.is_empty() {
            self.leave(call, less);
        }
    }

    #[cold]
    fn leave(&mut self, call: CallKey, less: u64) {
        let Some((source, held)) = self.holders.get_mut(&call) else { return };
        let less = less.min(*held);
        *held -= less;
        if let Some(all) = self.of_sources.get_mut(source) {
            *all = all.saturating_sub(less);
            if *all == 0 {
                self.of_sources.remove(source);
            }
        }
        if *held == 0 {
            self.holders.remove(&call);
        }
    }
}

/// Who takes it is known anew in another process: what is taken is not told apart there.
impl From<u64> for SharedRoom {
    fn from(used: u64) -> Self {
        Self { used, ..Self::default() }
    }
}

impl serde::Serialize for SharedRoom {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.used)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that one source has a limit's worth, that there is always some for the next, and that all is given back.
    use super::*;
    use crate::table::Key;
    use proptest::prelude::*;

    fn call(number: u32) -> CallKey {
        Key::from_bits(u64::from(number) << 32 | 1)
    }

    /// Takes one after another until there is no room.
    fn fill(room: &mut SharedRoom, limit: u64, source: &str, number: &mut u32) -> u64 {
        let before = room.used();
        while room.has_room(1, limit, || source.into()) {
            *number += 1;
            room.take(call(*number), 1, limit, || source.into());
        }
        room.used() - before
    }

    #[test]
    fn one_alone_has_about_the_limit_and_the_next_finds_room() {
        for limit in [1, 2, 4, 7, 8, 9, 64, 4096, 1 << 20] {
            let (mut room, mut number) = (SharedRoom::default(), 0);
            let alone = fill(&mut room, limit, "one", &mut number);
            assert!(alone >= limit && alone <= limit + limit.div_ceil(8), "{alone} of {limit}");
            for other in 0..6 {
                let found = fill(&mut room, limit, &format!("other {other}"), &mut number);
                assert!(found > 0 || limit < 4096, "{other} finds room of {limit}");
            }
            assert!(room.used() <= SharedRoom::whole(limit));
        }
    }

    /// Each of a thousand strangers takes all it may, then a thousand that are content with one; and an application of
    /// this host has some all the same.
    #[test]
    fn strangers_by_the_thousand_leave_room_for_newcomers_and_applications() {
        const LIMIT: u64 = 4096;
        let (mut room, mut number) = (SharedRoom::default(), 0);
        let greedy = (0..20).map(|at| fill(&mut room, LIMIT, &format!("10.0.0.{at}"), &mut number));
        assert_eq!(greedy.filter(|found| *found == 0).count(), 0, "who holds nothing has one");
        assert!(room.used() < LIMIT / 2 * 3 + LIMIT / 64);
        let found =
            (0..1000).map(|at| fill(&mut room, LIMIT, &format!("2001:db8:0:{at:x}::/64"), &mut number));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|found| *found <= 1) && found.iter().sum::<u64>() > LIMIT / 9);
        assert_eq!(fill(&mut room, LIMIT, "r2p2", &mut number), 0);
        for user in 0..4 {
            assert_eq!(fill(&mut room, LIMIT, &format!("uid:{user}"), &mut number), LIMIT / 16);
        }
        assert_eq!(
            (fill(&mut room, LIMIT, "uid:4", &mut number), room.used()),
            (0, SharedRoom::whole(LIMIT))
        );
    }

    proptest! {
        #[test]
        fn all_is_given_back(
            limit in 1u64..200,
            asks in prop::collection::vec((0u8..5, 0u32..9, 1u64..40, any::<bool>()), 1..300),
        ) {
            let (mut room, mut held) = (SharedRoom::default(), Vec::new());
            for (number, (source, own, more, leaves)) in asks.into_iter().enumerate() {
                // A call takes several times, and is of one source.
                let (call, source) = (call(9 * u32::from(source) + own), Arc::from(format!("source {source}")));
                if leaves && !held.is_empty() {
                    let (call, less) = held.swap_remove(number % held.len());
                    room.give_back(call, less);
                } else if room.has_room(more, limit, || Arc::<str>::clone(&source)) {
                    room.take(call, more, limit, || source);
                    held.push((call, more));
                }
                prop_assert!(room.used() <= SharedRoom::whole(limit));
                prop_assert_eq!(room.used(), held.iter().map(|(_, more)| more).sum::<u64>());
            }
            held.into_iter().for_each(|(call, less)| room.give_back(call, less));
            prop_assert!(room.used() == 0 && room.told.holders.is_empty() && room.told.of_sources.is_empty());
        }
    }
}
