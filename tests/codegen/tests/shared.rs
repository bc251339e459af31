//! Shows that the types the library has for everybody are those of their `.proto` files, and that the generator knows
//! them by name and shape.
//!
//! `UPDATE_SHARED_TYPES=1 cargo test -p trunkline-codegen-tests --test shared` writes the library's files anew.

use std::path::{Path, PathBuf};

use trunkline_codegen::{GeneratedFile, Options, generate};

const FILES: [&str; 9] = [
    "google/protobuf/any.proto",
    "google/protobuf/duration.proto",
    "google/protobuf/empty.proto",
    "google/protobuf/field_mask.proto",
    "google/protobuf/struct.proto",
    "google/protobuf/timestamp.proto",
    "google/protobuf/wrappers.proto",
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The library's two packages; the second finds the types of the first in the library.
fn generated() -> Vec<GeneratedFile> {
    let includes = [root().join("run/trunkline/proto"), root().join("proto")];
    let files: Vec<PathBuf> = FILES
        .iter()
        .filter_map(|name| includes.iter().map(|include| include.join(name)).find(|path| path.exists()))
        .collect();
    assert_eq!(files.len(), FILES.len());
    let set = trunkline_schema::compile_proto_files(&files, &includes).unwrap();
    let one = |folder: &str, options: &Options| {
        let files = FILES.iter().filter(|name| name.starts_with(folder)).map(|&name| name.to_owned());
        generate(&set, &files.collect::<Vec<_>>(), options).unwrap()
    };
    let mut options = Options::default();
    options.runtime("crate::codegen").shared_types(false);
    for type_of_time in [".google.protobuf.Timestamp", ".google.protobuf.Duration"] {
        options.type_attribute(type_of_time, "#[derive(Copy, Eq, Hash, PartialOrd, Ord)]").unwrap();
    }
    let known = one("google/protobuf", &options);
    options.extern_path(".google.protobuf", "crate::wkt").unwrap();
    [known, one("google/rpc", &options)].concat()
}

/// Full name and identity of each message in generated code.
fn identities(code: &str) -> Vec<(&str, &str)> {
    let constants = |name: &'static str| {
        code.lines().filter_map(move |line| line.trim().strip_prefix(name)?.strip_suffix(';'))
    };
    constants("const FULL_NAME: &'static str = ").zip(constants("const FINGERPRINT: u64 = ")).collect()
}

#[test]
fn the_library_has_what_is_generated() {
    for file in generated() {
        let path = root().join("run/trunkline/src/shared").join(&file.name);
        if std::env::var_os("UPDATE_SHARED_TYPES").is_some() {
            std::fs::write(&path, &file.text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == file.text, "{} is old: see the top of this file", path.display());
    }
}

#[test]
fn the_generator_knows_them_by_shape() {
    let table = std::fs::read_to_string(root().join("tools/codegen/src/rust/shared.rs")).unwrap();
    let files = generated();
    let expected: Vec<String> = files
        .iter()
        .flat_map(|file| identities(&file.text))
        .map(|(name, identity)| format!("    ({name}, 0x{}),\n", grouped(identity)))
        .collect();
    assert!(expected.len() > 20);
    assert!(table.contains(&expected.concat()), "the table is to be:\n{}", expected.concat());
}

/// `0x0123456789abcdef` as `0123_4567_89ab_cdef`.
fn grouped(identity: &str) -> String {
    let digits = identity.trim_start_matches("0x").as_bytes();
    let groups = digits.chunks(4).map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join("_")
}
