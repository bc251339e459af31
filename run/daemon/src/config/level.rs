//! `log.level`: whether it says what is to be logged.
//!
//! A filter takes any word for the name of a module: `chatty` would log everything of a module of that name, and
//! nothing else. A level that is mistyped would so be the silence of the whole daemon.

use super::error::nearest;

/// Our crates, as the log calls them. (Others have theirs: `h2`, `rustls`.)
const CRATES: [&str; 30] = [
    "trunkline",
    "trunkline_balance",
    "trunkline_call",
    "trunkline_control",
    "trunkline_daemon",
    "trunkline_dispatch",
    "trunkline_engine",
    "trunkline_grpc",
    "trunkline_insight",
    "trunkline_message",
    "trunkline_module",
    "trunkline_module_abi",
    "trunkline_native",
    "trunkline_net",
    "trunkline_policy",
    "trunkline_policy_module",
    "trunkline_r2p2",
    "trunkline_otlp",
    "trunkline_pages",
    "trunkline_plot",
    "trunkline_relay",
    "trunkline_router",
    "trunkline_schema",
    "trunkline_services",
    "trunkline_share",
    "trunkline_shm",
    "trunkline_sim",
    "trunkline_telemetry",
    "trunkline_tonic",
    "trunkline_build",
];

/// What to write.
pub(super) const ADVICE: &str = "write off, error, warn, info, debug or trace, and more for single modules behind a \
                                 comma: \"info,trunkline_daemon=debug\"";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Checks the directives of a log filter, as `log.level` and `TRUNKLINE_LOG` have them.
///
/// # Errors
/// What is wrong, and what to write instead.
pub fn check_log_level(text: &str) -> Result<(), String> {
    problem(text).map_or(Ok(()), |problem| Err(format!("{problem}; {ADVICE}")))
}

pub(super) fn problem(text: &str) -> Option<String> {
    let directives = split(text);
    if directives.is_empty() {
        return Some("is empty, and nothing would be logged".into());
    }
    if let Some(wrong) = directives.iter().find_map(|directive| wrong(directive)) {
        return Some(wrong);
    }
    let for_all = directives.iter().any(|directive| is_level(directive));
    (!for_all).then(|| format!("is {text:?}, and everything else would not be logged at all"))
}

fn wrong(directive: &str) -> Option<String> {
    let count = |bracket| directive.matches(bracket).count();
    if count('[') != count(']') || count('{') != count('}') {
        return Some(format!("has {directive:?}, and a bracket in it has no other half"));
    }
    // A span and its fields may have anything in them: `module[span{field=value}]=level`.
    let (target, level) = match directive.rfind(']') {
        Some(end) => (&directive[..=end], directive[end + 1..].strip_prefix('=')),
        None => match directive.split_once('=') {
            Some((target, level)) => (target, Some(level)),
            None => (directive, None),
        },
    };
    match level {
        Some(level) if is_level(level) => unknown_crate(target).map(|(name, near)| {
            format!("has {directive:?}, and there is no crate {name:?} (there is {near:?})")
        }),
        Some(level) => Some(format!("has {directive:?}, and {level:?} is no level")),
        None if is_level(target) || target.ends_with(']') => None,
        None => Some(format!("has {directive:?}, which is no level")),
    }
}

/// The crate that was meant by a name that is almost one of ours.
fn unknown_crate(target: &str) -> Option<(&str, &'static str)> {
    let name = target.split([':', '[']).next().unwrap_or_default().trim();
    if name.is_empty() || CRATES.contains(&name) {
        return None;
    }
    let ours = name.starts_with("trunkline").then_some("trunkline");
    nearest(name, &CRATES).or(ours).map(|near| (name, near))
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word.trim()))
}

/// Parts between commas that are not within brackets, without empty ones.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    //! Shows which directives pass, and what is said of others.
    use super::*;

    #[test]
    fn levels_and_modules_pass() {
        for good in [
            "info",
            "WARN",
            "off",
            "info,trunkline_daemon=debug",
            " info , h2=warn ,",
            "warn,a::b=trace",
            "info,[span]",
            "info,trunkline::daemon=debug,rustls=trace",
            "off,trunkline_engine=info",
            "info,a[span{field=x,other=y}]=debug",
        ] {
            assert_eq!(check_log_level(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_would_silence_the_daemon_does_not() {
        for (bad, wanted) in [
            ("chatty", "has \"chatty\", which is no level"),
            ("", "is empty"),
            (" , ", "is empty"),
            ("info,trunkline_daemon", "has \"trunkline_daemon\", which is no level"),
            ("info,trunkline_daemon=loud", "has \"trunkline_daemon=loud\", and \"loud\" is no level"),
            ("info,a[b=debug", "a bracket in it has no other half"),
            ("info,a[b{c=1]=debug", "a bracket in it has no other half"),
            ("info,a[b]=x", "and \"x\" is no level"),
            ("trunkline_daemon=debug", "everything else would not be logged at all"),
            ("[span]", "everything else would not be logged at all"),
            ("info,trunkline_deamon=debug", "(there is \"trunkline_daemon\")"),
            ("info,trunkline-daemon=debug", "(there is \"trunkline_daemon\")"),
            ("info,trunkline_of_ours=debug", "(there is \"trunkline\")"),
            ("info;debug", "has \"info;debug\", which is no level"),
        ] {
            let told = check_log_level(bad).unwrap_err();
            assert!(told.contains(wanted), "{bad}: {told}");
            assert!(told.ends_with(ADVICE), "{told}");
        }
    }

    /// The list of crates is the workspace's.
    #[test]
    fn every_crate_that_logs_is_known() {
        let manifest = include_str!("../../../../Cargo.toml");
        let ours = manifest.lines().filter_map(|line| {
            let (name, rest) = line.split_once(" = { version = ")?;
            let (_, rest) = rest.split_once("path = \"")?;
            ["core/", "host/", "run/", "tools/services"]
                .iter()
                .any(|folder| rest.starts_with(folder))
                .then_some(name)
        });
        let ours: Vec<&str> = ours.collect();
        assert!(ours.len() > 20, "{ours:?}");
        for name in ours {
            assert!(CRATES.contains(&name.replace('-', "_").as_str()), "{name}");
        }
    }
}
