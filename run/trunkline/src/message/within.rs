//! On whose behalf a call is made.

use crate::context::Parent;
use crate::session::Session;
use std::sync::Arc;

/// The delivered call on whose behalf a call is made.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) session: Arc<Session>,
    pub(crate) parent: Parent,
}
