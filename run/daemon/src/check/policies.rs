//! Whether the chain of policies that the daemon would begin with can be put to work, modules included.

use crate::config::Breach;
use crate::config::{Config, ConfigError, policy_breach};
use crate::policies_file::PoliciesFileError;
use trunkline_module::Loader;
use trunkline_policy::{Chain, Definition, PolicyError};

/// Checks the chain of `admin.policies_file`, if it is there, and else that of the configuration.
pub(super) fn check(config: &Config, text: &str, origin: &str) -> Result<(), ConfigError> {
    let kept = match config.kept_policies() {
        Ok(kept) => kept,
        Err(error) => return Err(ConfigError::of_rule(unreadable(error), text, origin)),
    };
    let Some(path) = config.policies_file().filter(|_| kept.is_some()) else {
        let working = put_to_work(&config.policy);
        return working.map_err(|error| ConfigError::of_rule(policy_breach(error), text, origin));
    };
    let chain = kept.unwrap_or_default();
    put_to_work(&chain).map_err(|error| {
        // Its place is in that file.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Config::policy_error(error, &text, &path.display().to_string())
    })
}

/// What a daemon does when it begins, without calls.
fn put_to_work(definitions: &[Definition]) -> Result<(), PolicyError> {
    Chain::build(definitions)?.load_modules(&Loader::default()).map(drop)
}

fn unreadable(error: PoliciesFileError) -> Breach {
    let advice = match &error {
        PoliciesFileError::Read { .. } => {
            "write a path the daemon's user may read, or one where nothing is yet"
        }
        // The others say it themselves.
        _ => "",
    };
    Breach { key: "admin.policies_file".into(), problem: error.to_string(), advice: advice.into() }
}
