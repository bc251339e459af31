//! Finding the configuration.

use crate::bounded;
use std::io;
use std::path::{Path, PathBuf};
use trunkline_daemon::{Config, ConfigError};

/// Environment variable that names the configuration file.
const CONFIG_VARIABLE: &str = "TRUNKLINE_CONFIG";
/// Where the configuration is looked for when nobody names a file.
const CONFIG_PATH: &str = "/etc/trunkline/daemon.toml";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// It is wrong.
    #[error(transparent)]
    Wrong(#[from] ConfigError),
}

/// A configuration, and what it was read from.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    text: String,
}

impl Loaded {
    /// The configuration: of the named file, else of the one in `TRUNKLINE_CONFIG`, else of the usual one. A file that
    /// was named must exist.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn find(named: Option<&Path>) -> Result<Self, FileError> {
        let variable = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        match named.map(Path::to_owned).or(variable) {
            Some(path) => Self::read(&path),
            None => match Self::read(Path::new(CONFIG_PATH)) {
                Err(FileError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                    Ok(Self::default())
                }
                read => read,
            },
        }
    }

    /// Holds it against this host: certificates, keys, folders, sockets, policies.
    ///
    /// # Errors
    /// [`FileError::Wrong`], with the place of the key.
    pub fn check_host(&self) -> Result<(), FileError> {
        Ok(trunkline_daemon::check_host(&self.config, &self.text, &self.origin())?)
    }

    /// The same for a relay, which needs its keys and listeners only.
    ///
    /// # Errors
    /// [`FileError::Wrong`], with the place of the key.
    pub fn check_relay(&self) -> Result<(), FileError> {
        Ok(trunkline_daemon::check_relay(&self.config, &self.text, &self.origin())?)
    }

    /// Why a daemon does not listen at an address that a key names.
    pub fn cannot_listen(&self, key: &str, address: &str, error: &io::Error) -> FileError {
        trunkline_daemon::cannot_listen((key, address), error, &self.text, &self.origin()).into()
    }

    /// What it is called.
    pub fn origin(&self) -> String {
        self.path.as_ref().map_or_else(|| "no file; the defaults".into(), |path| path.display().to_string())
    }

    fn read(path: &Path) -> Result<Self, FileError> {
        let text = bounded::read_text(path);
        let text = text.map_err(|error| FileError::Read { path: path.to_owned(), error })?;
        let config = Config::from_toml(&text, &path.display().to_string())?;
        Ok(Self { config, path: Some(path.to_owned()), text })
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a named file must be there and be right.
    use super::*;

    #[test]
    fn a_named_file_must_exist_and_be_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.toml");
        assert!(matches!(Loaded::find(Some(&path)), Err(FileError::Read { .. })));
        std::fs::write(&path, "[daemon]\nnod = \"x\"").unwrap();
        let error = Loaded::find(Some(&path)).unwrap_err().to_string();
        assert!(
            error.ends_with("d.toml:2:1: daemon.nod: there is no key \"nod\" here; did you mean \"node\"?"),
            "{error}"
        );
        std::fs::write(&path, "[daemon]\nnode = \"x\"").unwrap();
        let loaded = Loaded::find(Some(&path)).unwrap();
        assert_eq!((loaded.config.node(), &loaded.path), ("x", &Some(path)));
    }
}
