//! The division of calls whose stamps are all there and in order: nearly all.

use crate::PeerIndex;
use crate::clock::{ClockOffset, Wires};
use crate::component::{Component, Components, Coverage, Stamp, StampSet};
use crate::record::Record;
use crate::timeline::are_in_order;
use trunkline_call::{ClientStamps, Instant, ServerStamps};

impl Record {
    /// The division of a call whose stamps are all there and in order, as nearly all are, and its completion time:
    /// [`Record::lines`] and [`Lines::divide`] say the same of it. What an application says of its own clock is not
    /// later than `until`; `offset` says what is known of the clocks. `SERVED`: this host was the server's.
    #[inline(always)]
    pub(crate) fn divide_in_order<const SERVED: bool>(
        &self,
        until: Instant,
        offset: impl FnOnce(&Wires) -> ClockOffset,
    ) -> Option<(Components, u64)> {
        let ServerStamps { k7, d8, d9, a10, a11, d12, wait_ns, k14, .. } = *self.server.as_ref()?;
        let reply_ns = k14.0.wrapping_sub(d12.0);
        if !are_in_order([k7, d8, d9, a10, a11, d12, k14]) || wait_ns > reply_ns {
            return None;
        }
        let stay_ns = k14.0 - k7.0;
        let (request_ns, receive_queue, application) = (d9.0 - k7.0, a10.0 - d9.0, a11.0 - a10.0);
        let (send_queue, response_ns) = (d12.0 - a11.0 + wait_ns, reply_ns - wait_ns);
        let request_wakeup_ns = d8.0 - k7.0;
        if SERVED {
            let ns = [0, request_ns, 0, receive_queue, application, send_queue, 0, response_ns, 0];
            let coverage = Coverage::ServerOnly;
            return Some((Components { ns, request_wakeup_ns, coverage, ..Components::default() }, stay_ns));
        }
        let ClientStamps { a0, a1, d2, d3, wait_ns, d4, k6, k15, d16, d17, a18 } = self.client;
        let (a18, is_sent) = (a18.min(until), k6 != Instant::default());
        let sent = if is_sent { k6 } else { d4 };
        let away_ns = k15.0.wrapping_sub(sent.0);
        if !are_in_order([a0, a1, d2, d3, d4, sent, k15, d16, d17, a18])
            || wait_ns > d3.0.wrapping_sub(d2.0)
            || stay_ns > away_ns
        {
            return None;
        }
        let client_send_queue = d2.0 - a1.0 + wait_ns;
        let request_stack = (sent.0 - a0.0) - client_send_queue + request_ns;
        let response_stack = (d17.0 - k15.0) + response_ns;
        let client_receive_queue = a18.0 - d17.0;
        let mut stand_ins = StampSet::default();
        if !is_sent {
            stand_ins.insert(Stamp::K6);
        }
        let ns = [
            client_send_queue,
            request_stack,
            0,
            receive_queue,
            application,
            send_queue,
            0,
            response_stack,
            client_receive_queue,
        ];
        let response_wakeup_ns = d16.0 - k15.0;
        let (coverage, kernel_sent) = (Coverage::Whole, is_sent);
        let mut parts = Components {
            ns,
            request_wakeup_ns,
            response_wakeup_ns,
            coverage,
            stand_ins,
            kernel_sent,
            clipped: false,
        };
        let wires = Wires { sent, arrived: k7, left: k14, received: k15, stayed: false };
        self.divide_wires(&mut parts, &wires, away_ns - stay_ns, offset);
        Some((parts, a18.0 - a0.0))
    }

    /// Books what both wires took together, of a call whose stamps are in order.
    #[inline(always)]
    fn divide_wires(
        &self,
        parts: &mut Components,
        wires: &Wires,
        wires_ns: u64,
        offset: impl FnOnce(&Wires) -> ClockOffset,
    ) {
        let request_ns = |theta_ns: i64| {
            let apart_ns = (wires.arrived.0 as i64 - wires.sent.0 as i64).saturating_sub(theta_ns);
            (apart_ns.max(0) as u64).min(wires_ns)
        };
        if self.peer == PeerIndex::LOCAL {
            // Both are part of the stack, and what passes them is a hop from one shard to another.
            let request_ns = request_ns(0);
            parts.ns[Component::RequestStack as usize] += request_ns;
            parts.ns[Component::ResponseStack as usize] += wires_ns - request_ns;
            (parts.coverage, parts.kernel_sent) = (Coverage::OneHost, false);
        } else {
            let request_ns = request_ns(offset(wires).ns);
            parts.ns[Component::RequestWire as usize] = request_ns;
            parts.ns[Component::ResponseWire as usize] = wires_ns - request_ns;
        }
    }
}
