//! Where the daemon's socket lies when nobody says otherwise.
//!
//! Whoever answers at the socket sees every call, so an application must not be lured to another's. Each default
//! place is one that only the user or root can put a socket into, and that is checked before connecting. A place named
//! by `TRUNKLINE_SOCKET` is the user's word and is not checked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, lstat, mkdir, stat};
use rustix::io::Errno;
use rustix::process::getuid;

use crate::control::{ControlError, ControlSocket};
use crate::listener::ControlListener;

/// Environment variable that names the socket.
pub const SOCKET_VARIABLE: &str = "TRUNKLINE_SOCKET";

/// Places for the socket, the preferred first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Places {
    /// The user named one; no other is tried.
    Named(PathBuf),
    /// The defaults, each in a directory that must be ours or root's.
    Default(Vec<PathBuf>),
}

impl Places {
    /// The places for this process.
    #[must_use]
    pub fn of_this_process() -> Places {
        Places::new(|name| std::env::var_os(name), getuid().as_raw())
    }

    /// The places for a process of user `uid` with the environment `variable` (empty values count as absent).
    #[must_use]
    pub fn new(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Places {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(path) = set(SOCKET_VARIABLE) {
            return Places::Named(path.into());
        }
        let runtime = set("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("trunkline.sock"));
        let shared = PathBuf::from("/run/trunkline.sock");
        let private = PathBuf::from(format!("/tmp/trunkline-{uid}/trunkline.sock"));
        Places::Default(runtime.into_iter().chain([shared, private]).collect())
    }

    /// Connects to the first place where a daemon answers.
    ///
    /// # Errors
    /// The first that says that a daemon may be there and cannot be reached ([`ControlError::Denied`] when this process
    /// may not connect) or was there (`ECONNREFUSED`), else that of the last place tried: [`ControlError::System`] with
    /// `ENOENT` when no daemon runs, [`ControlError::Untrusted`] when a directory belongs to somebody else.
    pub fn connect(&self) -> Result<ControlSocket, ControlError> {
        match self {
            Places::Named(path) => ControlSocket::connect(path),
            Places::Default(paths) => first(paths, |path| {
                trusted_directory(path)?;
                ControlSocket::connect(path)
            }),
        }
    }

    /// The first place at which a daemon is meant to be, whether or not one answers there: the one that was named, or a
    /// default at which something lies. The socket of a daemon that died does, and so does a link to the socket of one
    /// that has not started yet. A directory in which others could have put it counts for nothing.
    #[must_use]
    pub fn meant(&self) -> Option<&Path> {
        match self {
            Places::Named(path) => Some(path),
            Places::Default(paths) => {
                let is_meant =
                    |path: &&PathBuf| trusted_directory(path).is_ok() && lstat(path.as_path()).is_ok();
                paths.iter().find(is_meant).map(PathBuf::as_path)
            }
        }
    }

    /// Listens at the first place that can be written, with permissions `mode`.
    ///
    /// # Errors
    /// [`ControlError::Served`] at once when another daemon serves a place; else the error of the last place tried.
    pub fn bind(&self, mode: u32) -> Result<ControlListener, ControlError> {
        match self {
            Places::Named(path) => ControlListener::bind(path, mode),
            Places::Default(paths) => first(paths, |path| {
                private_directory(path)?;
                ControlListener::bind(path, mode)
            }),
        }
    }
}

/// The first success. A served place ends the search: a second daemon beside it is never what was meant. Of errors the
/// last, unless one says that somebody may be there, or was.
fn first<T>(paths: &[PathBuf], open: impl Fn(&Path) -> Result<T, ControlError>) -> Result<T, ControlError> {
    let mut told = ControlError::System { what: "no place for a socket", errno: Errno::NOENT };
    for path in paths {
        match open(path) {
            Err(ControlError::Served { path }) => return Err(ControlError::Served { path }),
            Err(error) if rank(&error) > rank(&told) || rank(&told) == 0 => told = error,
            Err(_) => {}
            opened => return opened,
        }
    }
    Err(told)
}

/// How much an error says of a daemon: more than 0 if one may be there, or was.
fn rank(error: &ControlError) -> u8 {
    match error {
        error if error.is_unreachable() => 2,
        ControlError::System { errno: Errno::CONNREFUSED, .. } => 1,
        _ => 0,
    }
}

/// Makes the socket's directory, ours alone, when it is the one below `/tmp`.
fn private_directory(path: &Path) -> Result<(), ControlError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    if parent.parent() == Some(Path::new("/tmp")) {
        match mkdir(parent, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(ControlError::System { what: "mkdir", errno }),
        }
    }
    trusted_directory(path)
}

/// Refuses a directory in which others than we and root can put sockets.
fn trusted_directory(path: &Path) -> Result<(), ControlError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let found = stat(parent).map_err(|errno| ControlError::System { what: "stat", errno })?;
    let owned = found.st_uid == 0 || found.st_uid == getuid().as_raw();
    let writable_by_others = Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    if owned && !writable_by_others {
        return Ok(());
    }
    Err(ControlError::Untrusted { directory: parent.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Places {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        Places::new(lookup, 1000)
    }

    /// A named socket excludes the defaults; the defaults come in the order of the documentation.
    #[test]
    fn order_of_places() {
        assert_eq!(places(&[(SOCKET_VARIABLE, "/x.sock")]), Places::Named("/x.sock".into()));
        let fallback = ["/run/trunkline.sock", "/tmp/trunkline-1000/trunkline.sock"].map(PathBuf::from);
        assert_eq!(places(&[(SOCKET_VARIABLE, "")]), Places::Default(fallback.to_vec()));
        let with_runtime = [vec!["/run/user/1000/trunkline.sock".into()], fallback.to_vec()].concat();
        assert_eq!(places(&[("XDG_RUNTIME_DIR", "/run/user/1000")]), Places::Default(with_runtime));
    }

    /// A socket in a directory that everybody can write is neither connected to nor served.
    #[test]
    fn a_public_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let public = directory.path().join("public");
        mkdir(&public, Mode::RWXU).unwrap();
        rustix::fs::chmod(&public, Mode::from_raw_mode(0o777)).unwrap();
        let places = Places::Default(vec![public.join("trunkline.sock")]);
        assert!(matches!(places.connect(), Err(ControlError::Untrusted { .. })));
        assert!(matches!(places.bind(0o600), Err(ControlError::Untrusted { .. })));
    }

    /// A place that may have a daemon counts before one that has none, wherever it comes.
    #[test]
    fn what_is_told_is_what_says_most() {
        let denied = || ControlError::Denied { path: "/run/x".into(), uid: 7 };
        let absent = || ControlError::System { what: "connect", errno: Errno::NOENT };
        let paths = ["a", "b", "c"].map(PathBuf::from);
        for at in 0..3 {
            let open = |path: &Path| Err::<(), _>(if path == paths[at] { denied() } else { absent() });
            assert!(matches!(first(&paths, open), Err(ControlError::Denied { uid: 7, .. })), "{at}");
        }
        assert!(!first(&paths, |_| Err::<(), _>(absent())).unwrap_err().is_unreachable());
        let refused = || ControlError::System { what: "connect", errno: Errno::CONNREFUSED };
        let open = |path: &Path| Err::<(), _>(if path == paths[0] { refused() } else { absent() });
        assert_eq!(first(&paths, open).unwrap_err().to_string(), refused().to_string());
        let open = |path: &Path| Err::<(), _>(if path == paths[0] { refused() } else { denied() });
        assert!(first(&paths, open).unwrap_err().is_unreachable());
    }

    /// A daemon is meant where something lies that it left or that leads to it, if nobody else could put it there.
    #[test]
    fn a_daemon_is_meant_where_something_lies() {
        let directory = tempfile::tempdir().unwrap();
        rustix::fs::chmod(directory.path(), Mode::RWXU).unwrap();
        let [absent, link] =
            ["missing/trunkline.sock", "trunkline.sock"].map(|name| directory.path().join(name));
        let places = Places::Default(vec![absent.clone(), link.clone()]);
        assert_eq!(places.meant(), None);
        std::os::unix::fs::symlink("elsewhere/trunkline.sock", &link).unwrap();
        assert_eq!(places.meant(), Some(&*link));
        rustix::fs::chmod(directory.path(), Mode::from_raw_mode(0o777)).unwrap();
        assert_eq!(places.meant(), None);
        assert_eq!(Places::Named(absent.clone()).meant(), Some(&*absent));
    }

    /// The first place that works is served, found again, and served once.
    #[test]
    fn serves_and_finds_the_first_place() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing/trunkline.sock");
        let present = directory.path().join("trunkline.sock");
        rustix::fs::chmod(directory.path(), Mode::RWXU).unwrap();
        let places = Places::Default(vec![missing, present.clone()]);
        assert!(places.connect().is_err());
        let listener = places.bind(0o600).unwrap();
        assert_eq!(listener.path(), present);
        places.connect().unwrap();
        assert!(matches!(places.bind(0o600), Err(ControlError::Served { .. })));
    }
}
