//! How a check ended.

/// Whether a check passed, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    Passed,
    Failed(String),
    Skipped(String),
}
