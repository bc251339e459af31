//! What calls are made of.

use super::binding::Binding;
use crate::channel::Channel;

/// A service, or one method of it, through a channel.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) channel: Channel,
    pub(crate) binding: Binding,
}
