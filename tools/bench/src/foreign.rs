//! The field's libraries: built here from our own sources when what they need is installed, named as absent if not.

use crate::children::{Child, Failure, text, wait_for_file};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where our sources of the peers are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What could be built, or why it could not.
#[derive(Debug)]
pub struct Foreign {
    grpc: Result<PathBuf, String>,
    tonic: Result<PathBuf, String>,
}

impl Foreign {
    /// Builds what can be built, below the folder this program lies in.
    pub fn build() -> Result<Self, Failure> {
        let out = std::env::current_exe()?.with_file_name("peers");
        std::fs::create_dir_all(&out)?;
        let grpc = build_grpc(&out.join("grpc_cpp")).map_err(|error| error.to_string());
        let tonic = build_tonic(&out.join("tonic")).map_err(|error| error.to_string());
        Ok(Self { grpc, tonic })
    }

    /// Starts a gRPC C++ server of `form` at `address`; and how its client is started.
    pub fn grpc(&self, dir: &Path, form: &str, address: &str) -> Result<(Vec<Child>, Command), Failure> {
        let binaries = self.grpc.as_ref().map_err(Clone::clone)?;
        let port_file = dir.join("grpc.port");
        let mut server = Command::new(binaries.join("grpc_server"));
        let server = Child::start(server.args([form, address, text(&port_file)]))?;
        let mut client = Command::new(binaries.join("grpc_client"));
        client.arg(wait_for_file(&port_file)?);
        Ok((vec![server], client))
    }

    /// Starts a tonic server; and how its client is started.
    pub fn tonic(&self, dir: &Path) -> Result<(Vec<Child>, Command), Failure> {
        let binary = self.tonic.as_ref().map_err(Clone::clone)?;
        let port_file = dir.join("tonic.port");
        let server = Child::start(Command::new(binary).args(["serve", text(&port_file)]))?;
        let mut client = Command::new(binary);
        client.args(["drive", &wait_for_file(&port_file)?]);
        Ok((vec![server], client))
    }

    /// Versions of what was built.
    pub fn versions(&self) -> Vec<String> {
        let mut versions = Vec::new();
        if self.grpc.is_ok() {
            for (name, package) in [("gRPC C++", "grpc++"), ("protobuf C++", "protobuf")] {
                let version = output("pkg-config", &["--modversion", package]).unwrap_or_default();
                versions.push(format!("{name} {version}"));
            }
            versions.push(output("c++", &["--version"]).unwrap_or_default());
        }
        if let Ok(binary) = &self.tonic {
            versions.push(output(text(binary), &["version"]).unwrap_or_default());
        }
        versions
    }
}

fn build_grpc(out: &Path) -> Result<PathBuf, Failure> {
    for package in ["grpc++", "protobuf"] {
        output("pkg-config", &["--exists", package])
            .map_err(|error| format!("gRPC C++ needs the development files of {package}: {error}"))?;
    }
    run(Command::new("make").arg("-C").arg(format!("{SOURCES}/grpc_cpp")).arg(format!("OUT={}", text(out))))?;
    Ok(out.to_owned())
}

fn build_tonic(out: &Path) -> Result<PathBuf, Failure> {
    let manifest = format!("{SOURCES}/tonic/Cargo.toml");
    if !Path::new(&manifest).exists() {
        return Err("there is no tonic peer".into());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", text(out)]);
    run(&mut cargo)?;
    Ok(out.join("release/tonic-peer"))
}

/// Runs a build step; its output is shown only as the error when it fails.
fn run(command: &mut Command) -> Result<(), Failure> {
    let done = command.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{:?} failed: {last}", command.get_program()).into())
}

/// First line of what a command prints.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if !done.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), done.status).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).lines().next().unwrap_or_default().to_owned())
}
