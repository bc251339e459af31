//! From a path to an instance.

use crate::file;
use crate::instance::Instance;
use crate::library::Library;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Weak};
use trunkline_policy::{Module, ModuleError, ModuleLoader, SettingValue};

/// Loads modules, each contents once.
#[derive(Debug, Default)]
pub struct Loader {
    /// Those at work; forgotten when their last instance is gone.
    libraries: Mutex<Vec<Weak<Library>>>,
}

impl Loader {
    /// Libraries that are loaded at the moment.
    pub fn loaded(&self) -> usize {
        self.libraries.lock().iter().filter(|library| library.strong_count() > 0).count()
    }

    fn library(&self, path: &str) -> Result<Arc<Library>, ModuleError> {
        let contents = file::read(path)?;
        let digest: [u8; 32] = Sha256::digest(&contents).into();
        let mut libraries = self.libraries.lock();
        libraries.retain(|library| library.strong_count() > 0);
        let same = |library: &Arc<Library>| library.digest == digest;
        if let Some(known) = libraries.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(known);
        }
        let library = Arc::new(Library::load(path, &contents, digest)?);
        libraries.push(Arc::downgrade(&library));
        Ok(library)
    }
}

impl ModuleLoader for Loader {
    fn load(
        &self,
        policy: &str,
        path: &str,
        settings: &[(String, SettingValue)],
    ) -> Result<Box<dyn Module>, ModuleError> {
        Ok(Box::new(Instance::create(self.library(path)?, policy, settings)?))
    }

    fn load_again(
        &self,
        policy: &str,
        digest: &[u8; 32],
        settings: &[(String, SettingValue)],
    ) -> Option<Result<Box<dyn Module>, ModuleError>> {
        let loaded =
            self.libraries.lock().iter().filter_map(Weak::upgrade).find(|known| known.digest == *digest)?;
        Some(Instance::create(loaded, policy, settings).map(|instance| Box::new(instance) as Box<dyn Module>))
    }
}
