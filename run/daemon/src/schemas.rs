//! Descriptor sets: read from the memfd an application sent, and built.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fcntl_get_seals, fstat};
use rustix::io::pread;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_control::DESCRIPTOR_SET_BYTES_MAX;
use trunkline_engine::BoundSchema;
use trunkline_schema::Schema;

/// The schemas of many sets that are read one after the other, each built once, for as long as that takes: those of a
/// state that is handed over, those of the gateway. Sets that applications have bound are in
/// [`crate::bound_sets::BoundSets`], for as long as they have them.
#[derive(Default)]
pub(crate) struct SchemaCache {
    built: HashMap<Arc<[u8]>, Arc<BoundSchema>>,
}

impl SchemaCache {
    /// The schema of a descriptor set.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn of_bytes(&mut self, bytes: Vec<u8>) -> Result<Arc<BoundSchema>, String> {
        if let Some(schema) = self.built.get(&*bytes) {
            return Ok(Arc::clone(schema));
        }
        let bytes: Arc<[u8]> = bytes.into();
        let schema = build(Arc::clone(&bytes), |_| Ok::<(), String>(()))?;
        self.built.insert(bytes, Arc::clone(&schema));
        Ok(schema)
    }
}

/// The schema of a descriptor set, if there is room for the memory it takes: `has_room` is asked for the bytes of the
/// set first, before anything is made of them, and for all before the tables are built.
///
/// # Errors
/// What is wrong with it, in a sentence, or that there is no room.
pub(crate) fn build<E: From<String>>(
    bytes: Arc<[u8]>,
    has_room: impl Fn(u64) -> Result<(), E>,
) -> Result<Arc<BoundSchema>, E> {
    has_room(bytes.len() as u64)?;
    let schema = Schema::from_descriptor_set(&bytes).map_err(|e| format!("descriptor set: {e}"))?;
    has_room(bytes.len() as u64 + schema.memory_bytes())?;
    Ok(Arc::new(BoundSchema::with_source(schema, bytes)))
}

/// Whether a descriptor is a file in memory. Only those are read: a pipe or a file on a slow disk could hang us.
pub(crate) fn is_memfd(descriptor: impl AsFd) -> bool {
    fcntl_get_seals(descriptor).is_ok()
}

/// A private copy of the descriptor set in a memfd an application sent.
///
/// # Errors
/// A sentence for the application: what is wrong with the descriptor.
pub(crate) fn read_memfd(memfd: &OwnedFd, claimed_bytes: u64) -> Result<Vec<u8>, String> {
    if claimed_bytes == 0 || claimed_bytes > DESCRIPTOR_SET_BYTES_MAX as u64 {
        return Err(format!(
            "descriptor set of {claimed_bytes} bytes: must be between 1 and {DESCRIPTOR_SET_BYTES_MAX}"
        ));
    }
    let stat = fstat(memfd).map_err(|e| format!("descriptor set: {e}"))?;
    if stat.st_size < 0 || (stat.st_size as u64) < claimed_bytes {
        return Err(format!(
            "descriptor set: memfd has {} bytes, {claimed_bytes} were announced",
            stat.st_size
        ));
    }
    let mut bytes = vec![0; claimed_bytes as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match pread(memfd, &mut bytes[filled..], filled as u64) {
            Ok(0) => return Err("descriptor set: memfd was cut while it was read".into()),
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("descriptor set: {e}")),
        }
    }
    Ok(bytes)
}
