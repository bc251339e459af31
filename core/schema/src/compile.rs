//! `.proto` text to descriptors, by protox. The only part of `core/` that reads files, and only when asked to.

use std::path::Path;

use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::error::SchemaError;

/// Compiles files and all they import to an encoded `FileDescriptorSet`, with comments (source info).
///
/// # Errors
/// [`SchemaError::Compile`] with file, line, column and the compiler's words.
pub fn compile_proto_files(
    files: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<Vec<u8>, SchemaError> {
    let mut compiler = protox::Compiler::new(includes).map_err(refused)?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(files).map_err(refused)?;
    Ok(compiler.encode_file_descriptor_set())
}

/// Compiles one file given as text. It may import only protobuf's own files.
///
/// # Errors
/// As [`compile_proto_files`].
pub fn compile_proto_source(name: &str, text: &str) -> Result<Vec<u8>, SchemaError> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    resolver.add(InMemory { name: name.to_owned(), text: text.to_owned() });
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true);
    compiler.open_file(name).map_err(refused)?;
    Ok(compiler.encode_file_descriptor_set())
}

/// One file that exists only in memory.
struct InMemory {
    name: String,
    text: String,
}

impl FileResolver for InMemory {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == self.name {
            File::from_source(name, &self.text)
        } else {
            Err(protox::Error::file_not_found(name))
        }
    }
}

/// protox keeps place and reason apart; its debug form shows both (`file.proto:3:5: expected ...`).
fn refused(error: protox::Error) -> SchemaError {
    SchemaError::Compile(format!("{error:?}"))
}
