//! Shows what the program does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod admin;
mod amiss;
mod check_config;
mod clocks;
mod doctor;
mod looks;
mod metrics;
mod modules;
mod policies;
mod relay;
mod replay;
mod secure;
#[path = "../support/mod.rs"]
mod support;
mod trees;
mod tutorial;
