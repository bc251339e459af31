//! C++ programs over our own library: the library built and laid out as a package lays it out, headers written as
//! protoc-gen-trunkline writes them, and for each message of the split the same application over gRPC C++ and over us.

use super::large_proto;
use super::messages::{SplitMessage, messages};
use crate::harness::children::{Failure, text, write_changed};
use crate::harness::shell::{Make, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use trunkline_codegen::{CodegenError, CppHeader, generate_cpp_grpc, generate_cpp_linear};
use trunkline_schema::{compile_proto_files, compile_proto_source};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Where the schemas and payloads of our own messages are.
pub const SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/shapes");

/// What writes headers for some files of a descriptor set, or for all.
pub type Generate = fn(&[u8], &[String]) -> Result<Vec<CppHeader>, CodegenError>;

/// Builds the library in the profile that this program was built in, and lays it out below `out`; where that is.
pub fn library(out: &Path) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let built = program.parent().ok_or("this program is in no folder")?;
    let target = built.parent().ok_or("this program is in no target folder")?;
    let profile = match built.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--profile", profile, "--locked", "--package", "trunkline-c"]);
    run(cargo.args(["--target-dir", text(target)]).current_dir(REPOSITORY))?;
    let prefix = out.join("prefix");
    let install = format!("{REPOSITORY}/bindings/c/install");
    run(Command::new(install).args([text(&prefix), text(&built.join("libtrunkline_c.so"))]))?;
    Ok(prefix)
}

/// Writes headers of what every peer calls, with large messages of so many members.
pub fn headers(out: &Path, members: &[usize], generate: Generate) -> Result<(), Failure> {
    let bench = compile_proto_source("bench.proto", include_str!("../../proto/bench.proto"))?;
    let large = compile_proto_source(large_proto::FILE, &large_proto::proto(members))?;
    write(out, generate(&bench, &[])?)?;
    write(out, generate(&large, &[])?)
}

/// Makes the programs of every message of the split below `out`.
pub fn split(out: &Path, make: &Make) -> Result<(), Failure> {
    for message in messages(Path::new(SHAPES)) {
        let SplitMessage { name, schemas, file, of, .. } = &message;
        let folder = out.join(name);
        std::fs::create_dir_all(&folder)?;
        let service = folder.join("echo.proto");
        write_changed(&service, &message.service())?;
        let set = compile_proto_files(&[service], &[&folder, schemas])?;
        write(&folder, generate_cpp_linear(&set, &[])?)?;
        write(&folder.join("ours"), generate_cpp_grpc(&set, &["echo.proto".to_owned()])?)?;
        let mut make = make.clone();
        make.set("NAME", name);
        make.set("CLASS", &of.replace('.', "::"));
        make.set("SCHEMAS", text(schemas));
        make.set("FILE", file);
        make.run(&folder)?;
    }
    Ok(())
}

fn write(out: &Path, headers: Vec<CppHeader>) -> Result<(), Failure> {
    std::fs::create_dir_all(out)?;
    headers.iter().try_for_each(|header| write_changed(&out.join(&header.name), &header.text))
}
