//! What the types of a schema are called in C++.

use super::escaped;
use crate::model::TypeTable;
use std::collections::{BTreeMap, BTreeSet};

/// CppNames of every message: those of its classes.
pub(super) struct CppNames {
    by_full_name: BTreeMap<String, ClassNames>,
    /// What the types of each package have.
    taken: BTreeMap<String, TakenNames>,
}

/// The classes of a message, without their namespace.
#[derive(Clone, Debug)]
pub(super) struct ClassNames {
    /// With `::` in front of and behind each part.
    namespace: String,
    /// What is built and owned; an enum's own name.
    pub(super) class: String,
    /// What only reads.
    pub(super) view: String,
    /// Accessors, for both.
    pub(super) fields: String,
}

/// CppNames that nothing else in their scope has.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenNames(BTreeSet<String>);

impl TakenNames {
    pub(super) fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// `name`, or if something has it already, with as many `_` behind it as it takes.
    pub(super) fn take(&mut self, name: String) -> String {
        let mut name = name;
        while !self.0.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl CppNames {
    /// Depends on the types of each package only, so that headers made apart agree.
    pub(super) fn of(types: &TypeTable) -> Self {
        let mut taken: BTreeMap<&str, TakenNames> = BTreeMap::new();
        let mut classes: Vec<(&str, &str, String, bool)> = Vec::new();
        for (full_name, origin) in types.iter() {
            let scope = taken.entry(&origin.package).or_default();
            let class = scope.take(escaped(&origin.nesting.join("_")));
            classes.push((full_name, &origin.package, class, origin.is_enum));
        }
        let mut by_full_name = BTreeMap::new();
        for (full_name, package, class, is_enum) in classes {
            let scope = taken.entry(package).or_default();
            let mut derived =
                |suffix: &str| if is_enum { String::new() } else { scope.take(format!("{class}{suffix}")) };
            let (view, fields) = (derived("View"), derived("Fields"));
            let names = ClassNames { namespace: namespace(package), class, view, fields };
            by_full_name.insert(full_name.to_owned(), names);
        }
        let taken = taken.into_iter().map(|(package, names)| (package.to_owned(), names)).collect();
        Self { by_full_name, taken }
    }

    /// The names that are left for what else a package has.
    pub(super) fn scope_of(&self, package: &str) -> TakenNames {
        self.taken.get(package).cloned().unwrap_or_default()
    }

    pub(super) fn get(&self, full_name: &str) -> ClassNames {
        self.by_full_name.get(full_name).cloned().unwrap_or_else(|| ClassNames {
            namespace: "::".to_owned(),
            class: full_name.replace('.', "_"),
            view: String::new(),
            fields: String::new(),
        })
    }
}

impl ClassNames {
    /// Those of a class that only its own namespace knows.
    pub(super) fn beside(class: &str) -> Self {
        let of = |suffix: &str| format!("{class}{suffix}");
        Self { namespace: String::new(), class: of(""), view: of("View"), fields: of("Fields") }
    }

    pub(super) fn class_path(&self) -> String {
        format!("{}{}", self.namespace, self.class)
    }

    pub(super) fn view_path(&self) -> String {
        format!("{}{}", self.namespace, self.view)
    }
}

fn namespace(package: &str) -> String {
    let parts: String = package
        .split('.')
        .filter(|part| !part.is_empty())
        .map(|part| format!("{}::", escaped(part)))
        .collect();
    format!("::{parts}")
}
