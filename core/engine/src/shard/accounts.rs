//! What each sender has under way to other shards.

use super::by_slot::BySlot;
use super::crossing::Payer;
use crate::{CallKey, SessionKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use trunkline_call::KeyedMap;

/// The accounts of those who have something under way, or wait to.
#[derive(Debug, Default)]
pub(crate) struct SenderAccounts {
    of_sessions: BySlot<SenderAccount>,
    of_others: KeyedMap<Payer, SenderAccount>,
}

/// What one sender has under way.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SenderAccount {
    pub bytes: u64,
    /// Calls that wait until some of it was used; `true` for a response.
    pub blocked: VecDeque<(CallKey, bool)>,
}

impl SenderAccount {
    #[inline(always)]
    fn charge_if_room(&mut self, bytes: u64, max: u64) -> bool {
        let may_cross = self.bytes == 0 || self.bytes.saturating_add(bytes) <= max;
        self.bytes = self.bytes.saturating_add(if may_cross { bytes } else { 0 });
        may_cross
    }
}

impl SenderAccounts {
    /// A sender's account, which is opened if it has none.
    pub fn of(&mut self, payer: Payer) -> &mut SenderAccount {
        match payer {
            Payer::Session(session) => {
                self.of_sessions.get_or_insert_with(session.to_bits(), SenderAccount::default)
            }
            payer => self.of_others.entry(payer).or_default(),
        }
    }

    /// So many bytes more of a sender are under way, if they may be: one message may be, however large, if nothing else
    /// is.
    #[inline(always)]
    pub fn charge_if_room(&mut self, payer: Payer, bytes: u64, max: u64) -> bool {
        match self.find(payer) {
            Some(account) => account.charge_if_room(bytes, max),
            None => self.of(payer).charge_if_room(bytes, max),
        }
    }

    #[inline(always)]
    pub fn find(&mut self, payer: Payer) -> Option<&mut SenderAccount> {
        match payer {
            Payer::Session(session) => self.of_sessions.get_mut(session.to_bits()),
            payer => self.of_others.get_mut(&payer),
        }
    }

    pub fn close(&mut self, payer: Payer) {
        match payer {
            Payer::Session(session) => drop(self.of_sessions.remove(session.to_bits())),
            payer => drop(self.of_others.remove(&payer)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Payer, &SenderAccount)> {
        let of_sessions = self.of_sessions.iter();
        let of_sessions =
            of_sessions.map(|(session, account)| (Payer::Session(SessionKey::from_bits(session)), account));
        of_sessions.chain(self.of_others.iter().map(|(payer, account)| (*payer, account)))
    }
}

/// As a map, which it was.
impl Serialize for SenderAccounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for SenderAccounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = Self::default();
        for (payer, account) in KeyedMap::deserialize(deserializer)? {
            *all.of(payer) = account;
        }
        Ok(all)
    }
}
