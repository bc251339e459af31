//! `trunkline explain`: where the time of a method's calls goes.

use crate::admin::explanation;
use crate::admin::proto::ExplainRequest;
use crate::admin::proto::admin_client::AdminClient;
use trunkline::{Status, Wait};
use trunkline_telemetry::{Explanation, render};

/// Calls looked at one by one for the what-if columns: enough for a steady 95th percentile.
const SAMPLES: u32 = 10_000;

/// Asks about every method whose path contains `method`.
///
/// # Errors
/// The call's; NOT_FOUND naming the methods that have calls, if this one has none.
pub fn explanations(client: &AdminClient, method: &str) -> Result<Vec<Explanation>, Status> {
    // The dot before a method, as .proto files write it, is also understood.
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
pub fn explain(client: &AdminClient, method: &str, as_json: bool) -> Result<(), Status> {
    let explanations = explanations(client, method)?;
    if as_json {
        let json = serde_json::to_string_pretty(&explanations);
        println!("{}", json.map_err(|error| Status::internal(error.to_string()))?);
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
