//! Policies in the way of calls: between admission (`start.rs`) and hand-over (`pass.rs`).

use crate::call::{ClientEnd, Direction, Item, ServerEnd};
use crate::engine::{Engine, Turn};
use crate::exhibit::{Exhibit, Shown};
use crate::expire::Due;
use crate::operator::introduced;
use crate::peer_end::conversion_fault;
use crate::queueing::Queued;
use crate::registry::{Form, MessageType, MethodKey, is_own_service};
use crate::{CallKey, SessionKey};
use std::borrow::Cow;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, Metadata, WorkerChoice};
use trunkline_grpc::compress::Encoding;
use trunkline_message::View;
use trunkline_policy::{Admission, Class, EncodingName, Inputs, Permits, Plan, Rejection, Side};

/// What the chain has to do with one call. Calls no policy applies to have none.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Policed {
    /// What applies on the side of the application that calls, and of the one that serves.
    #[serde(skip)]
    plans: [Option<Arc<Plan>>; 2],
    /// Kept for messages to come, if policies look at those.
    metadata: Box<[u8]>,
    pub permits: Permits,
    log: bool,
    /// Its place among the calls of this host.
    pub class: Option<Class>,
    /// The opening waits until then.
    pub held_until: Option<Instant>,
    /// The opening waits for other calls to end.
    pub queued: Option<Queued>,
}

/// A call that is to be logged has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRecord {
    /// `/package.Service/Method`
    pub path: Arc<str>,
    /// Who called: an application of this host or a peer.
    pub caller: String,
    /// How it ended.
    pub code: Code,
    /// From its entry into this daemon.
    pub duration_ns: u64,
    /// Message bytes of the request, as its sender counted them.
    pub request_bytes: u64,
    /// Message bytes of the response.
    pub response_bytes: u64,
}

/// What policies noted of calls that are over, kept for calls to come: 100 KiB. More than are at once is never kept.
const SPARE_MAX: usize = 1024;

/// Records kept for the host. More are dropped: a log must not hold up calls.
const RECORDS_MAX: usize = 4096;

impl Engine {
    /// A record of the access log.
    pub fn poll_access_record(&mut self) -> Option<AccessRecord> {
        self.access_records.pop_front()
    }

    /// Tells the daemon's own services who calls them.
    pub(crate) fn introduce(&self, method: MethodKey, session: SessionKey, metadata: Vec<u8>) -> Vec<u8> {
        if is_policed(self.registry.path(method)) {
            return metadata;
        }
        let identity = self.sessions.find(session).map_or("", |session| &session.identity);
        introduced(identity, metadata)
    }

    /// Notes what applies to a call on one of its sides.
    pub(crate) fn enlist(&mut self, key: CallKey, side: usize, plan: Option<Arc<Plan>>) {
        let Some(plan) = plan else { return };
        let Self { calls, spare_policed, .. } = self;
        if let Some(call) = calls.find_mut(key) {
            let policed = call.policed.get_or_insert_with(|| spare_policed.pop().unwrap_or_default());
            policed.plans[side] = Some(plan);
        }
    }

    /// Policies are through with the call, and are told how it ended, if somebody knows: what they hold for it is free,
    /// and the memory is the next call's.
    pub(crate) fn dismiss(&mut self, key: CallKey, mut policed: Box<Policed>, end: Option<(Instant, Code)>) {
        self.leave_queue(key, &mut policed);
        let permits = std::mem::take(&mut policed.permits);
        match end {
            Some((now, code)) => self.policies.finish(now, permits, code),
            None => self.policies.release(permits),
        }
        self.spare(policed);
    }

    fn spare(&mut self, mut policed: Box<Policed>) {
        policed.clear();
        if self.spare_policed.len() < SPARE_MAX {
            self.spare_policed.push(policed);
        }
    }

    /// The same for the session that will serve it.
    pub(crate) fn enlist_server(&mut self, key: CallKey) {
        if self.policies.chain().is_empty() {
            return;
        }
        let Some((method, Some(session))) = self.calls.find(key).map(|call| (call.method, call.handler()))
        else {
            return;
        };
        let server = self.registry.servers(method).iter().find(|server| server.session == session);
        let plan = match server {
            // Its methods are known by their calls only.
            Some(server) if server.types.whole_service => {
                let types = std::sync::Arc::clone(&server.types);
                let own = self.calls.find(key).and_then(|call| call.path.as_deref());
                let path = own.unwrap_or(self.registry.path(method));
                self.planned(self.policies.chain(), Side::Server, session, &types, path).0
            }
            server => server.and_then(|server| server.plan.clone()),
        };
        self.enlist(key, 1, plan);
    }

    /// Finds again what applies to a call that was handed over.
    pub(crate) fn enlist_again(&mut self, key: CallKey) {
        let Some(call) = self.calls.find(key).filter(|call| call.policed.is_some()) else { return };
        let plan = match &call.client {
            ClientEnd::Session { session, types, .. } => {
                let path = call.path.as_deref().unwrap_or(self.registry.path(call.method));
                self.planned(self.policies.chain(), Side::Client, *session, types, path).0
            }
            // Who makes it through a gateway stays behind, and it ends.
            _ => None,
        };
        self.enlist(key, 0, plan);
        self.enlist_server(key);
    }

    /// Asks the policies about a call that begins, and sends it on its way if they let it.
    pub(crate) fn police(&mut self, turn: &mut Turn<'_>, key: CallKey, opening: Item<'_>) {
        let Some(policed) = self.calls.find_mut(key).and_then(|call| call.policed.take()) else {
            return self.pass_on(turn, key, Direction::Request, opening);
        };
        let mut exhibit = self.exhibit.take().unwrap_or_default();
        let (mut opening, mut admission) = (opening, Admission::default());
        let admitted = match self.judge(turn, key, &policed, &opening, &mut exhibit, &mut admission) {
            Ok(shown) => {
                self.enact(turn.now, key, policed, &mut admission, &opening);
                if shown.is_some() {
                    exhibit.seal(&mut opening);
                }
                add_metadata(&mut opening, &admission.metadata)
            }
            Err(fault) => Err(fault),
        };
        match admitted {
            Ok(()) => {
                let copies = self.copy_for_mirrors(turn, key, &opening, admission.mirrors);
                self.pass_on(turn, key, Direction::Request, opening);
                self.send_copies(turn, copies);
            }
            Err(fault) => {
                self.drop_item(opening);
                self.fail(turn, key, fault);
            }
        }
        self.put_away(exhibit);
    }

    /// For the next message that is looked at.
    fn put_away(&mut self, mut exhibit: Box<Exhibit>) {
        exhibit.trim();
        self.exhibit = Some(exhibit);
    }

    /// Whether policies look at this item, a message of a stream that is under way.
    pub(crate) fn is_inspected(&self, key: CallKey, direction: Direction, item: &Item<'_>) -> bool {
        direction == Direction::Request
            && matches!(item, Item::Message { .. })
            && self
                .calls
                .find(key)
                .and_then(|call| call.policed.as_ref())
                .is_some_and(|policed| policed.inspects())
    }

    /// A call that is refused is logged as others are: its end finds what says so with it.
    fn note_refused(&mut self, key: CallKey, log: bool) {
        if let Some(call) = self.calls.find_mut(key).filter(|_| log) {
            call.policed = Some(Box::new(Policed { log, ..Policed::default() }));
        }
    }

    /// Asks the policies about a later message.
    pub(crate) fn inspect(&mut self, turn: &mut Turn<'_>, key: CallKey, message: Item<'_>) {
        let Some(policed) = self.calls.find_mut(key).and_then(|call| call.policed.take()) else {
            return self.drop_item(message);
        };
        let mut message = message;
        let mut exhibit = self.exhibit.take().unwrap_or_default();
        let judged = self.judge(turn, key, &policed, &message, &mut exhibit, &mut Admission::default());
        if let Some(call) = self.calls.find_mut(key) {
            call.policed = Some(policed);
        }
        match judged {
            Ok(shown) => {
                if shown.is_some() {
                    exhibit.seal(&mut message);
                }
                self.pass_on(turn, key, Direction::Request, message);
            }
            Err(fault) => {
                self.drop_item(message);
                self.fail(turn, key, fault);
            }
        }
        self.put_away(exhibit);
    }

    /// A call has ended with `code`: what it held is free, and its line is written.
    pub(crate) fn police_end(&mut self, now: Instant, key: CallKey, code: Code) {
        let Some(policed) = self.calls.find_mut(key).and_then(|call| call.policed.take()) else { return };
        let log = policed.log;
        self.dismiss(key, policed, Some((now, code)));
        if log && self.access_records.len() < RECORDS_MAX {
            let record = self.access_record(now, key, code);
            self.access_records.extend(record);
        }
    }

    /// Takes the decision: one look at the message for both sides' policies, if any of them wants one.
    fn judge(
        &mut self,
        turn: &mut Turn<'_>,
        key: CallKey,
        policed: &Policed,
        item: &Item<'_>,
        exhibit: &mut Exhibit,
        admission: &mut Admission,
    ) -> Result<Option<Shown>, Fault> {
        let looked = if policed.reads_messages() { self.look(turn, key, item, exhibit)? } else { None };
        for (side, plan) in policed.plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let view = match looked.as_ref().filter(|_| plan.needs_message()) {
                None => View::EMPTY,
                Some(Looked { shown, sent, served: Some(served) })
                    if side == 1 && sent.fingerprint != served.fingerprint =>
                {
                    let view = exhibit.translate(turn.heaps, &self.scratch.limits, *shown, sent, served);
                    view.map_err(|error| conversion_fault(error, Direction::Request))?
                }
                Some(Looked { shown, .. }) => exhibit.view(turn.heaps, *shown),
            };
            if let Err(rejection) = self.ask(turn.now, key, side, plan, policed, item, view, admission) {
                self.note_refused(key, rejection.log);
                return Err(denied(rejection));
            }
        }
        Ok(looked.map(|looked| looked.shown))
    }

    /// Brings an item's message, if there is one and somebody knows its type, to where nobody can change it.
    fn look(
        &self,
        turn: &mut Turn<'_>,
        key: CallKey,
        item: &Item<'_>,
        exhibit: &mut Exhibit,
    ) -> Result<Option<Looked>, Fault> {
        let Some(call) = self.calls.find(key) else { return Err(Fault::Ended) };
        if let ServerEnd::Session { types, .. } = &call.server
            && !self.bridgeable(key, types, item)
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
        let sent = self.request_form(key).and_then(typed).or_else(|| served.clone());
        let (Some(body), Some(sent)) = (item.body(), sent) else { return Ok(None) };
        let shown = exhibit.show(turn.heaps, &self.scratch.limits, &sent, body);
        let shown = shown.map_err(|error| conversion_fault(error, Direction::Request))?;
        Ok(Some(Looked { shown, sent, served }))
    }

    #[allow(clippy::too_many_arguments, reason = "what the inputs of a plan are put together from")]
    fn ask(
        &mut self,
        now: Instant,
        key: CallKey,
        side: usize,
        plan: &Plan,
        policed: &Policed,
        item: &Item<'_>,
        request: View<'_>,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        let Self { policies, calls, sessions, peers, grpc_peers, registry, .. } = self;
        let Some(call) = calls.find(key) else { return Ok(()) };
        let maker = call.maker().and_then(|(session, _)| sessions.find(session));
        let handler = call.handler().and_then(|session| sessions.find(session));
        let application = if side == 0 { maker } else { handler };
        let application = match application {
            Some(session) => session.application(),
            None if call.is_forwarded() => crate::gateway::APPLICATION,
            None => "",
        };
        let label = match call.client {
            ClientEnd::R2p2 { request } => Self::r2p2_label(request.client()),
            _ => String::new(),
        };
        let (peer_address, peer_identity) = match call.client {
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => ("", ""),
            ClientEnd::R2p2 { .. } => (label.as_str(), ""),
            ClientEnd::Session { .. } => ("", maker.map_or("", |session| &*session.identity)),
            ClientEnd::Peer { peer, .. } => (peers.find(peer).map_or("", |peer| peer.label.as_str()), ""),
            ClientEnd::Grpc { peer, .. } => {
                grpc_peers.find(peer).map_or(("", ""), |peer| (peer.label.as_str(), peer.identity.proven()))
            }
        };
        let opens = matches!(item, Item::Open { .. });
        let metadata = match item {
            Item::Open { metadata, .. } => metadata,
            _ => &*policed.metadata,
        };
        let inputs = Inputs {
            request,
            metadata,
            path: call.path.as_deref().unwrap_or(registry.path(call.method)),
            application,
            peer_identity,
            peer_address,
            deadline: call.deadline,
            request_bytes: item.body().map_or(0, |body| body.len().into()),
        };
        if !opens {
            return policies.inspect(plan, now, &inputs);
        }
        let message = item.body().is_some() || !plan.client_streams();
        policies.admit(plan, now, &inputs, message, admission)
    }

    /// Does what the policies said about a call that may go on.
    fn enact(
        &mut self,
        now: Instant,
        key: CallKey,
        mut policed: Box<Policed>,
        admission: &mut Admission,
        opening: &Item<'_>,
    ) {
        let permits = std::mem::take(&mut admission.permits);
        if self.calls.find(key).is_none() {
            return self.policies.release(permits);
        }
        policed.permits = permits;
        policed.log = admission.log;
        policed.class = admission.class;
        policed.held_until = (admission.delay_ns > 0).then(|| now.plus_ns(admission.delay_ns));
        policed.queued = admission.ticket.map(|ticket| self.queue_call(now, key, ticket));
        if let Item::Open { metadata, .. } = opening
            && policed.inspects()
        {
            policed.metadata = metadata.as_ref().into();
        }
        // Nearly always nothing is: the next call then finds this memory still in the cache.
        let kept = if policed.is_idle() {
            self.spare(policed);
            None
        } else {
            Some(policed)
        };
        let Some(call) = self.calls.find_mut(key) else { return };
        call.policed = kept;
        if let Some(said) = admission.encoding {
            (call.request_encoding, call.keeps_encoding) = (Some(encoding_of(said)), false);
        }
        let Some(timeout_ns) = admission.timeout_ns else { return };
        let deadline = call.deadline.earlier(Deadline::at(now.plus_ns(timeout_ns)));
        if deadline != call.deadline {
            call.deadline = deadline;
            let timer = deadline.instant().map(|at| self.timers.insert(at, Due::Deadline(key)));
            if let Some(replaced) = std::mem::replace(&mut call.timer, timer) {
                self.timers.cancel(replaced);
            }
        }
    }

    fn access_record(&self, now: Instant, key: CallKey, code: Code) -> Option<AccessRecord> {
        let call = self.calls.find(key)?;
        let caller = match &call.client {
            ClientEnd::Session { session, .. } => self.sessions.find(*session)?.label.clone(),
            ClientEnd::Peer { peer, .. } => self.peers.find(*peer)?.label.clone(),
            ClientEnd::Grpc { peer, .. } => self.grpc_peers.find(*peer)?.label.clone(),
            // Attempts and copies are not logged; the call they are made for is.
            ClientEnd::Attempt { .. } | ClientEnd::Mirror { .. } => return None,
            ClientEnd::R2p2 { request } => Self::r2p2_label(request.client()),
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
}

impl Policed {
    /// Of a call that holds these and passes no policy.
    pub fn holding(permits: Permits) -> Self {
        Self { permits, ..Self::default() }
    }

    /// Makes it the next call's. What it held has been given back.
    fn clear(&mut self) {
        let Self { plans, metadata, permits, log, class, held_until, queued } = self;
        *plans = [None, None];
        if !metadata.is_empty() {
            *metadata = Box::default();
        }
        *permits = Permits::default();
        (*log, *class, *held_until, *queued) = (false, None, None, None);
    }

    /// Whether nothing is to be remembered until the call ends.
    fn is_idle(&self) -> bool {
        let Self { plans: _, metadata: _, permits, log, class, held_until, queued } = self;
        let waits = held_until.is_some() || queued.is_some();
        !(waits || *log || class.is_some() || !permits.is_empty() || self.inspects())
    }

    /// Which worker the policies of whoever makes the call want for it.
    pub fn choice(&self) -> WorkerChoice {
        self.plans[0].as_ref().map_or(WorkerChoice::default(), |plan| plan.choice())
    }

    /// Whether any policy looks at messages.
    pub fn reads_messages(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.needs_message())
    }

    fn inspects(&self) -> bool {
        self.plans.iter().flatten().any(|plan| plan.inspects_messages())
    }
}

/// A request where policies may look at it, its type as it was sent, and as the server has it.
struct Looked {
    shown: Shown,
    sent: MessageType,
    served: Option<MessageType>,
}

/// Whether policies may stand in a method's way: the operator must not be able to lock himself out.
pub(crate) fn is_policed(path: &str) -> bool {
    !is_own_service(path.trim_start_matches('/'))
}

/// Adds to an opening's metadata the pairs policies add.
fn add_metadata(opening: &mut Item<'_>, added: &[(String, Vec<u8>)]) -> Result<(), Fault> {
    let Item::Open { metadata, .. } = opening else { return Ok(()) };
    if added.is_empty() {
        return Ok(());
    }
    // What came with the call was checked when it came.
    let mut all = Metadata::decode(metadata).unwrap_or_default();
    let fits = added.iter().try_for_each(|(key, value)| all.insert(key, value));
    if fits.is_err() {
        let limit = Metadata::BYTES_MAX as u64;
        return Err(Fault::Limit { name: "bytes of metadata with what policies add (fixed)", limit });
    }
    let mut encoded = Vec::with_capacity(all.encoded_len());
    all.encode(&mut encoded);
    *metadata = Cow::Owned(encoded);
    Ok(())
}

/// A policy's encoding, as gRPC has it.
fn encoding_of(name: EncodingName) -> Encoding {
    match name {
        EncodingName::Identity => Encoding::Identity,
        EncodingName::Gzip => Encoding::Gzip,
        EncodingName::Deflate => Encoding::Deflate,
        EncodingName::Zstd => Encoding::Zstd,
    }
}

pub(crate) fn denied(rejection: Rejection) -> Fault {
    let Rejection { policy, code, why, .. } = rejection;
    Fault::Denied { policy, code, why }
}
