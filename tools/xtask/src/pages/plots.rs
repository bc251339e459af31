//! Plots of the benchmarks' page, from the tables of the last runs, as SVG.

use crate::Tree;
use std::fmt::Write;

/// A bar for each row of a table: the file, what it shows, the run, the table's heading, the column.
struct Plot {
    file: &'static str,
    title: &'static str,
    run: &'static str,
    heading: &'static str,
    column: &'static str,
}

const PLOTS: [Plot; 5] = [
    Plot {
        file: "docs/plots/latency.svg",
        title: "64 B there, 8 B back, one call at a time: p50, µs (less is better)",
        run: "docs/measured/all.md",
        heading: "### Latency: 64 B request",
        column: "p50 µs",
    },
    Plot {
        file: "docs/plots/rate.svg",
        title: "128 calls outstanding: calls/s (more is better)",
        run: "docs/measured/all.md",
        heading: "### Rate: 64 B request",
        column: "calls/s",
    },
    Plot {
        file: "docs/plots/goodput.svg",
        title: "Requests of 128 KiB: Gbit/s (more is better)",
        run: "docs/measured/all.md",
        heading: "### Goodput: large requests",
        column: "128 KiB",
    },
    Plot {
        file: "docs/plots/grpc.svg",
        title: "gRPC on the wire, one call at a time: p50, µs (less is better)",
        run: "docs/measured/all.md",
        heading: "### gRPC, latency",
        column: "p50 µs",
    },
    Plot {
        file: "docs/plots/balancing.svg",
        title: "Sixteen workers at 90 % load, bimodal service: p99, ms (less is better)",
        run: "docs/measured/r2p2.md",
        heading: "### 90 %, bimodal",
        column: "p99 ms",
    },
];

const WIDTH: f64 = 760.0;
const NAMES: f64 = 230.0;
const VALUES: f64 = 90.0;
const BAR: f64 = 22.0;
const TOP: f64 = 30.0;

/// Every plot whose run is there, by path.
pub fn plots(tree: &Tree) -> Vec<(String, String)> {
    let plot = |plot: &Plot| {
        let rows = rows(tree.documents.get(plot.run)?, plot)?;
        Some((plot.file.to_owned(), svg(plot.title, &rows)))
    };
    PLOTS.iter().filter_map(plot).collect()
}

/// Names and values of a column of the table below a heading.
fn rows(run: &str, plot: &Plot) -> Option<Vec<(String, f64)>> {
    let below = run.lines().skip_while(|line| !line.starts_with(plot.heading)).skip(1);
    let table = below.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let mut lines = table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let column = lines.next()?.iter().position(|name| *name == plot.column)?;
    let row = |cells: Vec<&str>| {
        let value = cells.get(column)?.split(' ').next()?.replace(',', "").parse().ok()?;
        Some(((*cells.first()?).to_owned(), value))
    };
    let rows: Vec<_> = lines.skip(1).filter_map(row).collect();
    (!rows.is_empty()).then_some(rows)
}

fn svg(title: &str, rows: &[(String, f64)]) -> String {
    let most = rows.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + BAR * rows.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"0\" y=\"18\" font-weight=\"bold\">{0}</text>\n",
        escaped(title)
    );
    for (index, (name, value)) in rows.iter().enumerate() {
        let top = TOP + BAR * index as f64;
        let is_ours = ["trunkline", "jbsq", "cpp-to-trunkline"].iter().any(|ours| name.starts_with(ours));
        let is_limit = ["chain", "tcp", "bound"].iter().any(|limit| name.starts_with(limit));
        let colour = if is_ours { "#1764ab" } else { ["#d2691e", "#999999"][usize::from(is_limit)] };
        let (length, text) = ((WIDTH - NAMES - VALUES) * value / most, top + 15.0);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{text}\">{}</text>\
             <rect x=\"{NAMES}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text}\">{}</text>",
            escaped(name),
            top + 2.0,
            NAMES + length + 6.0,
            shown(*value)
        );
    }
    svg + "</svg>\n"
}

fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    //! The longest bar is the largest value's, and a table that is not there has no plot.
    use super::*;

    #[test]
    fn a_table_becomes_bars() {
        let run = "### Latency: 64 B request, x\n\n| peer | p50 µs |\n|---|---|\n| tcp | 50.0 (1–2) |\n\
                   | a&b | 1,00 |\n";
        let plots = plots(&Tree::of([("docs/measured/all.md", run)]));
        assert_eq!(plots.len(), 1, "{plots:?}");
        let (path, svg) = &plots[0];
        assert_eq!(path, "docs/plots/latency.svg");
        assert!(
            svg.contains("a&amp;b") && svg.contains("width=\"440.0\"") && svg.contains("width=\"220.0\""),
            "{svg}"
        );
    }
}
