//! A listener, what it is called, and whether the poller looks at it.

use crate::config::Config;
use crate::purpose::Purpose;
use crate::start_error::StartError;
use crate::token::Token;
use rustix::fs::fstat;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use trunkline_call::Instant;
use trunkline_net::{BindError, Endpoint, Interest, Listener, Poller};
use trunkline_shm::ControlListener;

/// A busy shard leaves those who connect to others for so long.
const LEFT_NS: u64 = 2_000_000;

/// A listener of a shard.
pub(crate) struct Listening {
    pub listener: Listener,
    /// As the configuration has it.
    pub configured: String,
    pub endpoint: String,
    /// Who may connect here, and to what.
    pub purpose: Purpose,
    is_watched: bool,
    /// When those who connect were last left to other shards.
    left_at: Instant,
}

impl Listening {
    /// One that is not watched yet.
    pub fn new(listener: Listener, configured: String, purpose: Purpose) -> Self {
        let endpoint = listener.endpoint().to_string();
        Self { listener, configured, endpoint, purpose, is_watched: false, left_at: Instant::default() }
    }

    /// Has the poller tell when somebody connects. Both a pause that is over and accepts that are resumed ask
    /// for it, in either order.
    pub fn watch(&mut self, poller: &Poller, index: usize) -> io::Result<()> {
        if !self.is_watched {
            poller.add(&self.listener, Token::Listener(index).to_poller(), Interest::Read)?;
            self.is_watched = true;
        }
        Ok(())
    }

    /// Leaves those who connect in the kernel's queue.
    pub fn unwatch(&mut self, poller: &Poller) {
        if std::mem::take(&mut self.is_watched) {
            let _ = poller.remove(&self.listener);
        }
    }

    /// Leaves those who connect to other shards of the socket for [`LEFT_NS`], if they were not left to them just
    /// before: whoever still waits then is accepted here. Until when, if it does.
    pub fn leave_to_others(&mut self, now: Instant, poller: &Poller) -> Option<Instant> {
        let is_shared = !matches!(self.listener.endpoint(), Endpoint::Unix(_));
        let leaves = is_shared && now.since_ns(self.left_at) > 2 * LEFT_NS;
        leaves.then(|| {
            self.left_at = now;
            self.unwatch(poller);
            now.plus_ns(LEFT_NS)
        })
    }

    /// Whether both are descriptors of one socket.
    pub fn is_same_socket(&self, other: &Self) -> bool {
        let place = |one: &Self| fstat(one.listener.as_fd()).map(|found| (found.st_dev, found.st_ino));
        matches!((place(self), place(other)), (Ok(own), Ok(others)) if own == others)
    }

    /// Another descriptor of the socket, that nobody watches.
    fn share(&self) -> io::Result<Self> {
        let socket = self.listener.as_fd().try_clone_to_owned()?;
        let listener = Listener::inherit(socket, self.listener.endpoint().clone());
        Ok(Self::new(listener, self.configured.clone(), self.purpose.clone()))
    }
}

/// Descriptors of the same ports for another shard. Whoever connects is accepted by the one that looks first: by one
/// that rests, rather than one that is busy. Socket files are the first shard's alone.
pub(crate) fn share(listening: &[Listening]) -> Vec<Listening> {
    let ports = listening.iter().filter(|one| !matches!(one.listener.endpoint(), Endpoint::Unix(_)));
    let shared = ports.map(|one| one.share().map_err(|error| (one, error)));
    let taken = shared.filter_map(|shared| {
        shared
            .inspect_err(
                |(one, error)| tracing::error!(endpoint = %one.endpoint, %error, "cannot share a listener"),
            )
            .ok()
    });
    taken.collect()
}

/// Sets who may connect to a socket at all.
///
/// # Errors
/// What the kernel says.
pub(crate) fn admit_mode(endpoint: &Endpoint, mode: u32) -> io::Result<()> {
    let Endpoint::Unix(path) = endpoint else { return Ok(()) };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Sets who may connect to a socket that came from another daemon, which has gone: nothing of this can fail any more.
pub(crate) fn settle_mode(path: &Path, mode: u32) {
    let is_socket = |found: std::fs::Metadata| found.file_type().is_socket();
    let set = std::fs::symlink_metadata(path).and_then(|found| match is_socket(found) {
        true => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)),
        false => Err(io::Error::other("it is no socket any more")),
    });
    if let Err(error) = set {
        tracing::warn!(path = %path.display(), %error, "the permissions of a socket stay as they are");
    }
}

/// The listener of one of so many shards. A port that several share is no other process's: the first takes it alone for
/// a moment.
///
/// # Errors
/// Why it cannot be had.
pub(crate) fn listen(address: &str, index: usize, count: usize) -> io::Result<Listener> {
    let endpoint: Endpoint = address.parse().map_err(io::Error::other)?;
    let bind = |shared| Listener::bind(&endpoint, shared);
    let is_probed = index == 0 && count > 1 && !matches!(endpoint, Endpoint::Unix(_));
    let first = if is_probed { bind(false).map(drop) } else { Ok(()) };
    first.and_then(|()| bind(count > 1)).map_err(|error| match error {
        // Its own words say the address again.
        BindError::Kernel { source, .. } => source,
        BindError::InUse { .. } => io::ErrorKind::AddrInUse.into(),
        error => io::Error::other(error),
    })
}

/// A session takes seven descriptors, a connection one; the soft limit of 1024 is for programs that use `select`.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the descriptor limit");
    }
}

/// Where applications attach.
pub(crate) fn control_listener(path: &PathBuf, config: &Config) -> Result<ControlListener, StartError> {
    let failed = |why: String| StartError::Control { path: path.clone(), why };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| failed(e.to_string()))?;
    }
    let listener =
        ControlListener::bind(path, config.daemon.socket_mode.0).map_err(|e| failed(e.to_string()))?;
    listener.set_nonblocking(true).map_err(|e| failed(e.to_string()))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    //! Shows that a listener that pauses while accepts are held is watched once afterwards.
    use super::*;
    use trunkline_net::{Endpoint, Stream};

    #[test]
    fn a_listener_is_watched_once_whoever_asks() {
        let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap()), false).unwrap();
        let poller = Poller::new().unwrap();
        let mut listening = Listening::new(listener, "tcp://127.0.0.1:0".into(), Purpose::Peers);
        let endpoint = listening.listener.endpoint().clone();
        // It pauses, accepts are held, resumed, and then the pause is over.
        listening.watch(&poller, 0).unwrap();
        listening.unwatch(&poller);
        listening.unwatch(&poller);
        listening.watch(&poller, 0).unwrap();
        listening.watch(&poller, 0).unwrap();
        let _client = Stream::connect(&endpoint).unwrap();
        let mut ready = Vec::new();
        while ready.is_empty() {
            poller.wait(None, &mut ready).unwrap();
        }
        assert_eq!(ready.len(), 1);
    }
}
