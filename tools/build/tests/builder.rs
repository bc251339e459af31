//! Shows what a build script gets: files, what they depend on, and errors that say where.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use trunkline_build::{BuildError, Builder};

const GREETER: &str = "syntax = \"proto3\";\npackage greeter.v1;\nimport \"people/person.proto\";\n\
                       message Hello { people.Person person = 1; }\n";
const PERSON: &str = "syntax = \"proto3\";\npackage people;\nmessage Person { string name = 1; }\n";

/// A directory with `greeter.proto` and `people/person.proto`.
fn protos(greeter: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("people")).unwrap();
    fs::write(dir.path().join("greeter.proto"), greeter).unwrap();
    fs::write(dir.path().join("people/person.proto"), PERSON).unwrap();
    dir
}

fn compile(dir: &Path, out: &Path) -> Result<(), BuildError> {
    Builder::new().include(dir).out_dir(out).compile(&[dir.join("greeter.proto")])
}

fn failure(greeter: &str) -> String {
    let dir = protos(greeter);
    let out = tempfile::tempdir().unwrap();
    let error = compile(dir.path(), out.path()).unwrap_err();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is written");
    // What `fn main() -> Result<(), BuildError>` prints.
    format!("{error:?}")
}

#[test]
fn every_package_gets_a_file_and_all_together_a_tree() {
    let dir = protos(GREETER);
    let out = tempfile::tempdir().unwrap();
    compile(dir.path(), out.path()).unwrap();
    let mut names: Vec<_> = fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["greeter.v1.rs", "packages", "people.rs", "trunkline_protos.rs"]);
    let greeter = fs::read_to_string(out.path().join("packages/greeter.v1.rs")).unwrap();
    assert!(greeter.contains("pub person: ::core::option::Option<super::super::people::Person>,"));
    let tree = fs::read_to_string(out.path().join("trunkline_protos.rs")).unwrap();
    assert!(tree.contains("include!(\"packages/greeter.v1.rs\");"), "{tree}");
}

#[test]
fn a_package_brings_those_it_refers_to() {
    let dir = protos(GREETER);
    let out = tempfile::tempdir().unwrap();
    compile(dir.path(), out.path()).unwrap();
    let whole = fs::read_to_string(out.path().join("greeter.v1.rs")).unwrap();
    for line in [
        "pub mod packages {",
        "include!(\"packages/greeter.v1.rs\");",
        "include!(\"people.rs\");",
        "pub use self::packages::greeter::v1::*;",
    ] {
        assert!(whole.contains(line), "{line}: {whole}");
    }
}

#[test]
fn well_known_types_are_the_librarys_unless_said_otherwise() {
    let greeter = "syntax = \"proto3\";\npackage greeter.v1;\nimport \"google/protobuf/timestamp.proto\";\n\
                   message Hello { google.protobuf.Timestamp at = 1; }\n";
    let dir = protos(greeter);
    let at = |builder: Builder| {
        let out = tempfile::tempdir().unwrap();
        builder.include(dir.path()).out_dir(out.path()).compile(&[dir.path().join("greeter.proto")]).unwrap();
        let generated = out.path().join("google.protobuf.rs").exists();
        let inner = out.path().join("packages/greeter.v1.rs");
        let path = if inner.exists() { inner } else { out.path().join("greeter.v1.rs") };
        let code = fs::read_to_string(path).unwrap();
        let field = code.lines().find_map(|line| line.trim().strip_prefix("pub at: ::core::option::Option<"));
        (field.unwrap().trim_end_matches(">,").to_owned(), generated)
    };
    let library = ("::trunkline::codegen::wkt::Timestamp".to_owned(), false);
    assert_eq!(at(Builder::new()), library);
    let own = ("super::super::google::protobuf::Timestamp".to_owned(), true);
    assert_eq!(at(Builder::new().shared_types(false)), own);
    let elsewhere = ("::times::Timestamp".to_owned(), false);
    assert_eq!(at(Builder::new().extern_path(".google.protobuf", "::times")), elsewhere);
    // A declaration with other fields is another type.
    fs::create_dir_all(dir.path().join("google/protobuf")).unwrap();
    let other = "syntax = \"proto3\";\npackage google.protobuf;\nmessage Timestamp { string text = 1; }\n";
    fs::write(dir.path().join("google/protobuf/timestamp.proto"), other).unwrap();
    assert_eq!(at(Builder::new()), own);
}

#[test]
fn without_includes_imports_are_looked_for_beside_the_file() {
    let dir = protos(GREETER);
    let out = tempfile::tempdir().unwrap();
    Builder::new().out_dir(out.path()).compile(&[dir.path().join("greeter.proto")]).unwrap();
    assert!(out.path().join("people.rs").exists());
}

#[test]
fn external_packages_are_not_generated() {
    let dir = protos(GREETER);
    let out = tempfile::tempdir().unwrap();
    let builder = Builder::new().include(dir.path()).out_dir(out.path());
    builder
        .extern_path(".people", "::people_crate::v1")
        .compile(&[dir.path().join("greeter.proto")])
        .unwrap();
    assert!(!out.path().join("people.rs").exists());
    let greeter = fs::read_to_string(out.path().join("greeter.v1.rs")).unwrap();
    assert!(greeter.contains("pub person: ::core::option::Option<::people_crate::v1::Person>,"));
    let view = "::core::option::Option<<::people_crate::v1::Person as __rt::Message>::View<'a>>";
    assert!(greeter.contains(view), "an external view may be called anything");
}

#[test]
fn syntax_errors_name_file_line_and_column() {
    let error = failure("syntax = \"proto3\";\nmessage Hello {\n  string name 1;\n}\n");
    assert!(error.contains("greeter.proto:3:15"), "{error}");
}

#[test]
fn unknown_types_and_missing_imports_name_their_place() {
    let error = failure("syntax = \"proto3\";\nmessage Hello {\n  Person person = 1;\n}\n");
    assert!(error.contains("greeter.proto:3:3") && error.contains("Person"), "{error}");
    let error = failure("syntax = \"proto3\";\nimport \"nowhere.proto\";\n");
    assert!(error.contains("greeter.proto:2:1") && error.contains("nowhere.proto"), "{error}");
}

#[test]
fn a_missing_file_and_a_bad_option_are_named() {
    let out = tempfile::tempdir().unwrap();
    let missing =
        Builder::new().out_dir(out.path()).compile(&[out.path().join("missing.proto")]).unwrap_err();
    assert!(missing.to_string().contains("missing.proto"), "{missing}");
    let dir = protos(GREETER);
    let builder = Builder::new().out_dir(out.path()).extern_path("people", "::p");
    let bad = builder.compile(&[dir.path().join("greeter.proto")]).unwrap_err();
    assert!(bad.to_string().contains("extern_path") && bad.to_string().contains("\"people\""), "{bad}");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let dir = protos(GREETER);
    let error = compile(dir.path(), &dir.path().join("not/there")).unwrap_err().to_string();
    assert!(error.contains("not/there"), "{error}");
}

#[test]
fn a_package_called_like_the_tree_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let proto = out.path().join("a.proto");
    fs::write(&proto, "syntax = \"proto3\";\npackage trunkline_protos;\nmessage M {}\n").unwrap();
    let error = Builder::new().out_dir(out.path()).compile(&[proto]).unwrap_err().to_string();
    assert!(error.contains("trunkline_protos.rs would hold the code of two packages"), "{error}");
}

#[test]
fn packages_that_differ_by_spelling_get_a_module_each() {
    let out = tempfile::tempdir().unwrap();
    let proto = |name: &str, package: &str| {
        let path = out.path().join(name);
        fs::write(&path, format!("syntax = \"proto3\";\npackage {package};\nmessage M {{}}\n")).unwrap();
        path
    };
    let protos = [proto("a.proto", "a.fooBar"), proto("b.proto", "a.foo_bar")];
    Builder::new().out_dir(out.path()).compile(&protos).unwrap();
    let tree = fs::read_to_string(out.path().join("trunkline_protos.rs")).unwrap();
    assert!(tree.contains("pub mod foo_bar {\n        include!(\"a.fooBar.rs\");"), "{tree}");
    assert!(tree.contains("pub mod foo_bar_ {\n        include!(\"a.foo_bar.rs\");"), "{tree}");
}

#[test]
fn editions_are_compiled_by_protoc() {
    let edition = "edition = \"2023\";\npackage greeter.v1;\nmessage Hello { string name = 1; }\n";
    let error = failure(edition);
    assert!(error.contains("greeter.proto: edition 2023 is not read by the built-in compiler"), "{error}");
    assert!(error.contains("--descriptor_set_out"), "{error}");

    // What protoc makes of that file: `FileDescriptorSet` with name, package, message, syntax and edition.
    let field = b"\x0a\x04name\x18\x01\x20\x01\x28\x09";
    let message = [b"\x0a\x05Hello\x12", &[field.len() as u8][..], field].concat();
    let file = [
        b"\x0a\x0dgreeter.proto\x12\x0agreeter.v1\x22",
        &[message.len() as u8][..],
        &message,
        b"\x62\x08editions\x70\xe8\x07",
    ]
    .concat();
    let set = [b"\x0a", &[file.len() as u8][..], &file].concat();
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join("set"), set).unwrap();
    Builder::new().out_dir(out.path()).compile_descriptor_set(out.path().join("set")).unwrap();
    let greeter = fs::read_to_string(out.path().join("greeter.v1.rs")).unwrap();
    assert!(greeter.contains("pub name: ::core::option::Option<::std::string::String>,"), "{greeter}");
    let missing =
        Builder::new().out_dir(out.path()).compile_descriptor_set(out.path().join("no")).unwrap_err();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
}
