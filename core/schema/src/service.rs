//! Services and their methods.

use crate::MessageIndex;

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Package included, without a leading dot.
    pub full_name: String,
    /// In order of declaration.
    pub methods: Vec<Method>,
}

/// A method of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// As written in the `.proto` file.
    pub name: String,
    /// `/package.Service/Method`, as gRPC writes it in `:path`.
    pub path: String,
    /// The request's type.
    pub input: MessageIndex,
    /// The reply's type.
    pub output: MessageIndex,
    /// The client sends any number of requests.
    pub client_streaming: bool,
    /// The server sends any number of replies.
    pub server_streaming: bool,
    /// Declared `idempotency_level = IDEMPOTENT` or `NO_SIDE_EFFECTS`: sending it twice is sound.
    pub idempotent: bool,
    /// Declared `NO_SIDE_EFFECTS`: it may also be answered from a cache.
    pub no_side_effects: bool,
}
