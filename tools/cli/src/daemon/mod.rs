//! `trunkline daemon`: run it, watch over it, end it in peace.

mod descriptors;
mod file;
mod host;
mod log_limit;
mod log_queue;
mod logging;
pub(crate) mod notify;
mod own_services;
mod panic_line;
mod program;
mod upgrade;
mod verb;

pub(crate) use descriptors::raise_descriptor_limit;
pub use file::Loaded;
pub use log_queue::Lost as LostLines;
pub use logging::{lost_lines, settle as settle_log, start as start_log};
pub use verb::daemon;
