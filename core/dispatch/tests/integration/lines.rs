//! Shows that what waits is given out by source in turn: nobody is passed over, nothing is lost or comes out twice, and
//! what one source has waiting keeps its order.

use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use trunkline_call::Instant;
use trunkline_dispatch::*;

const NOW: Instant = Instant(1_000);

/// Something that waits: its source, its class, and a number that grows.
type Item = (u64, u8, u32);

/// One worker that has its one request, so that all others wait.
fn crowded(delay_ns_max: u64) -> (Dispatcher<Item>, WorkerKey) {
    let policy = Policy::Bounded(Bound::Fixed(1));
    let mut dispatcher = Dispatcher::new(Settings { policy, delay_ns_max, ..Settings::default() });
    let worker = dispatcher.join(1);
    let first =
        dispatcher.submit_of(NOW, Class::default(), None, (0, 0, 0), || panic!("it is asked for in vain"));
    assert_eq!(first, Verdict::To(worker, (0, 0, 0)));
    (dispatcher, worker)
}

fn put(dispatcher: &mut Dispatcher<Item>, now: Instant, item: Item) -> WaitingKey {
    match dispatcher.submit_of(now, Class::new(item.1), None, item, || item.0) {
        Verdict::Waits(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn next(dispatcher: &mut Dispatcher<Item>, worker: WorkerKey, now: Instant) -> Option<Item> {
    dispatcher.release(worker);
    match dispatcher.poll(now)? {
        Dispatch::To { item, .. } => Some(item),
        Dispatch::Expired { .. } => panic!("it has not waited so long"),
    }
}

#[test]
fn who_comes_to_a_long_line_is_second() {
    let (mut dispatcher, worker) = crowded(u64::MAX);
    (1..=4096).for_each(|number| _ = put(&mut dispatcher, NOW, (1, 0, number)));
    put(&mut dispatcher, NOW.plus_ns(1), (2, 0, 1));
    put(&mut dispatcher, NOW.plus_ns(1), (2, 0, 2));
    let given = [(); 5].map(|()| next(&mut dispatcher, worker, NOW.plus_ns(2)).unwrap());
    assert_eq!(given, [(1, 0, 1), (2, 0, 1), (1, 0, 2), (2, 0, 2), (1, 0, 3)]);
    assert_eq!(dispatcher.queued(), 4096 + 2 - 5);
}

#[test]
fn more_classes_are_no_more_turns() {
    let (mut dispatcher, worker) = crowded(u64::MAX);
    (0..320).for_each(|number| _ = put(&mut dispatcher, NOW, (1, (number % 32) as u8, number)));
    (0..3).for_each(|number| _ = put(&mut dispatcher, NOW.plus_ns(1), (2, 0, number)));
    let given = [(); 6].map(|()| next(&mut dispatcher, worker, NOW.plus_ns(2)).unwrap().0);
    assert_eq!(given, [1, 2, 1, 2, 1, 2]);
}

/// While nobody else waits, that which has waited longest is next, whatever its class.
#[test]
fn alone_the_order_is_that_of_coming() {
    let (mut dispatcher, worker) = crowded(u64::MAX);
    let items = (0..64).map(|number| (1, (number * 7 % 5) as u8, number)).collect::<Vec<_>>();
    for (at, item) in (0..).zip(&items) {
        put(&mut dispatcher, NOW.plus_ns(at), *item);
    }
    let given = items.iter().map(|_| next(&mut dispatcher, worker, NOW.plus_ns(99)).unwrap());
    assert_eq!(given.collect::<Vec<_>>(), items);
}

#[test]
fn what_has_waited_too_long_is_found_in_every_line() {
    let (mut dispatcher, _) = crowded(100);
    put(&mut dispatcher, NOW, (1, 0, 1));
    put(&mut dispatcher, NOW.plus_ns(1), (2, 0, 2));
    put(&mut dispatcher, NOW.plus_ns(2), (1, 1, 3));
    assert_eq!(dispatcher.next_timeout(), Some(NOW.plus_ns(100)));
    for (after_ns, item) in [(100, (1, 0, 1)), (101, (2, 0, 2)), (102, (1, 1, 3))] {
        assert_eq!(dispatcher.next_timeout(), Some(NOW.plus_ns(after_ns)));
        let expired = Dispatch::Expired { item, waited_ns: 100 };
        assert_eq!(dispatcher.poll(NOW.plus_ns(after_ns)), Some(expired));
    }
    assert_eq!((dispatcher.next_timeout(), dispatcher.queued()), (None, 0));
}

/// Of many sources each has some looked at, for a place elsewhere that not everything may have.
#[test]
fn what_may_not_cross_hides_nobody_else() {
    let (mut dispatcher, _) = crowded(u64::MAX);
    (1..=4096).for_each(|number| _ = put(&mut dispatcher, NOW, (1, 0, number)));
    put(&mut dispatcher, NOW, (2, 0, 7));
    assert_eq!(dispatcher.take_waiting(64, |item| item.0 != 1), Some((2, 0, 7)));
    assert_eq!(dispatcher.take_waiting(64, |item| item.0 != 1), None);
    assert_eq!(dispatcher.take_waiting(64, |item| item.2 == 64), Some((1, 0, 64)));
    assert_eq!(dispatcher.take_waiting(64, |item| item.2 == 66), None);
}

#[derive(Clone, Debug)]
enum Step {
    Put { source: u64, class: u8 },
    Give,
    Cross,
    Withdraw(usize),
    WithdrawTwice(usize),
    Forget { source: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..6, 0u8..3).prop_map(|(source, class)| Step::Put { source, class }),
        4 => Just(Step::Give),
        1 => Just(Step::Cross),
        1 => any::<usize>().prop_map(Step::Withdraw),
        1 => any::<usize>().prop_map(Step::WithdrawTwice),
        1 => (0u64..6).prop_map(|source| Step::Forget { source }),
    ]
}

proptest! {
    #[test]
    fn everybody_who_waits_has_a_turn(steps in prop::collection::vec(step(), 1..400)) {
        let (mut dispatcher, worker) = crowded(u64::MAX);
        let (mut waiting, mut gone) = (BTreeMap::<u32, (Item, WaitingKey)>::new(), Vec::new());
        // Who waited when a source had its turn, and has had none since.
        let mut passed_over = HashMap::<u64, HashSet<u64>>::new();
        for (step, number) in steps.into_iter().zip(1..) {
            let now = NOW.plus_ns(number.into());
            match step {
                Step::Put { source, class } => {
                    let item = (source, class, number);
                    waiting.insert(number, (item, put(&mut dispatcher, now, item)));
                }
                Step::Give | Step::Cross if !waiting.is_empty() => {
                    let given = match step {
                        Step::Give => next(&mut dispatcher, worker, now),
                        _ => dispatcher.take_waiting(64, |_| true),
                    };
                    let (source, class, number) = given.expect("some wait");
                    let first = waiting.values().find(|((of, in_class, _), _)| (*of, *in_class) == (source, class));
                    prop_assert_eq!(first.map(|(item, _)| item.2), Some(number), "in order, and once");
                    gone.push(waiting.remove(&number).unwrap().1);
                    let sources: HashSet<u64> = waiting.values().map(|(item, _)| item.0).collect();
                    passed_over.values_mut().for_each(|others| _ = others.remove(&source));
                    let others = sources.into_iter().filter(|other| *other != source).collect();
                    let before = passed_over.insert(source, others);
                    prop_assert!(before.unwrap_or_default().is_empty(), "others wait since its last turn");
                }
                Step::Withdraw(which) if !waiting.is_empty() => {
                    let number = *waiting.keys().nth(which % waiting.len()).unwrap();
                    let (item, ticket) = waiting.remove(&number).unwrap();
                    prop_assert_eq!(dispatcher.withdraw(ticket), Some(item));
                    gone.push(ticket);
                }
                Step::WithdrawTwice(which) if !gone.is_empty() => {
                    prop_assert_eq!(dispatcher.withdraw(gone[which % gone.len()]), None);
                }
                Step::Forget { source } => {
                    dispatcher.retain(|item| item.0 != source);
                    waiting.retain(|_, (item, _)| item.0 != source);
                }
                Step::Give | Step::Cross | Step::Withdraw(_) | Step::WithdrawTwice(_) => {}
            }
            // Who has nothing waiting any more comes anew.
            let waits = |source: &u64| waiting.values().any(|(item, _)| item.0 == *source);
            passed_over.values_mut().for_each(|others| others.retain(waits));
            prop_assert_eq!(dispatcher.queued(), waiting.len());
            let oldest = waiting.keys().next().map(|number| NOW.plus_ns((*number).into()));
            prop_assert_eq!(dispatcher.waits_since(), oldest);
        }
    }
}
