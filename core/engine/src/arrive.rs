//! What follows from what comes to the ends of calls.
//!
//! An end's owner is told what has come, finds the call it is for, and answers with a value ([`EndEvent`]); this has
//! the call go on, or end. Calls in line for an endpoint go on here, too, when `reach.rs` says so.

use crate::assembly::Shape;
use crate::attempts::response_begun;
use crate::call::{Direction, Item, ServerEnd};
use crate::due::Due;
use crate::end_event::{EndEvent, GrpcOpening, LongMessage, ReleasedBlock};
use crate::engine::Engine;
use crate::grpc::WebStream;
use crate::in_line::SOURCES_LOOKED_MAX;
use crate::limits::STALLED;
use crate::mirrors::discard_long_answer;
use crate::peers::SentCall;
use crate::r2p2_settings::R2p2Port;
use crate::records::note_late_handler;
use crate::remote::{Dialled, LaneIndex};
use crate::start::settle;
use crate::turn::Turn;
use crate::{CallKey, GrpcKey, PeerFault, PeerKey, RemoteKey, SessionFault, SessionKey};
use core::net::SocketAddrV4;
use std::borrow::Cow;
use trunkline_call::entry::{Completion, Entry, Submission};
use trunkline_call::{Fault, Instant};
use trunkline_grpc::Event as WebEvent;
use trunkline_native::{Event, Input};

impl Engine {
    /// Takes one submission of a session.
    ///
    /// # Errors
    /// [`SessionFault`] if the application broke the ABI; the host detaches it. Everything else ends in a completion.
    pub fn handle_submission(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionKey,
        raw: &Entry,
    ) -> Result<(), SessionFault> {
        self.owners.sessions.discard_abandoned(turn.heaps);
        let mut follows = EndEvent::Nothing;
        let said = Submission::decode(raw);
        self.session_entries().take(turn.now, turn.heaps, session, said, &mut follows)?;
        match &mut follows {
            // Half of all entries.
            EndEvent::Released(released) => self.go_on_released(turn, released),
            other => self.carry_out_event(turn, other),
        }
        follows.discard();
        self.go_on(turn);
        Ok(())
    }

    /// Bytes of a connection, known to be there since `arrived` (before they were read, so that reading counts as stack
    /// and not as wire). The read buffer begins with what [`resume`] put there.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer broke the protocol. The host transmits what is still queued (the reason, for the
    /// peer), closes the socket and calls [`Engine::peer_lost`].
    ///
    /// [`resume`]: crate::NativeConnections::resume
    pub fn handle_input(
        &mut self,
        turn: &mut Turn<'_>,
        key: PeerKey,
        arrived: Instant,
        bytes: &[u8],
    ) -> Result<(), PeerFault> {
        self.owners.arrived = arrived;
        self.owners.sessions.discard_abandoned(turn.heaps);
        let mut input = Input::new(bytes);
        loop {
            let Some(peer) = self.owners.peers.find_mut(key) else { return Ok(()) };
            match peer.connection.handle_bytes(turn.now, &mut input) {
                Ok(Some(event)) => self.take_peer_event(turn, key, event),
                Ok(None) => break,
                Err(error) => {
                    peer.is_corrupted = error.is_corruption();
                    let closed_for = peer.closed_for.take();
                    self.owners.peers.transmit(key);
                    return Err(closed_for.unwrap_or_else(|| PeerFault(error.to_string())));
                }
            }
        }
        self.settle_peer(turn, key);
        Ok(())
    }

    /// So many bytes, known to be there since `arrived`, were read into the memory that [`wanted`] named.
    ///
    /// [`wanted`]: crate::NativeConnections::wanted
    pub fn placed(&mut self, turn: &mut Turn<'_>, key: PeerKey, arrived: Instant, bytes: usize) {
        self.owners.arrived = arrived;
        let Some(peer) = self.owners.peers.find_mut(key) else { return };
        if let Some(event) = peer.connection.placed(turn.now, bytes as u32) {
            self.take_peer_event(turn, key, event);
        }
        self.settle_peer(turn, key);
    }

    /// The socket took so many of those bytes. The call whose request ended with the last of them, if one did.
    pub fn transmitted(&mut self, turn: &mut Turn<'_>, key: PeerKey, bytes: usize) -> Option<SentCall> {
        let last = self.peer_events().transmitted(key, bytes);
        self.settle_peer(turn, key);
        last
    }

    /// The connection is over: its calls end, those that never left as *not executed*.
    pub fn peer_lost(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str) {
        self.lose_peer(turn, key, why, true);
    }

    /// What a name stands for by now, or why that is not known. What stood there before stays when nothing is known.
    pub fn handle_looked_up(&mut self, turn: &mut Turn<'_>, name: &str, found: Result<&[String], &str>) {
        let Some((key, has_changed)) =
            self.owners.remotes.looked_up(name, found, self.owners.limits.endpoints)
        else {
            return;
        };
        if has_changed {
            self.owners.clusters.regather(&self.owners.remotes, key);
            self.owners.reach().forget_unwanted(&self.calls);
        }
        self.serve_line(turn, key);
        for name in self.owners.clusters.names_beside(&self.owners.remotes, key) {
            self.serve_line(turn, name);
        }
    }

    /// A dialled endpoint did not answer. (One that did speaks for itself, by its hello.)
    pub fn handle_dial_failed(&mut self, turn: &mut Turn<'_>, connection: Dialled, why: &str) {
        match connection {
            Dialled::Native(key) => self.lose_peer(turn, key, why, false),
            Dialled::Grpc(key) => self.grpc_lost(turn, key, why),
        }
    }

    /// Takes a datagram, known to be there since `arrived`. It did not come before `came`: what is not known to be
    /// younger may be a copy of a request that is over, and forgotten.
    pub fn handle_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        port: R2p2Port,
        (came, arrived): (Instant, Instant),
        from: SocketAddrV4,
        datagram: &[u8],
    ) {
        self.owners.arrived = arrived;
        self.owners.sessions.discard_abandoned(turn.heaps);
        self.owners.r2p2.handle_datagram(turn.now, port, came, from, datagram);
        self.take_r2p2_events(turn);
        self.go_on(turn);
    }

    // LIFE: 12 gRPC
    /// Takes in what happened on a connection, known since `arrived`.
    ///
    /// # Errors
    /// [`PeerFault`] if the connection says what cannot be; the host closes it and calls [`Engine::grpc_lost`].
    pub fn handle_http(
        &mut self,
        turn: &mut Turn<'_>,
        peer: GrpcKey,
        arrived: Instant,
        event: WebEvent,
    ) -> Result<(), PeerFault> {
        self.owners.arrived = arrived;
        self.owners.sessions.discard_abandoned(turn.heaps);
        let follows = match event {
            WebEvent::Request { stream, head, end } => {
                let at = WebStream { peer, tag: stream };
                self.grpc_openings().handle_request(turn.now, at, &head, end)?
            }
            event => self.grpc_events().take(turn.now, peer, event),
        };
        if let Some(mut follows) = follows {
            self.carry_out_event(turn, &mut follows);
        }
        self.go_on(turn);
        Ok(())
    }

    /// The connection is over: calls made over it end, and so do calls that came from it.
    pub fn grpc_lost(&mut self, turn: &mut Turn<'_>, key: GrpcKey, why: &str) {
        let Some((calls, remote)) = self.owners.grpc.handle_lost(key) else { return };
        if remote.is_none() {
            // Whose calls they were is known until they have ended: the access log names it.
            calls.iter().for_each(|call| self.cancel(turn, *call));
        }
        let Some(lost) = self.grpc_events().remove(key, &calls) else { return };
        self.note_host_left(turn.now, lost.number);
        for (call, fault) in lost.made {
            self.fail(turn, call, fault);
        }
        if let Some(remote) = remote
            && self.owners.reach().pooled_lost(turn.now, remote, key, why)
        {
            self.line_goes_on(turn, remote);
        }
        self.unblock_all(turn, lost.unsent);
        self.go_on(turn);
    }

    pub(crate) fn r2p2_timeout(&mut self, turn: &mut Turn<'_>) {
        self.owners.r2p2.handle_timeout(turn.now);
        self.owners.arrived = turn.now;
        self.take_r2p2_events(turn);
    }

    /// Answers requests whose calls are over, and lets calls go on that waited for others to end.
    pub(crate) fn settle_r2p2(&mut self, turn: &mut Turn<'_>) {
        self.owners.r2p2.answer_unanswered(turn.now);
        if !self.owners.r2p2.made.begin_round() {
            return;
        }
        let mut looked = 0;
        while looked < SOURCES_LOOKED_MAX
            && let Some(call) = self.owners.r2p2.made.next_in_line()
        {
            self.unblock(turn, call, Direction::Request);
            looked += usize::from(self.owners.r2p2.made.waits_again(call));
        }
        self.owners.r2p2.made.end_round(looked == SOURCES_LOOKED_MAX);
    }

    /// Does what both ports have to tell.
    pub(crate) fn take_r2p2_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.owners.r2p2.poll_client_event() {
            if let Some(mut follows) = self.r2p2_events().handle_client(turn.now, &event) {
                self.carry_out_event(turn, &mut follows);
            }
        }
        while let Some(event) = self.owners.r2p2.poll_server_event() {
            if let Some(mut follows) = self.r2p2_events().handle_server(turn.now, &event) {
                self.carry_out_event(turn, &mut follows);
            }
        }
    }

    /// Does what follows from what came to an end.
    #[inline(always)]
    pub(crate) fn carry_out_event(&mut self, turn: &mut Turn<'_>, event: &mut EndEvent<'_>) {
        // Nearly always. What is large is lent from where it was written.
        match event {
            EndEvent::Opens { call, target, opening } => self.start(turn, *call, *target, opening),
            EndEvent::Passes { call, direction, item } => self.pass(turn, *call, *direction, item),
            EndEvent::Released(released) => self.go_on_released(turn, released),
            EndEvent::Nothing => {}
            other => self.carry_out_other(turn, std::mem::replace(other, EndEvent::Nothing)),
        }
    }

    #[inline(never)]
    fn carry_out_other(&mut self, turn: &mut Turn<'_>, mut event: EndEvent<'_>) {
        match event {
            EndEvent::OpensSettled { call, policies, ref mut opening } => {
                self.open_settled(turn, call, policies, opening);
            }
            EndEvent::Long(message) => self.begin_long(turn, message),
            EndEvent::Answer { call, headers, finish } => {
                if let Some(headers) = headers {
                    let metadata = Cow::Borrowed(headers);
                    self.pass(turn, call, Direction::Response, &mut Item::Headers { metadata });
                }
                match finish {
                    Ok(mut finish) => self.pass(turn, call, Direction::Response, &mut finish),
                    Err(fault) => self.fail(turn, call, fault),
                }
            }
            EndEvent::Cancelled { call, code } => self.cancel_as(turn, call, code),
            EndEvent::Failed { call, fault } => self.fail(turn, call, fault),
            EndEvent::Room { call, direction } => self.unblock(turn, call, direction),
            EndEvent::Credit { call, direction, bytes } => self.credit_sender(call, direction, bytes),
            EndEvent::Line(remote) => self.serve_line(turn, remote),
            EndEvent::LateHandler { call, session, cpu_ns } => {
                let ended = self.owners.ended.take(call, session).filter(|_| !self.owners.plant.unrecorded);
                ended.into_iter().for_each(|it| note_late_handler(&mut self.owners.telemetry, &it, cpu_ns));
            }
            EndEvent::Ended { call, outcome } => self.end_as(turn, call, &outcome),
            EndEvent::Drains { session, answer } => {
                self.withdraw(session);
                if self.owners.sessions.attached_mut(session).is_ok_and(|session| session.drain(answer)) {
                    self.owners.sessions.complete(session, Completion::Drained);
                }
            }
            EndEvent::Asked(asked) => self.open_asked(turn, asked),
            EndEvent::Reads { at, end } => self.read_on(turn, at, end),
            EndEvent::AnswerBegins { call, encoding, metadata } => {
                response_begun(self, turn, call);
                if let Some(mut follows) = self.grpc_events().begin_answer(call, encoding, metadata) {
                    self.carry_out_event(turn, &mut follows);
                }
            }
            EndEvent::Sent(sent) => {
                self.credit_sender(sent.call, sent.direction, sent.credit);
                if sent.has_room {
                    self.unblock(turn, sent.call, sent.direction);
                }
            }
            followed => self.carry_out_for_connection(turn, followed),
        }
    }

    /// The application is through with a message: its sender may send as much again, and others have its room.
    #[inline(always)]
    pub(crate) fn go_on_released(&mut self, turn: &mut Turn<'_>, released: &ReleasedBlock) {
        let &ReleasedBlock { session, call, direction, credit, was_awaited, a18 } = released;
        if let Some(call) = call {
            if credit > 0 {
                self.credit_sender(call, direction, credit);
            }
            if was_awaited {
                self.unblock(turn, call, direction);
            }
            if direction == Direction::Response {
                self.conclude(turn.now, call, a18);
            }
        }
        self.unpark(turn, session);
    }

    /// Does what follows for a connection, and for calls that wait for one.
    #[inline(never)]
    fn carry_out_for_connection(&mut self, turn: &mut Turn<'_>, event: EndEvent<'_>) {
        match event {
            EndEvent::Writable(peer) => self.unblock_peer(turn, peer),
            EndEvent::LaneUp { remote, lane, peer } => {
                let goes_on = self.owners.reach().lane_open(remote, lane, peer);
                if goes_on {
                    self.line_goes_on(turn, remote);
                }
            }
            EndEvent::LaneLeft { remote, lane, peer } => {
                self.lane_lost(turn, (remote, lane, peer), "peer is draining", false);
                let unsent = self.peer_events().take_unsent(peer);
                self.unblock_all(turn, unsent);
            }
            EndEvent::WantsAnother(peer) => self.owners.reach().redial(turn.now, peer),
            EndEvent::PeerClosed { peer, why } => {
                self.lose_peer(turn, peer, &why, false);
                self.owners.peers.has_ended(peer, why);
            }
            EndEvent::PoolReady { remote, peer } => {
                self.owners.reach().pooled_ready(&self.calls, remote, peer)
            }
            EndEvent::PoolLeaves { remote, peer } => {
                let goes_on = self.owners.reach().pooled_leaving(turn.now, remote, peer);
                if goes_on {
                    self.serve_line(turn, remote);
                }
                let unsent = self.grpc_events().take_unsent(peer);
                self.unblock_all(turn, unsent);
            }
            // Carried out before. Named, so that what is new is not forgotten.
            EndEvent::Nothing
            | EndEvent::Opens { .. }
            | EndEvent::OpensSettled { .. }
            | EndEvent::Passes { .. }
            | EndEvent::Long(_)
            | EndEvent::Answer { .. }
            | EndEvent::Asked(_)
            | EndEvent::Reads { .. }
            | EndEvent::AnswerBegins { .. }
            | EndEvent::Sent(_)
            | EndEvent::Ended { .. }
            | EndEvent::Drains { .. }
            | EndEvent::Released(_)
            | EndEvent::LateHandler { .. }
            | EndEvent::Cancelled { .. }
            | EndEvent::Failed { .. }
            | EndEvent::Room { .. }
            | EndEvent::Credit { .. }
            | EndEvent::Line(_) => {}
        }
    }

    /// A gRPC client asks for a call: it is admitted, and begins with its message, or at once where it streams.
    fn open_asked(&mut self, turn: &mut Turn<'_>, asked: GrpcOpening) {
        let GrpcOpening { at, call, target, streams, metadata, end } = asked;
        let Self { calls, owners } = &mut *self;
        let Some(found) = calls.find_mut(call) else { return };
        let mut start = owners.start_of_call();
        if let Err(fault) = start.admit_head(turn.now, (call, &mut *found), &metadata, 0) {
            return self.fail(turn, call, fault);
        }
        if streams {
            let metadata = Cow::Owned(metadata);
            return self.start(turn, call, target, &mut Item::Open { metadata, body: None, end });
        }
        start.bound_wait(turn.now, (call, found));
        if let Some(mut follows) = self.grpc_events().keep_opening(turn.now, at, metadata, end) {
            self.carry_out_event(turn, &mut follows);
        }
    }

    /// Passes on what came of a stream. With its end, an answer makes what is left of its request nobody's business.
    fn read_on(&mut self, turn: &mut Turn<'_>, at: WebStream, end: bool) {
        let answered = if end { self.grpc_events().stop_asking(at) } else { None };
        if let Some((call, credit)) = answered {
            self.credit_sender(call, Direction::Request, credit);
        }
        self.pump(turn, at);
        if let Some((call, _)) = answered {
            self.unblock(turn, call, Direction::Request);
        }
    }

    /// Passes on every message that is complete, as long as the application keeps up, and then the end.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>, at: WebStream) {
        let mut message = None;
        while let Some(mut follows) = self.grpc_events().next(turn.now, at, &mut message) {
            let is_message = matches!(follows, EndEvent::Passes { item: Item::Message { .. }, .. });
            self.carry_out_event(turn, &mut follows);
            if !is_message {
                return;
            }
        }
    }

    /// The others have had their turn: who waited goes on.
    pub(crate) fn unpack_on(&mut self, turn: &mut Turn<'_>) {
        if !self.owners.grpc.begin_unpacking() {
            return;
        }
        while let Some(at) = self.owners.grpc.poll_unpacked() {
            self.pump(turn, at);
        }
    }

    /// Those who waited for room on a connection go on, and a connection that is left and has nothing to do ends.
    pub(crate) fn settle_grpc(&mut self, turn: &mut Turn<'_>) {
        while let Some(key) = self.owners.grpc.poll_touched() {
            while let Some((call, direction)) = self.owners.grpc.poll_unblocked(&mut self.owners.held, key) {
                self.unblock(turn, call, direction);
            }
            if let Some(remote) = self.owners.grpc.close_if_left(key) {
                self.serve_pool_line(turn, remote);
            }
        }
    }

    /// Ends calls whose messages do not go on.
    pub(crate) fn sweep_grpc(&mut self, turn: &mut Turn<'_>, key: GrpcKey) {
        let limit = self.owners.limits.message_stall_s.into();
        for call in self.grpc_events().sweep(turn.now, key) {
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
    }

    /// Does what follows from what a peer has said.
    pub(crate) fn take_peer_event(&mut self, turn: &mut Turn<'_>, key: PeerKey, event: Event<'_>) {
        let mut follows = EndEvent::Nothing;
        self.peer_events().take(turn.now, turn.heaps, key, event, &mut follows);
        self.carry_out_event(turn, &mut follows);
        follows.discard();
    }

    /// Does what follows from what was sent.
    fn take_notices(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        while let Some(notice) =
            self.owners.peers.find_mut(key).and_then(|peer| peer.connection.poll_notice())
        {
            if let Some(mut follows) = self.peer_events().take_notice(key, notice) {
                self.carry_out_event(turn, &mut follows);
            }
        }
    }

    /// A connection is over: its calls end, those that never left as *not executed*. `silent`: whoever was reached has
    /// not shown that it speaks the native protocol.
    pub(crate) fn lose_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey, why: &str, silent: bool) {
        let Some(peer) = self.owners.peers.find_mut(key) else { return };
        peer.connection.lost();
        let lane = peer.lane;
        self.take_notices(turn, key);
        let Some(lost) = self.peer_events().remove(key) else { return };
        for (call, fault) in lost.begun {
            self.fail(turn, call, fault);
        }
        self.owners.sessions.discard_abandoned(turn.heaps);
        if let Some((remote, lane)) = lane {
            self.lane_lost(turn, (remote, lane, key), why, silent);
        }
        self.unblock_all(turn, lost.unsent);
        self.note_host_left(turn.now, lost.number);
        self.go_on(turn);
    }

    /// Calls whose requests waited for a connection try again.
    fn unblock_all(&mut self, turn: &mut Turn<'_>, calls: Vec<CallKey>) {
        calls.into_iter().for_each(|call| self.unblock(turn, call, Direction::Request));
    }

    /// After every change of a connection: what it noticed, what it wants to send, when it wants the clock.
    pub(crate) fn settle_peer(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        self.take_notices(turn, key);
        self.serve_queues(turn);
        let Some(peer) = self.owners.peers.find_mut(key) else { return };
        if !peer.blocked.is_empty() && peer.connection.may_open().is_ok() {
            self.unblock_peer(turn, key);
        }
        if let Some(at) = self.owners.peers.settle(&mut self.owners.held, turn.now, key) {
            self.owners.timers.insert(at, Due::Peer(key));
        }
    }

    // LIFE: 13
    /// A message begins of which the peer says how long it is: its call is settled, and room found for it.
    #[inline(never)]
    fn begin_long(&mut self, turn: &mut Turn<'_>, message: LongMessage) {
        let (key, total) = (message.call, message.total);
        if message.direction == Direction::Response {
            if discard_long_answer(self, turn, key) {
                return;
            }
            response_begun(self, turn, key);
        }
        let settled = match &message.shape {
            Shape::Open { metadata, .. } => {
                settle(&mut self.calls, &mut self.owners, turn.now, key, (metadata, total))
            }
            _ => self.owners.limits.check_message(total),
        };
        let begun = settled.and_then(|()| self.peer_events().begin_message(turn.now, turn.heaps, message));
        if let Err(fault) = begun {
            self.fail(turn, key, fault);
        }
    }

    /// Ends calls whose large messages do not go on.
    pub(crate) fn look_at_assemblies(&mut self, turn: &mut Turn<'_>, key: PeerKey) {
        let limit = self.owners.limits.message_stall_s.into();
        for call in self.peer_events().stalled(turn.now, key) {
            self.fail(turn, call, Fault::Limit { name: STALLED, limit });
        }
        self.owners.sessions.discard_abandoned(turn.heaps);
    }

    /// Tries every call in line once: each goes, fails, or joins the line again.
    pub(crate) fn serve_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        let Some(remote) = self.owners.remotes.find_mut(remote_key) else { return };
        for key in remote.waiting.drain() {
            self.go_on_from_line(turn, key);
        }
    }

    /// A connection of an endpoint has come or gone, and those in line try; the endpoint may go.
    pub(crate) fn line_goes_on(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        self.serve_line(turn, remote_key);
        self.owners.reach().forget_unwanted(&self.calls);
    }

    /// Calls in line take the room there is.
    pub(crate) fn serve_pool_line(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        if !self.owners.remotes.has_pool_line(remote_key) {
            return;
        }
        if self.owners.grpc.is_held() {
            for key in self.owners.reach().take_held_line(&self.calls, remote_key) {
                self.go_on_from_line(turn, key);
            }
            return;
        }
        while let Some(key) = self.owners.reach().poll_pool_line(turn.now, remote_key) {
            self.go_on_from_line(turn, key);
        }
    }

    /// It may be dialled again: those in line try.
    pub(crate) fn wake_remote(&mut self, turn: &mut Turn<'_>, remote_key: RemoteKey) {
        self.owners.remotes.wake(remote_key);
        self.serve_line(turn, remote_key);
    }

    /// A connection ended or never came about ([`EndpointReach::lane_lost`]): those in line go another way.
    pub(crate) fn lane_lost(
        &mut self,
        turn: &mut Turn<'_>,
        lane: (RemoteKey, LaneIndex, PeerKey),
        why: &str,
        silent: bool,
    ) {
        if self.owners.reach().lane_lost(&self.calls, turn.now, lane, why, silent) {
            self.line_goes_on(turn, lane.0);
        }
    }

    /// A call that was in line tries again. It may join the line again, whoever has come meanwhile.
    fn go_on_from_line(&mut self, turn: &mut Turn<'_>, key: CallKey) {
        let server = self.calls.find(key).map(|call| &call.server);
        if matches!(server, Some(ServerEnd::Cluster { .. })) {
            self.owners.remotes.goes_on(key);
            self.unblock(turn, key, Direction::Request);
        }
    }
}
