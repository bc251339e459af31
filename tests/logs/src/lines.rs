//! The log of a process, read after its end or while it runs.

/// A line that a test foresees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What the line has in it.
    pub part: &'static str,
    /// Why it is no fault.
    pub why: &'static str,
}

/// What lines of a fault have in them: tracing's level as text and as JSON, and what Rust's runtime says of panics and
/// of what it cannot go on after.
const MARKS: [&str; 3] = [" ERROR ", "\"level\":\"ERROR\"", "fatal runtime error"];
/// How a line begins that tells of a panic, and what else it has in it.
const PANIC: [&str; 2] = ["thread '", " panicked at "];

/// Lines that tell of a fault nobody has foreseen; those of panics with what the panic says.
pub fn faults(log: &str, expected: &[Expected]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let panicked = line.starts_with(PANIC[0]) && line.contains(PANIC[1]);
        if !panicked && !MARKS.iter().any(|mark| line.contains(mark)) {
            continue;
        }
        // The message of a panic is on a line of its own.
        let message = if panicked { lines.peek().copied() } else { None };
        let said = message.map_or_else(|| line.to_owned(), |message| format!("{line} {message}"));
        if !expected.iter().any(|expected| said.contains(expected.part)) {
            found.push(said);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    //! Shows which lines are faults.
    use super::*;

    const LOG: &str = "\
2026-01-01T00:00:00.000000Z  INFO trunkline: daemon is ready node=\"a ERRORless name\"
2026-01-01T00:00:00.000000Z  WARN trunkline_daemon::sockets: peer broke the protocol
2026-01-01T00:00:00.000000Z ERROR trunkline_daemon::turn: cannot poll error=EBADF
{\"timestamp\":\"2026\",\"level\":\"ERROR\",\"message\":\"cannot accept\"}

thread 'shard 0' (7) panicked at core/engine/src/pass.rs:1:2:
assertion failed: it is there
note: run with `RUST_BACKTRACE=1`
fatal runtime error: stack overflow, aborting
";

    #[test]
    fn errors_panics_and_aborts_are_faults() {
        let found = faults(LOG, &[]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].ends_with("cannot poll error=EBADF"));
        assert!(found[1].contains("cannot accept"));
        assert!(found[2].ends_with("pass.rs:1:2: assertion failed: it is there"), "{}", found[2]);
        assert!(found[3].starts_with("fatal"));
    }

    #[test]
    fn what_is_foreseen_is_none() {
        let expected = |part| Expected { part, why: "the test plants it" };
        let all = ["cannot poll", "cannot accept", "assertion failed: it is there", "stack overflow"];
        assert_eq!(faults(LOG, &all.map(expected)), [""; 0]);
        assert_eq!(faults(LOG, &[expected("cannot poll")]).len(), 3);
        assert_eq!(faults("thread 'x' panicked at src/a.rs", &[]).len(), 1);
        assert_eq!(faults("", &[]), [""; 0]);
    }
}
