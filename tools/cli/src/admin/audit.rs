//! Who changed what, and when: a line of JSON per attempt, in the log and in a file if one is named.
//!
//! Attempts of those who may not are lines, too, of which so many are written a minute: anybody makes them, as often as
//! they like. What is left out is counted.

use rustix::fs::OFlags;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trunkline_engine::DeniedChange;
use trunkline_policy::Difference;

/// Denied changes are counted for so long at a time.
const WINDOW: Duration = Duration::from_secs(60);
/// Those of one user that are written down in that time, and those of all.
const OF_USER_MAX: u64 = 10;
const OF_ALL_MAX: u64 = 60;
/// Users that are told apart in it; more count as [`OTHERS`].
const USERS_MAX: usize = 64;
const OTHERS: &str = "others";

/// Where the lines go.
#[derive(Clone, Debug)]
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
    /// What goes on in the daemon's place, or was to; of an upgrade alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a Path>,
    dry_run: bool,
    /// `applied`, `possible` (a dry run), or why it was refused; of who may not, it begins with `denied`.
    outcome: &'a str,
    added: &'a [String],
    changed: &'a [String],
    removed: &'a [String],
    /// Modules that handed over to another version.
    upgraded: &'a [String],
}

/// What was to be changed.
#[derive(Clone, Copy, Debug)]
pub enum AuditedChange<'a> {
    /// Something with this name.
    Named(&'a str),
    /// The same, to see whether it would be possible.
    Tried(&'a str),
    /// The daemon itself, by this program.
    Upgrade(&'a Path),
}

impl Audit {
    /// Adds to the file at `path`; to the log only if it is empty.
    pub fn new(path: &Path) -> Self {
        Self { path: (!path.as_os_str().is_empty()).then(|| path.to_owned()) }
    }

    /// Writes down what was denied, on a thread of its own, which ends with the daemon.
    ///
    /// # Errors
    /// There is no thread to be had for it.
    pub fn keep_denied(self, denied: Receiver<DeniedChange>) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("audit".into()).spawn(move || self.write_denied(&denied))
    }

    fn write_denied(&self, denied: &Receiver<DeniedChange>) {
        let mut limit = DeniedLimit::default();
        loop {
            let next = match limit.left(Instant::now()) {
                None => denied.recv().map_err(RecvTimeoutError::from),
                Some(left) => denied.recv_timeout(left),
            };
            if limit.is_over(Instant::now()) || next == Err(RecvTimeoutError::Disconnected) {
                for (identity, count) in limit.end() {
                    let outcome = format!("denied: {count} more, within a minute");
                    let change = AuditedChange::Named("any");
                    self.note(&identity, change, &outcome, &Difference::default(), &[]);
                }
            }
            match next {
                Ok(DeniedChange { identity, change, why, left_out }) => {
                    limit.leave_out(left_out);
                    if limit.admits(&identity, Instant::now()) {
                        let outcome = format!("denied: {why}");
                        let change = AuditedChange::Named(&change);
                        self.note(&identity, change, &outcome, &Difference::default(), &[]);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes an attempt down. A file that cannot be written is an error in the log, and no reason to leave a bad
    /// policy in force.
    pub fn note(
        &self,
        identity: &str,
        change: AuditedChange<'_>,
        outcome: &str,
        difference: &Difference,
        upgraded: &[String],
    ) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (change, dry_run, program) = match change {
            AuditedChange::Named(name) => (name, false, None),
            AuditedChange::Tried(name) => (name, true, None),
            AuditedChange::Upgrade(program) => ("upgrade", false, Some(program)),
        };
        let attempt = Attempt {
            at_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            identity,
            change,
            program,
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

/// How many denied changes have been written down, and how many not, since the first of this minute.
#[derive(Debug, Default)]
struct DeniedLimit {
    since: Option<Instant>,
    written: u64,
    users: BTreeMap<String, DeniedOfUser>,
}

#[derive(Debug, Default)]
struct DeniedOfUser {
    written: u64,
    left_out: u64,
}

impl DeniedLimit {
    /// What is left of this minute, if there is one.
    fn left(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| WINDOW.saturating_sub(now.saturating_duration_since(since)))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }

    /// Whether one more is written down.
    fn admits(&mut self, identity: &str, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let has_room = self.written < OF_ALL_MAX;
        let user = self.user(identity);
        let is_admitted = has_room && user.written < OF_USER_MAX;
        *(if is_admitted { &mut user.written } else { &mut user.left_out }) += 1;
        self.written += u64::from(is_admitted);
        is_admitted
    }

    /// So many have not come as far as here.
    fn leave_out(&mut self, count: u64) {
        if count > 0 {
            self.user(OTHERS).left_out += count;
        }
    }

    fn user(&mut self, identity: &str) -> &mut DeniedOfUser {
        let is_known = self.users.contains_key(identity) || self.users.len() < USERS_MAX;
        self.users.entry(if is_known { identity } else { OTHERS }.to_owned()).or_default()
    }

    /// Ends the minute: who was left out, and how often.
    fn end(&mut self) -> Vec<(String, u64)> {
        let users = std::mem::take(self).users;
        let counts = users.into_iter().map(|(identity, user)| (identity, user.left_out));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// In one write, so that lines of two daemons that share a file stay whole.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // A pipe in its place does not hold the one up who changes policies.
    let options = options.create(true).append(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    // It names users, and what they tried: for the daemon's user and group, as the file of policies is.
    let options = options.mode(0o640);
    let mut file = options.open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    //! Shows how many denied changes become lines, and that none goes uncounted.
    use super::*;
    use serde_json::Value;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;

    #[test]
    fn a_minute_has_so_many_lines_whoever_asks() {
        let began = Instant::now();
        let mut limit = DeniedLimit::default();
        assert_eq!((limit.left(began), limit.is_over(began)), (None, false));
        let one = (0..1000).filter(|_| limit.admits("uid:7", began)).count();
        assert_eq!(one as u64, OF_USER_MAX, "of one user");
        assert!(limit.admits("uid:8", began), "and another has his own");
        let others = (0..1000).filter(|user| limit.admits(&format!("uid:{}", 1000 + user), began)).count();
        assert_eq!(others as u64, OF_ALL_MAX - OF_USER_MAX - 1, "of all");
        limit.leave_out(3);
        assert!(limit.users.len() <= USERS_MAX + 1, "{}", limit.users.len());
        let late = began + WINDOW;
        assert!(!limit.is_over(late.checked_sub(Duration::from_millis(1)).unwrap()) && limit.is_over(late));
        let left_out = limit.end();
        let count: u64 = left_out.iter().map(|(_, count)| count).sum();
        assert_eq!(count, 2001 + 3 - OF_ALL_MAX, "{left_out:?}");
        assert!(left_out.contains(&("uid:7".to_owned(), 1000 - OF_USER_MAX)), "{left_out:?}");
        assert!(limit.end().is_empty() && limit.admits("uid:7", late), "the next minute begins anew");
    }

    #[test]
    fn what_was_left_out_is_a_line_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (sender, denied) = channel();
        let one = DeniedChange::new("uid:7", "/trunkline.admin.v1.Control/Upgrade", "not for uid 7");
        (0..OF_USER_MAX + 5).for_each(|_| sender.send(one.clone()).unwrap());
        sender.send(DeniedChange { left_out: 2, ..one }).unwrap();
        drop(sender);
        Audit::new(&path).keep_denied(denied).unwrap().join().unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777 & !0o640, 0, "others cannot read it: {mode:o}");
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, OF_USER_MAX + 2, "{text}");
        assert_eq!(lines[0]["change"], "trunkline.admin.v1.Control/Upgrade");
        assert_eq!(lines[0]["outcome"], "denied: not for uid 7");
        let [others, own] = [&lines[lines.len() - 2], &lines[lines.len() - 1]];
        assert_eq!(
            (&others["identity"], &others["outcome"]),
            (&"others".into(), &"denied: 2 more, within a minute".into())
        );
        assert_eq!(
            (&own["identity"], &own["outcome"]),
            (&"uid:7".into(), &"denied: 6 more, within a minute".into())
        );
    }
}
