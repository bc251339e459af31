//! What is made from data is current.

use crate::{Finding, Tree, pages};

const RULE: &str = "pages";

/// Compares every made page with what `cargo xtask pages` would write.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let finding = |path: &str, what: String, instead: &str| Finding {
        path: path.to_owned(),
        line: 0,
        rule: RULE,
        what,
        instead: instead.to_owned(),
    };
    let made = match pages::pages(tree) {
        Ok(made) => made,
        Err(problem) => return vec![finding(pages::TARGETS, problem, "mend the data, or the page")],
    };
    let stale = made.iter().filter(|(path, text)| pages::current(tree, path) != Some(text.as_str()));
    stale.map(|(path, _)| finding(path, "not what its data says".into(), "run `cargo xtask pages`")).collect()
}

#[cfg(test)]
mod tests {
    //! A page that was edited, or whose data was, is found.
    use super::*;

    #[test]
    fn stale_pages_are_found() {
        let wanted = "[[target]]\nid = \"T1\"\nwhat = \"x\"\ncommand = \"y\"\n\
                      marks = [{ name = \"a\", measured = \"1\" }]\n";
        let made = pages::pages(&Tree::of([("docs/targets.toml", wanted)])).unwrap();
        let (path, text) = &made[0];
        let tree = |text: &str| Tree::of([("docs/targets.toml", wanted), (path, text)]);
        assert_eq!(check(&tree(text)), []);
        assert_eq!(check(&tree(&text.replace("| 1 |", "| 2 |")))[0].path, "docs/targets.md");
        assert_eq!(check(&Tree::of([("docs/targets.toml", "[[target]]\n")]))[0].path, "docs/targets.toml");
    }
}
