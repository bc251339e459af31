//! Where each type lives in the generated module tree, and what its types are called there.
//!
//! A package is a module path; a message that has nested types, nested enums or oneofs gets a module of its own beside
//! it, named after it in snake case. References are relative (`super::super::other::v1::Thing`), so that the tree may
//! be placed under any module of the user's crate, as long as packages keep their places towards each other.

use std::collections::{BTreeMap, BTreeSet};

use super::ident::{self, Ident, Taken, camel, escaped};
use super::shared;
use crate::Options;
use crate::model::{Message, Model, TypeOrigin};

/// A module, as a path from the root of the generated tree.
pub(super) type Module = Vec<String>;

/// Where a type is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In a module of the generated tree.
    Tree(Module),
    /// At an absolute path, by an `extern_path`.
    Path(String),
}

/// The Rust names of one protobuf type.
#[derive(Clone, Debug)]
pub(super) struct TypeNames {
    /// Where it is declared.
    pub(super) home: Home,
    /// The struct, or the enum.
    pub(super) owned: String,
    /// The view; empty for an enum.
    pub(super) view: String,
    /// The builder; empty for an enum.
    pub(super) builder: String,
    /// The module of its nested types; empty for an enum.
    pub(super) inner: String,
}

/// The Rust names of a oneof, in the module of its message.
#[derive(Clone, Debug)]
pub(super) struct OneofNames {
    /// The enum of owned values.
    pub(super) owned: String,
    /// The enum of viewed values.
    pub(super) view: String,
}

/// All names of a model.
#[derive(Default)]
pub(super) struct Names {
    types: BTreeMap<String, TypeNames>,
    /// By the full name of their message, in the order of their declaration.
    oneofs: BTreeMap<String, Vec<OneofNames>>,
    /// The last component of each package's module path, by the package's name; packages around others included.
    modules: BTreeMap<String, String>,
    /// What is taken in each module, by the full name of its package or message.
    scopes: BTreeMap<String, Taken>,
    deprecated: bool,
}

impl Names {
    /// Settles every name. The outcome depends on the declarations alone, not on which packages are rendered, so that
    /// two runs over overlapping files agree.
    pub(super) fn settle(model: &Model, options: &Options) -> Self {
        let mut names = Self { deprecated: model.has_deprecated(), ..Self::default() };
        let packages: BTreeSet<&str> = model
            .types
            .iter()
            .map(|(_, o)| o.package.as_str())
            .chain(model.packages.iter().map(|p| &*p.name))
            .collect();
        for package in packages {
            names.add_package(package);
        }
        // Declared names first, so that it is the derived ones that give way.
        for (full_name, origin) in model.types.iter() {
            names.add_type(full_name, origin);
        }
        let messages = model.types.iter().filter(|(_, origin)| !origin.is_enum);
        for (full_name, origin) in messages {
            names.add_derived(full_name, scope_of(full_name, origin));
        }
        model.packages.iter().flat_map(|package| &package.messages).for_each(|m| names.add_oneofs(m));
        let homes: Vec<_> =
            model.types.iter().map(|(name, origin)| (name, names.home(name, origin, options))).collect();
        for (full_name, home) in homes {
            if let Some(entry) = names.types.get_mut(full_name) {
                entry.home = home;
            }
        }
        names
    }

    /// The names of the type `full_name`.
    ///
    /// # Panics
    /// If the model does not have it: a model's types are all in its table.
    pub(super) fn of(&self, full_name: &str) -> &TypeNames {
        &self.types[full_name]
    }

    /// Whether the type `full_name` is declared in the generated tree.
    pub(super) fn is_generated(&self, full_name: &str) -> bool {
        matches!(self.of(full_name).home, Home::Tree(_))
    }

    /// The names of a rendered message's oneofs, in the order of their declaration.
    pub(super) fn oneofs(&self, full_name: &str) -> &[OneofNames] {
        self.oneofs.get(full_name).map_or(&[], Vec::as_slice)
    }

    /// The module path of a package.
    pub(super) fn package_module(&self, package: &str) -> Module {
        prefixes(package).filter_map(|prefix| self.modules.get(prefix).cloned()).collect()
    }

    /// Whether anything is deprecated.
    pub(super) fn has_deprecated(&self) -> bool {
        self.deprecated
    }

    /// What is taken in the module of a package or of a message's nested types.
    pub(super) fn scope(&self, full_name: &str) -> Taken {
        self.scopes.get(full_name).cloned().unwrap_or_default()
    }

    /// Packages `a` and `a.b` meet in module `a`, where no message of `a` may have a module `b`, and where the packages
    /// `a.fooBar` and `a.foo_bar` need a module each.
    fn add_package(&mut self, package: &str) {
        for prefix in prefixes(package) {
            if !self.modules.contains_key(prefix) {
                let (outer, component) = prefix.rsplit_once('.').unwrap_or(("", prefix));
                let module = self.take(outer, ident::module(component)).escaped();
                self.modules.insert(prefix.to_owned(), module);
            }
        }
    }

    fn add_type(&mut self, full_name: &str, origin: &TypeOrigin) {
        let own = origin.nesting.last().map_or("", String::as_str);
        let owned = self.take(scope_of(full_name, origin), camel(own)).escaped();
        let entry = TypeNames {
            home: Home::Tree(Vec::new()),
            owned,
            view: String::new(),
            builder: String::new(),
            inner: String::new(),
        };
        self.types.insert(full_name.to_owned(), entry);
    }

    fn add_derived(&mut self, full_name: &str, scope: &str) {
        let own = full_name.rsplit('.').next().unwrap_or_default();
        let view = self.take(scope, format!("{}View", camel(own))).escaped();
        let builder = self.take(scope, format!("{}Builder", camel(own))).escaped();
        let inner = self.take(scope, ident::module(own)).escaped();
        if let Some(entry) = self.types.get_mut(full_name) {
            (entry.view, entry.builder, entry.inner) = (view, builder, inner);
        }
    }

    /// After everything else: a oneof's enums are named where the types within its message are, and give way to them.
    /// Recursion is as deep as declarations nest, which the schema limits.
    fn add_oneofs(&mut self, message: &Message) {
        let mut oneofs = Vec::with_capacity(message.oneofs.len());
        for oneof in &message.oneofs {
            let owned = self.take(&message.full_name, camel(&oneof.name)).escaped();
            let view = self.take(&message.full_name, format!("{}View", camel(&oneof.name))).escaped();
            oneofs.push(OneofNames { owned, view });
        }
        self.oneofs.insert(message.full_name.clone(), oneofs);
        message.messages.iter().for_each(|nested| self.add_oneofs(nested));
    }

    fn take(&mut self, scope: &str, name: String) -> Ident {
        self.scopes.entry(scope.to_owned()).or_default().take(name)
    }

    fn home(&self, full_name: &str, origin: &TypeOrigin, options: &Options) -> Home {
        if let Some((path, rest)) = options.external(full_name) {
            return Home::Path(external_path(path, rest));
        }
        if let Some(module) = shared::module(full_name, origin).filter(|_| options.shared_types) {
            let path = format!("{}::{module}", options.runtime);
            return Home::Path(external_path(&path, &origin.nesting.join(".")));
        }
        let mut module = self.package_module(&origin.package);
        let mut outer = origin.package.clone();
        for name in &origin.nesting[..origin.nesting.len().saturating_sub(1)] {
            outer = if outer.is_empty() { name.clone() } else { format!("{outer}.{name}") };
            module.push(
                self.types.get(&outer).map_or_else(|| ident::module(name), |entry| entry.inner.clone()),
            );
        }
        Home::Tree(module)
    }
}

/// `path` with what is left of a type's name behind it: modules in snake case, then the type.
fn external_path(path: &str, rest: &str) -> String {
    let mut out = path.to_owned();
    let mut parts = rest.split('.').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        out.push_str("::");
        out.push_str(&escaped(&if parts.peek().is_some() { ident::module(part) } else { camel(part) }));
    }
    out
}

/// `a`, `a.b` and `a.b.c` of the package `a.b.c`.
fn prefixes(package: &str) -> impl Iterator<Item = &str> {
    let ends = package.match_indices('.').map(|(at, _)| at).chain([package.len()]);
    ends.map(|end| &package[..end]).filter(|prefix| !prefix.is_empty())
}

/// `to` as seen from `from`, with a trailing `::` unless they are the same.
pub(super) fn relative(from: &[String], to: &[String]) -> String {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("super", from.len() - common);
    up.chain(to[common..].iter().map(String::as_str)).map(|part| format!("{part}::")).collect()
}

/// The full name of the package or message that `full_name` is declared in.
fn scope_of<'a>(full_name: &'a str, origin: &TypeOrigin) -> &'a str {
    let own = origin.nesting.last().map_or(0, String::len);
    full_name[..full_name.len() - own].trim_end_matches('.')
}
