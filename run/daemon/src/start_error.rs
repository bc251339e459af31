//! Why a daemon does not start.

use crate::handover::TakeOverError;
use crate::keys::KeySourceError;
use crate::policies_file::PoliciesFileError;
use std::io;
use std::path::PathBuf;
use trunkline_net::{KeyFileError, TlsError};
use trunkline_policy::PolicyError;

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The control socket cannot be made.
    #[error("control socket {path}: {why}")]
    Control {
        /// Its path.
        path: PathBuf,
        /// What the kernel says, or who listens there already.
        why: String,
    },
    /// An address cannot be listened on. [`cannot_listen`](crate::cannot_listen) knows the place in the file, too.
    #[error("{key}: cannot listen on {endpoint}: {error}")]
    Listen {
        /// The key that names it.
        key: String,
        /// The address.
        endpoint: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// The chain of policies cannot be put to work: a module in it, most likely.
    #[error("{0}")]
    Policies(PolicyError),
    /// The file the chain is kept in.
    #[error(transparent)]
    PoliciesFile(#[from] PoliciesFileError),
    /// The file for samples of calls.
    #[error("samples.file: {path}: {error}")]
    Samples {
        /// Its path.
        path: PathBuf,
        /// What the kernel says, or what is wrong with it.
        error: io::Error,
    },
    /// Keys and certificates cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The agent of the Workload API gives a daemon that is to succeed another no certificate.
    #[error("tls.workload_api: {agent} tells no certificate, and the running daemon may have one: {why}")]
    Agent {
        /// Where it is asked.
        agent: String,
        /// Why it tells none.
        why: String,
    },
    /// The keys of R2P2 cannot be used.
    #[error("r2p2.key_file: {0}")]
    R2p2Keys(#[from] KeyFileError),
    /// A descriptor set of the gateway cannot be used.
    #[error("gateway.schemas: {0}")]
    Schemas(String),
    /// Another daemon cannot be replaced.
    #[error("cannot take over: {0}")]
    TakeOver(#[from] TakeOverError),
    /// A thread, poller or eventfd cannot be made.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl From<KeySourceError> for StartError {
    fn from(error: KeySourceError) -> Self {
        match error {
            KeySourceError::System(error) => Self::System(error),
            KeySourceError::Files(error) => Self::Tls(error),
            KeySourceError::Agent { agent, why } => Self::Agent { agent, why },
        }
    }
}
