//! How many descriptors the process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connection is a descriptor, a session half a dozen: as many as the process may have. (The soft limit is what it is
/// for programs that use select(2).)
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}
