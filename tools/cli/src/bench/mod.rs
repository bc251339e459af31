//! `trunkline bench`: many calls of one method, and how long they took.
//!
//! Calls are made at a constant rate whatever becomes of earlier ones (an *open loop*), and each is measured from the
//! moment it was meant to be sent: a server that stalls cannot hide the calls that would have come meanwhile
//! (*coordinated omission*). `--closed` asks for the other kind: so many calls outstanding, the next when one ends.
//!
//! `plan.rs` says when calls are due; `data.rs` what they carry; `driver.rs` makes them over sessions of its own and
//! tells `record.rs` what became of each; `report/` shows it. `verb.rs` joins them.

mod data;
mod driver;
mod plan;
mod record;
mod report;
mod verb;

pub use report::Form;
pub use verb::{BenchError, bench};
