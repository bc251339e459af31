//! What becomes of an item that has come: whether it is handed over, waits, or ends its call.
//!
//! Its call says most of it. [`Course`] is lent those who say the rest: policies let calls that have time wait for
//! others, endpoints reached over R2P2 expect items in another shape, delays may be planted. Whoever asks does what is
//! answered (`pass.rs`).

use crate::Plant;
use crate::admission::AdmissionControl;
use crate::call::{Body, Call, Direction, Item};
use crate::call_ends::ItemTurn;
use crate::cluster::Clusters;
use crate::due::Due;
use crate::gather::is_whole;
use crate::item::ItemWay;
use crate::remote::Remotes;
use trunkline_call::{Fault, Instant, TimerTable};
use trunkline_policy::Class;

/// What becomes of an item.
#[derive(Debug)]
pub(crate) enum ItemVerdict {
    /// It is handed over to the end its direction leads to.
    HandOver,
    /// It waits in its call. If that is for a time, there is a timer.
    Hold,
    /// It goes on in another shape, or when the rest has come.
    Reshape(Reshaping),
    /// It is thrown away.
    Drop,
    /// It is thrown away, and ends its call.
    Fail(Fault),
}

/// What is done with an item that the receiver gets in another shape (`gather.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reshaping {
    /// Nothing: all of it is there.
    Whole,
    /// It is joined with what has come, and with what comes.
    Join,
    /// Its message goes ahead of its end.
    Split,
}

/// Those who say what becomes of items, beside their calls.
pub(crate) struct Course<'e> {
    pub clusters: &'e mut Clusters,
    pub remotes: &'e Remotes,
    pub admission: &'e mut AdmissionControl,
    pub timers: &'e mut TimerTable<Due>,
    pub plant: Plant,
}

impl Course<'_> {
    /// What becomes of an item that has come for a call.
    #[inline]
    pub fn judge(&mut self, now: Instant, way: ItemWay, call: &mut Call, item: &Item<'_>) -> ItemVerdict {
        let direction = way.direction;
        let limit = call.message_bytes_max[direction as usize];
        let half = call.half(direction);
        if half.ended {
            return ItemVerdict::Drop;
        }
        if item.body().is_some_and(|body| body.len() > limit) {
            let name = "bytes of a message (maxRequestMessageBytes or maxResponseMessageBytes of the service config)";
            return ItemVerdict::Fail(Fault::Limit { name, limit: limit.into() });
        }
        if matches!(item, Item::Headers { .. }) && std::mem::replace(&mut half.introduced, true) {
            return ItemVerdict::Drop; // a sender that repeats itself must not fill the line
        }
        half.ended = ends(item);
        let by_r2p2 = |cluster| self.clusters.is_reached_by_r2p2(self.remotes, cluster);
        let reshapes = call.reshapes(direction, item);
        let reshapes = reshapes.unwrap_or_else(|| call.leads_over_r2p2(direction, by_r2p2));
        if let Item::Finish { code, metadata, .. } = item
            && let Some(placed) = call.leave_endpoint(Some(*code))
        {
            self.clusters.finished(now, placed, Some(*code), metadata);
        }
        if reshapes {
            return ItemVerdict::Reshape(reshaping(call, direction, item));
        }
        self.judge_shaped(now, way, call, item)
    }

    /// The same of one that has the shape its receiver expects.
    #[inline(always)]
    pub fn judge_shaped(
        &mut self,
        now: Instant,
        way: ItemWay,
        call: &mut Call,
        item: &Item<'_>,
    ) -> ItemVerdict {
        let waits = match call.turn_of(way.direction, self.plant.hold_until(now, item)) {
            ItemTurn::Now => false,
            ItemTurn::Later => true,
            ItemTurn::At(until) => {
                self.timers.insert(until, Due::Held(way.key, way.direction));
                true
            }
            ItemTurn::Paced(class) => self.paces(now, way, call, class, item),
        };
        if waits { ItemVerdict::Hold } else { ItemVerdict::HandOver }
    }

    /// Whether an item of a call of this class has to wait for its turn. It then has a timer.
    pub fn paces(
        &mut self,
        now: Instant,
        way: ItemWay,
        call: &mut Call,
        class: Class,
        item: &Item<'_>,
    ) -> bool {
        let paced = self.admission.pacer().pace(now, class, item.body().map(Body::len));
        let Some(paced) = paced else { return false };
        let half = call.half(way.direction);
        (half.paced_until, half.paced_cost_ns) = (Some(paced.until), paced.cost_ns);
        self.timers.insert(paced.look_at, Due::Paced(way.key, way.direction));
        true
    }

    /// Whether the head of what waits for its turn has it now; it has another timer otherwise.
    #[cold]
    #[inline(never)]
    pub fn has_its_turn(&mut self, now: Instant, way: ItemWay, call: &mut Call) -> bool {
        let (pacer, half) = (self.admission.pacer(), call.half(way.direction));
        let (Some(until), Some(cost_ns)) = (half.paced_until, half.turn_cost_ns()) else { return true };
        let paced = match half.backlog.front() {
            Some(head) => pacer.look_again(now, until, cost_ns, head.body().map_or(0, Body::len)),
            None => {
                pacer.give_back(cost_ns);
                None
            }
        };
        let (until, cost_ns) = paced.map_or((now, 0), |paced| (paced.until, paced.cost_ns));
        (half.paced_until, half.paced_cost_ns) = (Some(until), cost_ns);
        if let Some(paced) = paced {
            self.timers.insert(paced.look_at, Due::Paced(way.key, way.direction));
        }
        paced.is_none()
    }
}

#[cold]
fn reshaping(call: &Call, direction: Direction, item: &Item<'_>) -> Reshaping {
    let is_all = call.half_of(direction).gathered.is_none() && is_whole(item);
    match call.has_one_message(direction).unwrap_or(true) {
        true if is_all => Reshaping::Whole,
        true => Reshaping::Join,
        false => Reshaping::Split,
    }
}

/// Whether this is the last item of its direction.
fn ends(item: &Item<'_>) -> bool {
    match item {
        Item::Open { end, .. } | Item::Message { end, .. } => *end,
        Item::HalfClose | Item::Finish { .. } => true,
        Item::Headers { .. } => false,
    }
}

impl Plant {
    fn hold_until(self, now: Instant, item: &Item<'_>) -> Option<Instant> {
        let ns = match item {
            Item::Open { .. } => self.request_hold_ns,
            Item::Finish { .. } => self.response_hold_ns,
            _ => 0,
        };
        (ns > 0).then(|| now.plus_ns(ns))
    }
}

#[cfg(test)]
mod tests {
    //! Shows what becomes of items of a call that nothing is waited for, one after another, and what waits.
    use super::*;
    use crate::call::{ClientEnd, ServerEnd};
    use crate::registry::{MethodKey, MethodTypes};
    use crate::table::Key;
    use std::borrow::Cow;
    use std::sync::Arc;
    use trunkline_call::{CallId, Code, Deadline, Encoding, Execution};

    fn call() -> Call {
        let types = Arc::new(MethodTypes::opaque("/a.B/C", false));
        let (session, id) = (Key::from_bits(1), CallId(1));
        let client = ClientEnd::Session { session, id, types: Arc::clone(&types) };
        let server = ServerEnd::Session { session: Key::from_bits(2), types };
        Call::new(MethodKey::NOTHING, client, server, Deadline::NONE)
    }

    fn message(bytes: usize) -> Item<'static> {
        let (bytes, encoding) = (Cow::Owned(vec![0; bytes]), Encoding::Protobuf);
        Item::Message { body: Body::Wire { bytes, encoding, charged: 0, compressed: false }, end: false }
    }

    fn finish() -> Item<'static> {
        let metadata = Cow::Borrowed(&[][..]);
        Item::Finish { code: Code::Ok, execution: Execution::Executed, body: None, metadata }
    }

    /// What becomes of a response item.
    fn judged(call: &mut Call, plant: Plant, item: &Item<'_>) -> (&'static str, bool) {
        let (mut clusters, remotes) = (Clusters::default(), Remotes::default());
        let (mut admission, mut timers) = (AdmissionControl::new(0), TimerTable::new());
        let way = ItemWay { key: Key::from_bits(3), direction: Direction::Response };
        let mut course = Course {
            clusters: &mut clusters,
            remotes: &remotes,
            admission: &mut admission,
            timers: &mut timers,
            plant,
        };
        let verdict = match course.judge(Instant(1), way, call, item) {
            ItemVerdict::HandOver => "goes",
            ItemVerdict::Hold => "waits",
            ItemVerdict::Reshape(_) => "changes",
            ItemVerdict::Drop => "is dropped",
            ItemVerdict::Fail(_) => "ends its call",
        };
        (verdict, timers.next_due().is_some())
    }

    #[test]
    fn items_of_a_stream_go_until_it_has_ended() {
        let headers = || Item::Headers { metadata: Cow::Borrowed(&[]) };
        let mut call = call();
        call.message_bytes_max = [u32::MAX, 8];
        for (item, expected) in [
            (headers(), "goes"),
            (headers(), "is dropped"),
            (message(8), "goes"),
            (message(9), "ends its call"),
            (finish(), "goes"),
            (finish(), "is dropped"),
            (message(1), "is dropped"),
        ] {
            assert_eq!(judged(&mut call, Plant::default(), &item), (expected, false), "{item:?}");
        }
    }

    #[test]
    fn an_item_waits_behind_others_or_for_a_time() {
        let planted = Plant { response_hold_ns: 5, ..Plant::default() };
        assert_eq!(judged(&mut call(), planted, &finish()), ("waits", true));
        let mut behind = call();
        behind.response.wait(Instant(1), message(1));
        assert_eq!(judged(&mut behind, planted, &message(1)), ("waits", false), "without a timer of its own");
    }
}
