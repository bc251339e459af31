//! The check as a page of the documentation, with every figure.

use std::fmt::Write;
use trunkline_insight::{
    Checked, Drawing, DrivenCalls, Fleet, StudyFigure, basis, check_rows, figures, summary,
};
use trunkline_plot::standalone;

/// Figures of which the second chart is shown, or another: the first is a heat map, which is too large for a
/// repository, or says less.
const PLACES: [(u8, usize); 11] =
    [(2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (11, 1), (12, 1), (13, 1), (14, 1), (21, 1)];

/// What stands above everything else on the page of a generated fleet.
const GENERATED: &str = "\
**Generated, not measured.** `trunkline synth` drew these records from the distributions that the cloud-scale study
published (`tools/insight/data/fleet.toml`); nobody made these calls. What is shown is that records, weights, file and
figures carry what was put into them, that the study's numbers can be had together, and which of them cannot.

```
trunkline synth --methods 300 -o fleet.rec
trunkline characterize fleet.rec --check --publish docs/measured
```

";

/// What stands above a page of calls made by `trunkline drive`; words in capitals are replaced.
const DRIVEN: &str = "\
**Measured, in HOSTS daemons on one machine.** `trunkline drive` made the calls of [the generated fleet](fleet.md) once
more, through real daemons, and their recorder recorded them: CALLERS has `recorder.traces = true` and
`recorder.sample = 1`. The calls of a method and outcome stand together for as many as those of the generated fleet.

```
trunkline synth --methods 300 --calls 200 -o fleet.rec
DRIVE
trunkline characterize FILES --check --publish docs/measured
```

";

/// The same for these calls.
fn made_by(fleet: &Fleet, driven: &DrivenCalls) -> String {
    let servers = "--server-socket beta.sock --to tcp://127.0.0.1:7878";
    let options = options(driven);
    let clusters = fleet.clusters();
    let (hosts, callers, drive, files) = if clusters.len() < 2 {
        let drive = format!(
            "trunkline --socket alpha.sock drive fleet.rec {servers} \\\n    {options} -o driven.rec"
        );
        ("two".to_owned(), "the daemon of the callers", drive, "driven.rec")
    } else {
        let one = |cluster: &&str| format!("    --caller {cluster}={cluster}.sock \\\n");
        let callers: String = clusters.iter().map(one).collect();
        let drive = format!("trunkline drive fleet.rec {servers} \\\n{callers}    {options} -o driven.rec");
        let hosts = (clusters.len() + 1).to_string();
        (hosts, "the daemon of the callers of each cluster", drive, "driven.rec")
    };
    [("HOSTS", &*hosts), ("CALLERS", callers), ("DRIVE", &drive), ("FILES", files)]
        .iter()
        .fold(DRIVEN.to_owned(), |text, (word, put)| text.replace(word, put))
}

/// The options of `trunkline drive` that these were made with, as far as the file says.
fn options(driven: &DrivenCalls) -> String {
    let DrivenCalls {
        time_scale,
        below_max,
        message_bytes_max,
        work,
        method_below_max,
        rate,
        in_flight_max,
        planted,
        queues_apart: _,
    } = driven;
    let mut options = format!(
        "--time-scale {time_scale} --work {work} --below-max {below_max} --message-bytes-max {message_bytes_max}"
    );
    if *method_below_max > 0 {
        options.push_str(&format!(" \\\n    --method-below-max {method_below_max}"));
    }
    if *rate > 0.0 {
        options.push_str(&format!(" --rate {rate}/s --in-flight-max {in_flight_max}"));
    }
    if *planted {
        options.push_str(" --plant");
    }
    options
}

/// What the page and its pictures are called.
pub fn name(fleet: &Fleet) -> &'static str {
    if fleet.driven().is_some() { "driven" } else { "fleet" }
}

/// The pictures, each with its file's name.
pub fn pictures(fleet: &Fleet) -> Vec<(String, String)> {
    let pictures = figures(fleet);
    let of = |figure: &StudyFigure| Some((file(fleet, figure.number), standalone(chart(figure)?)));
    pictures.iter().filter_map(of).collect()
}

/// The chart of a figure that is shown; `None` if nothing was drawn.
fn chart(figure: &StudyFigure) -> Option<&String> {
    let Drawing::Charts(charts, _) = &figure.drawing else { return None };
    let wanted = PLACES.iter().find(|(number, _)| *number == figure.number).map_or(0, |(_, place)| *place);
    let drawn = |chart: &&String| !chart.is_empty();
    charts.get(wanted).filter(drawn).or_else(|| charts.iter().find(drawn))
}

fn file(fleet: &Fleet, number: u8) -> String {
    format!("{}-{number:02}.svg", name(fleet))
}

/// The page.
pub fn page(fleet: &Fleet, checked: &[Checked]) -> String {
    let title = match fleet.driven() {
        Some(_) => "A generated fleet through real daemons",
        None => "A generated fleet beside the published figures",
    };
    let mut out = format!("# {title}\n\n");
    if fleet.is_generated() {
        out += GENERATED;
    }
    if let Some(driven) = fleet.driven() {
        out += &made_by(fleet, &driven);
        out += &format!("{}\n\n", driven.words());
    }
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}\n\n{}.\n", summary(checked), basis(fleet));
    for figure in figures(fleet) {
        let StudyFigure { number, title, ref drawing } = figure;
        let _ = match (chart(&figure), drawing) {
            (Some(_), _) => {
                writeln!(out, "![{title}]({})\n\nFigure {number}. {title}.\n", file(fleet, number))
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
