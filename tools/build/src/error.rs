//! Why a build script failed.

use std::fmt;
use std::path::PathBuf;

use trunkline_codegen::CodegenError;

/// Why no code was generated.
///
/// A `main` that returns it prints it by `Debug`, so that is the same readable text as `Display`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A `.proto` file is missing or wrong: file, line, column and reason.
    #[error("{0}")]
    Proto(String),
    /// The descriptors or options cannot be used.
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    /// A descriptor set could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No output directory was given and this is no build script.
    #[error("OUT_DIR is not set: call Builder::out_dir outside of a build script")]
    NoOutDir,
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
