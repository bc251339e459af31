//! The calls that a session serves: found when it goes, without looking at those of others.

use crate::CallKey;

/// Their keys, and those of some that are over: about twice as many as it serves at most, or [`LOOKED_AT_MIN`].
#[derive(Debug, Default)]
pub(crate) struct ServedCalls {
    keys: Vec<CallKey>,
    /// Keys at which those of calls that are over go.
    looked_at: usize,
}

/// So few are not looked through: what a call costs is its own key, and a look at two others.
const LOOKED_AT_MIN: usize = 256;

impl ServedCalls {
    /// The session is to serve this one. `is_served` says of others whether it still does.
    #[inline]
    pub fn enter(&mut self, call: CallKey, is_served: impl Fn(CallKey) -> bool) {
        if self.keys.len() >= self.looked_at {
            self.let_go(is_served);
        }
        self.keys.push(call);
    }

    #[cold]
    fn let_go(&mut self, is_served: impl Fn(CallKey) -> bool) {
        self.keys.retain(|call| is_served(*call));
        self.looked_at = LOOKED_AT_MIN.max(2 * self.keys.len());
        if self.keys.capacity() > 4 * self.looked_at {
            self.keys.shrink_to(self.looked_at);
        }
    }

    /// All it serves, and some that are over; one may be there twice.
    pub fn iter(&self) -> impl Iterator<Item = CallKey> {
        self.keys.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    //! Shows that all that is served is found, and that what is over is not kept.
    use super::*;

    #[test]
    fn what_is_over_goes_and_what_is_served_stays() {
        let key = CallKey::from_bits;
        let mut calls = ServedCalls::default();
        for call in 0..10_000 {
            calls.enter(key(call), |one| one.to_bits() < 100);
            assert!(calls.keys.len() <= LOOKED_AT_MIN, "{}", calls.keys.len());
        }
        assert!((0..100).all(|call| calls.iter().any(|one| one == key(call))));
        (0..10_000).for_each(|call| calls.enter(key(call), |_| true));
        calls.let_go(|_| false);
        assert!(calls.keys.is_empty() && calls.keys.capacity() <= LOOKED_AT_MIN);
    }
}
