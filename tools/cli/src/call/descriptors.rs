//! Types known at run time only: `.proto` files or descriptor sets in, a method out.

use super::pool;
use crate::args::TypeArgs;
use crate::bounded;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use std::path::PathBuf;
use trunkline_schema::compile_error;

/// Where the types come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `.proto` files to compile.
    pub protos: Vec<PathBuf>,
    /// Where their imports are looked up; the files' own folders if empty.
    pub includes: Vec<PathBuf>,
    /// Encoded `FileDescriptorSet`s, as `protoc --descriptor_set_out --include_imports` writes them.
    pub descriptor_sets: Vec<PathBuf>,
}

/// Why there is no such method.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorError {
    /// A `.proto` file does not compile.
    #[error("{0}")]
    Compile(String),
    /// A descriptor set cannot be read.
    #[error("{}: {why}", path.display())]
    DescriptorSet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The text does not name a method.
    #[error("{0:?} does not name a method; write package.Service/Method")]
    NotAName(String),
    /// The sources have no such service.
    #[error("there is no service {wanted:?}{}", offer("services", .known))]
    Service {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Several services end in that name.
    #[error("{wanted:?} could be any of {}; write the full name", .candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Their full names.
        candidates: Vec<String>,
    },
    /// The service has no such method.
    #[error("service {service} has no method {wanted:?}{}", offer("methods", .known))]
    Method {
        /// Full name of the service.
        service: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: Vec<String>,
    },
}

impl From<TypeArgs> for Sources {
    fn from(args: TypeArgs) -> Self {
        Self { protos: args.proto, includes: args.include, descriptor_sets: args.descriptor_set }
    }
}

impl Sources {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.protos.is_empty() && self.descriptor_sets.is_empty()
    }

    /// Reads and compiles everything.
    ///
    /// # Errors
    /// [`DescriptorError::Compile`] with file, line and column; [`DescriptorError::DescriptorSet`].
    pub fn load(&self) -> Result<DescriptorPool, DescriptorError> {
        let mut pool = DescriptorPool::new();
        if !self.protos.is_empty() {
            let includes = self.include_paths();
            let read = |name: &str| includes.iter().find_map(|dir| bounded::read_text(&dir.join(name)).ok());
            let set = protox::compile(&self.protos, &includes)
                .map_err(|error| DescriptorError::Compile(compile_error(&error, read)))?;
            pool.add_file_descriptor_set(set).map_err(|error| DescriptorError::Compile(error.to_string()))?;
        }
        for path in &self.descriptor_sets {
            let failed = |why: String| DescriptorError::DescriptorSet { path: path.clone(), why };
            let bytes = bounded::read(path).map_err(|error| failed(error.to_string()))?;
            pool::add(&mut pool, &bytes).map_err(failed)?;
        }
        Ok(pool)
    }

    fn include_paths(&self) -> Vec<PathBuf> {
        if !self.includes.is_empty() {
            return self.includes.clone();
        }
        let mut folders: Vec<PathBuf> = Vec::new();
        for proto in &self.protos {
            let folder = proto.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }
}

/// Splits `package.Service/Method`, also with a leading slash, or with a dot before the method.
///
/// # Errors
/// [`DescriptorError::NotAName`].
pub fn split_name(name: &str) -> Result<(&str, &str), DescriptorError> {
    let bare = name.trim_start_matches('/');
    let parts = bare.split_once('/').or_else(|| bare.rsplit_once('.'));
    parts
        .filter(|(service, method)| !service.is_empty() && !method.is_empty() && !method.contains('/'))
        .ok_or_else(|| DescriptorError::NotAName(name.to_owned()))
}

/// Finds a method by name; the service's package may be left out if the rest is unambiguous.
///
/// # Errors
/// [`DescriptorError`] naming what there is instead.
pub fn method(pool: &DescriptorPool, name: &str) -> Result<MethodDescriptor, DescriptorError> {
    let (service, method) = split_name(name)?;
    let service = service_named(pool, service)?;
    service.methods().find(|known| known.name() == method).ok_or_else(|| DescriptorError::Method {
        service: service.full_name().to_owned(),
        wanted: method.to_owned(),
        known: service.methods().map(|method| method.name().to_owned()).collect(),
    })
}

fn service_named(pool: &DescriptorPool, wanted: &str) -> Result<ServiceDescriptor, DescriptorError> {
    if let Some(service) = pool.get_service_by_name(wanted) {
        return Ok(service);
    }
    let candidates: Vec<ServiceDescriptor> =
        pool.services().filter(|service| service.name() == wanted).collect();
    let names =
        |services: Vec<ServiceDescriptor>| services.iter().map(|s| s.full_name().to_owned()).collect();
    match <[_; 1]>::try_from(candidates) {
        Ok([only]) => Ok(only),
        Err(none) if none.is_empty() => Err(DescriptorError::Service {
            wanted: wanted.to_owned(),
            known: names(pool.services().collect()),
        }),
        Err(several) => {
            Err(DescriptorError::Ambiguous { wanted: wanted.to_owned(), candidates: names(several) })
        }
    }
}

fn offer(what: &str, names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; {what} here: {}", names.join(", ")) }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Shows which names find which method, and what the errors offer.
    use super::*;

    /// A pool of one file with two services of the same short name.
    pub fn pool() -> DescriptorPool {
        let text = r#"
            syntax = "proto3";
            package a.v1;
            message Ask { string text = 1; repeated int32 numbers = 2; }
            message Answer { string text = 1; bytes raw = 2; }
            service Echo { rpc Say(Ask) returns (Answer); rpc Talk(stream Ask) returns (stream Answer); }
            service Other { rpc Say(Ask) returns (Answer); }
        "#;
        let other = "syntax = \"proto3\"; package b; message M {} service Other { rpc Do(M) returns (M); }";
        let mut pool = DescriptorPool::new();
        for (name, text) in [("a.proto", text), ("b.proto", other)] {
            let file = protox::file::File::from_source(name, text).unwrap();
            pool.add_file_descriptor_proto(file.into()).unwrap();
        }
        pool
    }

    #[test]
    fn names_with_and_without_package() {
        for name in ["a.v1.Echo/Say", "/a.v1.Echo/Say", "a.v1.Echo.Say", "Echo/Say", "Echo.Say"] {
            assert_eq!(method(&pool(), name).unwrap().full_name(), "a.v1.Echo.Say", "{name}");
        }
    }

    #[test]
    fn errors_offer_what_there_is() {
        for (name, error) in [
            ("Echo/Sya", "service a.v1.Echo has no method \"Sya\"; methods here: Say, Talk"),
            ("Eco/Say", "there is no service \"Eco\"; services here: a.v1.Echo, a.v1.Other, b.Other"),
            ("Other/Say", "\"Other\" could be any of a.v1.Other, b.Other; write the full name"),
            ("Say", "\"Say\" does not name a method; write package.Service/Method"),
            ("a/b/c", "\"a/b/c\" does not name a method; write package.Service/Method"),
        ] {
            assert_eq!(method(&pool(), name).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn files_are_compiled_and_sets_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (proto, set, bad) =
            (folder.path().join("c.proto"), folder.path().join("set"), folder.path().join("bad.proto"));
        std::fs::write(
            &proto,
            "syntax = \"proto3\"; package b; message M {} service S { rpc Do(M) returns (M); }",
        )
        .unwrap();
        std::fs::write(&bad, "syntax = \"proto3\";\nmessage M { strin x = 1; }").unwrap();
        std::fs::write(&set, pool().encode_to_vec()).unwrap();

        let both = Sources { protos: vec![proto], descriptor_sets: vec![set.clone()], ..Sources::default() };
        let error = both.load().unwrap_err();
        assert!(error.to_string().contains("b.M"), "two definitions of one message: {error}");
        let only = Sources { descriptor_sets: vec![set], ..Sources::default() };
        assert!(method(&only.load().unwrap(), "Echo/Talk").unwrap().is_client_streaming());
        let error = Sources { protos: vec![bad.clone()], ..Sources::default() }.load().unwrap_err();
        assert!(error.to_string().contains("bad.proto:2:13"), "{error}");
        std::fs::write(&bad, "edition = \"2023\";\nmessage M {}").unwrap();
        let error = Sources { protos: vec![bad], ..Sources::default() }.load().unwrap_err();
        assert!(error.to_string().contains("bad.proto: edition 2023 is not read"), "{error}");
    }
}
