//! What these tests need beside the harness: barrages, networks, relays, routers, programs in C.

mod barrage;
pub mod c_programs;
mod network;
mod relay;
mod router;

pub use barrage::{Barrage, Tally};
pub use network::{Network, Weather};
pub use relay::Relay;
pub use router::Router;
pub use trunkline_system_tests::harness::{Host, Keys, Process, channel, client, echo, until, until_served};
