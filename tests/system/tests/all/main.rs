//! Real processes, broken in every way that was thought of. One program, so that it is linked once.

mod attempts;
mod c_programs;
mod chains;
mod crowds;
mod elastic;
mod forks;
mod grpc_cpp;
mod grpc_interop;
mod kills;
mod languages;
mod limits;
mod mirror;
mod once;
mod python;
mod r2p2;
mod r2p2_weather;
mod scene;
mod shutdown;
mod skew;
mod soak;
mod support;
mod topologies;
mod upgrade;
mod upgrade_kills;
mod upgrades;
mod workers;
