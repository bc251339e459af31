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
    let refused = |error| SchemaError::Compile(compile_error(&error, |_| None));
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
    let refused = |error| SchemaError::Compile(compile_error(&error, |_| Some(text.to_owned())));
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

/// What the compiler found wrong, for people to read: file, line, column and its words. A file in an edition, whose
/// first word it does not know, is refused with what to do about it; `read` finds a file's text by its name in imports.
pub fn compile_error(error: &protox::Error, read: impl FnOnce(&str) -> Option<String>) -> String {
    let text = error.file().filter(|_| error.is_parse()).and_then(read);
    match text.as_deref().and_then(edition) {
        Some(edition) => format!(
            "{}: edition {edition} is not read by the built-in compiler, which knows proto2 and proto3: compile the \
             file with protoc --descriptor_set_out=FILE --include_imports --include_source_info and use that \
             descriptor set",
            error.file().unwrap_or_default(),
        ),
        // protox keeps place and reason apart; its debug form shows both (`file.proto:3:5: expected ...`).
        None => format!("{error:?}"),
    }
}

/// The edition that a `.proto` file states, which is its first statement.
fn edition(text: &str) -> Option<String> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        rest = match (rest.strip_prefix("//"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n')?.1.trim_start(),
            (_, Some(comment)) => comment.split_once("*/")?.1.trim_start(),
            _ => break,
        };
    }
    let value = rest.strip_prefix("edition")?.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let name = value.get(1..)?.split(quote).next()?;
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    //! Shows what is said about a file in an edition, and that other mistakes keep the compiler's words.
    use super::*;

    #[test]
    fn editions_are_refused_with_what_to_do() {
        let text = "// A comment.\n/* Another\n */ edition = \"2023\";\nmessage M {}\n";
        let error = compile_proto_source("a.proto", text).unwrap_err().to_string();
        assert!(error.starts_with("a.proto: edition 2023 is not read"), "{error}");
        assert!(error.contains("protoc --descriptor_set_out"), "{error}");
    }

    #[test]
    fn other_mistakes_keep_their_place() {
        for text in ["syntax = \"proto3\";\nmessage M { strin x = 1; }", "edition\n;", "edition = \"\n"] {
            let error = compile_proto_source("a.proto", text).unwrap_err().to_string();
            assert!(error.contains("a.proto:") && !error.contains("protoc"), "{error}");
        }
    }
}
