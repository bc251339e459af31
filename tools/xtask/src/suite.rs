//! `cargo xtask test`: every check there is, in order, with a summary at the end.
//!
//! A Rust tool chain is all it needs. Checks that need another tool are skipped without it, and the summary says so.

mod counts;
mod outcome;
mod processes;
mod watch;

use crate::{Tree, rules};
use counts::Counts;
use outcome::StepOutcome;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use watch::Limits;

/// One check.
struct Step {
    name: &'static str,
    /// A tool it cannot do without, other than cargo and rustc.
    needs: Option<&'static str>,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    /// Names of the tests that run, or parts of them: all of them if there is none.
    only: &'static [&'static str],
    variant: Variant,
}

/// What is different from an ordinary build and run.
#[derive(Clone, Copy)]
enum Variant {
    Ordinary,
    /// Models of the lock-free code run with `--cfg loom`, which changes every crate; they get a target folder of their
    /// own.
    Loom,
    /// Every daemon that a system test starts has so many shards.
    Shards(&'static str),
}

/// The system tests, as the step of all tests has built them: of the whole workspace, or the crates they use would be
/// built again with other features.
const SYSTEM: &[&str] = &["test", "--workspace", "--locked", "--no-fail-fast", "--test", "all"];

const STEPS: [Step; 5] = [
    Step {
        name: "format",
        needs: Some("rustfmt"),
        cargo: &["fmt", "--all", "--check"],
        only: &[],
        variant: Variant::Ordinary,
    },
    Step {
        name: "tests",
        needs: None,
        cargo: &["test", "--workspace", "--locked", "--no-fail-fast"],
        only: &[],
        variant: Variant::Ordinary,
    },
    Step { name: "2 shards", needs: None, cargo: SYSTEM, only: &[], variant: Variant::Shards("2") },
    Step {
        name: "3 shards",
        needs: None,
        cargo: SYSTEM,
        only: &["topologies", "workers", "kills", "upgrade::"],
        variant: Variant::Shards("3"),
    },
    Step {
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
        only: &[],
        variant: Variant::Loom,
    },
];

/// A line of the summary.
struct Verdict {
    name: &'static str,
    outcome: StepOutcome,
    took: Duration,
    counts: Counts,
    /// Tests that failed once and then passed.
    unsteady: Vec<String>,
}

/// So often a test that has failed must pass, alone, to count as unsteady.
const AGAIN: usize = 3;
/// More that fail at once are no accident.
const UNSTEADY_MAX: usize = 3;

/// Runs every check, also after one failed, and says whether all that ran passed.
pub fn run() -> bool {
    let mut verdicts = vec![tidy()];
    verdicts.extend(STEPS.iter().map(Step::run));
    println!("\n{}", summary(&verdicts));
    verdicts.iter().all(|verdict| !matches!(verdict.outcome, StepOutcome::Failed(_)))
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
    Verdict { name: "tidy", outcome, took: began.elapsed(), counts: Counts::default(), unsteady: Vec::new() }
}

impl Step {
    fn run(&self) -> Verdict {
        let began = Instant::now();
        println!("\n── {}: cargo {}", self.name, self.cargo.join(" "));
        let mut counts = Counts::default();
        let mut unsteady = Vec::new();
        let mut outcome = match self.needs.filter(|tool| !is_here(tool)) {
            Some(tool) => StepOutcome::Skipped(format!("{tool} is not installed")),
            None => {
                let mut command = self.command();
                if !self.only.is_empty() {
                    command.arg("--").args(self.only);
                }
                watched(command, &mut counts)
            }
        };
        if matches!(outcome, StepOutcome::Failed(_))
            && let Some(names) = counts.to_try_again(UNSTEADY_MAX)
            && (0..AGAIN).all(|_| self.passes_alone(&names))
        {
            outcome = StepOutcome::Passed;
            unsteady = names;
        }
        Verdict { name: self.name, outcome, took: began.elapsed(), counts, unsteady }
    }

    /// Runs only the tests with these names. A machine that gives its processors away for seconds can make a test of
    /// real processes fail that is right; what is wrong fails again when nothing runs beside it.
    fn passes_alone(&self, names: &[String]) -> bool {
        println!("\n── {}: once more, alone: {}", self.name, names.join(", "));
        let mut command = self.command();
        command.args(["--", "--exact"]).args(names);
        let mut counts = Counts::default();
        watched(command, &mut counts) == StepOutcome::Passed && counts.passed >= names.len()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(self.cargo).current_dir(Tree::root()).stdin(Stdio::null()).stdout(Stdio::piped());
        match self.variant {
            Variant::Ordinary => {}
            Variant::Loom => {
                let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
                command
                    .env("RUSTFLAGS", format!("{flags} --cfg loom"))
                    .env("CARGO_TARGET_DIR", target().join("loom"));
            }
            Variant::Shards(count) => _ = command.env("TRUNKLINE_TEST_SHARDS", count),
        }
        command
    }
}

fn watched(mut command: Command, counts: &mut Counts) -> StepOutcome {
    match command.spawn() {
        Ok(child) => watch::watch(child, counts, Limits::STEP),
        Err(error) => StepOutcome::Failed(error.to_string()),
    }
}

fn summary(verdicts: &[Verdict]) -> String {
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
    out.push_str(&if failed == 0 { "all is well\n".to_owned() } else { format!("{failed} failed\n") });
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

    #[test]
    fn a_step_passes_fails_or_is_skipped() {
        let step = |cargo, needs| Step { name: "step", needs, cargo, only: &[], variant: Variant::Ordinary };
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
        assert!(matches!(watched(command, &mut counts), StepOutcome::Failed(_)));
        assert_eq!(counts.to_try_again(UNSTEADY_MAX), Some(vec!["a::b".to_owned()]));
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
        let text = summary(&[skipped, verdict("tests", StepOutcome::Passed, counted("0"))]);
        assert_eq!(
            text,
            "format       3 s  skipped: rustfmt is not installed\n\
             tests        3 s  passed, 5 tests in 1 programs\nall is well\n"
        );
        let bad = verdict("tests", StepOutcome::Failed("exit status: 101".into()), counted("1"));
        assert!(summary(&[bad]).contains("FAILED: exit status: 101, 1 of 6 tests failed\n1 failed"));
        let mut unsteady = verdict("tests", StepOutcome::Passed, counted("1"));
        unsteady.unsteady.push("a::b".into());
        let text = summary(&[unsteady]);
        assert!(
            text.contains("UNSTEADY, to be mended: a::b failed, then passed 3 times\nall is well"),
            "{text}"
        );
    }
}
