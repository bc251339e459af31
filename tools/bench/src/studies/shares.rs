//! What an application's processor time goes into, as Split gRPC asks of its own: how much of it is handing over and
//! how much is linearization, when the business does no more than make its answer.
//!
//! `perf` samples the application's process (by the clock, since virtual machines often have no cycle counter) with its
//! callers while calls come in as fast as they can. A sample belongs to the innermost function of ours, inlined ones
//! included, by the source file that `addr2line` names: what the kernel and the C library do (copying, sleeping,
//! waking) counts for whoever asked for it, and so does the standard library.

use super::split::{Payload, Stage, payloads};
use crate::harness::children::{Failure, text};
use crate::harness::rounds::{Plan, Turns};
use crate::harness::shell::said;
use crate::harness::work::word;
use crate::peers::echo::Making;
use crate::peers::foreign::Foreign;
use crate::report::sheet::{Results, Sheet};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Samples in a second of processor time.
const RATE: &str = "1999";
/// Stack that is kept with a sample: a few callers are enough.
const CALLERS: &str = "dwarf,4096";
/// Fewer say nothing. An application that sleeps is not sampled, so it takes longer than it sounds.
const SAMPLES_MIN: usize = 50;
/// The paper's small and large message, or our shapes of them.
const MESSAGES: [&str; 4] = ["small", "bench3_m3", "large", "bench5_m34"];

/// What time can go into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Making the answer, and letting it go.
    Business,
    /// Writing it where it is sent from.
    Linearization,
    /// Rings, entries, blocks of the heaps: all that is done to shared memory.
    Rings,
    /// Doorbells, sleeping and being woken: the kernel's part of handing over. The less there is to do, the more.
    Waiting,
    /// The library's calls, tasks, metadata.
    Library,
    /// What has no source of ours.
    Other,
}

/// As the table calls them, in the order of [`Part`].
pub const COLUMNS: [&str; 7] = [
    "making it",
    "linearization",
    "ring operations",
    "sleeping, waking",
    "rest of the library",
    "other",
    "samples",
];

/// Measures small and large messages, each made both ways; what cannot be had, without `perf` say, is named.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Results {
    let mut turns = Turns::new("shares", plan);
    let title = "What the split application's processor time goes into, no business work, %".to_owned();
    let mut sheet = Sheet::new("shares", title, "message, and how the answer is made", &COLUMNS);
    for payload in payloads(plan).into_iter().filter(|payload| MESSAGES.contains(&payload.name)) {
        for making in [Making::Struct, Making::InPlace] {
            if making == Making::InPlace && !["small", "large"].contains(&payload.name) {
                continue;
            }
            let name = format!("{}, {}", payload.name, word(making));
            match shared(plan, foreign, &payload, making) {
                Ok(percent) => sheet = sheet.with_row(&name, &percent),
                Err(why) => turns.lack(&name, &why),
            }
        }
    }
    Results { sheets: vec![sheet], absent: turns.absent }
}

fn shared(plan: &Plan, foreign: &Foreign, payload: &Payload, making: Making) -> Result<Vec<f64>, Failure> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("perf.data");
    let mut stage = Stage::split(foreign, payload, making)?;
    stage.round(plan.warm_up_millis)?;
    let seconds = (plan.round_millis * plan.rounds as u64) as f64 / 1e3;
    let pid = stage.business_pid();
    stage.under_load((seconds * 1e3) as u64 + 500, || record(pid, seconds, &data))?;
    let program = std::env::current_exe()?;
    let script = ["script", "--no-inline", "-F", "ip,sym,dso", "-i", text(&data)];
    let stacks = stacks(&said(Command::new("perf").args(script))?);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut parts = parts(&stacks, &program, shift(&maps, &program)?)?;
    if making == Making::InPlace {
        // What writes the answer where it is sent from is what makes it.
        let linearization = parts.iter_mut().filter(|part| **part == Part::Linearization);
        linearization.for_each(|part| *part = Part::Business);
    }
    let samples = parts.len();
    if samples < SAMPLES_MIN {
        return Err(format!("{samples} samples in {seconds} s are too few: more rounds, or longer").into());
    }
    let mut row = vec![0.0; COLUMNS.len()];
    parts.iter().for_each(|part| row[*part as usize] += 100.0 / samples as f64);
    row[COLUMNS.len() - 1] = samples as f64;
    Ok(row)
}

fn record(pid: u32, seconds: f64, data: &Path) -> Result<(), Failure> {
    let mut perf = Command::new("perf");
    perf.args(["record", "-e", "cpu-clock", "-F", RATE, "--call-graph", CALLERS]);
    perf.args(["-p", &pid.to_string(), "-o", text(data), "--", "sleep", &seconds.to_string()]);
    said(&mut perf).map(drop)
}

/// A place in a stack: its address, and the file that holds it.
type Place = (u64, String);

/// Samples, each with its places, the innermost first.
fn stacks(script: &str) -> Vec<Vec<Place>> {
    let mut stacks = vec![Vec::new()];
    for line in script.lines() {
        let place = line.trim().split_once(' ').and_then(|(address, rest)| {
            let object = rest.rsplit_once('(')?.1.trim_end_matches(')');
            Some((u64::from_str_radix(address, 16).ok()?, object.to_owned()))
        });
        match (place, stacks.last_mut()) {
            (Some(place), Some(stack)) => stack.push(place),
            _ => stacks.push(Vec::new()),
        }
    }
    stacks.retain(|stack| !stack.is_empty());
    stacks
}

/// How far what `perf` prints, places in the file, is from the addresses that `addr2line` asks for: the text is a
/// little further from the start of the program in memory than in the file.
fn shift(maps: &str, program: &Path) -> Result<u64, Failure> {
    let mut first = None;
    for line in maps.lines().filter(|line| line.ends_with(text(program))) {
        let mut words = line.split_whitespace();
        let (range, access, offset) = (words.next(), words.next(), words.next());
        let start = range.and_then(|range| range.split_once('-')).ok_or("a mapping without a range")?.0;
        let start = u64::from_str_radix(start, 16)?;
        let base = *first.get_or_insert(start);
        if access.is_some_and(|access| access.contains('x')) {
            return Ok(start - base - u64::from_str_radix(offset.unwrap_or_default(), 16)?);
        }
    }
    Err("the program is not in its own maps".into())
}

/// What each sample went into.
fn parts(stacks: &[Vec<Place>], program: &Path, shift: u64) -> Result<Vec<Part>, Failure> {
    // The caller's address is that after the call.
    let own = |stack: &Vec<Place>| -> Vec<u64> {
        let places = stack.iter().enumerate().filter(|(_, (_, object))| object == text(program));
        places.map(|(depth, (address, _))| address + shift - u64::from(depth > 0)).collect()
    };
    let addresses: Vec<Vec<u64>> = stacks.iter().map(own).collect();
    let sources = sources(program, &addresses.iter().flatten().copied().collect())?;
    let of = |(stack, addresses): (&Vec<Place>, &Vec<u64>)| {
        let mut lines = addresses.iter().filter_map(|address| sources.get(address)).flatten();
        let in_kernel = stack.first().is_some_and(|(_, object)| object.starts_with('['));
        match lines.find_map(|(function, file)| part(function, file)) {
            Some(Part::Rings) if in_kernel => Part::Waiting,
            part => part.unwrap_or(Part::Other),
        }
    };
    Ok(stacks.iter().zip(&addresses).map(of).collect())
}

/// Functions at addresses with their files, the innermost inlined one first.
type Sources = BTreeMap<u64, Vec<(String, String)>>;

fn sources(program: &Path, addresses: &BTreeSet<u64>) -> Result<Sources, Failure> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-f", "-i", "-C", "-e", text(program)]);
    let mut tool = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = tool.stdin.take().ok_or("addr2line without input")?;
    let asked: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let asking = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let said = tool.wait_with_output()?;
    asking.join().map_err(|_| "addr2line was not asked")??;
    let mut sources = Sources::new();
    let (mut at, mut function) = (0, None);
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        match (line.strip_prefix("0x"), function.take()) {
            (Some(address), None) => at = u64::from_str_radix(address, 16)?,
            (_, None) => function = Some(line.to_owned()),
            (_, Some(name)) => sources.entry(at).or_default().push((name, line.to_owned())),
        }
    }
    Ok(sources)
}

/// Where a function of ours belongs; `None` for the standard library's and others', whose caller decides.
fn part(function: &str, file: &str) -> Option<Part> {
    if file.starts_with("/rustc/") || file.contains("/registry/src/") {
        return None;
    }
    let is_in = |folders: &[&str]| folders.iter().any(|folder| file.contains(folder));
    if function.contains("drop_in_place") && !function.contains("trunkline_shm") {
        // Of a message, by size; what is dropped with it is small.
        return file.contains("/out/").then_some(Part::Business);
    }
    let places: [(&[&str], Part); 4] = [
        (&["bench/src/peers/echo.rs", "bench/src/harness/business.rs"], Part::Business),
        (&["core/message/", "/out/"], Part::Linearization),
        (&["host/shm/", "core/call/src/entry.rs"], Part::Rings),
        (&["run/trunkline/", "core/", "host/", "run/"], Part::Library),
    ];
    if is_in(&["/out/"]) && function.contains("clone") {
        return Some(Part::Business);
    }
    places.into_iter().find(|(folders, _)| is_in(folders)).map(|(_, part)| part)
}

#[cfg(test)]
mod tests {
    //! What perf and addr2line say is read, and functions belong where their files are.
    use super::*;

    #[test]
    fn samples_have_their_places() {
        let script =
            "\n\t 7f12 memmove (/lib/libc.so)\n\t 55aa M::write (/bin/x)\n\n\n\t ff0 [k] ([kernel])\n\n";
        let stacks = stacks(script);
        assert_eq!(stacks.len(), 2);
        assert_eq!(stacks[0][0], (0x7f12, "/lib/libc.so".to_owned()));
        assert_eq!(stacks[0][1], (0x55aa, "/bin/x".to_owned()));
        assert_eq!(stacks[1], [(0xff0, "[kernel]".to_owned())]);
    }

    #[test]
    fn places_in_the_file_become_addresses() {
        let maps = "5000-9000 r--p 00000000 fe:00 1    /bin/x\n9000-b000 r-xp 00003000 fe:00 1    /bin/x\n";
        assert_eq!(shift(maps, Path::new("/bin/x")).unwrap(), 0x1000);
        assert!(shift(maps, Path::new("/bin/y")).is_err());
    }

    #[test]
    fn functions_belong_somewhere() {
        let cases = [
            ("core::ptr::copy", "/rustc/1/library/core/src/ptr.rs:9", None),
            ("<Small as Clone>::clone", "/t/build/x/out/small/trunkline.shapes.rs:3", Some(Part::Business)),
            (
                "<Small as Message>::write",
                "/t/build/x/out/small/trunkline.shapes.rs:3",
                Some(Part::Linearization),
            ),
            ("Block::set", "/w/core/message/src/block.rs:1", Some(Part::Linearization)),
            ("Consumer::pop", "/w/host/shm/src/ring.rs:1", Some(Part::Rings)),
            ("Worker::turn", "/w/run/trunkline/src/server/worker.rs:1", Some(Part::Library)),
            ("main", "??:0", None),
        ];
        for (function, file, wanted) in cases {
            assert_eq!(part(function, file), wanted, "{function}");
        }
    }
}
