//! What a user may decide about the generated code.

use crate::CodegenError;

/// Choices about the generated code; the default suits a crate that depends on `trunkline`.
#[derive(Clone, Debug)]
pub struct Options {
    extern_paths: Vec<(String, String)>,
    type_attributes: Vec<(String, String)>,
    field_attributes: Vec<(String, String)>,
    pub(crate) runtime: String,
    pub(crate) btree_maps: bool,
    pub(crate) client: bool,
    pub(crate) server: bool,
    pub(crate) shared_types: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            extern_paths: Vec::new(),
            type_attributes: Vec::new(),
            field_attributes: Vec::new(),
            runtime: "::trunkline::codegen".to_owned(),
            btree_maps: false,
            client: true,
            server: true,
            shared_types: true,
        }
    }
}

impl Options {
    /// Refers to `proto_path` (`.package`, or `.package.Type`) as `rust_path` instead of generating it.
    ///
    /// # Errors
    /// [`CodegenError::BadOption`] if `proto_path` does not begin with a dot or `rust_path` is empty.
    pub fn extern_path(&mut self, proto_path: &str, rust_path: &str) -> Result<&mut Self, CodegenError> {
        let entry = qualified("extern_path", proto_path, rust_path)?;
        self.extern_paths.push(entry);
        Ok(self)
    }

    /// Puts `attribute` (such as `#[derive(Eq)]`) on the structs and enums of all types at or below `proto_path`: `.`
    /// for all, `.package`, `.package.Type`, or `.package.Type.oneof` for a oneof's enum.
    ///
    /// # Errors
    /// [`CodegenError::BadOption`] if `proto_path` does not begin with a dot or `attribute` is empty.
    pub fn type_attribute(&mut self, proto_path: &str, attribute: &str) -> Result<&mut Self, CodegenError> {
        let entry = qualified("type_attribute", proto_path, attribute)?;
        self.type_attributes.push(entry);
        Ok(self)
    }

    /// Puts `attribute` on the struct's fields, and the oneofs' variants, at or below `proto_path`:
    /// `.package.Type.field` for one of them.
    ///
    /// # Errors
    /// As [`Options::type_attribute`].
    pub fn field_attribute(&mut self, proto_path: &str, attribute: &str) -> Result<&mut Self, CodegenError> {
        let entry = qualified("field_attribute", proto_path, attribute)?;
        self.field_attributes.push(entry);
        Ok(self)
    }

    /// Where the generated code finds what it needs; `::trunkline::codegen` unless said otherwise.
    pub fn runtime(&mut self, path: impl Into<String>) -> &mut Self {
        self.runtime = path.into();
        self
    }

    /// Whether map fields are `BTreeMap` instead of `HashMap`.
    pub fn btree_maps(&mut self, yes: bool) -> &mut Self {
        self.btree_maps = yes;
        self
    }

    /// Whether client stubs are generated.
    pub fn client(&mut self, yes: bool) -> &mut Self {
        self.client = yes;
        self
    }

    /// Whether server stubs are generated.
    pub fn server(&mut self, yes: bool) -> &mut Self {
        self.server = yes;
        self
    }

    /// Whether protobuf's well-known types and the details of `google.rpc` are the library's (`trunkline::wkt`,
    /// `trunkline::rpc`) instead of generated. An [`Options::extern_path`] that covers one comes first.
    pub fn shared_types(&mut self, yes: bool) -> &mut Self {
        self.shared_types = yes;
        self
    }

    /// Attributes of the type with this full name.
    pub(crate) fn type_attributes<'a>(&'a self, full_name: &'a str) -> impl Iterator<Item = &'a str> {
        covering(&self.type_attributes, full_name).map(|(attribute, ..)| attribute)
    }

    /// Attributes of the field with this full name.
    pub(crate) fn field_attributes<'a>(&'a self, full_name: &'a str) -> impl Iterator<Item = &'a str> {
        covering(&self.field_attributes, full_name).map(|(attribute, ..)| attribute)
    }

    /// Whether all of a package is declared elsewhere.
    pub(crate) fn covers_package(&self, package: &str) -> bool {
        covering(&self.extern_paths, package).next().is_some()
    }

    /// The longest external path that covers `full_name`, and what of the name it leaves over.
    pub(crate) fn external<'a>(&'a self, full_name: &'a str) -> Option<(&'a str, &'a str)> {
        covering(&self.extern_paths, full_name).min_by_key(|(_, rest)| rest.len())
    }
}

/// The entry of an option that maps protobuf paths to something.
fn qualified(name: &'static str, proto_path: &str, to: &str) -> Result<(String, String), CodegenError> {
    let bad = |reason: String| CodegenError::BadOption { name, reason };
    let Some(path) = proto_path.strip_prefix('.') else {
        return Err(bad(format!("{proto_path:?} must be fully qualified: begin with a dot")));
    };
    if to.is_empty() {
        return Err(bad(format!("{proto_path:?} is given nothing")));
    }
    Ok((path.to_owned(), to.to_owned()))
}

/// What the paths at or above `full_name` are mapped to, each with what of the name it leaves over.
fn covering<'a>(
    entries: &'a [(String, String)],
    full_name: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries.iter().filter_map(move |(path, to)| {
        let rest = full_name.strip_prefix(path.as_str())?;
        let whole = path.is_empty() || rest.is_empty() || rest.starts_with('.');
        whole.then(|| (to.as_str(), rest.trim_start_matches('.')))
    })
}

#[cfg(test)]
mod tests {
    //! Shows which external path a type is found under.
    use super::*;

    #[test]
    fn the_longest_path_wins_and_names_are_matched_whole() {
        let mut options = Options::default();
        options.extern_path(".a", "::outer").unwrap().extern_path(".a.b.T", "::exact::T").unwrap();
        assert_eq!(options.external("a.b.T"), Some(("::exact::T", "")));
        assert_eq!(options.external("a.b.U"), Some(("::outer", "b.U")));
        assert_eq!(options.external("ab.T"), None);
    }

    #[test]
    fn paths_must_be_fully_qualified() {
        assert!(Options::default().extern_path("a", "::b").is_err());
        assert!(Options::default().extern_path(".a", "").is_err());
        assert!(Options::default().type_attribute("a", "#[x]").is_err());
    }

    #[test]
    fn attributes_apply_at_and_below_their_path() {
        let mut options = Options::default();
        options.type_attribute(".", "#[all]").unwrap().type_attribute(".a.T", "#[one]").unwrap();
        assert_eq!(options.type_attributes("a.T").collect::<Vec<_>>(), ["#[all]", "#[one]"]);
        assert_eq!(options.type_attributes("a.Two").collect::<Vec<_>>(), ["#[all]"]);
    }
}
