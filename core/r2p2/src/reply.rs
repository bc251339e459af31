//! Replies and refusals: the server's commands.

use crate::Transmit;
use crate::cut::Cut;
use crate::extension::{Extension, Part, Reason};
use crate::headway::Headway;
use crate::outgoing::Outgoing;
use crate::packet::Packet;
use crate::peer_bytes::PortFull;
use crate::served::{RequestKey, Stage, Timing};
use crate::server::Server;
use crate::wire::{Flags, Header, PacketType, Policy};
use bytes::Bytes;
use trunkline_call::{Instant, SERVER_TRAILER_BYTES};

impl Server {
    /// Answers a request. `timing` is what its router is told. `false` if the reply is too long for its form (254
    /// packets to a compatible client): the request is refused instead. Or there is [no room](Server::room_for) for it:
    /// the client hears that nothing is known.
    pub fn reply(
        &mut self,
        now: Instant,
        key: RequestKey,
        body: Bytes,
        trailer: Option<[u8; SERVER_TRAILER_BYTES]>,
        timing: Timing,
    ) -> bool {
        let extended = key.is_extended();
        let Some(request) = self.requests.get_mut(&key) else { return true };
        let Stage::Executing { cancelled } = request.stage else { return true };
        request.timing = timing;
        let cut = Cut::reply(extended);
        let Some(count) = cut.count(body.len()) else {
            self.refuse(now, key, Reason::TooLong);
            return false;
        };
        self.live -= 1;
        if cancelled {
            self.conclude(now, key, Stage::Served);
            return true;
        }
        let (peer, bytes) = (*key.client.ip(), body.len());
        let stays = extended && count > 1;
        if stays && self.held.full(peer, bytes).is_some() {
            self.counters.refused += 1;
            self.send_drop(key, Reason::Forgotten);
            self.conclude(now, key, Stage::Served);
            return false;
        }
        request.reply = body.clone();
        request.trailer = trailer;
        if stays {
            self.live += 1;
            self.held.change(peer, 0, bytes);
            request.headway = Headway::since(now);
            let outgoing = Outgoing::new(body, cut, 0, self.config.rto_ns).expect("it was counted above");
            request.stage = Stage::Replying { outgoing: Box::new(outgoing) };
            self.pump(now, key);
            self.finish(key);
            self.arm(key);
        } else {
            (0..count).for_each(|index| self.send_reply_packet(key, index, count));
            self.conclude(now, key, if extended { Stage::Kept } else { Stage::Served });
        }
        true
    }

    /// Longest reply to a request: by its form (254 packets to a compatible client) and by the limit on messages.
    pub fn reply_bytes_max(&self, key: RequestKey) -> usize {
        Cut::reply(key.is_extended()).bytes_max().min(self.config.message_bytes_max)
    }

    /// Whether a reply of so many bytes may be held until it has arrived. One of a single packet always may.
    ///
    /// # Errors
    /// Why not.
    pub fn room_for(&self, key: RequestKey, bytes: usize) -> Result<(), PortFull> {
        let stays = key.is_extended() && Cut::reply(true).count(bytes).is_some_and(|count| count > 1);
        let full = stays.then(|| self.held.full(*key.client.ip(), bytes)).flatten();
        full.map_or(Ok(()), Err)
    }

    /// Refuses a request that was handed out and has not been begun.
    pub fn refuse(&mut self, now: Instant, key: RequestKey, reason: Reason) {
        let Some(request) = self.requests.get(&key) else { return };
        if !matches!(request.stage, Stage::Executing { .. }) {
            return;
        }
        self.live -= 1;
        self.counters.refused += 1;
        self.send_drop(key, reason);
        self.conclude(now, key, Stage::Abandoned);
    }

    /// Sends what may be sent of a reply of several packets.
    pub(crate) fn pump(&mut self, now: Instant, key: RequestKey) {
        loop {
            let Some(request) = self.requests.get_mut(&key) else { return };
            let Stage::Replying { outgoing } = &mut request.stage else { return };
            let Some(index) = outgoing.poll(now) else { return };
            let count = outgoing.count();
            self.send_reply_packet(key, index, count);
        }
    }

    /// The request is over: the router is told, unless it was before, and its end is remembered.
    pub(crate) fn conclude(&mut self, now: Instant, key: RequestKey, end: Stage) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        let told = matches!(request.stage, Stage::Replying { .. });
        if told {
            self.held.change(*key.client.ip(), request.reply.len(), 0);
        }
        if !matches!(end, Stage::Kept) {
            request.reply = Bytes::new();
        }
        let kept = request.reply.len();
        request.stage = end;
        if !told {
            self.finish(key);
        }
        self.memory.remember(now, key, kept);
        while let Some(key) = self.memory.poll_unkept() {
            if let Some(request) = self.requests.get_mut(&key) {
                request.stage = Stage::Served;
                request.reply = Bytes::new();
            }
        }
    }

    /// One packet of a reply.
    pub(crate) fn send_reply_packet(&mut self, key: RequestKey, index: u16, count: u16) {
        let Some(request) = self.requests.get(&key) else { return };
        let mut flags = if index == 0 { Flags::FIRST } else { 0 };
        if index + 1 == count {
            flags |= Flags::LAST;
        }
        if request.offers {
            flags |= Flags::OFFER;
        }
        let part = if index == 0 { Part::Reply(request.trailer) } else { Part::Later };
        let extension = key.identity.map(|identity| Extension { identity, part });
        if extension.is_some() {
            flags |= Flags::EXTENDED;
        }
        let order = if index == 0 { count } else { index };
        let header = Header {
            kind: PacketType::Reply,
            policy: Policy::Sticky,
            flags: Flags(flags),
            id: key.id,
            order,
        };
        let range = Cut::reply(key.is_extended()).range(index, request.reply.len());
        let (head, body) = (Packet::head(&header, extension.as_ref()), request.reply.slice(range));
        self.out.push_back(Transmit { to: key.client, head, body });
    }

    /// A packet that is no part of a reply: ACK, DROP.
    pub(crate) fn send_aside(
        &mut self,
        key: RequestKey,
        kind: PacketType,
        part: Part,
        payload: &'static [u8],
    ) {
        let offers = match self.requests.get(&key) {
            Some(request) => request.offers,
            None => key.is_extended(),
        };
        let mut flags = Flags::FIRST | Flags::LAST;
        if offers {
            flags |= Flags::OFFER;
        }
        let extension = key.identity.map(|identity| Extension { identity, part });
        if extension.is_some() {
            flags |= Flags::EXTENDED;
        }
        let header = Header { kind, policy: Policy::Sticky, flags: Flags(flags), id: key.id, order: 1 };
        let head = Packet::head(&header, extension.as_ref());
        self.out.push_back(Transmit { to: key.client, head, body: Bytes::from_static(payload) });
    }
}
