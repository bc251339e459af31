//! What must hold by our own making, looked at in every build where it could first be seen broken.
//!
//! A broken invariant is a fault of ours, and ends neither the daemon nor anybody who has nothing to do with it: a
//! count stays at zero, the call in question ends, and the host is told, which writes a line. Each is told once.

/// The invariants found broken so far.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// By name: there are as many as the code has.
    broken: Vec<&'static str>,
    /// So many of them the host knows.
    told: usize,
}

impl Invariants {
    /// One does not hold.
    #[cold]
    pub fn note(&mut self, what: &'static str) {
        if !self.broken.contains(&what) {
            self.broken.push(what);
        }
    }

    /// What is left of a count something was taken off: nothing, if it was less, which must not be.
    pub fn left<T: Default>(&mut self, left: Option<T>, what: &'static str) -> T {
        left.unwrap_or_else(|| {
            self.note(what);
            T::default()
        })
    }

    /// The next the host has not heard of.
    pub fn poll(&mut self) -> Option<&'static str> {
        let next = self.broken.get(self.told)?;
        self.told += 1;
        Some(next)
    }

    /// The first that was found.
    pub fn first(&self) -> Option<&'static str> {
        self.broken.first().copied()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that each is told once, and that a count never wraps.
    use super::*;

    #[test]
    fn each_is_told_once() {
        let mut invariants = Invariants::default();
        assert_eq!(invariants.left(5u64.checked_sub(5), "a"), 0);
        assert_eq!((invariants.first(), invariants.poll()), (None, None));
        assert_eq!(invariants.left(5u64.checked_sub(6), "a"), 0);
        invariants.note("b");
        invariants.note("a");
        assert_eq!([invariants.poll(), invariants.poll(), invariants.poll()], [Some("a"), Some("b"), None]);
        invariants.note("b");
        assert_eq!((invariants.poll(), invariants.first()), (None, Some("a")));
    }
}
