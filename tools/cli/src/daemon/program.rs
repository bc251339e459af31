//! Which program goes on in the daemon's place.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file this program was started from. To be asked early: once it is replaced, the kernel calls it deleted.
pub fn own_binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::current_exe().unwrap_or_else(|_| "trunkline".into()))
}

/// The program that goes on in this one's place, if `asked` is: its own file if none is.
pub fn successor(asked: Option<&Path>) -> PathBuf {
    asked.map_or_else(|| own_binary().clone(), Path::to_owned)
}
