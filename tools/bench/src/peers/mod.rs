//! Who is measured: ours, the bare limits of the machine, the field's libraries and proxies, each as processes.

pub mod chain;
pub mod cpp;
pub mod data;
pub mod debian;
pub mod echo;
pub mod foreign;
pub mod hosts;
pub mod large;
pub mod large_proto;
pub mod messages;
pub mod open;
pub mod ours;
pub mod peer;
pub mod proxies;
pub mod raw;
pub mod sleepers;
pub mod stream;
