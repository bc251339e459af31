//! What is wrong with an expression, where, and what to write instead; and what goes wrong when one is evaluated.

use std::fmt;

/// Work one evaluation may do: nodes visited, list elements and metadata pairs looked at, each 64 bytes compared, and
/// each 4 bytes of a number that is read and of a part that is searched for.
/// About a millisecond; a message cannot make an expression cost its host more.
pub const STEPS_MAX: u32 = 100_000;

/// Why an expression was refused. Prints as `line:column: problem; advice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    /// From 1.
    pub line: usize,
    /// In characters from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What to write instead; may be empty.
    pub advice: String,
}

/// The same, before the place has been turned into line and column.
#[derive(Clone, Debug)]
pub(super) struct Complaint {
    pub at: u32,
    pub problem: String,
    pub advice: String,
}

/// Why an expression that was accepted has no value for this call.
///
/// CEL's rule for `&&` and `||` is kept: an operand that decides the outcome hides the error of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A result that does not fit its type.
    #[error("integer overflow")]
    Overflow,
    /// Division or remainder by zero.
    #[error("division by zero")]
    DivideByZero,
    /// A list index below 0 or not below the size.
    #[error("list index out of range")]
    OutOfRange,
    /// A map or the metadata without the key.
    #[error("no such key")]
    NoSuchKey,
    /// Metadata with several different values under the key: which of them its reader takes, nobody knows here.
    #[error("several values of metadata under one key")]
    SeveralValues,
    /// The expression works for longer than [`STEPS_MAX`] on this message.
    #[error("more than {} evaluation steps", STEPS_MAX)]
    Steps,
}

impl Complaint {
    pub fn new(at: u32, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { at, problem: problem.into(), advice: advice.into() }
    }

    pub fn placed(self, text: &str) -> ExprError {
        let before = text.get(..self.at as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ExprError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem: self.problem,
            advice: self.advice,
        }
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.problem)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for ExprError {}

/// Names that are compared for advice: it is given for every type that does not fit, and applications bind thousands.
const COMPARED_MAX: usize = 128;

/// The known name closest to `found`, as advice: within a third of its letters.
pub(crate) fn did_you_mean<'n>(found: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    let (distance, name) = known.take(COMPARED_MAX).map(|name| (edits(found, name), name)).min()?;
    (distance <= name.len().max(3) / 3).then(|| format!("did you mean {name:?}?"))
}

/// Edit distance (Levenshtein), one row at a time, of words cut to 64 characters.
fn edits(found: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, a) in found.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in name.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[name.len()]
}
