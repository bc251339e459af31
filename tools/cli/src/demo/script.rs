//! The play: what is called, and what is shown of it.

use super::error::DemoError;
use super::picture;
use super::stage::{Host, Stage};
use crate::admin::proto::ListRequest;
use crate::args::DemoArgs;
use crate::explain::explanations;
use crate::list;
use crate::table::count;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use trunkline::Wait;
use trunkline_telemetry::Side;

/// Calls made one after the other for the percentiles: enough for a 99th, over in a second.
const CALLS: u32 = 5000;
/// Lines shown of an act that prints more.
const LINES_SHOWN: usize = 8;
/// Columns shown of a line.
const COLUMNS_SHOWN: usize = 108;
/// What the interactive session is asked.
const QUESTIONS: [&str; 4] = [":complete doorb", "\"shared memory\" in:docs", "+doorbell", ":undo"];

/// Plays the demo.
///
/// # Errors
/// [`DemoError`]; every process has ended by then.
pub fn demo(args: &DemoArgs) -> Result<(), DemoError> {
    let began = Instant::now();
    if let Err(error) = std::fs::read_dir(&args.folder) {
        return Err(DemoError::Folder { folder: args.folder.clone(), error });
    }
    let stage = Stage::new(args.programs.as_deref())?;
    stage.end_on_signals()?;
    let played = play(&stage, &args.folder, began);
    stage.yield_to_signal();
    played
}

fn play(stage: &Stage, folder: &Path, began: Instant) -> Result<(), DemoError> {
    let play = Play::start(stage, folder)?;
    play.patterns()?;
    play.json()?;
    play.failures()?;
    play.percentiles()?;
    play.explain()?;
    play.state()?;
    play.changes()?;
    play.end(began)
}

/// What is on stage.
pub(super) struct Play<'a> {
    pub stage: &'a Stage,
    /// Whose applications call.
    pub alpha: Host,
    /// Whose application serves.
    pub beta: Host,
}

impl<'a> Play<'a> {
    fn start(stage: &'a Stage, folder: &Path) -> Result<Self, DemoError> {
        title("Two daemons, a service, its callers")?;
        let quiet = "[log]\nlevel = \"warn\"\n";
        let beta = stage.start_daemon(
            "beta",
            &format!("[daemon]\nnode = \"beta\"\nlisten = [\"tcp://127.0.0.1:0\"]\n\n{quiet}"),
        )?;
        let services = format!("[services.\"search.v1.Search\"]\nendpoints = [\"{}\"]\n", beta.endpoint);
        let alpha =
            stage.start_daemon("alpha", &format!("[daemon]\nnode = \"alpha\"\n\n{quiet}\n{services}"))?;
        let (server_id, said) = stage.start_server(&beta, folder)?;
        say(&picture::topology(&alpha, &beta, server_id))?;
        say(&format!("\n  search-server {}", said.lines().next().unwrap_or_default()))?;
        say(&format!("  alpha's configuration knows where the service is:\n\n{}", indented(&services)))?;
        Ok(Self { stage, alpha, beta })
    }

    /// All four calling patterns, by the example's own client.
    fn patterns(&self) -> Result<(), DemoError> {
        title("A question and its answer (unary)")?;
        self.client(&["query", "doorbell of a ring", "--limit", "3"], "")?;
        title("Every hit, as fast as it is read (server streaming)")?;
        self.client(&["results", "\"submission ring\""], "")?;
        title("Documents in (client streaming)")?;
        let folder = self.own_documents()?;
        self.client(&["index", &folder.display().to_string()], "")?;
        title("A conversation (bidirectional)")?;
        self.client(&["session"], &QUESTIONS.join("\n"))
    }

    /// A folder of documents nobody has indexed yet: the demo's own configuration files.
    fn own_documents(&self) -> Result<PathBuf, DemoError> {
        let folder = self.stage.folder().join("configurations");
        std::fs::create_dir(&folder)?;
        for node in [&self.alpha.node, &self.beta.node] {
            let file = format!("{node}.toml");
            std::fs::copy(self.stage.folder().join(&file), folder.join(&file))?;
        }
        Ok(folder)
    }

    /// The same service with types known at run time.
    fn json(&self) -> Result<(), DemoError> {
        title("Any method from a command line, JSON in and out")?;
        let request = r#"{"query": "turn loop", "limit": 1}"#;
        self.trunkline(&["call", "--proto", &self.proto()?, "Search/Query", request], 0)
    }

    /// The service's types, in a file.
    pub(super) fn proto(&self) -> Result<String, DemoError> {
        let proto = self.stage.folder().join("search.proto");
        std::fs::write(&proto, include_str!("../../../../examples/search/proto/search/v1/search.proto"))?;
        Ok(proto.display().to_string())
    }

    /// What a failure says.
    fn failures(&self) -> Result<(), DemoError> {
        title("Failures say whether the call was executed")?;
        let proto = self.proto()?;
        let call = ["call", "--proto", &proto, "Search/Query"];
        self.trunkline(&[&call[..], &[r#"{"query": ""}"#]].concat(), 64 + 3)?;
        let nowhere = ["--target", "tcp://127.0.0.1:1", r#"{"query": "ring"}"#];
        self.trunkline(&[&call[..], &nowhere].concat(), 64 + 14)
    }

    fn percentiles(&self) -> Result<(), DemoError> {
        title("One caller, one call after the other, through both daemons")?;
        let count = CALLS.to_string();
        self.client(&["query", "bm25 saturation", "--limit", "1", "--repeat", &count], "")
    }

    /// The nine components, as both daemons measured them.
    fn explain(&self) -> Result<(), DemoError> {
        title("Where the time of those calls went (trunkline explain search.v1.Search/Query)")?;
        let explained = explanations(&self.alpha.admin, "/search.v1.Search/Query")?;
        match explained.iter().find(|explanation| explanation.side == Side::Made) {
            Some(explanation) => say(&picture::components(explanation)),
            None => say("  no call was measured"),
        }
    }

    fn state(&self) -> Result<(), DemoError> {
        title("What alpha knows (trunkline list)")?;
        let state = self.alpha.admin.list(ListRequest::default()).wait()?.into_inner();
        say(&indented(&list::render(&state)))?;
        let served = explanations(&self.beta.admin, "/search.v1.Search/")?;
        let calls: u64 = served.iter().filter(|side| side.side == Side::Served).map(|side| side.calls).sum();
        let calls = count(calls, "call");
        say(&format!("  beta's application served {calls} of this host's other daemon."))
    }

    fn end(&self, began: Instant) -> Result<(), DemoError> {
        title("Where to go from here")?;
        say(
            "  trunkline daemon                          a daemon for this host; applications find it by themselves\n  \
             trunkline list | top | explain SERVICE    what it does, live\n  \
             examples/search, examples/greeter         services of your own begin as copies of these\n  \
             docs/configuration.md                     every key there is\n  \
             ARCHITECTURE.md                           how it works, and the life of a call",
        )?;
        say(&format!("\n  Done in {:.1} s; all processes end now.", began.elapsed().as_secs_f64()))
    }

    fn client(&self, arguments: &[&str], input: &str) -> Result<(), DemoError> {
        command("search-client", arguments)?;
        let output = self.stage.client(&self.alpha, arguments, input)?;
        say(&shortened(&output))
    }

    /// Runs a verb at alpha that must end with `code`.
    pub(super) fn trunkline(&self, arguments: &[&str], code: i32) -> Result<(), DemoError> {
        self.trunkline_at(&self.alpha, arguments, code)
    }

    /// Runs a verb at a daemon that must end with `code`.
    pub(super) fn trunkline_at(&self, host: &Host, arguments: &[&str], code: i32) -> Result<(), DemoError> {
        command("trunkline", arguments)?;
        let (ended, output) = self.stage.trunkline(host, arguments)?;
        if ended != Some(code) {
            let act = format!("trunkline {}", arguments.join(" "));
            return Err(DemoError::Act { act, output: format!("exit code {ended:?}, not {code}\n{output}") });
        }
        say(&shortened(&output))
    }
}

pub(super) fn title(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "\n── {text} {}\n", "─".repeat(86_usize.saturating_sub(text.chars().count())))
}

/// The command as a person would type it, long paths shortened to their file.
fn command(program: &str, arguments: &[&str]) -> io::Result<()> {
    let typed = arguments.iter().map(|argument| {
        let path = Path::new(argument);
        let short = path
            .file_name()
            .filter(|_| path.is_absolute())
            .map_or(*argument, |name| name.to_str().unwrap_or_default());
        if short.contains([' ', '"']) { format!("'{short}'") } else { short.to_owned() }
    });
    writeln!(io::stdout(), "  $ {program} {}", typed.collect::<Vec<_>>().join(" "))
}

pub(super) fn say(text: &str) -> Result<(), DemoError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.trim_end_matches('\n'))?;
    Ok(out.flush()?)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// The beginning and the last line of a long output, each line cut to what a terminal shows. What follows a line that
/// begins with `>` (a question of a conversation) is an output of its own.
fn shortened(output: &str) -> String {
    let lines: Vec<String> = output.lines().map(|line| line.chars().take(COLUMNS_SHOWN).collect()).collect();
    let answers = lines.chunk_by(|_, next| !next.starts_with("> "));
    answers.map(|answer| indented(&ends_of(answer).join("\n"))).collect()
}

fn ends_of(lines: &[String]) -> Vec<String> {
    let [first @ .., last] = lines else { return Vec::new() };
    if lines.len() <= LINES_SHOWN + 2 {
        return lines.to_vec();
    }
    let more = format!("… {} more lines", first.len() - LINES_SHOWN);
    [&first[..LINES_SHOWN], &[more, last.clone()]].concat()
}

#[cfg(test)]
mod tests {
    //! Shows what is left of long outputs.
    use super::*;

    #[test]
    fn long_answers_are_shortened_one_by_one() {
        let answer = |question: &str, count: usize| {
            let lines: Vec<String> = (0..count).map(|i| format!("line {i}")).collect();
            format!("> {question}\n{}\n", lines.join("\n"))
        };
        let shown = shortened(&(answer("a", 3) + &answer("b", 20)));
        let lines: Vec<&str> = shown.lines().map(str::trim).collect();
        assert_eq!(lines[..4], ["> a", "line 0", "line 1", "line 2"]);
        assert_eq!(lines[4..7], ["> b", "line 0", "line 1"]);
        assert_eq!(lines[lines.len() - 2..], ["… 12 more lines", "line 19"]);
        assert_eq!(shortened(""), "");
    }
}
