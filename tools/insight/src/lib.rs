//! The verbs that keep records of calls and say what is in them: `trunkline record`, `characterize` and so on.
//!
//! They are a program of their own, `trunkline-insight`, which `trunkline` starts for them: a daemon has nothing to do
//! with what is drawn from its records, and does not grow by it. The program itself is in `tools/cli`, where both are
//! tested together.
//!
//! `record.rs` asks a daemon for the calls that have ended since, again and again, and writes blocks; `host.rs` reads
//! what the host did meanwhile. `verbs.rs` reads files, and prints or writes what `core/insight` makes of them;
//! `tree.rs` is who called whom, `tax.rs` where processor time went; `say.rs` are the tables on terminals,
//! `publish.rs` is a page for the documentation. `replay.rs` sends calls again whose messages a daemon has kept, and
//! `answers.rs` holds what comes back against what came then. `drive.rs` makes calls after the shape of recorded ones,
//! records them and serves them: `drive/acts.rs` is what each has to come to and who does it, `drive/timer.rs` wakes
//! them, `drive/pace.rs` says when they begin, and `drive/relay.rs` is a network of longer wires. `args.rs` is the
//! command line, and the manual pages come from it. `load.rs` reads files and `output.rs` makes them; `operator.rs` is
//! the way to the daemon.
//!
//! # Limits
//! * [`FILE_BYTES_MAX`] of a file are read, and as many calls together as `trunkline_insight::fleet::CALLS_MAX`.
//! * A recording asks a shard for at most 8192 calls at a time.
#![forbid(unsafe_code)]

mod answers;
mod applications;
mod args;
mod drive;
mod earlier;
mod host;
mod load;
mod operator;
mod output;
mod publish;
mod record;
mod replay;
mod run;
mod say;
mod tax;
mod tree;
mod verbs;

pub use args::{InsightLine, VERBS};
pub use load::FILE_BYTES_MAX;
pub use run::run;
