//! Why the demo did not come to its end.

use std::io;
use std::path::PathBuf;
use trunkline::Status;

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The example programs were not built.
    #[error("{name} is not in {}; build it there: cargo build --package trunkline-example-search", folder.display())]
    Programs {
        /// The first one missing.
        name: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// There is no text to search.
    #[error("{}: {error}: name a folder whose text is to be searched", folder.display())]
    Folder {
        /// What was named.
        folder: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// A process did not start.
    #[error("{name} did not become ready\n{log}")]
    NotReady {
        /// Which.
        name: String,
        /// The last lines of all logs.
        log: String,
    },
    /// An act failed.
    #[error("{act} failed\n{output}")]
    Act {
        /// The command.
        act: String,
        /// What it printed.
        output: String,
    },
    /// A question to a daemon failed.
    #[error("asking a daemon: {0}")]
    Admin(#[from] Status),
    /// Files, processes, the terminal.
    #[error("{0}")]
    System(#[from] io::Error),
}
