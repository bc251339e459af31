//! In which order calls begin, and when.
//!
//! Not each as long after the one before as another: a call that costs the processors more has more of the time, so
//! that at no time they have more to do than at another.

use super::acts::CallPlan;
use std::time::Duration;

/// Calls that take a larger part of the longest's time than this begin first, so that nobody waits for them alone.
const LONG_PART: u32 = 4;
/// And calls that take a smaller part of it than this begin last.
const SHORT_PART: u32 = 1000;
/// About what a call costs beside its handler's work, with both daemons; and one below it.
const CALL_COST: Duration = Duration::from_micros(600);
const BELOW_COST: Duration = Duration::from_micros(40);

/// The long calls, then all others as if drawn, the short ones last: those have few calls below, and wait for nothing
/// that takes the processors' time meanwhile.
pub(super) fn order(calls: &[CallPlan]) -> Vec<usize> {
    let longest = calls.iter().map(|call| call.takes).max().unwrap_or_default();
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|number| {
        let takes = calls[*number].takes;
        let turn = if takes > longest / LONG_PART { 0 } else { 1 + u8::from(takes < longest / SHORT_PART) };
        (turn, (*number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    });
    order
}

/// When they begin, in this order: so many a second on average.
pub(super) fn begins(calls: &[CallPlan], order: &[usize], rate: f64) -> Vec<Duration> {
    let cost = |number: &usize| {
        let call = &calls[*number];
        (call.works + CALL_COST * (1 + u32::from(call.above)) + BELOW_COST * call.below).as_secs_f64()
    };
    let all: f64 = order.iter().map(cost).sum();
    let took = order.len() as f64 / rate;
    let begins = order.iter().scan(0.0, |before, number| {
        let at = *before / all * took;
        *before += cost(number);
        Some(Duration::from_secs_f64(at))
    });
    begins.collect()
}

#[cfg(test)]
mod tests {
    //! Shows that long calls begin first and short ones last, and that dear ones have more of the time.
    use super::*;
    use crate::drive::acts::CallQueues;
    use trunkline::Code;

    fn call(takes_ms: u64, works_ms: u64) -> CallPlan {
        CallPlan {
            path: "/a.B/C".into(),
            request_bytes: 18,
            answer_bytes: 18,
            below: 0,
            above: 0,
            code: Code::Ok,
            takes: Duration::from_millis(takes_ms),
            works: Duration::from_millis(works_ms),
            caller: 0,
            wire: Duration::ZERO,
            route: 0,
            back: Duration::ZERO,
            holds: Duration::ZERO,
            queues: CallQueues::default(),
        }
    }

    #[test]
    fn dear_calls_have_more_of_the_time() {
        let calls = [call(1, 0), call(10_000, 0), call(500, 40), call(500, 10)];
        let order = order(&calls);
        assert_eq!((order[0], order[3]), (1, 0));
        let begins = begins(&calls, &order, 2.0);
        let (dear, cheap) = (begins[2] - begins[1], begins[3] - begins[2]);
        let (dear, cheap) = if order[1] == 2 { (dear, cheap) } else { (cheap, dear) };
        assert!(begins[0].is_zero() && begins[3] < Duration::from_secs(2), "{begins:?}");
        assert!(dear > 3 * cheap && cheap > Duration::from_millis(300), "{begins:?}");
    }
}
