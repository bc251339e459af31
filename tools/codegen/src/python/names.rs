//! What types, fields and modules are called in Python.

use super::literal::text_literal;
use crate::CodegenError;
use crate::model::TypeTable;
use std::collections::BTreeSet;

/// Words that cannot be names. `getattr(message, "class")` finds what is `class_` here, as in protobuf's classes.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// What every message has from the library.
const OF_MESSAGES: [&str; 21] = [
    "BLOCK_BYTES",
    "ByteSize",
    "Clear",
    "ClearField",
    "CopyFrom",
    "FINGERPRINT",
    "FULL_NAME",
    "FindInitializationErrors",
    "FromLinear",
    "FromString",
    "HasField",
    "IsInitialized",
    "ListFields",
    "MergeFrom",
    "ParseFromString",
    "SerializePartialToString",
    "SerializeToString",
    "SetInParent",
    "ToLinear",
    "WhichOneof",
    "unknown_fields",
];

/// A name that Python takes for one, at the top of a module or in a message.
pub(super) fn escaped(name: &str, is_in_message: bool) -> String {
    if name.starts_with("__") || name.starts_with("_tl_") {
        // The first are another name in a class, the others are the library's.
        format!("x{name}")
    } else if KEYWORDS.contains(&name) || is_in_message && OF_MESSAGES.contains(&name) {
        format!("{name}_")
    } else {
        name.to_owned()
    }
}

/// A class by its way from the module, outermost first.
pub(super) fn type_path(nesting: &[String]) -> String {
    let parts: Vec<String> =
        nesting.iter().enumerate().map(|(depth, name)| escaped(name, depth > 0)).collect();
    parts.join(".")
}

/// The module of a package.
pub(super) fn module_of(package: &str) -> String {
    format!("{package}_linear")
}

/// Where a type is mentioned: the package, whose own types are found without asking for a module.
pub(super) struct Mentions<'m> {
    pub(super) package: &'m str,
    pub(super) types: &'m TypeTable,
}

impl Mentions<'_> {
    /// An expression for a type, for code that runs once the module is there.
    pub(super) fn path(&self, full_name: &str) -> String {
        let Some(origin) = self.types.origin(full_name) else { return text_literal(full_name) };
        let path = type_path(&origin.nesting);
        if origin.package == self.package {
            path
        } else {
            format!("_tl_package.module({}).{path}", text_literal(&module_of(&origin.package)))
        }
    }
}

/// Names of a module or of a message.
pub(super) struct PythonScope {
    owner: String,
    is_message: bool,
    taken: BTreeSet<String>,
}

impl PythonScope {
    pub(super) fn of_module(package: &str) -> Self {
        Self { owner: package.to_owned(), is_message: false, taken: BTreeSet::new() }
    }

    pub(super) fn of_message(full_name: &str) -> Self {
        Self { owner: full_name.to_owned(), is_message: true, taken: BTreeSet::new() }
    }

    /// The name of what others refer to, and so cannot evade.
    pub(super) fn claim(&mut self, name: &str) -> Result<String, CodegenError> {
        let escaped = escaped(name, self.is_message);
        if self.taken.insert(escaped.clone()) {
            Ok(escaped)
        } else {
            Err(CodegenError::BadName { owner: self.owner.clone(), name: name.to_owned() })
        }
    }

    /// A name that nothing else may have.
    pub(super) fn reserve(&mut self, name: &str) {
        self.taken.insert(name.to_owned());
    }

    /// `name`, or if something has it already, with as many `_` behind it as it takes.
    pub(super) fn take(&mut self, name: String) -> String {
        let mut name = name;
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// Whether a name that Python's syntax does not take can be had all the same, by `getattr`.
    pub(super) fn may_have(&self, name: &str) -> bool {
        KEYWORDS.contains(&name)
    }
}
