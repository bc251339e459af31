//! What daemons of this process say while a test runs.

use super::Expected;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// What tests of this program foresee.
static EXPECTED: Mutex<Vec<Expected>> = Mutex::new(Vec::new());

/// Ends this program with a message as soon as something is logged at ERROR that no test has foreseen. Every test that
/// has a daemon in its own process calls it, as often as it likes.
pub fn watch() {
    static ONCE: Once = Once::new();
    // Somebody who has set another subscriber looks for himself.
    ONCE.call_once(|| drop(tracing::subscriber::set_global_default(Watcher)));
}

/// From now on `part` may be in a line at ERROR, because `why`.
pub fn expect(part: &'static str, why: &'static str) {
    expected().push(Expected { part, why });
}

fn expected() -> MutexGuard<'static, Vec<Expected>> {
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Watcher;

impl Subscriber for Watcher {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let line = line_of(event);
        if !expected().iter().any(|expected| line.contains(expected.part)) {
            eprintln!("a daemon of this test program says what no test expects: {line}");
            std::process::exit(101);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// As the binary writes it, without the time.
fn line_of(event: &Event<'_>) -> String {
    struct Fields(String);
    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let name = if field.name() == "message" { String::new() } else { format!("{}=", field.name()) };
            // Writing to a string does not fail.
            let _ = write!(self.0, " {name}{value:?}");
        }
    }
    let mut fields = Fields(format!("{} {}:", event.metadata().level(), event.metadata().target()));
    event.record(&mut fields);
    fields.0
}

#[cfg(test)]
mod tests {
    //! Shows that a program ends with the first line nobody has foreseen.
    use super::*;
    use std::process::{Command, Stdio};

    /// Set in the process that is to end.
    const VICTIM: &str = "TRUNKLINE_TEST_LOGS_VICTIM";

    #[test]
    fn a_program_ends_with_its_first_error() {
        if std::env::var_os(VICTIM).is_some() {
            watch();
            expect("foreseen", "this test says it");
            tracing::warn!("no fault of the daemon's");
            tracing::error!(number = 1, "this was foreseen");
            tracing::error!(number = 2, "this was not");
            unreachable!("the program goes on");
        }
        let name = "live::tests::a_program_ends_with_its_first_error";
        let mut victim = Command::new(std::env::current_exe().unwrap());
        victim.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(VICTIM, "1");
        let ended = victim.stdin(Stdio::null()).output().unwrap();
        assert_eq!(ended.status.code(), Some(101));
        let said = String::from_utf8(ended.stderr).unwrap();
        let wanted =
            "says what no test expects: ERROR trunkline_test_logs::live::tests: this was not number=2";
        assert!(said.contains(wanted), "{said}");
    }
}
