//! The admin API: what a daemon tells its operators.
//!
//! The service is an ordinary application of its own daemon: it attaches over the same socket as everybody and is
//! called through the same rings. `host.rs` is what a daemon says about itself; `service.rs` answers calls from it,
//! `looks.rs` says whose question is next, `served.rs` how many names an answer has, `addresses.rs` where the host is,
//! `policies.rs` changes it, `unknown.rs` looks for slips in what is changed, and `audit.rs` writes down who did;
//! `convert.rs` turns telemetry into messages and back, so that the verbs render what the telemetry room renders.
//! Services of the package `trunkline` are unknown to peers, and no other process than the daemon's may serve them: the
//! engine and the control thread see to that.

mod addresses;
mod audit;
mod convert;
mod history;
mod host;
mod looks;
mod policies;
mod served;
mod service;
mod unknown;
mod watchers;

pub use audit::{Audit, AuditedChange};
pub use convert::{explanation, top_row};
pub use history::Chronicle;
pub use host::{Facts, Host, UpgradeState, UpgradeWish};
pub use policies::ControlService;
pub use served::{NameRoom, ServedServices, shown};
pub use service::AdminService;

/// Generated from `proto/trunkline/admin/v1/admin.proto`.
pub mod proto {
    trunkline::include_proto!("trunkline.admin.v1");
}
