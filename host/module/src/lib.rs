//! Policy modules: shared objects loaded into the daemon, called over the C ABI, and unloaded again.
//!
//! This room turns a path into a [`Module`](trunkline_policy::Module) the chain of policies can ask
//! ([`Loader`]). It does not know what a policy is for, when one is asked, or when a new version takes over from the
//! old one: that is `core/policy`. The tables and values it exchanges with modules are in `core/module-abi`.
//!
//! # The way of a module
//! 1. `file` opens the path without waiting for anything, and believes it only if it is a regular file of a sane size
//!    that nobody but root and the daemon's own user can write: a module runs with the daemon's rights.
//! 2. `elf` looks whether it is a shared object for this machine and all there. A loader given half a file crashes.
//! 3. `library` copies it into a sealed memory file and has the dynamic loader map that. So whoever overwrites or
//!    rebuilds the file pulls nothing from under a daemon that runs it, and the same path with other contents is
//!    another library. Equal contents are loaded once.
//! 4. `table` reads what the module exports, before any code of it runs, and refuses what is not of this ABI.
//! 5. `instance` makes instances and calls them. What they say is read out of room lent to them (`room`) and checked
//!    (`answer`); nonsense is a fault, and the chain ejects a faulty module.
//!
//! # What a module can do to its host
//! It is code in the daemon's process. The helper crate for Rust catches panics and reports them as faults; what a
//! module in C writes where it should not, or a callback that never returns, nobody can catch. docs/modules.md says so,
//! too.
//!
//! # Invariants
//! * A library is unloaded after its last instance, and no instance is dropped while one of its callbacks runs:
//!   callbacks take `&mut self` or `&self`, dropping takes the whole.
//! * An instance that was ejected is never called again, not even to be destroyed, and its library stays for good.
//! * Nothing a module says is believed before it was checked; nothing a module owns is kept beyond the callback.
//!
//! # Limits
//! [`FILE_BYTES_MAX`], and those of `trunkline_module_abi`. All are refused with their names.

mod answer;
mod elf;
mod file;
mod instance;
mod library;
mod loader;
mod room;
mod table;

pub use elf::{ElfError, check as check_elf};
pub use file::{FILE_BYTES_MAX, Untrusted, check_trusted, open_regular};
pub use loader::Loader;
