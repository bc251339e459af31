//! Shows what the engine does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod arriving;
mod attempts;
mod balancing;
mod binding;
mod callers;
mod calls;
mod certainty;
mod ends;
mod forgetting;
mod gateway;
mod grpc_client;
mod grpc_opaque;
mod grpc_server;
mod handover;
mod host_limits;
mod migration;
mod mirror;
mod names;
mod opaque;
mod openings;
mod overload;
mod policies;
mod priority;
mod r2p2;
mod redial;
mod schemas;
mod shards;
mod shares;
mod trace;
mod unserved;
mod workers;
#[path = "../world/mod.rs"]
mod world;
