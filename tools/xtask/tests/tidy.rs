//! The work tree keeps the house rules.

use xtask::{Tree, rules};

#[test]
fn the_house_is_in_order() {
    let tree = Tree::load(&Tree::root()).expect("the work tree is readable");
    let findings: Vec<String> = rules::check(&tree).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n{} to mend", findings.join("\n"), findings.len());
}
