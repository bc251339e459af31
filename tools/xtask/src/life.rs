//! The life of a call, a table of ARCHITECTURE.md, made from marks in the code.
//!
//! A mark is a comment above the function where a call passes a station:
//!
//! ```text
//! // LIFE: 5 | admitted: not too long, not too late | deadline, trace | 1 client send queue
//! ```
//!
//! Behind the station's number are what happens there, what is known from then on, and the component of telemetry that
//! ends; the latter two may be left out, and lines of plain comment below go on with it. `// LIFE: 5` alone names a
//! further function of station 5, and `// LIFE: 5 gRPC` the one that stands there when the other side speaks gRPC.
//! Crate, file and function are those the mark stands in, so a move changes the table and nothing else.

use crate::packages::Package;
use crate::source::Source;
use crate::{Finding, Tree, pages};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page with the tables.
pub const PAGE: &str = "ARCHITECTURE.md";
/// The table of stations.
pub const STATIONS: &str = "life";
/// The table of what stands at them when the other side is no Trunkline.
pub const OTHERS: &str = "life of others";

const RULE: &str = "life";
/// How a mark begins.
pub const MARK: &str = "// LIFE:";
const INSTEAD: &str = "tools/xtask/src/life.rs says what a mark looks like";

/// One place in the code.
struct Place {
    package: String,
    path: String,
    function: String,
}

#[derive(Default)]
struct Station {
    /// What happens, what is known, what ends.
    said: Option<[String; 3]>,
    /// The places, that of the text first.
    places: Vec<Place>,
    /// Those over another protocol, by its name.
    others: BTreeMap<String, Vec<Place>>,
}

/// The page as it should be, if the tree has it.
///
/// # Errors
/// A mark that is above no function, a station said twice or never, a gap between numbers, a page without the tables.
pub fn page(tree: &Tree) -> Result<Option<String>, Finding> {
    let Some(text) = tree.documents.get(PAGE) else { return Ok(None) };
    let mut page = text.clone();
    for (name, table) in tables(tree)? {
        page = pages::filled(PAGE, &page, name, &table).map_err(|what| finding(PAGE, 0, what))?;
    }
    Ok(Some(page))
}

/// Writes the page if it is not current; whether it was not.
///
/// # Errors
/// As [`page`]; what the file system says.
pub fn write(root: &std::path::Path) -> Result<bool, String> {
    let tree = Tree::load(root).map_err(|error| error.to_string())?;
    let Some(page) = page(&tree).map_err(|bad| bad.to_string())? else { return Ok(false) };
    let is_stale = tree.documents.get(PAGE) != Some(&page);
    if is_stale {
        std::fs::write(root.join(PAGE), page).map_err(|error| format!("{PAGE}: {error}"))?;
    }
    Ok(is_stale)
}

/// Holds the page to the code.
pub fn check(tree: &Tree) -> Vec<Finding> {
    match page(tree) {
        Err(bad) => vec![bad],
        Ok(Some(page)) if tree.documents.get(PAGE) != Some(&page) => {
            let what = "the life of a call is not what the marks in the code say".into();
            vec![Finding { instead: "run `cargo xtask life`".into(), ..finding(PAGE, 0, what) }]
        }
        Ok(_) => Vec::new(),
    }
}

fn finding(path: &str, line: usize, what: String) -> Finding {
    Finding { path: path.into(), line, rule: RULE, what, instead: INSTEAD.into() }
}

fn tables(tree: &Tree) -> Result<[(&'static str, String); 2], Finding> {
    let mut stations: BTreeMap<usize, Station> = BTreeMap::new();
    for package in Package::all(tree) {
        let src = package.path("src/");
        for (path, source) in tree.sources.iter().filter(|(path, _)| path.starts_with(&src)) {
            read_marks(&package, path, source, &mut stations)?;
        }
    }
    for (expected, (number, station)) in (1..).zip(&stations) {
        let bad = |what| finding(PAGE, 0, what);
        if *number != expected {
            return Err(bad(format!(
                "no mark `{MARK} {expected} | …` in the code, and one of station {number}"
            )));
        }
        if station.said.is_none() {
            return Err(bad(format!("station {number}: no mark says what happens (`{MARK} {number} | …`)")));
        }
    }
    Ok([(STATIONS, table(&stations)), (OTHERS, table_of_others(&stations))])
}

fn read_marks(
    package: &Package<'_>,
    path: &str,
    source: &Source,
    stations: &mut BTreeMap<usize, Station>,
) -> Result<(), Finding> {
    for (at, line) in source.lines.iter().enumerate().filter(|(at, _)| !source.is_test[*at]) {
        let Some(first) = line.trim().strip_prefix(MARK) else { continue };
        let bad = |what: &str| finding(path, at + 1, what.into());
        let (text, end) = whole(first, &source.lines[at + 1..]);
        let function = below(source, at + 1 + end).ok_or_else(|| bad("a LIFE mark above no function"))?;
        let mut parts = text.split('|').map(|part| part.trim().to_owned());
        let head = parts.next().unwrap_or_default();
        let (number, over) = head.split_once(' ').unwrap_or((&head, ""));
        let number = number.parse().map_err(|_| bad("a LIFE mark without a station's number"))?;
        let station = stations.entry(number).or_default();
        let package = package.folder.rsplit('/').next().unwrap_or_default().to_owned();
        let place = Place { package, path: path.into(), function };
        match parts.next() {
            Some(_) if station.said.is_some() => {
                return Err(bad("a second LIFE mark says what happens there"));
            }
            Some(_) if !over.is_empty() => {
                return Err(bad("what happens at a station is the same over any protocol"));
            }
            Some(station_text) => {
                let mut next = || parts.next().unwrap_or_default();
                station.said = Some([station_text, next(), next()]);
                station.places.insert(0, place);
            }
            None if over.is_empty() => station.places.push(place),
            None => station.others.entry(over.to_owned()).or_default().push(place),
        }
    }
    Ok(())
}

/// A mark's text with the lines that go on with it, and how many these are.
fn whole(first: &str, after: &[String]) -> (String, usize) {
    let mut text = first.to_owned();
    let lines = after.iter().map(|line| line.trim());
    let rest: Vec<_> = lines.take_while(|line| line.starts_with("// ") && !line.starts_with(MARK)).collect();
    rest.iter().for_each(|line| text += &line[2..]);
    (text, rest.len())
}

/// The function below line `at`, with nothing but comments and attributes between.
fn below(source: &Source, at: usize) -> Option<String> {
    let mut functions = source.functions.iter().filter(|function| function.first >= at);
    let function = functions.by_ref().min_by_key(|function| function.first)?;
    let is_between = |code: &String| code.trim().is_empty() || code.trim_start().starts_with("#[");
    source.code[at..function.first].iter().all(is_between).then(|| function.name.clone())
}

fn table(stations: &BTreeMap<usize, Station>) -> String {
    let mut out =
        "| # | station | crate : file, function | known there | ends |\n|---|---|---|---|---|\n".to_owned();
    for (number, station) in stations {
        let [happens, known, ends] = station.said.clone().unwrap_or_default();
        let _ = writeln!(out, "| {number} | {happens} | {} | {known} | {ends} |", listed(&station.places));
    }
    out
}

fn table_of_others(stations: &BTreeMap<usize, Station>) -> String {
    let mut names: Vec<&String> = stations.values().flat_map(|station| station.others.keys()).collect();
    names.sort();
    names.dedup();
    let mut out = "| # |".to_owned();
    names.iter().for_each(|name| out += &format!(" {name} |"));
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(names.len()));
    for (number, station) in stations.iter().filter(|(_, station)| !station.others.is_empty()) {
        let _ = write!(out, "| {number} |");
        for name in &names {
            let _ = write!(
                out,
                " {} |",
                station.others.get(*name).map_or(String::new(), |places| listed(places))
            );
        }
        out.push('\n');
    }
    out
}

/// `engine : [file](path) function, …; native : …`
fn listed(places: &[Place]) -> String {
    let mut packages: Vec<(&str, Vec<String>)> = Vec::new();
    for Place { package, path, function } in places {
        let file = path.split_once("/src/").map_or(path.as_str(), |(_, file)| file);
        let link = format!("[`{file}`]({path})");
        if !packages.iter().any(|(name, _)| name == package) {
            packages.push((package, Vec::new()));
        }
        let Some((_, files)) = packages.iter_mut().find(|(name, _)| name == package) else { continue };
        match files.iter_mut().find(|text| text.starts_with(&link)) {
            Some(text) => *text += &format!(", `{function}`"),
            None => files.push(format!("{link} `{function}`")),
        }
    }
    let packages = packages.iter().map(|(name, files)| format!("{name} : {}", files.join(", ")));
    packages.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    //! Shows what becomes of marks, that a move moves its row's file, and which marks are refused.
    use super::*;

    fn made(files: &[(&str, &str)]) -> Result<[(&'static str, String); 2], Finding> {
        let manifest = ("core/x/Cargo.toml".to_owned(), "[package]\nname = \"x\"\n".to_owned());
        let files = files.iter().map(|(file, text)| (format!("core/x/src/{file}"), (*text).to_owned()));
        tables(&Tree::of(files.chain([manifest])))
    }

    const TAKEN: &str =
        "    // LIFE: 1 | taken |\n    // d2\n    /// Takes.\n    #[inline]\n    pub fn take() {}\n";
    const SENT: &str = "// LIFE: 2 | sent | d4 | 2 stack\nfn send() {}\n// LIFE: 1\nfn check() {}\n\
                        // LIFE: 2 gRPC\nfn send_grpc() {}\n";

    #[test]
    fn rows_are_where_the_marks_are() {
        let [(_, stations), (_, others)] = made(&[("a.rs", TAKEN), ("b/c.rs", SENT)]).unwrap();
        let rows: Vec<_> = stations.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| 1 | taken | x : [`a.rs`](core/x/src/a.rs) `take`, [`b/c.rs`](core/x/src/b/c.rs) `check` | d2 |  |",
                "| 2 | sent | x : [`b/c.rs`](core/x/src/b/c.rs) `send` | d4 | 2 stack |"
            ]
        );
        assert_eq!(
            others,
            "| # | gRPC |\n|---|---|\n| 2 | x : [`b/c.rs`](core/x/src/b/c.rs) `send_grpc` |\n"
        );
        let [(_, moved), _] = made(&[("d.rs", TAKEN), ("b/c.rs", SENT)]).unwrap();
        assert!(moved.contains("(core/x/src/d.rs) `take`"), "{moved}");
    }

    #[test]
    fn a_page_that_is_not_current_is_found() {
        let page = |table: &str| {
            format!("<!-- made: {STATIONS} -->\n{table}<!-- end -->\n<!-- made: {OTHERS} -->\n<!-- end -->\n")
        };
        let tree = |page: String| {
            let code = "// LIFE: 1 | taken\nfn take() {}\n".to_owned();
            let manifest = "[package]\nname = \"x\"\n".to_owned();
            Tree::of([(PAGE, page), ("core/x/Cargo.toml", manifest), ("core/x/src/a.rs", code)])
        };
        let current = super::page(&tree(page("old\n"))).unwrap().unwrap();
        assert_eq!(check(&tree(current)), []);
        assert_eq!(check(&tree(page("old\n")))[0].instead, "run `cargo xtask life`");
        assert_eq!(check(&tree("no tables\n".into())).len(), 1);
    }

    #[test]
    fn marks_that_make_no_table_are_refused() {
        for (text, why) in [
            ("// LIFE: 1 | taken\nstruct Take;\nfn f() {}\n", "above no function"),
            ("// LIFE: one | taken\nfn f() {}\n", "without a station's number"),
            ("// LIFE: 1 | a\nfn f() {}\n// LIFE: 1 | b\nfn g() {}\n", "a second"),
            ("// LIFE: 1 gRPC | a\nfn f() {}\n", "the same over any protocol"),
            ("// LIFE: 2 | a\nfn f() {}\n", "1 | …"),
            ("// LIFE: 1\nfn f() {}\n", "no mark says what happens"),
        ] {
            let bad = made(&[("a.rs", text)]).unwrap_err();
            assert!(bad.what.contains(why), "{text}: {}", bad.what);
        }
    }
}
