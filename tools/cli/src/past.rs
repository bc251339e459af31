//! `trunkline explain --last 10m --vs 1h-ago`: calls of a time beside those of another.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::{HistoryRequest, HistoryResponse, HistoryRow, Percentile, Side};
use crate::table::{Table, count};
use serde_json::{Value, json};
use std::time::Duration;
use trunkline::{Status, Wait};
use trunkline_telemetry::render::duration;
use trunkline_telemetry::{Component, MeanInterval};

/// The time looked at where only another is named.
pub const USUAL: Duration = Duration::from_secs(600);

/// What two times have of one side's calls.
struct Sides<'a> {
    now: &'a HistoryRow,
    then: Option<&'a HistoryRow>,
}

/// Asks and prints.
///
/// # Errors
/// The call's; NOT_FOUND if nothing is known of the time.
pub fn explain(
    client: &AdminClient,
    method: &str,
    last: Duration,
    ago: Option<Duration>,
    as_json: bool,
) -> Result<(), Status> {
    let now = ask(client, method, last, Duration::ZERO)?;
    let then = ago.map(|ago| ask(client, method, ago + last, ago)).transpose()?;
    match as_json {
        true => println!("{:#}", json!({"now": time_json(&now), "then": then.as_ref().map(time_json)})),
        false => print!("{}", text(method, &now, then.as_ref())),
    }
    Ok(())
}

/// A time as JSON: names and units are in the keys.
fn time_json(answer: &HistoryResponse) -> Value {
    let HistoryResponse { from_ago_ms, to_ago_ms, rows, reaches_ms, is_incomplete } = answer;
    let percentile = |one: &Percentile| {
        let Percentile { share, ns, low_ns, high_ns } = one;
        json!({"share": share, "ns": ns, "interval_ns": [low_ns, high_ns]})
    };
    let row = |row: &HistoryRow| {
        let mean = |(name, mean): (&str, MeanInterval)| {
            let ends = [mean.ns - mean.half_width_ns, mean.ns + mean.half_width_ns];
            json!({"name": name, "mean_ns": mean.ns, "interval_ns": ends})
        };
        let named = Component::ALL.map(Component::label).into_iter().chain(["remote"]);
        json!({
            "side": name(row.side),
            "calls": row.calls,
            "errors": row.errors,
            "completion_time": row.percentiles.iter().map(percentile).collect::<Vec<_>>(),
            "components": named.zip(means(row)).map(mean).collect::<Vec<_>>(),
        })
    };
    json!({
        "from_ago_ms": from_ago_ms,
        "to_ago_ms": to_ago_ms,
        "reaches_ms": reaches_ms,
        "is_incomplete": is_incomplete,
        "sides": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The nine and what is not divided. A daemon that says nothing of how sure they are is of an earlier version.
fn means(row: &HistoryRow) -> Vec<MeanInterval> {
    let half_widths = row.component_half_width_ns.iter().copied().chain(std::iter::repeat(0.0));
    let nine = row.component_mean_ns.iter().zip(half_widths);
    let nine = nine.map(|(ns, half_width_ns)| MeanInterval { ns: *ns, half_width_ns });
    let remote = MeanInterval { ns: row.remote_mean_ns, half_width_ns: row.remote_half_width_ns };
    nine.chain([remote]).collect()
}

fn ask(client: &AdminClient, method: &str, from: Duration, to: Duration) -> Result<HistoryResponse, Status> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (from_ago_ms, to_ago_ms) = (ms(from), ms(to));
    let request = HistoryRequest { method: method.to_owned(), from_ago_ms, to_ago_ms };
    let answer = client.history(request).wait()?.into_inner();
    if answer.from_ago_ms == 0 {
        let reaches = shown_ms(answer.reaches_ms);
        let why = format!("nothing is known of that time: the history of this daemon reaches back {reaches}");
        return Err(Status::not_found(why));
    }
    Ok(answer)
}

/// All sides that have calls now.
fn text(method: &str, now: &HistoryResponse, then: Option<&HistoryResponse>) -> String {
    let what = if method.is_empty() { "all methods" } else { method };
    let mut text = format!("{what}, from {} ago to {}", shown_ms(now.from_ago_ms), end(now));
    if let Some(then) = then {
        text += &format!(", beside from {} ago to {}", shown_ms(then.from_ago_ms), end(then));
    }
    text.push('\n');
    for row in &now.rows {
        let of_side = |then: &'_ HistoryResponse| then.rows.iter().position(|other| other.side == row.side);
        let index = then.and_then(of_side);
        let sides = Sides { now: row, then: then.zip(index).and_then(|(then, index)| then.rows.get(index)) };
        text += &side(&sides, then.is_some());
    }
    let is_incomplete = now.is_incomplete || then.is_some_and(|then| then.is_incomplete);
    match (now.rows.is_empty(), is_incomplete) {
        (true, false) => text += "no call has ended in that time\n",
        (true, true) => text += "no call is known of that time, and some may have been: ",
        (false, true) => text += "\ncalls may be missing: ",
        (false, false) => {}
    }
    if is_incomplete {
        text += "in a part of it other methods were the busiest, and only those are told apart\n";
    }
    text
}

fn end(answer: &HistoryResponse) -> String {
    if answer.to_ago_ms < 1000 { "now".into() } else { format!("{} ago", shown_ms(answer.to_ago_ms)) }
}

fn side(sides: &Sides<'_>, compares: bool) -> String {
    let Sides { now, then } = sides;
    let said = |row: &HistoryRow| format!("{}, {} failed", count(row.calls, "call"), row.errors);
    let mut text = format!("\n{}: {}", name(now.side), said(now));
    if compares {
        text += &format!("; then {}", then.map_or_else(|| "none".into(), said));
    }
    text.push('\n');
    let mut table = match compares {
        true => Table::new(&["", "now", "95 % interval", "then", "95 % interval", ""], &[1, 2, 3, 4]),
        false => Table::new(&["", "now", "95 % interval"], &[1, 2]),
    };
    for percentile in &now.percentiles {
        let before =
            then.and_then(|then| then.percentiles.iter().find(|other| other.share == percentile.share));
        let mut cells = vec![format!("p{:.0}", percentile.share * 100.0)];
        cells.extend(interval(percentile));
        cells.extend(before.map(interval).into_iter().flatten());
        if before.is_some_and(|before| is_apart(percentile, before)) {
            cells.push("*".into());
        }
        table.row(cells);
    }
    text += &table.to_string();
    text + &components(sides)
}

/// Means of components over all calls.
fn components(sides: &Sides<'_>) -> String {
    let Sides { now, then } = sides;
    let mut table = match then {
        Some(_) => Table::new(&["mean of", "now", "95 %", "then", "95 %", "change", ""], &[1, 2, 3, 4, 5]),
        None => Table::new(&["mean of", "now", "95 %"], &[1, 2]),
    };
    let before = then.map(means);
    let names = Component::ALL.map(Component::name).into_iter().chain(["remote (not divided)"]);
    for (at, (name, mean)) in names.zip(means(now)).enumerate() {
        let before = before.as_ref().and_then(|before| before.get(at));
        if mean.ns == 0.0 && before.is_none_or(|before| before.ns == 0.0) {
            continue;
        }
        let shown = |mean: &MeanInterval| {
            [duration(mean.ns as u64), format!("± {}", duration(mean.half_width_ns as u64))]
        };
        let mut cells = vec![name.to_owned()];
        cells.extend(shown(&mean));
        if let Some(before) = before {
            let change = mean.ns - before.ns;
            let sign = if change < 0.0 { "-" } else { "+" };
            cells.extend(shown(before));
            cells.push(format!("{sign}{}", duration(change.abs() as u64)));
            if !mean.overlaps(before) {
                cells.push("*".into());
            }
        }
        table.row(cells);
    }
    table.to_string()
}

fn interval(percentile: &Percentile) -> [String; 2] {
    let Percentile { ns, low_ns, high_ns, .. } = percentile;
    [duration(*ns), format!("{} … {}", duration(*low_ns), duration(*high_ns))]
}

/// Chance alone does not explain that they differ.
fn is_apart(now: &Percentile, then: &Percentile) -> bool {
    now.low_ns > then.high_ns || then.low_ns > now.high_ns
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Made => "made here",
        Side::Served => "served here",
        _ => "attempts made here",
    }
}

fn shown_ms(ms: u64) -> String {
    match ms / 1000 {
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is said of two times, and what is marked.
    use super::*;

    fn answer(ms: [u64; 2], ns: u64, server_ns: f64) -> HistoryResponse {
        let mut component_mean_ns = vec![0.0; Component::COUNT];
        component_mean_ns[Component::ServerApplication as usize] = server_ns;
        let percentile = |share| Percentile { share, ns, low_ns: ns - 100, high_ns: ns + 100 };
        let row = HistoryRow {
            side: Side::Made,
            calls: 1000,
            errors: 3,
            percentiles: [0.5, 0.95].map(percentile).to_vec(),
            component_mean_ns,
            component_half_width_ns: vec![100.0; Component::COUNT],
            ..HistoryRow::default()
        };
        HistoryResponse {
            from_ago_ms: ms[0],
            to_ago_ms: ms[1],
            rows: vec![row],
            reaches_ms: 10_000_000,
            is_incomplete: false,
        }
    }

    #[test]
    fn calls_that_may_be_missing_are_not_said_to_be_none() {
        let sound = answer([600_000, 0], 2_000, 900.0);
        let lacking = HistoryResponse { is_incomplete: true, ..sound.clone() };
        let nothing = |of: &HistoryResponse| HistoryResponse { rows: Vec::new(), ..of.clone() };
        assert!(text("a", &nothing(&sound), None).contains("no call has ended in that time"));
        assert!(text("a", &nothing(&lacking), None).contains("some may have been"));
        assert!(text("a", &sound, Some(&lacking)).contains("calls may be missing"));
        assert!(!text("a", &sound, Some(&sound)).contains("missing"));
    }

    #[test]
    fn two_times_are_told_beside_each_other() {
        let (now, then) = (answer([600_000, 0], 2_000, 900.0), answer([4_200_000, 3_600_000], 1_000, 400.0));
        let told = text("Search/Query", &now, Some(&then));
        for part in [
            "Search/Query, from 10 min ago to now, beside from 70 min ago to 60 min ago\n",
            "made here: 1000 calls, 3 failed; then 1000 calls, 3 failed\n",
            "server application",
            "+500 ns",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(
            told.lines().filter(|line| line.ends_with('*')).count(),
            3,
            "two percentiles, one mean: {told}"
        );
        assert!(told.contains("± 100 ns"), "{told}");
        let json = time_json(&now);
        assert_eq!(json["sides"][0]["components"][4]["interval_ns"], json!([800.0, 1000.0]), "{json}");
        let same = text("", &now, Some(&now));
        assert!(!same.contains('*') && same.contains("+0"), "{same}");
        let alone = text("", &now, None);
        assert!(
            alone.starts_with("all methods, from 10 min ago to now\n") && !alone.contains("then"),
            "{alone}"
        );
    }
}
