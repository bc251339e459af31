//! What generated code says of a service.

use trunkline_call::Pattern;

/// A service as its `.proto` describes it.
#[derive(Debug)]
pub struct ServiceDescription {
    /// Full name: `search.v1.Search`.
    pub name: &'static str,
    /// Encoded `FileDescriptorSet` that holds the service and every message it needs.
    pub descriptor_set: &'static [u8],
    /// In the order of the `.proto`; the index is what `Service::call` and `ClientCore` take.
    pub methods: &'static [MethodDescription],
}

/// A method as its `.proto` describes it.
#[derive(Debug)]
pub struct MethodDescription {
    /// `/search.v1.Search/Query`.
    pub path: &'static str,
    /// Who streams.
    pub pattern: Pattern,
}
