//! `trunkline top`: which methods run now.
//!
//! On a terminal it fills the screen: `screen.rs` is what is shown and what keys do to it, without a terminal in it,
//! `key.rs` reads keys, `terminal.rs` has the terminal. Elsewhere, and with `--once`, pictures are plain text, or JSON.

mod key;
mod live;
mod screen;
mod terminal;

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::{TopRequest, TopResponse};
use crate::admin::top_row;
use crate::args::TopArgs;
use crate::table::count;
use std::io::{self, IsTerminal, Write as _};
use trunkline::{Status, Wait};
use trunkline_telemetry::{TopRow, render};

/// What there was to see in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
struct Picture {
    node: String,
    applications: u64,
    peers: u64,
    calls_in_flight: u64,
    elapsed_ns: u64,
    rows: Vec<TopRow>,
}

/// Shows pictures until the person leaves, or one. Methods' pages are asked of `pages`.
///
/// # Errors
/// The call's.
pub fn top(client: &AdminClient, pages: &AdminClient, args: &TopArgs) -> Result<(), Status> {
    let interval_ms = u32::try_from(args.interval.as_millis()).unwrap_or(u32::MAX);
    let mut pictures = client.top(TopRequest { interval_ms }).wait()?;
    if !args.once && !args.json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return live::show(pages, pictures);
    }
    while let Some(picture) = pictures.recv().wait()? {
        let picture = Picture::from(picture.into_inner());
        let text = if args.json { picture.json() } else { picture.text() };
        // A closed pipe means that nobody looks any more.
        if write!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()).is_err() || args.once {
            return Ok(());
        }
    }
    Ok(())
}

impl From<TopResponse> for Picture {
    fn from(picture: TopResponse) -> Self {
        Self {
            node: picture.node,
            applications: picture.applications.into(),
            peers: picture.peers.into(),
            calls_in_flight: picture.calls_in_flight,
            elapsed_ns: picture.elapsed_ns,
            rows: picture.rows.into_iter().filter_map(top_row).collect(),
        }
    }
}

impl Picture {
    /// Who is looked at, and what there is beside methods.
    fn head(&self) -> String {
        format!(
            "{}: {}, {}, {} in flight",
            self.node,
            count(self.applications, "application"),
            count(self.peers, "peer"),
            count(self.calls_in_flight, "call")
        )
    }

    fn text(&self) -> String {
        let rows = match &self.rows[..] {
            [] => format!("no call ended in the last {}\n", render::duration(self.elapsed_ns)),
            rows => render::top(rows, usize::MAX),
        };
        format!("{}\n\n{rows}", self.head())
    }

    /// An object in one line.
    fn json(&self) -> String {
        let object = serde_json::json!({
            "node": self.node,
            "applications": self.applications,
            "peers": self.peers,
            "calls_in_flight": self.calls_in_flight,
            "elapsed_ns": self.elapsed_ns,
            "methods": self.rows,
        });
        format!("{object}\n")
    }
}

#[cfg(test)]
mod tests {
    //! Shows a picture as text and as JSON.
    use super::*;
    use crate::admin::proto;

    fn picture(rows: usize) -> Picture {
        let row = |i: usize| proto::TopRow {
            side: proto::Side::Made,
            method: format!("/a.B/C{i}"),
            calls: 10,
            biggest: proto::Component::RequestWire,
            ..proto::TopRow::default()
        };
        Picture::from(TopResponse {
            node: "alpha".into(),
            elapsed_ns: 1_000_000_000,
            applications: 2,
            rows: (0..rows).map(row).collect(),
            ..TopResponse::default()
        })
    }

    #[test]
    fn all_of_it_is_there() {
        let text = picture(50).text();
        assert_eq!(text.lines().count(), 53);
        assert!(text.contains("/a.B/C49") && text.contains("request wire"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&picture(2).json()).unwrap();
        assert_eq!((&json["node"], &json["methods"][1]["method"]), (&"alpha".into(), &"/a.B/C1".into()));
        assert_eq!(picture(2).json().lines().count(), 1, "an object a line");
    }

    #[test]
    fn an_idle_daemon_says_so() {
        assert_eq!(
            picture(0).text(),
            "alpha: 2 applications, 0 peers, 0 calls in flight\n\nno call ended in the last 1.00 s\n"
        );
    }
}
