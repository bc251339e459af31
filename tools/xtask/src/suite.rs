//! `cargo xtask test`: every check there is, with a summary at the end.
//!
//! A Rust tool chain is all it needs. Checks that need another tool are skipped without it, and the summary says so.
//!
//! Cargo builds the tests and hands the programs over ([`handed`]), which run two at a time ([`lanes`]), the system
//! tests with daemons of one, two and three shards. Cargo goes on meanwhile: tests of documentation, then the models.
//! [`watch`] ends what hangs.

mod counts;
mod handed;
mod lanes;
mod outcome;
mod processes;
mod watch;

use crate::{Tree, rules};
use counts::Counts;
use handed::TestProgram;
use lanes::{LANES, Lanes, ProgramEnd, ProgramRun};
use outcome::StepOutcome;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use watch::Limits;

/// A check that cargo does by itself.
struct Step {
    name: &'static str,
    /// A tool it cannot do without, other than cargo and rustc.
    needs: Option<&'static str>,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    /// Further ones when tests that failed run again.
    again: &'static [&'static str],
    variant: Variant,
}

/// What is different from an ordinary build and run.
#[derive(Clone, Copy)]
enum Variant {
    Ordinary,
    /// Test programs are handed over.
    HandedOver,
    /// Models of the lock-free code run with `--cfg loom`, which changes every crate; they get a target folder of their
    /// own.
    Loom,
}

const FORMAT: Step = Step {
    name: "format",
    needs: Some("rustfmt"),
    cargo: &["fmt", "--all", "--check"],
    again: &[],
    variant: Variant::Ordinary,
};

/// All of the workspace, or the crates would be built again with other features.
const TESTS: Step = Step {
    name: "tests",
    needs: None,
    cargo: &["test", "--workspace", "--locked", "--no-fail-fast"],
    // The programs are not cargo's to run again.
    again: &["--doc"],
    variant: Variant::HandedOver,
};

const MODELS: Step = Step {
    name: "models",
    needs: None,
    cargo: &[
        "test",
        "--locked",
        "--package",
        "trunkline-shm",
        "--package",
        "trunkline-share",
        "--test",
        "loom_*",
    ],
    again: &[],
    variant: Variant::Loom,
};

/// The system tests: every daemon that they start has so many shards.
struct ShardStep {
    name: &'static str,
    shards: &'static str,
    /// Names of the tests that run, or parts of them: all of them if there is none.
    only: &'static [&'static str],
}

/// The programs of system tests.
const SYSTEM: &str = "all";

/// What another number of shards may change: who serves whom, over what, and what is left of it after a death or a
/// replacement. The whole list runs with two, where both what stays on a shard and what crosses is met.
const CHOSEN: &[&str] = &["topologies", "workers", "kills", "upgrade::"];

const SHARD_STEPS: [ShardStep; 3] = [
    ShardStep { name: "1 shard", shards: "1", only: CHOSEN },
    ShardStep { name: "2 shards", shards: "2", only: &[] },
    ShardStep { name: "3 shards", shards: "3", only: CHOSEN },
];

/// A line of the summary.
struct Verdict {
    name: &'static str,
    outcome: StepOutcome,
    /// Of programs that run beside others, the sum.
    took: Duration,
    counts: Counts,
    /// Tests that failed once and then passed.
    unsteady: Vec<String>,
}

/// So often a test that has failed must pass, alone, to count as unsteady.
const AGAIN: usize = 3;
/// More that fail at once are no accident.
const UNSTEADY_MAX: usize = 3;

/// Runs every check, also after one failed, and says whether all that ran passed. If test programs are named, they are
/// all that runs.
pub fn run(programs: &[&str]) -> bool {
    let began = Instant::now();
    let mut verdicts = Vec::new();
    if programs.is_empty() {
        verdicts.extend([tidy(), FORMAT.run()]);
    }
    verdicts.extend(tests(programs));
    println!("\n{}", summary(&verdicts, began.elapsed()));
    verdicts.iter().all(|verdict| !matches!(verdict.outcome, StepOutcome::Failed(_)))
}

/// The runner by which cargo hands over test programs ([`handed`]); `arguments` are those of this program.
pub fn hand_over(mut arguments: impl Iterator<Item = OsString>) -> Option<Result<(), String>> {
    (arguments.next()? == handed::TASK).then(|| handed::hand_over(arguments.collect()))
}

/// The tests, with one shard and with several, and the models.
fn tests(programs: &[&str]) -> Vec<Verdict> {
    let folder = target().join("suite");
    if let Err(error) = std::fs::create_dir_all(&folder) {
        println!("{}: {error}", folder.display());
    }
    let lanes = Lanes::new(folder.clone());
    let (mut of_tests, models) = std::thread::scope(|scope| {
        (0..LANES).for_each(|_| _ = scope.spawn(|| lanes.serve()));
        let chosen: Vec<&str> = programs.iter().flat_map(|program| ["--test", program]).collect();
        let of_tests = TESTS.run_with(&chosen, &|program| {
            runs_of(&program).into_iter().for_each(|run| lanes.add(run));
        });
        lanes.close();
        let models = programs.is_empty().then(|| MODELS.run());
        (of_tests, models)
    });
    let ended = lanes.into_ended();
    let mut verdicts: Vec<Verdict> =
        SHARD_STEPS.iter().map(|step| Verdict::new(step.name, Duration::ZERO)).collect();
    of_tests.add_up(&ended, &folder);
    verdicts.iter_mut().for_each(|verdict| verdict.add_up(&ended, &folder));
    verdicts.insert(0, of_tests);
    verdicts.extend(models);
    verdicts
}

/// How a program runs that cargo has built: once, or once for each number of shards if it is of system tests.
fn runs_of(program: &TestProgram) -> Vec<ProgramRun> {
    let run = |step, shards, only: &[&str]| {
        let only = only.iter().map(|&name| name.to_owned()).collect();
        ProgramRun { step, program: program.clone(), shards, only }
    };
    match program.name() {
        SYSTEM => SHARD_STEPS.iter().map(|step| run(step.name, Some(step.shards), step.only)).collect(),
        _ => vec![run(TESTS.name, None, &[])],
    }
}

fn tidy() -> Verdict {
    let began = Instant::now();
    println!("── tidy");
    let outcome = match Tree::load(&Tree::root()).map(|tree| rules::check(&tree)) {
        Ok(findings) if findings.is_empty() => StepOutcome::Passed,
        Ok(findings) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            StepOutcome::Failed(format!("{} to mend", findings.len()))
        }
        Err(error) => StepOutcome::Failed(error.to_string()),
    };
    Verdict { outcome, ..Verdict::new("tidy", began.elapsed()) }
}

impl Verdict {
    fn new(name: &'static str, took: Duration) -> Self {
        Self { name, outcome: StepOutcome::Passed, took, counts: Counts::default(), unsteady: Vec::new() }
    }

    /// Adds the programs of this step. What has failed runs again, now that nothing runs beside it.
    fn add_up(&mut self, ended: &[ProgramEnd], folder: &Path) {
        let of_this = || ended.iter().filter(|end| end.run.step == self.name);
        let failed: Vec<&ProgramEnd> =
            of_this().filter(|end| matches!(end.outcome, StepOutcome::Failed(_))).collect();
        let took: Duration = of_this().map(|end| end.took).sum();
        let mut counts = Counts::default();
        of_this().for_each(|end| counts.join(&end.counts));
        self.took += took;
        self.counts.join(&counts);
        if failed.is_empty() || matches!(self.outcome, StepOutcome::Failed(_)) {
            return;
        }
        let names = counts.to_try_again(UNSTEADY_MAX);
        match names.filter(|_| failed.iter().all(|end| passes_alone(end, folder))) {
            Some(names) => self.unsteady.extend(names),
            None => self.outcome = StepOutcome::Failed(failures(&failed)),
        }
    }
}

/// Which programs failed, and how.
fn failures(failed: &[&ProgramEnd]) -> String {
    let said = failed.iter().filter_map(|end| match &end.outcome {
        StepOutcome::Failed(why) => Some(format!("{why} of {}", end.run.program.label())),
        _ => None,
    });
    said.collect::<Vec<_>>().join(", ")
}

/// Runs only the tests of a program that failed. A machine that gives its processors away for seconds can make a test
/// of real processes fail that is right; what is wrong fails again when nothing runs beside it.
fn passes_alone(end: &ProgramEnd, folder: &Path) -> bool {
    let Some(names) = end.counts.to_try_again(UNSTEADY_MAX) else { return false };
    (0..AGAIN).all(|_| {
        println!("\n── {}: once more, alone: {}", end.run.step, names.join(", "));
        let only = std::iter::once("--exact".to_owned()).chain(names.iter().cloned()).collect();
        let (end, said) = ProgramRun { only, ..end.run.clone() }.run(folder);
        println!("{said}");
        end.outcome == StepOutcome::Passed && end.counts.passed >= names.len()
    })
}

impl Step {
    fn run(&self) -> Verdict {
        self.run_with(&[], &|_| {})
    }

    /// Runs it with these further arguments of cargo; test programs that are handed over go to `take`.
    fn run_with(&self, more: &[&str], take: &dyn Fn(TestProgram)) -> Verdict {
        let began = Instant::now();
        println!("\n── {}: cargo {} {}", self.name, self.cargo.join(" "), more.join(" "));
        let mut verdict = Verdict::new(self.name, Duration::ZERO);
        verdict.outcome = match self.needs.filter(|tool| !is_here(tool)) {
            Some(tool) => StepOutcome::Skipped(format!("{tool} is not installed")),
            None => {
                let mut command = self.command();
                command.args(more);
                watched(command, &mut verdict.counts, take)
            }
        };
        if matches!(verdict.outcome, StepOutcome::Failed(_))
            && let Some(names) = verdict.counts.to_try_again(UNSTEADY_MAX)
            && (0..AGAIN).all(|_| self.passes_alone(&names))
        {
            verdict.outcome = StepOutcome::Passed;
            verdict.unsteady = names;
        }
        verdict.took = began.elapsed();
        verdict
    }

    /// Runs only the tests with these names that cargo runs by itself.
    fn passes_alone(&self, names: &[String]) -> bool {
        println!("\n── {}: once more: {}", self.name, names.join(", "));
        let mut command = self.command();
        command.args(self.again).args(["--", "--exact"]).args(names);
        let mut counts = Counts::default();
        watched(command, &mut counts, &|_| {}) == StepOutcome::Passed && counts.passed >= names.len()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(Tree::root()).stdin(Stdio::null()).stdout(Stdio::piped());
        match self.variant {
            Variant::Ordinary => {}
            Variant::HandedOver => {
                command.args(["--config", &runner()]).stderr(Stdio::piped());
            }
            Variant::Loom => {
                let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
                command
                    .env("RUSTFLAGS", format!("{flags} --cfg loom"))
                    .env("CARGO_TARGET_DIR", target().join("loom"));
            }
        }
        command.args(self.cargo);
        command
    }
}

/// What tells cargo to hand test programs over.
fn runner() -> String {
    let here = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
    // Strings of Rust without control characters are strings of TOML.
    format!("target.'cfg(all())'.runner = [{:?}, {:?}]", here.display().to_string(), handed::TASK)
}

/// Runs it, prints what it prints and counts its tests; test programs that it hands over go to `take`.
fn watched(mut command: Command, counts: &mut Counts, take: &dyn Fn(TestProgram)) -> StepOutcome {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return StepOutcome::Failed(error.to_string()),
    };
    // Where programs are handed over cargo says that it runs each of them, and it does not.
    let errors = child.stderr.take().map(|errors| {
        std::thread::spawn(move || {
            let lines = BufReader::new(errors).lines().map_while(Result::ok);
            lines.filter(|line| !line.starts_with("     Running ")).for_each(|line| eprintln!("{line}"));
        })
    });
    let mut hear = |line: &str| match TestProgram::parse(line) {
        Some(program) => take(program),
        None => {
            counts.add(line);
            println!("{line}");
        }
    };
    let outcome = watch::watch(child, &mut hear, Limits::STEP);
    // What cargo has started may hold them for longer than it lives.
    if let Some(errors) = errors.filter(|_| outcome == StepOutcome::Passed) {
        let _ = errors.join();
    }
    outcome
}

fn summary(verdicts: &[Verdict], took: Duration) -> String {
    let mut out = String::new();
    for Verdict { name, outcome, took, counts, unsteady } in verdicts {
        let word = match outcome {
            StepOutcome::Passed => "passed".to_owned(),
            StepOutcome::Failed(why) => format!("FAILED: {why}"),
            StepOutcome::Skipped(why) => format!("skipped: {why}"),
        };
        let Counts { programs, passed, failed, .. } = counts;
        let failed = &(failed - unsteady.len().min(*failed));
        let tests = match (programs, failed) {
            (0, _) => String::new(),
            (_, 0) => format!(", {passed} tests in {programs} programs"),
            (_, failed) => format!(", {failed} of {} tests failed", passed + failed),
        };
        out.push_str(&format!("{name:8} {:>5} s  {word}{tests}\n", took.as_secs()));
        for test in unsteady {
            out.push_str(&format!(
                "                 UNSTEADY, to be mended: {test} failed, then passed {AGAIN} times\n"
            ));
        }
    }
    let failed = verdicts.iter().filter(|verdict| matches!(verdict.outcome, StepOutcome::Failed(_))).count();
    let word = if failed == 0 { "all is well".to_owned() } else { format!("{failed} failed") };
    out.push_str(&format!("{word}, in {} s: some of it side by side\n", took.as_secs()));
    out
}

pub(crate) fn is_here(tool: &str) -> bool {
    let asked = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Tree::root().join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    //! Shows how results are counted and what the summary says.
    use super::*;

    const TOOK: Duration = Duration::from_secs(5);

    #[test]
    fn a_step_passes_fails_or_is_skipped() {
        let step = |cargo, needs| Step { name: "step", needs, cargo, again: &[], variant: Variant::Ordinary };
        assert_eq!(step(&["--version"], None).run().outcome, StepOutcome::Passed);
        assert!(matches!(step(&["no-such-task"], None).run().outcome, StepOutcome::Failed(_)));
        let skipped = step(&["no-such-task"], Some("a-tool-nobody-has")).run().outcome;
        assert_eq!(skipped, StepOutcome::Skipped("a-tool-nobody-has is not installed".into()));
    }

    #[test]
    fn what_a_program_says_of_its_tests_is_known_when_it_has_ended() {
        let said = "running 1 test\\ntest a::b ... FAILED\\ntest result: FAILED. 0 passed; 1 failed;\\n";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("printf '{said}'; exit 101")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut counts = Counts::default();
        assert!(matches!(watched(command, &mut counts, &|_| {}), StepOutcome::Failed(_)));
        assert_eq!(counts.to_try_again(UNSTEADY_MAX), Some(vec!["a::b".to_owned()]));
    }

    fn handed_over(exe: &str) -> TestProgram {
        TestProgram::parse(&format!("\u{1f}handed over\u{1f}{exe}\u{1f}/bin")).unwrap()
    }

    #[test]
    fn the_system_tests_run_with_one_two_and_three_shards() {
        let steps =
            |exe| runs_of(&handed_over(exe)).iter().map(|run| (run.step, run.shards)).collect::<Vec<_>>();
        assert_eq!(steps("/x/deps/calls-0123"), [("tests", None)]);
        let all = [("1 shard", Some("1")), ("2 shards", Some("2")), ("3 shards", Some("3"))];
        assert_eq!(steps("/x/deps/all-0123"), all);
        let told = runs_of(&handed_over("/x/deps/all-0123"));
        assert!(told[1].only.is_empty());
        assert!([0, 2].iter().all(|&few| told[few].only.contains(&"workers".to_owned())));
    }

    /// What the step says if this test of this very program has failed.
    fn after_failure_of(test: &str) -> Verdict {
        let folder = std::env::temp_dir().join(format!("xtask-suite-{}-{}", std::process::id(), test.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut counts = Counts::default();
        for line in
            ["running 1 test", &format!("test {test} ... FAILED"), "test result: x. 0 passed; 1 failed;"]
        {
            counts.add(line);
        }
        let me = std::env::current_exe().unwrap();
        let run = runs_of(&handed_over(me.to_str().unwrap())).remove(0);
        let outcome = StepOutcome::Failed("exit status: 101".into());
        let mut verdict = Verdict::new(TESTS.name, Duration::ZERO);
        verdict.add_up(&[ProgramEnd { run, outcome, took: TOOK, counts }], &folder);
        std::fs::remove_dir(&folder).unwrap();
        verdict
    }

    #[test]
    fn what_passes_alone_is_unsteady_and_what_does_not_has_failed() {
        let quick = "suite::counts::tests::results_are_counted";
        let unsteady = after_failure_of(quick);
        assert_eq!((unsteady.outcome, unsteady.unsteady), (StepOutcome::Passed, vec![quick.to_owned()]));
        assert_eq!((unsteady.counts.programs, unsteady.took), (1, TOOK));
        let failed = after_failure_of("a_test_that_nobody_has");
        assert_eq!(failed.outcome, StepOutcome::Failed("exit status: 101 of bin xtask".into()));
        assert!(failed.unsteady.is_empty());
    }

    #[test]
    fn the_summary_names_what_was_skipped_what_failed_and_what_is_unsteady() {
        let counted = |failed: &str| {
            let mut counts = Counts::default();
            counts.add(&format!("test result: x. 5 passed; {failed} failed;"));
            counts
        };
        let verdict = |name, outcome, counts| {
            let took = Duration::from_secs(3);
            Verdict { name, outcome, took, counts, unsteady: Vec::new() }
        };
        let skipped =
            verdict("format", StepOutcome::Skipped("rustfmt is not installed".into()), Counts::default());
        let text = summary(&[skipped, verdict("tests", StepOutcome::Passed, counted("0"))], TOOK);
        assert_eq!(
            text,
            "format       3 s  skipped: rustfmt is not installed\n\
             tests        3 s  passed, 5 tests in 1 programs\n\
             all is well, in 5 s: some of it side by side\n"
        );
        let bad = verdict("tests", StepOutcome::Failed("exit status: 101".into()), counted("1"));
        assert!(summary(&[bad], TOOK).contains("FAILED: exit status: 101, 1 of 6 tests failed\n1 failed"));
        let mut unsteady = verdict("tests", StepOutcome::Passed, counted("1"));
        unsteady.unsteady.push("a::b".into());
        let text = summary(&[unsteady], TOOK);
        assert!(
            text.contains("UNSTEADY, to be mended: a::b failed, then passed 3 times\nall is well"),
            "{text}"
        );
    }
}
