//! What there was to see in one interval, as text and as JSON.

use crate::admin::proto::TopResponse;
use crate::admin::top_row;
use crate::table::count;
use trunkline_telemetry::{TopRow, render};

/// What there was to see in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// The daemon.
    pub node: String,
    /// Attached to it.
    pub applications: u64,
    /// Connections to others.
    pub peers: u64,
    /// Calls that were under way at the end.
    pub calls_in_flight: u64,
    /// The interval.
    pub elapsed_ns: u64,
    /// Methods with calls.
    pub rows: Vec<TopRow>,
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
    pub fn head(&self) -> String {
        format!(
            "{}: {}, {}, {} in flight",
            self.node,
            count(self.applications, "application"),
            count(self.peers, "peer"),
            count(self.calls_in_flight, "call")
        )
    }

    /// All of it.
    pub fn text(&self) -> String {
        let rows = match &self.rows[..] {
            [] => format!("no call ended in the last {}\n", render::duration(self.elapsed_ns)),
            rows => render::top(rows, usize::MAX),
        };
        format!("{}\n\n{rows}", self.head())
    }

    /// An object in one line.
    pub fn json(&self) -> String {
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
