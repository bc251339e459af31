//! `cargo xtask test`: every check there is, in order, with a summary at the end.
//!
//! A Rust tool chain is all it needs. Checks that need another tool are skipped without it, and the summary says so.

mod processes;
mod watch;

use crate::{Tree, rules};
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
    /// Models of the lock-free code run with `--cfg loom`, which changes every crate; they get a target folder of their
    /// own.
    loom: bool,
}

const STEPS: [Step; 3] = [
    Step { name: "format", needs: Some("rustfmt"), cargo: &["fmt", "--all", "--check"], loom: false },
    Step {
        name: "tests",
        needs: None,
        cargo: &["test", "--workspace", "--locked", "--no-fail-fast"],
        loom: false,
    },
    Step {
        name: "models",
        needs: None,
        cargo: &["test", "--locked", "--package", "trunkline-shm", "--test", "loom_*"],
        loom: true,
    },
];

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A line of the summary.
struct Verdict {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    counts: Counts,
}

/// What test programs said of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    programs: usize,
    passed: usize,
    failed: usize,
}

/// Runs every check, also after one failed, and says whether all that ran passed.
pub fn run() -> bool {
    let mut verdicts = vec![tidy()];
    verdicts.extend(STEPS.iter().map(Step::run));
    println!("\n{}", summary(&verdicts));
    verdicts.iter().all(|verdict| !matches!(verdict.outcome, Outcome::Failed(_)))
}

fn tidy() -> Verdict {
    let began = Instant::now();
    println!("── tidy");
    let outcome = match Tree::load(&Tree::root()).map(|tree| rules::check(&tree)) {
        Ok(findings) if findings.is_empty() => Outcome::Passed,
        Ok(findings) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            Outcome::Failed(format!("{} to mend", findings.len()))
        }
        Err(error) => Outcome::Failed(error.to_string()),
    };
    Verdict { name: "tidy", outcome, took: began.elapsed(), counts: Counts::default() }
}

impl Step {
    fn run(&self) -> Verdict {
        let began = Instant::now();
        println!("\n── {}: cargo {}", self.name, self.cargo.join(" "));
        let mut counts = Counts::default();
        let outcome = match self.needs.filter(|tool| !is_here(tool)) {
            Some(tool) => Outcome::Skipped(format!("{tool} is not installed")),
            None => match self.command().spawn() {
                Ok(child) => watch::watch(child, &mut counts, Limits::STEP),
                Err(error) => Outcome::Failed(error.to_string()),
            },
        };
        Verdict { name: self.name, outcome, took: began.elapsed(), counts }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(self.cargo).current_dir(Tree::root()).stdin(Stdio::null()).stdout(Stdio::piped());
        if self.loom {
            let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
            command
                .env("RUSTFLAGS", format!("{flags} --cfg loom"))
                .env("CARGO_TARGET_DIR", target().join("loom"));
        }
        command
    }
}

impl Counts {
    /// Reads `test result: ok. 24 passed; 0 failed; …`; other lines count for nothing.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let part = result.split(['.', ';']).find(|part| part.trim_end().ends_with(word))?;
            part.split_whitespace().next()?.parse::<usize>().ok()
        };
        self.programs += 1;
        self.passed += number(" passed").unwrap_or(0);
        self.failed += number(" failed").unwrap_or(0);
    }
}

fn summary(verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    for Verdict { name, outcome, took, counts } in verdicts {
        let word = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        let Counts { programs, passed, failed } = counts;
        let tests = match (programs, failed) {
            (0, _) => String::new(),
            (_, 0) => format!(", {passed} tests in {programs} programs"),
            (_, failed) => format!(", {failed} of {} tests failed", passed + failed),
        };
        out.push_str(&format!("{name:8} {:>5} s  {word}{tests}\n", took.as_secs()));
    }
    let failed = verdicts.iter().filter(|verdict| matches!(verdict.outcome, Outcome::Failed(_))).count();
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
        let step = |cargo, needs| Step { name: "step", needs, cargo, loom: false };
        assert_eq!(step(&["--version"], None).run().outcome, Outcome::Passed);
        assert!(matches!(step(&["no-such-task"], None).run().outcome, Outcome::Failed(_)));
        let skipped = step(&["no-such-task"], Some("a-tool-nobody-has")).run().outcome;
        assert_eq!(skipped, Outcome::Skipped("a-tool-nobody-has is not installed".into()));
    }

    #[test]
    fn results_are_counted() {
        let mut counts = Counts::default();
        counts.add("running 2 tests");
        counts.add(
            "test result: ok. 24 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s",
        );
        counts.add("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(counts, Counts { programs: 2, passed: 27, failed: 1 });
    }

    #[test]
    fn the_summary_names_what_was_skipped_and_what_failed() {
        let verdict = |name, outcome, counts| Verdict { name, outcome, took: Duration::from_secs(3), counts };
        let none = Counts::default();
        let good = Counts { programs: 2, passed: 5, failed: 0 };
        let skipped = verdict("format", Outcome::Skipped("rustfmt is not installed".into()), none);
        let text = summary(&[skipped, verdict("tests", Outcome::Passed, good)]);
        assert_eq!(
            text,
            "format       3 s  skipped: rustfmt is not installed\n\
             tests        3 s  passed, 5 tests in 2 programs\nall is well\n"
        );
        let bad = verdict("tests", Outcome::Failed("exit status: 101".into()), Counts { failed: 1, ..good });
        assert!(summary(&[bad]).contains("FAILED: exit status: 101, 1 of 6 tests failed\n1 failed"));
    }
}
