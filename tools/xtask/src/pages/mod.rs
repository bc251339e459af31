//! Pages and tables of pages that are made from data: the targets, the benchmarks' table and plots, README's figures.
//!
//! `docs/targets.toml` says what is wanted, `docs/measured/*.md` what the last runs measured; [`pages`] joins them. In
//! a page that is otherwise written by hand, what is made stands between `<!-- made: NAME -->` and `<!-- end -->`.

mod data;
mod plots;
mod targets;

use crate::Tree;
use data::Data;
pub use data::TARGETS;

/// Where runs are written to.
const MEASURED: &str = "docs/measured/";

/// Every page as it should be, by path, if the tree has the data for it.
///
/// # Errors
/// What is wrong with the data, with the file it is in.
pub fn pages(tree: &Tree) -> Result<Vec<(String, String)>, String> {
    let Some(wanted) = tree.manifests.get(TARGETS) else { return Ok(Vec::new()) };
    let runs = tree.documents.iter().filter(|(path, _)| path.starts_with(MEASURED));
    let data = Data::read(wanted, runs.map(|(_, text)| text.as_str()))?;
    let mut pages = vec![("docs/targets.md".to_owned(), targets::page(&data))];
    for (path, name, table) in [
        ("docs/benchmarks.md", "marks", targets::summary(&data)),
        ("README.md", "figures", targets::figures(&data)?),
    ] {
        let Some(text) = tree.documents.get(path) else { continue };
        pages.push((path.to_owned(), filled(path, text, name, &table)?));
    }
    pages.extend(plots::plots(tree));
    Ok(pages)
}

/// Writes those that are not current.
///
/// # Errors
/// As [`pages`]; what the file system says.
pub fn write(root: &std::path::Path) -> Result<usize, String> {
    let tree = Tree::load(root).map_err(|error| error.to_string())?;
    let mut written = 0;
    for (path, text) in pages(&tree)? {
        if current(&tree, &path) != Some(text.as_str()) {
            std::fs::write(root.join(&path), text).map_err(|error| format!("{path}: {error}"))?;
            written += 1;
        }
    }
    Ok(written)
}

/// A page as it is.
pub fn current<'a>(tree: &'a Tree, path: &str) -> Option<&'a str> {
    tree.documents.get(path).or_else(|| tree.plots.get(path)).map(String::as_str)
}

/// The text with what is between its marks replaced.
pub(crate) fn filled(path: &str, text: &str, name: &str, made: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- made: {name} -->\n"), "<!-- end -->");
    let missing = || format!("{path}: `{}` and `{end}` are not both there", begin.trim_end());
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{made}{end}{after}"))
}

#[cfg(test)]
mod tests {
    //! One mark goes from the data file and a run to every page, and nothing else of a page changes.
    use super::*;

    const WANTED: &str = "[[target]]\nid = \"T1\"\nwhat = \"one call\"\ncommand = \"make bench\"\nmarks = [\n\
         { name = \"a ÷ b\", at_most = 2.5 }, { name = \"by hand\", at_least = 3.0, measured = \"2\" } ]\n\
         [[figure]]\nmark = \"a ÷ b\"\ntext = \"costs **{}** of b, b **{inverse}**\"\n";
    const RUN: &str = "| T1 | a ÷ b | ≤ 9 | 1.75 (1.12–1.94) | reached |\n";

    fn tree(page: &str) -> Tree {
        Tree::of([
            ("docs/targets.toml", WANTED),
            ("docs/measured/all.md", RUN),
            ("README.md", "a\n<!-- made: figures -->\nold\n<!-- end -->\nb\n"),
            ("docs/benchmarks.md", page),
        ])
    }

    #[test]
    fn one_file_says_what_is_wanted() {
        let pages = pages(&tree("x\n<!-- made: marks -->\n<!-- end -->\n")).unwrap();
        let of = |path: &str| pages.iter().find(|(at, _)| at == path).unwrap().1.as_str();
        assert!(of("docs/targets.md").contains("| a ÷ b | ≤ 2.5 | 1.75 (1.12–1.94) | reached |"));
        assert!(of("docs/targets.md").contains("| by hand | ≥ 3 | 2 | **not reached** |"));
        assert_eq!(
            of("README.md"),
            "a\n<!-- made: figures -->\n* costs **1.75** of b, b **0.6**\n<!-- end -->\nb\n"
        );
        assert!(of("docs/benchmarks.md").contains("| [T1](targets.md#t1-one-call) | one call | 1 of 2 |"));
    }

    #[test]
    fn a_published_run_replaces_what_was_written_by_hand() {
        let run = format!("{RUN}| T1 | by hand | ≥ 3 | 4 (3–5) | reached |\n");
        let files =
            [("docs/targets.toml", WANTED), ("docs/measured/all.md", RUN), ("docs/measured/one.md", &run)];
        let pages = pages(&Tree::of(files)).unwrap();
        let targets = pages.iter().find(|(at, _)| at == "docs/targets.md").unwrap().1.as_str();
        assert!(targets.contains("| by hand | ≥ 3 | 4 (3–5) | reached |"), "{targets}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let problem = pages(&tree("no table\n")).unwrap_err();
        assert!(
            problem.contains("docs/benchmarks.md") && problem.contains("<!-- made: marks -->"),
            "{problem}"
        );
        let unknown = WANTED.replace("mark = \"a ÷ b\"", "mark = \"c\"");
        let tree = Tree::of([("docs/targets.toml", unknown.as_str()), ("docs/measured/all.md", RUN)]);
        assert!(pages_problem(&tree).contains("no mark \"c\""));
        let other = Tree::of([("docs/targets.toml", WANTED), ("docs/measured/all.md", "")]);
        assert!(pages_problem(&other).contains("no run"), "a mark nobody has measured is said");
    }

    fn pages_problem(tree: &Tree) -> String {
        pages(tree).unwrap_err()
    }
}
