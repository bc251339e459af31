//! Source files with the compiler's and rustdoc's opinion of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What hides as many names as a user's module can: generated code is included beside it.
const HOSTILE: &str = "
/// Names of the prelude and of crates, all of them something else.
#[allow(non_camel_case_types, dead_code, missing_docs)]
pub mod hostile {
    pub mod core {} pub mod std {} pub mod alloc {} pub mod trunkline {} pub mod rt {}
    pub struct Option; pub struct Result; pub struct String; pub struct Vec; pub struct Box; pub struct From;
    pub struct Into; pub struct Default; pub struct Clone; pub struct Copy; pub struct Debug; pub struct PartialEq;
    pub struct Send; pub struct Sync; pub struct Iterator; pub struct IntoIterator; pub struct ExactSizeIterator;
    pub struct AsRef; pub struct ToOwned; pub struct E; pub struct T; pub struct Message; pub struct View;
}
";

/// A crate of modules, each with the generated code of one schema, in a folder.
pub struct Crate {
    folder: PathBuf,
    library: PathBuf,
    schemas: Vec<u64>,
}

impl Crate {
    /// An empty one.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), library: library(folder), schemas: Vec::new() }
    }

    /// Adds the files of a schema, the tree among them.
    pub fn add(&mut self, schema: u64, files: &[(String, String)], tree: &str) {
        let module = self.folder.join(format!("s{schema}"));
        self.schemas.push(schema);
        fs::create_dir_all(&module).unwrap();
        for (name, text) in files {
            fs::write(module.join(name), text).unwrap();
        }
        let tree = tree.replace("include!(", "#[allow(unused_imports)]\nuse crate::hostile::*;\ninclude!(");
        fs::write(module.join("tree.rs"), tree).unwrap();
    }

    /// What the compiler says about it, warnings included; code is checked and not made.
    pub fn check(&self) -> Result<(), String> {
        self.run("rustc", &["--crate-type=lib", "--emit=metadata"]).map(drop)
    }

    /// What rustdoc says about the comments, warnings included.
    pub fn document(&self) -> Result<(), String> {
        self.run("rustdoc", &["-Drustdoc::all"]).map(drop)
    }

    /// The examples that rustdoc would run as tests.
    pub fn examples(&self) -> Result<Vec<String>, String> {
        let list = self.run("rustdoc", &["--test", "--test-args=--list --format=terse"])?;
        Ok(list.lines().filter(|line| line.ends_with(": test")).map(str::to_owned).collect())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let module = |schema| {
            format!("/// Schema {schema}.\npub mod s{schema} {{ include!(\"s{schema}/tree.rs\"); }}\n")
        };
        let modules: String = self.schemas.iter().map(module).collect();
        let root = self.folder.join("lib.rs");
        fs::write(&root, format!("//! Generated code.\n#![deny(warnings)]\n{HOSTILE}{modules}")).unwrap();
        let output = rust(program, &self.folder, &self.library).args(arguments).arg(&root).output().unwrap();
        said(&output)
    }
}

/// `rustc` or `rustdoc`, which a toolchain has both, with the library at hand.
fn rust(program: &str, folder: &Path, library: &Path) -> Command {
    let deps = library.parent().unwrap();
    let mut command = Command::new(program);
    command.args(["--edition=2024", "--crate-name=generated", "--out-dir"]).arg(folder.join("out"));
    command.arg(format!("--extern=trunkline={}", library.display()));
    command.arg(format!("-Ldependency={}", deps.display()));
    command
}

fn said(output: &Output) -> Result<String, String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The library this test was built with. It lies beside the test; a folder that is in use for long has others from
/// before, so the newest that compiles is taken.
fn library(folder: &Path) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let files = fs::read_dir(&deps).unwrap().map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libtrunkline-") && name.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = files.filter(is_library).collect();
    found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    let probe = folder.join("probe.rs");
    fs::write(&probe, "pub use trunkline::codegen::{ClientCore, Message};").unwrap();
    let works = |library: &PathBuf| {
        let mut rustc = rust("rustc", folder, library);
        rustc.args(["--crate-type=lib", "--emit=metadata"]).arg(&probe).output().unwrap().status.success()
    };
    found.into_iter().find(works).expect("the library lies beside the test that was built with it")
}
