//! Attacks on a daemon, by programs of other users and from the network, beside a good pair.
//!
//! Correctness under attack has tests everywhere; this crate is about resources. Each test (`tests/all`) sets a stage
//! with the harness of the system tests: a host, a server and a client that call each other all the time, and an
//! attacker, which is a process of *another user*. It lets the attacker do one thing as hard as it can, and then looks
//! at three things:
//!
//! * the good pair had no error, and did go on;
//! * the daemon's memory stayed within the sum of the budgets that bound the attack;
//! * after the attacker has left, everything is given back: sessions, calls, connections, memory.
//!
//! How long the good pair's calls took is printed, for people to read, and never asserted: a test does not know what
//! else the machine does.
//!
//! * `attacks/` is what an attacker does when it is ordered to, one file for each way in: the control socket and the
//!   rings (`local.rs`), the same with calls without end (`sharing.rs`), and the network (`network.rs`).
//! * `application.rs` is an application made of nothing but the ABI, and `http2.rs` a client made of nothing but
//!   frames: neither keeps rules that its author did not want to keep.
//!
//! # Invariants
//! * An attacker is never the user of the good pair: budgets are per user, and a test without root could show nothing.
//!   Such a test says so on standard error and ends.
//! * No test waits for time to pass, or fails because it did.
#![forbid(unsafe_code)]

pub mod application;
pub mod attacks;
pub mod http2;
