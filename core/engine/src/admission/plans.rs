//! Which policies apply to a method, on the side of whoever calls it or serves it.

use crate::registry::{Form, MessageType, MethodTypes, is_own_service};
use std::sync::Arc;
use trunkline_policy::{Chain, Plan, PolicyError, Side, Subject};

/// Somebody who calls or serves a method, as policies know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applicant<'a> {
    pub side: Side,
    /// Its name without the process.
    pub application: &'a str,
}

impl Applicant<'_> {
    /// What of a chain applies to a method, and the policy that does not fit it, if there is one.
    pub fn plan(
        self,
        chain: &mut Chain,
        types: &MethodTypes,
        path: &str,
    ) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        let request = match &types.input {
            Form::Typed(of) => Some(of),
            Form::Opaque => None,
        };
        self.plan_by(chain, types, request, path)
    }

    /// The same for a request whose type somebody else has told.
    pub fn plan_by(
        self,
        chain: &mut Chain,
        types: &MethodTypes,
        request: Option<&MessageType>,
        path: &str,
    ) -> (Option<Arc<Plan>>, Option<PolicyError>) {
        if chain.is_empty() || !is_subject_to_policies(path) {
            return (None, None);
        }
        let subject = Subject {
            side: self.side,
            application: self.application,
            path,
            request: request.map(|of| (&of.schema.schema, of.index)),
            client_streams: types.pattern.client_streams(),
        };
        chain.plan(&subject)
    }
}

/// Whether policies may stand in a method's way: the operator must not be able to lock himself out.
fn is_subject_to_policies(path: &str) -> bool {
    !is_own_service(path.trim_start_matches('/'))
}
