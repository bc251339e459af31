//! gRPC's interoperability client: plays a case against whatever server there is.

use clap::{ArgAction, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use trunkline::Metadata;
use trunkline_interop::host::{Dial, Host};
use trunkline_interop::testing::{self, Caller, Case, Soak};

/// Calls a server of grpc.testing.TestService; flags are those of gRPC's own interoperability clients
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
struct Args {
    /// The server's host
    #[arg(long, default_value = "localhost")]
    server_host: String,
    /// The server's port
    #[arg(long, default_value_t = 10_000)]
    server_port: u16,
    /// The name the server's certificate must have, if not its host
    #[arg(long)]
    server_host_override: Option<String>,
    /// Speak TLS
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    use_tls: bool,
    /// Trust the certificates in --ca_file only; said for the sake of those who say it: they always are
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", action = ArgAction::Set)]
    use_test_ca: bool,
    /// Certificates trusted (PEM), instead of the system's
    #[arg(long, visible_alias = "custom_ca")]
    ca_file: Option<PathBuf>,
    /// The case, or several with commas between them, or all
    #[arg(long, default_value = "large_unary")]
    test_case: String,
    /// Sent with every unary call: key:value pairs with semicolons between them
    #[arg(long, default_value = "")]
    additional_metadata: String,
    #[command(flatten)]
    soak: Soak,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop-client: {error}");
            ExitCode::from(2)
        }
    }
}

/// Plays the cases and says how many failed.
fn run(args: &Args) -> Result<usize, Box<dyn std::error::Error>> {
    let cases = cases(&args.test_case)?;
    let dial = Dial {
        host: args.server_host.clone(),
        port: args.server_port,
        tls: args.use_tls,
        server_name: args.server_host_override.clone(),
        ca: args.ca_file.clone(),
        ..Dial::default()
    };
    let host = Host::find_or_start(&dial.config())?;
    let (socket, target) = (host.socket().to_owned(), dial.target());
    let open = move || {
        trunkline::Channel::builder().socket(&socket).target(&target).wait_for_ready(true).connect_lazy()
    };
    let caller =
        Caller::new(open).with_metadata(pairs(&args.additional_metadata)?).with_soak(args.soak.clone());
    let mut failed = 0;
    for (name, play) in cases {
        let began = Instant::now();
        match play(&caller) {
            Ok(()) => println!("passed {name} in {} ms", began.elapsed().as_millis()),
            Err(error) => {
                failed += 1;
                println!("FAILED {name}: {error}");
            }
        }
    }
    if failed > 0 {
        eprint!("{}", host.log());
    }
    Ok(failed)
}

fn cases(names: &str) -> Result<Vec<Case>, String> {
    if names == "all" {
        return Ok(testing::ALL.to_vec());
    }
    let known: Vec<&str> = testing::ALL.iter().map(|(name, _)| *name).collect();
    let find = |name: &str| {
        testing::named(name).ok_or_else(|| format!("no case {name:?}; there are {}", known.join(", ")))
    };
    names.split(',').map(find).collect()
}

fn pairs(text: &str) -> Result<Metadata, Box<dyn std::error::Error>> {
    let mut metadata = Metadata::new();
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once(':').ok_or_else(|| format!("{pair:?}: write key:value"))?;
        metadata.insert(&key.to_ascii_lowercase(), value)?;
    }
    Ok(metadata)
}
