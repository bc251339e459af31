//! The work one evaluation may still do.

use super::error::{EvalError, STEPS_MAX};

/// Bytes compared or searched that count as one step.
const STEP_BYTES: usize = 64;

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
        self.charge(u32::try_from(bytes.len() / STEP_BYTES).unwrap_or(u32::MAX))
    }
}
