//! The command line, as types.

use crate::bench::Form;
use crate::explain::ExplainArgs;
use crate::manual::{CompletionsArgs, ManArgs};
use crate::policy_args::PolicyVerb;
use crate::relay::RelayArgs;
use crate::router_args::RouterArgs;
use crate::sim::SimArgs;
pub use crate::times::{duration, interval, some_time};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_call::Metadata;

/// Remote procedure calls as a managed service of the host.
///
/// One daemon per host carries the calls of all applications. Start one with `trunkline daemon`, or see everything at
/// work with `trunkline demo`.
#[derive(Debug, Parser)]
#[command(name = "trunkline", version, max_term_width = 100, after_help = crate::insight::HELP)]
pub struct Trunkline {
    /// Socket of the daemon [default: $TRUNKLINE_SOCKET, else the usual places]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Socket of the daemon for operators (admin.listen), for list, shards, top, explain, policy and
    /// upgrade [default: $TRUNKLINE_ADMIN_SOCKET, else they attach where applications do]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "socket")]
    pub admin_socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the daemon until SIGINT or SIGTERM
    Daemon(DaemonArgs),
    /// Replace the running daemon by a new process: applications, connections, calls and streams go on
    Upgrade(UpgradeArgs),
    /// Say what is wrong on this host, and what to do: socket, rights, limits, kernel, certificates, configuration
    Doctor(DoctorArgs),
    /// Show applications, services, peers, queues and memory of the daemon
    List(ListArgs),
    /// Show the shards of the daemon, or move an application to another
    Shards(ShardsArgs),
    /// Make a call, JSON in and out
    Call(CallArgs),
    /// Make many calls at a constant rate and show how long they took
    Bench(BenchArgs),
    /// Show where the time of a method's calls goes, in nine components
    Explain(ExplainArgs),
    /// Show which methods run now, again and again
    Top(TopArgs),
    /// Run the R2P2 router in front of many workers until SIGINT or SIGTERM
    Router(RouterArgs),
    /// Attach applications of other hosts and containers over TLS, until SIGINT or SIGTERM
    Relay(RelayArgs),
    /// Simulate dispatch policies: p99 against load, beside the bound
    Sim(SimArgs),
    /// Show the policies calls pass, and change them while calls are in flight
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Start two daemons and a search service on this machine, and call through both
    Demo(DemoArgs),
    /// Print a script with which a shell completes this command line
    Completions(CompletionsArgs),
    /// Write manual pages, one for each verb
    #[command(hide = true)]
    Man(ManArgs),
}

impl Verb {
    /// Whether it needs a daemon that runs, and takes `--socket` as the place of that.
    pub fn attaches(&self) -> bool {
        match self {
            Self::Upgrade(_) | Self::List(_) | Self::Shards(_) | Self::Call(_) | Self::Bench(_) => true,
            Self::Explain(_) | Self::Top(_) | Self::Policy(_) => true,
            Self::Daemon(_) | Self::Doctor(_) | Self::Router(_) | Self::Relay(_) | Self::Sim(_) => false,
            Self::Demo(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }

    /// What is wrong with `--admin-socket` where it is none of the verb's.
    pub fn refuses_operators(&self) -> Option<&'static str> {
        match self {
            Self::Call(_) | Self::Bench(_) => Some("calls are made by applications: use --socket"),
            Self::Daemon(_) => {
                Some("a daemon lets operators in where admin.listen of its configuration says")
            }
            Self::Doctor(_) => Some("the daemon is looked for as applications look for it: use --socket"),
            Self::Router(_) | Self::Relay(_) | Self::Sim(_) => Some("this verb asks no daemon for its state"),
            Self::Demo(_) | Self::Completions(_) | Self::Man(_) => {
                Some("this verb asks no daemon for its state")
            }
            Self::Upgrade(_) | Self::List(_) | Self::Shards(_) | Self::Explain(_) | Self::Top(_) => None,
            Self::Policy(_) => None,
        }
    }
}

/// `trunkline daemon`
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Configuration file [default: $TRUNKLINE_CONFIG, else /etc/trunkline/daemon.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to listen on for other daemons, besides those of the configuration; may be repeated
    #[arg(long, value_name = "ENDPOINT")]
    pub listen: Vec<trunkline_net::Endpoint>,
    /// Check the configuration and end: 0 if it is good
    #[arg(long)]
    pub check_config: bool,
    /// Print the whole configuration as it would be used, and end
    #[arg(long, conflicts_with = "check_config")]
    pub print_config: bool,
    /// Time calls in flight get to end after SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub drain: Duration,
    /// End as if by SIGTERM when standard input closes: for supervisors and tests, so that their death ends the daemon
    #[arg(long)]
    pub until_stdin_closes: bool,
    /// Take the place of the daemon at the other end of this descriptor
    #[arg(long, value_name = "DESCRIPTOR", hide = true)]
    pub take_over: Option<i32>,
}

/// `trunkline upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// Program to go on with [default: the file the running daemon was started from, as it is now]
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Time gRPC connections get for their calls to end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub grace: Duration,
}

/// `trunkline doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 if there is no problem, 1 if there is one. Advice is no problem.

Run it as the user whose program does not reach the daemon, and as the daemon's user: rights are theirs.")]
pub struct DoctorArgs {
    /// Configuration file of the daemon [default: $TRUNKLINE_CONFIG, else /etc/trunkline/daemon.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `trunkline shards`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ShardsArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// What to change.
    #[command(subcommand)]
    pub verb: Option<ShardsVerb>,
}

/// What may be done with shards.
#[derive(Debug, Subcommand)]
pub enum ShardsVerb {
    /// Have all sessions of an application go to a shard, with their calls in flight
    Move {
        /// As `trunkline list` calls it: NAME[PID]
        application: String,
        /// The shard
        #[arg(value_parser = crate::numbers::shard)]
        shard: u32,
    },
}

/// `trunkline list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `trunkline call`
#[derive(Debug, Args)]
#[command(after_help = "\
Types come from --proto or --descriptor-set files, else from the server itself (gRPC reflection): a daemon answers for \
its applications.

Exit code: 0 if the call ended with OK, 64 plus the gRPC code if it did not, 1 if there was no call, 2 for a wrong \
command line.

Examples:
  trunkline call Search/Query '{\"query\": \"turn loop\"}'
  trunkline call --target 10.0.0.7:7878 -H 'tenant: blue' search.v1.Search/Results -d '{\"query\": \"ring\"}'
  trunkline call -plaintext 10.0.0.7:7878 list         # as grpcurl has it; --target says the same
  trunkline call -cacert ca.pem search.internal:443 Search/Query '{\"query\": \"ring\"}'
  cat documents.jsonl | trunkline call --proto search.proto search.v1.Search/Index
  trunkline call list                                  # services
  trunkline call list search.v1.Search                 # its methods
  trunkline call describe search.v1.QueryRequest       # as its .proto has it")]
pub struct CallArgs {
    /// Method: package.Service/Method; the package may be left out. Or `list [SERVICE]`, or `describe [SYMBOL]`.
    /// Whom to call may stand before it. Behind it come requests as JSON; `-`, or none at all, reads them from standard
    /// input
    #[arg(required = true, value_name = "METHOD")]
    pub words: Vec<String>,
    /// Requests as JSON, as many as the method takes; `@FILE` reads a file, `@` or `-` standard input
    #[arg(long, short, value_name = "JSON")]
    pub data: Option<String>,
    #[command(flatten)]
    pub types: TypeArgs,
    #[command(flatten)]
    pub way: WayArgs,
    /// Show fields of responses that have no presence even if they are zero
    #[arg(long)]
    pub emit_defaults: bool,
    /// Pass over JSON members the request type does not have
    #[arg(long)]
    pub allow_unknown_fields: bool,
    /// With `describe`: show a message's JSON, to be filled in
    #[arg(long)]
    pub msg_template: bool,
    /// Write the types that were used to a file, as an encoded FileDescriptorSet
    #[arg(long, value_name = "FILE", visible_alias = "protoset-out")]
    pub descriptor_set_out: Option<PathBuf>,
    /// Print the method, metadata sent and received, and counts to standard error
    #[arg(long, short)]
    pub verbose: bool,
}

/// Where types come from.
#[derive(Debug, Args)]
pub struct TypeArgs {
    /// A .proto file; may be repeated
    #[arg(long, short, value_name = "FILE")]
    pub proto: Vec<PathBuf>,
    /// Folder in which imports are looked up; may be repeated [default: the folders of the .proto files]
    #[arg(long, short = 'I', value_name = "FOLDER", visible_alias = "import-path")]
    pub include: Vec<PathBuf>,
    /// A file with an encoded FileDescriptorSet; may be repeated
    #[arg(long, value_name = "FILE", visible_alias = "protoset")]
    pub descriptor_set: Vec<PathBuf>,
}

/// Who is called, and with what.
#[derive(Debug, Args)]
pub struct WayArgs {
    /// Whom to call: HOST:PORT, dns:///HOST:PORT, tls://NAME@ADDRESS:PORT or unix:PATH [default: whoever serves it]
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Whom>,
    /// Metadata to send; base64 for keys that end in -bin; may be repeated
    #[arg(
        long,
        short = 'm',
        value_name = "KEY:VALUE",
        visible_alias = "header",
        visible_short_alias = 'H',
        value_parser = metadata
    )]
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Time a call may take, such as 500ms or 2s
    #[arg(long, value_name = "TIME", visible_alias = "max-time", value_parser = some_time)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// A target, and what TLS wants to know of it besides.
#[derive(Clone, Debug)]
pub struct Whom {
    /// Where it is.
    pub target: trunkline_net::Target,
    /// It was written `localhost`, which is an address by now and may be a name in a certificate.
    pub is_localhost: bool,
}

impl std::str::FromStr for Whom {
    type Err = trunkline_net::TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let host = text.rsplit_once('/').map_or(text, |(_, host)| host);
        Ok(Self { target: text.parse()?, is_localhost: host.starts_with("localhost:") })
    }
}

/// TLS, which all but --plaintext and --authority ask for: by an engine of this process, with the user's own keys.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Do not speak TLS: as usual here, for those who are used to saying so
    #[arg(long, conflicts_with_all = ["tls", "cacert", "cert", "key", "insecure", "servername"])]
    pub plaintext: bool,
    /// Speak TLS, trusting the system's roots
    #[arg(long)]
    pub tls: bool,
    /// Speak TLS, trusting the roots in this file (PEM)
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Show this certificate to a server that asks for one (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Speak TLS with whoever answers, whatever the certificate says
    #[arg(long, visible_alias = "skip-tls", conflicts_with = "cacert")]
    pub insecure: bool,
    /// Name the server's certificate must have, if not the target's
    #[arg(long, value_name = "NAME")]
    pub servername: Option<String>,
    /// Whom the request is said to be for (:authority), and with TLS the name of --servername, if not the target
    #[arg(long, value_name = "NAME", value_parser = authority)]
    pub authority: Option<String>,
}

impl TlsArgs {
    /// Whether TLS is to be spoken.
    pub fn is_asked_for(&self) -> bool {
        let named = self.cacert.is_some() || self.cert.is_some() || self.servername.is_some();
        self.tls || self.insecure || named
    }
}

/// `trunkline bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Calls are due at constant intervals whatever becomes of earlier ones (open loop), and each is measured from the moment \
it was due: a server that stalls cannot hide the calls that would have come meanwhile.

The data is JSON, one value or several in turn (all of them in every call if the method streams). In it {{number}} \
stands for the number of the call, {{random}}, {{uuid}} and {{time_ms}} for what they say.

Exit code: 0 if every call ended with OK, 1 if not, or if there was no run, 2 for a wrong command line.

Examples:
  trunkline bench Search/Query -d '{\"query\": \"ring {{number}}\"}' --rate 1000 --duration 30s --html report.html
  trunkline bench Search/Query --rate 500 --rate-end 5000 --rate-step 500 --step-time 10s --output json
  trunkline bench Search/Query --closed --concurrency 32 --count 100000")]
pub struct BenchArgs {
    /// Method: package.Service/Method; the package may be left out. Whom to call may stand before it
    #[arg(required = true, num_args = 1..=2, value_name = "METHOD")]
    pub words: Vec<String>,
    /// Requests as JSON; `@FILE` reads a file, `@` or `-` standard input
    #[arg(long, short, value_name = "JSON", default_value = "")]
    pub data: String,
    #[command(flatten)]
    pub types: TypeArgs,
    #[command(flatten)]
    pub way: WayArgs,
    /// Calls per second [default: 100]
    #[arg(long, short, value_name = "RATE", conflicts_with = "closed")]
    pub rate: Option<f64>,
    /// Last rate of a run in steps
    #[arg(long, value_name = "RATE", requires = "rate")]
    pub rate_end: Option<f64>,
    /// Difference between two steps [default: a tenth of the way]
    #[arg(long, value_name = "RATE", requires = "rate_end")]
    pub rate_step: Option<f64>,
    /// Time of a step
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub step_time: Duration,
    /// Keep so many calls outstanding instead, the next when one ends (closed loop)
    #[arg(long)]
    pub closed: bool,
    /// Calls outstanding in a closed loop
    #[arg(long, short, value_name = "COUNT", default_value = "1", value_parser = positive, requires = "closed")]
    pub concurrency: usize,
    /// Time in which calls are made [default: 10s, unless --count or steps end the run]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub duration: Option<Duration>,
    /// Calls made at most
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Time before calls count
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub warm_up: Duration,
    /// Calls in flight at most; more wait in line, and their time counts
    #[arg(long, value_name = "COUNT", default_value = "1024", value_parser = positive)]
    pub in_flight_max: usize,
    /// Pass over JSON members the request type does not have
    #[arg(long)]
    pub allow_unknown_fields: bool,
    /// Form of the report
    #[arg(long, short, value_enum, default_value = "text")]
    pub output: Form,
    /// Write the report to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a page with plots to a file, besides
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `trunkline top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Time between two pictures
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// One picture, then end
    #[arg(long)]
    pub once: bool,
    /// A JSON object a picture, each in a line of its own
    #[arg(long)]
    pub json: bool,
}

/// `trunkline demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder whose text is searched
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Folder with the example programs [default: that of this program]
    #[arg(long, value_name = "FOLDER")]
    pub programs: Option<PathBuf>,
}

/// Reads a number that is not zero.
fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| format!("{text:?}: write a number from 1"))
}

/// Reads what may stand in `:authority`: a host, perhaps with a port.
fn authority(text: &str) -> Result<String, String> {
    let sound = text.parse::<http::uri::Authority>().is_ok() && !text.contains('@');
    if sound {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no authority: write NAME or NAME:PORT"))
    }
}

/// Names that HTTP/2 and gRPC have for themselves, in whose place something else is said.
const RESERVED: [&str; 7] =
    ["connection", "content-length", "content-type", "host", "te", "transfer-encoding", "upgrade"];

/// Names of gRPC's that applications may say all the same.
const SAID_ALL_THE_SAME: [&str; 2] = ["grpc-tags-bin", "grpc-trace-bin"];

/// A key as it is sent.
///
/// # Errors
/// It is none, or the protocol's.
fn metadata_key(name: &str) -> Result<String, String> {
    if name.starts_with(':') {
        return Err(format!("{name:?} is HTTP/2's own, and no metadata; --authority says :authority"));
    }
    let key = Metadata::key_of(name).map_err(|error| error.to_string())?;
    let is_grpcs = key.starts_with("grpc-") && !SAID_ALL_THE_SAME.contains(&&*key);
    match is_grpcs || RESERVED.contains(&&*key) {
        true => Err(format!("{key:?} is the protocol's own, and no metadata (see --timeout, --authority)")),
        false => Ok(key),
    }
}

/// Reads `key:value`; binary values in base64, with or without its padding, as gRPC sends them.
fn metadata(text: &str) -> Result<(String, Vec<u8>), String> {
    use base64::Engine;
    use base64::alphabet::STANDARD;
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    let colon = text.bytes().skip(1).position(|byte| byte == b':').ok_or("write key:value")? + 1;
    let (key, value) = (metadata_key(text[..colon].trim())?, text[colon + 1..].trim());
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decoded = key.ends_with("-bin").then(|| GeneralPurpose::new(&STANDARD, lenient).decode(value));
    let decoded = decoded.transpose().map_err(|error| {
        format!("{value:?} is no base64 ({error}): the value of a key that ends in -bin is written so")
    })?;
    let value = decoded.unwrap_or_else(|| value.as_bytes().to_vec());
    // Checked one by one, so that the error stands at the pair at fault.
    Metadata::new().insert(&key, &value).map_err(|error| error.to_string())?;
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    //! Shows that the command line is well formed, how times, targets and metadata are written, and what asks for TLS.
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Trunkline::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("500ms", Some(500)), ("1.5s", Some(1500)), ("2m", Some(120_000)), ("250us", Some(0))]
        {
            assert_eq!(duration(text).ok().map(|time| time.as_millis()), ms, "{text}");
        }
        for text in ["", "5", "ms", "-1s", "1.2.3s", "1e9s", "99999999999999999999h", "8761h"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("8760h").is_ok() && duration("0s").is_ok() && some_time("0s").is_err());
        assert!(interval("100ms").is_ok() && interval("99ms").is_err() && interval("61s").is_err());
    }

    #[test]
    fn targets_need_no_scheme() {
        for (text, target) in [
            ("127.0.0.1:80", "tcp://127.0.0.1:80"),
            ("tcp://[::1]:80", "tcp://[::1]:80"),
            ("db.example:80", "dns:///db.example:80"),
            ("unix:///p", "unix:///p"),
        ] {
            assert_eq!(call(&["--target", text]).unwrap().way.target.unwrap().target.to_string(), target);
        }
        assert!(call(&["--target", "nowhere"]).is_err());
        assert!(call(&["--target", "http://127.0.0.1:80"]).is_err());
    }

    #[test]
    fn tls_is_asked_for_in_many_ways() {
        for (flags, asked) in [
            (&[][..], false),
            (&["--plaintext"], false),
            (&["--authority", "db.example:8"], false),
            (&["--tls"], true),
            (&["--insecure"], true),
            (&["--cacert", "ca.pem"], true),
            (&["--servername", "db.example"], true),
            (&["--cert", "c.pem", "--key", "k.pem"], true),
        ] {
            assert_eq!(call(flags).unwrap().way.tls.is_asked_for(), asked, "{flags:?}");
        }
        for flags in [
            &["--plaintext", "--tls"][..],
            &["--plaintext", "--cacert", "ca.pem"],
            &["--insecure", "--cacert", "ca.pem"],
            &["--cert", "c.pem"],
            &["--authority", "a@b"],
            &["--authority", "a b"],
        ] {
            assert!(call(flags).is_err(), "{flags:?}");
        }
    }

    fn call(flags: &[&str]) -> Result<CallArgs, clap::Error> {
        let parsed = Trunkline::try_parse_from([&["trunkline", "call", "a.B/C"], flags].concat())?;
        let Verb::Call(args) = parsed.verb else { panic!("{flags:?}") };
        Ok(args)
    }

    #[test]
    fn metadata_is_checked_where_it_stands() {
        assert_eq!(metadata("tenant: blue"), Ok(("tenant".into(), b"blue".to_vec())));
        for padded_or_not in ["x-bin:/wA=", "x-bin: /wA"] {
            assert_eq!(metadata(padded_or_not), Ok(("x-bin".into(), vec![0xff, 0])));
        }
        assert!(metadata("x-bin: !!").unwrap_err().contains("\"!!\" is no base64"));
        assert_eq!(metadata("Tenant:blue"), Ok(("tenant".into(), b"blue".to_vec())), "as grpcurl has it");
        for wrong in ["", "tenant", "te nant:blue", "x-bin:?", ":x"] {
            assert!(metadata(wrong).is_err(), "{wrong}");
        }
        for own in ["grpc-timeout: 1S", "te: trailers", "Content-Type: x", ":path: /x", "host: a"] {
            assert!(metadata(own).unwrap_err().contains("no metadata"), "{own}");
        }
        assert!(metadata("grpc-trace-bin: AAAA").is_ok());
    }
}
