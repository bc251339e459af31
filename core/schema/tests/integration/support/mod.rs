//! Random descriptor sets from a tape of bytes, and descriptors in editions' syntax by hand.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod random;
pub mod wire;
