//! How long to look before sleeping: the one waiting policy, used by stubs and by shards.
//!
//! Waking an idle core costs 15–60 µs, a hand-over between two that look 0.2 µs, a `sched_yield` 0.2 µs. So a waiter
//! looks for a while and yields the core between looks; if nothing comes it sleeps on its doorbells. How long is a
//! bet on how long this wait will be, and the best tip is how long the last ones were: waits that ended soon (also
//! those that ended soon after going to sleep) double the patience, waits that did not halve it. An idle waiter
//! therefore soon does not look at all, and a busy one hardly sleeps.
//!
//! A call passes four waiters and six hand-overs, and if one of them sleeps, the wait of every other grows by a
//! wake-up. The longest patience is therefore as long as six wake-ups, and what a wake-up costs is measured: whoever
//! rings says when, and the waiter when it was there ([`Waiter::woken`]). Patience costs nothing to anybody who has
//! work, for the core is yielded; it costs processor time nobody else wants, more than sleeping does where waits are
//! longer than what it takes to fall asleep and wake up. So it has a bound, and who pays for such time sets it.
//!
//! A yield that took long, a *stall*, went to a thread that computes, or the host of a virtual machine took the core
//! away. Against the first sleeping helps, for a sleeper preempts such a thread when woken; against the second it does
//! not, for waking is the very thing that then waits for a core. So after a stall a waiter sleeps for a number of
//! waits, and compares: the next time it is twice as many if these waits were shorter than those before them, half as
//! many if not.
//!
//! Short waits do not always mean short calls. Where many are in flight something comes every moment, however long
//! each of them takes; looking for it then costs a core, and shortens no call by a share anybody notices. Who knows
//! how soon calls take their steps says so ([`Waiter::credit`]), and a step that came soon pays for looking. A waiter
//! that has no credit left looks no longer than waking takes, which is what it costs to be wrong either way.
//!
//! This file only decides. [`crate::sleep`] has the hands: clock, yield and poll.

/// What to do now that nothing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look again at once (after [`std::hint::spin_loop`]).
    Spin,
    /// Give the core to whoever wants it, then look again.
    Yield,
    /// Announce it, look once more, and sleep.
    Block,
}

/// Bounds of a waiter's patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// Longest time to look before sleeping, however dear waking is.
    pub patience_ns_max: u64,
    /// Longest patience where waking costs nothing: a short call between two hosts.
    pub patience_ns_least: u64,
    /// Patience below which looking is not worth the clock reads: treated as none.
    pub patience_ns_min: u64,
    /// Wake-ups the longest patience stands for: as many hand-overs as a call between two hosts has.
    pub wakes: u32,
    /// What waking from sleep costs until it was measured.
    pub wake_ns: u64,
    /// Most that a measurement is believed: the other side may say what it likes.
    pub wake_ns_max: u64,
    /// A yield that took this long gave the core to somebody who does not yield, or was interrupted by the host.
    pub stall_ns: u64,
    /// Waits that do not look after such a stall, the first time.
    pub backoff_waits_min: u32,
    /// The same at most. One stall in so many waits stays below the 99.9th percentile.
    pub backoff_waits_max: u32,
    /// Looks without yielding at the start of a wait. None on a single core, where the other side cannot run
    /// meanwhile.
    pub spins_max: u32,
}

impl Default for WaitLimits {
    fn default() -> WaitLimits {
        WaitLimits {
            patience_ns_max: 2_000_000,
            patience_ns_least: 100_000,
            patience_ns_min: 1_000,
            wakes: 6,
            wake_ns: 35_000,
            wake_ns_max: 500_000,
            stall_ns: 400_000,
            backoff_waits_min: 16,
            backoff_waits_max: 1024,
            spins_max: 16,
        }
    }
}

impl WaitLimits {
    /// The defaults, without spinning if this process may use one core only.
    #[must_use]
    pub fn of_this_process() -> WaitLimits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let defaults = WaitLimits::default();
        WaitLimits { spins_max: if cores > 1 { defaults.spins_max } else { 0 }, ..defaults }
    }
}

/// Every so many waits spinning gets another chance although it did not pay before.
const SPIN_PROBE_WAITS: u32 = 64;

/// Waits that do not look after a stall where that never helped: enough to find out whether it does now.
const BACKOFF_WAITS_LEAST: u32 = 2;

/// A wait counts for no more than so many stalls: beyond that nobody called.
const STALL_COUNTS: u64 = 8;

/// Waits a mean is of, at most: as many as sobriety may last.
const MEAN_OF_WAITS: u64 = 2048;

/// Share of a new measurement in what waking is taken to cost.
const WAKE_SHARE: u64 = 8;

/// A step of a call that took more than so many longest patiences is not worth looking for: not sleeping would make it
/// a fifth shorter at best.
const STEP_PATIENCES: u64 = 4;

/// Steps whose worth is remembered at most.
const CREDIT_STEPS: u64 = 64;

/// Decides, wait by wait, between looking and sleeping. Holds no clock: every method takes the time.
///
/// ```
/// # use trunkline_shm::{Decision, WaitLimits, Waiter};
/// let mut waiter = Waiter::new(WaitLimits::default());
/// waiter.begin(0);
/// assert_eq!(waiter.decide(0), Decision::Spin);
/// assert_eq!(waiter.decide(210_000), Decision::Block);
/// waiter.arrived(240_000); // woken: looking a little longer would have found it
/// assert_eq!(waiter.patience_ns(), 210_000);
/// ```
#[derive(Clone, Debug)]
pub struct Waiter {
    limits: WaitLimits,
    /// What waking costs here, as measured.
    wake_ns: u64,
    patience_ns: u64,
    /// Looks without yielding in the present wait's beginning.
    spins: u32,
    /// Waits still to be done without looking, the present one included.
    backoff: u32,
    /// How many the next stall costs.
    backoff_waits: u32,
    /// Time left for looking longer than waking takes; `None` is no end of it.
    credit_ns: Option<u64>,
    /// Waits since the last stall.
    calm_waits: u32,
    /// How long waits with looks were since the last stall's consequences ended, and those without during them.
    looking: Mean,
    sleeping: Mean,
    waits: u32,
    began_ns: u64,
    looked_ns: u64,
    looks: u32,
    blocked: bool,
}

/// Of waits.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum_ns: u64,
    count: u64,
}

impl Mean {
    /// What was long ago says less and less.
    fn add(&mut self, wait_ns: u64) {
        if self.count >= MEAN_OF_WAITS {
            (self.sum_ns, self.count) = (self.sum_ns / 2, self.count / 2);
        }
        self.sum_ns = self.sum_ns.saturating_add(wait_ns);
        self.count += 1;
    }

    fn is_below(self, other: Self) -> bool {
        self.sum_ns / self.count.max(1) < other.sum_ns / other.count.max(1)
    }
}

impl Waiter {
    /// A waiter that begins with patience at its longest: the first waits tell.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Waiter {
        let mut waiter = Waiter {
            limits,
            wake_ns: limits.wake_ns,
            patience_ns: 0,
            spins: limits.spins_max,
            backoff: 0,
            backoff_waits: limits.backoff_waits_min,
            credit_ns: None,
            calm_waits: 0,
            looking: Mean::default(),
            sleeping: Mean::default(),
            waits: 0,
            began_ns: 0,
            looked_ns: 0,
            looks: 0,
            blocked: false,
        };
        waiter.patience_ns = waiter.longest_ns();
        waiter
    }

    /// The same, but it looks for longer than waking takes only if steps of calls pay for it ([`Waiter::credit`]). The
    /// account is full to begin with.
    #[must_use]
    pub fn on_credit(limits: WaitLimits) -> Waiter {
        let mut waiter = Waiter::new(limits);
        waiter.credit_ns = Some(waiter.credit_ns_max());
        waiter
    }

    /// So many steps of calls, an answer after its request or a message after the one before, came within
    /// [`Waiter::step_ns_max`]. Each pays for one longest patience. Says nothing to a waiter that needs no credit.
    #[inline]
    pub fn credit(&mut self, steps: u32) {
        let most_ns = self.credit_ns_max();
        if let Some(credit_ns) = &mut self.credit_ns {
            let earned_ns = (most_ns / CREDIT_STEPS).saturating_mul(steps.into());
            *credit_ns = credit_ns.saturating_add(earned_ns).min(most_ns);
        }
    }

    /// Longest time a call's step may take that is worth looking for.
    #[must_use]
    pub fn step_ns_max(&self) -> u64 {
        self.wakes_ns().saturating_mul(STEP_PATIENCES)
    }

    /// Nothing to do as of `now_ns`: a wait begins.
    #[inline]
    pub fn begin(&mut self, now_ns: u64) {
        (self.began_ns, self.looked_ns, self.looks, self.blocked) = (now_ns, now_ns, 0, false);
        if self.backoff > 0 {
            self.backoff -= 1;
            if self.backoff == 0 {
                self.judge_backoff();
            }
        }
        self.calm_waits = self.calm_waits.saturating_add(1);
        self.waits = self.waits.wrapping_add(1);
        if self.waits.is_multiple_of(SPIN_PROBE_WAITS) {
            self.spins = self.limits.spins_max;
        }
    }

    /// Looked and found nothing, as of `now_ns`. The time need not be read anew after a [`Decision::Spin`].
    #[inline]
    pub fn decide(&mut self, now_ns: u64) -> Decision {
        self.notice_stall(now_ns);
        if now_ns.saturating_sub(self.began_ns) >= self.patience_now_ns() {
            if !self.blocked {
                self.charge(now_ns);
            }
            self.blocked = true;
            return Decision::Block;
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks <= self.spins { Decision::Spin } else { Decision::Yield }
    }

    /// It slept and was there so long after it was rung ([`crate::Consumer::rung_ns_ago`]), if anybody rang. Nothing is
    /// learnt when it did not sleep.
    #[inline]
    pub fn woken(&mut self, late_ns: Option<u64>) {
        if let Some(late_ns) = late_ns.filter(|_| self.blocked) {
            let late_ns = late_ns.min(self.limits.wake_ns_max);
            self.wake_ns = (self.wake_ns * (WAKE_SHARE - 1) + late_ns) / WAKE_SHARE;
        }
    }

    /// Work came at `now_ns`, found by looking or by being woken: learns from the length of this wait.
    #[inline]
    pub fn arrived(&mut self, now_ns: u64) {
        let limits = self.limits;
        let waited_ns = now_ns.saturating_sub(self.began_ns);
        if !self.blocked {
            self.charge(now_ns);
            self.notice_stall(now_ns);
            self.spins = if self.looks <= self.spins { limits.spins_max } else { self.spins / 2 };
        }
        self.blocked = false;
        let counts_ns = waited_ns.min(STALL_COUNTS * limits.stall_ns);
        match (self.looks, self.backoff) {
            (1.., _) => self.looking.add(counts_ns),
            (0, 1..) => self.sleeping.add(counts_ns),
            // Without patience, because calls are rare: says nothing of either.
            (0, 0) => {}
        }
        let longest_ns = self.longest_ns();
        self.patience_ns = if waited_ns <= longest_ns.saturating_add(self.wake_ns) {
            let worth_ns = self.patience_ns.max(waited_ns).max(limits.patience_ns_min);
            worth_ns.saturating_mul(2).min(longest_ns)
        } else {
            self.halved()
        };
    }

    /// The wait ended without work (a time-out): counts as a long one.
    pub fn ran_dry(&mut self) {
        self.blocked = false;
        self.patience_ns = self.halved();
    }

    /// How long the next wait would look before sleeping, unless a stall forbids looking.
    #[must_use]
    pub fn patience_ns(&self) -> u64 {
        self.patience_ns.min(self.longest_ns())
    }

    /// The longest patience: what all the wake-ups of a call cost; without credit, what one costs.
    fn longest_ns(&self) -> u64 {
        let one_wake_ns = self.wake_ns.min(self.limits.patience_ns_max);
        if self.credit_ns == Some(0) { one_wake_ns } else { self.wakes_ns() }
    }

    /// What all the wake-ups of a call cost.
    fn wakes_ns(&self) -> u64 {
        let WaitLimits { wakes, patience_ns_least, patience_ns_max, .. } = self.limits;
        self.wake_ns.saturating_mul(wakes.into()).max(patience_ns_least).min(patience_ns_max)
    }

    fn credit_ns_max(&self) -> u64 {
        self.wakes_ns().saturating_mul(CREDIT_STEPS)
    }

    /// The present wait was looked for until `now_ns`. What sleeping would have cost is free.
    fn charge(&mut self, now_ns: u64) {
        if let Some(credit_ns) = &mut self.credit_ns {
            let looked_ns = now_ns.saturating_sub(self.began_ns);
            *credit_ns = credit_ns.saturating_sub(looked_ns.saturating_sub(self.wake_ns));
        }
    }

    /// How long the present wait looks.
    fn patience_now_ns(&self) -> u64 {
        if self.backoff > 0 { 0 } else { self.patience_ns() }
    }

    /// A yield normally takes under a microsecond; one that took a scheduler's time slice went to a thread that
    /// computes. Yielding would lose as much again and again, while a sleeper preempts such a thread when woken.
    #[inline]
    fn notice_stall(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) >= self.limits.stall_ns {
            if self.calm_waits > self.limits.backoff_waits_max.saturating_mul(2) {
                self.backoff_waits = self.limits.backoff_waits_min;
            }
            self.backoff = self.backoff_waits;
            self.calm_waits = 0;
        }
        self.looked_ns = now_ns;
    }

    /// Whether sleeping was better than looking decides for how long the next stall is answered by it.
    fn judge_backoff(&mut self) {
        let was_better = self.sleeping.is_below(self.looking);
        let next = if was_better { self.backoff_waits.saturating_mul(2) } else { self.backoff_waits / 2 };
        self.backoff_waits = next.clamp(BACKOFF_WAITS_LEAST, self.limits.backoff_waits_max);
        (self.looking, self.sleeping) = Default::default();
    }

    fn halved(&self) -> u64 {
        let half = self.patience_ns / 2;
        if half < self.limits.patience_ns_min { 0 } else { half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look with a yield, and a wake from sleep, take here.
    const LOOK_NS: u64 = 200;
    const WAKE_NS: u64 = 35_000;
    /// The longest patience there.
    const LONGEST_NS: u64 = 6 * WAKE_NS;

    /// How one simulated wait went.
    #[derive(Debug, Default, PartialEq)]
    struct Wait {
        spins: u32,
        yields: u32,
        slept: bool,
    }

    /// Lets `waiter` wait for work that comes after `work_ns`; its first yield takes `first_yield_ns`.
    fn wait_with_yield(waiter: &mut Waiter, work_ns: u64, first_yield_ns: u64) -> Wait {
        let (began_ns, mut wait) = (1_000_000, Wait::default());
        let mut now_ns = began_ns;
        waiter.begin(now_ns);
        loop {
            match waiter.decide(now_ns) {
                Decision::Spin => wait.spins += 1,
                Decision::Yield => {
                    now_ns += if wait.yields == 0 { first_yield_ns } else { LOOK_NS };
                    wait.yields += 1;
                }
                Decision::Block => {
                    wait.slept = true;
                    now_ns = now_ns.max(began_ns + work_ns) + WAKE_NS;
                }
            }
            if now_ns >= began_ns + work_ns {
                waiter.arrived(now_ns);
                return wait;
            }
        }
    }

    fn wait(waiter: &mut Waiter, work_ns: u64) -> Wait {
        wait_with_yield(waiter, work_ns, LOOK_NS)
    }

    fn waiter() -> Waiter {
        Waiter::new(WaitLimits::default())
    }

    /// Work every few microseconds is found by looking, always.
    #[test]
    fn a_busy_waiter_does_not_sleep() {
        let mut waiter = waiter();
        assert!((0..1_000).all(|round| !wait(&mut waiter, 1_000 + round % 20 * 1_000).slept));
        assert_eq!(waiter.patience_ns(), LONGEST_NS);
    }

    /// Work every ten milliseconds is not looked for: less than half a millisecond in all, then none.
    #[test]
    fn an_idle_waiter_sleeps_at_once() {
        let mut waiter = waiter();
        let looks: Vec<u32> =
            (0..10).map(|_| wait(&mut waiter, 10_000_000)).map(|wait| wait.yields).collect();
        assert_eq!(looks[0], 1_050, "210 µs of 200 ns each");
        assert!(looks.iter().sum::<u32>() <= 2_100, "{looks:?}");
        assert_eq!((looks[9], waiter.patience_ns()), (0, 0));
        assert_eq!(wait(&mut waiter, 10_000_000), Wait { slept: true, ..Wait::default() });
    }

    /// After idleness a few quick answers are enough to look again, although the first are slept through.
    #[test]
    fn a_waiter_wakes_up_to_load() {
        let mut waiter = waiter();
        (0..10).for_each(|_| _ = wait(&mut waiter, 10_000_000));
        let slept = (0..10).filter(|_| wait(&mut waiter, 8_000).slept).count();
        assert_eq!(slept, 1);
    }

    /// A wait of a tenth of a millisecond again and again: looked for while steps of calls pay for it, slept through
    /// otherwise, and looked for again when calls are short again.
    #[test]
    fn looking_for_long_calls_is_on_credit() {
        let mut waiter = Waiter::on_credit(WaitLimits::default());
        let mut slept = |steps| {
            let rounds = (0..1_000).filter(|_| {
                waiter.credit(steps);
                wait(&mut waiter, 100_000).slept
            });
            rounds.count()
        };
        assert_eq!(slept(1), 0, "each wait ends with a step");
        assert_eq!(
            1_000 - slept(0),
            206,
            "13.4 ms of credit; each wait takes 65 µs, for a wake-up's time is free"
        );
        assert_eq!(slept(1), 1, "and a little is enough to begin again");
    }

    /// Without credit a waiter looks as long as waking takes and no longer, also after waking has become dearer.
    #[test]
    fn without_credit_looking_costs_no_more_than_sleeping() {
        let mut waiter = Waiter::on_credit(WaitLimits::default());
        (0..500).for_each(|_| _ = wait(&mut waiter, 100_000));
        assert_eq!((0..100).filter(|_| wait(&mut waiter, 30_000).slept).count(), 1, "until it looks again");
        assert_eq!(waiter.patience_ns(), WAKE_NS);
        for _ in 0..100 {
            waiter.begin(0);
            while waiter.decide(5_000_000) != Decision::Block {}
            waiter.woken(Some(100_000));
            waiter.arrived(1_000);
        }
        assert!(waiter.patience_ns().abs_diff(100_000) < 60, "{}", waiter.patience_ns());
        assert!(waiter.step_ns_max().abs_diff(2_400_000) < 1_000);
    }

    /// Waits as long as a sleep and longer end the looking, one step at a time.
    #[test]
    fn patience_halves_and_doubles_within_its_bounds() {
        let mut waiter = waiter();
        let mut after = |work_ns| {
            wait(&mut waiter, work_ns);
            waiter.patience_ns()
        };
        let long = 1_000_000;
        let steps = [long, long, 5_000, long, long, long, long, long, long, long, 500, 500, 500, 500];
        let expected = [
            105_000, 52_500, 105_000, 52_500, 26_250, 13_125, 6_562, 3_281, 1_640, 0, 71_000, 142_000,
            LONGEST_NS, LONGEST_NS,
        ];
        assert_eq!(steps.map(&mut after), expected);
        waiter.ran_dry();
        assert_eq!(waiter.patience_ns(), LONGEST_NS / 2, "a time-out counts as a long wait");
    }

    /// A yield that loses a time slice to a computing thread ends the looking for a while; the longer, the more often.
    #[test]
    fn a_stalled_yield_backs_off() {
        let mut waiter = waiter();
        assert!(wait_with_yield(&mut waiter, 5_000_000, 3_000_000).slept);
        for expected in [15, 31, 63, 127, 255, 511, 1023, 1023] {
            let slept = (0..2_000).take_while(|_| wait(&mut waiter, 8_000).slept).count();
            assert_eq!(slept, expected);
            assert!(!wait_with_yield(&mut waiter, 8_000, 3_000_000).slept, "found, but late");
        }
    }

    /// A stall after a long time without any is the first again.
    #[test]
    fn calm_is_trusted_again() {
        let mut waiter = waiter();
        (0..4).for_each(|_| {
            wait_with_yield(&mut waiter, 8_000, 3_000_000);
            (0..200).for_each(|_| _ = wait(&mut waiter, 8_000));
        });
        (0..2_049).for_each(|_| _ = wait(&mut waiter, 8_000));
        wait_with_yield(&mut waiter, 8_000, 3_000_000);
        assert_eq!((0..100).take_while(|_| wait(&mut waiter, 8_000).slept).count(), 15);
    }

    /// Where waits become no shorter by sleeping (the host took the core away), stalls are hardly answered any more.
    #[test]
    fn sobriety_must_pay() {
        let mut waiter = waiter();
        (0..200).for_each(|_| _ = wait(&mut waiter, 8_000));
        for expected in [15, 7, 3, 1, 1, 1] {
            assert!(!wait_with_yield(&mut waiter, 8_000, 3_000_000).slept);
            let slept = (0..200).filter(|_| {
                let sleeps = waiter.backoff > 1;
                wait(&mut waiter, if sleeps { 200_000 } else { 8_000 }).slept
            });
            assert_eq!(slept.count(), expected);
        }
    }

    /// The dearer waking is, the longer it is worth looking; what the other side says of it is believed within bounds.
    #[test]
    fn patience_follows_what_waking_costs() {
        let mut waiter = waiter();
        for (late_ns, longest_ns) in [(100_000, 600_000), (0, 100_000), (u64::MAX, 2_000_000)] {
            for _ in 0..100 {
                waiter.begin(0);
                while waiter.decide(5_000_000) != Decision::Block {}
                waiter.woken(Some(late_ns));
                waiter.arrived(1_000);
            }
            assert!(waiter.patience_ns().abs_diff(longest_ns) <= 60, "{}", waiter.patience_ns());
        }
        waiter.begin(0);
        waiter.woken(Some(0));
        waiter.arrived(0);
        waiter.woken(Some(0));
        assert_eq!(waiter.patience_ns(), 2_000_000, "it did not sleep");
        waiter.begin(0);
        while waiter.decide(5_000_000) != Decision::Block {}
        waiter.woken(None);
        waiter.ran_dry();
        waiter.woken(Some(0));
        waiter.begin(0);
        waiter.arrived(0);
        assert_eq!(waiter.patience_ns(), 2_000_000, "nobody rang, and it sleeps no more");
    }

    /// Waits that were slept through because calls were rare do not make looking seem slow.
    #[test]
    fn rare_calls_say_nothing_of_looking() {
        let mut waiter = waiter();
        (0..100).for_each(|_| _ = wait(&mut waiter, 10_000_000));
        (0..200).for_each(|_| _ = wait(&mut waiter, 8_000));
        assert!(!wait_with_yield(&mut waiter, 8_000, 3_000_000).slept);
        (0..15).for_each(|_| _ = wait(&mut waiter, 200_000));
        wait(&mut waiter, 8_000);
        assert_eq!(waiter.backoff_waits, 8, "sleeping was worse than looking");
    }

    /// Spinning without yielding goes on while it finds something, stops when it does not, and is tried again.
    #[test]
    fn spinning_must_pay() {
        let mut waiter = waiter();
        let spins: Vec<u32> = (0..80).map(|_| wait(&mut waiter, 8_000).spins).collect();
        assert_eq!(spins[..6], [16, 8, 4, 2, 1, 0]);
        assert_eq!(spins.iter().skip(5).filter(|spins| **spins == 16).count(), 1, "one probe");
    }

    /// Where one core is all there is, nothing spins without yielding.
    #[test]
    fn one_core_only_yields() {
        let mut waiter = Waiter::new(WaitLimits { spins_max: 0, ..WaitLimits::default() });
        assert!((0..200).all(|_| wait(&mut waiter, 8_000).spins == 0));
    }

    /// One call after the other along a chain of four waiters.
    struct Chain {
        waiters: [Waiter; 4],
        began_ns: [u64; 4],
        now_ns: u64,
    }

    impl Chain {
        /// Who is handed the call, beginning behind the caller: through two daemons to a server, and back.
        const WAY: [usize; 6] = [1, 2, 3, 2, 1, 0];
        const WORK_NS: u64 = 5_000;

        fn asleep() -> Self {
            let mut waiter = waiter();
            (0..10).for_each(|_| waiter.ran_dry());
            Self { waiters: std::array::from_fn(|_| waiter.clone()), began_ns: [0; 4], now_ns: 0 }
        }

        /// How long a call takes, of which the server needs `served_ns`, where waking takes `wake_ns`.
        fn call(&mut self, served_ns: u64, wake_ns: u64) -> u64 {
            let called_ns = self.now_ns;
            for place in Self::WAY {
                let (waiter, began_ns) = (&mut self.waiters[place], self.began_ns[place]);
                waiter.begin(began_ns);
                let mut looks = (began_ns..=self.now_ns).step_by(LOOK_NS as usize);
                let sleeps = looks.any(|at_ns| waiter.decide(at_ns) == Decision::Block);
                self.now_ns += if sleeps { wake_ns } else { LOOK_NS };
                waiter.woken(Some(wake_ns));
                waiter.arrived(self.now_ns);
                self.now_ns += if place == 3 { served_ns } else { Self::WORK_NS };
                self.began_ns[place] = self.now_ns;
            }
            self.now_ns - called_ns
        }
    }

    /// Who all sleep make each other's waits long, but not too long to be looked for the next time.
    #[test]
    fn sleepers_wake_each_other_up() {
        for (wake_ns, served_ns) in [(5_000, 50_000), (35_000, 10_000), (35_000, 150_000), (240_000, 150_000)]
        {
            let mut chain = Chain::asleep();
            assert!(chain.call(served_ns, wake_ns) >= served_ns + 4 * wake_ns, "all sleep");
            (0..30).for_each(|_| _ = chain.call(served_ns, wake_ns));
            let took_ns = chain.call(served_ns, wake_ns);
            assert!(
                took_ns < served_ns + 6 * (Chain::WORK_NS + LOOK_NS),
                "{took_ns} of {served_ns}, {wake_ns}"
            );
        }
    }

    /// A clock that jumps, either way, ends in a decision and breaks nothing.
    #[test]
    fn a_jumping_clock_is_survived() {
        let mut waiter = waiter();
        for (begin, look, end) in [(100, 50, 0), (u64::MAX, 0, u64::MAX), (0, u64::MAX, 1), (5, 5, 5)] {
            waiter.begin(begin);
            waiter.decide(look);
            waiter.arrived(end);
            assert!(waiter.patience_ns() <= LONGEST_NS);
        }
    }
}
