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
//!   rings (`local.rs`), descriptors (`descriptors.rs`), the same with calls without end (`sharing.rs`), what it may
//!   not do (`rights.rs`), and the network: connections and gRPC (`network.rs`), the native protocol (`native.rs`), and
//!   R2P2 (`datagrams.rs`).
//! * `application.rs` is an application made of nothing but the ABI, `http2.rs` and `native.rs` are peers made of
//!   nothing but frames: none keeps rules that its author did not want to keep.
//!
//! What is attacked, and where (some attacks are shown with the program, in `tools/cli/tests`, or between two daemons):
//!
//! | attack | shown in |
//! |---|---|
//! | targets dialled with the daemon's rights, names of others, services one may not call | `rights.rs` |
//! | callers that other hosts name, without or with their word | `run/daemon/tests/identity.rs` |
//! | programs and modules of another user put in the daemon's place | `tools/cli/tests/upgrade.rs`, `modules.rs` |
//! | forged, changed and repeated datagrams | `run/router/tests/integration/seals.rs` |
//! | bytes changed on the way, strangers, revoked ones | `run/daemon/tests/integrity.rs`, `identity.rs` |
//! | a log that cannot be written, silent connections | `tools/cli/tests/crowd.rs`, `network.rs` |
//! | paths, services and methods without end; drains | `local.rs`, `network.rs` |
//! | refused calls, descriptor sets, heaps, answers nobody takes | `local.rs` |
//! | doorbells that are held, descriptors whose close waits | `local.rs` |
//! | targets without end, over replacements | `local.rs`, `upgrade.rs` |
//! | requests to the control socket, connections that never attach | `local.rs` |
//! | streams nobody reads, halves of messages | `network.rs`, `native.rs` |
//! | overdue answers | `network.rs` |
//! | messages that only begin, metadata of calls that are not whole | `native.rs` |
//! | methods without end, silence behind a hello or a good bye | `native.rs` |
//! | requests of strangers and forged words in datagrams | `datagrams.rs` |
//! | a state that is large, or of which much has not come yet | `upgrade.rs` |
//! | replacements under load and questions, all at once | `storm.rs`, `tools/cli/tests/upgrade.rs` |
//! | calls within calls | `rights.rs` |
//! | long headers in few bytes, questions without end | `network.rs`, `tools/cli/tests/integration/looks.rs` |
//! | floods, garbage and silence at a relay's port | `relay_attacks.rs` of the system tests, the CLI's `relay.rs` |
//! | users, control groups and services that want all of a shard | `shares.rs` |
//!
//! # Invariants
//! * An attacker is never the user of the good pair: budgets are per user, and a test without root could show nothing.
//!   Such a test says so on standard error and ends.
//! * No test waits for time to pass, or fails because it did.
#![forbid(unsafe_code)]

pub mod application;
pub mod attacks;
pub mod http2;
pub mod native;
