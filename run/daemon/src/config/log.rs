//! `[log]`: what is logged.

use serde::{Deserialize, Serialize};

/// `[log]`: what is logged, to standard error.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Lowest level logged, or directives as `TRUNKLINE_LOG` takes them: `info,trunkline_daemon=debug`.
    pub level: String,
    /// Lines for people or objects for machines.
    pub format: LogFormat,
    /// Lines of one kind logged a second, after as many as in five seconds at once. Zero: any number.
    pub lines_per_kind: u32,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text, lines_per_kind: 20 }
    }
}
