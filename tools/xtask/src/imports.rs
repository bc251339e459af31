//! Which files of a package import from which: its `use` items and paths, followed through re-exports.

use crate::Tree;
use crate::packages::Package;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A module, by the names from its crate's root.
type Module = Vec<String>;

/// Re-exports that lead to re-exports are followed so far.
const FACADES_MAX: usize = 4;

/// Files of a package, and what each imports from.
#[derive(Debug, Default)]
pub struct Imports {
    files: BTreeMap<Module, File>,
}

#[derive(Debug)]
struct File {
    path: String,
    /// Paths as written, from the module they are in.
    imported: Vec<Module>,
    /// Names it has from elsewhere for others (`pub use`), and the path they stand for; `*` for all of a module.
    reexported: Vec<(String, Module)>,
}

impl Imports {
    /// Those of one package, tests not counted.
    pub fn of(tree: &Tree, package: &Package<'_>) -> Self {
        let src = package.path("src/");
        let own = tree
            .sources
            .iter()
            .filter(|(path, _)| path.starts_with(&src) && !path[src.len()..].starts_with("bin/"));
        let own: Vec<_> = own.filter(|(_, source)| source.is_test.iter().any(|test| !test)).collect();
        let modules: BTreeSet<Module> = own.iter().map(|(path, _)| module(&path[src.len()..])).collect();
        let read = |(path, source): &(&String, &Source)| {
            let module = module(&path[src.len()..]);
            let file = File::read(path, source, &module, &modules);
            (module, file)
        };
        Self { files: own.iter().map(read).collect() }
    }

    /// Pairs of paths: who imports, and from whom.
    pub fn edges(&self) -> BTreeSet<(&str, &str)> {
        let mut edges = BTreeSet::new();
        for file in self.files.values() {
            let found = file.imported.iter().filter_map(|path| self.owner(path, FACADES_MAX));
            edges.extend(found.filter(|other| *other != file.path).map(|other| (file.path.as_str(), other)));
        }
        edges
    }

    /// The file that has what a path names.
    fn owner(&self, path: &[String], facades: usize) -> Option<&str> {
        let len = (0..=path.len()).rev().find(|len| self.files.contains_key(&path[..*len]))?;
        let file = &self.files[&path[..len]];
        let (Some(name), Some(facades)) = (path.get(len), facades.checked_sub(1)) else {
            return Some(&file.path);
        };
        let named = file.reexported.iter().find(|(known, _)| known == name);
        let onward = named.map(|(_, target)| [target, &path[len + 1..]].concat());
        match onward {
            // A name may be of a crate elsewhere: then it is this file's own word for it.
            Some(target) if target != path => self.owner(&target, facades).or(Some(&file.path)),
            _ => Some(&file.path),
        }
    }

    /// Files of which each imports from itself by way of others.
    pub fn circles(&self) -> Vec<&str> {
        let edges = self.edges();
        let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in self.files.values() {
            let mut found = BTreeSet::new();
            let mut open = vec![file.path.as_str()];
            while let Some(from) = open.pop() {
                let next = edges.range((from, "")..).take_while(|(importer, _)| *importer == from);
                open.extend(next.map(|(_, other)| *other).filter(|other| found.insert(*other)));
            }
            reached.insert(&file.path, found);
        }
        reached.iter().filter(|(path, reached)| reached.contains(*path)).map(|(path, _)| *path).collect()
    }
}

impl File {
    fn read(path: &str, source: &Source, module: &[String], modules: &BTreeSet<Module>) -> Self {
        let code: String = source.code_lines().flat_map(|(_, code)| [code, "\n"]).collect();
        let (mut imported, mut reexported) = (Vec::new(), Vec::new());
        let from_here = |path: &[String]| absolute(path, module, modules);
        for statement in statements(&code) {
            for (path, name) in expanded(statement.tree) {
                let Some(target) = from_here(&path) else { continue };
                match statement.is_public {
                    true => reexported.push((name, target)),
                    false => imported.push(target),
                }
            }
        }
        imported.extend(inline(&code).iter().filter_map(|path| from_here(path)));
        Self { path: path.to_owned(), imported, reexported }
    }
}

/// A `use` item.
struct Statement<'a> {
    is_public: bool,
    tree: &'a str,
}

fn statements(code: &str) -> impl Iterator<Item = Statement<'_>> {
    let starts = code.match_indices("use ").filter(|(at, _)| {
        let line = &code[code[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
        let before = line.trim();
        before.is_empty() || before.starts_with("pub") && !before.contains([';', '{', '='])
    });
    starts.map(|(at, _)| {
        let line = &code[code[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let rest = &code[at + "use ".len()..];
        Statement { is_public: line.trim().starts_with("pub"), tree: rest.split(';').next().unwrap_or(rest) }
    })
}

/// Every path in a `use` tree, and the name it gives.
fn expanded(tree: &str) -> Vec<(Module, String)> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        let path: Module =
            path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
        let (path, last) = match path.split_last() {
            // `{self}` names what stands before it.
            Some((last, before)) if last == "self" && !before.is_empty() => (before.to_vec(), before.last()),
            other => (path.clone(), other.map(|(last, _)| last)),
        };
        let name = name.map(str::trim).or(last.map(String::as_str)).unwrap_or_default().to_owned();
        return vec![(path, name)];
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, sign) in inner.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(&format!("{before}{}", part.trim()))).collect()
}

/// Paths from `crate` or `super` in the midst of code.
fn inline(code: &str) -> Vec<Module> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // Behind a `$` it is the path of whoever uses the macro.
        if code[..at].chars().next_back().is_some_and(|before| is_path(before) || before == '$') {
            continue;
        }
        let path = code[at..].split(|c| !is_path(c)).next().unwrap_or_default();
        found.push(path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
    }
    found
}

/// A path from the crate's root; `None` if it leads out of the crate.
fn absolute(path: &[String], module: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        name => {
            let child = [module, &[name.to_owned()]].concat();
            if !modules.contains(&child) {
                return None;
            }
            child
        }
    };
    while let Some((_, after)) = rest.split_first().filter(|(next, _)| *next == "super") {
        base.pop();
        rest = after;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module of a file below `src/`.
fn module(file: &str) -> Module {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let mut parts: Module = file.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || parts.len() == 1 && (last == "lib" || last == "main"))
    {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    //! Shows what counts as an import, that re-exports are followed, and what a circle is.
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("core/x/Cargo.toml".to_owned(), "[package]\nname = \"x\"\n".to_owned());
        let files = files.iter().map(|(file, text)| (format!("core/x/src/{file}"), (*text).to_owned()));
        let tree = Tree::of(files.chain([manifest]));
        let packages = Package::all(&tree);
        Imports::of(&tree, &packages[0])
            .circles()
            .into_iter()
            .map(|path| path["core/x/src/".len()..].to_owned())
            .collect()
    }

    #[test]
    fn two_that_import_each_other_are_a_circle() {
        assert_eq!(
            circles(&[("a.rs", "use crate::b::B;"), ("b.rs", "use super::a::{A, C};")]),
            ["a.rs", "b.rs"]
        );
        assert_eq!(circles(&[("a.rs", "use crate::b::B;"), ("b.rs", "struct B;")]), Vec::<String>::new());
        assert_eq!(
            circles(&[("a.rs", "fn f() { crate::b::g() }"), ("b.rs", "use crate::a;")]),
            ["a.rs", "b.rs"]
        );
        let by_tests = "struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        assert_eq!(circles(&[("a.rs", "use crate::b::B;"), ("b.rs", by_tests)]), Vec::<String>::new());
    }

    #[test]
    fn a_reexport_is_no_import_and_leads_to_what_it_names() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub(crate) use crate::b::{B as C, D};\n");
        assert_eq!(circles(&[lib, ("a.rs", "use crate::C;"), ("b.rs", "use crate::A;")]), ["a.rs", "b.rs"]);
        assert_eq!(circles(&[lib, ("a.rs", "use crate::D;"), ("b.rs", "struct D;")]), Vec::<String>::new());
    }

    #[test]
    fn a_parent_that_uses_its_child_is_no_part_for_the_child_to_use() {
        let parent = ("a/mod.rs", "mod b;\nuse b::{c, d::{self, E}};\npub struct Own;");
        assert_eq!(circles(&[parent, ("a/b.rs", "use super::Own;")]), ["a/b.rs", "a/mod.rs"]);
        assert_eq!(circles(&[parent, ("a/b.rs", "use super::super::other::X;")]), Vec::<String>::new());
    }

    #[test]
    fn trees_of_use_are_read_whole() {
        let paths: Vec<_> = expanded("crate::{a::{self, B as C}, d::*}");
        let said: Vec<_> = paths.iter().map(|(path, name)| format!("{} {name}", path.join("::"))).collect();
        assert_eq!(said, ["crate::a a", "crate::a::B C", "crate::d::* *"]);
    }
}
