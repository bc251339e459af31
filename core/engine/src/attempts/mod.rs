//! Attempts: what calls that may be tried more than once remember, and what bounds them all (gRFC A6).
//!
//! [`CallAttempts`] is the memory of one call: its request so far, the attempts under way, how the last one ended.
//! [`AttemptControl`] owns what all calls share: what the users of services say about them, throttles, the host's
//! budget, chance, and the bytes that are kept. It is told how an attempt ended, or that it is time for another, and
//! answers what comes next; it knows nothing of what an attempt is made of. `attempt.rs` says that, and is lent calls;
//! `end.rs` is what attempts are as an end of a call, and does what is said.
//!
//! # Limits
//! Further attempts are bounded by the policy's number, the service's throttle, the server's pushback and the host's
//! budget; what is kept by bytes per call and per host.

mod attempt;
mod call_attempts;
mod control;
mod end;

pub(crate) use attempt::{arm_attempts, execution_so_far};
pub(crate) use call_attempts::CallAttempts;
pub(crate) use control::AttemptControl;
pub(crate) use end::{attempt_due, end_attempts, is_answered, response_begun, take_for_attempts};
