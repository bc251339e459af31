//! The way to one daemon: how to reach it, the sessions attached to it, and the thread that looks after them.
//!
//! A process has one hub per daemon it talks to, usually one. The hub has *lanes*, places for a session:
//!
//! * a few lanes for tasks of other executors, leased to the threads that poll them, listened to by the reactor's
//!   thread;
//! * a few lanes leased to threads that block, so that each drains a ring of its own (threads beyond that share);
//! * one private lane per server worker.
//!
//! A lane attaches when it is first used and again when its session is lost, with back-off.

mod alone;
mod attach;
mod dial;
#[cfg(feature = "embedded")]
mod embedded;
mod handle;
#[expect(clippy::module_inception, reason = "its file is that of the type")]
mod hub;
mod lane;
mod pool;
mod reactor;
mod timer;
mod unattached;
mod wait;

pub(crate) use alone::{explained, say};
pub use dial::Connect;
pub(crate) use dial::{Connector, Daemon};
pub(crate) use handle::ReactorHandle;
pub(crate) use hub::Hub;
pub(crate) use lane::{Lane, Patience, Role};
pub(crate) use pool::LanePool;
pub(crate) use timer::{Sleep, too_late};
pub(crate) use wait::SessionWait;
