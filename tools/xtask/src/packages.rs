//! The workspace's packages, and the layers they are in by their folders.

use crate::Tree;
use toml::Table;

/// A layer, lowest first. A package depends on its own layer or lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Decides; no world.
    Core,
    /// Touches the world.
    Host,
    /// Assemblies.
    Run,
    /// What people and build scripts run, and bindings for other languages.
    Tools,
    /// Examples, fuzz targets, suites over the whole: nothing depends on them.
    Top,
}

/// One crate.
#[derive(Debug)]
pub struct Package<'a> {
    /// Its folder, relative to the root.
    pub folder: &'a str,
    /// Its layer.
    pub layer: Layer,
    /// Its manifest.
    pub manifest: Table,
    /// Its manifest as written, for line numbers.
    pub text: &'a str,
}

impl Layer {
    /// The layer a folder belongs to.
    pub fn of(folder: &str) -> Self {
        match folder.split('/').next().unwrap_or_default() {
            "core" => Self::Core,
            "host" => Self::Host,
            "run" => Self::Run,
            "tools" | "bindings" => Self::Tools,
            _ => Self::Top,
        }
    }
}

impl<'a> Package<'a> {
    /// All packages of the tree. Manifests that do not parse are cargo's to complain about.
    pub fn all(tree: &'a Tree) -> Vec<Self> {
        let manifests = tree.manifests.iter().filter_map(|(path, text)| {
            let folder = path.strip_suffix("/Cargo.toml")?;
            let manifest: Table = text.parse().ok()?;
            manifest.contains_key("package").then(|| Self {
                folder,
                layer: Layer::of(folder),
                manifest,
                text,
            })
        });
        manifests.collect()
    }

    /// Name of the crate.
    pub fn name(&self) -> &str {
        self.manifest.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default()
    }

    /// Names of the crates it depends on to build, those of its build script and of single platforms too.
    pub fn dependencies(&self) -> Vec<String> {
        let platforms = self.manifest.get("target").and_then(|target| target.as_table());
        let tables =
            platforms.into_iter().flat_map(|table| table.values().filter_map(|value| value.as_table()));
        let mut names = Vec::new();
        for table in std::iter::once(&self.manifest).chain(tables) {
            for kind in ["dependencies", "build-dependencies"] {
                let listed = table.get(kind).and_then(|found| found.as_table());
                for (name, value) in listed.into_iter().flatten() {
                    let renamed = value.get("package").and_then(|package| package.as_str());
                    names.push(renamed.unwrap_or(name).to_owned());
                }
            }
        }
        names
    }

    /// The path of a file of this package.
    pub fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.folder)
    }

    /// The line of the manifest on which a dependency is named, from 1.
    pub fn line_of(&self, dependency: &str) -> usize {
        self.text.lines().position(|line| line.trim_start().starts_with(dependency)).map_or(0, |at| at + 1)
    }
}
