//! Each attack against a daemon that a good pair uses. One program, so that it is linked once.

mod local;
mod network;
mod pair;
mod rights;
mod shares;
mod stage;
mod storm;
mod upgrade;
