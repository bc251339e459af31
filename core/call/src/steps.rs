//! How soon calls take their steps.

use crate::Instant;

/// Something that went along a call: what was asked, what was answered, a message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Instant,
    /// It went the other way: an answer, where requests are not; received, where others are sent.
    pub back: bool,
    /// It carries a message.
    pub message: bool,
}

/// Counts the steps of calls that came soon: who waits for the next one learns from it whether looking for it is worth
/// anything to anybody.
///
/// What somebody waits for is an answer after what it answers, and a message after the one before it. An answer's
/// headers, message and end come together, and only the first of them is waited for. What opens a call is not.
///
/// ```
/// # use trunkline_call::{Instant, Step, Steps};
/// let (mut steps, mut last) = (Steps::default(), None);
/// steps.take_quick(50);
/// steps.note(&mut last, Step { at: Instant(100), back: false, message: true });
/// steps.note(&mut last, Step { at: Instant(140), back: true, message: true });
/// assert_eq!(steps.take_quick(50), 1);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    within_ns: u64,
    quick: u32,
}

impl Steps {
    /// The next step of a call whose last one is `last`.
    #[inline]
    pub fn note(&mut self, last: &mut Option<Step>, step: Step) {
        let Some(before) = last.replace(step) else { return };
        let waited_for = before.back != step.back || (before.message && step.message);
        if waited_for && step.at.since_ns(before.at) <= self.within_ns {
            self.quick = self.quick.saturating_add(1);
        }
    }

    /// Steps since the last time that came within as many nanoseconds as were given then; from now on, `within_ns`.
    #[inline]
    pub fn take_quick(&mut self, within_ns: u64) -> u32 {
        self.within_ns = within_ns;
        std::mem::take(&mut self.quick)
    }
}

#[cfg(test)]
mod tests {
    //! Shows which steps are waited for.

    use super::*;

    const ASK: bool = false;
    const ANSWER: bool = true;

    /// Of steps at these times, how many came within 10 ns.
    fn quick(steps: &[(u64, bool, bool)]) -> u32 {
        let (mut counted, mut last) = (Steps::default(), None);
        counted.take_quick(10);
        for &(at, back, message) in steps {
            counted.note(&mut last, Step { at: Instant(at), back, message });
        }
        counted.take_quick(0)
    }

    /// A call with one message each way has one step to wait for, in however many parts its answer comes.
    #[test]
    fn the_answer_of_a_call_is_one_step() {
        assert_eq!(quick(&[(0, ASK, true), (10, ANSWER, false), (10, ANSWER, true), (11, ANSWER, false)]), 1);
        assert_eq!(quick(&[(0, ASK, true), (11, ANSWER, false), (11, ANSWER, true), (11, ANSWER, false)]), 0);
    }

    /// Of streams every answer is one, and every message after another.
    #[test]
    fn messages_of_streams_are_steps() {
        assert_eq!(quick(&[(0, ASK, false), (5, ASK, true), (7, ASK, true), (9, ASK, false)]), 1);
        assert_eq!(quick(&[(0, ASK, true), (5, ANSWER, true), (7, ASK, true), (19, ANSWER, true)]), 2);
    }

    /// Stamps that go back count as no time.
    #[test]
    fn time_does_not_go_back() {
        assert_eq!(quick(&[(100, ASK, true), (5, ANSWER, true)]), 1);
    }
}
