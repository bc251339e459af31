//! Descriptor sets from applications: read from their memfd, built once, shared by all that send the same.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fcntl_get_seals, fstat};
use rustix::io::pread;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use trunkline_control::DESCRIPTOR_SET_BYTES_MAX;
use trunkline_engine::BoundSchema;
use trunkline_schema::Schema;

/// Schemas in use, by the bytes they were built from. Entries die with the last session that uses them.
#[derive(Default)]
pub(crate) struct SchemaCache {
    built: HashMap<Arc<[u8]>, Weak<BoundSchema>>,
    /// Entries at which the dead ones are swept next.
    sweeps_at: usize,
}

/// Dead entries are swept when there are as many, and then whenever those left then have doubled.
const SWEEP_MIN: usize = 64;

impl SchemaCache {
    /// The schema of a descriptor set, if it is in use.
    pub fn known(&self, set: &[u8]) -> Option<Arc<BoundSchema>> {
        self.built.get(set).and_then(Weak::upgrade)
    }

    /// The schema of a descriptor set.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn of_bytes(&mut self, bytes: Vec<u8>) -> Result<Arc<BoundSchema>, String> {
        self.of_bytes_if(bytes, |_| Ok(()))
    }

    /// The same, if there is room for the memory a schema would take that is not known yet. It is asked for the bytes
    /// of the set first, before anything is made of them, and for all before the tables are built.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence, or that there is no room.
    pub fn of_bytes_if<E: From<String>>(
        &mut self,
        bytes: Vec<u8>,
        has_room: impl Fn(u64) -> Result<(), E>,
    ) -> Result<Arc<BoundSchema>, E> {
        if let Some(schema) = self.known(&bytes) {
            return Ok(schema);
        }
        has_room(bytes.len() as u64)?;
        let schema = Schema::from_descriptor_set(&bytes).map_err(|e| format!("descriptor set: {e}"))?;
        has_room(bytes.len() as u64 + schema.memory_bytes())?;
        let bytes: Arc<[u8]> = bytes.into();
        let schema = Arc::new(BoundSchema::with_source(schema, Arc::clone(&bytes)));
        if self.built.len() >= self.sweeps_at.max(SWEEP_MIN) {
            self.built.retain(|_, schema| schema.strong_count() > 0);
            self.sweeps_at = 2 * self.built.len();
        }
        self.built.insert(bytes, Arc::downgrade(&schema));
        Ok(schema)
    }
}

/// A private copy of the descriptor set in a memfd an application sent. Only memory files are read: a pipe or a file on
/// a slow disk could hang us.
///
/// # Errors
/// A sentence for the application: what is wrong with the descriptor.
pub(crate) fn read_memfd(memfd: &OwnedFd, claimed_bytes: u64) -> Result<Vec<u8>, String> {
    if claimed_bytes == 0 || claimed_bytes > DESCRIPTOR_SET_BYTES_MAX as u64 {
        return Err(format!(
            "descriptor set of {claimed_bytes} bytes: must be between 1 and {DESCRIPTOR_SET_BYTES_MAX}"
        ));
    }
    fcntl_get_seals(memfd.as_fd()).map_err(|_| "descriptor set must come in a memfd".to_owned())?;
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

#[cfg(test)]
mod tests {
    //! Shows that what nobody uses is swept, and that what is used is not walked for every new set.
    use super::*;

    /// A set of one file of this name.
    fn set(name: usize) -> Vec<u8> {
        let name = format!("{name:08}");
        [&[0x0a, 0x0a, 0x0a, 0x08][..], name.as_bytes()].concat()
    }

    #[test]
    fn the_dead_are_swept_when_there_are_twice_as_many_entries() {
        let mut cache = SchemaCache::default();
        let mut sweep_at = Vec::new();
        let used: Vec<_> = (0..1000)
            .map(|name| {
                let schema = cache.of_bytes(set(name)).unwrap();
                sweep_at.push(cache.sweeps_at);
                schema
            })
            .collect();
        sweep_at.dedup();
        assert_eq!(sweep_at, [0, 128, 256, 512, 1024], "four sweeps, and not one for each");
        assert!(cache.known(&set(7)).is_some());
        drop(used);
        let kept: Vec<_> = (1000..1100).map(|name| cache.of_bytes(set(name)).unwrap()).collect();
        assert!(cache.known(&set(7)).is_none());
        assert!(cache.built.len() <= SWEEP_MIN + kept.len(), "{}", cache.built.len());
    }
}
