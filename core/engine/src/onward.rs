//! An item on its way along a call that somebody has at hand: handed over, held, or thrown away.
//!
//! What becomes of it `course.rs` says; who pays for it while it waits the call says ([`Call::charge_for`]): one of
//! those in `wait_accounts.rs`, each of which counts for itself. What concerns more than the call and its ends is said
//! by a value ([`Onward`]), and done by whoever found the call (`pass.rs`).
//!
//! [`Call::charge_for`]: crate::call::Call::charge_for

use crate::CallKey;
use crate::admission::CallPolicies;
use crate::call::{Body, Call, Direction, Item};
use crate::course::{ItemVerdict, Reshaping};
use crate::ends::{Blocker, HandedItem, Refusal, deliver};
use crate::gather::gather;
use crate::item::ItemWay;
use crate::lent_call::LentCall;
use crate::owners::Owners;
use crate::sampled::{sample_answer, sample_request};
use crate::target::Target;
use crate::turn::Turn;
use trunkline_call::{Fault, Instant};

/// What follows from an item that has gone as far as its call and its end can take it: what others have to do with.
pub(crate) enum Onward {
    /// What follows from its hand-over.
    Handed(HandedItem),
    /// It waits in its call, which joins this line.
    InLine(Blocker),
    /// It waits in its call, or is thrown away.
    Rests,
    /// It is thrown away, and ends its call.
    Fails(Fault),
    /// It is a part of a request whose call begins when all of it is there.
    IsPart,
    /// Policies look at it.
    IsJudged,
    /// Policies are to judge the call that it opens.
    IsOpened(Box<CallPolicies>),
    /// The call that it opens is for the daemon's own, who are between two processes.
    IsAwaited(Target),
    /// Nobody serves the call that it opens here, or nobody has room.
    IsUnserved(Target, Fault),
    /// Its receiver gets it in another shape.
    Changes(Reshaping),
}

impl Onward {
    /// Whether whoever goes on needs the item for it: else it waits, is handed over, or thrown away.
    pub fn goes_on_with_item(&self) -> bool {
        match self {
            Self::Handed(HandedItem::ToAttempts | HandedItem::OfAttempt(_)) => true,
            Self::Handed(_) | Self::InLine(_) | Self::Rests | Self::Fails(_) => false,
            Self::IsPart | Self::IsJudged | Self::IsOpened(_) | Self::IsAwaited(_) => true,
            Self::IsUnserved(..) | Self::Changes(_) => true,
        }
    }
}

/// Sends an item along its call, once the policies that look at it have.
#[inline(always)]
pub(crate) fn pass(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
) -> Onward {
    let call = &mut *lent.call;
    call.note_step(&mut owners.steps, turn.now, direction, item);
    if direction == Direction::Request && call.has_begun_in_parts() {
        return Onward::IsPart;
    }
    if call.is_inspected(direction, item) {
        return Onward::IsJudged;
    }
    // Nearly every answer.
    if direction == Direction::Response && owners.plant.response_hold_ns == 0 && call.ends_as_it_comes(item) {
        call.response.ended = true;
        return hand_over(owners, turn, lent, Direction::Response, item);
    }
    pass_on(owners, turn, lent, direction, item)
}

/// Sends an item along its call. It is handed over now, or waits behind those that wait already.
#[inline(always)]
pub(crate) fn pass_on(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
) -> Onward {
    let way = ItemWay { key: lent.key, direction };
    lent.call.tell_of_all(item);
    let verdict = owners.course().judge(turn.now, way, lent.call, item);
    carry(owners, turn, lent, direction, item, verdict)
}

// LIFE: 8 | handed to its server end, or held until that takes it: credit, room, pacing | |
/// Does with an item what has been said.
#[inline(always)]
pub(crate) fn carry(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
    verdict: ItemVerdict,
) -> Onward {
    let is_request = direction == Direction::Request;
    if is_request && matches!(verdict, ItemVerdict::HandOver | ItemVerdict::Hold) {
        sample_request(owners, turn, (lent.key, lent.call), item);
    }
    match verdict {
        ItemVerdict::HandOver => hand_over(owners, turn, lent, direction, item),
        ItemVerdict::Hold => hold(owners, turn.now, lent, direction, item, false),
        ItemVerdict::Reshape(reshaping) => Onward::Changes(reshaping),
        ItemVerdict::Drop => {
            owners.drop_item(item);
            Onward::Rests
        }
        ItemVerdict::Fail(fault) => {
            owners.drop_item(item);
            Onward::Fails(fault)
        }
    }
}

/// Hands over to the end the direction leads to.
#[inline(always)]
pub(crate) fn hand_over(
    owners: &mut Owners,
    turn: &mut Turn<'_>,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
) -> Onward {
    if direction == Direction::Response {
        sample_answer(owners, turn, (lent.key, lent.call), item);
    }
    match deliver(owners, turn, lent, direction, item) {
        Ok(handed) => Onward::Handed(handed),
        Err(refusal) => refused(owners, turn.now, lent, direction, item, refusal),
    }
}

/// An end would not have an item: it waits now, or ends the call.
#[inline(never)]
pub(crate) fn refused(
    owners: &mut Owners,
    now: Instant,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
    why: Refusal,
) -> Onward {
    match why {
        Refusal::Blocked(blocker) => match hold(owners, now, lent, direction, item, true) {
            Onward::Rests => {
                lent.call.half(direction).waits_for_room = blocker.is_room();
                Onward::InLine(blocker)
            }
            fails => fails,
        },
        Refusal::Fault(fault) => {
            owners.drop_item(item);
            Onward::Fails(fault)
        }
    }
}

/// Has an item wait behind those that do, or `first` before them.
pub(crate) fn hold(
    owners: &mut Owners,
    now: Instant,
    lent: &mut LentCall<'_>,
    direction: Direction,
    item: &mut Item<'_>,
    first: bool,
) -> Onward {
    let way = ItemWay { key: lent.key, direction };
    if let Err(fault) = owners.accounts().charge(way, lent.call, item) {
        owners.drop_item(item);
        return Onward::Fails(fault);
    }
    let (half, item) = (lent.call.half(direction), item.take().into_owned());
    if first {
        half.wait_first(now, item)
    } else {
        half.wait(now, item)
    }
    Onward::Rests
}

/// Joins an item with what is kept of its direction: what goes on, if it is whole.
///
/// # Errors
/// What ends the call.
pub(crate) fn join<'a>(
    owners: &mut Owners,
    (key, call): (CallKey, &mut Call),
    direction: Direction,
    item: Item<'a>,
) -> Result<[Option<Item<'a>>; 2], Fault> {
    let mut accounts = owners.accounts();
    let comes = item.body().is_some();
    let mut gathered = gather(direction, accounts.take_kept(call, direction), item);
    let (mut dropped, mut freed) = (None, 0);
    if let Some(mut kept) = gathered.kept.take() {
        freed = kept.body_mut().filter(|_| comes).map_or(0, Body::take_window_cost);
        if accounts.may_send_on(call, direction) {
            freed = 0;
        }
        match accounts.keep(call, direction, &kept) {
            Ok(()) => call.half(direction).gathered = Some(Box::new(kept.into_owned())),
            Err(fault) => (dropped, gathered.fault) = (Some(kept), Some(fault)),
        }
    }
    for mut item in gathered.dropped.into_iter().flatten().chain(dropped) {
        owners.drop_item(&mut item);
    }
    // A second message would wait for the first to be used, and that for the end behind the second.
    if freed > 0 {
        owners.open_window((key, call), direction, freed);
    }
    gathered.fault.map_or(Ok(gathered.goes), Err)
}
