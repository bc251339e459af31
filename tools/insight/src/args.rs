//! The command line, as types.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_telemetry::Component;

/// The verbs, as `trunkline` knows them.
pub const VERBS: [&str; 11] = [
    "record",
    "characterize",
    "whatif",
    "diff",
    "tree",
    "clock",
    "export",
    "synth",
    "drive",
    "replay",
    "tax",
];

/// Records of calls: kept, looked at, compared.
///
/// `trunkline` starts this program for its verbs record, characterize, whatif, diff, tree, clock, export,
/// synth, drive, replay and tax.
#[derive(Debug, Parser)]
#[command(name = "trunkline", bin_name = "trunkline", version, max_term_width = 100)]
pub struct InsightLine {
    /// Socket of the daemon [default: $TRUNKLINE_SOCKET, else the usual places]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Socket of the daemon for operators (admin.listen) [default: $TRUNKLINE_ADMIN_SOCKET]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "socket")]
    pub admin_socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: InsightVerb,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum InsightVerb {
    /// Write calls of the running daemon to a file, each with the number of calls it stands for
    Record(RecordArgs),
    /// Draw the study's figures 1 to 23 from recorded calls, on one page
    Characterize(CharacterizeArgs),
    /// Say what would help: each component capped at its median, or made so much smaller
    Whatif(WhatIfArgs),
    /// Say which component moved between two recordings
    Diff(DiffArgs),
    /// Show how many calls there are below and above calls, and whole trees with their critical path
    Tree(TreeArgs),
    /// Show how well hosts' clocks are known of each other
    Clock(FilesArgs),
    /// Print recorded calls in another format
    Export(ExportArgs),
    /// Generate records of a fleet that nobody has, drawn from published distributions
    Synth(SynthArgs),
    /// Make calls through running daemons after the shape of recorded or generated ones, and record them
    Drive(DriveArgs),
    /// Send calls again that a daemon has kept with their messages, and compare what is answered
    Replay(ReplayArgs),
    /// Show where hosts' processor time went: handlers, stages of the daemon, and what is measured nowhere
    Tax(FilesArgs),
    /// Write manual pages, one for each verb
    #[command(hide = true)]
    Man(PagesArgs),
    /// Print verbs and their options, for `trunkline completions`
    #[command(hide = true)]
    Describe,
}

impl InsightVerb {
    /// What is wrong with `--socket` and `--admin-socket` where they are none of the verb's.
    pub fn refuses_sockets(&self) -> Option<&'static str> {
        match self {
            Self::Record(_) => None,
            Self::Drive(DriveArgs { caller, .. }) if caller.is_empty() => None,
            Self::Drive(_) => Some("calls are made by the daemons that --caller names"),
            Self::Replay(_) => Some("this verb sends its calls to --to, and asks no daemon"),
            Self::Synth(_) => Some("this verb writes a file, and asks no daemon"),
            Self::Characterize(_) | Self::Whatif(_) | Self::Diff(_) | Self::Tree(_) => {
                Some(Self::READS_FILES)
            }
            Self::Clock(_) | Self::Export(_) | Self::Tax(_) => Some(Self::READS_FILES),
            Self::Man(_) | Self::Describe => Some("this verb tells of the command line, and asks no daemon"),
        }
    }

    const READS_FILES: &'static str = "this verb reads files, and asks no daemon";
}

/// A file of records to write.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// File to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}

/// `trunkline record`
#[derive(Debug, Args)]
#[command(after_help = "\
Files of several hosts are joined by appending one to the other, or by naming them all where they are read.

Example:
  trunkline record -o alpha.rec --for 1m --rate 500/s")]
pub struct RecordArgs {
    #[command(flatten)]
    pub out: OutputArgs,
    /// Append to a file of records that is there
    #[arg(long, conflicts_with = "force")]
    pub append: bool,
    /// Calls a second to keep of those that ended well, about; those that failed are all kept
    #[arg(long, value_name = "COUNT/s", default_value = "200/s", value_parser = rate)]
    pub rate: f64,
    /// Calls of traces to keep a second, about: whole traces, the same on every host
    #[arg(long, value_name = "COUNT/s", default_value = "200/s", value_parser = rate)]
    pub traces: f64,
    /// Calls to keep besides: all of the slowest twentieth of each method (p95), or none
    #[arg(long, value_enum, default_value = "p95")]
    pub tail: KeptTail,
    /// Time to record
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub time: Duration,
    /// Cluster this host belongs to, as figures are to name it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub cluster: String,
}

/// Which slow calls are all kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeptTail {
    /// The slowest twentieth of each method.
    P95,
    /// As many as of the others.
    None,
}

/// `trunkline characterize`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trunkline characterize alpha.rec beta.rec -o report/")]
pub struct CharacterizeArgs {
    /// Files of records
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Folder for the page, index.html; made if it is not there. A page that is there is replaced
    #[arg(long, short, value_name = "FOLDER", required_unless_present_any = ["check", "publish"])]
    pub output: Option<PathBuf>,
    /// Hold the records against published numbers: print each beside what the records have, and the distance
    #[arg(long)]
    pub check: bool,
    /// File of published numbers [default: the study's]
    #[arg(long, value_name = "FILE", requires = "check")]
    pub targets: Option<PathBuf>,
    /// Write the check as a page for the documentation, fleet.md or driven.md, with every figure, to this folder
    #[arg(long, value_name = "FOLDER", requires = "check")]
    pub publish: Option<PathBuf>,
}

/// `trunkline synth`
#[derive(Debug, Args)]
#[command(after_help = "\
The records say that they are generated, and so does every page made of them: nobody made these calls, and nothing was
measured.

Example:
  trunkline synth --methods 300 -o fleet.rec
  trunkline characterize fleet.rec --check")]
pub struct SynthArgs {
    #[command(flatten)]
    pub out: OutputArgs,
    /// File of published distributions [default: the study's]
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// Methods of the fleet
    #[arg(long, value_name = "COUNT", default_value = "300", value_parser = count(20))]
    pub methods: u32,
    /// Calls of each method; figures by method need 100
    #[arg(long, value_name = "COUNT", default_value = "400", value_parser = count(10))]
    pub calls: u32,
    /// Where drawing begins
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `trunkline drive`
#[derive(Debug, Args)]
#[command(after_help = "\
The daemon at --socket makes the calls and records them, so its key recorder.traces is to be true and recorder.sample 1;
the one at --server-socket has the servers, which are this program, too. Calls begin in an order that is the same each
time. What they stand for is what those of the file stood for.

Example:
  trunkline synth -o fleet.rec
  trunkline --socket alpha.sock drive fleet.rec --server-socket beta.sock --to tcp://10.0.0.7:7878 -o driven.rec
  trunkline characterize driven.rec --check")]
pub struct DriveArgs {
    /// File of records: calls made after them have their method, sizes, calls above and below, outcome and time
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub out: OutputArgs,
    /// Socket of the daemon that has the servers
    #[arg(long, value_name = "PATH")]
    pub server_socket: PathBuf,
    /// Address of that daemon, as tcp://ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub to: String,
    /// Let calls take so many times as long; the times in the file that is written are divided by it
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = times)]
    pub time_scale: f64,
    /// Calls to begin a second, without those above and below them
    #[arg(long, value_name = "COUNT/s", default_value = "500/s", value_parser = rate)]
    pub rate: f64,
    /// Most calls below a call
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = upto(0, 100_000))]
    pub below_max: u32,
    /// Bytes of the largest message
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = upto(64, 1 << 26))]
    pub message_bytes_max: u32,
    /// Most calls below all calls of a method together, about: of a method with more, fewer calls are made that stand
    /// for more, but a hundred at least
    #[arg(long, value_name = "COUNT", default_value = "1000000", value_parser = upto(0, 1 << 30))]
    pub method_below_max: u32,
    /// Let handlers take so many times the processor time that calls of the file have, within the time until their
    /// answer; the processor time in the file that is written is divided by it. 0: they wait
    #[arg(long, value_name = "TIMES", default_value = "0", value_parser = times_or_none)]
    pub work: f64,
    /// Calls under way at most, with those above them; a further one begins late. A daemon lets a session have
    /// limits.calls_made_per_session of them, and as many be delivered as limits.calls_delivered_per_session
    #[arg(long, value_name = "COUNT", default_value = "3072", value_parser = upto(1, 1 << 20))]
    pub in_flight_max: u32,
    /// Make only the calls of this cluster in the file, and write them as calls of it: a host for each cluster makes
    /// its own
    #[arg(long, value_name = "NAME", default_value = "", conflicts_with = "caller")]
    pub cluster: String,
    /// A cluster of the file and the socket of the daemon that makes its calls, instead of --socket; write it once for
    /// each cluster, and calls of others are not made
    #[arg(long, value_name = "NAME=PATH", value_parser = caller)]
    pub caller: Vec<(String, PathBuf)>,
    /// Let calls have the wires, stacks and queues of those of the file, too, as far as whoever calls can: bytes pass
    /// through relays of this program that delay them, the caller publishes a call late, and takes its answer late
    #[arg(long)]
    pub plant: bool,
}

/// Files of records.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Files of records
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Which calls.
#[derive(Debug, Args)]
pub struct OfArgs {
    /// Only methods whose path contains this: package.Service/Method, or any part of it; of trees, that of the first
    /// call
    #[arg(long, value_name = "METHOD", default_value = "")]
    pub method: String,
}

/// `trunkline whatif`
#[derive(Debug, Args)]
#[command(after_help = "\
Components: client_send_queue, request_stack, request_wire, server_receive_queue, server_application,
server_send_queue, response_wire, response_stack, client_receive_queue.

Example:
  trunkline whatif alpha.rec --method Search/Query --set server_application=-30%")]
pub struct WhatIfArgs {
    #[command(flatten)]
    pub files: FilesArgs,
    #[command(flatten)]
    pub of: OfArgs,
    /// Only this figure: P95 with the component capped at its median (p95-reduction), or the share of slow calls that
    /// would no longer be (tail-escape) [default: both]
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub def: Option<EffectFigure>,
    /// Make a component so much smaller or larger, and show completion times before and after; may be repeated
    #[arg(long, value_name = "COMPONENT=±PERCENT%", value_parser = change)]
    pub set: Vec<(Component, f64)>,
}

/// A reading of the study's Figure 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EffectFigure {
    /// How far P95 falls.
    P95Reduction,
    /// How many of the slow calls would be slow no more.
    TailEscape,
}

/// `trunkline diff`
#[derive(Debug, Args)]
#[command(after_help = "\
A line is marked where chance alone does not explain the difference: 95 % of resamples have it on one side of zero.")]
pub struct DiffArgs {
    /// The first recording
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The second
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    #[command(flatten)]
    pub of: OfArgs,
}

/// `trunkline tree`
#[derive(Debug, Args)]
#[command(after_help = "\
Trees are recorded where the key recorder.traces is true, by a recording of every host they pass. The critical path is
what a tree's completion time consists of: a call accounts for the time in which nothing below it was waited for.

Example:
  trunkline tree alpha.rec beta.rec --slowest 3")]
pub struct TreeArgs {
    #[command(flatten)]
    pub files: FilesArgs,
    /// Draw the tree of this trace, by its number in hexadecimal
    #[arg(long, value_name = "TRACE", value_parser = trace, conflicts_with = "slowest")]
    pub trace: Option<u128>,
    #[command(flatten)]
    pub of: OfArgs,
    /// Draw so many trees, the slowest first
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub slowest: u32,
}

/// `trunkline export`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("format").required(true))]
pub struct ExportArgs {
    #[command(flatten)]
    pub files: FilesArgs,
    /// A line a call
    #[arg(long, group = "format")]
    pub csv: bool,
    /// Apache Parquet, with the columns of CSV
    #[arg(long, group = "format", requires = "output")]
    pub parquet: bool,
    /// JSON that Jaeger's page loads: a trace for each that was recorded, and for each other call
    #[arg(long, group = "format")]
    pub jaeger: bool,
    /// Trace events in JSON, which Perfetto opens
    #[arg(long, group = "format")]
    pub perfetto: bool,
    /// File to write, or an export to replace [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there and is no such export
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// `trunkline replay`
#[derive(Debug, Args)]
#[command(after_help = "\
The file is what a daemon has written by its keys [samples] and [[sample]]. Calls are made once more: those that change
something change it again.

Exit code: 0 if every call was sent and ended as it did when it was kept, or with OK; 1 if one failed otherwise, or,
with --compare, was answered otherwise, or a signal came before all were sent; 2 for a wrong command line.

Example:
  trunkline replay /var/lib/trunkline/samples --to 10.0.0.7:7878 --rate 200/s --compare")]
pub struct ReplayArgs {
    /// File of sampled calls
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Whom to call: a daemon or a gRPC server, as tcp://ADDRESS:PORT, HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub to: String,
    /// Calls a second
    #[arg(long, value_name = "COUNT/s", default_value = "20/s", value_parser = rate)]
    pub rate: f64,
    /// Hold each answer against the one that was kept; ends with an error if one differs
    #[arg(long)]
    pub compare: bool,
    /// Do not compare fields of this name, such as Response.elapsed_ns; may be repeated
    #[arg(long, value_name = "FIELD", requires = "compare")]
    pub ignore: Vec<String>,
    #[command(flatten)]
    pub of: OfArgs,
    /// Times to send all of them
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count(1))]
    pub times: u32,
    /// Calls under way at most
    #[arg(long, value_name = "COUNT", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub in_flight: u32,
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub struct PagesArgs {
    /// Folder to write them to, which is there
    pub folder: PathBuf,
}

/// Reads a number of so many at least, and ten thousand at most.
fn count(least: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=10_000)
}

/// Reads a number between these.
fn upto(least: i64, most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=most)
}

/// Looks whether somebody may be called there.
fn address(text: &str) -> Result<String, String> {
    text.parse::<trunkline_net::Target>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Reads `east=/run/east.sock`.
fn caller(text: &str) -> Result<(String, PathBuf), String> {
    let named = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = named.ok_or_else(|| format!("{text:?}: write CLUSTER=SOCKET"))?;
    Ok((name.to_owned(), path.into()))
}

/// Reads `4bf92f3577b34da6a3ce929d0e0e4736`.
fn trace(text: &str) -> Result<u128, String> {
    u128::from_str_radix(text, 16)
        .map_err(|_| format!("{text:?} is no trace: write its number in hexadecimal"))
}

/// Reads `200/s`.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse::<f64>().ok();
    number.filter(|rate| (1e-3..=1e9).contains(rate)).ok_or_else(|| {
        format!("{text:?} is no rate: write 200/s, or another number from 0.001 to 1000000000")
    })
}

/// Reads `4`, `0.5`.
fn times(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|times| (1e-3..=1e3).contains(times));
    number.ok_or_else(|| format!("{text:?}: write a number from 0.001 to 1000"))
}

/// The same, or 0.
fn times_or_none(text: &str) -> Result<f64, String> {
    if text == "0" { Ok(0.0) } else { times(text).map_err(|wrong| format!("{wrong}, or 0")) }
}

/// No clock overflows by this: a year.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Reads `250ms`, `10s`, `2m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write 500ms, 10s, 2m or 1h");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let unit_s = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * unit_s).map_err(|_| wrong())?;
    if time.is_zero() || time > LONGEST {
        return Err(format!("{text:?}: write a time of more than nothing and of 8760h, a year, at most"));
    }
    Ok(time)
}

/// Reads `server_application=-30%` as the component and what it is multiplied with.
fn change(text: &str) -> Result<(Component, f64), String> {
    let (name, percent) =
        text.split_once('=').ok_or_else(|| format!("{text:?}: write COMPONENT=-30% or COMPONENT=+30%"))?;
    let known = |component: &Component| component.label() == name;
    let component = Component::ALL.into_iter().find(known).ok_or_else(|| {
        let labels = Component::ALL.map(Component::label);
        format!("there is no component {name:?}: write one of {}", labels.join(", "))
    })?;
    let number = percent.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= -100.0);
    let number =
        number.ok_or_else(|| format!("{percent:?} is no change: write -30% or +30%, at least -100%"))?;
    Ok((component, 1.0 + number / 100.0))
}

#[cfg(test)]
mod tests {
    //! Shows that the command line is well formed, and how rates and changes are written.
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        let line = InsightLine::command();
        line.clone().debug_assert();
        let verbs: Vec<&str> =
            line.get_subcommands().filter(|verb| !verb.is_hide_set()).map(|verb| verb.get_name()).collect();
        assert_eq!(verbs, VERBS);
    }

    #[test]
    fn verbs_that_ask_no_daemon_refuse_its_sockets() {
        let refuses = |line: &str| {
            let words = ["trunkline", "--socket", "a.sock"].into_iter().chain(line.split(' '));
            InsightLine::parse_from(words).verb.refuses_sockets()
        };
        let reads = Some(InsightVerb::READS_FILES);
        for verb in
            ["characterize a -o b", "whatif a", "diff a b", "tree a", "clock a", "export --csv a", "tax a"]
        {
            assert_eq!(refuses(verb), reads, "{verb}");
        }
        for verb in ["synth -o a", "replay a --to 10.0.0.7:80"] {
            assert!(refuses(verb).is_some(), "{verb}");
        }
        let drive = "drive a -o b --server-socket c.sock --to tcp://10.0.0.7:7878";
        assert_eq!((refuses("record -o a"), refuses(drive)), (None, None));
        let callers = refuses(&format!("{drive} --caller east=/e.sock"));
        assert!(callers.is_some_and(|why| why.contains("--caller")), "{callers:?}");
    }

    #[test]
    fn rates_times_and_changes_are_read() {
        assert_eq!((rate("200/s"), rate("0.5")), (Ok(200.0), Ok(0.5)));
        assert!(["0/s", "-1/s", "1e-300/s", "1e10/s", "NaN"].iter().all(|wrong| rate(wrong).is_err()));
        assert!(rate("fast").unwrap_err().contains("write 200/s"));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(duration("0s").is_err() && duration("8761h").is_err() && duration("8760h").is_ok());
        assert!(duration("2").is_err() && duration("-2s").is_err() && duration("1e400s").is_err());
        assert_eq!(change("server_application=-30%"), Ok((Component::ServerApplication, 0.7)));
        assert!(change("server_app=-30%").unwrap_err().contains("server_application"));
        assert_eq!(address("tcp://10.0.0.7:7878"), Ok("tcp://10.0.0.7:7878".to_owned()));
        assert_eq!(caller("east=/e.sock"), Ok(("east".to_owned(), "/e.sock".into())));
        assert!(["east", "=/e.sock", "east="].iter().all(|wrong| caller(wrong).is_err()));
        assert!(address("127.0.0.1:x").is_err() && address("http://10.0.0.7:80").is_err());
        for wrong in
            ["server_application", "server_application=-101%", "server_application=x%", "request_wire=3"]
        {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
