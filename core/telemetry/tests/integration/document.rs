//! Shows that docs/telemetry.md is true: its worked example is computed again, and its sample of `trunkline explain` is
//! what the renderer prints.

use crate::world;

use std::collections::BTreeMap;
use trunkline_call::{ClientStamps, Code, Instant, ServerStamps};
use trunkline_telemetry::{
    Ask, ClockOffset, Component, Explanation, MethodIndex, PeerIndex, Record, Side, render,
};

const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/telemetry.md"));
/// Stamps count from here, because zero means *not taken*.
const BASE: u64 = 1_000_000_000;
const THETA: i64 = 2_500_000_000;

/// Rows of the tables between two headings: first cell without code style, the others as written.
fn rows(from: &str, to: &str) -> BTreeMap<String, Vec<String>> {
    let (_, after) = DOCUMENT.split_once(from).expect(from);
    let (section, _) = after.split_once(to).expect(to);
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let rows = section.lines().filter(|line| line.starts_with('|')).map(cells);
    rows.map(|mut row| (row.remove(0), row)).collect()
}

fn worked(server: bool) -> Record {
    let rows = rows("## A worked example", "## What a missing stamp means");
    let reads = |name: &str| rows[name][0].parse::<u64>().unwrap();
    let at = |name: &str| Instant(BASE + reads(name));
    let client = ClientStamps {
        a0: at("a0"),
        a1: at("a1"),
        d2: at("d2"),
        d3: at("d3"),
        wait_ns: reads("wait"),
        d4: at("d4"),
        k6: at("k6"),
        k15: at("k15"),
        d16: at("d16"),
        d17: at("d17"),
        a18: at("a18"),
    };
    let stamps = ServerStamps {
        k7: at("k7"),
        d8: at("d8"),
        d9: at("d9"),
        a10: at("a10"),
        a11: at("a11"),
        d12: at("d12"),
        wait_ns: reads("wait′"),
        k14: at("k14"),
        subtree: 1,
        cpu_ns: 0,
    };
    Record {
        side: Side::Made,
        method: MethodIndex::OTHER,
        peer: PeerIndex::OTHER,
        code: Code::Ok,
        request_bytes: 0,
        response_bytes: 0,
        client,
        server: server.then_some(stamps),
        is_stream: false,
    }
}

#[test]
fn the_worked_example_is_right() {
    let rows = rows("## A worked example", "## What a missing stamp means");
    for (column, server) in [(0, true), (1, false)] {
        let parts = worked(server).components(ClockOffset { ns: THETA, half_width_ns: 0 });
        for component in Component::ALL {
            let written = rows[component.name()][column].parse().unwrap_or(0);
            assert_eq!(parts[component], written, "{component}, column {column}");
        }
        assert_eq!(parts.total_ns().to_string(), rows["completion time"][column]);
        assert!(parts.stand_ins.is_empty());
    }
}

#[test]
fn every_component_has_its_formula() {
    let rows = rows("## Components", "Added up");
    for component in Component::ALL {
        assert!(rows.contains_key(component.name()), "{component} is missing from the table of formulas");
    }
}

#[test]
fn the_sample_is_what_is_printed() {
    let (_, after) = DOCUMENT.split_once("## Reading `trunkline explain`\n\n```text\n").unwrap();
    let (written, _) = after.split_once("```").unwrap();
    let (mut telemetry, now) = world::queueing_greeter();
    let snapshot = telemetry.snapshot(now, &Ask { samples_max: 10_000, ..Ask::default() });
    let printed = render::explanation(&Explanation::of(&snapshot, Side::Made).unwrap());
    assert_eq!(written, printed, "docs/telemetry.md should show:\n{printed}");
}
