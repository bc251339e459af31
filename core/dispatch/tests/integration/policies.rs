//! Shows what each policy promises, over random sequences: bounds are kept, order is kept, nothing waits that need not,
//! and every request comes out once.

use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use trunkline_call::Instant;
use trunkline_dispatch::*;

const NOW: Instant = Instant(1_000);

fn settings(policy: Policy) -> Settings {
    Settings { policy, queue_max: 50, ..Settings::default() }
}

fn jbsq(n: u32) -> Policy {
    Policy::Bounded(Bound::Fixed(n))
}

fn to<T: std::fmt::Debug>(verdict: Verdict<T>) -> WorkerKey {
    match verdict {
        Verdict::To(worker, _) => worker,
        other => panic!("{other:?} names no worker"),
    }
}

fn waits<T: std::fmt::Debug>(verdict: Verdict<T>) -> WaitingKey {
    match verdict {
        Verdict::Waits(ticket) => ticket,
        other => panic!("{other:?} does not wait"),
    }
}

#[test]
fn round_robin_takes_each_in_turn() {
    let mut dispatcher = Dispatcher::new(settings(Policy::RoundRobin));
    let workers = [1, 1, 1].map(|slots| dispatcher.join(slots));
    let picked: Vec<_> = (0..6).map(|i| to(dispatcher.submit(NOW, Class::default(), None, i))).collect();
    for worker in workers {
        assert_eq!(picked.iter().filter(|picked| **picked == worker).count(), 2);
    }
    assert_eq!(picked[..3], picked[3..]);
}

/// Whatever measuring says: where a queue grows old, workers lose more between two requests than it saw. One more goes
/// to the worker that is expected to end soonest, and none behind a request that has outlived most others.
#[test]
fn an_old_queue_puts_one_more_in_stock() {
    const MS: u64 = 1_000_000;
    let mut dispatcher = Dispatcher::new(settings(Policy::Bounded(Bound::Auto)));
    let workers = [1, 1].map(|slots| dispatcher.join(slots));
    // One in ten takes ten times as long; between two requests a worker loses a twentieth of the mean.
    for item in 0..1280 {
        dispatcher.note(500_000, if item % 10 == 0 { 50 * MS } else { 5 * MS });
    }
    let busy = [0, 1].map(|item| to(dispatcher.submit(NOW, Class::default(), None, item)));
    assert!(workers.iter().all(|worker| busy.contains(worker)));
    for item in 2..6 {
        waits(dispatcher.submit(NOW, Class::default(), None, item));
    }
    let mut poll = |after_ms: u64, released: Option<WorkerKey>| {
        released.into_iter().for_each(|worker| dispatcher.release(worker));
        let now = NOW.plus_ns(after_ms * MS);
        std::iter::from_fn(|| dispatcher.poll(now)).collect::<Vec<_>>()
    };
    let given = |item, after_ms: u64| Dispatch::To { worker: busy[1], item, waited_ns: after_ms * MS };
    assert_eq!(poll(3, None), [], "the queue is not old");
    assert_eq!(poll(8, None), [], "both have met a long one");
    assert_eq!(poll(8, Some(busy[1])), [given(2, 8), given(3, 8)], "one in work and one in stock");
    assert_eq!(poll(13, Some(busy[1])), [given(4, 13)]);
    assert_eq!(poll(40, None), []);
}

/// A few requests tell enough to put nothing behind one that has taken far longer than they did.
#[test]
fn little_is_enough_to_know_an_old_request() {
    const MS: u64 = 1_000_000;
    let mut dispatcher = Dispatcher::new(settings(Policy::Bounded(Bound::Auto)));
    (0..2).for_each(|_| _ = dispatcher.join(1));
    (0..40).for_each(|_| dispatcher.note(50_000, 5 * MS));
    let [_long, other] = [0, 1].map(|item| to(dispatcher.submit(NOW, Class::default(), None, item)));
    for item in 2..12 {
        waits(dispatcher.submit(NOW, Class::default(), None, item));
    }
    for step in 1..=10 {
        let now = NOW.plus_ns(step * 100 * MS);
        dispatcher.release(other);
        while let Some(Dispatch::To { worker, .. }) = dispatcher.poll(now) {
            assert_eq!(worker, other, "step {step}");
        }
    }
    assert_eq!((dispatcher.queued(), dispatcher.outstanding(other)), (0, Some(1)));
}

/// Workers that measure nothing get three each, however long they have had the first.
#[test]
fn what_is_not_measured_does_not_hold_back() {
    let mut dispatcher = Dispatcher::new(settings(Policy::Bounded(Bound::Auto)));
    let workers = [1, 1].map(|slots| dispatcher.join(slots));
    for item in 0..6 {
        let now = NOW.plus_ns(item * 1_000_000_000);
        assert!(workers.contains(&to(dispatcher.submit(now, Class::default(), None, item))));
    }
    assert!(workers.iter().all(|worker| dispatcher.outstanding(*worker) == Some(3)));
    waits(dispatcher.submit(NOW, Class::default(), None, 6));
}

/// Requests that are alike go behind the one that ends first; second and third places as well.
#[test]
fn what_is_alike_goes_behind_the_first_to_end() {
    const MS: u64 = 1_000_000;
    let mut dispatcher = Dispatcher::new(settings(Policy::Bounded(Bound::Auto)));
    (0..3).for_each(|_| _ = dispatcher.join(1));
    (0..128).for_each(|_| dispatcher.note(6 * MS, 10 * MS));
    assert_eq!(dispatcher.bound(), Some(3));
    let mut submit = |at_ms: u64| to(dispatcher.submit(NOW.plus_ns(at_ms * MS), Class::default(), None, 0));
    let in_turn = [0, 3, 6].map(&mut submit);
    assert_eq!([7, 8, 8].map(&mut submit), in_turn);
    assert_eq!([9, 9, 9].map(&mut submit), in_turn);
}

/// While others wait, too, a second goes behind a first that is about to end; and none behind one that may be a long
/// one, for one alone, or where that is not wanted.
#[test]
fn a_second_is_there_when_the_first_ends() {
    const MS: u64 = 1_000_000;
    // Three workers that have worked for 12 ms when the first of them ends; as many wait since a moment ago.
    let given = |services_ms: [u64; 10], waiting: usize, stocks_early: bool| {
        let settings = Settings { stocks_early, ..settings(Policy::Bounded(Bound::Auto)) };
        let mut dispatcher = Dispatcher::new(settings);
        (0..3).for_each(|_| _ = dispatcher.join(1));
        (0..1280).for_each(|item| dispatcher.note(MS / 2, services_ms[item % 10] * MS));
        let first = to(dispatcher.submit(NOW, Class::default(), None, 0));
        (0..2).for_each(|item| _ = to(dispatcher.submit(NOW, Class::default(), None, item)));
        for item in 0..waiting {
            let now = NOW.plus_ns(11 * MS);
            waits(dispatcher.submit(now, Class::default(), None, item));
        }
        dispatcher.release(first);
        std::iter::from_fn(|| dispatcher.poll(NOW.plus_ns(12 * MS))).count()
    };
    let [between, bimodal] = [[6, 14, 6, 14, 6, 14, 6, 14, 6, 14], [12, 12, 12, 12, 12, 12, 12, 12, 12, 120]];
    assert_eq!(given(between, 3, true), 2, "to the worker that ended, and behind one that will");
    assert_eq!(given(between, 2, true), 1, "the other is alone");
    assert_eq!(given(bimodal, 3, true), 1, "one in ten does not end now");
    assert_eq!(given(between, 3, false), 1);
}

#[test]
fn the_shortest_queue_is_joined() {
    let mut dispatcher = Dispatcher::new(settings(Policy::JoinShortestQueue));
    let workers = [1, 1, 4].map(|slots| dispatcher.join(slots));
    for i in 0..12 {
        to(dispatcher.submit(NOW, Class::default(), None, i));
    }
    let outstanding = workers.map(|worker| dispatcher.outstanding(worker).unwrap());
    assert_eq!(outstanding, [2, 2, 8], "by what each works on at once");
}

#[test]
fn power_of_two_prefers_the_less_loaded() {
    let mut dispatcher = Dispatcher::new(settings(Policy::PowerOfTwo));
    let workers: Vec<_> = (0..16).map(|_| dispatcher.join(1)).collect();
    for i in 0..1600 {
        to(dispatcher.submit(NOW, Class::default(), None, i));
    }
    let most = workers.iter().filter_map(|worker| dispatcher.outstanding(*worker)).max().unwrap();
    assert!(most <= 104, "two choices keep the fullest within a few of the mean of 100, it has {most}");
}

#[test]
fn what_exceeds_the_bound_waits_and_goes_in_order() {
    let mut dispatcher = Dispatcher::new(settings(jbsq(2)));
    let worker = dispatcher.join(1);
    for i in 0..2 {
        assert_eq!(to(dispatcher.submit(NOW, Class::default(), None, i)), worker);
    }
    for i in 2..5 {
        waits(dispatcher.submit(NOW, Class::default(), None, i));
    }
    assert_eq!(dispatcher.poll(NOW), None);
    dispatcher.release(worker);
    let later = NOW.plus_ns(70);
    assert_eq!(dispatcher.poll(later), Some(Dispatch::To { worker, item: 2, waited_ns: 70 }));
    assert_eq!(dispatcher.poll(later), None);
}

#[test]
fn what_waits_too_long_and_what_finds_no_room_come_back() {
    let mut dispatcher = Dispatcher::new(Settings { queue_max: 1, delay_ns_max: 500, ..settings(jbsq(1)) });
    // A worker may yet join.
    waits(dispatcher.submit(NOW, Class::default(), None, 1));
    assert_eq!(dispatcher.submit(NOW, Class::default(), None, 2), Verdict::Refused(2, Refusal::QueueFull));
    assert_eq!(dispatcher.submit(NOW, Class::default(), Some(7), 3), Verdict::Refused(3, Refusal::NoWorker));
    assert_eq!(dispatcher.next_timeout(), Some(NOW.plus_ns(500)));
    assert_eq!(dispatcher.poll(NOW.plus_ns(499)), None);
    assert_eq!(dispatcher.poll(NOW.plus_ns(500)), Some(Dispatch::Expired { item: 1, waited_ns: 500 }));
}

#[test]
fn reserved_workers_serve_their_class_only() {
    let short = Class::new(1);
    let reservations = vec![Reservation { class: short, workers: 2 }];
    let mut dispatcher = Dispatcher::new(Settings { reservations, ..settings(jbsq(1)) });
    let workers: Vec<_> = (0..4).map(|_| dispatcher.join(1)).collect();
    let long: Vec<_> = (0..2).map(|i| to(dispatcher.submit(NOW, Class::default(), None, i))).collect();
    // Two of four are not for it.
    waits(dispatcher.submit(NOW, Class::default(), None, 2));
    let shorts: Vec<_> = (3..5).map(|i| to(dispatcher.submit(NOW, short, None, i))).collect();
    assert!(shorts.iter().all(|worker| !long.contains(worker)));
    dispatcher.release(shorts[0]);
    assert_eq!(dispatcher.poll(NOW), None);
    dispatcher.release(long[0]);
    assert!(matches!(dispatcher.poll(NOW), Some(Dispatch::To { item: 2, worker, .. }) if worker == long[0]));
    // The last worker serves everybody.
    workers.iter().skip(1).for_each(|worker| dispatcher.remove(*worker));
    dispatcher.release(workers[0]);
    assert_eq!(to(dispatcher.submit(NOW, Class::default(), None, 9)), workers[0]);
}

#[test]
fn sticky_requests_stay_when_others_come_and_go() {
    let mut dispatcher = Dispatcher::new(Settings { queue_max: 5000, ..settings(jbsq(1)) });
    let workers: Vec<_> = (0..8).map(|_| dispatcher.join(1)).collect();
    let homes = |dispatcher: &mut Dispatcher<u64>| -> Vec<_> {
        (0..400).map(|key| to(dispatcher.submit(NOW, Class::default(), Some(key), key))).collect()
    };
    let before = homes(&mut dispatcher);
    assert_eq!(homes(&mut dispatcher), before);
    for worker in &workers {
        let share = before.iter().filter(|home| *home == worker).count();
        assert!((20..90).contains(&share), "{share} of 400 at one of eight");
    }
    dispatcher.remove(workers[3]);
    for (old, new) in before.iter().zip(homes(&mut dispatcher)) {
        assert!(*old == new || *old == workers[3], "only the lost worker's share moves");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Submit { class: u8, sticky: bool },
    Release(usize),
    Join(u32),
    Remove(usize),
    Rest(usize, bool),
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..3, proptest::bool::weighted(0.1)).prop_map(|(class, sticky)| Step::Submit { class, sticky }),
        6 => any::<usize>().prop_map(Step::Release),
        1 => (1u32..4).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, rests)| Step::Rest(which, rests)),
        1 => (0u64..400).prop_map(Step::Later),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Random),
        Just(Policy::RoundRobin),
        Just(Policy::PowerOfTwo),
        Just(Policy::JoinShortestQueue),
        Just(Policy::Bounded(Bound::Auto)),
        (1u32..4).prop_map(|n| Policy::Bounded(Bound::Fixed(n))),
    ]
}

proptest! {
    #[test]
    fn promises_hold_over_any_sequence(policy in policy(), steps in proptest::collection::vec(step(), 1..300)) {
        let reservations = vec![Reservation { class: Class::new(1), workers: 1 }];
        let mut dispatcher =
            Dispatcher::new(Settings { delay_ns_max: 300, reservations, ..settings(policy) });
        let (mut now, mut serial) = (NOW, 0u32);
        let mut workers: Vec<(WorkerKey, u32)> = Vec::new();
        let mut given: Vec<(WorkerKey, bool)> = Vec::new();
        let mut waiting: HashMap<u8, VecDeque<u32>> = HashMap::new();
        for step in steps {
            match step {
                Step::Submit { class, sticky } => {
                    serial += 1;
                    let key = sticky.then_some(u64::from(serial));
                    match dispatcher.submit(now, Class::new(class), key, (class, serial)) {
                        Verdict::To(worker, _) => given.push((worker, sticky)),
                        Verdict::Waits(_) => waiting.entry(class).or_default().push_back(serial),
                        Verdict::Refused(item, _) => prop_assert_eq!(item, (class, serial)),
                    }
                }
                Step::Release(which) if !given.is_empty() => {
                    let (worker, _) = given.swap_remove(which % given.len());
                    dispatcher.release(worker);
                }
                Step::Join(slots) => workers.push((dispatcher.join(slots), slots)),
                Step::Remove(which) if !workers.is_empty() => {
                    let (worker, _) = workers.swap_remove(which % workers.len());
                    dispatcher.remove(worker);
                    given.retain(|(at, _)| *at != worker);
                }
                Step::Rest(which, rests) if !workers.is_empty() => {
                    dispatcher.rest(workers[which % workers.len()].0, rests);
                }
                Step::Later(ns) => now = now.plus_ns(ns),
                Step::Release(_) | Step::Remove(_) | Step::Rest(..) => {}
            }
            while let Some(dispatch) = dispatcher.poll(now) {
                let (Dispatch::To { item, .. } | Dispatch::Expired { item, .. }) = dispatch;
                prop_assert_eq!(waiting.get_mut(&item.0).and_then(VecDeque::pop_front), Some(item.1), "in order");
                if let Dispatch::To { worker, .. } = dispatch {
                    given.push((worker, false));
                }
            }
            prop_assert_eq!(dispatcher.queued(), waiting.values().map(VecDeque::len).sum::<usize>());
            for (worker, slots) in &workers {
                let of = |sticky| given.iter().filter(|(at, is)| at == worker && *is == sticky).count() as u32;
                prop_assert_eq!(dispatcher.outstanding(*worker), Some(of(true) + of(false)));
                if let Some(bound) = dispatcher.bound() {
                    prop_assert!(of(false) <= bound * slots, "{} at a worker, bound {}", of(false), bound);
                }
            }
        }
    }
}

#[test]
fn workers_are_kept_for_other_classes_from_one_moment_to_the_next() {
    let (short, all) = (Class::new(1), Class::default());
    let mut dispatcher = Dispatcher::new(settings(jbsq(1)));
    let workers = [1; 4].map(|slots| dispatcher.join(slots));
    let first = to(dispatcher.submit(NOW, all, None, 0));
    let room = |dispatcher: &mut Dispatcher<u32>, workers: usize| {
        dispatcher.reserve(vec![Reservation { class: short, workers }]);
        let taken: Vec<_> = std::iter::from_fn(|| match dispatcher.submit(NOW, all, None, 1) {
            Verdict::To(worker, _) => Some(worker),
            _ => None,
        })
        .collect();
        dispatcher.retain(|_| false);
        taken.iter().for_each(|worker| dispatcher.release(*worker));
        let stuck = (0..64).filter_map(|key| dispatcher.sticky_worker(all, key)).collect::<Vec<_>>();
        let used = workers_of(&stuck);
        (taken.len(), used)
    };
    // What is out counts where it is, whatever its worker is kept for by now.
    let rooms: Vec<_> = [0, 2, 9, 1, 0].map(|kept| room(&mut dispatcher, kept)).to_vec();
    assert_eq!(rooms[0], (3, 4));
    assert!((1..=2).contains(&rooms[1].0) && rooms[1].1 == 2, "{rooms:?}");
    assert!(rooms[2].0 <= 1 && rooms[2].1 == 1, "one is left for the others: {rooms:?}");
    assert_eq!((rooms[3].1, rooms[4]), (3, (3, 4)));
    dispatcher.release(first);
    assert!(workers.iter().all(|worker| dispatcher.outstanding(*worker) == Some(0)));
}

fn workers_of(stuck: &[WorkerKey]) -> usize {
    stuck.iter().collect::<std::collections::HashSet<_>>().len()
}

/// Reserved workers that rest are replaced, and when they are back no class has more than it is to have.
#[test]
fn a_reservation_has_its_number_again_after_its_workers_have_rested() {
    let reservations = vec![Reservation { class: Class::new(1), workers: 2 }];
    let mut dispatcher = Dispatcher::new(Settings { reservations, ..settings(jbsq(1)) });
    let workers = [1; 4].map(|slots| dispatcher.join(slots));
    let is_reserved = |dispatcher: &mut Dispatcher<u32>| {
        let given: Vec<WorkerKey> =
            std::iter::from_fn(|| match dispatcher.submit(NOW, Class::new(0), None, 0) {
                Verdict::To(worker, _) => Some(worker),
                Verdict::Waits(ticket) => {
                    dispatcher.withdraw(ticket);
                    None
                }
                Verdict::Refused(..) => None,
            })
            .collect();
        given.iter().for_each(|worker| dispatcher.release(*worker));
        workers.into_iter().filter(|worker| !given.contains(worker)).collect::<Vec<_>>()
    };
    let reserved = is_reserved(&mut dispatcher);
    assert_eq!(reserved.len(), 2);
    for rests in [true, false] {
        reserved.iter().for_each(|worker| dispatcher.rest(*worker, rests));
    }
    assert_eq!(is_reserved(&mut dispatcher).len(), 2);
}
