//! `cargo xtask counts`: instructions of what every call does, beside those the repository remembers.
//!
//! Wall time is noise on a shared machine; instructions are not. Each case is an example program of a package that does
//! one thing so many times. It runs twice under callgrind, once with more repetitions: the difference is what the
//! repetitions took, without start-up.
//!
//! What would move a count without a change of ours is held still: hash tables get the same seeds in every run
//! (`host/shm/examples/fixed_seeds.rs`, loaded before the C library), valgrind lays out the address space itself and
//! knows no randomness there, programs run on one thread with the allocator of the C library, and with an empty
//! environment. So a count is the same from run to run, to one in a thousand. Another compiler writes other code, and
//! the C library's functions that move and compare bytes come in variants for processors: the file says what it was
//! made with, and where that differs the differences are said and not held against anybody.
//!
//! Release builds are counted. Building them takes minutes where nothing is built yet, so this is no part of `make
//! test`; `.ci/run` calls it after that.

use crate::Tree;
use crate::owners::shares;
use crate::suite::{is_here, target};
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::{Table, Value};

/// Where the counts are kept.
pub const COUNTS: &str = "docs/counts.toml";
/// Runs agree to one in a thousand; the rest is for changes that are worth less than a word in a commit.
const TOLERANCE_PERCENT: f64 = 2.0;
/// The key under which the file says what it was made with.
const MADE_WITH: &str = "made_with";
/// The library that fixes the seeds of hash tables.
const SEEDS: Built = Built { package: "trunkline-shm", example: "fixed_seeds" };

/// An example that is built.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Built {
    package: &'static str,
    example: &'static str,
}

/// One thing that is counted.
struct Case {
    name: &'static str,
    program: Built,
    /// Arguments before the number of repetitions.
    words: &'static [&'static str],
    /// Repetitions of the longer run; the shorter has a half.
    times: u64,
}

const fn calls(name: &'static str, words: &'static [&'static str]) -> Case {
    let program = Built { package: "trunkline-engine", example: "steady_calls" };
    Case { name, program, words, times: 5120 }
}

const fn codec(name: &'static str, words: &'static [&'static str], times: u64) -> Case {
    let program = Built { package: "trunkline-message", example: "transcode_counts" };
    Case { name, program, words, times }
}

const fn ring(name: &'static str, words: &'static [&'static str]) -> Case {
    let program = Built { package: "trunkline-shm", example: "ring_counts" };
    Case { name, program, words, times: 100_000 }
}

const fn routed(name: &'static str, words: &'static [&'static str]) -> Case {
    let program = Built { package: "trunkline-r2p2", example: "routed_calls" };
    Case { name, program, words, times: 20_000 }
}

const CASES: [Case; 29] = [
    calls("call, one host, 1 at once", &["one-host", "none", "1"]),
    calls("call, one host, 128 at once", &["one-host", "none", "128"]),
    calls("call, two hosts, 1 at once", &["two-hosts", "none", "1"]),
    calls("call, two hosts, 128 at once", &["two-hosts", "none", "128"]),
    calls("call, two shards of a host, 1 at once", &["two-shards", "none", "1"]),
    calls("call, two shards of a host, 128 at once", &["two-shards", "none", "128"]),
    calls("call, two hosts, 1 at once, a policy that does nothing", &["two-hosts", "null", "1"]),
    calls("call, two hosts, 1 at once, a policy that reads a field", &["two-hosts", "content", "1"]),
    calls("call, one host, 1 at once, not recorded", &["one-host", "none", "1", "unrecorded"]),
    calls("call, one host, 128 at once, not recorded", &["one-host", "none", "128", "unrecorded"]),
    calls("call, two hosts, 128 at once, not recorded", &["two-hosts", "none", "128", "unrecorded"]),
    calls("call, two hosts, 128 at once, each with a trace", &["two-hosts", "none", "128", "traced"]),
    calls(
        "call, two hosts, 128 at once, each kept with its messages",
        &["two-hosts", "none", "128", "sampled"],
    ),
    calls("call, two hosts, 1 at once, every stage measured", &["two-hosts", "none", "1", "stages"]),
    codec("small: protobuf to linear", &["small", "decode"], 2000),
    codec("small: linear to protobuf", &["small", "encode"], 2000),
    codec("small: check", &["small", "check"], 2000),
    codec("medium: protobuf to linear", &["medium", "decode"], 400),
    codec("medium: linear to protobuf", &["medium", "encode"], 400),
    codec("large: protobuf to linear", &["large", "decode"], 40),
    codec("large: linear to protobuf", &["large", "encode"], 40),
    codec("deep: protobuf to linear", &["deep", "decode"], 1000),
    codec("deep: linear to protobuf", &["deep", "encode"], 1000),
    ring("ring: an entry there and taken", &["entry"]),
    ring("ring: a look for nothing", &["idle"]),
    ring("heap: a block taken, lent and freed", &["block"]),
    routed("call over R2P2, past a router", &["direct"]),
    routed("call over R2P2, through a router, compatible", &["compatible"]),
    routed("call over R2P2, through a router, extended", &["extended"]),
];

/// Counts everything. With `update` the repository remembers it; else a count that moved is said, and `false` comes
/// back if the same compiler and C library on the same kind of processor counted less or more before.
pub fn run(update: bool) -> bool {
    if !is_here("valgrind") {
        println!("counts: left out, valgrind is not installed");
        return true;
    }
    compared(update).unwrap_or_else(|why| {
        println!("counts: {why}");
        false
    })
}

/// Says whose the instructions of one case are, the most first: what is worth a look when calls are to cost less.
pub fn owners(name: &str) -> bool {
    let case = CASES.iter().find(|case| case.name == name);
    let shares = case.ok_or_else(|| format!("{name:?} is not in {COUNTS}")).and_then(|case| {
        build()?;
        case.shares()
    });
    match shares {
        Ok(shares) => {
            shares.iter().for_each(|(owner, count)| println!("{count:>10}  {owner}"));
            true
        }
        Err(why) => {
            println!("counts: {why}");
            false
        }
    }
}

fn compared(update: bool) -> Result<bool, String> {
    build()?;
    let made_with = made_with()?;
    let counted: Result<Vec<(&str, u64)>, String> =
        CASES.iter().map(|case| Ok((case.name, case.count()?))).collect();
    let counted = counted?;
    let path = Tree::root().join(COUNTS);
    if update {
        std::fs::write(&path, written(&made_with, &counted)).map_err(|error| format!("{COUNTS}: {error}"))?;
        println!("counts: {COUNTS} is written");
        return Ok(true);
    }
    let kept = std::fs::read_to_string(&path).map_err(|error| format!("{COUNTS}: {error}"))?;
    let kept: Table = kept.parse().map_err(|error| format!("{COUNTS}: {error}"))?;
    let moved = moved(&kept, &counted);
    moved.iter().for_each(|line| println!("{line}"));
    if moved.is_empty() {
        println!("counts: {} are within {TOLERANCE_PERCENT} % of {COUNTS}", counted.len());
        return Ok(true);
    }
    let before = kept.get(MADE_WITH).and_then(Value::as_str).unwrap_or("nobody knows what");
    if before != made_with {
        println!(
            "counts: {COUNTS} was made with {before}; with {made_with} here the difference may be theirs"
        );
    }
    Ok(before != made_with)
}

/// Builds the library and every program, each once.
fn build() -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Incremental builds cut crates into more units, and inline less.
    cargo.args(["build", "--release", "--locked"]).env("CARGO_INCREMENTAL", "0").current_dir(Tree::root());
    let mut wanted = vec![SEEDS];
    wanted.extend(CASES.iter().map(|case| case.program));
    wanted.dedup();
    for Built { package, example } in wanted {
        cargo.args(["--package", package, "--example", example]);
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cargo build: {error}")),
    }
}

/// What compiles, and for what; the C library, what counts, and the processor.
fn made_with() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = said(&rustc, "-vV")?;
    let of = |key: &str| compiler.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim();
    let library = said("getconf", "GNU_LIBC_VERSION").unwrap_or_default();
    let counter = said("valgrind", "--version")?;
    let processor = processor(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    Ok(format!("rustc {}, {}, {library}, {counter}, {processor}", of("release:"), of("host:")))
}

/// What a program says of itself.
fn said(program: &str, asked: &str) -> Result<String, String> {
    let said = Command::new(program).arg(asked).output().map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// The first processor of `/proc/cpuinfo`: several share a name.
fn processor(cpus: &str) -> String {
    let of = |wanted: &str| {
        let mut pairs = cpus.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| key.trim() == wanted).map_or("?", |(_, value)| value.trim())
    };
    format!("{} family {} model {}", of("model name"), of("cpu family"), of("model"))
}

impl Built {
    fn path(self, before: &str, after: &str) -> PathBuf {
        target().join("release/examples").join(format!("{before}{}{after}", self.example))
    }
}

impl Case {
    /// Instructions of one repetition.
    fn count(&self) -> Result<u64, String> {
        let (few, many) = (self.times / 2, self.times);
        let more = self.instructions(many)?.checked_sub(self.instructions(few)?);
        let more = more.ok_or_else(|| format!("{}: more repetitions took less", self.name))?;
        let count = more / (many - few);
        println!("{count:>10}  {}", self.name);
        Ok(count)
    }

    /// Instructions of one repetition by owner, the most first; less than one is left out.
    fn shares(&self) -> Result<Vec<(String, u64)>, String> {
        let (few, many) = (self.times / 2, self.times);
        let run = |times| {
            let file = target().join("callgrind.out");
            self.run(times, &file)?;
            std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
        };
        let (before, after) = (shares(&run(few)?), shares(&run(many)?));
        let of_one = |(owner, count): (String, u64)| {
            let more = count.saturating_sub(before.get(&owner).copied().unwrap_or_default());
            (owner, more / (many - few))
        };
        let mut shares: Vec<_> = after.into_iter().map(of_one).filter(|(_, count)| *count > 0).collect();
        shares.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(shares)
    }

    /// Instructions of a whole run.
    fn instructions(&self, times: u64) -> Result<u64, String> {
        let said = self.run(times, Path::new("/dev/null"))?;
        collected(&said).ok_or_else(|| format!("{}: callgrind gave no count: {said}", self.name))
    }

    /// Runs under callgrind, which writes what it has found. Returns what it says.
    fn run(&self, times: u64, out: &Path) -> Result<String, String> {
        let done = Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", out.display()))
            .arg(self.program.path("", ""))
            .args(self.words)
            .arg(times.to_string())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LD_PRELOAD", SEEDS.path("lib", ".so"))
            .output()
            .map_err(|error| format!("valgrind: {error}"))?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(said) } else { Err(format!("{}: {}: {said}", self.name, done.status)) }
    }
}

/// The number in `==7== Collected : 123`.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// What is beyond the tolerance, or kept and not counted, or counted and not kept.
fn moved(kept: &Table, counted: &[(&str, u64)]) -> Vec<String> {
    let remedy = "if that is meant, `cargo xtask counts --update` and say why in the commit";
    let mut moved = Vec::new();
    for &(name, now) in counted {
        let Some(was) = kept.get(name).and_then(Value::as_integer) else {
            moved.push(format!("{name}: {now}, and {COUNTS} has none; {remedy}"));
            continue;
        };
        let percent = (now as f64 / was as f64 - 1.0) * 100.0;
        if percent.abs() > TOLERANCE_PERCENT {
            moved.push(format!("{name}: {now} instructions, {was} before ({percent:+.1} %); {remedy}"));
        }
    }
    let is_gone = |name: &&String| *name != MADE_WITH && counted.iter().all(|(other, _)| other != name);
    let gone = kept.keys().filter(is_gone);
    moved.extend(gone.map(|name| format!("{name}: in {COUNTS}, and not counted any more; {remedy}")));
    moved
}

fn written(made_with: &str, counted: &[(&str, u64)]) -> String {
    let mut text = format!(
        "# Instructions of a release build, by callgrind: `cargo xtask counts --update` writes them,\n\
         # `make counts` compares. Calls are whole ones, with what the harness does.\n{MADE_WITH} = {made_with:?}\n"
    );
    for (name, count) in counted {
        text += &format!("\"{name}\" = {count}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    //! What callgrind says is read, what is written is read back, and what moved is named.
    use super::*;

    #[test]
    fn callgrinds_count_is_found() {
        let said = "==1== Callgrind, a call-graph profiler\n==1== \n==1== Events    : Ir\n\
                    ==1== Collected : 152096\n==1== \n==1== I   refs:      152,096\n";
        assert_eq!(collected(said), Some(152_096));
        assert_eq!(collected("valgrind: no such program"), None);
    }

    #[test]
    fn a_processor_is_more_than_its_name() {
        let cpus = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nmodel\t\t: 2\n";
        assert_eq!(processor(cpus), "AMD EPYC family 25 model 1");
        assert_eq!(processor(""), "? family ? model ?");
    }

    #[test]
    fn what_moved_is_named() {
        let kept: Table = written("rustc 1", &[("a, b", 1000), ("c", 50), ("gone", 1)]).parse().unwrap();
        assert_eq!(moved(&kept, &[("a, b", 1019), ("c", 50), ("gone", 1)]), Vec::<String>::new());
        let moved = moved(&kept, &[("a, b", 1021), ("c", 48), ("new", 7)]);
        let starts = ["a, b: 1021 instructions, 1000 before (+2.1 %)", "c: 48", "new: 7", "gone: "];
        assert_eq!(moved.len(), starts.len());
        for (line, start) in moved.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }
}
