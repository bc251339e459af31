//! A program to break: real processes in every topology, killed, forked, skewed and stopped.
//!
//! The binary `probe` plays every part, by its first argument: a daemon, a server, a client, or client and server at
//! once. It is ordered about by lines on its standard input and answers each with one line (`program.rs`). The tests
//! (`tests/all`) start as many of it as they need, on sockets of their own in a temporary folder and on ports the
//! kernel chooses, order them about, kill them, and look at what the others make of it. What they show:
//!
//! * one program gives the same answers embedded, through one daemon and through two (`scenario.rs` is that program);
//! * whoever dies, nobody else is disturbed, callers hear the truth, and everything comes back by itself;
//! * over R2P2, through a router and a network that loses, doubles and reorders datagrams, every call ends once;
//! * no call is executed twice, and none that was reported as not executed was;
//! * forked children, programs of another version, servers and daemons on their way out do what they promise;
//! * random calls of every kind, ended in every way, come to what they should and leave nothing behind (`soak.rs`);
//! * after all of it the daemon holds nothing: no call, no session, no block.
//!
//! `harness/` has the hosts and processes of these tests, for other crates of tests, too (`tests/hostile`).
//!
//! `handler.rs` serves the service of `proto/probe.proto` and does what it is ordered: fail, panic, hang, wait at a
//! gate, hand on. `journal.rs` is its memory of what became of each handler, so that a test can wait for something to
//! have happened instead of for time to pass.
//!
//! # Invariants
//! * Nobody sleeps to synchronise: tests poll a condition under a watchdog.
//! * A process ends with the handle that started it.
//! * A panic or an ERROR line in its log fails the test, unless the test has foreseen it (`tests/logs`).
#![forbid(unsafe_code)]

pub mod handler;
pub mod harness;
pub mod journal;
pub mod program;
pub mod proto;
pub mod random;
pub mod scenario;
pub mod skew;
pub mod soak;
