//! Watches a check: hears what it prints, and ends it if it hangs, saying what ran.
//!
//! A machine that does other things besides makes everything slow and nothing wrong, so a check is judged by the
//! processor time it takes: one that takes none waits for something that does not come, and one that takes much and
//! finishes no test goes in circles. Wall time alone ends a check after hours.

use super::outcome::StepOutcome;
use super::processes::{self, Process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// When a check counts as hanging.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// It neither says anything nor takes `idle_cpu` for so long.
    pub idle: Duration,
    /// Less than this is what programs take that wait: timers that go off, waiters that look again.
    pub idle_cpu: Duration,
    /// It takes so much processor time without saying anything: a cold build of everything takes a third of it.
    pub silent_cpu: Duration,
    /// It takes so long, whatever it does.
    pub wall: Duration,
    /// How often it is looked at.
    pub look: Duration,
}

/// How long an end is not seen at first, and later: most programs end at once.
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(100);

impl Limits {
    pub const STEP: Self = Self {
        idle: Duration::from_secs(10 * 60),
        idle_cpu: Duration::from_secs(2),
        silent_cpu: Duration::from_secs(60 * 60),
        wall: Duration::from_secs(6 * 60 * 60),
        look: Duration::from_secs(5),
    };
}

/// Gives every line that the child prints to `hear`, and ends it if it hangs.
pub fn watch(mut child: Child, hear: &mut dyn FnMut(&str), limits: Limits) -> StepOutcome {
    let lines = lines_of(&mut child);
    watch_lines(child, &lines, hear, limits)
}

fn watch_lines(
    mut child: Child,
    lines: &Receiver<String>,
    hear: &mut dyn FnMut(&str),
    limits: Limits,
) -> StepOutcome {
    let began = Instant::now();
    let mut progress = Progress::new(limits);
    let mut running = Running::default();
    loop {
        match lines.recv_timeout(limits.look) {
            Ok(line) => {
                running.hear(&line);
                hear(&line);
                progress.spoke(began.elapsed());
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Something it started may hold its output for longer than it lives.
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            break;
        }
        let family = processes::below(child.id());
        if let Some(why) = progress.look(began.elapsed(), processes::cpu(&family)) {
            return end(child, &family, &running, why);
        }
    }
    verdict(child.wait())
}

/// Ends the child if it hangs, which prints to this file.
pub fn watch_file(mut child: Child, file: &Path, limits: Limits) -> StepOutcome {
    let began = Instant::now();
    let mut progress = Progress::new(limits);
    let mut said_bytes = 0;
    let (mut looked, mut nap) = (began, NAP_MIN);
    loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return verdict(Ok(status)),
            Err(error) => return StepOutcome::Failed(error.to_string()),
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(NAP_MAX);
        if looked.elapsed() < limits.look {
            continue;
        }
        looked = Instant::now();
        let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
        if bytes != said_bytes {
            said_bytes = bytes;
            progress.spoke(began.elapsed());
        }
        let family = processes::below(child.id());
        if let Some(why) = progress.look(began.elapsed(), processes::cpu(&family)) {
            let mut running = Running::default();
            let said = std::fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&said).lines().for_each(|line| running.hear(line));
            return end(child, &family, &running, why);
        }
    }
}

fn verdict(ended: std::io::Result<ExitStatus>) -> StepOutcome {
    match ended {
        Ok(status) if status.success() => StepOutcome::Passed,
        Ok(status) => StepOutcome::Failed(status.to_string()),
        Err(error) => StepOutcome::Failed(error.to_string()),
    }
}

/// Lines of its output, from a thread of their own; they end with the output.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (send, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
    }
    lines
}

/// Ends a check that hangs, with all it has started, and says what ran.
fn end(mut child: Child, family: &[Process], running: &Running, why: String) -> StepOutcome {
    println!("── {why}; these ran, and are ended now:");
    for test in &running.slow {
        println!("   test {test}, for over a minute");
    }
    for process in family {
        println!("   {}", process.describe());
    }
    let mut programs: BTreeSet<String> = family.iter().filter_map(Process::test_program).collect();
    if programs.is_empty() {
        programs.extend(family.last().map(Process::describe));
    }
    let programs: Vec<String> = programs.into_iter().collect();
    let mut said = format!("{why} in {}", programs.join(", "));
    if !running.slow.is_empty() {
        let tests: Vec<&str> = running.slow.iter().map(String::as_str).collect();
        said.push_str(&format!(", test {}", tests.join(", ")));
    }
    processes::kill(family);
    // Whether it could be killed or not, the verdict is the same.
    let _ = child.kill();
    let _ = child.wait();
    StepOutcome::Failed(said)
}

/// Tests that have begun and not ended, as far as libtest says so: after a minute.
#[derive(Debug, Default)]
struct Running {
    slow: BTreeSet<String>,
}

impl Running {
    fn hear(&mut self, line: &str) {
        if line.starts_with("test result: ") {
            self.slow.clear();
            return;
        }
        let Some(rest) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = rest.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        } else if let Some((name, _)) = rest.split_once(" ... ") {
            self.slow.remove(name);
        }
    }
}

/// Whether a check goes on: the clock and the processor time are arguments.
#[derive(Debug)]
struct Progress {
    limits: Limits,
    cpu: Duration,
    /// Since when it has neither said anything nor taken processor time, and what it had taken by then.
    quiet: (Duration, Duration),
    /// What it had taken when it last said something.
    spoke: Duration,
}

impl Progress {
    fn new(limits: Limits) -> Self {
        let zero = Duration::ZERO;
        Self { limits, cpu: zero, quiet: (zero, zero), spoke: zero }
    }

    /// It has printed a line.
    fn spoke(&mut self, now: Duration) {
        self.quiet = (now, self.cpu);
        self.spoke = self.cpu;
    }

    /// It has taken so much processor time by now; why it counts as hanging, if it does.
    fn look(&mut self, now: Duration, cpu: Duration) -> Option<String> {
        // Less than before: a process has ended whose parent did not wait for it.
        self.spoke = self.spoke.saturating_sub(self.cpu.saturating_sub(cpu));
        self.cpu = cpu;
        if cpu.abs_diff(self.quiet.1) >= self.limits.idle_cpu {
            self.quiet = (now, cpu);
        }
        let minutes = |time: Duration| time.as_secs() / 60;
        if now.saturating_sub(self.quiet.0) >= self.limits.idle {
            return Some(format!("nothing has moved for {} minutes", minutes(self.limits.idle)));
        }
        if cpu.saturating_sub(self.spoke) >= self.limits.silent_cpu {
            return Some(format!(
                "no test has ended in {} minutes of processor time",
                minutes(self.limits.silent_cpu)
            ));
        }
        (now >= self.limits.wall).then(|| format!("no end after {} minutes", minutes(self.limits.wall)))
    }
}

#[cfg(test)]
mod tests {
    //! Shows when a check counts as hanging, and that it is said what hangs.
    use super::*;
    use std::process::{Command, Stdio};

    const LIMITS: Limits = Limits::STEP;

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn a_slow_machine_is_no_hang() {
        let mut progress = Progress::new(LIMITS);
        // One hundredth of a processor, for five hours.
        for minute in 0..300 {
            let cpu = Duration::from_millis(600 * minute);
            assert_eq!(progress.look(minutes(minute), cpu), None, "minute {minute}");
        }
    }

    #[test]
    fn who_takes_no_processor_time_hangs() {
        let mut progress = Progress::new(LIMITS);
        assert_eq!(progress.look(minutes(1), minutes(1)), None);
        // Timers go off.
        assert_eq!(progress.look(minutes(10), minutes(1) + Duration::from_secs(1)), None);
        let why = progress.look(minutes(11), minutes(1) + Duration::from_secs(1));
        assert_eq!(why.as_deref(), Some("nothing has moved for 10 minutes"));
    }

    #[test]
    fn who_says_something_does_not_hang() {
        let mut progress = Progress::new(LIMITS);
        for round in 1..30 {
            assert_eq!(progress.look(minutes(9 * round), minutes(59 * round)), None, "round {round}");
            progress.spoke(minutes(9 * round));
        }
    }

    #[test]
    fn who_goes_in_circles_hangs() {
        let mut progress = Progress::new(LIMITS);
        assert_eq!(progress.look(minutes(30), minutes(59)), None);
        let why = progress.look(minutes(31), minutes(60));
        assert_eq!(why.as_deref(), Some("no test has ended in 60 minutes of processor time"));
    }

    #[test]
    fn time_that_went_with_a_process_is_not_taken_twice() {
        let mut progress = Progress::new(LIMITS);
        assert_eq!(progress.look(minutes(20), minutes(50)), None);
        progress.spoke(minutes(20));
        assert_eq!(progress.look(minutes(21), minutes(10)), None);
        assert_eq!(progress.look(minutes(50), minutes(69)), None);
        assert!(progress.look(minutes(51), minutes(70)).is_some());
    }

    #[test]
    fn no_check_goes_on_for_ever() {
        let mut progress = Progress::new(LIMITS);
        for minute in 1..360 {
            assert_eq!(progress.look(minutes(minute), minutes(minute)), None);
            progress.spoke(minutes(minute));
        }
        let why = progress.look(minutes(360), minutes(360));
        assert_eq!(why.as_deref(), Some("no end after 360 minutes"));
    }

    #[test]
    fn a_slow_test_is_running_until_it_has_ended() {
        let mut running = Running::default();
        running.hear("test a::b has been running for over 60 seconds");
        running.hear("test c has been running for over 60 seconds");
        running.hear("test d ... ok");
        running.hear("test a::b ... FAILED");
        assert_eq!(running.slow, BTreeSet::from(["c".to_owned()]));
        running.hear("test result: ok. 24 passed; 0 failed");
        assert_eq!(running.slow, BTreeSet::new());
    }

    #[test]
    fn what_hangs_is_named_and_ended() {
        // It says so when it runs: until then it may have no command line that could be told.
        let mut waiting = Command::new("sh");
        waiting.args(["-c", "echo up; read never; true"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = waiting.spawn().unwrap();
        let said = lines_of(&mut child);
        assert_eq!(said.recv().unwrap(), "up");
        let (send, lines) = channel();
        send.send("test a::b has been running for over 60 seconds".to_owned()).unwrap();
        // The first look that finds no line finds it hanging.
        let limits = Limits { idle: Duration::ZERO, look: Duration::from_millis(1), ..LIMITS };
        let StepOutcome::Failed(why) = watch_lines(child, &lines, &mut |_| {}, limits) else {
            panic!("it has not ended by itself");
        };
        assert!(why.starts_with("nothing has moved for 0 minutes in process "), "{why}");
        assert!(why.contains(" sh -c echo up"), "{why}");
        assert!(why.ends_with(", test a::b"), "{why}");
    }

    #[test]
    fn what_prints_to_a_file_is_judged_by_it() {
        let file = std::env::temp_dir().join(format!("xtask-watch-{}", std::process::id()));
        std::fs::write(&file, "test a::b has been running for over 60 seconds\n").unwrap();
        let mut waiting = Command::new("sh");
        waiting.args(["-c", "read never; true"]).stdin(Stdio::piped());
        let limits = Limits { idle: Duration::ZERO, look: Duration::ZERO, ..LIMITS };
        let StepOutcome::Failed(why) = watch_file(waiting.spawn().unwrap(), &file, limits) else {
            panic!("it has not ended by itself");
        };
        std::fs::remove_file(&file).unwrap();
        assert!(why.starts_with("nothing has moved for 0 minutes") && why.ends_with(", test a::b"), "{why}");
        let quick = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        assert_eq!(watch_file(quick, &file, LIMITS), StepOutcome::Passed);
        let failing = Command::new("false").stdin(Stdio::null()).spawn().unwrap();
        assert_eq!(watch_file(failing, &file, LIMITS), StepOutcome::Failed("exit status: 1".to_owned()));
    }

    #[test]
    fn who_ends_while_others_hold_its_output_has_ended() {
        let mut quick = Command::new("true");
        let child = quick.stdin(Stdio::null()).spawn().unwrap();
        let (_held, lines) = channel();
        let limits = Limits { look: Duration::from_millis(1), ..LIMITS };
        assert_eq!(watch_lines(child, &lines, &mut |_| {}, limits), StepOutcome::Passed);
    }
}
