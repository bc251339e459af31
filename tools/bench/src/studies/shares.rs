//! What an application's processor time goes into, as Split gRPC asks of its own: how much of it is handing over and
//! how much is linearization, when the business does no more than make its answer. Beside it the linked application,
//! whose linearization is protobuf's encoding and decoding.
//!
//! Making the answer is all that has the business among its callers, whoever's code it is: the setters of protobuf's
//! classes, which copy into the process, and those of ours, which write where the answer is sent from. Linearization is
//! what turns a message that is made into what is sent, and what came into what the business reads.
//!
//! `perf` samples the application's process (by the clock, since virtual machines often have no cycle counter) with its
//! callers while calls come in as fast as they can. A sample belongs to the innermost function of ours, inlined ones
//! included, by the source file that `addr2line` names, in the program and in `libtrunkline`: what the kernel and the C
//! library do (copying, sleeping, waking) counts for whoever asked for it, and so does the standard library. Of
//! protobuf and gRPC, whose files it does not name, the functions' names tell.

use super::data;
use super::split::{Stage, payloads};
use crate::harness::children::{Failure, text};
use crate::harness::rounds::{Plan, Turns};
use crate::harness::shell::said;
use crate::peers::echo::Making;
use crate::peers::foreign::Foreign;
use crate::peers::messages::SplitMessage;
use crate::report::sheet::Results;
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

/// What time can go into, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Making the answer, and letting it go.
    Business,
    /// Writing it where it is sent from, reading or checking what came.
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

/// How an application is started.
type Start = fn(&Foreign, &SplitMessage) -> Result<Stage, Failure>;

/// Applications, by how they make their answer: how their rows end.
const APPLICATIONS: [(&str, Start); 4] = [
    ("gRPC C++ linked", Stage::linked),
    ("C++", Stage::split),
    ("struct", |foreign, payload| Stage::in_rust(foreign, payload, Making::Struct)),
    (IN_PLACE, |foreign, payload| Stage::in_rust(foreign, payload, Making::InPlace)),
];
const IN_PLACE: &str = "in-place";

/// Measures small and large messages, each made both ways; what cannot be had, without `perf` say, is named.
pub fn measure(plan: &Plan, foreign: &Foreign) -> Result<Results, Failure> {
    let mut turns = Turns::new("shares", plan);
    let mut sheet = data::sheet("shares", &[])?;
    for payload in payloads(plan).into_iter().filter(|payload| MESSAGES.contains(&payload.name)) {
        let is_ours = ["small", "large"].contains(&payload.name);
        // Applications in Rust are built for HyperProtoBench's messages where the build was told of them.
        let is_there = |application: &str| match application {
            "struct" => is_ours || cfg!(hyperprotobench),
            IN_PLACE => is_ours,
            _ => true,
        };
        for (application, start) in APPLICATIONS.into_iter().filter(|(name, _)| is_there(name)) {
            let name = format!("{}, {application}", payload.name);
            let stage = start(foreign, &payload);
            match stage.and_then(|stage| shared(plan, stage, application == IN_PLACE)) {
                Ok(percent) => sheet = sheet.with_row(&name, &percent),
                Err(why) => turns.lack(&name, &why),
            }
        }
    }
    Ok(Results { sheets: vec![sheet], absent: turns.absent })
}

fn shared(plan: &Plan, mut stage: Stage, in_place: bool) -> Result<Vec<f64>, Failure> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("perf.data");
    stage.round(plan.warm_up_millis)?;
    let seconds = (plan.round_millis * plan.rounds as u64) as f64 / 1e3;
    let pid = stage.business_pid();
    stage.under_load((seconds * 1e3) as u64 + 500, || record(pid, seconds, &data))?;
    let script = ["script", "--no-inline", "-F", "ip,sym,dso", "-i", text(&data)];
    let stacks = stacks(&said(Command::new("perf").args(script))?);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut parts = parts(&stacks, &objects(&maps)?)?;
    if in_place {
        // What writes the answer where it is sent from is what makes it.
        let linearization = parts.iter_mut().filter(|part| **part == Part::Linearization);
        linearization.for_each(|part| *part = Part::Business);
    }
    let samples = parts.len();
    if samples < SAMPLES_MIN {
        return Err(format!("{samples} samples in {seconds} s are too few: more rounds, or longer").into());
    }
    let mut row = vec![0.0; Part::Other as usize + 1];
    parts.iter().for_each(|part| row[*part as usize] += 100.0 / samples as f64);
    row.push(samples as f64);
    Ok(row)
}

fn record(pid: u32, seconds: f64, data: &Path) -> Result<(), Failure> {
    let mut perf = Command::new("perf");
    perf.args(["record", "-e", "cpu-clock", "-F", RATE, "--call-graph", CALLERS]);
    perf.args(["-p", &pid.to_string(), "-o", text(data), "--", "sleep", &seconds.to_string()]);
    said(&mut perf).map(drop)
}

/// A place in a stack: its address, its function, and the file that holds it.
type Place = (u64, String, String);

/// Samples, each with its places, the innermost first.
fn stacks(script: &str) -> Vec<Vec<Place>> {
    let mut stacks = vec![Vec::new()];
    for line in script.lines() {
        let place = line.trim().split_once(' ').and_then(|(address, rest)| {
            let (function, object) = rest.rsplit_once('(')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            Some((address, function.trim().to_owned(), object.trim_end_matches(')').to_owned()))
        });
        match (place, stacks.last_mut()) {
            (Some(place), Some(stack)) => stack.push(place),
            _ => stacks.push(Vec::new()),
        }
    }
    stacks.retain(|stack| !stack.is_empty());
    stacks
}

/// An object of ours: its file, and how far what `perf` prints, places in the file, is from the addresses that
/// `addr2line` asks for: the text is a little further from the start of the object in memory than in the file.
type OurObject = (String, u64);

/// Those of a process: its program, which is mapped first, and `libtrunkline`.
fn objects(maps: &str) -> Result<Vec<OurObject>, Failure> {
    let files =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).filter(|file| file.starts_with('/'));
    let program = files.clone().next().ok_or("a process without a program")?;
    let library = files.clone().find(|file| file.contains("/libtrunkline"));
    let all = std::iter::once(program).chain(library);
    all.map(|file| Ok((file.to_owned(), shift(maps, file)?))).collect()
}

fn shift(maps: &str, object: &str) -> Result<u64, Failure> {
    let mut first = None;
    for line in maps.lines().filter(|line| line.ends_with(object)) {
        let mut words = line.split_whitespace();
        let (range, access, offset) = (words.next(), words.next(), words.next());
        let start = range.and_then(|range| range.split_once('-')).ok_or("a mapping without a range")?.0;
        let start = u64::from_str_radix(start, 16)?;
        let base = *first.get_or_insert(start);
        if access.is_some_and(|access| access.contains('x')) {
            return Ok(start - base - u64::from_str_radix(offset.unwrap_or_default(), 16)?);
        }
    }
    Err(format!("{object} is not in the process's maps").into())
}

/// What each sample went into.
fn parts(stacks: &[Vec<Place>], objects: &[OurObject]) -> Result<Vec<Part>, Failure> {
    // Where a place is in an object of ours, if it is in one. The caller's address is that after the call.
    let own = |depth: usize, (address, _, file): &Place| {
        let (file, shift) = objects.iter().find(|(of, _)| of == file)?;
        Some((file, address + shift - u64::from(depth > 0)))
    };
    let mut wanted: BTreeMap<&String, BTreeSet<u64>> = BTreeMap::new();
    for (depth, place) in stacks.iter().flat_map(|stack| stack.iter().enumerate()) {
        if let Some((file, address)) = own(depth, place) {
            wanted.entry(file).or_default().insert(address);
        }
    }
    let sources = wanted.iter().map(|(file, addresses)| Ok((*file, sources(Path::new(file), addresses)?)));
    let sources: BTreeMap<&String, Sources> = sources.collect::<Result<_, Failure>>()?;
    let of = |stack: &Vec<Place>| {
        let parts = stack.iter().enumerate().flat_map(|(depth, place)| match own(depth, place) {
            Some((file, address)) => {
                let known = sources.get(file).and_then(|sources| sources.get(&address));
                known.into_iter().flatten().filter_map(|(function, file)| part(function, file)).collect()
            }
            None => Vec::from_iter(foreign_part(&place.1)),
        });
        let in_kernel = stack.first().is_some_and(|(_, _, object)| object.starts_with('['));
        counted(in_kernel, &parts.collect::<Vec<Part>>())
    };
    Ok(stacks.iter().map(of).collect())
}

/// What a sample counts for, whose functions belong there, the innermost first.
fn counted(in_kernel: bool, parts: &[Part]) -> Part {
    match parts.first() {
        Some(Part::Rings) if in_kernel => Part::Waiting,
        Some(Part::Linearization) if parts.contains(&Part::Business) => Part::Business,
        part => part.copied().unwrap_or(Part::Other),
    }
}

/// Where a function of protobuf's and gRPC's shared objects belongs.
fn foreign_part(function: &str) -> Option<Part> {
    let of_protobuf = ["google::protobuf", "grpc::ProtoBuffer", "_InternalParse", "_InternalSerialize"];
    if of_protobuf.iter().any(|name| function.contains(name)) {
        return Some(Part::Linearization);
    }
    function.starts_with("grpc").then_some(Part::Library)
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

/// Where functions belong, by what the names of their files have in them; the first counts.
const FILES: [(&[&str], Part); 6] = [
    (&["bench/src/peers/echo.rs", "bench/src/harness/business.rs"], Part::Business),
    (&["split/business.h", "split/split.cc"], Part::Business),
    (&["core/message/", "/out/", "trunkline_linear.hpp", ".linear.hpp"], Part::Linearization),
    (&["google/protobuf/", ".pb.h", ".pb.cc", "grpcpp/support/proto_buffer"], Part::Linearization),
    (&["host/shm/", "core/call/src/entry.rs"], Part::Rings),
    (&["run/", "core/", "host/", "bindings/", "trunkline.hpp", "grpcpp/", "split/linked.cc"], Part::Library),
];

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
    if is_in(&["/out/"]) && function.contains("clone") {
        return Some(Part::Business);
    }
    FILES.into_iter().find(|(folders, _)| is_in(folders)).map(|(_, part)| part)
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
        let place = |address, function: &str, file: &str| (address, function.to_owned(), file.to_owned());
        assert_eq!(stacks[0][0], place(0x7f12, "memmove", "/lib/libc.so"));
        assert_eq!(stacks[0][1], place(0x55aa, "M::write", "/bin/x"));
        assert_eq!(stacks[1], [place(0xff0, "[k]", "[kernel]")]);
    }

    #[test]
    fn what_the_business_calls_is_making() {
        use Part::{Business, Library, Linearization, Other, Rings, Waiting};
        for (in_kernel, parts, wanted) in [
            (false, &[Linearization, Business, Linearization, Library][..], Business),
            (false, &[Linearization, Library], Linearization),
            (false, &[Rings, Business, Library], Rings),
            (true, &[Rings, Library], Waiting),
            (true, &[], Other),
        ] {
            assert_eq!(counted(in_kernel, parts), wanted, "{parts:?}");
        }
    }

    #[test]
    fn places_in_the_file_become_addresses() {
        let maps = "5000-9000 r--p 00000000 fe:00 1    /bin/x\n9000-b000 r-xp 00003000 fe:00 1    /bin/x\n";
        assert_eq!(shift(maps, "/bin/x").unwrap(), 0x1000);
        assert!(shift(maps, "/bin/y").is_err());
        let all = format!("{maps}c000-d000 r-xp 00000000 fe:00 1    /lib/libtrunkline.so.0\n");
        let all = objects(&all).unwrap();
        assert_eq!(all, [("/bin/x".to_owned(), 0x1000), ("/lib/libtrunkline.so.0".to_owned(), 0)]);
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
            ("Editor::tl_set", "/p/include/trunkline_linear.hpp:9", Some(Part::Linearization)),
            ("Echo::Call", "/w/tools/bench/peers/split/split.cc:9", Some(Part::Business)),
            ("trunkline::Service::handle", "/p/include/trunkline.hpp:9", Some(Part::Library)),
            ("Large::_InternalSerialize", "/p/out2/shapes.pb.cc:9", Some(Part::Linearization)),
            ("Call::Proceed", "/w/tools/bench/peers/split/linked.cc:9", Some(Part::Library)),
            ("main", "??:0", None),
        ];
        for (function, file, wanted) in cases {
            assert_eq!(part(function, file), wanted, "{function}");
        }
        assert_eq!(foreign_part("google::protobuf::Arena::x"), Some(Part::Linearization));
        assert_eq!(foreign_part("grpc_core::Call::y"), Some(Part::Library));
        assert_eq!(foreign_part("__memmove_avx"), None);
    }
}
