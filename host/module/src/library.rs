//! A shared object in the process: mapped from a private, sealed copy of the file.

use crate::elf;
use crate::table::{self, Callbacks};
use libloading::os::unix::{Library as Dynamic, RTLD_LOCAL, RTLD_NOW};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use trunkline_module_abi::{SYMBOL, Table};
use trunkline_policy::ModuleError;

/// A loaded library. Dropping it unloads it.
#[derive(Debug)]
pub(crate) struct Library {
    pub callbacks: Callbacks,
    pub digest: [u8; 32],
    _mapped: Mapped,
}

/// A shared object that is mapped, module or not.
#[derive(Debug)]
struct Mapped {
    dynamic: ManuallyDrop<Dynamic>,
    /// The copy. Its number is in the name the dynamic loader knows the library by, so it lives as long as that name.
    copy: ManuallyDrop<OwnedFd>,
}

/// RTLD_NOLOAD of dlopen(3): only say whether a library is there. The same in glibc and musl.
const RTLD_NOLOAD: i32 = 4;

impl Library {
    /// Loads the contents of a file; `path` names it in errors.
    pub fn load(path: &str, contents: &[u8], digest: [u8; 32]) -> Result<Self, ModuleError> {
        elf::check(contents).map_err(|error| {
            ModuleError::of_path(
                format!("{path} {error}"),
                "write the path of a shared object for this machine",
            )
        })?;
        let copied = copy(contents);
        let copy =
            copied.map_err(|error| ModuleError::of_path(format!("cannot copy {path}: {error}"), ""))?;
        let name = name_of(&copy);
        // SAFETY: loading runs the library's initialisers. Whoever may write the file and change the chain vouches for
        // them as for the daemon itself; the file is a whole shared object, which was checked.
        let opened = unsafe { Dynamic::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        let dynamic = opened.map_err(|error| {
            let why = error.to_string().replace(&name, path);
            ModuleError::of_path(format!("cannot load {path}: {why}"), "see what it lacks with ldd -r")
        })?;
        // From here on it is unloaded as every other, also if it turns out to be no module.
        let mapped = Mapped { dynamic: ManuallyDrop::new(dynamic), copy: ManuallyDrop::new(copy) };
        let callbacks = callbacks(path, &mapped.dynamic)?;
        Ok(Self { callbacks, digest, _mapped: mapped })
    }
}

fn callbacks(path: &str, dynamic: &Dynamic) -> Result<Callbacks, ModuleError> {
    // SAFETY: the symbol is used as an address only, until the table there has said what it is.
    let found = unsafe { dynamic.get::<*const Table>(SYMBOL) };
    let symbol = found.map_err(|_| {
        let advice =
            "a module exports that table: write trunkline_policy_module::export!, or use trunkline_policy.h";
        ModuleError::of_path(format!("{path} exports no {SYMBOL}"), advice)
    })?;
    // SAFETY: it is the address of that symbol, and callbacks live beside the library that has them, in `Library`.
    unsafe { table::read(*symbol) }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let name = name_of(&self.copy);
        // SAFETY: taken once, here; nothing uses `dynamic` afterwards. Instances hold the library, so none is left.
        let dynamic = unsafe { ManuallyDrop::take(&mut self.dynamic) };
        drop(dynamic);
        // A library that cannot be unloaded (threads of its own, NODELETE) keeps its name. A new copy of the same
        // number would be taken for it; so the number is kept, too.
        // SAFETY: nothing is loaded, so nothing is run.
        let stays = unsafe { Dynamic::open(Some(&name), RTLD_NOW | RTLD_NOLOAD) };
        if stays.is_err() {
            // SAFETY: taken once, here.
            drop(unsafe { ManuallyDrop::take(&mut self.copy) });
        }
    }
}

/// A file in memory nobody can change any more.
fn copy(contents: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag; later ones may be set to need it (vm.memfd_noexec).
    let made = match memfd_create("trunkline-module", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("trunkline-module", flags)?,
        made => made?,
    };
    let mut file = File::from(made);
    file.write_all(contents)?;
    let fd = OwnedFd::from(file);
    fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(fd)
}

/// The dynamic loader tells libraries apart by name first.
fn name_of(copy: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", copy.as_raw_fd())
}
