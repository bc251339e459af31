//! C++ programs over our own library: the library built and laid out as a package lays it out, headers written as
//! protoc-gen-trunkline writes them, and for each message of the split the same application over gRPC C++ and over us.

use super::large_proto;
use crate::harness::children::{Failure, text, write_file};
use crate::harness::shell::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use trunkline_codegen::CppHeader;
use trunkline_schema::{compile_proto_files, compile_proto_source};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Where the schemas and payloads of our own messages are.
const SHAPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/shapes");
/// Where those of HyperProtoBench are, if they are there.
pub const HYPERPROTOBENCH: &str = "TRUNKLINE_HYPERPROTOBENCH";

/// A message that goes there and back in the split.
#[derive(Clone, Debug)]
pub struct SplitMessage {
    pub name: &'static str,
    /// The file of its bytes.
    pub wire: PathBuf,
    /// Its schema.
    file: &'static str,
    /// Full name.
    of: &'static str,
}

const OWN: [(&str, &str, &str, &str); 4] = [
    ("small", "small.bin", "shapes.proto", "trunkline.shapes.Small"),
    ("medium", "medium.bin", "shapes.proto", "trunkline.shapes.Medium"),
    ("large", "large.bin", "shapes.proto", "trunkline.shapes.Large"),
    ("deep", "deep.bin", "shapes.proto", "trunkline.shapes.Deep"),
];
const OF_HYPERPROTOBENCH: [(&str, &str, &str, &str); 3] = [
    ("bench3_m3", "bench3_M3.bin", "bench3.proto", "hyperprotobench.M3"),
    ("bench4_m43", "bench4_M43.bin", "bench4.proto", "hyperprotobench.M43"),
    ("bench5_m34", "synth_bench5_M34.bin", "bench5.proto", "hyperprotobench.M34"),
];

/// The messages that are there.
pub fn messages() -> Vec<SplitMessage> {
    let of = |folder: &Path, (name, wire, file, of): (&'static str, &str, &'static str, &'static str)| {
        SplitMessage { name, wire: folder.join(wire), file, of }
    };
    let mut all: Vec<SplitMessage> = OWN.map(|message| of(Path::new(SHAPES), message)).into();
    match std::env::var_os(HYPERPROTOBENCH).map(PathBuf::from) {
        Some(folder) => all.extend(OF_HYPERPROTOBENCH.map(|message| of(&folder, message))),
        None => eprintln!("split: HyperProtoBench is absent: {HYPERPROTOBENCH} names its folder"),
    }
    all
}

/// What the messages are called in reports and for `--only`, also where those of HyperProtoBench are absent.
pub fn message_names() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(OF_HYPERPROTOBENCH).map(|(name, ..)| name)
}

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

/// Writes the headers of the peer that calls what every peer calls.
pub fn headers(out: &Path) -> Result<(), Failure> {
    let bench = compile_proto_source("bench.proto", include_str!("../../proto/bench.proto"))?;
    written(out, &bench)?;
    let large = compile_proto_source(large_proto::FILE, &large_proto::proto(&large_proto::MEMBERS))?;
    written(out, &large)
}

/// Writes the stubs by which the sources of the gRPC C++ peer are compiled over our library.
pub fn surface(out: &Path) -> Result<(), Failure> {
    let bench = compile_proto_source("bench.proto", include_str!("../../proto/bench.proto"))?;
    kept(out, trunkline_codegen::generate_cpp_grpc(&bench, &[])?)?;
    let proto = large_proto::proto(large_proto::MEMBERS_OF_CPP);
    let large = compile_proto_source(large_proto::FILE, &proto)?;
    kept(out, trunkline_codegen::generate_cpp_grpc(&large, &[])?)
}

/// Makes an environment of Python's at `out`, with our package and what its tests need, grpcio among it.
pub fn python(out: &Path) -> Result<(), Failure> {
    let library = out.join("prefix/lib/libtrunkline.so.0");
    let mut venv = Command::new(format!("{REPOSITORY}/bindings/python/venv"));
    let done = venv.args([text(out), text(&library)]).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stdout, done.stderr].concat();
    Err(String::from_utf8_lossy(&said).lines().last().unwrap_or("python3 fails").to_owned().into())
}

/// Builds the programs of every message of the split below `out`.
pub fn split(out: &Path, root: &Path) -> Result<(), Failure> {
    let prefix = library(out)?;
    for message in messages() {
        let folder = out.join(message.name);
        std::fs::create_dir_all(&folder)?;
        message.write(&folder)?;
        let place = format!("{}/peers/split", env!("CARGO_MANIFEST_DIR"));
        let variables = [
            ("OUT", text(&folder).to_owned()),
            ("ROOT", text(root).to_owned()),
            ("PREFIX", text(&prefix).to_owned()),
            ("NAME", message.name.to_owned()),
            ("CLASS", message.of.replace('.', "::")),
            ("SCHEMAS", text(message.schemas()).to_owned()),
            ("FILE", message.file.to_owned()),
        ];
        let mut make = Command::new("make");
        make.args(["-C", &place]).args(variables.map(|(name, value)| format!("{name}={value}")));
        run(&mut make)?;
    }
    Ok(())
}

impl SplitMessage {
    fn schemas(&self) -> &Path {
        self.wire.parent().unwrap_or(Path::new("."))
    }

    /// Its service, and the headers of that.
    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let Self { file, of, .. } = self;
        let service = format!(
            "syntax = \"proto3\"; package echo; import \"{file}\";\n\
             service Echo {{ rpc Call(.{of}) returns (.{of}); }}\n"
        );
        let path = folder.join("echo.proto");
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&service) {
            write_file(&path, &service)?;
        }
        let set = compile_proto_files(&[path], &[folder, self.schemas()])?;
        written(folder, &set)?;
        kept(&folder.join("ours"), trunkline_codegen::generate_cpp_grpc(&set, &["echo.proto".to_owned()])?)
    }
}

/// Headers that are there as they should be stay, so that nothing is compiled again.
fn written(out: &Path, set: &[u8]) -> Result<(), Failure> {
    kept(out, trunkline_codegen::generate_cpp_linear(set, &[])?)
}

fn kept(out: &Path, headers: Vec<CppHeader>) -> Result<(), Failure> {
    std::fs::create_dir_all(out)?;
    for header in headers {
        let path = out.join(&header.name);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&header.text) {
            write_file(&path, &header.text)?;
        }
    }
    Ok(())
}
