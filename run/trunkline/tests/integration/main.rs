//! Shows what the library does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod calls;
mod client;
mod daemon;
mod intercept;
mod lanes;
mod large;
mod opaque;
mod server;
#[path = "../support/mod.rs"]
mod support;
