//! A call that was found once, lent to whoever has to do with it.

use crate::CallKey;
use crate::call::{Call, Calls, ClientEnd};

/// A call, and the one that it is made for if it is an attempt.
pub(crate) struct LentCall<'c> {
    pub key: CallKey,
    pub call: &'c mut Call,
    of: Option<&'c Call>,
}

impl<'c> LentCall<'c> {
    /// Lends a call, unless it is gone.
    #[inline(always)]
    pub fn of(calls: &'c mut Calls, key: CallKey) -> Option<Self> {
        let made_for = |call: &Call| match call.client {
            ClientEnd::Attempt { call, .. } => Some(call),
            _ => None,
        };
        let (call, of) = calls.find_with(key, made_for)?;
        Some(Self { key, call, of: of.map(|of| &*of) })
    }

    /// Lends a call that somebody has at hand, and that is no attempt.
    #[inline(always)]
    pub fn alone(key: CallKey, call: &'c mut Call) -> Self {
        Self { key, call, of: None }
    }

    /// The call that somebody makes: an attempt is made for another, which may be gone.
    #[inline]
    pub fn made_for(&self) -> Option<&Call> {
        match self.call.client {
            ClientEnd::Attempt { .. } => self.of,
            _ => Some(self.call),
        }
    }

    /// The call with its key, as its ends are lent it.
    #[inline(always)]
    pub fn named(&mut self) -> (CallKey, &mut Call) {
        (self.key, self.call)
    }
}
