//! Who changed what, and when: a line of JSON per attempt, in the log and in a file if one is named.

use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use trunkline_policy::Difference;

/// Where the lines go.
#[derive(Debug)]
pub struct Audit {
    path: Option<PathBuf>,
}

/// One attempt to change the daemon.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt<'a> {
    at_unix_ms: u64,
    /// The user who asked, by the kernel's word.
    identity: &'a str,
    change: &'a str,
    dry_run: bool,
    /// `applied`, `possible` (a dry run), or why it was refused.
    outcome: &'a str,
    added: &'a [String],
    changed: &'a [String],
    removed: &'a [String],
    /// Modules that handed over to another version.
    upgraded: &'a [String],
}

impl Audit {
    /// Adds to the file at `path`; to the log only if it is empty.
    pub fn new(path: &Path) -> Self {
        Self { path: (!path.as_os_str().is_empty()).then(|| path.to_owned()) }
    }

    /// Writes an attempt down. A file that cannot be written is an error in the log, and no reason to leave a bad
    /// policy in force.
    pub fn note(
        &self,
        identity: &str,
        change: &str,
        dry_run: bool,
        outcome: &str,
        difference: &Difference,
        upgraded: &[String],
    ) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attempt = Attempt {
            at_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            identity,
            change,
            dry_run,
            outcome,
            added: &difference.added,
            changed: &difference.changed,
            removed: &difference.removed,
            upgraded,
        };
        let line = serde_json::to_string(&attempt).unwrap_or_default();
        tracing::info!(target: "audit", "{line}");
        if let Some(path) = &self.path
            && let Err(error) = append(path, &line)
        {
            tracing::error!(path = %path.display(), %error, "audit log not written");
        }
    }
}

/// In one write, so that lines of two daemons that share a file stay whole.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // A pipe in its place does not hold the one up who changes policies.
    let options = options.create(true).append(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let mut file = options.open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}
