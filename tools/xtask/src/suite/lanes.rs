//! Runs test programs two at a time: many of them wait most of their time.
//!
//! The longest go first, so that none of them is left for the end. A program never runs twice at a time: one that uses
//! what there is once on a host has it for itself. What a program prints is printed as a whole when it has ended.

use super::counts::Counts;
use super::handed::TestProgram;
use super::outcome::StepOutcome;
use super::watch::{self, Limits};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Programs that run at a time. On two processors a third has each of them wait for a processor, not for its tests.
pub const LANES: usize = 2;

/// Programs that take more than ten seconds, by [`TestProgram::label`], the longest first: two to three minutes for
/// the system tests. What is left out or changes here costs time, and no test.
const LONG: [&str; 19] = [
    "system all",
    "engine random",
    "c programs",
    "engine sharded",
    "engine integration",
    "tonic exam",
    "hostile all",
    "daemon grpc",
    "cli integration",
    "engine chains",
    "cli driven",
    "r2p2 integration",
    "sim trunkline_sim",
    "trunkline integration",
    "daemon tax",
    "fuzz bounded",
    "engine histories",
    "cli verbs",
    "otlp integration",
];

/// A run of a program.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// The step it belongs to.
    pub step: &'static str,
    pub program: TestProgram,
    /// So many shards has every daemon that it starts, if it is of system tests.
    pub shards: Option<&'static str>,
    /// Arguments: names of the tests that run, or parts of them. All of them if there is none.
    pub only: Vec<String>,
}

/// How a run has ended.
#[derive(Debug)]
pub struct ProgramEnd {
    pub run: ProgramRun,
    pub outcome: StepOutcome,
    pub took: Duration,
    pub counts: Counts,
}

/// Programs that wait, run and have ended.
pub struct Lanes {
    /// Where what the programs print is kept.
    folder: PathBuf,
    state: Mutex<State>,
    /// Something has come, has ended, or nothing comes any more.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<ProgramRun>,
    running: BTreeSet<PathBuf>,
    ended: Vec<ProgramEnd>,
    /// So many have come.
    came: usize,
    is_closed: bool,
}

impl Lanes {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn add(&self, run: ProgramRun) {
        let mut state = self.state();
        state.waiting.push(run);
        state.came += 1;
        self.changed.notify_all();
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// One lane: runs programs until there are no more.
    pub fn serve(&self) {
        while let Some(run) = self.take() {
            let (end, said) = run.run(&self.folder);
            let mut state = self.state();
            state.running.remove(&end.run.program.exe);
            let word = match &end.outcome {
                StepOutcome::Failed(why) => format!("FAILED: {why}"),
                _ => "passed".to_owned(),
            };
            let (number, came) = (state.ended.len() + 1, state.came);
            let (step, label) = (end.run.step, end.run.program.label());
            println!("\n── {step} [{number}/{came}] {label}: {word}, {} s\n{said}", end.took.as_secs());
            state.ended.push(end);
            self.changed.notify_all();
        }
    }

    /// What has ended.
    pub fn into_ended(self) -> Vec<ProgramEnd> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Waits for the longest that may run now; `None` if there will be none.
    fn take(&self) -> Option<ProgramRun> {
        let mut state = self.state();
        loop {
            if let Some(run) = state.next() {
                state.running.insert(run.program.exe.clone());
                return Some(run);
            }
            if state.is_closed && state.waiting.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<ProgramRun> {
        let may_run = |run: &ProgramRun| !self.running.contains(&run.program.exe);
        let rank = |run: &ProgramRun| {
            let label = run.program.label();
            LONG.iter().position(|long| *long == label).unwrap_or(LONG.len())
        };
        let waiting = self.waiting.iter().enumerate().filter(|(_, run)| may_run(run));
        let (index, _) = waiting.min_by_key(|(_, run)| rank(run))?;
        Some(self.waiting.remove(index))
    }
}

impl ProgramRun {
    /// Runs it to its end, and gives what it has said.
    pub fn run(self, folder: &Path) -> (ProgramEnd, String) {
        let began = Instant::now();
        let mut counts = Counts::default();
        let file = self.exe_name();
        let (outcome, said) = match self.watched(&folder.join(file)) {
            Ok((outcome, said)) => (outcome, said),
            Err(error) => (StepOutcome::Failed(error.to_string()), String::new()),
        };
        said.lines().for_each(|line| counts.add(line));
        (ProgramEnd { run: self, outcome, took: began.elapsed(), counts }, said)
    }

    fn watched(&self, file: &Path) -> std::io::Result<(StepOutcome, String)> {
        // A file and not a pipe: what a program leaves behind may hold it for as long as it likes.
        let output = File::options().create(true).truncate(true).write(true).open(file)?;
        drop(output);
        let output = File::options().append(true).open(file)?;
        let mut command = self.program.command();
        if let Some(shards) = self.shards {
            command.env("TRUNKLINE_TEST_SHARDS", shards);
        }
        command.args(&self.only).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let outcome = watch::watch_file(command.spawn()?, file, Limits::STEP);
        let said = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
        std::fs::remove_file(file)?;
        Ok((outcome, said))
    }

    /// A name that no other run has at the same time.
    fn exe_name(&self) -> PathBuf {
        self.program.exe.with_extension("said").file_name().unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    //! Shows in which order programs run, that none runs twice at a time, and that each says all it says.
    use super::*;

    fn run(folder: &str, name: &str, step: &'static str) -> ProgramRun {
        let line = format!("\u{1f}handed over\u{1f}/x/{folder}/{name}-0123\u{1f}/x/{folder}");
        let program = TestProgram::parse(&line).unwrap();
        ProgramRun { step, program, shards: None, only: Vec::new() }
    }

    #[test]
    fn the_longest_go_first_and_none_twice_at_a_time() {
        let lanes = Lanes::new(PathBuf::new());
        for (folder, name) in [("call", "ends"), ("hostile", "all"), ("system", "all")] {
            lanes.add(run(folder, name, "tests"));
        }
        lanes.add(run("system", "all", "2 shards"));
        lanes.close();
        let next = || lanes.take().map(|run| format!("{}, {}", run.program.label(), run.step));
        assert_eq!(next().as_deref(), Some("system all, tests"));
        assert_eq!(next().as_deref(), Some("hostile all, tests"));
        assert_eq!(next().as_deref(), Some("call ends, tests"), "the system tests run");
        lanes.state().running.clear();
        assert_eq!(next().as_deref(), Some("system all, 2 shards"));
        assert_eq!(next(), None);
    }

    #[test]
    fn programs_run_to_their_end_and_say_all_they_say() {
        let folder = std::env::temp_dir().join(format!("xtask-lanes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let lanes = Lanes::new(folder.clone());
        for (exe, arguments) in
            [("/bin/echo", vec!["test result: ok. 5 passed; 0 failed;"]), ("/bin/false", vec![])]
        {
            let line = format!("\u{1f}handed over\u{1f}{exe}\u{1f}/");
            let program = TestProgram::parse(&line).unwrap();
            let only = arguments.into_iter().map(str::to_owned).collect();
            lanes.add(ProgramRun { step: "tests", program, shards: Some("2"), only });
        }
        lanes.close();
        std::thread::scope(|scope| (0..LANES).for_each(|_| _ = scope.spawn(|| lanes.serve())));
        let mut ended = lanes.into_ended();
        ended.sort_by_key(|end| end.run.program.exe.clone());
        assert_eq!(ended.len(), 2);
        assert_eq!((&ended[0].outcome, ended[0].counts.passed), (&StepOutcome::Passed, 5));
        assert!(matches!(ended[1].outcome, StepOutcome::Failed(_)));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "what was said is kept nowhere");
        std::fs::remove_dir(&folder).unwrap();
    }
}
