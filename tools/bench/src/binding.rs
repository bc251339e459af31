//! How long binding a schema takes: from handing the descriptors to a daemon to its answer. Every schema is new to the
//! daemon, so nothing comes from its cache.

use crate::children::{Failure, text};
use crate::ours;
use crate::raw::RawApp;
use crate::sections::Plan;
use crate::stats::Spread;
use serde::Serialize;
use trunkline_schema::Schema;
use trunkline_shm::monotonic_ns;

const MESSAGES: usize = 100;
/// Fields of a message: of every kind, as services have them.
const FIELDS: &str = "string id = 1; int64 at = 2; repeated string tags = 3; double score = 4; bytes blob = 5; \
                      bool on = 6; map<string, int32> counts = 7; optional int32 rank = 8; repeated int64 values = 9; \
                      fixed64 hash = 10;";
const HEAP: &str = "1 MiB";

/// Microseconds by round.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bound {
    /// A service of one message.
    pub one_us: Vec<f64>,
    /// A service of [`MESSAGES`].
    pub many_us: Vec<f64>,
}

/// Measures it.
pub fn measure(plan: &Plan) -> Result<Bound, Failure> {
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("daemon.sock");
    let (_daemon, _) = ours::start_daemon(&socket, HEAP)?;
    let mut bound = Bound::default();
    for round in 0..plan.rounds {
        bound.one_us.push(bind(text(&socket), round, 1)?);
        bound.many_us.push(bind(text(&socket), round, MESSAGES)?);
    }
    Ok(bound)
}

fn bind(socket: &str, round: usize, messages: usize) -> Result<f64, Failure> {
    let mut proto = format!("syntax = \"proto3\"; package bind.r{round}m{messages};\n");
    for message in 0..messages {
        let next = (message + 1) % messages;
        proto += &format!("message M{message} {{ {FIELDS} M{next} next = 11; }}\n");
    }
    proto += "service S {\n";
    for message in 0..messages {
        proto += &format!("rpc R{message}(M{message}) returns (M{message});\n");
    }
    let schema = Schema::from_proto_source("bind.proto", &(proto + "}\n"))?;
    let mut app = RawApp::attach(socket.as_ref(), 1 << 20)?;
    let began_ns = monotonic_ns();
    app.bind(schema.descriptor_set(), vec![format!("bind.r{round}m{messages}.S")], Vec::new())?;
    Ok((monotonic_ns() - began_ns) as f64 / 1e3)
}

impl Bound {
    /// As the documents have it.
    pub fn markdown(&self) -> String {
        let of = |values: &[f64]| {
            Spread::of(values.iter().copied()).map_or_else(String::new, |spread| spread.to_string())
        };
        format!(
            "\n### Binding a schema the daemon has not seen, µs from asking to its answer\n\n\
             | messages, each with eleven fields and a method | µs |\n|---|---|\n| 1 | {} |\n| {MESSAGES} | {} |\n",
            of(&self.one_us),
            of(&self.many_us)
        )
    }
}
