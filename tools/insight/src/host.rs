//! What the host did meanwhile: processors (proc(5) stat), and tasks that waited (the kernel's pressure stalls).

use std::collections::BTreeMap;
use std::time::Instant;

/// What tasks wait for, by the kernel's name of it.
const PRESSURES: [&str; 3] = ["cpu", "memory", "io"];

/// Counters of the host at a moment. What the kernel does not tell is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostReading {
    at: Option<Instant>,
    processors: Option<Processors>,
    /// Microseconds in which some task waited, by [`PRESSURES`].
    waited_us: [Option<u64>; 3],
}

/// What all processors did since the host started, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processors {
    busy: u64,
    all: u64,
}

/// Whether a daemon with this boot id runs on this machine; older daemons do not say.
pub fn is_this_machine(boot_id: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot_id.is_empty() || own.trim() == boot_id
}

impl HostReading {
    /// Reads them now.
    pub fn take() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            at: Some(Instant::now()),
            processors: Processors::of(&read("/proc/stat")),
            waited_us: PRESSURES.map(|name| waited_us(&read(&format!("/proc/pressure/{name}")))),
        }
    }

    /// Variables of the time since an earlier reading.
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        if let Some((before, now)) = before.processors.zip(self.processors) {
            found.extend(now.since(before).map(|(name, value)| (name.to_owned(), value)));
        }
        let elapsed_us =
            self.at.zip(before.at).map_or(0.0, |(now, before)| (now - before).as_secs_f64() * 1e6);
        for (name, (now, before)) in PRESSURES.iter().zip(self.waited_us.iter().zip(before.waited_us)) {
            if let Some((now, before)) = now.zip(before).filter(|_| elapsed_us > 0.0) {
                let percent = 100.0 * now.saturating_sub(before) as f64 / elapsed_us;
                found.insert(format!("{name}_pressure_percent"), percent.min(100.0));
            }
        }
        found
    }
}

/// The total of the line about some tasks.
fn waited_us(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

impl Processors {
    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // User, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        // Stolen time is another machine's.
        let others = ticks.get(3..5)?.iter().sum::<u64>() + ticks.get(7).copied().unwrap_or(0);
        Some(Self { busy: all - others, all })
    }

    fn since(self, before: Self) -> impl Iterator<Item = (&'static str, f64)> {
        let (busy, all) = (self.busy.saturating_sub(before.busy), self.all.saturating_sub(before.all));
        let seconds = busy as f64 / rustix::param::clock_ticks_per_second() as f64;
        let percent = 100.0 * busy as f64 / all as f64;
        // No tick is no time.
        [("cpu_seconds", seconds), ("cpu_percent", percent)].into_iter().filter(move |_| all > 0)
    }
}

#[cfg(test)]
mod tests {
    //! Shows how processor time and waits are read, and that what is not told is not there.
    use super::*;
    use std::time::Duration;

    #[test]
    fn processor_time_is_what_is_not_idle() {
        let at =
            |user: u64, idle: u64| Processors::of(&format!("cpu  {user} 1 2 {idle} 5 6 7 8 9 9\ncpu0 1\n"));
        assert_eq!(at(100, 1000), Some(Processors { busy: 116, all: 1129 }));
        let variables: BTreeMap<_, _> = at(150, 1050).unwrap().since(at(100, 1000).unwrap()).collect();
        assert_eq!(variables["cpu_percent"], 50.0);
        assert_eq!(Processors::of("intr 1"), None);
        assert_eq!(at(1, 1).unwrap().since(at(1, 1).unwrap()).count(), 0);
    }

    #[test]
    fn a_daemon_of_another_boot_is_elsewhere() {
        let own = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let told = [own.trim(), "", "7a1f2c1e-0000-4000-8000-000000000000"].map(is_this_machine);
        assert_eq!(told, [true, true, false]);
    }

    #[test]
    fn waits_are_parts_of_the_time() {
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=700\nfull avg10=0.00 total=9\n";
        assert_eq!((waited_us(pressure), waited_us(""), waited_us("some total=x")), (Some(700), None, None));
        let now = Instant::now();
        let reading = |after_us: u64, cpu: u64| HostReading {
            at: Some(now + Duration::from_micros(after_us)),
            processors: None,
            waited_us: [Some(cpu), None, None],
        };
        let variables = reading(1000, 700).since(&reading(0, 200));
        assert_eq!(variables, BTreeMap::from([("cpu_pressure_percent".to_owned(), 50.0)]));
        assert_eq!(reading(0, 700).since(&HostReading::default()), BTreeMap::new());
    }
}
