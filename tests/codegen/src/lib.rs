//! Generated code from schemas in every shape. The tests are in `tests/`.
#![forbid(unsafe_code)]

trunkline::include_protos!();

/// Services, generated for the library as users have it.
pub mod services {
    include!(concat!(env!("OUT_DIR"), "/services/services.v1.rs"));
}

/// A package that imports protobuf's well-known types, a file of its own package and one of another, as users have it.
pub mod first {
    trunkline::include_proto!("first.v1");
}
