//! The command line, as types.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use trunkline_call::Metadata;

/// Remote procedure calls as a managed service of the host.
///
/// One daemon per host carries the calls of all applications. Start one with `trunkline daemon`, or see everything at
/// work with `trunkline demo`.
#[derive(Debug, Parser)]
#[command(name = "trunkline", version, max_term_width = 100)]
pub struct Trunkline {
    /// Socket of the daemon [default: $TRUNKLINE_SOCKET, else the usual places]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the daemon until SIGINT or SIGTERM
    Daemon(DaemonArgs),
    /// Show applications, services, peers, queues and memory of the daemon
    List(ListArgs),
    /// Make a call, JSON in and out
    Call(CallArgs),
    /// Show where the time of a method's calls goes, in nine components
    Explain(ExplainArgs),
    /// Show which methods run now, again and again
    Top(TopArgs),
    /// Start two daemons and a search service on this machine, and call through both
    Demo(DemoArgs),
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
Exit code: 0 if the call ended with OK, 64 plus the gRPC code if it did not, 1 if there was no call, 2 for a wrong \
command line.

Examples:
  trunkline call --proto search.proto Search/Query '{\"query\": \"turn loop\"}'
  trunkline call --proto search.proto --target tcp://10.0.0.7:7878 search.v1.Search/Results '{\"query\": \"ring\"}'
  cat documents.jsonl | trunkline call --descriptor-set search.binpb search.v1.Search/Index")]
pub struct CallArgs {
    /// Method: package.Service/Method; the package may be left out
    pub method: String,
    /// Requests as JSON; `-`, or none at all, reads them from standard input
    pub requests: Vec<String>,
    /// A .proto file; may be repeated
    #[arg(long, short, value_name = "FILE")]
    pub proto: Vec<PathBuf>,
    /// Folder in which imports are looked up; may be repeated [default: the folders of the .proto files]
    #[arg(long, short = 'I', value_name = "FOLDER")]
    pub include: Vec<PathBuf>,
    /// A file with an encoded FileDescriptorSet; may be repeated
    #[arg(long, value_name = "FILE")]
    pub descriptor_set: Vec<PathBuf>,
    /// Whom to call: tcp://ADDRESS:PORT or unix:PATH [default: whoever serves it]
    #[arg(long, value_name = "ENDPOINT")]
    pub target: Option<trunkline_net::Endpoint>,
    /// Metadata to send; base64 for keys that end in -bin; may be repeated
    #[arg(long, short = 'm', value_name = "KEY:VALUE", value_parser = metadata)]
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Time the call may take, such as 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Print received metadata to standard error
    #[arg(long, short)]
    pub verbose: bool,
}

/// `trunkline explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Method or service: package.Service/Method, or any part of it [default: all]
    #[arg(default_value = "")]
    pub method: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `trunkline top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Time between two pictures
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub interval: Duration,
    /// One picture, then end
    #[arg(long)]
    pub once: bool,
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

/// Reads `500ms`, `2s`, `1.5s`, `3m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: write 500ms, 2s or 3m");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| wrong())
}

/// Reads `key:value`.
fn metadata(text: &str) -> Result<(String, Vec<u8>), String> {
    use base64::Engine;
    let (key, value) = text.split_once(':').ok_or("write key:value")?;
    let (key, value) = (key.trim(), value.trim());
    let value = match key.ends_with("-bin") {
        true => base64::engine::general_purpose::STANDARD.decode(value).map_err(|error| error.to_string())?,
        false => value.as_bytes().to_vec(),
    };
    // Checked one by one, so that the error stands at the pair at fault.
    Metadata::new().insert(key, &value).map_err(|error| error.to_string())?;
    Ok((key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    //! Shows that the command line is well formed and how times and metadata are written.
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
        for text in ["", "5", "ms", "-1s", "1.2.3s", "1e9s", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn metadata_is_checked_where_it_stands() {
        assert_eq!(metadata("tenant: blue"), Ok(("tenant".into(), b"blue".to_vec())));
        assert_eq!(metadata("x-bin:/wA="), Ok(("x-bin".into(), vec![0xff, 0])));
        for wrong in ["tenant", "Tenant:blue", "x-bin:?", ":x"] {
            assert!(metadata(wrong).is_err(), "{wrong}");
        }
    }
}
