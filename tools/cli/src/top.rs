//! `trunkline top`: which methods run now.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::{TopRequest, TopResponse};
use crate::admin::top_row;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;
use trunkline::{Status, Wait};
use trunkline_telemetry::{TopRow, render};

/// Clears the screen and goes to its corner (ECMA-48: ED, CUP).
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Lines shown when the terminal does not say how many it has.
const LINES_USUAL: usize = 24;

/// Shows pictures until the person leaves, or one.
///
/// # Errors
/// The call's.
pub fn top(client: &AdminClient, interval: Duration, once: bool) -> Result<(), Status> {
    let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
    let mut pictures = client.top(TopRequest { interval_ms }).wait()?;
    while let Some(picture) = pictures.recv().wait()? {
        let live = io::stdout().is_terminal() && !once;
        let lines = if live { lines_of_terminal() } else { usize::MAX };
        let text = picture_text(picture.into_inner(), lines);
        let clear = if live { CLEAR } else { "" };
        // A closed pipe means that nobody looks any more.
        if write!(io::stdout(), "{clear}{text}").and_then(|()| io::stdout().flush()).is_err() || once {
            return Ok(());
        }
    }
    Ok(())
}

fn lines_of_terminal() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(LINES_USUAL, |size| size.ws_row.into())
}

/// A picture of at most `lines_max` lines, the busiest methods first.
fn picture_text(picture: TopResponse, lines_max: usize) -> String {
    let mut out = format!(
        "{}: {} applications, {} peers, {} calls in flight\n\n",
        picture.node, picture.applications, picture.peers, picture.calls_in_flight
    );
    let rows: Vec<TopRow> = picture.rows.into_iter().filter_map(top_row).collect();
    if rows.is_empty() {
        let _ = writeln!(out, "no call ended in the last {}", render::duration(picture.elapsed_ns));
        return out;
    }
    // Two lines above, one heading, and one left for the cursor.
    let shown = rows.len().min(lines_max.saturating_sub(4).max(1));
    out.push_str(&render::top(&rows[..shown]));
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
        assert_eq!(picture_text(picture(50), 10).lines().count(), 9);
        assert_eq!(picture_text(picture(2), 10).lines().count(), 5);
        assert_eq!(picture_text(picture(50), usize::MAX).lines().count(), 53);
        assert!(picture_text(picture(2), 24).contains("request wire"));
    }

    #[test]
    fn an_idle_daemon_says_so() {
        let text = picture_text(picture(0), 24);
        assert_eq!(
            text,
            "alpha: 2 applications, 0 peers, 0 calls in flight\n\nno call ended in the last 1.00 s\n"
        );
    }
}
