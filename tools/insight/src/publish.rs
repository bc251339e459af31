//! The check as a page of the documentation, with a few of the figures.

use std::fmt::Write;
use trunkline_insight::{Checked, Drawing, Fleet, basis, check_rows, figures, summary};
use trunkline_plot::standalone;

/// A figure, which of its charts, and what stands beneath it. Heat maps are too large for a repository.
const SHOWN: [(u8, usize, &str); 8] = [
    (2, 1, "Completion time: percentiles of methods' calls over methods"),
    (3, 1, "Calls and time, methods by their median, fastest first"),
    (4, 1, "Calls below a call"),
    (7, 1, "Response size ÷ request size"),
    (8, 0, "Services by calls"),
    (10, 0, "Application and latency tax"),
    (15, 0, "What if one component were never above its median"),
    (23, 0, "Errors"),
];

/// What stands above everything else on the page of a generated fleet.
const GENERATED: &str = "\
**Generated, not measured.** `trunkline synth` drew these records from the distributions that the cloud-scale study
published (`tools/insight/data/fleet.toml`); nobody made these calls. What is shown is that records, weights, file and
figures carry what was put into them, and where the study's figures cannot be had together.

```
trunkline synth --methods 300 -o fleet.rec
trunkline characterize fleet.rec --check --publish docs/measured
```

";

/// The pictures, each with its file's name.
pub fn pictures(fleet: &Fleet) -> Vec<(String, String)> {
    let figures = figures(fleet);
    let picture = |(number, place, _): &(u8, usize, &str)| {
        let figure = figures.iter().find(|figure| figure.number == *number)?;
        let Drawing::Charts(charts, _) = &figure.drawing else { return None };
        let chart = charts.get(*place).filter(|chart| !chart.is_empty())?;
        Some((file(*number), standalone(chart)))
    };
    SHOWN.iter().filter_map(picture).collect()
}

fn file(number: u8) -> String {
    format!("fleet-{number:02}.svg")
}

/// The page.
pub fn page(fleet: &Fleet, checked: &[Checked]) -> String {
    let mut out = String::from("# A generated fleet beside the published figures\n\n");
    if fleet.is_generated() {
        out += GENERATED;
    }
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}\n\n{}.\n", summary(checked), basis(fleet));
    for (number, _, words) in SHOWN {
        let _ = writeln!(out, "![{words}]({})\n\nFigure {number}. {words}.\n", file(number));
    }
    out += "| figure | target | wanted | got | distance | |\n|---|---|---|---|---|---|\n";
    for row in check_rows(checked) {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}
