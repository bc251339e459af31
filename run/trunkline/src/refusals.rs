//! Statuses of what never left this process.

use trunkline_call::{Code, Execution, Status};
use trunkline_control::Bound;

/// The infrastructure is not there, and the call never left this process.
pub(crate) fn unavailable(why: &str) -> Status {
    Status::new(Code::Unavailable, why).with_execution(Execution::NotExecuted)
}

/// The daemon does not take a service as it is described.
pub(crate) fn refused(service: &str, bound: &Bound) -> Status {
    let code = match u16::try_from(bound.code).map(Code::from_number) {
        Ok(code @ (Code::PermissionDenied | Code::ResourceExhausted)) => code,
        _ => Code::FailedPrecondition,
    };
    Status::new(code, format!("binding {service}: {}", bound.error)).with_execution(Execution::NotExecuted)
}
