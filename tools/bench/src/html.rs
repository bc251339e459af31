//! The report as one page that needs nothing else: tables of marks, and plots as inline SVG.

use crate::connections::Held;
use crate::marks::Mark;
use crate::report::Report;
use crate::sections::{Figure, Row, Section, Shape};
use crate::split::{self, Plot};
use crate::stats::{Spread, short};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto}\
 table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}\
 .yes{color:#176b2c}.no{color:#a01515;font-weight:600}svg{display:block;margin:.5rem 0 1.5rem}\
 svg text{font:12px system-ui,sans-serif;fill:#222}footer{color:#666;font-size:13px}";

/// Of bars and lines, by place of the peer in its section.
const COLOURS: [&str; 12] = [
    "#888888", "#1764ab", "#d2691e", "#bbbbbb", "#2a9d4a", "#7a5195", "#c23b5e", "#e0a030", "#3aa6a0",
    "#5c4033", "#4f6d7a", "#b38867",
];

const WIDTH: f64 = 860.0;
const NAME_WIDTH: f64 = 190.0;
const VALUE_WIDTH: f64 = 190.0;
const BAR: f64 = 22.0;

/// The page.
pub fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Trunkline measured</title>\
         <style>{STYLE}</style><h1>Trunkline measured</h1>"
    );
    page += &marks(&report.marks);
    for section in Section::ALL {
        let rows: Vec<&Row> = report.of(section).collect();
        if rows.is_empty() {
            continue;
        }
        page += &format!("<h2>{}</h2>", escape(section.title()));
        match section.shape() {
            Shape::Sized(figure) => page += &lines(section, &rows, figure),
            Shape::Small => {
                for figure in figures(section) {
                    page += &format!("<h3>{}</h3>{}", escape(figure.name()), bars(&rows, *figure));
                }
            }
        }
    }
    for Plot { title, lines } in split::plots(&report.split) {
        page += &format!("<h3>{}</h3>{}", escape(&title), curves(&lines));
    }
    for extra in report.extras() {
        page += &format!("<pre>{}</pre>", escape(&extra));
    }
    page += &connections(&report.connections);
    if let Some(dispatching) = &report.dispatching {
        page += &dispatching.html();
    }
    page += &footer(report);
    page
}

fn figures(section: Section) -> &'static [Figure] {
    if section.is_rate() {
        &[Figure::CallsPerSecond, Figure::CpuUsPerCall]
    } else {
        &[Figure::P50Us, Figure::P99Us, Figure::CpuUsPerCall]
    }
}

fn marks(marks: &[Mark]) -> String {
    let mut table = "<table><tr><th>target<th>what<th>wanted<th>median (least–most)<th></tr>".to_owned();
    for mark in marks {
        let (class, verdict) = match mark.reached {
            Some(true) => ("yes", "reached"),
            Some(false) => ("no", "not reached"),
            None => ("", ""),
        };
        let (what, measured) = (escape(&mark.what), mark.measured);
        let _ = write!(
            table,
            "<tr><td>{}<td>{what}<td>{}<td>{measured}<td class={class}>{verdict}</tr>",
            mark.target, mark.wanted
        );
    }
    table + "</table>"
}

/// A bar for each peer's median, a whisker from the least to the most round.
fn bars(rows: &[&Row], figure: Figure) -> String {
    let spreads: Vec<(&Row, Spread)> =
        rows.iter().filter_map(|row| Some((*row, Spread::of(row.values(figure))?))).collect();
    let most = spreads.iter().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - NAME_WIDTH - VALUE_WIDTH) / most;
    let height = BAR * spreads.len() as f64;
    let mut svg = format!("<svg width=\"{WIDTH}\" height=\"{height}\" role=\"img\">");
    for (index, (row, spread)) in spreads.iter().enumerate() {
        let (top, colour) = (BAR * index as f64, COLOURS[index % COLOURS.len()]);
        let (middle, text) = (top + BAR / 2.0, top + BAR * 0.7);
        let at = |value: f64| NAME_WIDTH + value * scale;
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{text}\">{}</text>\
             <rect x=\"{NAME_WIDTH}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"/>\
             <line x1=\"{}\" x2=\"{}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#000\"/>\
             <text x=\"{}\" y=\"{text}\">{spread}</text>",
            row.peer.name(),
            top + 3.0,
            spread.median * scale,
            BAR - 6.0,
            at(spread.least),
            at(spread.most),
            at(spread.most) + 8.0,
        );
    }
    svg + "</svg>"
}

/// A figure over sizes: one line for each peer.
fn lines(section: Section, rows: &[&Row], figure: Figure) -> String {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let name = row.peer.name();
        let Some(spread) = Spread::of(row.values(figure)) else { continue };
        let point = (section.size(row.order), spread.median);
        match lines.iter_mut().find(|(other, _)| other == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name.to_owned(), vec![point])),
        }
    }
    curves(&lines)
}

/// A name, and where it is at each step.
type Line = (String, Vec<(String, f64)>);

/// Lines over steps at equal distances, because each is a multiple of the one before.
fn curves(lines: &[Line]) -> String {
    const HEIGHT: f64 = 320.0;
    const FOOT: f64 = 30.0;
    let mut steps: Vec<&str> = Vec::new();
    for (step, _) in lines.iter().flat_map(|(_, points)| points) {
        if !steps.contains(&step.as_str()) {
            steps.push(step);
        }
    }
    let most = lines.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
    let most = most.fold(f64::MIN_POSITIVE, f64::max);
    let width = (WIDTH - NAME_WIDTH - 60.0) / (steps.len().max(2) - 1) as f64;
    let x = |step: &str| 40.0 + width * steps.iter().position(|other| *other == step).unwrap_or(0) as f64;
    let y = |value: f64| (HEIGHT - FOOT) * (1.0 - value / most) + 10.0;
    let mut svg = format!("<svg width=\"{WIDTH}\" height=\"{}\" role=\"img\">", HEIGHT + 10.0);
    for step in &steps {
        let _ = write!(svg, "<text x=\"{}\" y=\"{HEIGHT}\">{}</text>", x(step) - 20.0, escape(step));
    }
    for value in [0.0, most / 2.0, most] {
        let at = y(value);
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{}</text><line x1=\"40\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#ddd\"/>",
            at + 4.0,
            short(value),
            WIDTH - NAME_WIDTH - 20.0
        );
    }
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: String =
            points.iter().map(|(step, value)| format!("{:.1},{:.1} ", x(step), y(*value))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{}\" style=\"fill:{colour}\">{}</text>",
            WIDTH - NAME_WIDTH,
            20.0 + 18.0 * index as f64,
            escape(name)
        );
    }
    svg + "</svg>"
}

fn connections(held: &[Held]) -> String {
    let Some(Held { connections, .. }) = held.first() else { return String::new() };
    let mut table =
        format!("<h2>{connections} idle gRPC connections</h2><table><tr><th>server<th>KiB each</tr>");
    for Held { server, bytes_each, .. } in held {
        let each = match bytes_each {
            Ok(bytes) => short(bytes / 1024.0),
            Err(why) => format!("absent: {}", escape(why)),
        };
        let _ = write!(table, "<tr><td>{server}<td>{each}</tr>");
    }
    table + "</table>"
}

fn footer(report: &Report) -> String {
    let about = &report.about;
    let mut text = format!(
        "<footer><p>{} · {} rounds of {} ms · {}, {} cores, Linux {} · load {} → {} · {}</p>",
        escape(&about.command),
        about.plan.rounds,
        about.plan.round_millis,
        escape(&about.machine),
        about.cores,
        escape(&about.kernel),
        about.load[0],
        about.load[1],
        escape(&about.versions.join(" · "))
    );
    if let Some(idle) = &report.idle {
        let _ = write!(
            text,
            "<p>{} idle applications: daemon {} % of a core</p>",
            idle.applications,
            short(idle.daemon_cpu_percent)
        );
    }
    for absent in &report.absent {
        let _ = write!(text, "<p>Absent: {} ({})</p>", absent.peer.name(), escape(&absent.reason));
    }
    text + "</footer></html>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
