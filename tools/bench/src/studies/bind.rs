//! How long binding a schema takes: from handing the descriptors to a daemon to its answer. Every schema is new to the
//! daemon, so nothing comes from its cache.

use super::data::sheet;
use crate::harness::children::Failure;
use crate::harness::rounds::{Plan, Turns};
use crate::peers::foreign::Foreign;
use crate::peers::hosts;
use crate::peers::raw::RawApp;
use crate::report::sheet::Results;
use std::path::Path;
use trunkline_measure::us;
use trunkline_schema::Schema;
use trunkline_shm::monotonic_ns;

/// Messages of a schema.
const SIZES: [usize; 2] = [1, 100];
/// Fields of a message: of every kind, as services have them.
const FIELDS: &str = "string id = 1; int64 at = 2; repeated string tags = 3; double score = 4; bytes blob = 5; \
                      bool on = 6; map<string, int32> counts = 7; optional int32 rank = 8; repeated int64 values = 9; \
                      fixed64 hash = 10;";
const HEAP: &str = "1 MiB";

/// Measures it.
pub fn measure(plan: &Plan, _: &Foreign) -> Result<Results, Failure> {
    let dir = tempfile::tempdir()?;
    let host = hosts::start_daemon(dir.path(), "daemon", HEAP)?;
    let mut turns = Turns::new("bind", plan);
    let sheet = sheet("bind", &[])?;
    let mut sizes = turns.start(SIZES.map(|size| (size.to_string(), size)), Ok);
    let turn = |size: &mut usize, round| Ok(vec![bind(&host.socket, round, *size)?]);
    let rows = turns.whole_rounds(&sheet.columns, &mut sizes, turn);
    Ok(Results { sheets: vec![sheet.with(rows)], absent: turns.absent })
}

fn bind(socket: &Path, round: usize, messages: usize) -> Result<f64, Failure> {
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
    let mut app = RawApp::attach(socket, 1 << 20)?;
    let began_ns = monotonic_ns();
    app.bind(schema.descriptor_set(), vec![format!("bind.r{round}m{messages}.S")], Vec::new())?;
    Ok(us(monotonic_ns() - began_ns))
}
