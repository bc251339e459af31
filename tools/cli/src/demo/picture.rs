//! Drawings: who is connected to whom, and where the time went.

use super::stage::Host;
use crate::table::count;
use std::fmt::Write;
use trunkline_telemetry::{Explanation, render};

/// Cells of the longest bar.
const BAR_CELLS: f64 = 32.0;
/// Parts of a cell, from none to seven eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The processes and what joins them.
pub fn topology(alpha: &Host, beta: &Host, server_id: u32) -> String {
    let process = |id: u32| format!("process {id}");
    let names = [
        "search-client".into(),
        format!("daemon {}", alpha.node),
        format!("daemon {}", beta.node),
        "search-server".into(),
    ];
    let ids = [String::new(), process(alpha.id), process(beta.id), process(server_id)];
    let edge = "─".repeat(15);
    [
        format!("  ┌{edge}┐        ┌{edge}┐       ┌{edge}┐        ┌{edge}┐"),
        boxes(&names, ["shared", "TCP", "shared"]),
        boxes(&ids, ["◀────▶", "◀───▶", "◀────▶"]),
        format!("  └{edge}┘ memory └{edge}┘       └{edge}┘ memory └{edge}┘"),
    ]
    .join("\n")
}

/// One line of four boxes and the three links between them.
fn boxes(texts: &[String; 4], links: [&str; 3]) -> String {
    let [a, b, c, d] = texts;
    let [ab, bc, cd] = links;
    format!("  │ {a:13} │ {ab:6} │ {b:13} │ {bc:^5} │ {c:13} │ {cd:6} │ {d:13} │")
}

/// The nine components as bars.
pub fn components(explanation: &Explanation) -> String {
    let mut out = String::new();
    let largest = explanation.components.iter().map(|row| row.spread.share_percent).fold(0.0, f64::max);
    for (number, row) in (1..).zip(&explanation.components) {
        let bar = bar(row.spread.share_percent / largest.max(f64::MIN_POSITIVE));
        let [p50, p99] = [row.spread.p50_ns, row.spread.p99_ns].map(render::duration);
        let _ = writeln!(
            out,
            "  {number} {:27} {:>5.1} % {bar:32}  p50 {p50:>8}  p99 {p99:>8}",
            row.component.name(),
            row.spread.share_percent
        );
    }
    let [p50, p90, p99] =
        [explanation.total.p50_ns, explanation.total.p90_ns, explanation.total.p99_ns].map(render::duration);
    let _ = writeln!(
        out,
        "    completion time, {}: p50 {p50}, p90 {p90}, p99 {p99}",
        count(explanation.calls, "call")
    );
    out
}

/// A bar of `share` (0 to 1) of the full length.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR_CELLS * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    //! Shows how long bars are.
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0).chars().count(), 32);
        assert_eq!(bar(2.0).chars().count(), 32);
        assert_eq!(bar(0.5), "█".repeat(16));
        assert_eq!(bar(1.0 / 256.0), "▏");
        assert_eq!(bar(f64::NAN), "");
    }
}
