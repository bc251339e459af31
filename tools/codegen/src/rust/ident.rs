//! Names as Rust spells them.

use std::collections::HashSet;

use heck::{ToSnakeCase, ToUpperCamelCase};

/// Keywords of every edition up to 2024, strict and reserved.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield", "Self",
];

/// Types of the language itself. They are found like any other name, so a module of this name hides one.
const PRIMITIVES: &[&str] = &[
    "bool", "char", "f128", "f16", "f32", "f64", "i128", "i16", "i32", "i64", "i8", "isize", "str", "u128",
    "u16", "u32", "u64", "u8", "usize",
];

/// Keywords that cannot be raw identifiers either.
const NEVER_RAW: &[&str] = &["self", "super", "crate", "Self"];

/// An identifier and the bare name other identifiers are made of: for a field `type` those are `r#type` and `set_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ident {
    bare: String,
}

impl Ident {
    /// Without escape; only for use within longer names.
    pub(super) fn bare(&self) -> &str {
        &self.bare
    }

    /// Without underscores at its ends, so that a longer name made of it has no two in a row.
    pub(super) fn stem(&self) -> &str {
        self.bare.trim_matches('_')
    }

    /// Usable where an identifier stands.
    pub(super) fn escaped(&self) -> String {
        escaped(&self.bare)
    }
}

/// `name` with `r#` if it is a keyword, or with `_` if not even that is allowed.
pub(super) fn escaped(name: &str) -> String {
    if NEVER_RAW.contains(&name) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name) && name != "union" {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

/// `fooBar`, `FOO_BAR` and `FooBar` become `foo_bar`.
pub(super) fn snake(name: &str) -> String {
    leading_letter(name.to_snake_case())
}

/// `foo_bar` and `FOO_BAR` become `FooBar`.
pub(super) fn camel(name: &str) -> String {
    leading_letter(name.to_upper_camel_case())
}

/// `fooBar` becomes `FOO_BAR`.
pub(super) fn shouty(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

/// The name of the module that stands for a package's component, or for the types within a message.
pub(super) fn module(name: &str) -> String {
    let name = snake(name);
    if PRIMITIVES.contains(&name.as_str()) { format!("{name}_") } else { name }
}

/// Names of underscores only, or of a digit after them, have lost what made them identifiers.
pub(super) fn leading_letter(name: String) -> String {
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => name,
        Some(_) => format!("_{name}"),
        None => "__".to_owned(),
    }
}

/// An enum value's name without the enum's name in front, which style guides ask for and Rust does not need.
pub(super) fn variant(enum_name: &str, value_name: &str) -> String {
    let value = camel(value_name);
    match value.strip_prefix(&camel(enum_name)) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_uppercase()) => rest.to_owned(),
        _ => value,
    }
}

/// Whether a method of this name looks to clippy like a conversion or a trait's method that it is not.
pub(super) fn misleads(name: &str) -> bool {
    const METHODS: &[&str] = &[
        "as_mut",
        "as_ref",
        "borrow",
        "borrow_mut",
        "clone",
        "default",
        "deref",
        "deref_mut",
        "drop",
        "into_iter",
        "neg",
        "new",
        "next",
        "not",
    ];
    const PREFIXES: &[&str] = &["as_", "from_", "into_", "is_", "to_"];
    METHODS.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Names taken in one scope. A name asked for a second time comes back with `_` behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    names: HashSet<String>,
}

impl Taken {
    /// Takes `name`, or the first of `name_`, `name__`, … that is free.
    pub(super) fn take(&mut self, name: impl Into<String>) -> Ident {
        let mut bare = name.into();
        while !self.names.insert(escaped(&bare)) {
            bare.push('_');
        }
        Ident { bare }
    }

    /// Whether `name` is taken.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    //! Shows how names from the .proto file are spelled.
    use super::*;

    #[test]
    fn keywords_are_escaped() {
        let mut taken = Taken::default();
        let field = taken.take(snake("type"));
        assert_eq!((field.escaped().as_str(), field.bare()), ("r#type", "type"));
        assert_eq!(taken.take("self").escaped(), "self_");
        assert_eq!(taken.take("union").escaped(), "union");
    }

    #[test]
    fn colliding_names_are_told_apart() {
        let mut taken = Taken::default();
        let names: Vec<_> = ["fooBar", "foo_bar", "FOO_BAR"].map(|n| taken.take(snake(n)).escaped()).into();
        assert_eq!(names, ["foo_bar", "foo_bar_", "foo_bar__"]);
        taken.take("self");
        assert_eq!(taken.take("self_").escaped(), "self__");
    }

    #[test]
    fn enum_values_lose_their_prefix() {
        assert_eq!(variant("Corpus", "CORPUS_UNIVERSAL"), "Universal");
        assert_eq!(variant("Corpus", "CORPUS_2"), "Corpus2");
        assert_eq!(variant("Corpus", "CORPUS"), "Corpus");
        assert_eq!(variant("Foo", "BAR"), "Bar");
    }

    #[test]
    fn modules_hide_no_primitive_types() {
        assert_eq!(["I32", "str", "Text"].map(module), ["i32_", "str_", "text"]);
    }

    #[test]
    fn stems_make_longer_names_without_double_underscores() {
        let mut taken = Taken::default();
        taken.take("a");
        let stems = [taken.take("a"), taken.take(snake("_1")), taken.take(snake("_"))];
        assert_eq!(stems.each_ref().map(Ident::stem), ["a", "1", ""]);
    }

    #[test]
    fn odd_names_become_identifiers() {
        assert_eq!(shouty("_1"), "_1");
        assert_eq!([snake("_"), camel("_1"), snake("_1a")], ["__", "_1", "_1a"]);
    }
}
