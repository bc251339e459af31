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
    assert_eq!(names, ["greeter.v1.rs", "people.rs", "trunkline_protos.rs"]);
    let greeter = fs::read_to_string(out.path().join("greeter.v1.rs")).unwrap();
    assert!(greeter.contains("pub person: Option<super::super::people::Person>,"));
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
    assert!(greeter.contains("pub person: Option<::people_crate::v1::Person>,"));
    let view = "Option<<::people_crate::v1::Person as rt::Message>::View<'a>>";
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
