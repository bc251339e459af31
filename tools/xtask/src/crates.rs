//! `cargo xtask crates`: packages every crate that others may depend on, as a registry would get it, and builds it from
//! there. A crate that reads a file of another folder, or depends on one by its path only, is found by that.

use crate::Tree;
use crate::packages::Package;
use std::process::Command;

/// Packages and builds all of them; whether that went well.
pub fn run() -> bool {
    let tree = match Tree::load(&Tree::root()) {
        Ok(tree) => tree,
        Err(error) => {
            println!("crates: {error}");
            return false;
        }
    };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(Tree::root()).args(["package", "--locked", "--allow-dirty"]);
    for name in published(&tree) {
        command.args(["--package", &name]);
    }
    command.status().is_ok_and(|status| status.success())
}

/// Names of the crates that may be published.
pub fn published(tree: &Tree) -> Vec<String> {
    let is_open = |package: &Package<'_>| {
        let table = package.manifest.get("package").and_then(|table| table.as_table());
        table.is_some_and(|table| !table.contains_key("publish"))
    };
    Package::all(tree)
        .iter()
        .filter(|package| is_open(package))
        .map(|package| package.name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    //! Shows, without a registry, what would keep a crate from being packaged.
    use super::*;
    use toml::{Table, Value};

    #[test]
    fn crates_that_are_published_depend_on_versions() {
        let tree = Tree::load(&Tree::root()).unwrap();
        let published = published(&tree);
        assert!(published.len() > 20 && published.iter().any(|name| name == "trunkline"), "{published:?}");
        let workspace: Table = tree.manifests["Cargo.toml"].parse().unwrap();
        let version = workspace["workspace"]["package"]["version"].as_str().unwrap();
        let shared = workspace["workspace"]["dependencies"].as_table().unwrap();
        for package in
            Package::all(&tree).iter().filter(|package| published.iter().any(|name| name == package.name()))
        {
            for name in package.dependencies().iter().filter(|name| name.starts_with("trunkline")) {
                let said = shared.get(name).and_then(|shared| shared.get("version")).and_then(Value::as_str);
                assert_eq!(said, Some(version), "{}: {name} needs a version beside its path", package.name());
                assert!(
                    published.contains(name),
                    "{} depends on {name}, which is not published",
                    package.name()
                );
            }
        }
    }

    /// What lies outside of a crate is not packaged with it. (A link inside it is followed.)
    #[test]
    fn build_scripts_read_their_own_folder() {
        let tree = Tree::load(&Tree::root()).unwrap();
        let published = published(&tree);
        for package in
            Package::all(&tree).iter().filter(|package| published.iter().any(|name| name == package.name()))
        {
            let Ok(script) = std::fs::read_to_string(Tree::root().join(package.path("build.rs"))) else {
                continue;
            };
            assert!(!script.contains("../"), "{}", package.path("build.rs"));
        }
    }
}
