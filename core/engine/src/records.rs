//! The books of calls that are over: what telemetry is told of each, whoever ended it.
//!
//! Every call that had a method is in the books once: as *made* for an application or a client of the gateway of this
//! host, as *served* for another host, and as *attempt* beside its call where that may take several. Who waits for an
//! answer says when it has it; a call that was cancelled, whose caller died or whose deadline passed ends here and now,
//! with the stamps it has.

use crate::admission::{AdmissionControl, CallPolicies};
use crate::attempts::CallAttempts;
use crate::call::{Call, Calls, ClientEnd, Direction};
use crate::due::Due;
use crate::ended::EndedCall;
use crate::grpc::GrpcEnds;
use crate::peers::PeerEnds;
use crate::plant::Plant;
use crate::r2p2::{Named, R2p2};
use crate::registry::Registry;
use crate::sessions::SessionEnds;
use crate::source::CallSources;
use crate::{CallKey, SessionKey};
use trunkline_call::{ClientStamps, Code, Instant, Pattern, ServerStamps, TimerTable, TraceParent};
use trunkline_telemetry::{CallTrace, PeerIndex, Record, Side, TaxStage, Telemetry, UnaryCall, tax_stage};

/// An application can have waited for so long before its call was there: for a daemon, or for room.
const BEFORE_NS_MAX: u64 = 600_000_000_000;

/// A stamp of an application from before its call was there. One of long ago is none: a single call would outweigh all
/// others of its method.
pub(crate) fn lately(said: Instant, now: Instant) -> Instant {
    let is_taken = said != Instant::default();
    if is_taken { said.max(Instant(now.0.saturating_sub(BEFORE_NS_MAX))) } else { said }
}

/// The books, lent for the record of a call.
pub(crate) struct CallRecorder<'e> {
    pub telemetry: &'e mut Telemetry,
    pub registry: &'e Registry,
    pub plant: &'e Plant,
}

/// Those who are told that a call is over, beside its ends: the books, its policies, the access log.
pub(crate) struct CallBooks<'e> {
    pub recorder: CallRecorder<'e>,
    pub sessions: &'e SessionEnds,
    pub peers: &'e PeerEnds,
    pub grpc: &'e GrpcEnds,
    pub r2p2: &'e mut R2p2,
    pub admission: &'e mut AdmissionControl,
    pub timers: &'e mut TimerTable<Due>,
}

/// How far an attempt is, and where.
type Progress = (ClientStamps, PeerIndex);

impl CallBooks<'_> {
    /// A call from another host was answered, by its handler or by this daemon.
    pub fn served(&mut self, now: Instant, key: CallKey, call: &mut Call, code: Code) {
        self.end_policies(now, key, call, code);
        if call.is_forwarded() {
            // Made here for somebody who keeps no time: it ends where it leaves.
            call.outcome = Some(code);
            call.answer_goes(now);
            call.client_stamps.a18 = now;
            return self.recorder.made(now, call);
        }
        close(&mut call.server_stamps, now);
        let peer = match &call.client {
            ClientEnd::Peer { peer, .. } => self.peers.find(*peer).map(|peer| peer.telemetry),
            ClientEnd::Grpc { peer, .. } => self.grpc.find(*peer).map(|peer| peer.telemetry),
            ClientEnd::R2p2 { request } => {
                let client = Named::Client(*request.client().ip());
                Some(self.r2p2.number(client, self.recorder.telemetry))
            }
            ClientEnd::Session { .. }
            | ClientEnd::Attempt { .. }
            | ClientEnd::Mirror { .. }
            | ClientEnd::Shard { .. } => return,
        };
        self.recorder.served(now, call, peer.unwrap_or(PeerIndex::OTHER), code);
    }

    /// Nobody takes the end of a call: it was cancelled, its caller is gone, or another attempt was faster. Of its own
    /// attempts, if any are under way, the `first` is so far.
    pub fn abandoned(
        &mut self,
        now: Instant,
        key: CallKey,
        call: &mut Call,
        code: Code,
        first: Option<Progress>,
    ) {
        self.end_policies(now, key, call, code);
        match call.client {
            ClientEnd::Session { .. } => {
                if call.outcome.is_none() {
                    call.outcome = Some(code);
                    call.server_measured |= call.ends_at_server(now);
                    call.comes_as_far_as(first);
                    end_at(&mut call.client_stamps, now);
                }
                self.recorder.made(now, call);
            }
            ClientEnd::Attempt { .. } => self.recorder.attempt(now, call, code),
            ClientEnd::Peer { .. } | ClientEnd::Grpc { .. } | ClientEnd::R2p2 { .. } => {
                call.comes_as_far_as(first);
                self.served(now, key, call, code);
            }
            // A copy is nobody's; of a call from another shard that shard knows.
            ClientEnd::Mirror { .. } | ClientEnd::Shard { .. } => {}
        }
    }

    /// A call has ended with `code`: what it held is free, and its line is written.
    #[inline]
    pub fn end_policies(&mut self, now: Instant, key: CallKey, call: &mut Call, code: Code) {
        if let Some(policies) = call.policies.take() {
            self.dismiss(now, key, call, policies, code);
        }
    }

    #[inline(never)]
    fn dismiss(&mut self, now: Instant, key: CallKey, call: &Call, policies: Box<CallPolicies>, code: Code) {
        let Self { recorder, sessions, peers, grpc, admission, timers, .. } = self;
        let is_logged = policies.is_logged();
        for half in [&call.request, &call.response] {
            if let Some(cost_ns) = half.turn_cost_ns() {
                admission.pacer().give_back(cost_ns);
            }
        }
        if let Some(timer) = admission.dismiss(key.to_bits(), policies, Some((now, code))) {
            timers.cancel(timer);
        }
        let sources = CallSources { sessions, peers, grpc };
        if is_logged
            && admission.logs()
            && let Some(record) = sources.access_record(now, call, recorder.registry, code)
        {
            admission.log(record);
        }
    }
}

impl CallRecorder<'_> {
    // LIFE: 22
    /// A call made here is over, from the first stamp to the last.
    pub fn made(&mut self, now: Instant, call: &Call) {
        let code = call.outcome.unwrap_or(Code::Unknown);
        let (peer, stamps) = (call.peer_index, &call.client_stamps);
        let took_ns = stamps.a18.min(now).0.wrapping_sub(stamps.a0.0);
        if self.passes_over(now, call, (Side::Made, peer, code), took_ns) {
            return;
        }
        let record = self.record_of(call, Side::Made, peer, code);
        let is_attempt = call.attempt_began != Instant::default();
        let traced =
            traced(call).map(|ids| CallTrace { attempt: if is_attempt { 0 } else { ids.attempt }, ..ids });
        self.enter(now, &record, traced);
        if is_attempt {
            self.attempt(now, call, code);
        }
    }

    fn served(&mut self, now: Instant, call: &Call, peer: PeerIndex, code: Code) {
        let took_ns = call.server_stamps.k14.0.wrapping_sub(call.server_stamps.k7.0);
        if !self.passes_over(now, call, (Side::Served, peer, code), took_ns) {
            let record = self.record_of(call, Side::Served, peer, code);
            self.enter(now, &record, traced(call));
        }
    }

    /// An attempt is over: it failed, another was faster, or its answer is the call's.
    pub fn attempt(&mut self, now: Instant, call: &Call, code: Code) {
        let mut record = self.record_of(call, Side::Attempt, call.peer_index, code);
        let (began, stamps) = (call.attempt_began, &mut record.client);
        // What the call did before is not this attempt's.
        (stamps.a0, stamps.a1, stamps.d2) = (began, began, began);
        stamps.wait_ns = stamps.wait_ns.saturating_sub(call.attempt_waited_ns);
        end_at(stamps, now);
        self.enter(now, &record, traced(call));
    }

    fn record_of(&self, call: &Call, side: Side, peer: PeerIndex, code: Code) -> Record {
        let is_told = side == Side::Served || call.server_measured;
        Record {
            side,
            method: self.registry.number(call.method),
            peer,
            code,
            request_bytes: call.request.bytes,
            response_bytes: call.response.bytes,
            client: call.client_stamps,
            server: is_told.then_some(call.server_stamps),
            is_stream: is_stream(call),
        }
    }

    /// Whether a call needs no record of its own: nothing is recorded, or another stands for it.
    #[inline]
    fn passes_over(
        &mut self,
        now: Instant,
        call: &Call,
        (side, peer, code): (Side, PeerIndex, Code),
        total_ns: u64,
    ) -> bool {
        if !is_plain(call, code) {
            return false;
        }
        let (method, bytes) = (self.registry.number(call.method), [call.request.bytes, call.response.bytes]);
        let _telemetry = tax_stage(TaxStage::Telemetry);
        let call = UnaryCall { side, method, peer, total_ns, bytes };
        self.plant.unrecorded || self.telemetry.passes_over(now, &call)
    }

    fn enter(&mut self, now: Instant, record: &Record, traced: Option<CallTrace>) {
        let _telemetry = tax_stage(TaxStage::Telemetry);
        match traced {
            _ if self.plant.unrecorded => {}
            None => self.telemetry.record(now, record),
            Some(ids) => self.telemetry.record_traced(now, record, ids),
        }
    }
}

/// How far the first of a call's attempts is, while they are under way.
pub(crate) fn progress_of_attempts(calls: &Calls, attempts: Option<&CallAttempts>) -> Option<Progress> {
    let first = calls.find(*attempts?.live.first()?)?;
    Some((first.client_stamps, first.peer_index))
}

/// A call that ends before its handler does, as it is remembered: what that took is the call's all the same. `None` if
/// nobody asks.
pub(crate) fn awaited_handler(
    (peers, grpc, registry): (&PeerEnds, &GrpcEnds, &Registry),
    call: &Call,
    session: SessionKey,
    code: Code,
) -> Option<EndedCall> {
    let (side, peer) = match call.client {
        ClientEnd::Session { .. } => (Side::Made, Some(call.peer_index)),
        ClientEnd::Peer { peer, .. } => (Side::Served, peers.find(peer).map(|peer| peer.telemetry)),
        ClientEnd::Grpc { peer, .. } => (Side::Served, grpc.find(peer).map(|peer| peer.telemetry)),
        // Of calls over R2P2 and from other shards it is not asked: they are known by other names there.
        ClientEnd::R2p2 { .. }
        | ClientEnd::Attempt { .. }
        | ClientEnd::Mirror { .. }
        | ClientEnd::Shard { .. } => return None,
    };
    let (method, peer) = (registry.number(call.method), peer.unwrap_or(PeerIndex::OTHER));
    Some(EndedCall { session, side, method, peer, code })
}

/// A handler says what it took for a call that is over.
pub(crate) fn note_late_handler(telemetry: &mut Telemetry, ended: &EndedCall, cpu_ns: u64) {
    let EndedCall { side, method, peer, code, .. } = *ended;
    telemetry.note_failed_cpu((side, method, peer), code, cpu_ns);
}

/// Whether a call streams: as its types say, and if they are not known, as its messages do.
pub(crate) fn is_stream(call: &Call) -> bool {
    match call.types_sent(Direction::Request).or_else(|| call.types_sent(Direction::Response)) {
        Some(types) if !types.input.is_opaque() => types.pattern != Pattern::Unary,
        _ => call.response.is_of_stream || call.request.messages > 1 || call.response.messages > 1,
    }
}

/// Whether a call is like most: where calls come fast, others can stand for it.
fn is_plain(call: &Call, code: Code) -> bool {
    let is_attempt = call.attempt_began != Instant::default();
    let is_traced =
        call.spans.is_some() || call.trace.as_ref().is_some_and(|trace| trace.sampled().is_some());
    code == Code::Ok && !is_attempt && !is_traced && !is_stream(call)
}

/// The spans of a call; without any, where it belongs if its trace is sampled.
fn traced(call: &Call) -> Option<CallTrace> {
    let Some(spans) = call.spans.as_deref() else {
        let TraceParent { trace, span, .. } = call.trace.as_ref()?.sampled()?;
        return Some(CallTrace { trace, parent: span, ..CallTrace::default() });
    };
    Some(*spans)
}

/// The end of a call whose application does not say when it took it.
fn end_at(stamps: &mut ClientStamps, now: Instant) {
    if stamps.a18 == Instant::default() {
        // There is one already if an answer waits for its reader.
        stamps.d17 = if stamps.d17 == Instant::default() { now } else { stamps.d17 };
        stamps.a18 = now;
    }
}

/// The end of a call that its handler did not answer. One that was not delivered waited until now, and one that was
/// is the handler's.
fn close(stamps: &mut ServerStamps, now: Instant) {
    if stamps.k14 == Instant::default() {
        stamps.k14 = now;
    }
    if stamps.d12 != Instant::default() {
        return;
    }
    stamps.d12 = now;
    if stamps.d9 == Instant::default() {
        (stamps.a10, stamps.a11) = (now, now);
    }
}
