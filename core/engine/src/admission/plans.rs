//! Which policies apply to a method, on the side of whoever calls it or serves it.

use crate::registry::{Form, MessageType, MethodTypes, is_own_service};
use std::sync::Arc;
use trunkline_policy::{Chain, MethodFit, Plan, PolicyError, PolicySet, Side, Subject};

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
        self.plan_by(chain, types, request_of(types), path)
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
        chain.plan(&self.subject(types, request, path))
    }

    /// Which of the policies that count fit the method whose plan this is, each by itself.
    pub fn fit(
        self,
        (chain, plan): (&mut Chain, &Plan),
        types: &MethodTypes,
        request: Option<&MessageType>,
        path: &str,
        counts: PolicySet,
    ) -> MethodFit {
        chain.fit(plan, &self.subject(types, request, path), counts)
    }

    fn subject<'s>(
        &'s self,
        types: &MethodTypes,
        request: Option<&'s MessageType>,
        path: &'s str,
    ) -> Subject<'s> {
        Subject {
            side: self.side,
            application: self.application,
            path,
            request: request.map(|of| (&of.schema.schema, of.index)),
            client_streams: types.pattern.client_streams(),
        }
    }
}

/// The type of a method's requests, if whoever has it has told.
pub(super) fn request_of(types: &MethodTypes) -> Option<&MessageType> {
    match &types.input {
        Form::Typed(of) => Some(of),
        Form::Opaque => None,
    }
}

/// Whether policies may stand in a method's way: the operator must not be able to lock himself out.
fn is_subject_to_policies(path: &str) -> bool {
    !is_own_service(path.trim_start_matches('/'))
}
