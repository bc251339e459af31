//! On which shard a new session goes: found by counts, however many sessions there are.

use std::collections::HashMap;

/// The number of processes that have none here, or that somebody else speaks for.
pub(crate) const UNKNOWN: u32 = 0;

/// The sessions of every shard, counted. Bounded by the sessions that are attached.
#[derive(Debug, Default)]
pub(crate) struct ShardPlaces {
    /// Where a process has its sessions, and how many. None of those nobody knows a number of: they are many.
    of_process: HashMap<u32, (usize, usize)>,
    /// Sessions by shard: all, and those whose applications call themselves so.
    all: Vec<usize>,
    named: HashMap<Box<str>, Vec<usize>>,
}

impl ShardPlaces {
    /// The shard, of the first `open`, for another session. Those of one process stay together: calls find whichever of
    /// its workers is free. Else it is the one with the fewest sessions of that name, of these the one with the fewest
    /// sessions.
    pub fn for_another(&self, name: &str, process: u32, open: usize) -> usize {
        if let Some((shard, _)) = self.of_process.get(&process).filter(|(shard, _)| *shard < open) {
            return *shard;
        }
        let of = |counts: Option<&Vec<usize>>, shard: usize| {
            counts.and_then(|counts| counts.get(shard)).copied().unwrap_or(0)
        };
        let named = self.named.get(name);
        (0..open).min_by_key(|shard| (of(named, *shard), of(Some(&self.all), *shard))).unwrap_or(0)
    }

    /// Whether a shard has sessions.
    pub fn has_sessions(&self, shard: usize) -> bool {
        self.all.get(shard).is_some_and(|sessions| *sessions > 0)
    }

    /// A session is there.
    pub fn enter(&mut self, shard: usize, name: &str, process: u32) {
        if process != UNKNOWN {
            self.of_process.entry(process).or_insert((shard, 0)).1 += 1;
        }
        *at(&mut self.all, shard) += 1;
        *at(self.named.entry(name.into()).or_default(), shard) += 1;
    }

    /// A session that was there has gone.
    pub fn leave(&mut self, shard: usize, name: &str, process: u32) {
        if let Some((_, sessions)) = self.of_process.get_mut(&process) {
            *sessions -= 1;
            if *sessions == 0 {
                self.of_process.remove(&process);
            }
        }
        *at(&mut self.all, shard) -= 1;
        if let Some(named) = self.named.get_mut(name) {
            *at(named, shard) -= 1;
            if named.iter().all(|sessions| *sessions == 0) {
                self.named.remove(name);
            }
        }
    }
}

fn at(counts: &mut Vec<usize>, shard: usize) -> &mut usize {
    if counts.len() <= shard {
        counts.resize(shard + 1, 0);
    }
    &mut counts[shard]
}

#[cfg(test)]
mod tests {
    //! Shows where sessions go, and that those who have gone leave nothing behind.
    use super::*;

    #[test]
    fn sessions_spread_by_name_then_by_number_and_processes_stay_together() {
        let mut places = ShardPlaces::default();
        assert_eq!(places.for_another("a", 1, 3), 0);
        places.enter(0, "a", 1);
        assert_eq!(places.for_another("a", 1, 3), 0, "the same process");
        assert_eq!(places.for_another("a", 2, 3), 1, "another of that name");
        places.enter(1, "a", 2);
        assert_eq!(places.for_another("b", 3, 3), 2, "the emptiest");
        places.enter(2, "b", 3);
        places.enter(2, "b", 3);
        assert_eq!(places.for_another("b", 4, 3), 0, "fewest of that name, then fewest");
        assert_eq!(places.for_another("a", 2, 1), 0, "its shard is not open any more");
        // Those of other process id namespaces are of many processes.
        places.enter(1, "c", UNKNOWN);
        assert_eq!(places.for_another("c", UNKNOWN, 3), 0);
        places.leave(1, "c", UNKNOWN);
        assert!(places.has_sessions(2) && !places.has_sessions(3));
        for (shard, name, process) in [(0, "a", 1), (1, "a", 2), (2, "b", 3), (2, "b", 3)] {
            places.leave(shard, name, process);
        }
        assert!(places.of_process.is_empty() && places.named.is_empty());
        assert_eq!(places.all, [0, 0, 0]);
    }
}
