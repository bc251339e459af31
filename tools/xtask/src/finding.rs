//! What a rule has to say.

use std::fmt;

/// A broken rule: where, which, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the root.
    pub path: String,
    /// From 1; 0 if it is about the whole file.
    pub line: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}; {}", self.path, self.line.max(1), self.rule, self.what, self.instead)
    }
}
