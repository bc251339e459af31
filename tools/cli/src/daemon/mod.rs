//! `trunkline daemon`: run it, watch over it, end it in peace.

mod file;
mod host;
mod log_limit;
mod log_queue;
mod logging;
mod notify;
mod panic_line;
mod upgrade;
mod verb;

pub use file::Loaded;
pub use log_queue::Lost as LostLines;
pub use logging::{lost_lines, settle as settle_log, start as start_log};
pub use verb::daemon;
