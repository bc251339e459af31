//! Figure 9: where a call is stamped (docs/telemetry.md).

use super::Drawing;
use crate::fleet::Fleet;
use std::fmt::Write;

/// Who, and which of its stamps, on the way out and on the way back.
const LANES: [(&str, &[&str], &[&str]); 6] = [
    ("client application", &["a0", "a1"], &["a18"]),
    ("client's daemon", &["d2", "d3", "d4"], &["d16", "d17"]),
    ("client's kernel", &["k6"], &["k15"]),
    ("server's kernel", &["k7"], &["k14"]),
    ("server's daemon", &["d8", "d9"], &["d12"]),
    ("server application", &["a10", "a11"], &[]),
];

const WIDTH: f64 = 860.0;
const LANE: f64 = 34.0;
const NAMES: f64 = 150.0;
const STEP: f64 = 40.0;

pub(super) fn picture(_: &Fleet) -> Drawing {
    let height = LANE * LANES.len() as f64 + 10.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"stamps of a call\">"
    );
    // In the order in which a call passes them: down the lanes, and up again.
    let out_and_back = LANES
        .iter()
        .enumerate()
        .flat_map(|(lane, (_, there, _))| there.iter().map(move |stamp| (lane, *stamp)))
        .chain(
            LANES
                .iter()
                .enumerate()
                .rev()
                .flat_map(|(lane, (_, _, back))| back.iter().map(move |stamp| (lane, *stamp))),
        );
    let y_of = |lane: usize| LANE * (lane as f64 + 0.5) + 5.0;
    for (lane, (name, ..)) in LANES.iter().enumerate() {
        let y = y_of(lane);
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.1}\" class=\"name\">{name}</text>\
             <line class=\"grid\" x1=\"{NAMES}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 4.0
        );
    }
    let places: Vec<(f64, f64, &str)> = out_and_back
        .enumerate()
        .map(|(at, (lane, stamp))| (NAMES + STEP * (at as f64 + 0.5), y_of(lane), stamp))
        .collect();
    let path: Vec<String> = places.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(out, "<polyline class=\"line s0\" points=\"{}\"/>", path.join(" "));
    for (x, y, stamp) in places {
        let _ = write!(
            out,
            "<circle class=\"f1\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{stamp}</text>",
            y - 7.0
        );
    }
    out.push_str("</svg>");
    Drawing::Charts(vec![out], vec!["The stamps the nine components are made of.".into()])
}
