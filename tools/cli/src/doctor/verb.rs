//! The verb itself.

use super::finding::{Finding, has_problem, render};
use super::{certificates, daemon, kernel, limits};
use crate::args::DoctorArgs;
use crate::daemon::Loaded;
use std::path::PathBuf;
use trunkline_daemon::Config;

/// Looks at everything and prints it; whether nothing is wrong.
///
/// # Errors
/// If the findings have no JSON form, which they do.
pub fn doctor(args: &DoctorArgs, socket: Option<PathBuf>) -> Result<bool, String> {
    let (config, mut findings) = configuration(args);
    findings.extend(certificates::look(&config));
    let seen = daemon::look(socket, &config);
    findings.extend(seen.findings);
    findings.extend(limits::look(seen.process, &config));
    findings.extend(kernel::look(&config));
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&findings).map_err(|error| error.to_string())?),
        false => print!("{}", render(&findings)),
    }
    Ok(!has_problem(&findings))
}

/// The configuration a daemon would start with here; the defaults stand in for one that is wrong.
fn configuration(args: &DoctorArgs) -> (Config, Vec<Finding>) {
    let remedy = "mend it, and look again: trunkline daemon --check-config";
    let problem = |error: String| Finding::problem("configuration", error, remedy);
    let loaded = match Loaded::find(args.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(error) => return (Config::default(), vec![problem(error.to_string())]),
    };
    let found = match loaded.check_host() {
        Ok(()) => Finding::good("configuration", loaded.origin()),
        Err(error) => problem(error.to_string()),
    };
    (loaded.config, vec![found])
}
