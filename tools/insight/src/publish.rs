//! The check as a page of the documentation, with every figure.

use std::fmt::Write;
use trunkline_insight::{Checked, Drawing, Fleet, StudyFigure, basis, check_rows, figures, summary};
use trunkline_plot::standalone;

/// Figures of which the second chart is shown, or another: the first is a heat map, which is too large for a
/// repository, or says less.
const PLACES: [(u8, usize); 11] =
    [(2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (11, 1), (12, 1), (13, 1), (14, 1), (21, 1)];

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
    let pictures = figures(fleet);
    pictures.iter().filter_map(|figure| Some((file(figure.number), standalone(chart(figure)?)))).collect()
}

/// The chart of a figure that is shown; `None` if nothing was drawn.
fn chart(figure: &StudyFigure) -> Option<&String> {
    let Drawing::Charts(charts, _) = &figure.drawing else { return None };
    let wanted = PLACES.iter().find(|(number, _)| *number == figure.number).map_or(0, |(_, place)| *place);
    let drawn = |chart: &&String| !chart.is_empty();
    charts.get(wanted).filter(drawn).or_else(|| charts.iter().find(drawn))
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
    for figure in figures(fleet) {
        let StudyFigure { number, title, ref drawing } = figure;
        let _ = match (chart(&figure), drawing) {
            (Some(_), _) => {
                writeln!(out, "![{title}]({})\n\nFigure {number}. {title}.\n", file(number))
            }
            (None, Drawing::Missing(why)) => writeln!(out, "Figure {number}. {title}: {why}.\n"),
            (None, Drawing::Charts(..)) => writeln!(out, "Figure {number}. {title}: nothing to draw.\n"),
        };
    }
    out += "| figure | target | wanted | got | distance | |\n|---|---|---|---|---|---|\n";
    for row in check_rows(checked) {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}
