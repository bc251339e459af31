//! One direction of a call: what waits in it, what has passed, and what that holds of its receiver's heap.

use crate::PeerKey;
use crate::heaps::Heaps;
use crate::item::{Body, Item};
use crate::shares::Share;
use std::collections::VecDeque;
use trunkline_call::Instant;

/// What waits in one direction of a call, in order.
pub(crate) type Backlog = VecDeque<Item<'static>>;

/// One direction of a call.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Half {
    /// What could not be passed on yet, in order. Bounded by the sender's window (streams) or to one item (unary).
    pub backlog: Backlog,
    /// What has come of a message that the receiver gets as one item (`gather.rs`).
    pub gathered: Option<Box<Item<'static>>>,
    /// Since when the backlog's head waits.
    pub waiting_since: Option<Instant>,
    /// It waits for room in the receive heap of a session, its receiver: set by who could not hand it over.
    #[serde(default)]
    pub waits_for_room: bool,
    /// The backlog's head waits for its turn until then, or has had it (`admission/pacing.rs`).
    pub paced_until: Option<Instant>,
    /// What the item that waits until then pays for its turn; zero once it has had it.
    #[serde(default)]
    pub paced_cost_ns: u64,
    /// No more messages come.
    pub ended: bool,
    /// Its headers have come (response only); there are none after them.
    pub introduced: bool,
    /// What a sending session's messages took from its window and was not given back. Below zero if its call came with
    /// a message, which takes nothing and is given back all the same.
    pub charged: i64,
    /// Messages passed on whose bytes have not been released by the receiver: (charged by the sender, by the receiver).
    pub unreleased: VecDeque<(u32, u32)>,
    /// What its messages hold of the receiver's heap.
    #[serde(default)]
    pub share: Share,
    /// Room that the backlog's head, as its receiver gets it, needs in the heap there; zero if nobody has found out.
    #[serde(default)]
    pub room_wanted: u32,
    /// The connection that still pays for the large messages in the backlog.
    #[serde(default)]
    pub large_of: Option<PeerKey>,
    /// The large messages in the backlog are answers, for which the caller pays.
    #[serde(default)]
    pub large_waits: bool,
    /// The server end, which is through with the call, knew that it streams (response only).
    #[serde(default)]
    pub is_of_stream: bool,
    /// Receiver-side bytes released that do not yet make up the head of `unreleased`.
    pub released_bytes: u64,
    /// Message bytes passed on, as the sender counted them.
    pub bytes: u64,
    /// Messages passed on.
    pub messages: u64,
}

impl Half {
    /// Lets go of everything in it: nothing has come in this direction yet.
    #[inline(always)]
    pub fn clear(&mut self) {
        let Self {
            backlog,
            gathered,
            waiting_since,
            waits_for_room,
            paced_until,
            // Of an item that waits for its turn.
            paced_cost_ns: _,
            ended,
            introduced,
            charged,
            unreleased,
            share,
            room_wanted,
            large_of,
            large_waits,
            is_of_stream,
            released_bytes,
            bytes,
            messages,
        } = self;
        if backlog.capacity() > 0 {
            *backlog = VecDeque::new();
        }
        if unreleased.capacity() > 0 {
            *unreleased = VecDeque::new();
        }
        (*gathered, *waiting_since, *paced_until, *large_of) = (None, None, None, None);
        (*ended, *introduced, *large_waits, *is_of_stream) = (false, false, false, false);
        *waits_for_room = false;
        *share = Share::default();
        (*charged, *released_bytes, *bytes, *messages, *room_wanted) = (0, 0, 0, 0, 0);
    }

    /// Takes out what its receiver has of it, which is on another shard from now on.
    pub fn take_receiver_side(&mut self) -> Self {
        Self {
            unreleased: std::mem::take(&mut self.unreleased),
            share: std::mem::take(&mut self.share),
            released_bytes: std::mem::take(&mut self.released_bytes),
            ..Self::default()
        }
    }

    /// Blocks that are being written lie in other heaps now.
    pub fn rename_blocks(&mut self, heaps: &dyn Heaps) {
        for item in self.backlog.iter_mut().chain(self.gathered.as_deref_mut()) {
            if let Some(Body::Placed { session, block, .. }) = item.body_mut() {
                block.offset = heaps.renamed(*session, block.offset);
            }
        }
    }

    /// An item waits behind those that do.
    pub fn wait(&mut self, now: Instant, item: Item<'static>) {
        self.waiting_since.get_or_insert(now);
        self.backlog.push_back(item);
    }

    /// An item that has had its turn waits, or waits for its turn, before those that do.
    pub fn wait_first(&mut self, now: Instant, item: Item<'static>) {
        if self.paced_until.is_none() {
            (self.paced_until, self.paced_cost_ns) = (Some(now), 0);
        }
        self.waiting_since.get_or_insert(now);
        self.backlog.push_front(item);
    }

    /// What the backlog's head pays for the turn it waits for, if it waits for one.
    pub fn turn_cost_ns(&self) -> Option<u64> {
        self.paced_until.and(Some(self.paced_cost_ns)).filter(|cost_ns| *cost_ns > 0)
    }

    /// Whether nothing of it waits, is kept, or lies unreleased in its receiver's heap.
    pub fn is_at_rest(&self) -> bool {
        self.backlog.is_empty() && self.gathered.is_none() && self.share.held().is_none()
    }

    /// Counts a message passed on.
    pub fn count(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        self.messages += 1;
    }

    /// A message of a stream went to a session: once it releases `receiver_bytes`, the sender gets `sender_bytes` back.
    pub fn expect_release(&mut self, sender_bytes: u32, receiver_bytes: u32) {
        self.unreleased.push_back((sender_bytes, receiver_bytes));
    }

    /// The receiver released `bytes` of its own counting: how much credit the sender gets back.
    #[inline]
    pub fn release(&mut self, bytes: u32) -> u32 {
        self.released_bytes += u64::from(bytes);
        let mut credit = 0u32;
        while let Some(&(sender, receiver)) = self.unreleased.front() {
            if u64::from(receiver) > self.released_bytes {
                break;
            }
            self.released_bytes -= u64::from(receiver);
            credit = credit.saturating_add(sender);
            self.unreleased.pop_front();
        }
        credit
    }
}
