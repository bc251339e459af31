//! The command line as users of grpcurl and ghz write it: with one dash before long names, and with the address first.

use crate::args::Whom;
use std::ffi::OsString;

/// Verbs whose arguments are those of grpcurl and ghz.
const VERBS: [&str; 2] = ["bench", "call"];

/// Names grpcurl writes with one dash and `trunkline` has, too. Other words behind one dash stay what they are: short
/// names, and their values.
const NAMES: [&str; 19] = [
    "allow-unknown-fields",
    "authority",
    "cacert",
    "cert",
    "descriptor-set-out",
    "emit-defaults",
    "header",
    "help",
    "import-path",
    "insecure",
    "key",
    "max-time",
    "msg-template",
    "plaintext",
    "proto",
    "protoset",
    "protoset-out",
    "servername",
    "version",
];

/// Writes two dashes where Go's programs write one.
pub fn two_dashes(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut concerned, mut over) = (false, false);
    let rewritten = arguments.map(|argument| {
        let Some(text) = argument.to_str() else { return argument };
        concerned |= VERBS.contains(&text);
        over |= text == "--";
        if concerned && !over && has_one_dash(text) { format!("-{text}").into() } else { argument }
    });
    rewritten.collect()
}

fn has_one_dash(argument: &str) -> bool {
    let Some(flag) = argument.strip_prefix('-') else { return false };
    NAMES.contains(&flag.split_once('=').map_or(flag, |(name, _)| name))
}

/// Takes off the address, if there is one before the method: `HOST:PORT`, or anything else with a colon. No method has
/// one.
///
/// # Errors
/// What is wrong with the address, or that nothing follows it.
pub fn take_target(words: &mut Vec<String>) -> Result<Option<Whom>, String> {
    let Some(target) = words.first().filter(|word| word.contains(':')) else { return Ok(None) };
    let whom: Whom = target.parse().map_err(|error| format!("{error}"))?;
    if words.len() < 2 {
        return Err(format!("what is to be called at {target}? Write package.Service/Method, or list"));
    }
    words.remove(0);
    Ok(Some(whom))
}

#[cfg(test)]
mod tests {
    //! Shows which arguments get a second dash, and what is taken for an address.
    use super::*;

    #[test]
    fn long_names_get_their_second_dash() {
        for (given, read) in [
            ("trunkline call -plaintext list", "trunkline call --plaintext list"),
            ("trunkline call -proto=a.proto -H a:b -v", "trunkline call --proto=a.proto -H a:b -v"),
            ("trunkline bench -insecure -n 5 -d {}", "trunkline bench --insecure -n 5 -d {}"),
            ("trunkline call -d@ -mkey:value -- -plaintext", "trunkline call -d@ -mkey:value -- -plaintext"),
            ("trunkline list -key", "trunkline list -key"),
        ] {
            assert_eq!(two_dashes(given.split(' ').map(OsString::from)), read.split(' ').collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_address_may_come_first() {
        let taken = |words: &str| {
            let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            take_target(&mut words)
                .map(|target| (target.map(|whom| whom.target.to_string()), words.join(" ")))
        };
        let at = |target: &str, rest: &str| Ok((Some(target.to_owned()), rest.to_owned()));
        assert_eq!(taken("127.0.0.1:1 a.B/C {}"), at("tcp://127.0.0.1:1", "a.B/C {}"));
        assert_eq!(taken("db.example:1 list a.B"), at("dns:///db.example:1", "list a.B"));
        assert_eq!(taken("unix:/a list"), at("unix:///a", "list"));
        assert_eq!(taken("a.B/C {\"a\":1}"), Ok((None, "a.B/C {\"a\":1}".to_owned())));
        assert!(taken("127.0.0.1:1").unwrap_err().contains("what is to be called"));
        assert!(taken("127.0.0.1:x list").unwrap_err().contains("no port"));
    }
}
