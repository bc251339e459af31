//! `trunkline top`: which methods run now.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::{TopRequest, TopResponse};
use crate::admin::top_row;
use crate::keys::Keys;
use crate::table::count;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;
use trunkline::{Status, Wait};
use trunkline_telemetry::{TopRow, render};

/// Clears the screen and goes to its corner (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Lines and columns of a terminal that does not say how many it has.
const SIZE_USUAL: (usize, usize) = (24, 80);

/// Shows pictures until the person leaves, or one.
///
/// # Errors
/// The call's.
pub fn top(client: &AdminClient, interval: Duration, once: bool) -> Result<(), Status> {
    let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
    let mut pictures = client.top(TopRequest { interval_ms }).wait()?;
    let is_terminal = io::stdout().is_terminal();
    let live = is_terminal && !once;
    // From here on `q` leaves; the terminal is as it was when this ends.
    let _keys = live.then(Keys::watch);
    while let Some(picture) = pictures.recv().wait()? {
        let (lines, columns) = if is_terminal { size_of_terminal() } else { (usize::MAX, usize::MAX) };
        let lines = if live { lines } else { usize::MAX };
        let text = picture_text(picture.into_inner(), lines, columns);
        let clear = if live { CLEAR } else { "" };
        // A closed pipe means that nobody looks any more.
        if write!(io::stdout(), "{clear}{text}").and_then(|()| io::stdout().flush()).is_err() || once {
            return Ok(());
        }
    }
    Ok(())
}

/// Lines and columns.
fn size_of_terminal() -> (usize, usize) {
    let size =
        rustix::termios::tcgetwinsize(io::stdout()).map(|size| (size.ws_row.into(), size.ws_col.into()));
    size.ok().filter(|(lines, columns)| *lines > 0 && *columns > 0).unwrap_or(SIZE_USUAL)
}

/// A picture of at most `lines_max` lines and `columns` columns, the busiest methods first.
fn picture_text(picture: TopResponse, lines_max: usize, columns: usize) -> String {
    let mut out = format!(
        "{}: {}, {}, {} in flight\n\n",
        picture.node,
        count(picture.applications.into(), "application"),
        count(picture.peers.into(), "peer"),
        count(picture.calls_in_flight, "call")
    );
    let rows: Vec<TopRow> = picture.rows.into_iter().filter_map(top_row).collect();
    if rows.is_empty() {
        let _ = writeln!(out, "no call ended in the last {}", render::duration(picture.elapsed_ns));
        return out;
    }
    // Two lines above, one heading, and one left for the cursor.
    let shown = rows.len().min(lines_max.saturating_sub(4).max(1));
    out.push_str(&render::top(&rows[..shown], columns));
    out
}

#[cfg(test)]
mod tests {
    //! Shows a picture, and that it fits.
    use super::*;
    use crate::admin::proto;

    fn picture(rows: usize) -> TopResponse {
        let row = |i: usize| proto::TopRow {
            side: proto::Side::Made,
            method: format!("/a.B/C{i}"),
            calls: 10,
            biggest: proto::Component::RequestWire,
            ..proto::TopRow::default()
        };
        TopResponse {
            node: "alpha".into(),
            elapsed_ns: 1_000_000_000,
            applications: 2,
            rows: (0..rows).map(row).collect(),
            ..TopResponse::default()
        }
    }

    #[test]
    fn it_fits() {
        assert_eq!(picture_text(picture(50), 10, 80).lines().count(), 9);
        assert_eq!(picture_text(picture(2), 10, 80).lines().count(), 5);
        assert_eq!(picture_text(picture(50), usize::MAX, usize::MAX).lines().count(), 53);
        assert!(picture_text(picture(2), 24, 80).contains("request wire"));
        let mut long = picture(3);
        for row in &mut long.rows {
            row.method.insert_str(1, "a.long.package.of.a.deep.tree.");
            row.biggest = proto::Component::RequestStack;
        }
        for columns in [80, 100, 120] {
            let text = picture_text(long.clone(), 24, columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
            assert_eq!(text.contains('…'), columns < 120, "{columns}: {text}");
            assert!(text.contains("/C2 "), "methods are told apart: {text}");
        }
        assert!(!picture_text(long, 24, usize::MAX).contains('…'), "a pipe has no width");
    }

    #[test]
    fn an_idle_daemon_says_so() {
        let text = picture_text(picture(0), 24, 80);
        assert_eq!(
            text,
            "alpha: 2 applications, 0 peers, 0 calls in flight\n\nno call ended in the last 1.00 s\n"
        );
    }
}
