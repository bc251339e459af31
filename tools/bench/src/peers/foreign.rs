//! The field's libraries and proxies: built here from our own sources, or fetched by their registry's own client, when
//! what that needs is installed; named as absent if not. Which there are, what each is built of and how its processes
//! are started is in `libraries.toml`.

use super::cpp;
use super::debian::{self, Debian, Peers, SOURCES, libraries_below};
use super::large_proto;
use crate::harness::children::{self, Child, Failure, Serving, text, wait_for_file, write_changed};
use crate::harness::shell::{Make, output, run, said_anywhere};
use crate::harness::work::{Work, filled, word};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Any free port of this machine.
const ANY_PORT: &str = "127.0.0.1:0";
/// What tells an application its daemon.
const SOCKET: &str = "TRUNKLINE_SOCKET";

static LIBRARIES: LazyLock<BTreeMap<String, Library>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../libraries.toml")).expect("a test reads libraries.toml")
});

/// What a peer may need that is not ours.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Library {
    packages: Vec<String>,
    programs: Vec<String>,
    make: Vec<String>,
    given: Vec<Given>,
    members_max: Option<usize>,
    server: Vec<String>,
    client: Vec<String>,
    /// How it is started between a client and servers, the template of its configuration, and what that has for each
    /// server.
    pub(super) proxy: Vec<String>,
    pub(super) template: String,
    pub(super) upstream: String,
}

/// What a Makefile is given besides the folder where everything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Given {
    /// The folder that is `/` to the last of its packages.
    Packages,
    /// The compiler of protobuf's own.
    Protoc,
    /// The schema of the large messages.
    LargeMessages,
    /// libtrunkline, laid out as a package has it.
    OurLibrary,
    /// What protoc-gen-trunkline writes of the messages that every peer calls: for C++ over linear messages,
    OurHeaders,
    /// and for gRPC's own surface.
    OurStubs,
    /// The messages of the split, each in a folder of its own, where the Makefile is called for each.
    Messages,
}

/// The library of a name.
pub fn library(name: &str) -> Result<&'static Library, Failure> {
    LIBRARIES.get(name).ok_or_else(|| format!("libraries.toml has no {name:?}").into())
}

/// What a process of a library's is told: what stands for the words between `@` in its command.
#[derive(Clone, Copy, Debug)]
pub struct CommandWords<'a> {
    /// As its route says. A server's that ends in `-unix` listens at a Unix socket.
    pub how: &'a str,
    /// What that is if the route says nothing, where that makes a difference.
    pub form: &'a str,
    pub work: Work,
    /// Whom a client calls.
    pub address: &'a str,
    /// Its daemon, if it has one.
    pub socket: &'a Path,
}

/// A library that is there: the folder that its programs' places are below, and what it says of its version.
#[derive(Debug)]
struct Had {
    place: PathBuf,
    versions: String,
}

/// What could be had, or why it could not.
#[derive(Debug)]
pub struct Foreign {
    had: BTreeMap<&'static str, Result<Had, String>>,
}

impl Foreign {
    /// Builds and fetches what of `wanted` can be had, below the folder this program lies in.
    pub fn build(wanted: &BTreeSet<&'static str>, peers: Peers) -> Result<Self, Failure> {
        let out = std::env::current_exe()?.with_file_name("peers");
        std::fs::create_dir_all(&out)?;
        if peers == Peers::Install
            && let Err(why) = install(wanted)
        {
            eprintln!("packages are unpacked instead of installed: {why}");
        }
        let get = |name| {
            eprintln!("getting {name}");
            let got = library(name).and_then(|library| library.get(&out, peers));
            let got = got.map_err(|why| why.to_string());
            (name, got.inspect_err(|why| eprintln!("{name} is absent: {why}")))
        };
        Ok(Self { had: wanted.iter().copied().map(get).collect() })
    }

    /// Starts a server and waits until it serves, if it says so in a file. With the address it got.
    pub fn server(&self, name: &str, dir: &Path, told: CommandWords<'_>) -> Result<Serving, Failure> {
        let Library { server: words, .. } = library(name)?;
        let (file, unix) = (dir.join("server.port"), format!("unix:{}/server.sock", text(dir)));
        let (how, address) = match told.how.strip_suffix("-unix") {
            Some(how) => (how, unix.as_str()),
            None => (told.how, ANY_PORT),
        };
        let server =
            Child::start(&mut self.told(name, words, &file, CommandWords { how, address, ..told })?)?;
        let says_where = words.iter().any(|word| word == "@file@");
        Ok((server, if says_where { wait_for_file(&file)? } else { String::new() }))
    }

    /// How a client is started.
    pub fn client(&self, name: &str, told: CommandWords<'_>) -> Result<Command, Failure> {
        let Library { client: words, .. } = library(name)?;
        self.told(name, words, Path::new(""), told)
    }

    fn told(
        &self,
        name: &str,
        words: &[String],
        file: &Path,
        told: CommandWords<'_>,
    ) -> Result<Command, Failure> {
        let CommandWords { how, form, work, address, socket } = told;
        let behind_hyphen = if how.is_empty() { String::new() } else { format!("-{how}") };
        let values = [
            ("how", how),
            ("-how", &behind_hyphen),
            ("form", if how.is_empty() { form } else { how }),
            ("work", &word(work)),
            ("address", address),
            ("target", address),
            ("file", text(file)),
            ("socket", text(socket)),
            ("sources", SOURCES),
        ];
        let mut command = self.command(name, words, &values)?;
        command.env(SOCKET, socket);
        Ok(command)
    }

    /// A program of a library's with its words.
    pub fn command(&self, name: &str, words: &[String], values: &[(&str, &str)]) -> Result<Command, Failure> {
        let (program, words) = words.split_first().ok_or_else(|| format!("{name} has no such process"))?;
        let place = self.at(name)?;
        let mut command = children::program(&place.join(program))?;
        command.args(words.iter().map(|word| filled(word, values)));
        if library(name)?.make.is_empty() {
            command.env("LD_LIBRARY_PATH", libraries_below(place));
        }
        Ok(command)
    }

    /// Versions of what was had.
    pub fn versions(&self) -> BTreeSet<String> {
        let had = self.had.values().filter_map(|had| had.as_ref().ok());
        had.flat_map(|had| had.versions.lines()).map(str::to_owned).collect()
    }

    /// The folder of its programs.
    pub fn at(&self, name: &str) -> Result<&Path, Failure> {
        match self.had.get(name) {
            Some(Ok(had)) => Ok(&had.place),
            Some(Err(why)) => Err(why.clone().into()),
            None => Err(format!("{name} was not asked for").into()),
        }
    }
}

/// Installs the packages of these libraries.
fn install(wanted: &BTreeSet<&str>) -> Result<(), Failure> {
    let packages = wanted.iter().filter_map(|name| library(name).ok()).flat_map(|library| &library.packages);
    debian::install(&packages.map(|name| Debian::of(name)).collect::<Result<Vec<_>, _>>()?)
}

impl Library {
    fn get(&self, out: &Path, peers: Peers) -> Result<Had, Failure> {
        for program in &self.programs {
            output("sh", &["-c", &format!("command -v {program}")])
                .map_err(|_| format!("needs {program}"))?;
        }
        let Some((folder, target)) = self.make.split_first() else { return self.unpacked(out, peers) };
        let place = out.join(folder);
        std::fs::create_dir_all(&place)?;
        let mut make = Make::new(&format!("{SOURCES}/{folder}"), target);
        for given in &self.given {
            self.give(*given, out, &place, peers, &mut make)?;
        }
        if self.given.contains(&Given::Messages) {
            cpp::split(&place, &make)?;
        } else {
            make.run(&place)?;
        }
        let versions = std::fs::read_to_string(place.join("versions")).unwrap_or_default();
        Ok(Had { place, versions })
    }

    fn give(
        &self,
        given: Given,
        out: &Path,
        place: &Path,
        peers: Peers,
        make: &mut Make,
    ) -> Result<(), Failure> {
        let members = large_proto::members(self.members_max);
        match given {
            Given::Packages => make.set("ROOT", text(&self.root(out, peers)?)),
            Given::Protoc => make.set("PROTOC", text(&self.protoc(out, peers)?)),
            Given::OurLibrary => make.set("PREFIX", text(&cpp::library(place)?)),
            Given::LargeMessages => {
                write_changed(&place.join(large_proto::FILE), &large_proto::proto(&members))?;
            }
            Given::OurHeaders => cpp::headers(place, &members, trunkline_codegen::generate_cpp_linear)?,
            Given::OurStubs => {
                cpp::headers(&place.join("ours"), &members, trunkline_codegen::generate_cpp_grpc)?;
            }
            // They are written for each.
            Given::Messages => {}
        }
        Ok(())
    }

    /// The folder that is `/` to the last of its packages.
    fn root(&self, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
        let name = self.packages.last().ok_or("it has no packages")?;
        Debian::of(name)?.root(&out.join("packages").join(name), peers)
    }

    /// protoc, for peers whose libraries generate code with it; ours does not. One that is on the path is as good as
    /// Debian's; an unpacked one is started by a script that says where its libraries are.
    fn protoc(&self, out: &Path, peers: Peers) -> Result<PathBuf, Failure> {
        if output("protoc", &["--version"]).is_ok() {
            return Ok("protoc".into());
        }
        let root = self.root(out, peers)?;
        let (program, script) = (root.join("usr/bin/protoc"), out.join("protoc.sh"));
        let libraries = libraries_below(&root);
        let line = format!("#!/bin/sh\nLD_LIBRARY_PATH='{libraries}' exec '{}' \"$@\"\n", text(&program));
        std::fs::write(&script, line)?;
        run(Command::new("chmod").args(["+x", text(&script)]))?;
        Ok(script)
    }

    /// What is a program of its packages, and starts.
    fn unpacked(&self, out: &Path, peers: Peers) -> Result<Had, Failure> {
        let place = self.root(out, peers)?;
        let program = place.join(self.proxy.first().ok_or("it has no program")?);
        let mut version = Command::new(program);
        let said = said_anywhere(version.arg("-v").env("LD_LIBRARY_PATH", libraries_below(&place)));
        let versions = said.map_err(|error| format!("does not start: {error}"))?;
        Ok(Had { place, versions: versions.lines().next().unwrap_or_default().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    //! What libraries are built of is there.
    use super::*;

    #[test]
    fn libraries_name_what_there_is() {
        for (name, library) in &*LIBRARIES {
            assert!(library.packages.iter().all(|name| Debian::of(name).is_ok()), "{name}");
            let makefile = |folder: &String| Path::new(SOURCES).join(folder).join("Makefile").exists();
            assert!(library.make.first().is_none_or(makefile), "{name}");
            assert!(library.server.is_empty() == library.client.is_empty(), "{name}");
        }
    }
}
