//! `grpc.testing.TestService`: what every gRPC implementation's interoperability programs speak.
//!
//! `server.rs` serves it, `cases.rs` holds the cases a client plays (`streams.rs`, `metadata.rs`, `load.rs` and
//! `soak.rs` by what they look at). Names of cases are those of gRPC's interoperability test descriptions.

mod cases;
mod load;
mod metadata;
mod server;
mod soak;
mod streams;

pub use cases::{ALL, Caller, Case, CaseError, named};
pub use server::{OrcaService, TestServer};
pub use soak::Soak;

use crate::proto::grpc::testing::{Payload, PayloadType};

/// Response header that comes back with the value it was sent with.
const ECHO_INITIAL: &str = "x-grpc-test-echo-initial";
/// The same as a trailer.
const ECHO_TRAILING: &str = "x-grpc-test-echo-trailing-bin";
/// Trailer with the load report of one call (ORCA).
const LOAD_REPORT: &str = "endpoint-load-metrics-bin";

fn payload(bytes: usize) -> Option<Payload> {
    Some(Payload { r#type: PayloadType::Compressable, body: vec![0; bytes] })
}
