//! Why a chain was refused: which policy, which key, what is wrong, what to write instead.

use std::fmt;

/// What is wrong with a chain. Prints as `policy "name".key: problem; advice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// Position in the chain, from 0.
    pub index: usize,
    /// The policy's name.
    pub name: String,
    /// The key at fault; empty if it is the policy as a whole.
    pub key: &'static str,
    /// What is wrong; begins with line and column within the value if it is an expression.
    pub problem: String,
    /// What to write instead; may be empty.
    pub advice: String,
}

/// The same within one policy.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub key: &'static str,
    pub problem: String,
    pub advice: String,
}

impl Wrong {
    pub fn new(key: &'static str, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { key, problem: problem.into(), advice: advice.into() }
    }

    pub fn of_expression(key: &'static str, error: crate::ExprError) -> Self {
        let crate::ExprError { line, column, problem, advice } = error;
        Self { key, problem: format!("{line}:{column}: {problem}"), advice }
    }

    pub fn of_policy(self, index: usize, name: &str) -> PolicyError {
        let Self { key, problem, advice } = self;
        PolicyError { index, name: name.to_owned(), key, problem, advice }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy {:?}", self.name)?;
        if !self.key.is_empty() {
            write!(f, ".{}", self.key)?;
        }
        write!(f, ": {}", self.problem)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for PolicyError {}
