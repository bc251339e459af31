//! The field's own suites, run against Trunkline.
//!
//! Three bodies have written down what their protocol means, as programs. This room holds what those programs want to
//! talk to, written with our stubs and nothing else, each behind a daemon of its own:
//!
//! | suite | programs here | what is proved |
//! |---|---|---|
//! | gRPC's interoperability tests | `interop-server`, `interop-client` (`testing/`) | all of TestService, both ways |
//! | connectrpc's conformance runner | `connect-server`, `connect-client` (`connect/`) | corners of gRPC on HTTP/2 |
//! | protobuf's conformance runner | `protobuf-testee` (`testee.rs`) | the transcoder, binary |
//!
//! The scripts beside this crate fetch the suites when they run, count cases, and name what cannot be had; `make
//! conformance` runs them all, and `docs/conformance.md` has the results. `tests/` plays gRPC's cases between our
//! client and our server in seconds, natively, by gRPC and by gRPC over TLS, as part of `make test`.
//!
//! # Ways of the data
//! * `host.rs` starts a daemon and ends it. A program that finds `TRUNKLINE_SOCKET` set uses that daemon instead.
//! * `codec.rs` turns messages into protobuf and back by the transcoder: what is inside a `google.protobuf.Any`, a
//!   binary trailer or a pipe is protobuf everywhere.
//! * `framed.rs` cuts the pipes the two conformance runners speak through into messages.
//!
//! # Invariants
//! * No program here knows the protocol of its peer: the daemon finds out.
//! * Names, numbers and flags are the suites' own; text and code are ours.
#![forbid(unsafe_code)]

pub mod codec;
pub mod connect;
pub mod framed;
pub mod host;
pub mod testee;
pub mod testing;

/// Generated from `proto/`.
pub mod proto {
    trunkline::include_protos!();
}
