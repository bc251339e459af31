//! `cargo xtask crates`: packages every crate that others may depend on, as a registry would get it, and builds it from
//! there. A crate that reads a file of another folder, or depends on one by its path only, is found by that.

use crate::Tree;
use crate::rooms::Room;
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
    let is_open = |room: &Room<'_>| {
        let package = room.manifest.get("package").and_then(|package| package.as_table());
        package.is_some_and(|package| !package.contains_key("publish"))
    };
    Room::all(tree).iter().filter(|room| is_open(room)).map(|room| room.name().to_owned()).collect()
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
        for room in Room::all(&tree).iter().filter(|room| published.iter().any(|name| name == room.name())) {
            for name in room.dependencies().iter().filter(|name| name.starts_with("trunkline")) {
                let said = shared.get(name).and_then(|shared| shared.get("version")).and_then(Value::as_str);
                assert_eq!(said, Some(version), "{}: {name} needs a version beside its path", room.name());
                assert!(
                    published.contains(name),
                    "{} depends on {name}, which is not published",
                    room.name()
                );
            }
        }
    }

    /// What lies outside of a crate is not packaged with it. (A link inside it is followed.)
    #[test]
    fn build_scripts_read_their_own_folder() {
        let tree = Tree::load(&Tree::root()).unwrap();
        let published = published(&tree);
        for room in Room::all(&tree).iter().filter(|room| published.iter().any(|name| name == room.name())) {
            let Ok(script) = std::fs::read_to_string(Tree::root().join(room.path("build.rs"))) else {
                continue;
            };
            assert!(!script.contains("../"), "{}", room.path("build.rs"));
        }
    }
}
