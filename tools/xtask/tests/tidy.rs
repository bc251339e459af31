//! The work tree keeps the project's rules.

use xtask::{Tree, rules};

#[test]
fn nothing_is_to_mend() {
    let tree = Tree::load(&Tree::root()).expect("the work tree is readable");
    let findings: Vec<String> = rules::check(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n{} to mend", findings.join("\n"), findings.len());
}
