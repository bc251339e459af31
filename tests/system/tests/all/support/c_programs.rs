//! Programs of other languages over the C ABI: the library laid out as packages do, and what is built against it.

use super::{Host, until};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// `libtrunkline` below a prefix of the test's.
pub struct Prefix(TempDir);

/// A program and its first arguments.
#[derive(Clone, Debug)]
pub struct Command(Vec<OsString>);

/// A program that says lines. Killed when dropped.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Prefix {
    /// Lays it out.
    pub fn new() -> Self {
        let prefix = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libtrunkline_c.so");
        let done =
            process::Command::new(root().join("bindings/c/install")).arg(prefix.path()).arg(built).status();
        assert!(done.unwrap().success());
        Self(prefix)
    }

    /// Where.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A source of this repository, compiled. `None`, and a line that says so, if there is no C compiler.
    pub fn compiled(&self, source: &str) -> Option<Command> {
        self.built(source, ("CC", "cc", "C"), &["-std=c11", "-D_GNU_SOURCE", "-O1"])
    }

    /// The same of C++, over linear classes that are generated from the probe.
    pub fn compiled_over_the_probe(&self, source: &str) -> Option<Command> {
        let proto = root().join("tests/system/proto");
        let set = trunkline_schema::compile_proto_files(&[proto.join("probe.proto")], &[proto]).unwrap();
        for header in trunkline_codegen::generate_cpp_linear(&set, &[]).unwrap() {
            std::fs::write(self.path().join("include").join(&header.name), &header.text).unwrap();
        }
        self.built(source, ("CXX", "c++", "C++"), &["-std=c++17"])
    }

    fn built(
        &self,
        source: &str,
        (variable, command, language): (&str, &str, &str),
        how: &[&str],
    ) -> Option<Command> {
        let compiler = std::env::var_os(variable).unwrap_or_else(|| command.into());
        if process::Command::new(&compiler).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {language} compiler for {source}");
            return None;
        }
        let program = self.path().join(Path::new(source).file_stem().unwrap());
        let mut cc = process::Command::new(compiler);
        cc.args(how).args(["-Wall", "-Wextra", "-Werror"]).arg(root().join(source));
        cc.arg("-I").arg(self.path().join("include")).arg("-L").arg(self.path().join("lib"));
        cc.args(["-ltrunkline", "-lpthread", "-o"]).arg(&program);
        let done = cc.arg(format!("-Wl,-rpath,{}", self.path().join("lib").display())).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(Command(vec![program.into()]))
    }
}

/// Which library the exam of gRPC C++'s surface is compiled against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Ours.
    Trunkline,
    /// gRPC C++ of the machine.
    Stock,
}

impl Prefix {
    /// `bindings/cpp/tests/grpc/exam.cc` against one of the two. `None`, and a line that says what is missing, where
    /// the machine has no tools for it.
    pub fn exam(&self, surface: Surface) -> Option<Command> {
        self.over_grpc(surface, "bindings/cpp/tests/grpc/exam.cc", "bindings/cpp/tests/grpc/exam.proto")
    }

    /// A program of gRPC C++'s surface and its types.
    pub fn over_grpc(&self, surface: Surface, source: &str, proto: &str) -> Option<Command> {
        let flags = flags_of(surface)?;
        let (source, proto) = (root().join(source), root().join(proto));
        let stem = source.file_stem().unwrap();
        let generated = self.path().join(format!("{surface:?}-{}", stem.display()));
        std::fs::create_dir_all(&generated).unwrap();
        let file = proto.file_name().unwrap().to_str().unwrap().to_owned();
        self.generate_from(surface, proto.parent().unwrap(), std::slice::from_ref(&file), &generated);
        let program = generated.join(stem);
        let mut cc = process::Command::new("c++");
        cc.args(["-std=c++17", "-Wall", "-Wextra", "-I"]).arg(&generated);
        if surface == Surface::Trunkline {
            for folder in ["include/trunkline", "include"] {
                cc.arg("-I").arg(self.path().join(folder));
            }
            cc.arg("-Werror");
        }
        let made = |end: &str| generated.join(file.replace(".proto", end));
        cc.args([source, made(".grpc.pb.cc"), made(".pb.cc")]);
        if surface == Surface::Trunkline {
            cc.arg("-L").arg(self.path().join("lib")).arg("-ltrunkline");
            cc.arg(format!("-Wl,-rpath,{}", self.path().join("lib").display()));
        }
        if surface == Surface::Stock {
            cc.args(["-Wl,--no-as-needed", "-lgrpc++_reflection"]);
        }
        cc.args(flags).args(["-lpthread", "-o"]).arg(&program);
        ended_well("c++", cc.output().unwrap());
        Some(Command(vec![program.into()]))
    }

    /// What protoc and the plugin of the surface make of files below `sources`.
    pub fn generate_from(&self, surface: Surface, sources: &Path, files: &[String], generated: &Path) {
        let mut protoc = process::Command::new("protoc");
        protoc
            .arg(format!("--proto_path={}", sources.display()))
            .arg(format!("--cpp_out={}", generated.display()));
        if surface == Surface::Stock {
            let plugin =
                process::Command::new("sh").args(["-c", "command -v grpc_cpp_plugin"]).output().unwrap();
            let plugin = String::from_utf8_lossy(&plugin.stdout).trim().to_owned();
            protoc.arg(format!("--plugin=protoc-gen-grpc={plugin}"));
            protoc.arg(format!("--grpc_out={}", generated.display()));
        }
        ended_well("protoc", protoc.args(files).output().unwrap());
        if surface == Surface::Trunkline {
            // The plugin's answer is that of the generator it calls; its own tests show that.
            let paths: Vec<PathBuf> = files.iter().map(|file| sources.join(file)).collect();
            let set = trunkline_schema::compile_proto_files(&paths, &[sources]).unwrap();
            for file in trunkline_codegen::generate_cpp_grpc(&set, files).unwrap() {
                std::fs::write(generated.join(file.name), file.text).unwrap();
            }
        }
    }
}

/// What a program of a surface is linked with. `None`, and a line that says what is missing, where the machine has no
/// tools for it.
pub fn flags_of(surface: Surface) -> Option<Vec<String>> {
    let (tools, packages): (&[&str], &[&str]) = match surface {
        Surface::Trunkline => (&["c++", "protoc", "pkg-config"], &["protobuf"]),
        Surface::Stock => (&["c++", "protoc", "pkg-config", "grpc_cpp_plugin"], &["grpc++", "protobuf"]),
    };
    // grpc_cpp_plugin says nothing to `--version`, and ends when there is nothing to read.
    let runs = |tool: &&str| {
        let tried = process::Command::new(tool).arg("--version").stdin(Stdio::null()).output();
        tried.is_ok()
    };
    let flags = process::Command::new("pkg-config").args(["--cflags", "--libs"]).args(packages).output();
    let flags = flags.ok().filter(|output| output.status.success());
    let missing = tools.iter().find(|tool| !runs(tool)).copied();
    let Some(flags) = flags.filter(|_| missing.is_none()) else {
        eprintln!(
            "skipped: gRPC C++'s surface ({surface:?}): there is no {}",
            missing.unwrap_or(packages[0])
        );
        return None;
    };
    Some(String::from_utf8_lossy(&flags.stdout).split_whitespace().map(str::to_owned).collect())
}

/// Ends the test unless the program ended well.
pub fn ended_well(what: &str, output: process::Output) {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Command {
    /// A program without arguments.
    pub fn of(program: &str) -> Self {
        Self(vec![program.into()])
    }

    /// With these arguments, too.
    pub fn with(&self, arguments: &[&str]) -> Self {
        Self(self.0.iter().cloned().chain(arguments.iter().map(OsString::from)).collect())
    }

    /// With another program and its arguments behind these.
    pub fn and(&self, Self(others): &Self) -> Self {
        Self(self.0.iter().chain(others).cloned().collect())
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[OsString] {
        &self.0[1..]
    }

    /// The program.
    pub fn program(&self) -> &OsString {
        &self.0[0]
    }
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Program {
    /// Starts a program on a host, and waits until it says that it is ready.
    pub fn start(host: &Host, Command(words): &Command) -> Self {
        let mut command = process::Command::new(&words[0]);
        command.args(&words[1..]).env("TRUNKLINE_SOCKET", host.socket()).env("TRUNKLINE_EMBEDDED", "0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        std::thread::spawn(move || {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| heard.lock().unwrap().push(line));
        });
        let program = Self { child, input, lines };
        until("the program is ready", || (program.count("ready") == 1).then_some(()));
        program
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends its input, and waits until it has ended well. What it said.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.input.take());
        let ended = until("the program ends", || self.child.try_wait().unwrap());
        assert!(ended.success(), "{ended}: {:?}", self.lines.lock().unwrap().last());
        until("its last line", || self.last_of("handles"));
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// How many lines begin with a word.
    pub fn count(&self, word: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    /// Waits for so many lines more that begin with a word.
    pub fn until_more(&self, word: &str, more: usize) {
        let before = self.count(word);
        until(
            &format!("{more} more of {word}; the last line: {:?}", self.lines.lock().unwrap().last()),
            || (self.count(word) >= before + more).then_some(()),
        );
    }

    /// The last line that begins with a word.
    pub fn last_of(&self, word: &str) -> Option<String> {
        self.lines.lock().unwrap().iter().rfind(|line| line.starts_with(word)).cloned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
