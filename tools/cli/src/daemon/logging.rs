//! Where log lines go: standard error, as text or JSON.

use std::io::{self, IsTerminal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Environment variable that overrides the configured level.
const LOG_VARIABLE: &str = "TRUNKLINE_LOG";

/// Begins to log.
///
/// # Errors
/// If the level is none.
pub fn start(level: &str, json: bool) -> Result<(), ParseError> {
    let overridden = std::env::var(LOG_VARIABLE).ok().filter(|value| !value.is_empty());
    let filter: EnvFilter = overridden.as_deref().unwrap_or(level).parse()?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if json {
        lines.json().flatten_event(true).init();
    } else {
        lines.with_ansi(io::stderr().is_terminal()).init();
    }
    Ok(())
}
