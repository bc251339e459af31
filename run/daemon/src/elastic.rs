//! How many shards have a thread of their own: decided on how busy they are.
//!
//! A daemon begins with the fewest it may have. Another shard begins when one is busy and what it has would fit
//! nowhere (`placement.rs` says when); the last one stops when the others have had time for all of it for a while. A
//! daemon that has the fewest looks at nothing.

use crate::placement::permille;

/// Between two changes of their number, at least.
const CHANGE_NS: u64 = 1_000_000_000;
/// How often a daemon with more than the fewest looks whether one less would do.
pub(crate) const LOOK_NS: u64 = 500_000_000;
/// One less would do while the others were no busier than this, on average, in parts of a thousand; for so long.
const QUIET_PERMILLE: u64 = 400;
const QUIET_NS: u64 = 5_000_000_000;

/// The shards that have threads of their own and take in what is new: the first so many.
#[derive(Debug)]
pub(crate) struct Elastic {
    least: usize,
    most: usize,
    open: usize,
    changed_ns: Option<u64>,
    /// When they were looked at last, and what each had been busy for until then.
    looked: Option<(u64, Vec<u64>)>,
    quiet_since_ns: Option<u64>,
}

impl Elastic {
    /// Of a daemon that may have from `least` to `most` and has `open` now.
    pub fn new(least: usize, most: usize, open: usize) -> Self {
        Self { least, most, open, changed_ns: None, looked: None, quiet_since_ns: None }
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Whether there are more than need be.
    pub fn is_stretched(&self) -> bool {
        self.open > self.least
    }

    /// Whether another may begin.
    pub fn may_grow(&self, now_ns: u64) -> bool {
        self.open < self.most && self.changed_ns.is_none_or(|at| now_ns.saturating_sub(at) >= CHANGE_NS)
    }

    /// Another has begun.
    pub fn grew(&mut self, now_ns: u64) {
        self.open += 1;
        self.changed(now_ns);
    }

    /// The last is to stop, and takes in nothing new.
    pub fn shrank(&mut self, now_ns: u64) {
        self.open -= 1;
        self.changed(now_ns);
    }

    /// Looks at how long each has been busy in all. Whether one less would do.
    pub fn look(&mut self, now_ns: u64, busy_ns: &[u64]) -> bool {
        let before = self.looked.replace((now_ns, busy_ns.to_vec()));
        let Some((at_ns, busy_before)) = before.filter(|(_, busy)| busy.len() == busy_ns.len()) else {
            return false;
        };
        let since_ns: u64 =
            busy_ns.iter().zip(&busy_before).map(|(now, before)| now.saturating_sub(*before)).sum();
        let others = self.open.saturating_sub(1).max(1) as u64;
        if permille(since_ns / others, now_ns.saturating_sub(at_ns)) > QUIET_PERMILLE {
            self.quiet_since_ns = None;
            return false;
        }
        let quiet_since_ns = *self.quiet_since_ns.get_or_insert(at_ns);
        self.is_stretched() && now_ns.saturating_sub(quiet_since_ns) >= QUIET_NS
    }

    fn changed(&mut self, now_ns: u64) {
        (self.changed_ns, self.looked, self.quiet_since_ns) = (Some(now_ns), None, None);
    }
}

#[cfg(test)]
mod tests {
    //! Shows when shards begin and stop, in virtual time.
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Looks at shards that are so busy, in parts of a thousand, until one less would do. When.
    fn quiet_after(elastic: &mut Elastic, permille: &[u64]) -> Option<u64> {
        (0..100).map(|look| look * LOOK_NS).find(|ns| {
            let busy: Vec<u64> = permille.iter().map(|share| share * ns / 1_000).collect();
            elastic.look(*ns, &busy)
        })
    }

    #[test]
    fn it_grows_to_the_most_one_by_one() {
        let mut elastic = Elastic::new(1, 3, 1);
        assert!(elastic.may_grow(0), "nothing has changed yet");
        elastic.grew(S);
        assert!(!elastic.may_grow(S + S / 2), "it has just grown");
        assert!(elastic.may_grow(2 * S));
        elastic.grew(2 * S);
        assert!(!elastic.may_grow(9 * S), "there are as many as there may be");
        assert_eq!(elastic.open(), 3);
    }

    #[test]
    fn one_less_will_do_when_the_others_have_time_for_all() {
        let table: [(&str, usize, &[u64], bool); 6] = [
            ("two would be busy for 450 each", 3, &[500, 200, 200], false),
            ("two would be busy for 395 each", 3, &[500, 200, 90], true),
            ("one would be busy for 500", 2, &[400, 100], false),
            ("one would be busy for 300", 2, &[200, 100], true),
            ("all rest", 4, &[0, 0, 0, 0], true),
            ("there is one, and one there must be", 1, &[0], false),
        ];
        for (why, open, permille, will_do) in table {
            let when = quiet_after(&mut Elastic::new(1, 4, open), permille);
            assert_eq!(when, will_do.then_some(QUIET_NS), "{why}");
        }
    }

    #[test]
    fn a_busy_moment_begins_the_quiet_time_anew() {
        let mut elastic = Elastic::new(1, 2, 2);
        let mut busy_ns = 0;
        let mut shrinks_at = None;
        for look in 0..40 {
            // Busy between the eighth look and the ninth, and at rest otherwise.
            busy_ns += if look == 9 { LOOK_NS } else { 0 };
            let now_ns = look * LOOK_NS;
            if elastic.look(now_ns, &[busy_ns, 0]) {
                shrinks_at.get_or_insert(now_ns);
            }
        }
        assert_eq!(shrinks_at, Some(9 * LOOK_NS + QUIET_NS));
    }

    #[test]
    fn after_a_change_it_looks_anew() {
        let mut elastic = Elastic::new(1, 3, 3);
        assert!(quiet_after(&mut elastic, &[0, 0, 0]).is_some());
        elastic.shrank(S);
        assert_eq!(elastic.open(), 2);
        assert!(!elastic.look(2 * QUIET_NS, &[0, 0]), "it is the first look at two");
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut elastic = Elastic::new(2, 2, 2);
        assert!(!elastic.may_grow(9 * S));
        assert_eq!(quiet_after(&mut elastic, &[0, 0]), None);
    }
}
