//! What is measured, a file for each kind; which there are, and what they are asked for by, is in `list.rs` and in
//! `studies.toml`. Each hands in sheets of figures.

mod beside;
mod bind;
mod calls;
pub mod connections;
pub mod data;
mod hedging;
mod idle;
pub mod interference;
pub mod list;
mod r2p2;
pub mod scaling;
mod shares;
mod split;
