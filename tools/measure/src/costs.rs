//! What processes cost, read from `/proc` by pid.

use crate::Failure;
use std::fs;

/// Unit of the times in `stat`: hundredths of a second on every Linux there is.
const TICK_NS: u64 = 10_000_000;

/// Processor time of `pids` so far, user and kernel, in nanoseconds, to 10 ms for each process.
///
/// Threads that have ended count, too: gRPC starts and ends some all the time.
///
/// # Errors
/// One of them is not there.
pub fn cpu_ns(pids: &[u32]) -> Result<u64, Failure> {
    pids.iter().map(|pid| Ok(ticks(&fs::read_to_string(format!("/proc/{pid}/stat"))?)? * TICK_NS)).sum()
}

/// Processor time of the living threads of `pids` so far in nanoseconds: the scheduler's own account, exact to the last
/// switch. For what is idle; a thread that ends takes its time along.
///
/// # Errors
/// One of them is not there.
pub fn idle_cpu_ns(pids: &[u32]) -> Result<u64, Failure> {
    let mut sum_ns = 0;
    for pid in pids {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread that ended since the folder was read.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
            let run_ns = text.split_whitespace().next().ok_or("an empty schedstat")?;
            sum_ns += run_ns.parse::<u64>()?;
        }
    }
    Ok(sum_ns)
}

/// What the machine's processors have done so far, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    busy_ns: u64,
    idle_ns: u64,
    /// Given to others by the host of a virtual machine.
    stolen_ns: u64,
}

impl Machine {
    /// Until now.
    ///
    /// # Errors
    /// What `/proc/stat` says is not understood.
    pub fn now() -> Result<Self, Failure> {
        Self::parse(&fs::read_to_string("/proc/stat")?)
    }

    fn parse(stat: &str) -> Result<Self, Failure> {
        let first = stat.lines().next().unwrap_or_default();
        let times: Result<Vec<u64>, _> = first.split_whitespace().skip(1).take(8).map(str::parse).collect();
        let [user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen] = times?[..] else {
            return Err("the machine's stat ends early".into());
        };
        Ok(Self {
            busy_ns: (user + nice + system + interrupts + soft_interrupts) * TICK_NS,
            idle_ns: (idle + waiting) * TICK_NS,
            stolen_ns: stolen * TICK_NS,
        })
    }

    /// Percent of the processors since `before` that the host gave to others, and that processes here took beside those
    /// whose time `own_ns` is. To a tick, as everything here.
    pub fn lost_since(self, before: Self, own_ns: u64) -> [f64; 2] {
        let since = |of: fn(&Self) -> u64| of(&self).saturating_sub(of(&before));
        let busy_ns = since(|machine| machine.busy_ns);
        let stolen_ns = since(|machine| machine.stolen_ns);
        let all_ns = busy_ns + stolen_ns + since(|machine| machine.idle_ns);
        [stolen_ns, busy_ns.saturating_sub(own_ns)].map(|ns| 100.0 * ns as f64 / all_ns.max(1) as f64)
    }
}

/// Proportional resident memory of `pids` in bytes: a page shared by n processes counts 1/n for each, so that the sum
/// over all that share it is what it takes.
///
/// # Errors
/// One of them is not there.
pub fn pss_bytes(pids: &[u32]) -> Result<u64, Failure> {
    let pss = |pid: &u32| field_kib(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?, "Pss:");
    Ok(pids.iter().map(pss).sum::<Result<u64, Failure>>()? * 1024)
}

fn field_kib(text: &str, name: &str) -> Result<u64, Failure> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("no {name} in smaps_rollup"))?.parse()?)
}

/// The 14th and 15th field of `stat`, `utime` and `stime`. The second is a name in parentheses and may hold anything.
fn ticks(stat: &str) -> Result<u64, Failure> {
    let (_, rest) = stat.rsplit_once(')').ok_or("stat without a name")?;
    let mut times = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    match (times.next(), times.next()) {
        (Some(user), Some(kernel)) => Ok(user? + kernel?),
        _ => Err("stat ends early".into()),
    }
}

#[cfg(test)]
mod tests {
    //! A field is found by its whole name, and a process sees its own work and memory.
    use super::*;

    #[test]
    fn fields_of_smaps() {
        let text = "00-ff ---p [rollup]\nRss:      1712 kB\nPss:       217 kB\nPss_Dirty: 116 kB\n";
        assert_eq!(field_kib(text, "Pss:").unwrap(), 217);
        assert!(field_kib(text, "Swap:").is_err());
    }

    #[test]
    fn times_of_stat() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 1 0 9";
        assert_eq!(ticks(stat).unwrap(), 300);
        assert!(ticks("7 (a) S 1 7").is_err());
        assert!(ticks("").is_err());
    }

    #[test]
    fn what_others_took() {
        let before = Machine::parse("cpu  10 0 5 100 0 0 0 2 0 0\ncpu0 ...").unwrap();
        let after = Machine::parse("cpu  40 0 15 140 10 5 5 12 0 0\n").unwrap();
        // 110 ticks: 50 busy, 50 idle or waiting, 10 stolen.
        assert_eq!(after.lost_since(before, 28 * TICK_NS), [1000.0 / 110.0, 2200.0 / 110.0]);
        assert_eq!(before.lost_since(before, 1), [0.0, 0.0]);
        assert!(Machine::parse("cpu 1 2 3").is_err() && Machine::now().is_ok());
    }

    #[test]
    fn this_process_costs_something() {
        let own = [std::process::id()];
        assert!(pss_bytes(&own).unwrap() > 0);
        assert!(cpu_ns(&own).is_ok() && idle_cpu_ns(&own).is_ok());
        assert!(cpu_ns(&[u32::MAX]).is_err() && idle_cpu_ns(&[u32::MAX]).is_err());
    }
}
