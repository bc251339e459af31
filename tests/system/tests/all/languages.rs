//! Shows every language as client and as server of every other, on one host and between two: Rust with types, C and
//! Python with bytes of protobuf. A language whose tools the machine lacks is named, and left out.

use crate::python;
use crate::support::c_programs::{Command, Prefix, Program};
use crate::support::{Host, Process, client, echo, until_served};

/// Calls each client makes of each server.
const CALLS: usize = 20;

/// A server at work; ends with this.
enum Serving {
    Rust { _process: Process },
    Other { _program: Program },
}

fn serve(language: &str, load: Option<&Command>, host: &Host) -> Serving {
    match load {
        None => Serving::Rust { _process: host.server("server") },
        Some(load) => {
            let log = host.folder().join(language);
            Serving::Other { _program: Program::start(host, &load.with(&["server", log.to_str().unwrap()])) }
        }
    }
}

#[test]
fn all_pairs_on_one_host_and_between_two() {
    let prefix = Prefix::new();
    let (c, python) = (prefix.compiled("tests/system/c/load.c"), python::load());
    let others: Vec<(&str, &Command)> = [("C", &c), ("Python", &python)]
        .into_iter()
        .filter_map(|(name, load)| Some((name, load.as_ref()?)))
        .collect();
    let mut clients: Vec<(&str, &Command, &str)> =
        others.iter().map(|(name, load)| (*name, *load, "client")).collect();
    clients.extend(python.as_ref().map(|load| ("Python's asyncio", load, "aio")));
    let servers =
        std::iter::once(("Rust", None)).chain(others.iter().map(|(name, load)| (*name, Some(*load))));
    let servers: Vec<_> = servers.collect();
    for between_two in [false, true] {
        let mut far = Host::over_tcp();
        let mut near = between_two.then(|| Host::routed_to(&far));
        for (server, load) in &servers {
            let _serving = serve(server, *load, &far);
            let here = near.as_ref().unwrap_or(&far);
            until_served(&client(here, ""));
            for number in 0..CALLS {
                let text = number.to_string();
                assert_eq!(echo(&client(here, ""), &text).unwrap(), text, "Rust calls {server}");
            }
            for (name, load, part) in &clients {
                let calling = Program::start(here, &load.with(&[part, "2"]));
                calling.until_more("answered", CALLS);
                let lines = calling.finish();
                let failed = lines.iter().find(|line| line.starts_with("failed") || line.starts_with("not-"));
                assert_eq!(failed, None, "{name} calls {server}, between two: {between_two}");
            }
        }
        near.iter_mut().for_each(Host::until_idle);
        far.until_idle();
    }
}
