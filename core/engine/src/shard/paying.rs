//! Who pays for what crosses, and whose calls go on when it is used (`accounts.rs`).

use super::crossing::Payer;
use super::links::{ShardLine, ShardLinks};
use crate::CallKey;
use crate::held::Holding;

/// Senders that look at once whether there is room for theirs.
const STARVED_LOOKED_MAX: usize = 64;

impl ShardLinks {
    /// So many bytes of a sender cross.
    pub fn charge(&mut self, payer: Payer, bytes: u32) {
        let account = self.accounts.of(payer);
        account.bytes = account.bytes.saturating_add(bytes.into());
    }

    /// So many bytes more of a sender cross, if they may: one message may, however large, if nothing else of it does.
    #[inline]
    pub fn charge_if_room(
        &mut self,
        payer: Payer,
        bytes: u64,
        max: usize,
        whose: impl FnOnce() -> Holding,
    ) -> bool {
        self.accounts.charge_if_room(payer, bytes, max as u64, whose)
    }

    /// They were used.
    pub fn discharge(&mut self, payer: Payer, bytes: u64) {
        if self.accounts.discharge(payer, bytes) {
            self.stir(ShardLine::Sender(payer));
        }
        self.stir_starved(1);
    }

    /// So many senders that wait for others' messages to be used look whether there is room.
    fn stir_starved(&mut self, most: usize) {
        for _ in 0..most {
            let Some(payer) = self.accounts.next_starved() else { return };
            self.stir(ShardLine::Sender(payer));
        }
    }

    /// The same, after a while: room may have come from elsewhere.
    pub fn look_after_starved(&mut self) {
        self.accounts.are_looked_after();
        self.stir_starved(STARVED_LOOKED_MAX);
    }

    /// Bytes of messages of senders here that are on their way to other shards, or there.
    pub fn bytes_under_way(&self) -> u64 {
        self.accounts.iter().map(|(_, account)| account.bytes).sum()
    }

    /// A call that has come back waits, with its message. `false`: its sender has too much that does.
    pub fn put_aside(&mut self, call: CallKey, payer: Payer, bytes: u64, max: usize) -> bool {
        let fits = self.accounts.put_aside(call, payer, bytes, max as u64);
        if fits && bytes > 0 && self.accounts.find(payer).is_some_and(|one| !one.blocked.is_empty()) {
            self.stir(ShardLine::Sender(payer));
        }
        fits
    }

    /// It waits no more.
    pub fn take_up_aside(&mut self, call: CallKey) {
        self.accounts.take_up(call);
    }
}
