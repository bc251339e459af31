//! Who makes a call, in the words that go to another shard with it.

use super::crossing::Origin;
use crate::call::ClientEnd;
use crate::engine::Engine;
use crate::{CallKey, SessionKey};
use std::sync::Arc;

/// Who makes a call, for the shard it goes to.
pub(crate) fn origin_of(engine: &mut Engine, key: CallKey) -> Option<Arc<Origin>> {
    let call = engine.calls.find(key)?;
    Some(match &call.client {
        ClientEnd::Session { session, .. } => {
            let session = *session;
            Arc::clone(origin_of_session(engine, session))
        }
        ClientEnd::Shard { origin, .. } => Arc::clone(origin),
        _ => Arc::new(Origin::of(engine.caller(call))),
    })
}

/// The same of a call that a session makes.
#[inline]
pub(super) fn origin_of_session(engine: &mut Engine, session: SessionKey) -> &Arc<Origin> {
    let Engine { sessions, shards, .. } = engine;
    shards.origin(session, || {
        sessions.find(session).map_or(Origin::Gone, |session| Origin::Application {
            label: session.label.as_str().into(),
            identity: session.identity.clone(),
            described: Arc::clone(&session.caller),
        })
    })
}
