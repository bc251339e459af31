//! The work one evaluation may still do.

use super::error::{EvalError, STEPS_MAX};

/// Bytes compared or searched that count as one step.
const STEP_BYTES: usize = 64;
/// Bytes of a number that is read, and of a part that a search is prepared for, that count as one.
const SLOW_STEP_BYTES: usize = 4;

/// What is left of [`STEPS_MAX`].
pub(super) struct StepsLeft(u32);

impl StepsLeft {
    pub fn all() -> Self {
        Self(STEPS_MAX)
    }

    pub fn charge(&mut self, steps: u32) -> Result<(), EvalError> {
        self.0 = self.0.checked_sub(steps).ok_or(EvalError::Steps)?;
        Ok(())
    }

    pub fn charge_bytes(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        self.charge_each(bytes, STEP_BYTES)
    }

    /// For what looks at each byte by itself.
    pub fn charge_slow_bytes(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        self.charge_each(bytes, SLOW_STEP_BYTES)
    }

    fn charge_each(&mut self, bytes: &[u8], step_bytes: usize) -> Result<(), EvalError> {
        self.charge(u32::try_from(bytes.len() / step_bytes).unwrap_or(u32::MAX))
    }
}
