//! What one shard keeps of the others: what is to go to them, who waits for that, and whose messages are under way.

use super::accounts::SenderAccounts;
use super::batch::CrossingBatch;
use super::crossing::{
    CrossedBody, Crossing, Offers, Payer, ShardFinish, ShardIndex, ShardOpening, ShardSaid,
};
use super::deferred::Deferred;
use super::elsewhere::{Elsewhere, ServingShard};
use super::link::ShardLink;
use super::majority::Majority;
use super::spares::{SpareBodies, Spares};
use super::telling::Telling;
use crate::call_line::CallLine;
use crate::registry::{MethodKey, MethodTypes};
use crate::{CallKey, PeerKey};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::Pattern;

/// Items that wait to go to one shard before further ones wait in their calls.
pub(crate) const ITEMS_MAX: usize = 1024;

/// The other shards. One that is alone has none, and pays for none.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShardLinks {
    own: u16,
    /// One for each shard, its own among them: what comes back from another may go on here.
    pub(super) links: Vec<ShardLink>,
    pub(super) accounts: SenderAccounts,
    /// What has come and was not handled yet, by where it comes from: from this very shard, or before it was handed
    /// over.
    inbox: VecDeque<(ShardIndex, Crossing)>,
    /// Bytes of messages that the daemon holds itself until they may cross.
    parked_bytes: usize,
    pub elsewhere: Elsewhere,
    /// Whose calls most of those are that cross from connections, since this was asked last.
    #[serde(skip)]
    pub crossing_peers: Majority<PeerKey>,
    /// Private copies of messages that were used, for those that cross from here.
    #[serde(skip)]
    pub bodies: SpareBodies<CrossedBody>,
    /// Boxes for openings and ends that cross from here.
    #[serde(skip)]
    pub spares: Spares<ShardOpening, ShardFinish>,
    /// What the others were told of who serves what here.
    #[serde(rename = "told")]
    pub telling: Telling,
    /// Lines in which somebody may go on.
    stirred: Vec<ShardLine>,
    /// Sessions that are on their way to other shards, the first to arrive first. As many as the host moves at once.
    #[serde(default)]
    moving: VecDeque<Moving>,
    /// Calls for what those serve, which have come here meanwhile.
    #[serde(default)]
    pub deferred: Deferred,
    /// Ids of delivered calls say which shard gave them. Those of older programs did not.
    #[serde(default)]
    ids_name_shard: bool,
}

/// A session on its way to another shard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Moving {
    pub to: ShardIndex,
    pub offers: Arc<Offers>,
}

/// A line of calls that wait to send to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ShardLine {
    /// For room among what goes there.
    Link(ShardIndex),
    /// For messages of the same sender to be used.
    Sender(Payer),
}

impl ShardLinks {
    /// This is one of `count` shards.
    pub fn join(&mut self, own: ShardIndex, count: u16) {
        (self.own, self.ids_name_shard) = (own.0, true);
        let count = if count > 1 { usize::from(count) } else { 0 };
        self.links.resize_with(count, ShardLink::default);
    }

    /// Goes on with what a shard before this one kept, which had the same number. There may be more shards than it knew
    /// of, or fewer: those that are gone had nothing. `false`: that was another shard, or it was not so.
    pub fn take_up(&mut self, from: Self) -> bool {
        if from.own != self.own {
            return false;
        }
        let count = self.links.len();
        if usize::from(from.busy()) > count.max(1) {
            return false;
        }
        let budget = self.accounts.take_budget();
        *self = from;
        budget.into_iter().for_each(|held| self.accounts.book_in(held));
        self.stir_waiting();
        if self.links.len() == count {
            return true;
        }
        self.links.resize_with(count, ShardLink::default);
        let is_here = |shard: ShardIndex| usize::from(shard.0) < count;
        // Nobody arrives there, and what the others have said last is of things that are over.
        self.moving.retain(|moving| is_here(moving.to));
        // What waits for others who do is put by once more.
        self.deferred.go_on(&mut self.inbox);
        self.inbox.retain(|(from, _)| is_here(*from));
        self.elsewhere.retain(is_here);
        self.stirred.retain(|line| !matches!(line, ShardLine::Link(shard) if !is_here(*shard)));
        // Those that are new have not heard.
        self.telling.begin_anew();
        true
    }

    /// Whether ids of calls that are delivered may not say which shard gave them; from now on they do.
    pub fn had_plain_ids(&mut self) -> bool {
        !std::mem::replace(&mut self.ids_name_shard, true) && self.own > 0
    }

    /// How many shards there must be: up to the last with which this one has calls. Alone it has no way to itself.
    pub fn busy(&self) -> u16 {
        let says =
            |link: &ShardLink| !link.taken.is_empty() || link.outbox.iter().any(Crossing::says_what_was_used);
        // Without it, those whose bytes it has used could send less for ever.
        let own = if self.links.iter().any(says) { self.own + 1 } else { 0 };
        self.links
            .iter()
            .rposition(|link| !link.is_idle())
            .map_or(own, |last| own.max(last as u16 + 1).max(2))
    }

    /// Queues something for a shard.
    #[inline(always)]
    pub fn push(&mut self, to: ShardIndex, said: ShardSaid) {
        let (own, crossing) = (self.own, Crossing(said));
        match self.links.get_mut(usize::from(to.0)) {
            Some(link) if to.0 != own && !crossing.goes_ahead() => link.outbox.push_back(crossing),
            _ => self.push_ahead(to, crossing),
        }
    }

    /// The same of what comes back to this very shard, or goes ahead of calls.
    #[cold]
    fn push_ahead(&mut self, to: ShardIndex, crossing: Crossing) {
        if to == self.own() {
            return self.park_crossing(to, crossing);
        }
        if let Some(link) = self.link(to) {
            link.outbox.insert(link.ahead(), crossing);
        }
    }

    /// Keeps what has come from a shard, to be handled in this order.
    pub fn park_crossing(&mut self, from: ShardIndex, crossing: Crossing) {
        if !matches!(crossing.0, ShardSaid::Spares(_)) {
            self.inbox.push_back((from, crossing));
        }
    }

    /// The next of what has come and was kept.
    pub fn next_parked(&mut self) -> Option<(ShardIndex, Crossing)> {
        self.inbox.pop_front()
    }

    /// Whether there is any.
    pub fn has_parked(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// What goes to a shard next ([`ShardLink::next_batch`]). Calls that waited for room may go on.
    #[inline]
    pub fn next_batch(&mut self, to: ShardIndex, most: usize) -> Option<CrossingBatch> {
        let link = self.link(to)?;
        let batch = link.next_batch(most)?;
        if !link.blocked.is_empty() && link.outbox.len() < ITEMS_MAX {
            self.stir(ShardLine::Link(to));
        }
        Some(batch)
    }

    /// A batch that is read and empty: memory for what is said to that shard next.
    #[inline]
    pub fn reuse_batch(&mut self, from: ShardIndex, CrossingBatch(batch): CrossingBatch) {
        if let Some(link) = self.link(from)
            && batch.capacity() <= ITEMS_MAX
        {
            link.next_outbox = batch;
        }
    }

    /// An opening from there is read.
    #[inline(always)]
    pub fn spent_opening(&mut self, from: ShardIndex, opening: Box<ShardOpening>) {
        if let Some(link) = self.link(from) {
            link.returns |= link.spent.put_opening(opening);
        }
    }

    /// An end from there is.
    #[inline(always)]
    pub fn spent_finish(&mut self, from: ShardIndex, finish: Box<ShardFinish>) {
        if let Some(link) = self.link(from) {
            link.returns |= link.spent.put_finish(finish);
        }
    }

    /// Senders with nothing under way whose calls wait look whether there is room for them here.
    fn stir_waiting(&mut self) {
        let waits = self.accounts.iter().filter(|(_, one)| one.bytes == 0 && !one.blocked.is_empty());
        let waiting: Vec<Payer> = waits.map(|(payer, _)| payer).collect();
        waiting.into_iter().for_each(|payer| self.stir(ShardLine::Sender(payer)));
    }

    /// Whether anything is to go to a shard.
    pub fn has_crossings(&self, to: ShardIndex) -> bool {
        let link = self.links.get(usize::from(to.0));
        let follows =
            |link: &ShardLink| link.moving == 0 && (!link.outbox.is_empty() || !link.taken.is_empty());
        link.is_some_and(|link| follows(link) || link.ahead() > 0)
    }

    /// Whether the next item for a shard has to wait.
    pub fn is_full(&self, to: ShardIndex) -> bool {
        self.links.get(usize::from(to.0)).is_none_or(|link| link.outbox.len() >= ITEMS_MAX)
    }

    /// A message that has crossed was used, or thrown away.
    pub fn used(&mut self, body: &CrossedBody) {
        self.note_used(body);
    }

    #[inline(always)]
    fn note_used(&mut self, body: &CrossedBody) {
        let bytes = body.bytes.len() as u64;
        if body.from == self.own() {
            return self.discharge(body.payer, bytes);
        }
        let Some(link) = self.link(body.from) else { return };
        match (link.taken.first_mut(), body.payer) {
            // Mostly one sender sends.
            (Some((Payer::Session(of), taken)), Payer::Session(payer)) if *of == payer => {
                *taken = taken.saturating_add(bytes);
            }
            (_, payer) => link.note_taken(payer, bytes),
        }
    }

    /// The same of a copy that nobody needs any more: it is memory for the next.
    #[inline]
    pub fn used_up(&mut self, body: Box<CrossedBody>) {
        self.note_used(&body);
        self.bodies.put_by(body.bytes.capacity(), body);
    }

    /// A list of what was used, read and empty: memory for what is said to that shard next.
    pub fn reuse_taken(&mut self, from: ShardIndex, taken: Vec<(Payer, u64)>) {
        if let Some(link) = self.link(from) {
            link.next_taken = taken;
        }
    }

    /// The method here of the path of the call that came from a shard last, if this is it.
    #[inline]
    pub fn called_last(&self, from: ShardIndex, path: &Arc<str>) -> Option<MethodKey> {
        let (last, method) = self.links.get(usize::from(from.0))?.called.as_ref()?;
        Arc::ptr_eq(last, path).then_some(*method)
    }

    /// A call of this path has come from there.
    pub fn note_called(&mut self, from: ShardIndex, path: &Arc<str>, method: MethodKey) {
        self.link(from).into_iter().for_each(|link| link.called = Some((Arc::clone(path), method)));
    }

    /// A call waits in a line. `waits` says of those that do whether they still do.
    pub fn line_up(
        &mut self,
        line: ShardLine,
        entry: (CallKey, bool),
        waits: impl Fn((CallKey, bool)) -> bool,
    ) {
        match line {
            ShardLine::Link(shard) => {
                if let Some(link) = self.link(shard) {
                    link.blocked.push(entry, waits);
                }
            }
            ShardLine::Sender(payer) => self.accounts.of(payer).blocked.push(entry, waits),
        }
    }

    /// Entries in all lines.
    pub fn entries_in_line(&self) -> usize {
        let of_links = self.links.iter().map(|link| link.blocked.len());
        of_links.chain(self.accounts.iter().map(|(_, account)| account.blocked.len())).sum()
    }

    /// Lines in which somebody may go on.
    pub fn take_stirred(&mut self) -> Vec<ShardLine> {
        std::mem::take(&mut self.stirred)
    }

    /// Whether somebody may.
    pub fn is_stirred(&self) -> bool {
        !self.stirred.is_empty() || self.accounts.want_to_be_looked_after()
    }

    /// The first in a line.
    pub fn next_blocked(&mut self, line: ShardLine) -> Option<(CallKey, bool)> {
        let next = self.blocked_in(line)?.pop();
        if let (None, ShardLine::Sender(payer)) = (next, line)
            && self.accounts.find(payer).is_some_and(|account| account.bytes == 0)
        {
            self.accounts.close(payer);
        }
        next
    }

    /// Whether it is the last in the line by now: it has to wait on, and does so in front.
    pub fn is_blocked_again(&mut self, line: ShardLine, first: (CallKey, bool)) -> bool {
        self.blocked_in(line).is_some_and(|blocked| blocked.waits_again(first))
    }

    /// Bytes the daemon holds itself until they may cross, if so many more may be held.
    pub fn park(&mut self, bytes: usize, max: usize) -> bool {
        let fits = bytes == 0 || self.parked_bytes == 0 || self.parked_bytes + bytes <= max;
        self.parked_bytes += if fits { bytes } else { 0 };
        fits
    }

    /// They are held no longer.
    pub fn unpark(&mut self, bytes: usize) {
        self.parked_bytes = self.parked_bytes.saturating_sub(bytes);
    }

    /// A call made there is served here.
    #[inline]
    pub fn enter(&mut self, from: ShardIndex, number: u64, call: CallKey) {
        self.link(from).into_iter().for_each(|link| link.served.insert(number, call));
    }

    /// It is over.
    #[inline]
    pub fn forget(&mut self, from: ShardIndex, number: u64) {
        self.link(from).into_iter().for_each(|link| _ = link.served.remove(number));
    }

    /// The call made there by this number.
    pub fn served(&self, from: ShardIndex, number: u64) -> Option<CallKey> {
        self.links.get(usize::from(from.0))?.served.get(number).copied()
    }

    /// A call made here goes to work there.
    pub fn note_made(&mut self, at: ShardIndex) {
        self.link(at).into_iter().for_each(|link| link.made += 1);
    }

    /// It is over.
    pub fn note_left(&mut self, at: ShardIndex, call: CallKey) {
        if let Some(link) = self.link(at) {
            link.made = link.made.saturating_sub(1);
            if let Some(number) = (!link.numbers.is_empty()).then(|| link.numbers.remove(&call)).flatten() {
                link.brought.remove(&number);
            }
        }
    }

    /// A call that was made there goes on as one that is made here and at work there, where it has this number.
    pub fn bring(&mut self, from: ShardIndex, number: u64, call: CallKey) {
        self.note_made(from);
        if let Some(link) = self.link(from) {
            link.brought.insert(number, call);
            link.numbers.insert(call, number);
        }
    }

    /// The number a call made here has at the shard where it is at work.
    pub fn number_at(&self, at: ShardIndex, call: CallKey) -> u64 {
        let link = self.links.get(usize::from(at.0));
        link.and_then(|link| link.numbers.get(&call).copied()).unwrap_or_else(|| call.to_bits())
    }

    /// The call made here that has this number there.
    #[inline]
    pub fn made_by(&self, at: ShardIndex, number: u64) -> CallKey {
        let link = self.links.get(usize::from(at.0));
        link.and_then(|link| link.brought.get(&number).copied()).unwrap_or_else(|| CallKey::from_bits(number))
    }

    /// A session leaves for another shard, with what it serves.
    pub fn move_away(&mut self, to: ShardIndex, offers: Arc<Offers>) {
        self.link(to).into_iter().for_each(|link| link.moving += 1);
        self.moving.push_back(Moving { to, offers });
        self.telling.begin_anew();
    }

    /// The first of those that left for this shard has arrived there.
    pub fn has_arrived(&mut self, at: ShardIndex) -> Option<Arc<Offers>> {
        let link = self.link(at)?;
        link.moving = link.moving.saturating_sub(1);
        let first = self.moving.iter().position(|moving| moving.to == at)?;
        let offers = self.moving.remove(first)?.offers;
        self.telling.begin_anew();
        self.deferred.go_on(&mut self.inbox);
        Some(offers)
    }

    /// Sessions on their way.
    pub fn moving(&self) -> impl Iterator<Item = &Moving> {
        self.moving.iter()
    }

    /// The shard with the fewest calls from here for each of its sessions that serve the method.
    #[inline]
    pub fn serving<'a>(
        &self,
        method: MethodKey,
        path: impl FnOnce() -> &'a str,
        stands_by: bool,
    ) -> Option<&ServingShard> {
        if let Some(one) = self.elsewhere.only_one(method) {
            return (one.stands_by == stands_by).then_some(one);
        }
        self.least_loaded(method, path(), stands_by)
    }

    fn least_loaded(&self, method: MethodKey, path: &str, stands_by: bool) -> Option<&ServingShard> {
        let load = |one: &ServingShard| {
            let made = self.links.get(usize::from(one.shard.0)).map_or(0, |link| link.made as u64);
            made.saturating_add(1).saturating_mul(1024) / u64::from(one.workers.max(1))
        };
        let serving = self.elsewhere.serving(method, path).filter(|one| one.stands_by == stands_by);
        serving.min_by_key(|one| load(one))
    }

    /// Shards whose workers get calls of a method by turns with those here: unary ones, of types that are known.
    pub fn sharing(&self, method: MethodKey, path: &str) -> impl Iterator<Item = &ServingShard> {
        let is_shared = |one: &&ServingShard| {
            let types = &one.types;
            !one.stands_by && types.pattern == Pattern::Unary && !types.input.is_opaque()
        };
        self.elsewhere.serving(method, path).filter(is_shared)
    }

    /// The types of those who serve a method there, while they do.
    pub fn types(&self, method: MethodKey, path: &str) -> impl Iterator<Item = &Arc<MethodTypes>> {
        self.elsewhere.serving(method, path).map(|one| &one.types)
    }

    /// Everybody but this one.
    pub fn others(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        let own = self.own();
        (0..self.links.len() as u16).map(ShardIndex).filter(move |shard| *shard != own)
    }

    /// Whether the host has no other shards.
    pub fn is_alone(&self) -> bool {
        self.links.is_empty()
    }

    /// Its own place.
    pub fn own(&self) -> ShardIndex {
        ShardIndex(self.own)
    }

    /// Types it names.
    pub fn all_types(&self) -> impl Iterator<Item = &Arc<MethodTypes>> {
        let said = self.crossings().flat_map(|crossing| crossing.0.types());
        let moving = self.moving.iter().flat_map(|moving| &moving.offers.methods).map(|offer| &offer.types);
        self.elsewhere.iter().map(|one| &one.types).chain(said).chain(moving)
    }

    /// The same, to be replaced.
    pub fn all_types_mut(&mut self) -> impl Iterator<Item = &mut Arc<MethodTypes>> {
        let out = self.links.iter_mut().flat_map(|link| &mut link.outbox);
        let said = out
            .chain(self.inbox.iter_mut().map(|(_, crossing)| crossing).chain(self.deferred.iter_mut()))
            .flat_map(|crossing| crossing.0.types_mut());
        let moving = self.moving.iter_mut().flat_map(|moving| &mut Arc::make_mut(&mut moving.offers).methods);
        self.elsewhere
            .iter_mut()
            .map(|one| &mut one.types)
            .chain(said)
            .chain(moving.map(|offer| &mut offer.types))
    }

    /// Bytes held here until they may cross.
    pub fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// All that is here and on its way.
    pub(super) fn crossings(&self) -> impl Iterator<Item = &Crossing> {
        let out = self.links.iter().flat_map(|link| &link.outbox);
        out.chain(self.inbox.iter().map(|(_, crossing)| crossing)).chain(self.deferred.iter())
    }

    fn blocked_in(&mut self, line: ShardLine) -> Option<&mut CallLine<(CallKey, bool)>> {
        match line {
            ShardLine::Link(shard) => self.link(shard).map(|link| &mut link.blocked),
            ShardLine::Sender(payer) => self.accounts.find(payer).map(|account| &mut account.blocked),
        }
    }

    pub(super) fn stir(&mut self, line: ShardLine) {
        if !self.stirred.contains(&line) {
            self.stirred.push(line);
        }
    }

    fn link(&mut self, shard: ShardIndex) -> Option<&mut ShardLink> {
        self.links.get_mut(usize::from(shard.0))
    }
}

#[cfg(test)]
mod tests {
    //! Shows what goes on where there are fewer shards than before.
    use super::*;

    #[test]
    fn a_shard_stays_until_it_has_said_what_it_has_used() {
        let body = CrossedBody { from: ShardIndex(0), bytes: vec![7; 100], ..CrossedBody::default() };
        let mut links = ShardLinks::default();
        links.join(ShardIndex(2), 3);
        assert_eq!(links.busy(), 0);
        links.used(&body);
        assert_eq!(links.busy(), 3);
        assert_eq!(links.next_batch(ShardIndex(0), 64).unwrap().len(), 1);
        assert_eq!(links.busy(), 0);
    }

    #[test]
    fn what_waited_for_a_session_goes_on_where_it_came_from_a_shard_that_is_there() {
        for (count, expected) in [(3, vec![]), (2, vec![(1, 7)]), (1, vec![])] {
            let mut before = ShardLinks::default();
            before.join(ShardIndex(0), 3);
            before.move_away(ShardIndex(2), Arc::default());
            for (from, call) in [(1, 7), (2, 8)] {
                let opening = Box::new(ShardOpening { call, ..ShardOpening::default() });
                before.deferred.push(ShardIndex(from), opening);
            }
            let mut links = ShardLinks::default();
            links.join(ShardIndex(0), count);
            assert!(links.take_up(before));
            let said = links.inbox.iter().map(|(from, crossing)| match &crossing.0 {
                ShardSaid::Open(opening) => (from.0, opening.call),
                other => panic!("{other:?}"),
            });
            assert_eq!(said.collect::<Vec<_>>(), expected, "{count} shards");
            // The session is still on its way where all shards are there.
            assert_eq!(links.deferred.iter().count(), if count == 3 { 2 } else { 0 });
        }
    }
}
