//! Shows that time is that of the stage it was spent in, that waits and lost cores count nowhere, that rounds that are
//! not measured are divided as those that are, and that a planted spin is found where it was planted.
use super::*;

thread_local! {
    static TICKS: Cell<u64> = const { Cell::new(1000) };
    static CPU_NS: Cell<u64> = const { Cell::new(50) };
    /// What a look at the processor clock takes.
    static LOOK_NS: Cell<u64> = const { Cell::new(0) };
}

/// Works for so long; the cycle counter counts three to the nanosecond.
fn work(ns: u64) {
    TICKS.set(TICKS.get() + 3 * ns);
    CPU_NS.set(CPU_NS.get() + ns);
}

/// The thread has no core for so long.
fn lose_core(ns: u64) {
    TICKS.set(TICKS.get() + 3 * ns);
}

fn measured(one_in: u32, spin: Option<(TaxStage, u64)>, act: impl FnOnce()) -> TaxTotals {
    fn cpu_ns() -> u64 {
        work(LOOK_NS.get());
        CPU_NS.get()
    }
    let times = Arc::new(TaxTimes::default());
    let clocks = TaxClocks { ticks: || TICKS.get(), wall_ns: || TICKS.get() / 3, cpu_ns };
    begin_tax(clocks, TaxSetup { one_in, spin, times: Arc::clone(&times) });
    act();
    end_tax();
    times.totals()
}

fn of(totals: &TaxTotals, stage: TaxStage) -> u64 {
    totals.stages_ns[stage as usize]
}

#[test]
fn time_is_that_of_the_innermost_stage() {
    let totals = measured(1, None, || {
        begin_tax_round();
        work(100);
        let library = tax_stage(TaxStage::RpcLibrary);
        work(1000);
        {
            let _copies = tax_stage(TaxStage::Copies);
            work(500);
        }
        work(200);
        drop(library);
        work(40);
    });
    assert_eq!((of(&totals, TaxStage::RpcLibrary), of(&totals, TaxStage::Copies)), (1200, 500));
    assert_eq!((totals.all_ns, totals.unattributed_ns()), (1840, 140));
}

#[test]
fn what_lies_in_no_stage_never_becomes_less() {
    let times = TaxTimes::default();
    times.nowhere.store(500, Ordering::Relaxed);
    let before = times.totals();
    // A thread is in the midst of adding what it has measured.
    times.stages[TaxStage::Copies as usize].fetch_add(100, Ordering::Relaxed);
    let now = times.totals();
    assert_eq!((before.unattributed_ns(), now.unattributed_ns(), now.all_ns), (500, 500, 600));
}

#[test]
fn a_wait_and_a_lost_core_are_no_time() {
    let totals = measured(1, None, || {
        begin_tax_round();
        let library = tax_stage(TaxStage::RpcLibrary);
        work(300);
        {
            let _wait = tax_wait();
            work(20);
            lose_core(1_000_000);
        }
        work(300);
        {
            // The round is twice as long as what there is to divide.
            let _copies = tax_stage(TaxStage::Copies);
            lose_core(600);
            work(300);
        }
        drop(library);
    });
    assert_eq!((of(&totals, TaxStage::Idle), totals.all_ns), (20, 920));
    assert_eq!(of(&totals, TaxStage::RpcLibrary) + of(&totals, TaxStage::Copies), 900);
}

#[test]
fn a_core_that_is_lost_is_lost_by_nobody() {
    let totals = measured(1, None, || {
        let round = |lost_ns| {
            begin_tax_round();
            drop((tax_stage(TaxStage::RpcLibrary), work(4000)));
            drop((tax_stage(TaxStage::Serialization), work(2000), lose_core(lost_ns)));
            drop((tax_stage(TaxStage::Copies), work(3000)));
        };
        // How fast the counter is it finds out at the first settlement.
        (0..ROUNDS_PER_SETTLEMENT).for_each(|_| round(0));
        (0..ROUNDS_PER_SETTLEMENT).for_each(|_| round(50_000));
    });
    let rounds = u64::from(2 * ROUNDS_PER_SETTLEMENT);
    let found = [TaxStage::RpcLibrary, TaxStage::Serialization, TaxStage::Copies]
        .map(|one| of(&totals, one) / rounds);
    assert_eq!(found.map(|ns| ns.div_ceil(10) * 10), [4000, 2000, 3000]);
}

#[test]
fn a_round_that_found_nothing_was_idle() {
    let totals = measured(1, None, || {
        for _ in 0..3 {
            begin_tax_round();
            drop((tax_stage(TaxStage::Networking), work(70)));
            note_idle_round();
            work(30);
        }
    });
    assert_eq!((of(&totals, TaxStage::Idle), totals.all_ns, totals.unattributed_ns()), (300, 300, 0));
}

#[test]
fn rounds_that_are_not_measured_are_divided_as_the_others() {
    let totals = measured(16, None, || {
        for round in 0..40_000 {
            begin_tax_round();
            // A pattern that a fixed step would see one half of.
            let (stage, ns) = match round % 2 {
                0 => (TaxStage::Networking, 3000),
                _ => (TaxStage::Serialization, 1000),
            };
            drop((tax_stage(stage), work(ns)));
        }
    });
    assert_eq!(totals.all_ns, 80_000_000);
    assert!(totals.unattributed_ns() < 1000, "what rounding leaves: {totals:?}");
    let share = of(&totals, TaxStage::Networking) as f64 / totals.all_ns as f64;
    assert!((0.72..0.78).contains(&share), "{share}");
}

#[test]
fn a_planted_spin_is_found_where_it_was_planted() {
    LOOK_NS.set(25);
    let run = |one_in, spin| {
        measured(one_in, spin, || {
            for _ in 0..20_000 {
                begin_tax_round();
                let _library = tax_stage(TaxStage::RpcLibrary);
                work(2000);
                drop((tax_stage(TaxStage::Serialization), work(500)));
            }
        })
    };
    for (one_in, within) in [(1, 0.05), (16, 0.05)] {
        let plain = run(one_in, None);
        let spun = run(one_in, Some((TaxStage::Serialization, 4000)));
        assert!(spun.spun_ns >= 20_000 * 4000, "{spun:?}");
        let rise = of(&spun, TaxStage::Serialization) as f64 - of(&plain, TaxStage::Serialization) as f64;
        let distance = (rise / spun.spun_ns as f64 - 1.0).abs();
        assert!(distance < within, "one in {one_in}: rises by {rise} of {}", spun.spun_ns);
        let other = of(&spun, TaxStage::RpcLibrary) as f64 / of(&plain, TaxStage::RpcLibrary) as f64;
        assert!((other - 1.0).abs() < within, "one in {one_in}: library {other}");
    }
}

#[test]
fn without_a_beginning_nothing_is_measured() {
    begin_tax_round();
    let guard = tax_stage(TaxStage::Copies);
    work(10);
    drop(guard);
    note_idle_round();
    drop(tax_wait());
    end_tax();
    let totals = measured(0, None, || {
        begin_tax_round();
        drop((tax_stage(TaxStage::Copies), work(10)));
    });
    assert_eq!(totals, TaxTotals::default());
}

#[test]
fn stages_are_found_by_their_labels() {
    for stage in TaxStage::ALL {
        assert_eq!(TaxStage::of_label(stage.label()), Some(stage));
        assert_eq!(TaxStage::ALL[stage as usize], stage);
    }
    assert_eq!(TaxStage::of_label("cpu"), None);
}
