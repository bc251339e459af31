//! Shows what the daemon does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod agent;
mod explain;
mod grpc;
mod identity;
mod integrity;
mod migration;
mod names;
mod peers;
mod r2p2;
#[path = "../raw/mod.rs"]
mod raw;
mod recorded;
mod rights;
mod sessions;
mod tls_large;
mod traces;
