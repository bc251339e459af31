//! What `build.rs` generated.

/// The service the scenarios call.
#[allow(missing_docs, reason = "generated; the definition has the words")]
pub mod probe {
    trunkline::include_proto!("probe.v1");
}

/// The notes service as it was.
#[allow(missing_docs, reason = "generated; the definition has the words")]
pub mod older {
    include!(concat!(env!("OUT_DIR"), "/older/skew.v1.rs"));
}

/// The notes service as it is.
#[allow(missing_docs, reason = "generated; the definition has the words")]
pub mod newer {
    include!(concat!(env!("OUT_DIR"), "/newer/skew.v1.rs"));
}
