//! What each sender has under way to other shards.
//!
//! A sender has a bound of its own, below which one message may always go, however large. Beyond a first step what is
//! under way counts with whatever else is held for its user and for the host ([`HeldBudget`]): where that is full, a
//! sender with nothing under way waits for others' messages to be used. One message of a user may always go, however
//! large, if no other of its is booked here: whoever waits does so for somebody.
//!
//! What has come back and waits for a server (`returned.rs`) is held for its sender all the same, and is put aside: it
//! takes nothing of the bound of what is on its way.

use super::by_slot::BySlot;
use super::crossing::Payer;
use crate::call_line::CallLine;
use crate::held::{HELD_STEP_BYTES, HeldBudget, Holding};
use crate::{CallKey, SessionKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use trunkline_call::KeyedMap;

/// The accounts of those who have something under way, or wait to.
#[derive(Debug, Default)]
pub(crate) struct SenderAccounts {
    of_sessions: BySlot<SenderAccount>,
    of_others: KeyedMap<Payer, SenderAccount>,
    /// What is booked for all of them, once it is known what may be.
    held: Option<HeldBudget>,
    /// Senders with nothing under way that wait for room there, the first first: each once.
    starved: VecDeque<Payer>,
    /// Somebody looks after those in a while.
    is_looked_after: bool,
    /// What is put aside of whose, by the calls that wait. Nothing is after a hand-over, until they wait again.
    aside: KeyedMap<CallKey, (Payer, u64)>,
}

/// What one sender has under way.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SenderAccount {
    pub bytes: u64,
    /// Of those, what is put aside.
    #[serde(skip)]
    aside: u64,
    /// Calls that wait until some of it was used; `true` for a response.
    pub blocked: CallLine<(CallKey, bool)>,
    /// What is booked for it. Booked anew after a hand-over, with what is charged next.
    #[serde(skip)]
    holding: Holding,
    #[serde(skip)]
    is_starved: bool,
}

impl SenderAccount {
    /// Bytes there would be with so many more, if its own bound lets them be.
    #[inline(always)]
    fn with(&self, bytes: u64, max: u64) -> Option<u64> {
        let all = self.bytes.saturating_add(bytes);
        let is_alone = self.bytes == self.aside;
        (is_alone || all.saturating_sub(self.aside) <= max).then_some(all)
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

    /// From now on what is under way counts with what else is held.
    pub fn book_in(&mut self, held: HeldBudget) {
        self.held = Some(held);
    }

    /// What is booked in, to be kept by those that go on with others' accounts.
    pub fn take_budget(&mut self) -> Option<HeldBudget> {
        self.held.take()
    }

    /// So many bytes more of a sender are under way, if they may be: one message may be, however large, if nothing else
    /// of it is and there is room for it. `whose` says with what else it counts.
    #[inline(always)]
    pub fn charge_if_room(
        &mut self,
        payer: Payer,
        bytes: u64,
        max: u64,
        whose: impl FnOnce() -> Holding,
    ) -> bool {
        let account = match self.find(payer) {
            Some(account) => account,
            None => self.of(payer),
        };
        match account.with(bytes, max) {
            Some(all) if all <= HELD_STEP_BYTES => {
                account.bytes = all;
                true
            }
            Some(all) => self.charge_much(payer, all, whose),
            None => false,
        }
    }

    /// The same of more than is not booked at all.
    #[cold]
    fn charge_much(&mut self, payer: Payer, all: u64, whose: impl FnOnce() -> Holding) -> bool {
        let mut held = self.held.take();
        let account = self.of(payer);
        let fits = held.as_mut().is_none_or(|held| {
            if account.holding.booked_bytes() == 0 {
                account.holding = whose();
            }
            held.book(&mut account.holding, all).is_ok()
                || account.bytes == 0 && held.book_alone(&mut account.holding, all)
        });
        if fits {
            account.bytes = all;
        } else if account.bytes == account.aside && !std::mem::replace(&mut account.is_starved, true) {
            self.starved.push_back(payer);
        }
        self.held = held;
        fits
    }

    /// So many bytes less are under way. Whether calls of the sender wait for that.
    #[inline(always)]
    pub fn discharge(&mut self, payer: Payer, bytes: u64) -> bool {
        let Some(account) = self.find(payer) else { return false };
        account.bytes = account.bytes.saturating_sub(bytes);
        account.aside = account.aside.min(account.bytes);
        let (is_over, waits) = (account.bytes == 0, !account.blocked.is_empty());
        if account.holding.booked_bytes() > 0 {
            self.settle(payer);
        }
        if is_over && !waits {
            self.close(payer);
        }
        waits
    }

    /// What a call has under way of a sender waits from now on. `false`: more does than may.
    pub fn put_aside(&mut self, call: CallKey, payer: Payer, bytes: u64, max: u64) -> bool {
        let Some(account) = self.find(payer) else { return true };
        let aside = account.aside.saturating_add(bytes);
        if account.aside > 0 && aside > max {
            return false;
        }
        account.aside = aside.min(account.bytes);
        self.aside.insert(call, (payer, bytes));
        true
    }

    /// A call waits no more, so that what it has is under way again, or is used.
    pub fn take_up(&mut self, call: CallKey) {
        if let Some((payer, bytes)) = self.aside.remove(&call)
            && let Some(account) = self.find(payer)
        {
            account.aside = account.aside.saturating_sub(bytes);
        }
    }

    #[cold]
    fn settle(&mut self, payer: Payer) {
        let mut held = self.held.take();
        if let (Some(held), Some(account)) = (&mut held, self.find(payer)) {
            held.settle(&mut account.holding, account.bytes);
        }
        self.held = held;
    }

    /// Whether senders wait for room, after whom nobody looks yet.
    #[inline]
    pub fn want_to_be_looked_after(&self) -> bool {
        !self.starved.is_empty() && !self.is_looked_after
    }

    /// The same; whoever asks does.
    pub fn are_to_be_looked_after(&mut self) -> bool {
        self.want_to_be_looked_after() && !std::mem::replace(&mut self.is_looked_after, true)
    }

    /// Somebody looks after them now.
    pub fn are_looked_after(&mut self) {
        self.is_looked_after = false;
    }

    /// The next sender that waits for room.
    pub fn next_starved(&mut self) -> Option<Payer> {
        while let Some(payer) = self.starved.pop_front() {
            if let Some(account) = self.find(payer) {
                account.is_starved = false;
                return Some(payer);
            }
        }
        None
    }

    #[inline(always)]
    pub fn find(&mut self, payer: Payer) -> Option<&mut SenderAccount> {
        match payer {
            Payer::Session(session) => self.of_sessions.get_mut(session.to_bits()),
            payer => self.of_others.get_mut(&payer),
        }
    }

    pub fn close(&mut self, payer: Payer) {
        let account = match payer {
            Payer::Session(session) => self.of_sessions.remove(session.to_bits()),
            payer => self.of_others.remove(&payer),
        };
        if let (Some(held), Some(account)) = (&mut self.held, account) {
            held.leave(account.holding);
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

#[cfg(test)]
mod tests {
    //! Shows that senders of one user have no more under way together than may be held for it, and who goes next.
    use super::*;
    use crate::table::Key;

    const MAX: u64 = 64 << 20;

    fn payer(number: u64) -> Payer {
        Payer::Session(Key::from_bits(number << 32 | 1))
    }

    fn accounts(user_bytes: u64) -> SenderAccounts {
        let mut accounts = SenderAccounts::default();
        accounts.book_in(HeldBudget::new(user_bytes, 4 * user_bytes));
        accounts
    }

    fn charge(accounts: &mut SenderAccounts, number: u64, bytes: u64) -> bool {
        let user = if number < 10 { "uid:1" } else { "uid:2" };
        accounts.charge_if_room(payer(number), bytes, MAX, || Holding::of(user.into()))
    }

    #[test]
    fn a_user_has_no_more_under_way_than_may_be_held_for_it() {
        let mut accounts = accounts(3 << 20);
        assert!(charge(&mut accounts, 1, 2 << 20));
        for number in 2..5 {
            assert!(!charge(&mut accounts, number, 2 << 20), "{number}");
            assert!(!charge(&mut accounts, number, 2 << 20), "again");
            accounts.of(payer(number)).blocked.push((Key::from_bits(1), false), |_| true);
        }
        assert!(charge(&mut accounts, 5, 100 << 10), "what is small goes always");
        assert!(charge(&mut accounts, 11, 2 << 20), "another user's");
        assert!(accounts.are_to_be_looked_after() && !accounts.are_to_be_looked_after());
        assert!(!accounts.discharge(payer(1), 2 << 20));
        assert_eq!(accounts.next_starved(), Some(payer(2)));
        assert!(charge(&mut accounts, 2, 2 << 20));
        // One that has gone meanwhile is passed by.
        accounts.close(payer(3));
        assert_eq!((accounts.next_starved(), accounts.next_starved()), (Some(payer(4)), None));
        assert!(!charge(&mut accounts, 4, 2 << 20));
        assert_eq!(accounts.next_starved(), Some(payer(4)));
    }

    /// Nobody waits where there is nobody to wait for: one message of a user goes, although it has more than its part.
    #[test]
    fn one_message_goes_however_large() {
        let mut accounts = accounts(1 << 20);
        assert!(charge(&mut accounts, 1, 9 << 20));
        assert!(!charge(&mut accounts, 2, 9 << 20) && !charge(&mut accounts, 2, 300 << 10));
        accounts.discharge(payer(1), 9 << 20);
        assert_eq!(accounts.next_starved(), Some(payer(2)));
        assert!(charge(&mut accounts, 2, 9 << 20));
        accounts.discharge(payer(2), 9 << 20);
        assert_eq!(accounts.held.as_ref().unwrap().booked(), (0, 0));
    }

    #[test]
    fn what_is_put_aside_holds_up_nothing_and_is_bounded() {
        let (mut accounts, call) = (accounts(1 << 30), |number: u64| Key::from_bits(number << 32 | 1));
        let max = 1000;
        let charge = |accounts: &mut SenderAccounts, bytes| {
            accounts.charge_if_room(payer(1), bytes, max, Holding::default)
        };
        assert!(charge(&mut accounts, 900) && !charge(&mut accounts, 200));
        assert!(accounts.put_aside(call(1), payer(1), 900, max));
        assert!(charge(&mut accounts, 200) && !charge(&mut accounts, 900));
        assert!(!accounts.put_aside(call(2), payer(1), 200, max), "more waits than may");
        // The one that waits goes on: both are under way.
        accounts.take_up(call(1));
        assert!(!charge(&mut accounts, 1));
        accounts.discharge(payer(1), 900);
        assert!(charge(&mut accounts, 800));
        accounts.discharge(payer(1), 1000);
        assert!(accounts.find(payer(1)).is_none() && accounts.aside.is_empty());
    }

    #[test]
    fn nothing_stays_booked() {
        let mut accounts = accounts(3 << 20);
        for _ in 0..3 {
            assert!(charge(&mut accounts, 1, 1 << 20) && charge(&mut accounts, 1, 1 << 20));
            accounts.discharge(payer(1), 1 << 20);
            accounts.discharge(payer(1), 1 << 20);
            assert!(accounts.find(payer(1)).is_none());
            assert_eq!(accounts.held.as_ref().unwrap().booked(), (0, 0));
        }
    }
}
