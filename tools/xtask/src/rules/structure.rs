//! Files of a package import one way, a type is implemented where one can see it whole, and a type's name has one
//! meaning.

use crate::Tree;
use crate::imports::Imports;
use crate::packages::{Layer, Package};
use crate::ratchet::{Found, Measure};
use crate::source::words;
use std::collections::{BTreeMap, BTreeSet};

const RULE: &str = "structure";

/// Files that implement a type, beside traits.
pub const FILES_OF_TYPE_MAX: usize = 3;

/// What is beyond that now: files in circles by package, files of a type by `package::Type`, declarations by name.
pub fn measures(tree: &Tree, packages: &[Package<'_>]) -> [Measure; 3] {
    let (mut circles, mut types) = (BTreeMap::new(), BTreeMap::new());
    let mut names: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package.layer < Layer::Top) {
        let files = Imports::of(tree, package).circles().into_iter().map(str::to_owned).collect::<Vec<_>>();
        if let Some(path) = files.first() {
            circles.insert(
                package.folder.to_owned(),
                Found { path: path.clone(), line: 0, amount: files.len() },
            );
        }
        for (name, files) in
            implemented(tree, package).into_iter().filter(|(_, files)| files.len() > FILES_OF_TYPE_MAX)
        {
            let path = files.first().cloned().unwrap_or_default();
            types.insert(format!("{}::{name}", package.folder), Found { path, line: 0, amount: files.len() });
        }
        declared(tree, package, &mut names);
    }
    let names = names.into_iter().filter(|(_, found)| found.len() > 1);
    let names = names.map(|(name, found)| (name, Found { amount: found.len(), ..found[0].clone() }));
    let measure = |table, unit, max, instead, found| Measure { table, rule: RULE, unit, max, instead, found };
    [
        measure(
            "circles",
            "files in circles of imports",
            0,
            "hand over a value, or move what both need below",
            circles,
        ),
        measure(
            "types",
            "files that implement it",
            FILES_OF_TYPE_MAX,
            "give the part a type and an owner",
            types,
        ),
        measure(
            "names",
            "types of that name",
            1,
            "name it by what is its own (docs/glossary.md)",
            names.collect(),
        ),
    ]
}

/// Types by name, and the files with an `impl` of their own.
fn implemented(tree: &Tree, package: &Package<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let src = package.path("src/");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, source) in tree.sources.iter().filter(|(path, _)| path.starts_with(&src)) {
        for (_, code) in source.code_lines().filter(|(_, code)| code.starts_with("impl")) {
            if words(code, "for").next().is_none()
                && let Some(name) = type_of(&code["impl".len()..])
            {
                found.entry(name).or_default().insert(path.clone());
            }
        }
    }
    found
}

/// `<'a, T> Name<'a, T> {` is `Name`.
fn type_of(after: &str) -> Option<String> {
    let mut rest = after.trim_start();
    if rest.starts_with('<') {
        let mut depth = 0_usize;
        let end = rest.char_indices().find_map(|(at, sign)| {
            match sign {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at)
        })?;
        rest = rest[end + 1..].trim_start();
    }
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Structs, enums and traits by name, those that are known beyond their file.
fn declared(tree: &Tree, package: &Package<'_>, names: &mut BTreeMap<String, Vec<Found>>) {
    let src = package.path("src/");
    for (path, source) in tree.sources.iter().filter(|(path, _)| path.starts_with(&src)) {
        for (line, code) in source.code_lines() {
            let code = code.trim_start();
            let item =
                code.strip_prefix("pub").and_then(|rest| rest.split_once(' ')).map_or("", |(_, rest)| rest);
            let declared = ["struct ", "enum ", "trait "].iter().find_map(|kind| item.strip_prefix(kind));
            if let Some(name) = declared.and_then(type_of) {
                names.entry(name).or_default().push(Found { path: path.clone(), line, amount: 1 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is counted.
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = ("core/x/Cargo.toml".to_owned(), "[package]\nname = \"x\"\n".to_owned());
        let files = files.iter().map(|(file, text)| (format!("core/x/src/{file}"), (*text).to_owned()));
        let tree = Tree::of(files.chain([manifest]));
        let measures = measures(&tree, &Package::all(&tree));
        let found = measures.into_iter().flat_map(|measure| measure.found);
        found.map(|(place, found)| format!("{place} {}", found.amount)).collect()
    }

    #[test]
    fn circles_are_counted_by_package() {
        assert_eq!(found(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]), ["core/x 2"]);
    }

    #[test]
    fn files_of_a_type_are_counted_and_those_of_traits_are_not() {
        let files = ["a.rs", "b.rs", "c.rs", "d.rs"];
        assert_eq!(
            found(&files.map(|file| (file, "impl<'a, T: F<U>> Big<'a, T> {\n}\n"))),
            ["core/x::Big 4"]
        );
        assert_eq!(found(&files.map(|file| (file, "impl Clone for Big {\n}\n"))), Vec::<String>::new());
        assert_eq!(found(&[("a.rs", "impl Big {\n}\nimpl Big {\n}\n")]), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_declared_twice_is_found() {
        let own = "pub(crate) struct Place<'a>;\n#[cfg(test)]\nmod tests {\n    struct Place;\n}\n";
        assert_eq!(found(&[("a.rs", own), ("b.rs", "enum Other {\n}\n")]), Vec::<String>::new());
        assert_eq!(
            found(&[("a.rs", own), ("b.rs", "enum Place {\n}\n")]),
            Vec::<String>::new(),
            "it is b's own"
        );
        assert_eq!(found(&[("a.rs", own), ("b.rs", "pub enum Place {\n}\n")]), ["Place 2"]);
    }
}
