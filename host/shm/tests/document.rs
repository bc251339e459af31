//! `docs/shared-memory.md` says what the code does: its example, its limits and its table of seals are read here.
#![cfg(not(loom))]

use std::collections::BTreeMap;

use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::pread;
use trunkline_shm::*;

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shared-memory.md");
    std::fs::read_to_string(path).unwrap()
}

/// Rows of every table of the document, cells trimmed of spaces and code marks.
fn rows(document: &str) -> impl Iterator<Item = Vec<&str>> {
    document
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
}

/// Where the one word lies that no example can have: when the submission ring's consumer was rung.
const RUNG: std::ops::Range<usize> = 388..392;

fn small() -> SessionConfig {
    SessionConfig { submission_entries: 16, completion_entries: 16, ..SessionConfig::default() }
}

#[test]
fn the_example_is_what_lies_in_memory() {
    let document = document();
    let block = document.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let config = small();
    let mut expected = vec![0u8; config.rings_bytes()];
    for line in block.lines() {
        let (offset, bytes) = line.split_once(": ").unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (index, byte) in bytes.split(' ').enumerate() {
            expected[offset + index] = u8::from_str_radix(byte, 16).unwrap();
        }
    }

    let (mut daemon, fds) = create_session(&config).unwrap();
    let rings = fds.as_fds()[0].try_clone_to_owned().unwrap();
    let mut app = open_session(fds, &config).unwrap();
    assert!(daemon.submissions.arm().unwrap());
    let before = monotonic_ns();
    assert!(app.submissions.push(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap(), "it sleeps and must be rung");
    let took = monotonic_ns() - before;
    assert!(!daemon.completions.push(&[0xaa; 8]).unwrap());
    app.completions.pop().unwrap().unwrap();
    assert!(app.completions.arm().unwrap());

    let mut found = vec![0u8; config.rings_bytes()];
    assert_eq!(pread(&rings, &mut found, 0), Ok(found.len()));
    // The lower half of a clock: what counts is how far it was from a point before, not where it is now.
    let rung = u32::from_le_bytes(found[RUNG].try_into().unwrap());
    let since = u64::from(rung.wrapping_sub(before as u32));
    assert!(since <= took, "rung {since} ns after {before}, by something that took {took} ns");
    found[RUNG].fill(0);
    let differs = (0..found.len()).find(|at| found[*at] != expected[*at]);
    assert_eq!(differs, None, "first byte that differs");
}

#[test]
fn the_limits_are_the_constants() {
    let constants = BTreeMap::from([
        ("RING_ENTRIES_MIN", u64::from(RING_ENTRIES_MIN)),
        ("RING_ENTRIES_MAX", u64::from(RING_ENTRIES_MAX)),
        ("HEAP_BYTES_MIN", u64::from(HEAP_BYTES_MIN)),
        ("HEAP_BYTES_MAX", u64::from(HEAP_BYTES_MAX)),
        ("GRANULE_BYTES", u64::from(GRANULE_BYTES)),
        ("RINGS_HEADER_BYTES", RINGS_HEADER_BYTES as u64),
        ("PACKET_BYTES_MAX", PACKET_BYTES_MAX as u64),
        ("PACKET_FDS_MAX", PACKET_FDS_MAX as u64),
        ("BLOB_BYTES_MAX", BLOB_BYTES_MAX as u64),
        ("GATHER_PIECES_MAX", GATHER_PIECES_MAX as u64),
    ]);
    let document = document();
    let limits = document.split("\n## Limits\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let written: BTreeMap<&str, u64> =
        rows(limits).filter_map(|row| Some((row[0], row.get(1)?.parse().ok()?))).collect();
    assert_eq!(written, constants);
}

#[test]
fn the_seals_are_those_of_the_table() {
    let (_daemon, fds) = create_session(&small()).unwrap();
    let document = document();
    let table = document.split("\n## A session\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut checked = 0;
    for row in rows(table).filter(|row| row[1].ends_with("memfd")) {
        let named = row[4].split(", ").map(|seal| match seal {
            "shrink" => SealFlags::SHRINK,
            "grow" => SealFlags::GROW,
            "seal" => SealFlags::SEAL,
            "future-write" => SealFlags::FUTURE_WRITE,
            other => panic!("no seal {other}"),
        });
        let named = named.fold(SealFlags::empty(), SealFlags::union);
        // Newer kernels add the seal against execution by themselves.
        let found =
            fcntl_get_seals(fds.as_fds()[row[0].parse::<usize>().unwrap()]).unwrap() - SealFlags::EXEC;
        assert_eq!(found, named, "{}", row[1]);
        checked += 1;
    }
    assert_eq!(checked, 3);
}
