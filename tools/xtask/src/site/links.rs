//! Follows every link of a folder of HTML pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Pages by their path below the folder, and their text.
pub type Pages = BTreeMap<String, String>;

/// Every page below a folder.
pub fn pages(folder: &Path) -> io::Result<Pages> {
    let mut pages = Pages::new();
    let mut folders = vec![String::new()];
    while let Some(below) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(name + "/");
            } else if name.ends_with(".html") {
                pages.insert(name, std::fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(pages)
}

/// What leads nowhere. Pages that mdBook did not make (plots) are opened, not read for links.
pub fn check(folder: &Path, pages: &Pages) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path.as_str(), values(text, "id").collect())).collect();
    let mut problems = Vec::new();
    for (path, text) in pages {
        if !text.contains("mdbook") && !text.contains("mdBook") {
            continue;
        }
        for target in values(text, "href").chain(values(text, "src")) {
            let told = follow(folder, &anchors, path, target);
            problems.extend(told.map(|what| format!("{path}: {target}: {what}")));
        }
    }
    problems.dedup();
    problems
}

fn follow(
    folder: &Path,
    anchors: &BTreeMap<&str, BTreeSet<&str>>,
    path: &str,
    target: &str,
) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("data:") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = file.split('?').next().unwrap_or_default();
    let at =
        if file.is_empty() { Some(path.to_owned()) } else { crate::rules::documents::resolve(path, file) };
    let Some(at) = at.filter(|at| folder.join(at).exists()) else { return Some("no such file") };
    let known = anchors.get(at.as_str())?;
    (!anchor.is_empty() && !known.contains(anchor)).then_some("no such heading")
}

/// The values of an attribute, in double quotes.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let starts: Vec<usize> = text.match_indices(&begin).map(|(at, found)| at + found.len()).collect();
    starts.into_iter().filter_map(|at| text[at..].split('"').next())
}

#[cfg(test)]
mod tests {
    //! Files and anchors that are not there are told, others are not.
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let folder = std::env::temp_dir().join(format!("xtask-links-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("b")).unwrap();
        let page = "<meta generator=\"mdbook\"><h1 id=\"x\"></h1><a href=\"b/c.html#y\"><a href=\"#x\">\
                    <a href=\"d.html\"><a href=\"b/c.html#z\"><a href=\"https://e.org\">";
        std::fs::write(folder.join("a.html"), page).unwrap();
        std::fs::write(folder.join("b/c.html"), "<p id=\"y\">mdbook<a href=\"../a.html#x\">").unwrap();
        let found = check(&folder, &pages(&folder).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["a.html: d.html: no such file", "a.html: b/c.html#z: no such heading"]);
    }
}
