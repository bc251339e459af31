//! `unsafe` stands in `host/` and the C ABI, argued; every other package forbids it.

use crate::packages::{Layer, Package};
use crate::source::words;
use crate::{Finding, Tree};

const RULE: &str = "unsafe";

/// Checks crate roots for the attribute, and every `unsafe` of our own for its argument.
pub fn check(tree: &Tree, packages: &[Package<'_>]) -> Vec<Finding> {
    let mut findings: Vec<_> = packages
        .iter()
        .filter(|package| !may_be_unsafe(package.folder))
        .flat_map(|package| forbids(tree, package))
        .collect();
    for (path, source) in &tree.sources {
        for (line, code) in source.code.iter().enumerate() {
            if words(code, "unsafe").any(|at| needs_argument(&code[at..]))
                && !source.has_comment_above(line, "SAFETY:")
            {
                findings.push(Finding {
                    path: path.clone(),
                    line: line + 1,
                    rule: RULE,
                    what: "unsafe without an argument".into(),
                    instead: "write `// SAFETY: <the invariant and who keeps it>` right above the statement"
                        .into(),
                });
            }
        }
    }
    findings
}

fn forbids(tree: &Tree, package: &Package<'_>) -> Vec<Finding> {
    let src = package.path("src/");
    let is_root = |path: &str| {
        let file = path.strip_prefix(&src).unwrap_or_default();
        matches!(file, "lib.rs" | "main.rs") || file.starts_with("bin/")
    };
    let roots = tree.sources.iter().filter(|(path, _)| is_root(path));
    let lax =
        roots.filter(|(_, source)| !source.code.iter().any(|code| code.trim() == "#![forbid(unsafe_code)]"));
    lax.map(|(path, _)| Finding {
        path: path.clone(),
        line: 0,
        rule: RULE,
        what: format!("{} may not be unsafe and does not say so", package.folder),
        instead: "add #![forbid(unsafe_code)] below the essay".into(),
    })
    .collect()
}

/// `host/` touches the world. `bindings/` is the C ABI: other languages and policy modules meet the daemon in raw
/// pointers. What is in the top layer (tests of the two, examples of modules) may have to do the same.
fn may_be_unsafe(folder: &str) -> bool {
    Layer::of(folder) == Layer::Host || folder.starts_with("bindings/") || Layer::of(folder) == Layer::Top
}

/// Blocks and impls; an `unsafe fn` has its `# Safety` section, which clippy asks for.
fn needs_argument(from: &str) -> bool {
    let after = from["unsafe".len()..].trim_start();
    after.starts_with('{') || after.starts_with("impl") || after.is_empty()
}

#[cfg(test)]
mod tests {
    //! Shows which packages must forbid, and which unsafe is argued.
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Finding> {
        let manifest = "[package]\nname = \"a\"\n";
        let tree = Tree::of([("core/a/Cargo.toml", manifest), ("host/b/Cargo.toml", manifest), (path, text)]);
        check(&tree, &Package::all(&tree))
    }

    #[test]
    fn rooms_outside_host_forbid_it() {
        assert_eq!(found("core/a/src/lib.rs", "//! #![forbid(unsafe_code)]\n").len(), 1);
        assert_eq!(found("core/a/src/main.rs", "").len(), 1);
        assert_eq!(found("core/a/src/lib.rs", "#![forbid(unsafe_code)]\n"), []);
        assert_eq!(found("host/b/src/lib.rs", ""), []);
    }

    #[test]
    fn the_c_abi_may_be_unsafe_and_argues_all_the_same() {
        let tree = |text: &str| {
            let manifest = "[package]\nname = \"c\"\n";
            let tree = Tree::of([("bindings/c/Cargo.toml", manifest), ("bindings/c/src/lib.rs", text)]);
            check(&tree, &Package::all(&tree)).len()
        };
        assert_eq!(tree("//! No attribute.\n"), 0);
        assert_eq!(tree("fn f() {\n    unsafe { g() }\n}\n"), 1);
    }

    #[test]
    fn every_block_and_impl_is_argued() {
        let block = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(found("host/b/src/x.rs", block)[0].line, 2);
        assert_eq!(
            found("host/b/src/x.rs", &block.replace("    unsafe", "    // SAFETY: held by g\n    unsafe")),
            []
        );
        assert_eq!(found("host/b/src/x.rs", "unsafe impl Send for X {}\n").len(), 1);
        assert_eq!(found("host/b/src/x.rs", "// unsafe { in words }\npub unsafe fn f() {}\n"), []);
    }
}
