//! A call and the policies: what [`AdmissionControl`] is told of a call, and what is done with what it says.
//!
//! Policies stand between the start of a call (`start.rs`) and its hand-over (`pass.rs`). A call they let go on may be
//! held for a while, may wait for calls before it to end, and may be copied elsewhere; its opening then waits in the
//! call's own backlog, as everything that waits does. If its deadline passes or its caller goes away meanwhile, its
//! handler never hears of it.
//!
//! # Copies
//! Policies of kind `mirror` send copies of calls elsewhere, after Envoy's `request_mirror_policies` and the Gateway
//! API's RequestMirror. A copy is a call of its own whose client end is nobody: what comes back is thrown away, and its
//! end is counted. It is made when the policies have let the call go on, leaves behind it, and neither waits for the
//! other. Nothing is inherited but the request, its metadata and the deadline: no retries, no policies (so no mirrors
//! of mirrors), no place among the caller's calls or bytes. A caller that cancels or dies leaves its copies alone: what
//! the other side is tried with is what callers send, and not how patient they are.
//!
//! What copies may cost is bounded by the policy's number of calls and time, and by [`Limits::mirror_bytes`] for all of
//! them; beyond it calls go uncopied, and are counted. Only whole unary requests are copied: a stream's copy would hold
//! its caller back, or grow.
//!
//! [`Limits::mirror_bytes`]: crate::Limits::mirror_bytes

use crate::CallKey;
use crate::admission::{
    AccessRecord, Applicant, CallFacts, CallPolicies, Denied, Enqueued, Inspection, add_metadata,
};
use crate::call::{Body, Call, ClientEnd, Direction, Item, ServerEnd};
use crate::cluster::ClusterKey;
use crate::due::Due;
use crate::engine::{Engine, Turn};
use crate::gateway_client::APPLICATION;
use crate::permit::admit_as_sent;
use crate::r2p2::label_of;
use crate::registry::{Form, MessageType, MethodTypes};
use crate::session::Session;
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, Pattern, VouchedCaller};
use trunkline_message::View;
use trunkline_policy::{Admission, Mirror, Permits, Plan, Side, Verdict};

/// A copy that has not left yet, and its opening.
type Copied = (Call, Item<'static>);

impl Engine {
    /// Notes what applies to a call on one of its sides.
    pub(crate) fn enlist(&mut self, key: CallKey, side: usize, plan: Option<Arc<Plan>>) {
        if plan.is_some()
            && let Some(call) = self.calls.find_mut(key)
        {
            self.admission.apply(&mut call.policies, side, plan);
        }
    }

    /// The same for the session that will serve it.
    #[inline]
    pub(crate) fn enlist_server(&mut self, key: CallKey) {
        if self.admission.chain().stands_on(Side::Server) {
            self.enlist_handler(key);
        }
    }

    fn enlist_handler(&mut self, key: CallKey) {
        let Self { calls, registry, sessions, admission, .. } = self;
        let Some(call) = calls.find(key) else { return };
        let Some(session) = call.handler() else { return };
        let server = registry.servers(call.method).iter().find(|server| server.session == session);
        let plan = match server {
            // Its methods are known by their calls only.
            Some(server) if server.types.whole_service => {
                let path = call.path.as_deref().unwrap_or(registry.path(call.method));
                let application = sessions.find(session).map_or("", |session| session.application());
                let applicant = Applicant { side: Side::Server, application };
                applicant.plan(admission.chain_mut(), &server.types, path).0
            }
            server => server.and_then(|server| server.plan.clone()),
        };
        self.enlist(key, 1, plan);
    }

    /// Finds again what applies to a call that was handed over.
    pub(crate) fn enlist_again(&mut self, key: CallKey) {
        let Self { calls, registry, sessions, admission, .. } = self;
        let Some(call) = calls.find(key).filter(|call| call.policies.is_some()) else { return };
        let made = match &call.client {
            ClientEnd::Session { session, types, .. } => {
                Some((sessions.find(*session).map_or("", |session| session.application()), types))
            }
            ClientEnd::Shard { types: Some(types), origin, .. } if call.has_moved() => {
                Some((origin.application(), types))
            }
            // Who makes it through a gateway stays behind, and it ends.
            _ => None,
        };
        let plan = made.and_then(|(application, types)| {
            let path = call.path.as_deref().unwrap_or(registry.path(call.method));
            let applicant = Applicant { side: Side::Client, application };
            applicant.plan(admission.chain_mut(), types, path).0
        });
        self.enlist(key, 0, plan);
        self.enlist_server(key);
    }

    // LIFE: 7 | judged by the policies of both sides that are this host's: let through, held, or refused; copied where
    // a policy mirrors | a private copy, if a policy looks at the message |
    /// Asks the policies about a call that begins, and sends it on its way if they let it.
    pub(crate) fn admit_opening(&mut self, turn: &mut Turn<'_>, key: CallKey, opening: &mut Item<'_>) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else {
            return self.pass_on(turn, key, Direction::Request, opening);
        };
        let only_refuse = policies.only_refuse();
        if only_refuse && !policies.reads_messages() {
            return match self.admission.permit(turn.now, policies, opening, View::EMPTY) {
                Ok(()) => self.pass_on(turn, key, Direction::Request, opening),
                Err(denied) => self.deny(turn, key, denied, opening),
            };
        }
        let policies = match only_refuse {
            true => match admit_as_sent(self, turn, key, policies, opening) {
                Some(policies) => policies,
                None => return,
            },
            false => policies,
        };
        let mut admission = Admission::default();
        if !policies.reads_messages() {
            let judged = self.judge(turn, key, &policies, opening, None, &mut admission);
            return self.go_on_judged(turn, key, policies, judged, &mut admission, opening);
        }
        let mut inspection = self.admission.take_inspection();
        // What policies have read is lent to it until it is handed over.
        let mut opening = opening.take();
        let judged = self.judge(turn, key, &policies, &mut opening, Some(&mut inspection), &mut admission);
        self.go_on_judged(turn, key, policies, judged, &mut admission, &mut opening);
        drop(opening);
        self.admission.put_back(inspection);
    }

    fn go_on_judged(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        judged: Result<(), Denied>,
        admission: &mut Admission,
        opening: &mut Item<'_>,
    ) {
        match judged {
            // Nearly always: nothing is to be remembered, and nothing to be done.
            Ok(()) if admission.says_nothing() && !policies.inspects_messages() => {
                self.admission.spare(policies);
                self.pass_on(turn, key, Direction::Request, opening);
            }
            Ok(()) => self.go_on_admitted(turn, key, policies, admission, opening),
            Err(denied) => self.deny(turn, key, denied, opening),
        }
    }

    fn go_on_admitted(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &mut Item<'_>,
    ) {
        self.bind_to_terms(turn.now, key, policies, admission, opening);
        match add_metadata(opening, &admission.metadata) {
            Ok(()) => {
                let copies =
                    self.copy_for_mirrors(turn, key, opening, std::mem::take(&mut admission.mirrors));
                self.pass_on(turn, key, Direction::Request, opening);
                self.send_copies(turn, copies);
            }
            Err(fault) => self.deny(turn, key, fault.into(), opening),
        }
    }

    pub(crate) fn deny(&mut self, turn: &mut Turn<'_>, key: CallKey, denied: Denied, item: &mut Item<'_>) {
        // A call that is refused is logged as others are: its end finds what says so with it.
        if denied.log
            && let Some(call) = self.calls.find_mut(key)
        {
            call.policies = Some(Box::new(CallPolicies::refused(true)));
        }
        self.drop_item(item);
        self.fail(turn, key, denied.fault);
    }

    /// Asks the policies about a later message.
    pub(crate) fn admit_message(&mut self, turn: &mut Turn<'_>, key: CallKey, message: &mut Item<'_>) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else {
            return self.drop_item(message);
        };
        let (mut inspection, mut admission) = (self.admission.take_inspection(), Admission::default());
        let mut message = message.take();
        let judged = self.judge(turn, key, &policies, &mut message, Some(&mut inspection), &mut admission);
        if let Some(call) = self.calls.find_mut(key) {
            call.policies = Some(policies);
        }
        match judged {
            Ok(()) => self.pass_on(turn, key, Direction::Request, &mut message),
            Err(denied) => self.deny(turn, key, denied, &mut message),
        }
        drop(message);
        self.admission.put_back(inspection);
    }

    /// Tells the policies of a call about an item of it, and what is known of both as far as they ask for it.
    fn judge<'i>(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policies: &CallPolicies,
        item: &mut Item<'i>,
        inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        let types = if policies.reads_messages() { self.types_to_read(key, item)? } else { [None, None] };
        let Self { admission: control, calls, sessions, peers, grpc, registry, scratch, .. } = self;
        if !policies.reads_facts() {
            let facts = CallFacts { types, ..CallFacts::default() };
            let (heaps, limits) = (&mut *turn.heaps, &scratch.limits);
            return control.judge(turn.now, heaps, limits, policies, &facts, item, inspection, admission);
        }
        let call = calls.find(key).ok_or(Fault::Ended)?;
        let maker = call.maker().and_then(|(session, _)| sessions.find(session));
        let handler = call.handler().and_then(|session| sessions.find(session));
        let mut facts = CallFacts {
            applications: [applicant(call, maker), application(call, handler)],
            peer_address: Cow::Borrowed(""),
            peer_identity: "",
            caller: None,
            path: call.path.as_deref().unwrap_or(registry.path(call.method)),
            deadline: call.deadline,
            types,
        };
        match call.client {
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => {}
            ClientEnd::R2p2 { request } => facts.peer_address = label_of(request.client()).into(),
            ClientEnd::Session { .. } => {
                facts.peer_identity = maker.map_or("", |session| &*session.identity);
                facts.caller = maker.map(|session| &*session.caller);
            }
            ClientEnd::Shard { ref origin, .. } => {
                let (address, identity) = origin.address_and_identity();
                (facts.peer_address, facts.peer_identity) = (address.into(), identity);
                facts.caller = origin.described();
            }
            ClientEnd::Peer { peer, .. } => {
                if let Some(peer) = peers.find(peer) {
                    facts.peer_address = peer.label.as_str().into();
                    facts.peer_identity = peer.identity.proven();
                }
                facts.caller = call.caller.as_deref();
            }
            ClientEnd::Grpc { peer, .. } => {
                if let Some(peer) = grpc.find(peer) {
                    facts.peer_address = peer.label.as_str().into();
                    facts.peer_identity = peer.identity.proven();
                }
            }
        }
        let limits = &scratch.limits;
        control.judge(turn.now, turn.heaps, limits, policies, &facts, item, inspection, admission)
    }

    /// The types of an item's message, as it was sent and as the server has it; none if nobody knows what was sent.
    fn types_to_read(&self, key: CallKey, item: &Item<'_>) -> Result<[Option<MessageType>; 2], Fault> {
        let call = self.calls.find(key).ok_or(Fault::Ended)?;
        if let ServerEnd::Session { types, .. } = &call.server
            && !call.bridgeable(types, item)
        {
            let why = "the server that shared the caller's schema is gone".into();
            return Err(Fault::SchemaMismatch { why });
        }
        let typed = |form| match form {
            Form::Typed(of) => Some(of),
            Form::Opaque => None,
        };
        let served = match &call.server {
            ServerEnd::Session { types, .. } => typed(types.input.clone()),
            _ => None,
        };
        // What comes from an end that knows no type is protobuf, and of the server's type if of any.
        let sent = self.gateway.request_form(call).and_then(typed).or_else(|| served.clone());
        Ok([sent, served])
    }

    /// Does what the policies said about a call that may go on.
    fn bind_to_terms(
        &mut self,
        now: Instant,
        key: CallKey,
        policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &Item<'_>,
    ) {
        let Self { admission: control, calls, timers, .. } = self;
        let Some(call) = calls.find_mut(key) else {
            return control.release(std::mem::take(&mut admission.permits));
        };
        let queue = |until| timers.insert(until, Due::Queued(key));
        let terms = control.settle(now, key.to_bits(), policies, admission, opening, queue);
        call.policies = terms.kept;
        if let Some(said) = terms.encoding {
            (call.request_encoding, call.keeps_encoding) = (Some(said), false);
        }
        let deadline = call.deadline.earlier(terms.deadline);
        if deadline != call.deadline {
            call.deadline = deadline;
            let timer = deadline.instant().map(|at| timers.insert(at, Due::Deadline(key)));
            if let Some(replaced) = std::mem::replace(&mut call.timer, timer) {
                timers.cancel(replaced);
            }
        }
    }

    /// A call has ended with `code`: what it held is free, and its line is written.
    pub(crate) fn end_policies(&mut self, now: Instant, key: CallKey, code: Code) {
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.take()) else { return };
        let is_logged = policies.is_logged();
        self.dismiss(key, policies, Some((now, code)));
        if is_logged
            && self.admission.logs()
            && let Some(record) = self.access_record(now, key, code)
        {
            self.admission.log(record);
        }
    }

    /// Policies are through with a call.
    pub(crate) fn dismiss(
        &mut self,
        key: CallKey,
        policies: Box<CallPolicies>,
        end: Option<(Instant, Code)>,
    ) {
        if let Some(timer) = self.admission.dismiss(key.to_bits(), policies, end) {
            self.timers.cancel(timer);
        }
    }

    fn access_record(&self, now: Instant, key: CallKey, code: Code) -> Option<AccessRecord> {
        let call = self.calls.find(key)?;
        let caller = match &call.client {
            ClientEnd::Session { session, .. } => self.sessions.find(*session)?.label.clone(),
            ClientEnd::Peer { peer, .. } => {
                let peer = self.peers.find(*peer)?;
                named(&peer.label, peer.identity.proven(), call.caller.as_deref())
            }
            ClientEnd::Grpc { peer, .. } => {
                let peer = self.grpc.find(*peer)?;
                named(&peer.label, peer.identity.proven(), None)
            }
            // Attempts and copies are not logged; the call they are made for is.
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => return None,
            ClientEnd::R2p2 { request } => label_of(request.client()),
            // Its own shard writes the line, unless only policies here want one.
            ClientEnd::Shard { logged: true, .. } => return None,
            ClientEnd::Shard { origin, .. } if origin.is_elsewhere() => {
                named(origin.label(), origin.address_and_identity().1, origin.described())
            }
            ClientEnd::Shard { origin, .. } => origin.label().to_owned(),
        };
        let entered = if call.is_made_here() { call.client_stamps.d2 } else { call.server_stamps.d8 };
        Some(AccessRecord {
            path: match &call.path {
                Some(path) => path.clone().into(),
                None => Arc::clone(self.registry.path(call.method)),
            },
            caller,
            code,
            duration_ns: now.since_ns(entered),
            request_bytes: call.request.bytes,
            response_bytes: call.response.bytes,
        })
    }

    /// After an exchange of policies: calls that wait do so by the new ones, or go on.
    pub fn serve_waiting(&mut self, turn: &mut Turn<'_>) {
        self.go_on(turn);
    }

    /// Calls that waited for others to end go on.
    #[inline]
    pub(crate) fn serve_queues(&mut self, turn: &mut Turn<'_>) {
        while let Some(verdict) = self.admission.poll_queues(turn.now) {
            self.carry_out(turn, verdict);
        }
    }

    /// A call has waited as long as it may.
    pub(crate) fn queued_due(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let Some(ticket) = self.queue_place(key).map(|queued| queued.ticket) else { return };
        let verdict = self.admission.late(turn.now, ticket, key.to_bits());
        self.carry_out(turn, verdict);
    }

    fn carry_out(&mut self, turn: &mut Turn<'_>, verdict: Verdict) {
        match verdict {
            Verdict::Served(token, permits) => self.serve_queued(turn, CallKey::from_bits(token), permits),
            Verdict::Shed(token, rejection) => {
                let key = CallKey::from_bits(token);
                self.leave_queue(key);
                self.fail(turn, key, Denied::from(rejection).fault);
            }
            Verdict::Waits(token, until) => {
                let key = CallKey::from_bits(token);
                if let Some(timer) = self.queue_place(key).map(|queued| queued.timer) {
                    self.timers.cancel(timer);
                    let timer = self.timers.insert(until, Due::Queued(key));
                    self.queue_place(key).into_iter().for_each(|queued| queued.timer = timer);
                }
            }
        }
    }

    fn serve_queued(&mut self, turn: &mut Turn<'_>, key: CallKey, permits: Permits) {
        self.leave_queue(key);
        let Some(policies) = self.calls.find_mut(key).and_then(|call| call.policies.as_mut()) else {
            return self.admission.release(permits);
        };
        policies.permits.join(permits);
        match policies.held_until.take() {
            Some(until) => drop(self.timers.insert(until, Due::Held(key, Direction::Request))),
            None => self.unblock(turn, key, Direction::Request),
        }
    }

    fn queue_place(&mut self, key: CallKey) -> Option<&mut Enqueued> {
        self.calls.find_mut(key)?.policies.as_mut()?.queued.as_mut()
    }

    /// The policy has let a call out of its queue.
    fn leave_queue(&mut self, key: CallKey) {
        let policies = self.calls.find_mut(key).and_then(|call| call.policies.as_mut());
        if let Some(queued) = policies.and_then(|policies| policies.queued.take()) {
            self.timers.cancel(queued.timer);
        }
    }

    // LIFE: 7
    /// Makes the copies policies want of a call that goes on with `opening`.
    fn copy_for_mirrors(
        &mut self,
        turn: &Turn<'_>,
        key: CallKey,
        opening: &Item<'_>,
        wanted: Vec<Mirror>,
    ) -> Vec<Copied> {
        if wanted.is_empty() || self.draining {
            return Vec::new();
        }
        let (Some(types), Item::Open { metadata, body: Some(body), end: true }) =
            (self.mirrored_types(key), opening)
        else {
            return Vec::new();
        };
        // One copy of the bytes, however many are sent; each is counted as if it had its own.
        let mut kept = None;
        let mut copies = Vec::new();
        for mirror in wanted {
            let Some(copy) = self.copy_of(turn.now, key, &types, body.len(), &mirror) else { continue };
            if kept.is_none() {
                kept = body.kept(&*turn.heaps);
            }
            // Outside the heap: the call itself ends for that reason.
            let Some(kept) = kept.clone() else { return Vec::new() };
            self.admission.count_copy(body.len());
            let metadata = Cow::Owned(metadata.to_vec());
            copies.push((copy, Item::Open { metadata, body: Some(Body::Kept(kept)), end: true }));
        }
        copies
    }

    /// Sends them on their way.
    fn send_copies(&mut self, turn: &mut Turn<'_>, copies: Vec<Copied>) {
        for (copy, mut opening) in copies {
            let deadline = copy.deadline.instant();
            let key = self.calls.insert(copy);
            let timer = deadline.map(|at| self.timers.insert(at, Due::Deadline(key)));
            if let Some(copy) = self.calls.find_mut(key) {
                copy.timer = timer;
            }
            self.pass_on(turn, key, Direction::Request, &mut opening);
        }
    }

    /// Something comes back to a copy: nobody wants it.
    pub(crate) fn discard_answer(&mut self, now: Instant, key: CallKey, item: &mut Item<'_>) {
        let end = match item {
            Item::Finish { code, .. } => Some(*code),
            _ => None,
        };
        self.drop_item(item);
        if let Some(code) = end {
            self.end_copy(now, key, code);
            self.forget(key);
        }
    }

    /// A long answer to a copy begins: it was answered, and memory for it is not for nobody. `false`: the call is none.
    pub(crate) fn discard_long_answer(&mut self, turn: &mut Turn<'_>, key: CallKey) -> bool {
        let is_copy = self.calls.find(key).is_some_and(Call::is_copy);
        if is_copy {
            self.end_copy(turn.now, key, Code::Ok);
            self.cancel(turn, key);
        }
        is_copy
    }

    fn end_copy(&mut self, now: Instant, key: CallKey, code: Code) {
        let policies = self.calls.find_mut(key).and_then(|call| call.policies.take());
        if let Some(policies) = policies {
            self.admission.end_copy(now, policies.permits, code);
        }
    }

    /// The types of a call that is made here, if it is one that can be copied.
    fn mirrored_types(&self, key: CallKey) -> Option<Arc<MethodTypes>> {
        let types =
            self.calls.find(key).filter(|call| call.is_made_here())?.sender_types(Direction::Request)?;
        (types.pattern == Pattern::Unary || types.input.is_opaque()).then_some(types)
    }

    /// A copy, if there is room for another; else the policy has left one out.
    fn copy_of(
        &mut self,
        now: Instant,
        key: CallKey,
        types: &Arc<MethodTypes>,
        bytes: u32,
        mirror: &Mirror,
    ) -> Option<Call> {
        let method = self.calls.find(key)?.method;
        let service = crate::registry::service_of(self.registry.path(method)).to_owned();
        let target = self.mirror_cluster(mirror, &service);
        let begun = self.admission.begin_copy(mirror, bytes, self.limits.mirror_bytes, || target);
        let (cluster, permits) = begun?;
        let Some(call) = self.calls.find(key) else {
            self.admission.release(permits);
            return None;
        };
        let client = ClientEnd::Mirror { types: Arc::clone(types), bytes };
        let longest = Deadline::at(now.plus_ns(mirror.timeout_ns));
        let deadline = call.deadline.earlier(longest);
        let mut copy = Call::new(method, client, ServerEnd::Cluster { cluster }, deadline);
        copy.admitted = true;
        copy.path.clone_from(&call.path);
        copy.request_encoding = call.request_encoding;
        copy.keeps_encoding = call.keeps_encoding;
        copy.choice = call.choice;
        copy.client_stamps = call.client_stamps;
        copy.policies = Some(Box::new(CallPolicies::holding(permits)));
        Some(copy)
    }

    /// `None`: the host knows as many endpoints as it may.
    fn mirror_cluster(&mut self, mirror: &Mirror, service: &str) -> Option<ClusterKey> {
        let remote = self.remotes.intern(&mirror.target, self.limits.endpoints)?;
        self.cluster_of_target(remote, service)
    }
}

/// A caller from elsewhere in the access log: its address, who it has proved to be, and who calls by its word.
fn named(address: &str, identity: &str, vouched: Option<&VouchedCaller>) -> String {
    let vouched = vouched.map(|caller| format!(": {caller}"));
    match (identity, vouched.unwrap_or_default()) {
        ("", _) => address.to_owned(),
        (identity, vouched) => format!("{address} ({identity}{vouched})"),
    }
}

/// What policies know the application at an end of a call by.
fn application<'s>(call: &Call, session: Option<&'s Session>) -> &'s str {
    match session {
        Some(session) => session.application(),
        None if call.is_forwarded() => APPLICATION,
        None => "",
    }
}

/// The same of the one that makes a call: it may be on another shard by now.
fn applicant<'s>(call: &'s Call, maker: Option<&'s Session>) -> &'s str {
    match &call.client {
        ClientEnd::Shard { origin, .. } if call.has_moved() => origin.application(),
        _ => application(call, maker),
    }
}
