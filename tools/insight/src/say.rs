//! Tables on terminals.

use trunkline_insight::words::time;
use trunkline_insight::{Effect, Fleet, FleetDifference, basis};

use crate::args::EffectFigure;

/// Columns as wide as their widest cell: the first to the left, the others to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for row in all() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| {
                let space = " ".repeat(width - cell.chars().count());
                if at == 0 { format!("{cell}{space}") } else { format!("{space}{cell}") }
            })
            .collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    out
}

/// Both readings of Figure 15, or one of them.
pub fn effects(found: &[Effect], only: Option<EffectFigure>) -> String {
    let shows = |definition| only.is_none_or(|only| only == definition);
    let mut head = vec!["component"];
    if shows(EffectFigure::P95Reduction) {
        head.extend(["P95 falls by", "95 % interval"]);
    }
    if shows(EffectFigure::TailEscape) {
        head.extend(["tail escapes", "95 % interval"]);
    }
    let row = |effect: &Effect| {
        let mut cells = vec![effect.component.name().to_owned()];
        let mut add = |value: f64, [low, high]: [f64; 2]| {
            cells.extend([format!("{value:.1} %"), format!("{low:.1} … {high:.1} %")]);
        };
        if shows(EffectFigure::P95Reduction) {
            add(effect.p95_reduction, effect.p95_reduction_interval);
        }
        if shows(EffectFigure::TailEscape) {
            add(effect.tail_escape, effect.tail_escape_interval);
        }
        cells
    };
    table(&head, &found.iter().map(row).collect::<Vec<_>>())
}

/// The component that helps most, or that none is known to.
pub fn verdict(found: &[Effect]) -> String {
    let most = found.iter().max_by(|a, b| a.p95_reduction.total_cmp(&b.p95_reduction));
    match most {
        Some(most) if most.p95_reduction_interval[0] > 0.0 => format!(
            "most would help: {}, P95 −{:.1} % if it were never above its median\n",
            most.component, most.p95_reduction
        ),
        _ => "which component would help most is not known from so few calls\n".to_owned(),
    }
}

/// Completion times before and after a change.
pub fn scaled(found: [[f64; 2]; 4]) -> String {
    let names = ["P50", "P95", "P99", "mean"];
    let rows = names.iter().zip(found).map(|(name, [before, after])| {
        vec![
            (*name).to_owned(),
            time(before),
            time(after),
            format!("{:+.1} %", 100.0 * (after / before - 1.0)),
        ]
    });
    table(&["completion time", "before", "after", "change"], &rows.collect::<Vec<_>>())
}

/// What moved.
pub fn differences(found: &[FleetDifference]) -> String {
    let row = |one: &FleetDifference| {
        let mark = if one.is_real() { "*" } else { "" };
        let change = one.after - one.before;
        let interval = format!("{} … {}", time(one.interval[0]), time(one.interval[1]));
        vec![one.what.clone(), time(one.before), time(one.after), time(change), interval, mark.to_owned()]
    };
    let head = ["mean of", "before", "after", "change", "95 % interval", ""];
    let mut out = table(&head, &found.iter().map(row).collect::<Vec<_>>());
    let moved = found.iter().take(9).filter(|one| one.is_real());
    out += &match moved.max_by(|a, b| (a.after - a.before).abs().total_cmp(&(b.after - b.before).abs())) {
        Some(one) => format!("moved most: {}, by {}\n", one.what, time(one.after - one.before)),
        None => "no component moved by more than chance explains\n".to_owned(),
    };
    out
}

/// What everything rests on.
pub fn footer(fleet: &Fleet, calls: usize) -> String {
    format!("{calls} calls looked at; {}\n", basis(fleet))
}

/// Calls below or above calls by method: name, calls, and percentiles.
pub fn tree(where_to: &str, rows: &[(String, usize, [f64; 4])]) -> String {
    let row = |(name, calls, [p50, p90, p99, mean]): &(String, usize, [f64; 4])| {
        let number = |value: &f64| format!("{value:.0}");
        vec![name.clone(), calls.to_string(), number(p50), number(p90), number(p99), format!("{mean:.1}")]
    };
    let first = format!("calls {where_to} a call of");
    table(&[&first, "calls", "P50", "P90", "P99", "mean"], &rows.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    //! Shows how columns are laid out, and what is said when nothing is known.
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [vec!["a".to_owned(), "1 µs".to_owned()], vec!["bcd".to_owned(), "10 µs".to_owned()]];
        assert_eq!(table(&["n", "time"], &rows), "n     time\na     1 µs\nbcd  10 µs\n");
    }

    #[test]
    fn chance_is_called_chance() {
        assert!(verdict(&[]).contains("not known"));
        assert!(differences(&[]).contains("no component moved"));
    }
}
