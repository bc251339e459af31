//! `trunkline explain`: where the time of a method's calls goes.

use crate::admin::explanation;
use crate::admin::proto::ExplainRequest;
use crate::admin::proto::admin_client::AdminClient;
use crate::past;
use crate::times::{ago, some_time};
use clap::Args;
use std::time::Duration;
use trunkline::{Status, Wait};
use trunkline_call::printable_json;
use trunkline_telemetry::{Explanation, render};

/// `trunkline explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Method or service: package.Service/Method, or any part of it [default: all]
    #[arg(default_value = "")]
    pub method: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Only the last minutes, of two hours and a half at most: 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub last: Option<Duration>,
    /// Beside as long a time that ended so long ago: 1h-ago [with --last 10m, if that is not said]
    #[arg(long, value_name = "TIME-ago", value_parser = ago)]
    pub vs: Option<Duration>,
}

/// Calls looked at one by one for the what-if columns: enough for a steady 95th percentile.
const SAMPLES: u32 = 10_000;

/// Asks about every method whose path contains `method`.
///
/// # Errors
/// The call's; NOT_FOUND naming the methods that have calls, if this one has none.
pub fn explanations(client: &AdminClient, method: &str) -> Result<Vec<Explanation>, Status> {
    let request = ExplainRequest { method: method.to_owned(), samples_max: SAMPLES };
    let response = client.explain(request).wait()?.into_inner();
    if response.explanations.is_empty() {
        return Err(Status::not_found(nothing(method, &response.methods_known)));
    }
    Ok(response.explanations.into_iter().filter_map(explanation).collect())
}

/// Asks and prints.
///
/// # Errors
/// As [`explanations`].
pub fn explain(client: &AdminClient, args: &ExplainArgs) -> Result<(), Status> {
    if args.last.is_some() || args.vs.is_some() {
        let last = args.last.unwrap_or(past::USUAL);
        return past::explain(client, &args.method, last, args.vs, args.json);
    }
    let explanations = explanations(client, &args.method)?;
    if args.json {
        let json = serde_json::to_string_pretty(&explanations);
        println!("{}", printable_json(&json.map_err(|error| Status::internal(error.to_string()))?));
        return Ok(());
    }
    let tables: Vec<String> = explanations.iter().map(render::explanation).collect();
    print!("{}", tables.join("\n\n"));
    Ok(())
}

fn nothing(method: &str, known: &[String]) -> String {
    let what = if method.is_empty() { "no call".into() } else { format!("no call of {method:?}") };
    match known {
        [] => format!("{what} has ended here yet, nor of any other method"),
        known => format!("{what} has ended here yet; methods with calls: {}", known.join(", ")),
    }
}
