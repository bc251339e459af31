//! A package depends on its own layer or lower ones, is a member of the workspace, and takes its lints.

use crate::packages::Package;
use crate::{Finding, Tree};

const RULE: &str = "layers";

/// Dev-dependencies are exempt: a test may use any layer.
pub fn check(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let workspace = tree.manifests.get("Cargo.toml").and_then(|text| text.parse::<toml::Table>().ok());
    for package in packages {
        for dependency in package.dependencies() {
            let Some(other) = packages.iter().find(|other| other.name() == dependency) else { continue };
            if other.layer > package.layer {
                findings.push(Finding {
                    path: package.path("Cargo.toml"),
                    line: package.line_of(&dependency),
                    rule: RULE,
                    what: format!(
                        "{} is in layer {:?} and depends on {}, in {:?}",
                        package.folder, package.layer, other.folder, other.layer
                    ),
                    instead:
                        "hand what is needed in as an argument or a trait of your own, or move the package"
                            .into(),
                });
            }
        }
        if !inherits_lints(package) {
            findings.push(whole(
                package,
                "does not take the workspace's lints",
                "add [lints] workspace = true",
            ));
        }
        if !workspace.as_ref().is_none_or(|workspace| is_member(workspace, package.folder)) {
            findings.push(whole(
                package,
                "is not a member of the workspace",
                "list it in the root Cargo.toml under members or exclude",
            ));
        }
    }
    findings
}

fn whole(package: &Package<'_>, what: &str, instead: &str) -> Finding {
    let (what, instead) = (format!("{} {what}", package.folder), instead.to_owned());
    Finding { path: package.path("Cargo.toml"), line: 0, rule: RULE, what, instead }
}

/// A package outside the workspace (fuzz targets have their own) has no lints to inherit.
fn inherits_lints(package: &Package<'_>) -> bool {
    let lints = package.manifest.get("lints").and_then(|lints| lints.get("workspace"));
    package.manifest.contains_key("workspace") || lints.and_then(|value| value.as_bool()) == Some(true)
}

fn is_member(workspace: &toml::Table, folder: &str) -> bool {
    let lists =
        ["members", "exclude"].iter().filter_map(|key| workspace.get("workspace")?.get(key)?.as_array());
    lists.flatten().filter_map(|value| value.as_str()).any(|listed| match listed.strip_suffix("/*") {
        Some(parent) => folder.rsplit_once('/').is_some_and(|(above, _)| above == parent),
        None => listed == folder,
    })
}

#[cfg(test)]
mod tests {
    //! Shows which dependencies pass.
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    }

    fn found(core: &str) -> Vec<Finding> {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = [\"core/a\", \"host/*\"]".to_owned()),
            ("core/a/Cargo.toml", manifest("a", core)),
            ("host/b/Cargo.toml", manifest("b", "[dependencies]\na.workspace = true\n")),
        ]);
        check(&tree, &Package::all(&tree))
    }

    #[test]
    fn down_passes_and_up_fails() {
        assert_eq!(found(""), []);
        let findings = found("[dependencies]\nb = { path = \"../../host/b\" }\n");
        assert_eq!((findings.len(), findings[0].line), (1, 6), "{findings:?}");
        assert_eq!(found("[dependencies]\nother = { package = \"b\" }\n").len(), 1);
        assert_eq!(found("[target.'cfg(unix)'.build-dependencies]\nb = \"1\"\n").len(), 1);
        assert_eq!(found("[dev-dependencies]\nb = \"1\"\n"), []);
    }

    #[test]
    fn packages_outside_and_without_lints_fail() {
        let tree = Tree::of([
            ("Cargo.toml", "[workspace]\nmembers = []"),
            ("core/a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ]);
        assert_eq!(check(&tree, &Package::all(&tree)).len(), 2);
    }
}
