//! What a driver is told and what it answers: one line each, the same for every peer in every language.
//!
//! A driver is the calling process of a peer. It makes calls for as long as it is told and says how many and how long
//! they took; what the processes cost meanwhile is read from outside, by pid.

use super::children::Failure;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use trunkline_shm::monotonic_ns;

/// Requests up to this size are the small call; larger ones are goodput.
pub const SMALL_BYTES_MAX: usize = 64;

/// "Make calls": for how long, how large, how many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    pub millis: u64,
    pub request_bytes: usize,
    pub outstanding: usize,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub calls: u64,
    pub elapsed_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

impl Answer {
    /// Calls in a second.
    pub fn calls_per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed_ns as f64 * 1e9
    }

    /// With that of another driver that called at the same time: all calls, the longer time, the worse percentiles.
    pub fn beside(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            elapsed_ns: self.elapsed_ns.max(other.elapsed_ns),
            p50_ns: self.p50_ns.max(other.p50_ns),
            p99_ns: self.p99_ns.max(other.p99_ns),
        }
    }
}

/// Whoever carries orders out.
pub trait Caller {
    /// Makes calls until the order's time is up and all of them are answered.
    fn carry_out(&mut self, order: Order) -> Result<Answer, Failure>;
}

/// Carries out every order on standard input, until it ends.
pub fn obey(mut caller: impl Caller) -> Result<(), Failure> {
    answer_lines(|line| caller.carry_out(line.parse()?))
}

/// Answers every line of standard input with a line, until it ends.
pub fn answer_lines<T: fmt::Display>(
    mut answer: impl FnMut(&str) -> Result<T, Failure>,
) -> Result<(), Failure> {
    for line in std::io::stdin().lines() {
        // A line is flushed as it ends.
        writeln!(std::io::stdout(), "{}", answer(&line?)?)?;
    }
    Ok(())
}

/// Calls one after the other.
pub fn one_at_a_time(order: Order, mut call: impl FnMut() -> Result<(), Failure>) -> Result<Answer, Failure> {
    let mut times = Times::start(order)?;
    while times.go_on() {
        times.sent();
        call()?;
        times.answered()?;
    }
    Ok(times.answer())
}

/// The times of calls that are answered in the order in which they were made.
#[derive(Debug)]
pub struct Times {
    began_ns: u64,
    end_ns: u64,
    now_ns: u64,
    under_way: VecDeque<u64>,
    took_ns: Histogram<u64>,
}

impl Times {
    /// The order's time begins.
    pub fn start(order: Order) -> Result<Self, Failure> {
        let now_ns = monotonic_ns();
        Ok(Self {
            began_ns: now_ns,
            end_ns: now_ns + order.millis * 1_000_000,
            now_ns,
            under_way: VecDeque::with_capacity(order.outstanding),
            took_ns: Histogram::new(3)?,
        })
    }

    /// Whether another call is to be made. Reads no clock: the last answer did.
    pub fn go_on(&self) -> bool {
        self.now_ns < self.end_ns
    }

    /// A call begins.
    pub fn sent(&mut self) {
        self.under_way.push_back(monotonic_ns());
    }

    /// The oldest call is answered.
    pub fn answered(&mut self) -> Result<(), Failure> {
        self.now_ns = monotonic_ns();
        let sent_ns = self.under_way.pop_front().ok_or("an answer without a call")?;
        Ok(self.took_ns.record(self.now_ns - sent_ns)?)
    }

    /// Calls not answered yet.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The sum of it.
    pub fn answer(&self) -> Answer {
        Answer {
            calls: self.took_ns.len(),
            elapsed_ns: monotonic_ns() - self.began_ns,
            p50_ns: self.took_ns.value_at_quantile(0.5),
            p99_ns: self.took_ns.value_at_quantile(0.99),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.millis, self.request_bytes, self.outstanding)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.calls, self.elapsed_ns, self.p50_ns, self.p99_ns)
    }
}

impl FromStr for Order {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let [millis, request_bytes, outstanding] = numbers(line.split_whitespace())?;
        Ok(Self { millis, request_bytes: request_bytes.try_into()?, outstanding: outstanding.try_into()? })
    }
}

impl FromStr for Answer {
    type Err = Failure;

    fn from_str(line: &str) -> Result<Self, Failure> {
        let [calls, elapsed_ns, p50_ns, p99_ns] = numbers(line.split_whitespace())?;
        Ok(Self { calls, elapsed_ns, p50_ns, p99_ns })
    }
}

/// So many numbers, and nothing else.
pub fn numbers<'a, const N: usize>(words: impl Iterator<Item = &'a str>) -> Result<[u64; N], Failure> {
    let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
    numbers?.try_into().map_err(|other: Vec<u64>| format!("{N} numbers expected, not {other:?}").into())
}

#[cfg(test)]
mod tests {
    //! Orders and answers survive their lines, and a damaged line is refused.
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let order = Order { millis: 250, request_bytes: 64, outstanding: 128 };
        assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
        let answer = Answer { calls: 1, elapsed_ns: 2, p50_ns: 3, p99_ns: 4 };
        assert_eq!(answer.to_string().parse::<Answer>().unwrap(), answer);
        for damaged in ["", "1 2", "1 2 3 4 5", "1 2 x 4"] {
            assert!(damaged.parse::<Answer>().is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn an_answer_without_a_call_is_an_error() {
        let mut times = Times::start(Order { millis: 0, request_bytes: 1, outstanding: 1 }).unwrap();
        times.sent();
        times.answered().unwrap();
        assert!(times.answered().is_err());
        assert_eq!((times.answer().calls, times.go_on()), (1, false));
    }
}
