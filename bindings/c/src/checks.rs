//! `TRUNKLINE_CHECKS=1`: misuse is told, and received messages are blocks of malloc.

use std::sync::OnceLock;
use trunkline::{Code, Status, say_on_standard_error};

static ENABLED: OnceLock<bool> = OnceLock::new();

/// Whether the environment asks for it. Looked up once.
pub(crate) fn are_on() -> bool {
    *ENABLED.get_or_init(|| std::env::var_os("TRUNKLINE_CHECKS").is_some_and(|value| value == "1"))
}

/// Says on standard error what a function was called with.
pub(crate) fn tell(function: &str, status: &Status) {
    let is_misuse = matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition);
    if is_misuse && are_on() {
        say_on_standard_error(&format!("{function}: {}", status.message()));
    }
}
