//! Each attack against a daemon that a good pair uses. One program, so that it is linked once.

mod datagrams;
mod local;
mod native;
mod network;
mod pair;
mod rights;
mod shares;
mod stage;
mod storm;
mod upgrade;
