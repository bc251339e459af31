//! The owner of the chain of policies: judges calls, and remembers what outlives the moment.

use super::access_log::{AccessLog, AccessRecord};
use super::bound_plans::{BoundMethods, BoundPlans, ChainExchange, ChainFit, MethodSubject};
use super::call_policies::{CallPolicies, Enqueued, SparePolicies};
use super::inspection::Inspection;
use super::pacing::Pacer;
use crate::Heaps;
use crate::call::{Direction, Item};
use crate::convert_error::conversion_fault;
use crate::registry::MessageType;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use trunkline_call::{Code, Deadline, Fault, Instant, Metadata, MetadataWriter, TimerKey, VouchedCaller};
use trunkline_grpc::compress::Encoding;
use trunkline_message::View;
use trunkline_message::transcode::DecodeLimits;
use trunkline_policy::{
    Admission, Chain, EncodingName, ExportedModule, Inputs, Mirror, Module, Modules, Permits, PlaceNotice,
    Plan, Policies, PolicyError, PolicyRow, PolicySet, Rejection, Ticket, Verdict,
};
use trunkline_schema::Schema;
use trunkline_share::{CountShare, HostLimits};

/// Misfits kept for the host. More than the host has room for would only say the same again.
const MISFITS_MAX: usize = 64;

/// The chain of policies and what it works with.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    policies: Policies,
    misfits: VecDeque<PolicyError>,
    /// Absent while a message is looked at.
    inspection: Option<Box<Inspection>>,
    spare: SparePolicies,
    access_log: AccessLog,
    pacer: Pacer,
    /// Bytes of copies under way.
    copied: CountShare,
    /// The limits of the host, and which of its shards this is.
    host: Option<(Arc<HostLimits>, u16)>,
    /// Counts exchanges of the chain, from 1.
    version: u64,
}

/// What policies may know of a call, as those tell who own it. Where no policy asks, nobody is asked for it.
#[derive(Default)]
pub(crate) struct CallFacts<'a> {
    /// The applications that make and serve it; empty where it is none of this host.
    pub applications: [&'a str; 2],
    /// The address of the peer that makes it, if a peer does.
    pub peer_address: Cow<'a, str>,
    /// Who its maker has proved to be.
    pub peer_identity: &'a str,
    /// The application that makes it, on this host or by the word of another's daemon.
    pub caller: Option<&'a VouchedCaller>,
    /// `/package.Service/Method`
    pub path: &'a str,
    pub deadline: Deadline,
    /// The request's type as it was sent, and as the server has it; not asked for unless a policy reads messages.
    pub types: [Option<MessageType>; 2],
}

/// What an admitted call is bound to from now on, besides what is kept with it.
#[derive(Debug)]
pub(crate) struct AdmittedTerms {
    /// To be kept with the call, if anything is.
    pub kept: Option<Box<CallPolicies>>,
    /// How its request is compressed, if a policy says so.
    pub encoding: Option<Encoding>,
}

/// What came of a chain that was to take another's place.
#[derive(Debug)]
pub(crate) enum ExchangedChain {
    /// It has, and these are the plans to be put in their places.
    Made(BoundPlans),
    /// It was only tried.
    Tried(ChainFit),
}

/// A call may not go on.
#[derive(Debug)]
pub(crate) struct Denied {
    pub fault: Fault,
    /// Its end is to be logged.
    pub log: bool,
}

impl From<Fault> for Denied {
    fn from(fault: Fault) -> Self {
        Self { fault, log: false }
    }
}

impl From<Rejection> for Denied {
    fn from(rejection: Rejection) -> Self {
        let Rejection { policy, code, why, log } = rejection;
        Self { fault: Fault::Denied { policy, code, why }, log }
    }
}

impl AdmissionControl {
    /// No policies.
    pub fn new(seed: u64) -> Self {
        Self {
            policies: Policies::new(seed),
            misfits: VecDeque::new(),
            inspection: None,
            spare: SparePolicies::default(),
            access_log: AccessLog::default(),
            pacer: Pacer::default(),
            copied: CountShare::default(),
            host: None,
            version: 1,
        }
    }

    /// Which chain is at work here: another number for each.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn seed(&mut self, seed: u64) {
        self.policies.seed(seed);
    }

    /// This is one of several shards, by this number among them: limits count for all.
    pub fn share(&mut self, limits: &Arc<HostLimits>, own: u16) {
        self.policies.share(limits, own);
        self.copied.join(&limits.count("limits.mirror_bytes"));
        self.host = Some((Arc::clone(limits), own));
    }

    /// Goes on with policies that were handed over.
    pub fn take_up(&mut self, policies: Policies) {
        self.policies = policies;
        self.version += 1;
        self.pacer.begin_anew(self.policies.chain().batch_rate_min());
        if let Some((limits, own)) = &self.host {
            self.policies.share(limits, *own);
        }
    }

    /// Whether the policies of another shard are to be told anything.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.policies.has_notices()
    }

    /// What the policies of another shard are to be told.
    pub fn poll_notice(&mut self) -> Option<PlaceNotice> {
        self.policies.poll_notice()
    }

    /// What those of another shard tell these.
    pub fn handle_notice(&mut self, policy: &str, is_wanted: bool) {
        self.policies.handle_notice(policy, is_wanted);
    }

    /// What is handed over.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    pub fn chain(&self) -> &Chain {
        self.policies.chain()
    }

    /// The same, to have it compiled for methods.
    pub fn chain_mut(&mut self) -> &mut Chain {
        self.policies.chain_mut()
    }

    /// Puts a chain in the place of the one at work, if its new policies fit what is `bound`, and what they are asked
    /// about by `fits_told`; or only says what of them does. Returns which modules were upgraded, in words, and the
    /// plans that are to be put in their places.
    ///
    /// # Errors
    /// [`PolicyError`]; nothing has changed then.
    pub fn exchange(
        &mut self,
        chain: Chain,
        modules: Modules,
        how: ChainExchange,
        bound: &BoundMethods<'_>,
        fits_told: impl FnOnce(&mut Chain, PolicySet) -> Result<(), PolicyError>,
    ) -> Result<(Vec<String>, ExchangedChain), PolicyError> {
        let mut staged = self.policies.stage(chain, modules)?;
        let news = staged.news();
        let (plans, misfits, mut fit) = bound.plan(staged.chain_mut(), news);
        fit.note_told(fits_told(staged.chain_mut(), news));
        let fits = if how == ChainExchange::IfFits { fit.refuse() } else { Ok(()) };
        if fits.is_ok() && how != ChainExchange::Trial {
            misfits.into_iter().for_each(|misfit| self.note_misfit(Some(misfit)));
            self.version += 1;
            if staged.changes_priorities() {
                self.pacer.begin_anew(staged.chain_mut().batch_rate_min());
            }
            return Ok((self.policies.commit(staged), ExchangedChain::Made(plans)));
        }
        let upgraded = staged.upgraded().to_vec();
        self.policies.abandon(staged);
        fits.map(|()| (upgraded, ExchangedChain::Tried(fit)))
    }

    /// What of the chain at work applies to a method that is bound. If a policy does not fit it, the host is told.
    pub fn plan(&mut self, method: &MethodSubject<'_>) -> Option<Arc<Plan>> {
        let (plan, misfit) = method.plan(self.policies.chain_mut());
        self.note_misfit(misfit);
        plan
    }

    /// What of it applies to each of these.
    pub fn plan_all(&mut self, bound: &BoundMethods<'_>) -> BoundPlans {
        let called = bound.called.iter().map(|method| self.plan(method)).collect();
        let served = bound.served.iter().map(|method| self.plan(method)).collect();
        BoundPlans { called, served }
    }

    /// Says for the host to log that a policy names a method that a service in `schema` does not have.
    pub fn note_misnamed(&mut self, schema: &Schema) {
        let services: Vec<_> = schema.services().iter().collect();
        let misnamed = self.policies.chain().methods_named(&services).misnamed;
        self.note_misfit(misnamed.into_iter().next());
    }

    /// Notes for the host to log that a policy does not fit a method.
    pub fn note_misfit(&mut self, misfit: Option<PolicyError>) {
        if self.misfits.len() < MISFITS_MAX {
            self.misfits.extend(misfit);
        }
    }

    pub fn poll_misfit(&mut self) -> Option<PolicyError> {
        self.misfits.pop_front()
    }

    pub fn take_retired_modules(&mut self) -> Vec<Box<dyn Module>> {
        self.policies.take_retired()
    }

    pub fn poll_ejected_module(&mut self) -> Option<PolicyError> {
        self.policies.poll_ejected()
    }

    pub fn export_modules(&self) -> (Vec<ExportedModule>, Vec<PolicyError>) {
        self.policies.export_modules()
    }

    pub fn import_modules(&mut self, exported: &[ExportedModule]) -> Vec<PolicyError> {
        self.policies.import_modules(exported)
    }

    pub fn rows(&self) -> Vec<PolicyRow> {
        self.policies.rows()
    }

    /// Has a plan apply to a call, on one of its sides.
    #[inline]
    pub fn apply(&mut self, to: &mut Option<Box<CallPolicies>>, side: usize, plan: Option<Arc<Plan>>) {
        let Some(plan) = plan else { return };
        let policies = to.get_or_insert_with(|| self.spare.take());
        policies.plans[side] = Some(plan);
    }

    /// Has this plan, and no other, apply to a call that has waited since it was made.
    pub fn apply_anew(&mut self, to: &mut Option<Box<CallPolicies>>, plan: Option<Arc<Plan>>) {
        if let Some(policies) = to {
            policies.plans = [None, None];
        }
        self.apply(to, 0, plan);
    }

    /// Takes the buffers for the next message that is looked at; to be [put back](AdmissionControl::put_back).
    pub fn take_inspection(&mut self) -> Box<Inspection> {
        self.inspection.take().unwrap_or_default()
    }

    /// For the next message that is looked at.
    #[inline]
    pub fn put_back(&mut self, mut inspection: Box<Inspection>) {
        inspection.trim();
        self.inspection = Some(inspection);
    }

    /// Takes the decision about an item: one look at its message for both sides' policies, with `inspection` if any of
    /// them wants one. The message that was looked at is the item's from then on.
    ///
    /// # Errors
    /// The first refusal, or what is wrong with the message. What was said before it is worth nothing.
    #[allow(
        clippy::too_many_arguments,
        reason = "the item, what is known of it, and where it may be looked at"
    )]
    // LIFE: 7
    pub fn judge<'i>(
        &mut self,
        now: Instant,
        heaps: &mut dyn Heaps,
        limits: &DecodeLimits,
        policies: &CallPolicies,
        facts: &CallFacts<'_>,
        item: &mut Item<'i>,
        mut inspection: Option<&'i mut Inspection>,
        admission: &mut Admission,
    ) -> Result<(), Denied> {
        let of_message = |error| Denied::from(conversion_fault(error, Direction::Request));
        let [sent, served] = &facts.types;
        let looked = match (inspection.as_deref_mut(), item.body(), sent) {
            (Some(inspection), Some(body), Some(sent)) => {
                let inspected = inspection.inspect(heaps, limits, sent, body).map_err(of_message)?;
                Some((inspected, sent))
            }
            _ => None,
        };
        for (side, plan) in policies.plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let looked = looked.filter(|_| plan.needs_message());
            let view = match (looked.zip(inspection.as_deref_mut()), served) {
                (None, _) => View::EMPTY,
                (Some(((inspected, sent), inspection)), Some(served))
                    if side == 1 && sent.fingerprint != served.fingerprint =>
                {
                    let looked = item.body().map(|body| (inspected, body));
                    let received =
                        looked.map(|looked| inspection.as_received(heaps, limits, looked, sent, served));
                    match received.transpose() {
                        Ok(view) => view.unwrap_or(View::EMPTY),
                        Err(error) => {
                            self.policies.release(std::mem::take(&mut admission.permits));
                            return Err(of_message(error));
                        }
                    }
                }
                (Some(((inspected, _), inspection)), _) => inspection.view(heaps, inspected),
            };
            self.ask(now, plan, policies, facts, facts.applications[side], item, view, admission)?;
        }
        if let Some(inspection) = inspection.filter(|_| looked.is_some()) {
            inspection.seal(item);
        }
        Ok(())
    }

    /// Asks policies that [only refuse](CallPolicies::only_refuse) about a call that begins, whose message is `request`
    /// if they look at it. They are through with it.
    ///
    /// # Errors
    /// The first refusal.
    pub fn permit(
        &mut self,
        now: Instant,
        policies: Box<CallPolicies>,
        opening: &Item<'_>,
        request: View<'_>,
    ) -> Result<(), Denied> {
        let metadata: &[u8] = if let Item::Open { metadata, .. } = opening { metadata } else { &[] };
        let body_bytes = opening.body().map(|body| u64::from(body.len()));
        let inputs = Inputs {
            request,
            metadata,
            path: "",
            application: "",
            peer_identity: "",
            caller: None,
            peer_address: "",
            deadline: Deadline::NONE,
            request_bytes: body_bytes.unwrap_or(0),
        };
        for plan in policies.plans.iter().flatten() {
            let message = body_bytes.is_some() || !plan.client_streams();
            self.policies.permit(plan, now, &inputs, message)?;
        }
        // Nothing was remembered of the call.
        self.spare.keep_unused(policies);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "what the inputs of a plan are put together from")]
    fn ask(
        &mut self,
        now: Instant,
        plan: &Plan,
        policies: &CallPolicies,
        facts: &CallFacts<'_>,
        application: &str,
        item: &Item<'_>,
        request: View<'_>,
        admission: &mut Admission,
    ) -> Result<(), Rejection> {
        let metadata = match item {
            Item::Open { metadata, .. } => metadata,
            _ => &*policies.metadata,
        };
        let inputs = Inputs {
            request,
            metadata,
            path: facts.path,
            application,
            peer_identity: facts.peer_identity,
            caller: facts.caller,
            peer_address: &facts.peer_address,
            deadline: facts.deadline,
            request_bytes: item.body().map_or(0, |body| body.len().into()),
        };
        if !matches!(item, Item::Open { .. }) {
            return self.policies.inspect(plan, now, &inputs);
        }
        let message = item.body().is_some() || !plan.client_streams();
        self.policies.admit(plan, now, &inputs, message, admission)
    }

    /// Notes what policies have said about a call that may go on. `queue` books the time until which it waits at most.
    pub fn settle(
        &mut self,
        now: Instant,
        token: u64,
        mut policies: Box<CallPolicies>,
        admission: &mut Admission,
        opening: &Item<'_>,
        queue: impl FnOnce(Instant) -> TimerKey,
    ) -> AdmittedTerms {
        policies.permits = std::mem::take(&mut admission.permits);
        policies.log = admission.log;
        policies.class = admission.class;
        policies.ends = admission.ends.take().map(Box::new);
        if policies.ends.is_some() {
            admission.mirrors.clear();
        }
        policies.held_until = (admission.delay_ns > 0).then(|| now.plus_ns(admission.delay_ns));
        policies.queued = admission.ticket.map(|ticket| {
            self.policies.enqueue(now, ticket, token);
            let until = now.plus_ns(self.policies.waits_ns(ticket).saturating_add(1));
            Enqueued { ticket, timer: queue(until) }
        });
        if let Item::Open { metadata, .. } = opening
            && policies.inspects_messages()
        {
            policies.metadata = metadata.as_ref().into();
        }
        // Nearly always nothing is kept: the next call then finds this memory still in the cache.
        let kept = if policies.is_idle() {
            self.spare(policies);
            None
        } else {
            Some(policies)
        };
        AdmittedTerms { kept, encoding: admission.encoding.map(encoding_of) }
    }

    /// A call that was judged has ended meanwhile.
    pub fn release(&mut self, permits: Permits) {
        self.policies.release(permits);
    }

    /// Policies are through with a call, and are told how it ended, if somebody knows: what they hold for it is free,
    /// and the memory is the next call's. Returns the timer of its time in a queue.
    pub fn dismiss(
        &mut self,
        token: u64,
        mut policies: Box<CallPolicies>,
        end: Option<(Instant, Code)>,
    ) -> Option<TimerKey> {
        let queued = policies.queued.take();
        if let Some(queued) = &queued {
            self.policies.leave(queued.ticket, token);
        }
        let permits = std::mem::take(&mut policies.permits);
        match end {
            Some((now, code)) => self.policies.finish(now, permits, code),
            None => self.policies.release(permits),
        }
        self.spare(policies);
        queued.map(|queued| queued.timer)
    }

    /// What policies had to do with a call is done: the memory is the next call's.
    pub fn spare(&mut self, policies: Box<CallPolicies>) {
        self.spare.keep(policies);
    }

    /// Whether calls that wait in queues are to be looked at.
    #[inline]
    pub fn may_serve_queues(&self) -> bool {
        self.policies.may_serve()
    }

    /// What becomes of the next call that waits in a queue, now that others have ended.
    #[inline]
    pub fn poll_queues(&mut self, now: Instant) -> Option<Verdict> {
        self.policies.serve(now)
    }

    /// What becomes of a call that has waited in a queue as long as it may.
    pub fn late(&mut self, now: Instant, ticket: Ticket, token: u64) -> Verdict {
        self.policies.late(now, ticket, token)
    }

    /// The calls of class *batch*, in turn while somebody waits for others.
    pub fn pacer(&mut self) -> &mut Pacer {
        &mut self.pacer
    }

    /// Bytes of copies under way.
    pub fn copied_bytes(&self) -> usize {
        self.copied.used() as usize
    }

    /// Lets a copy of so many bytes begin, if its policy lets it, there is room, and somewhere to send it; else the
    /// policy has left one out. Its bytes are [counted](AdmissionControl::count_copy) once they are there.
    pub fn begin_copy<T>(
        &mut self,
        mirror: &Mirror,
        bytes: u32,
        bytes_max: usize,
        target: impl FnOnce() -> Option<T>,
    ) -> Option<(T, Permits)> {
        let has_room = self.copied.reserve(bytes.into(), bytes_max as u64);
        let target = if has_room { target() } else { None };
        let begun = target.and_then(|target| Some((target, self.policies.begin_mirror(mirror)?)));
        if begun.is_none() {
            self.policies.leave_out_mirror(mirror);
        }
        begun
    }

    /// A copy has these bytes until it is [forgotten](AdmissionControl::forget_copy).
    pub fn count_copy(&mut self, bytes: u32) {
        self.copied.hold(bytes.into());
    }

    /// How a copy ended.
    pub fn end_copy(&mut self, now: Instant, permits: Permits, code: Code) {
        self.policies.end_mirror(now, permits, code);
    }

    /// So many bytes of copies are free again.
    pub fn forget_copy(&mut self, bytes: u32) {
        self.copied.give_back(bytes.into());
    }

    /// Whether another line has room in the access log.
    pub fn logs(&self) -> bool {
        self.access_log.has_room()
    }

    pub fn log(&mut self, record: AccessRecord) {
        self.access_log.push(record);
    }

    pub fn poll_access_record(&mut self) -> Option<AccessRecord> {
        self.access_log.poll()
    }
}

/// Adds to an opening's metadata the pairs policies add. A key that they add has no values of the caller's any more:
/// who reads the first would read what the caller wants.
///
/// # Errors
/// There is no room for them.
pub(crate) fn add_metadata(opening: &mut Item<'_>, added: &[(String, Vec<u8>)]) -> Result<(), Fault> {
    let Item::Open { metadata, .. } = opening else { return Ok(()) };
    if added.is_empty() {
        return Ok(());
    }
    // What came with the call was checked when it came.
    let added_bytes = added.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    let is_added = |key: &str| added.iter().any(|(added, _)| added == key);
    let mut all = MetadataWriter::behind_others(metadata, added_bytes, is_added).unwrap_or_default();
    let fits = added.iter().try_for_each(|(key, value)| all.insert(key, value));
    if fits.is_err() {
        let limit = Metadata::BYTES_MAX as u64;
        return Err(Fault::Limit { name: "bytes of metadata with what policies add (fixed)", limit });
    }
    *metadata = Cow::Owned(all.into_bytes());
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
