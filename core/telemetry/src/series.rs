//! What is counted for one (side, method, peer).

use crate::batch::{Batch, Uncounted};
use crate::component::{Component, Components, Coverage};
use crate::flight::Flight;
use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};
use trunkline_call::Code;

/// Counters and histograms of one (side, method, peer), over every call. On a busy shard ordinary calls are counted by
/// one of eight that [stands](crate::FlightRow::stands_for) for them; the number of calls by status and their bytes are
/// exact at any rate.
///
/// A call whose peer sent no stamps counts in the four components its client measured and in [`Series::remote`]; the
/// others hold only calls that were measured there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Calls by status, indexed by gRPC code number.
    pub codes: [u64; CODES],
    /// Nanoseconds per component, indexed by [`Component`].
    pub components: [Histogram; Component::COUNT],
    /// Both wires and the server in one lump, of calls whose peer sent no stamps.
    pub remote: Histogram,
    /// Completion time.
    pub total: Histogram,
    /// Between the server's kernel and its daemon; part of the request stack.
    pub request_wakeup: Histogram,
    /// Between the client's kernel and its daemon; part of the response stack.
    pub response_wakeup: Histogram,
    /// Request message bytes.
    pub request_bytes: Histogram,
    /// Response message bytes.
    pub response_bytes: Histogram,
    /// Calls whose peer sent no stamps: five of nine measured.
    pub client_only: u64,
    /// Calls whose server claimed more time than there was.
    pub clipped: u64,
    /// Calls that never left this host: seven of seven measured.
    pub one_host: u64,
    /// Calls that ended before they were handed to anybody.
    pub stayed: u64,
    /// Calls in which the kernel said when the last byte left this host (k6).
    pub kernel_stamped: u64,
    /// Processor time of handlers that told it, in nanoseconds.
    pub cpu: Histogram,
    /// The part of it that went into calls that ended with anything but OK.
    pub failed_cpu_ns: u64,
    /// Calls below one call, itself included, of calls whose handlers made any.
    pub subtree: Histogram,
    /// Sum of clock offset half-widths, for their mean.
    pub half_width_ns: u64,
    /// Calls that came before anything was known of the other host's clock: they are not in that sum.
    #[serde(default)]
    pub clock_unknown: u64,
    /// Streams: they are in `codes`, in sizes and in processor time, and in nothing else that is told here of calls.
    #[serde(default)]
    pub streams: u64,
    /// How long they took.
    #[serde(default)]
    pub stream_total: Histogram,
}

/// What is counted of one call.
#[derive(Debug)]
pub(crate) struct Counted {
    pub code: Code,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub parts: Components,
    /// Their sum.
    pub total_ns: u64,
    pub half_width_ns: u64,
    /// Processor time of its handler; 0 if that was not told.
    pub cpu_ns: u64,
    /// Calls below it, itself included.
    pub subtree: u32,
    /// It streamed.
    pub is_stream: bool,
}

/// Number of gRPC status codes.
pub const CODES: usize = Code::ALL.len();

impl Series {
    /// Counts calls of a batch that are of this series and have one coverage, each for those it stands for. Histogram
    /// by histogram, because each has cache lines of its own: call by call they would all be fetched for each.
    pub(crate) fn record_batch(
        &mut self,
        batch: &Batch<'_>,
        calls: impl Iterator<Item = u8> + Clone,
        (coverage, is_stream): (Coverage, bool),
    ) {
        let sums = batch.sums(calls.clone());
        self.note_coverage(coverage, is_stream, sums.calls);
        if sums.bits & (Flight::CODE | Flight::CLIPPED | Flight::KERNEL_SENT) == 0 {
            self.codes[0] += sums.calls;
        } else {
            for (flight, weight) in
                calls.clone().filter_map(|call| Some((batch.flight(call)?, batch.weight(call))))
            {
                self.codes[usize::from(flight.code())] += weight;
                self.clipped += u64::from(flight.bits & Flight::CLIPPED != 0) * weight;
                self.kernel_stamped += u64::from(flight.bits & Flight::KERNEL_SENT != 0) * weight;
            }
        }
        if sums.handlers != 0 {
            for (flight, weight) in
                calls.clone().filter_map(|call| Some((batch.flight(call)?, batch.weight(call))))
            {
                let subtree = if is_stream { 0 } else { flight.subtree };
                self.note_handler(Code::from_number(flight.code()), flight.cpu_ns.into(), subtree, weight);
            }
        }
        if !is_stream {
            self.half_width_ns = self.half_width_ns.saturating_add(sums.half_width_ns);
        }
        for (amount, sum) in sums.amounts.into_iter().enumerate() {
            if let Some(histogram) = self.histogram(coverage, is_stream, amount) {
                let value = |call| batch.flight(call).map_or(0, |flight| flight.amounts[amount]);
                histogram.record_by(calls.clone().map(|call| (value(call).into(), batch.weight(call))), sum);
            }
        }
        for (wakeup, sum) in sums.wakeups_ns.into_iter().enumerate() {
            if let Some(histogram) = self.histogram(coverage, is_stream, Batch::REQUEST_WAKEUP + wakeup) {
                let values = calls.clone().map(|call| (batch.wakeup_ns(call, wakeup), batch.weight(call)));
                histogram.record_by(values, sum);
            }
        }
    }

    /// Counts the bytes of calls that others stand for in everything else.
    pub(crate) fn note_passed_bytes(&mut self, [request, response]: [u64; 2]) {
        self.request_bytes.add_sum(request);
        self.response_bytes.add_sum(response);
    }

    /// A call that was counted before is counted anew for others: none of those was looked at.
    #[cold]
    pub(crate) fn note_counted_before(&mut self, flight: &Flight, uncounted: &Uncounted) {
        let (coverage, is_stream) = uncounted.coverage();
        for amount in 0..Batch::AMOUNTS {
            if let Some(histogram) = self.histogram(coverage, is_stream, amount) {
                histogram.note_stood_for(1);
            }
        }
        let told = [(&mut self.cpu, flight.cpu_ns > 0), (&mut self.subtree, flight.subtree > 1)];
        for (histogram, _) in told.into_iter().filter(|(_, is_told)| *is_told) {
            histogram.note_stood_for(1);
        }
    }

    /// Counts one call of which something is too large for a batch.
    pub(crate) fn record(&mut self, call: &Counted) {
        let (parts, is_stream) = (&call.parts, call.is_stream);
        self.note_coverage(parts.coverage, is_stream, 1);
        self.codes[usize::from(call.code.number())] += 1;
        self.clipped += u64::from(parts.clipped);
        self.kernel_stamped += u64::from(parts.kernel_sent);
        self.note_handler(call.code, call.cpu_ns, if is_stream { 0 } else { call.subtree }, 1);
        match call.half_width_ns {
            _ if is_stream => {}
            u64::MAX => self.clock_unknown += 1,
            ns => self.half_width_ns = self.half_width_ns.saturating_add(ns),
        }
        let others = [
            call.total_ns,
            call.request_bytes,
            call.response_bytes,
            parts.request_wakeup_ns,
            parts.response_wakeup_ns,
        ];
        for (amount, value) in parts.ns.into_iter().chain(others).enumerate() {
            if let Some(histogram) = self.histogram(parts.coverage, is_stream, amount) {
                histogram.record(value);
            }
        }
    }

    fn note_coverage(&mut self, coverage: Coverage, is_stream: bool, calls: u64) {
        match coverage {
            _ if is_stream => self.streams += calls,
            Coverage::ClientOnly => self.client_only += calls,
            Coverage::OneHost => self.one_host += calls,
            Coverage::Stayed => self.stayed += calls,
            Coverage::Whole | Coverage::ServerOnly => {}
        }
    }

    /// Where this amount of calls with this coverage is counted, if it was measured.
    fn histogram(&mut self, coverage: Coverage, is_stream: bool, amount: usize) -> Option<&mut Histogram> {
        use Coverage::{ClientOnly, ServerOnly, Whole};
        match amount {
            Flight::TOTAL if is_stream => Some(&mut self.stream_total),
            Flight::TOTAL => Some(&mut self.total),
            Flight::REQUEST_BYTES => Some(&mut self.request_bytes),
            Flight::RESPONSE_BYTES => Some(&mut self.response_bytes),
            _ if is_stream => None,
            Batch::REQUEST_WAKEUP => {
                matches!(coverage, Whole | ServerOnly).then_some(&mut self.request_wakeup)
            }
            Batch::RESPONSE_WAKEUP => {
                matches!(coverage, Whole | ClientOnly).then_some(&mut self.response_wakeup)
            }
            part if measured(coverage).iter().any(|component| *component as usize == part) => {
                self.components.get_mut(part)
            }
            part if coverage == ClientOnly && part == Component::ServerApplication as usize => {
                Some(&mut self.remote)
            }
            _ => None,
        }
    }

    /// Counts what the handlers of so many calls took and made, each of them.
    fn note_handler(&mut self, code: Code, cpu_ns: u64, subtree: u32, calls: u64) {
        let all_of = |each: u64| std::iter::once((each, calls));
        if cpu_ns > 0 {
            self.cpu.record_by(all_of(cpu_ns), cpu_ns * calls);
        }
        if cpu_ns > 0 && code != Code::Ok {
            self.failed_cpu_ns = self.failed_cpu_ns.saturating_add(cpu_ns * calls);
        }
        if subtree > 1 {
            self.subtree.record_by(all_of(subtree.into()), u64::from(subtree) * calls);
        }
    }

    /// Counts what the handler of a call took that did not end well.
    pub(crate) fn note_failed_cpu(&mut self, cpu_ns: u64) {
        self.cpu.record(cpu_ns);
        self.failed_cpu_ns = self.failed_cpu_ns.saturating_add(cpu_ns);
    }

    /// Calls counted.
    pub fn calls(&self) -> u64 {
        self.codes.iter().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Calls that did not stream.
    pub fn unary_calls(&self) -> u64 {
        self.calls().saturating_sub(self.streams)
    }

    /// Those of them that have two wires, of calls made here; of calls served here, all.
    pub(crate) fn wired_calls(&self) -> u64 {
        let without = [self.one_host, self.client_only, self.stayed];
        without.iter().fold(self.unary_calls(), |left, calls| left.saturating_sub(*calls))
    }

    /// Completion times: of calls that did not stream, or, where every call does, of streams.
    pub fn durations(&self) -> &Histogram {
        if self.unary_calls() == 0 { &self.stream_total } else { &self.total }
    }

    /// Calls that ended with anything but OK.
    pub fn errors(&self) -> u64 {
        self.codes.iter().skip(1).fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Heap bytes in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        let more = [
            &self.remote,
            &self.total,
            &self.stream_total,
            &self.request_wakeup,
            &self.response_wakeup,
            &self.request_bytes,
            &self.response_bytes,
            &self.cpu,
            &self.subtree,
        ];
        self.components.iter().chain(more).map(Histogram::heap_bytes).sum()
    }

    /// Adds what another shard, or another peer's series, has counted.
    pub fn merge(&mut self, other: &Self) {
        self.zip(other, |a, b| *a = a.saturating_add(b), Histogram::merge);
    }

    /// What was counted here and not yet in `earlier`, an older copy.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut left = self.clone();
        left.zip(earlier, |a, b| *a = a.saturating_sub(b), |a, b| *a = a.since(b));
        left
    }

    /// A light copy: counters and completion times whole, of everything else only the sums.
    pub fn totals(&self) -> Self {
        Self {
            codes: self.codes,
            total: self.total.clone(),
            streams: self.streams,
            stream_total: self.stream_total.clone(),
            components: std::array::from_fn(|i| self.components[i].sum_only()),
            remote: self.remote.sum_only(),
            client_only: self.client_only,
            clipped: self.clipped,
            one_host: self.one_host,
            stayed: self.stayed,
            cpu: self.cpu.sum_only(),
            failed_cpu_ns: self.failed_cpu_ns,
            subtree: self.subtree.sum_only(),
            kernel_stamped: self.kernel_stamped,
            half_width_ns: self.half_width_ns,
            clock_unknown: self.clock_unknown,
            ..Self::default()
        }
    }

    /// Pairs every counter and histogram with the other series' of the same name.
    fn zip(&mut self, other: &Self, counter: fn(&mut u64, u64), histogram: fn(&mut Histogram, &Histogram)) {
        for (a, b) in self.codes.iter_mut().zip(other.codes) {
            counter(a, b);
        }
        counter(&mut self.client_only, other.client_only);
        counter(&mut self.clipped, other.clipped);
        counter(&mut self.one_host, other.one_host);
        counter(&mut self.stayed, other.stayed);
        counter(&mut self.failed_cpu_ns, other.failed_cpu_ns);
        counter(&mut self.kernel_stamped, other.kernel_stamped);
        counter(&mut self.half_width_ns, other.half_width_ns);
        counter(&mut self.clock_unknown, other.clock_unknown);
        counter(&mut self.streams, other.streams);
        for (a, b) in self.components.iter_mut().zip(&other.components) {
            histogram(a, b);
        }
        histogram(&mut self.cpu, &other.cpu);
        histogram(&mut self.subtree, &other.subtree);
        histogram(&mut self.remote, &other.remote);
        histogram(&mut self.total, &other.total);
        histogram(&mut self.stream_total, &other.stream_total);
        histogram(&mut self.request_wakeup, &other.request_wakeup);
        histogram(&mut self.response_wakeup, &other.response_wakeup);
        histogram(&mut self.request_bytes, &other.request_bytes);
        histogram(&mut self.response_bytes, &other.response_bytes);
    }
}

/// The components of which a call with this coverage says something.
fn measured(coverage: Coverage) -> &'static [Component] {
    use Component::*;
    match coverage {
        Coverage::Whole => &Component::ALL,
        Coverage::OneHost => &[
            ClientSendQueue,
            RequestStack,
            ServerReceiveQueue,
            ServerApplication,
            ServerSendQueue,
            ResponseStack,
            ClientReceiveQueue,
        ],
        Coverage::ClientOnly | Coverage::Stayed => {
            &[ClientSendQueue, RequestStack, ResponseStack, ClientReceiveQueue]
        }
        Coverage::ServerOnly => {
            &[RequestStack, ServerReceiveQueue, ServerApplication, ServerSendQueue, ResponseStack]
        }
    }
}
