//! What a server serves.

use super::answer::Handling;
use super::delivered::Delivered;
use crate::description::ServiceDescription;
use std::sync::Arc;

/// A service that can be added to a [`Server`](crate::Server). Implemented by generated code.
pub trait Service: Send + Sync + 'static {
    /// What the `.proto` says.
    fn description(&self) -> &'static ServiceDescription;

    /// Handles one delivered call of the method with this index of `description().methods`.
    fn call(&self, method: usize, call: Delivered) -> Handling;
}

impl Service for Arc<dyn Service> {
    fn description(&self) -> &'static ServiceDescription {
        (**self).description()
    }

    fn call(&self, method: usize, call: Delivered) -> Handling {
        (**self).call(method, call)
    }
}
