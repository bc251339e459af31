//! The cycle tax of a daemon's threads: processor time by stage of a call's path.
//!
//! A thread that carries calls goes in rounds: a turn, and the wait behind it. Of about one round in so many everything
//! is measured: whoever enters a stage says so ([`tax_stage`]), ticks of the cycle counter say how the round divides,
//! and the thread's processor clock says how much there is to divide. That is asked, too, behind whatever took long:
//! time in which the thread had no core counts nowhere. What lies in no stage is
//! [unattributed](TaxTotals::unattributed_ns). Rounds that are not measured count by the processor clock alone, and are
//! divided as those measured beside them.
//!
//! Where nobody has [begun](begin_tax), as in tests of the engine and in applications, stages cost a look at one byte.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a daemon's processor time goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum TaxStage {
    /// Messages of gRPC, packed and unpacked.
    Compression,
    /// Records of TLS.
    Encryption,
    /// Messages brought from one encoding into another, and checked.
    Serialization,
    /// Inside system calls of sockets, and asking which are ready.
    Networking,
    /// Framing, policies, balancing, timers: what is in no other stage of a turn.
    RpcLibrary,
    /// Rings and doorbells between applications and the daemon.
    SharedMemoryHop,
    /// Messages between applications' memory and the daemon's.
    Copies,
    /// Recording of finished calls, and reports to operators.
    Telemetry,
    /// Looking for work where there is none, and falling asleep.
    Idle,
}

/// How a thread reads its clocks. Both only ever grow.
#[derive(Clone, Copy, Debug)]
pub struct TaxClocks {
    /// The processor's cycle counter, in whatever unit, and the time.
    pub ticks: fn() -> u64,
    pub wall_ns: fn() -> u64,
    /// Processor time of the calling thread, in nanoseconds.
    pub cpu_ns: fn() -> u64,
}

/// How a daemon's threads measure.
#[derive(Clone, Debug)]
pub struct TaxSetup {
    /// One round in so many is measured; zero: none is.
    pub one_in: u32,
    /// Planted: whoever enters the stage takes so many nanoseconds of processor time more.
    pub spin: Option<(TaxStage, u64)>,
    /// Where all threads add up.
    pub times: Arc<TaxTimes>,
}

/// What threads of a daemon have measured.
#[derive(Debug, Default)]
pub struct TaxTimes {
    stages: [AtomicU64; TaxStage::COUNT],
    /// What lies in no stage. It is no difference of the others, which are read one by one while threads add to them:
    /// that could become less.
    nowhere: AtomicU64,
    spun: AtomicU64,
}

/// What it has come to, since the daemon's process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaxTotals {
    /// Of each stage, in the order of [`TaxStage::ALL`], in nanoseconds.
    pub stages_ns: [u64; TaxStage::COUNT],
    /// Processor time of all threads, by their own clocks.
    pub all_ns: u64,
    /// Of it planted, in rounds that had work.
    pub spun_ns: u64,
}

/// Leaves its stage when dropped.
#[derive(Debug)]
#[must_use = "a stage lasts for as long as this is kept"]
pub struct TaxGuard {
    /// Where the thread was before; `NOT_MEASURED`: nobody wants to know.
    before: usize,
}

/// The thread waits until this is dropped: what it takes then is [`TaxStage::Idle`].
#[derive(Debug)]
#[must_use = "a wait lasts for as long as this is kept"]
pub struct TaxWait {
    began_cpu_ns: Option<u64>,
}

/// What lies in no stage is called.
pub const UNATTRIBUTED: &str = "unattributed";

/// In no stage.
const NOWHERE: usize = TaxStage::COUNT;
const NOT_MEASURED: usize = usize::MAX;
/// Measured rounds after which the thread adds what it has to the others', and processor time.
const ROUNDS_PER_SETTLEMENT: u32 = 32;
const SETTLEMENT_CPU_NS: u64 = 5_000_000;
/// Time without a change of stage behind which the processor clock is asked: a core is lost for longer than that.
const LONG_NS: u64 = 10_000;

thread_local! {
    /// Whether entering a stage does anything: a round is measured, or a spin is planted.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    /// Rounds left that are not measured, of a thread that measures.
    static ROUNDS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    static METER: RefCell<Option<TaxMeter>> = const { RefCell::new(None) };
}

/// A thread's measure of itself.
struct TaxMeter {
    clocks: TaxClocks,
    setup: TaxSetup,
    /// Where the thread is, and since when, if the round is measured.
    at: usize,
    since: u64,
    is_measured: bool,
    /// Of the part of the round that is under way: ticks, and when it began by the processor clock.
    ticks: [u64; TaxStage::COUNT + 1],
    part_began_ns: u64,
    /// What the round has come to so far.
    round_ns: [u64; TaxStage::COUNT + 1],
    /// Ticks of a microsecond (zero: not known yet), and what they are counted from: ticks and time when the thread
    /// began.
    ticks_per_us: u64,
    began: (u64, u64),
    /// Of measured rounds that are not settled: time by stage, and how many.
    measured_ns: [u64; TaxStage::COUNT + 1],
    rounds: u32,
    /// The processor clock at the last settlement.
    settled_ns: u64,
    /// Planted in rounds that had work, and in the round under way.
    spun_ns: u64,
    round_spun_ns: u64,
    random: u64,
}

/// This thread measures from now on.
pub fn begin_tax(clocks: TaxClocks, setup: TaxSetup) {
    let now_ns = (clocks.cpu_ns)();
    let (measures, spins) = (setup.one_in > 0, setup.spin.is_some());
    let meter = TaxMeter {
        clocks,
        setup,
        at: NOWHERE,
        since: 0,
        is_measured: false,
        ticks: [0; TaxStage::COUNT + 1],
        part_began_ns: now_ns,
        round_ns: [0; TaxStage::COUNT + 1],
        ticks_per_us: 0,
        began: ((clocks.ticks)(), (clocks.wall_ns)()),
        measured_ns: [0; TaxStage::COUNT + 1],
        rounds: 0,
        settled_ns: now_ns,
        spun_ns: 0,
        round_spun_ns: 0,
        random: (clocks.ticks)() | 1,
    };
    METER.set(Some(meter));
    IS_WATCHED.set(spins);
    ROUNDS_LEFT.set(if measures { 0 } else { u32::MAX });
}

/// A round begins here, and the one before has ended.
#[inline]
pub fn begin_tax_round() {
    match ROUNDS_LEFT.get() {
        0 => with_meter(TaxMeter::next_round),
        u32::MAX => {}
        left => {
            ROUNDS_LEFT.set(left - 1);
            if IS_WATCHED.get() {
                with_meter(TaxMeter::keep_spun);
            }
        }
    }
}

/// There was nothing to do in this round: all it took was looking.
#[inline]
pub fn note_idle_round() {
    if IS_WATCHED.get() {
        with_meter(TaxMeter::found_nothing);
    }
}

/// The thread is in a stage until the guard is dropped; then where it was before.
#[inline]
pub fn tax_stage(stage: TaxStage) -> TaxGuard {
    TaxGuard { before: if IS_WATCHED.get() { enter(stage) } else { NOT_MEASURED } }
}

/// The thread is about to wait.
#[inline]
pub fn tax_wait() -> TaxWait {
    let began_cpu_ns = if IS_WATCHED.get() { begin_wait() } else { None };
    TaxWait { began_cpu_ns }
}

/// This thread ends: what it has measured is added to the others'.
pub fn end_tax() {
    with_meter(|meter| {
        meter.end_round();
        meter.settle((meter.clocks.cpu_ns)());
    });
    METER.set(None);
    IS_WATCHED.set(false);
    ROUNDS_LEFT.set(u32::MAX);
}

#[cold]
fn enter(stage: TaxStage) -> usize {
    let mut before = NOT_MEASURED;
    with_meter(|meter| {
        if meter.is_measured {
            before = meter.go(stage as usize);
        }
        if let Some((_, ns)) = meter.setup.spin.filter(|(planted, _)| *planted == stage) {
            meter.spin(ns);
        }
    });
    before
}

#[cold]
fn leave(to: usize) {
    with_meter(|meter| {
        if meter.is_measured {
            meter.go(to);
        }
    });
}

#[cold]
fn begin_wait() -> Option<u64> {
    let mut began_ns = None;
    with_meter(|meter| {
        if meter.is_measured {
            meter.end_part();
            began_ns = Some(meter.part_began_ns);
        }
    });
    began_ns
}

#[cold]
fn end_wait(began_cpu_ns: u64) {
    with_meter(|meter| {
        if meter.is_measured {
            let now_ns = (meter.clocks.cpu_ns)();
            meter.round_ns[TaxStage::Idle as usize] += now_ns.saturating_sub(began_cpu_ns);
            (meter.part_began_ns, meter.since) = (now_ns, (meter.clocks.ticks)());
        }
    });
}

/// Nobody enters a stage while the meter is at work, so it is always free; were it not, nothing would be measured.
fn with_meter(act: impl FnOnce(&mut TaxMeter)) {
    METER.with(|meter| {
        if let Ok(mut meter) = meter.try_borrow_mut()
            && let Some(meter) = meter.as_mut()
        {
            act(meter);
        }
    });
}

impl TaxStage {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All, in the order they are told in.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Compression,
        Self::Encryption,
        Self::Serialization,
        Self::Networking,
        Self::RpcLibrary,
        Self::SharedMemoryHop,
        Self::Copies,
        Self::Telemetry,
        Self::Idle,
    ];

    /// Its name in files, metrics and keys; the study's where it has one.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Compression => "compression",
            Self::Encryption => "encryption",
            Self::Serialization => "serialization",
            Self::Networking => "networking",
            Self::RpcLibrary => "rpc_library",
            Self::SharedMemoryHop => "shared_memory_hop",
            Self::Copies => "copies",
            Self::Telemetry => "telemetry",
            Self::Idle => "idle",
        }
    }

    /// That of a name.
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.label() == label)
    }
}

impl TaxTimes {
    /// What all threads have settled.
    pub fn totals(&self) -> TaxTotals {
        let read = |from: &AtomicU64| from.load(Ordering::Relaxed);
        let stages_ns = std::array::from_fn(|index| read(&self.stages[index]));
        let all_ns = stages_ns.iter().sum::<u64>() + read(&self.nowhere);
        TaxTotals { stages_ns, all_ns, spun_ns: read(&self.spun) }
    }
}

impl TaxTotals {
    /// All of it by name, what lies in no stage last.
    pub fn by_label(&self) -> [(&'static str, u64); TaxStage::COUNT + 1] {
        std::array::from_fn(|index| match TaxStage::ALL.get(index) {
            Some(stage) => (stage.label(), self.stages_ns[index]),
            None => (UNATTRIBUTED, self.unattributed_ns()),
        })
    }

    /// What lies in no stage.
    pub fn unattributed_ns(&self) -> u64 {
        self.all_ns.saturating_sub(self.stages_ns.iter().sum())
    }
}

impl TaxMeter {
    fn next_round(&mut self) {
        self.end_round();
        if self.rounds >= ROUNDS_PER_SETTLEMENT
            || self.part_began_ns.saturating_sub(self.settled_ns) >= SETTLEMENT_CPU_NS
        {
            self.settle(self.part_began_ns);
        }
        let one_in = self.setup.one_in;
        if self.is_measured && one_in > 1 {
            // This one is not, nor the next few: turns come in patterns, such as request and response, so how many is
            // drawn.
            self.is_measured = false;
            IS_WATCHED.set(self.setup.spin.is_some());
            ROUNDS_LEFT.set(self.draw((2 * one_in).saturating_sub(4)));
            return;
        }
        if !self.is_measured {
            self.part_began_ns = (self.clocks.cpu_ns)();
        }
        self.is_measured = true;
        self.at = NOWHERE;
        self.since = (self.clocks.ticks)();
        IS_WATCHED.set(true);
    }

    fn keep_spun(&mut self) {
        self.spun_ns += std::mem::take(&mut self.round_spun_ns);
    }

    fn end_round(&mut self) {
        self.keep_spun();
        if self.is_measured {
            self.end_part();
            for (measured_ns, round_ns) in self.measured_ns.iter_mut().zip(&mut self.round_ns) {
                *measured_ns += std::mem::take(round_ns);
            }
            self.rounds += 1;
        }
    }

    /// Divides what the processor clock says by what the cycle counter says.
    fn end_part(&mut self) {
        self.go(self.at);
        let now_ns = (self.clocks.cpu_ns)();
        let took_ns = now_ns.saturating_sub(self.part_began_ns);
        self.divide(took_ns);
        self.part_began_ns = now_ns;
    }

    fn divide(&mut self, took_ns: u64) {
        let ticks: u64 = self.ticks.iter().sum();
        let mut left_ns = took_ns;
        for (round_ns, ticks_there) in self.round_ns.iter_mut().zip(&mut self.ticks) {
            let part_ns = part(took_ns, std::mem::take(ticks_there), ticks);
            left_ns -= part_ns;
            *round_ns += part_ns;
        }
        self.round_ns[NOWHERE] += left_ns;
    }

    /// Goes to a stage. Where it was.
    fn go(&mut self, to: usize) -> usize {
        let now = (self.clocks.ticks)();
        // Counters of two cores may be a little apart.
        let ticks = now.saturating_sub(self.since);
        self.since = now;
        if self.ticks_per_us > 0 && ticks >= self.ticks_per_us * LONG_NS / 1000 {
            self.divide_around_long();
        } else {
            self.ticks[self.at] += ticks;
        }
        std::mem::replace(&mut self.at, to.min(NOWHERE))
    }

    /// What came before was short, and had a core: what it does not account for is the stage's that was so long.
    fn divide_around_long(&mut self) {
        let now_ns = (self.clocks.cpu_ns)();
        let took_ns = now_ns.saturating_sub(self.part_began_ns);
        let short_ns = part(self.ticks.iter().sum(), 1000, self.ticks_per_us).min(took_ns);
        self.divide(short_ns);
        self.round_ns[self.at] += took_ns - short_ns;
        (self.part_began_ns, self.since) = (now_ns, (self.clocks.ticks)());
    }

    fn found_nothing(&mut self) {
        self.round_spun_ns = 0;
        if self.is_measured {
            self.go(TaxStage::Idle as usize);
            let idle = TaxStage::Idle as usize;
            self.ticks[idle] = self.ticks.iter_mut().map(std::mem::take).sum();
            self.round_ns[idle] = self.round_ns.iter_mut().map(std::mem::take).sum();
        }
    }

    /// Adds to what others have: the time since the last settlement, divided as the measured rounds in it.
    fn settle(&mut self, now_ns: u64) {
        let all_ns = now_ns.saturating_sub(self.settled_ns);
        let measured: u64 = self.measured_ns.iter().sum();
        if measured == 0 {
            return;
        }
        self.settled_ns = now_ns;
        self.rounds = 0;
        let (ticks, wall_ns) = ((self.clocks.ticks)(), (self.clocks.wall_ns)());
        self.ticks_per_us =
            part(ticks.saturating_sub(self.began.0), 1000, wall_ns.saturating_sub(self.began.1));
        let times = &self.setup.times;
        let mut left_ns = all_ns;
        for (total, measured_ns) in times.stages.iter().zip(&self.measured_ns) {
            let part_ns = part(all_ns, *measured_ns, measured);
            left_ns -= part_ns;
            total.fetch_add(part_ns, Ordering::Relaxed);
        }
        times.nowhere.fetch_add(left_ns, Ordering::Relaxed);
        times.spun.fetch_add(std::mem::take(&mut self.spun_ns), Ordering::Relaxed);
        self.measured_ns = [0; TaxStage::COUNT + 1];
    }

    fn spin(&mut self, ns: u64) {
        let began_ns = (self.clocks.cpu_ns)();
        loop {
            let spun_ns = (self.clocks.cpu_ns)().saturating_sub(began_ns);
            if spun_ns >= ns {
                self.round_spun_ns += spun_ns;
                return;
            }
        }
    }

    /// From 0 to that, both included.
    fn draw(&mut self, most: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % (u64::from(most) + 1)) as u32
    }
}

/// `whole` · `of` ÷ `among`.
fn part(whole: u64, of: u64, among: u64) -> u64 {
    (u128::from(whole) * u128::from(of)).checked_div(u128::from(among)).unwrap_or(0) as u64
}

impl Drop for TaxGuard {
    #[inline]
    fn drop(&mut self) {
        if self.before != NOT_MEASURED {
            leave(self.before);
        }
    }
}

impl Drop for TaxWait {
    #[inline]
    fn drop(&mut self) {
        if let Some(began_cpu_ns) = self.began_cpu_ns {
            end_wait(began_cpu_ns);
        }
    }
}

#[cfg(test)]
#[path = "tax_tests.rs"]
mod tests;
