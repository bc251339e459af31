//! What the processes of applications did meanwhile (proc(5) pid/stat).

use std::collections::BTreeMap;

/// Processor time of the applications attached to a daemon, as far as it was seen: from the first look at a process to
/// the last.
#[derive(Debug, Default)]
pub struct ApplicationTimes {
    /// By process and when it started.
    seen: BTreeMap<(u32, u64), Looks>,
}

/// Clock ticks of a process at the first look and at the last, and whether there was one since they were last taken.
#[derive(Clone, Copy, Debug)]
struct Looks {
    first: u64,
    last: u64,
    is_new: bool,
}

impl ApplicationTimes {
    /// Looks at the processes of these applications, by the names that a daemon lists them with: `name[process]`.
    /// Neither at the daemon's nor at this one. False if this one is not among them: then the numbers are those of
    /// another place, a container or a host, and none was looked at.
    pub fn look<'n>(&mut self, applications: impl Iterator<Item = &'n str>, daemon: u32) -> bool {
        let mut processes: Vec<u32> = applications.filter_map(process).collect();
        processes.sort_unstable();
        processes.dedup();
        let own = std::process::id();
        if !processes.contains(&own) {
            return false;
        }
        for process in processes.into_iter().filter(|process| ![own, daemon].contains(process)) {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            if let Some((started, ticks)) = ticks(&stat) {
                self.note(process, started, ticks);
            }
        }
        true
    }

    fn note(&mut self, process: u32, started: u64, ticks: u64) {
        let looks =
            self.seen.entry((process, started)).or_insert(Looks { first: ticks, last: ticks, is_new: true });
        (looks.last, looks.is_new) = (ticks, true);
    }

    /// What was seen until now, in seconds. The next time begins here.
    pub fn take_seconds(&mut self) -> f64 {
        let ticks: u64 = self.seen.values().map(|looks| looks.last.saturating_sub(looks.first)).sum();
        // Who was not there all the time has ended.
        self.seen.retain(|_, looks| looks.is_new);
        self.seen.values_mut().for_each(|looks| (looks.first, looks.is_new) = (looks.last, false));
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// The process in a name.
fn process(name: &str) -> Option<u32> {
    name.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
}

/// When a process started, and what it and its threads have taken, in clock ticks. The name of a program may have
/// parentheses of its own.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let word = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some((word(19)?, word(11)?.checked_add(word(12)?)?))
}

#[cfg(test)]
mod tests {
    //! Shows whose time is counted, and from when to when.
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let stat = "7 (a ) b(c)) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0 555 1 2 3";
        assert_eq!(ticks(stat), Some((555, 42)));
        assert_eq!((ticks(""), ticks("7 (a) S 1 2")), (None, None));
        let names = ["greeter[17]", "grpc services[2]", "a[b][3]", "x", "y[]", "z[99999999999]"];
        assert_eq!(names.map(process), [Some(17), Some(2), Some(3), None, None, None]);
    }

    #[test]
    fn time_is_from_the_first_look_to_the_last() {
        let mut times = ApplicationTimes::default();
        let second = rustix::param::clock_ticks_per_second();
        times.note(1, 5, 10 * second);
        times.note(1, 5, 12 * second);
        // Another process of the same number.
        times.note(1, 9, 100 * second);
        times.note(1, 9, 101 * second);
        assert_eq!(times.take_seconds(), 3.0);
        times.note(1, 9, 101 * second);
        assert_eq!(
            (times.take_seconds(), times.seen.len()),
            (0.0, 1),
            "one has ended, the other was at rest"
        );
        times.note(1, 9, 104 * second);
        assert_eq!(times.take_seconds(), 3.0);
    }

    #[test]
    fn numbers_of_another_place_are_not_looked_at() {
        let own = format!("me[{}]", std::process::id());
        let parent = format!("it[{}]", std::os::unix::process::parent_id());
        let mut times = ApplicationTimes::default();
        assert!(!times.look([parent.as_str()].into_iter(), 1));
        assert!(times.seen.is_empty());
        assert!(times.look([own.as_str(), parent.as_str()].into_iter(), 1));
        assert_eq!(times.seen.len(), 1);
    }
}
