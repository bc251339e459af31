//! Finding the configuration.

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

/// The configuration, and the file it came from, if there is one: the named one, else `TRUNKLINE_CONFIG`, else the
/// usual one. A file that was named must exist.
///
/// # Errors
/// [`FileError`].
pub fn load(named: Option<&Path>) -> Result<(Config, Option<PathBuf>), FileError> {
    let variable = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    match named.map(Path::to_owned).or(variable) {
        Some(path) => read(&path).map(|config| (config, Some(path))),
        None => match read(Path::new(CONFIG_PATH)) {
            Ok(config) => Ok((config, Some(CONFIG_PATH.into()))),
            Err(FileError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok((Config::default(), None))
            }
            Err(error) => Err(error),
        },
    }
}

fn read(path: &Path) -> Result<Config, FileError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| FileError::Read { path: path.to_owned(), error })?;
    Ok(Config::from_toml(&text, &path.display().to_string())?)
}

#[cfg(test)]
mod tests {
    //! Shows that a named file must be there and be right.
    use super::*;

    #[test]
    fn a_named_file_must_exist_and_be_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.toml");
        assert!(matches!(load(Some(&path)), Err(FileError::Read { .. })));
        std::fs::write(&path, "[daemon]\nnod = \"x\"").unwrap();
        let error = load(Some(&path)).unwrap_err().to_string();
        assert!(
            error.ends_with("d.toml:2:1: daemon.nod: there is no key \"nod\" here; did you mean \"node\"?"),
            "{error}"
        );
        std::fs::write(&path, "[daemon]\nnode = \"x\"").unwrap();
        let (config, origin) = load(Some(&path)).unwrap();
        assert_eq!((config.node(), origin), ("x", Some(path)));
    }
}
