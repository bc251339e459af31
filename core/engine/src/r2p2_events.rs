//! What comes by R2P2, as what follows for the calls it is about. `r2p2.rs` owns the ports, `r2p2_messages.rs` has what
//! is said there as calls and items, `r2p2_end.rs` is the way back.

use crate::call::{Call, Calls, ServerEnd};
use crate::called_paths::CalledPaths;
use crate::convert::Scratch;
use crate::end_event::EndEvent;
use crate::peers::PeerEnds;
use crate::r2p2::{Named, R2p2};
use crate::r2p2_messages::{
    RequestRefused, call_of, check_metadata, fault_of_failure, finish_of, opening_of, read_reply,
    read_request,
};
use crate::r2p2_remote::GREETING_TAG;
use crate::registry::service_of;
use crate::remote::Remotes;
use crate::target::Target;
use crate::vouching::PeerRule;
use crate::{CallKey, RemoteKey};
use core::net::SocketAddrV4;
use trunkline_call::{Code, Execution, Instant};
use trunkline_native::Trailer;
use trunkline_r2p2::{
    CallFailure, ClientEvent, ReplyEnvelope, Request, RequestEnvelope, RequestKey, ServerEvent,
};
use trunkline_telemetry::PeerIndex;

/// The owners that datagrams concern, and when the last of these was known to be there.
pub(crate) struct R2p2Events<'e> {
    pub r2p2: &'e mut R2p2,
    pub calls: &'e mut Calls,
    pub remotes: &'e mut Remotes,
    pub scratch: &'e mut Scratch,
    pub peers: &'e PeerEnds,
    pub peer_rules: &'e [PeerRule],
    pub paths: CalledPaths<'e>,
    pub arrived: Instant,
}

impl R2p2Events<'_> {
    /// A reply, to a call made here or to a greeting, or word that there will be none.
    pub fn handle_client<'b>(&mut self, now: Instant, event: &'b ClientEvent) -> Option<EndEvent<'b>> {
        let (ClientEvent::Replied { tag, .. } | ClientEvent::Failed { tag, .. }) = event;
        if tag & GREETING_TAG != 0 {
            let remote = RemoteKey::from_bits(tag & !GREETING_TAG);
            let failure = if let ClientEvent::Failed { failure, .. } = event { Some(*failure) } else { None };
            let Self { r2p2, remotes, paths, .. } = self;
            let goes_on = r2p2.handle_greeting(now, paths.limits, remotes, remote, failure);
            return goes_on.then_some(EndEvent::Line(remote));
        }
        let key = CallKey::from_bits(*tag);
        match event {
            ClientEvent::Replied { server, body, trailer, .. } => {
                self.handle_reply(now, key, *server, body, trailer.as_ref())
            }
            ClientEvent::Failed { failure, .. } => {
                let Self { r2p2, calls, remotes, .. } = self;
                let ServerEnd::R2p2 { remote, .. } = calls.find(key)?.server else { return None };
                if *failure == CallFailure::Silent
                    && let Some(known) = remotes.r2p2_mut(remote)
                {
                    known.fell_silent();
                }
                r2p2.made.forget(remotes, key);
                let fault = fault_of_failure(*failure, remotes.label(remote));
                Some(EndEvent::Failed { call: key, fault })
            }
        }
    }

    // LIFE: 19 R2P2
    fn handle_reply<'b>(
        &mut self,
        now: Instant,
        key: CallKey,
        server: SocketAddrV4,
        body: &'b [u8],
        trailer: Option<&Trailer>,
    ) -> Option<EndEvent<'b>> {
        let Self { r2p2, calls, remotes, scratch, paths, arrived, .. } = self;
        // One reply may end other calls, whose own is then nobody's.
        let call = calls.find_mut(key)?;
        let ServerEnd::R2p2 { remote, .. } = call.server else { return None };
        let failed = |fault| Some(EndEvent::Failed { call: key, fault });
        let reply = match read_reply(body) {
            Ok(reply) => reply,
            Err(fault) => return failed(fault),
        };
        if reply.fingerprint != 0
            && let Some(known) = remotes.r2p2_mut(remote)
        {
            known.has(call.method, reply.fingerprint);
        }
        if reply.is_unreadable {
            let linear = r2p2.made.take_linear(key);
            let again = r2p2.send_again(now, paths.limits, (key, call), (remotes, remote), scratch, &linear);
            return again.err().and_then(failed);
        }
        r2p2.made.forget(remotes, key);
        call.peer_index = r2p2.number(Named::Server(server), paths.telemetry);
        call.answer_begins(*arrived, now, trailer);
        Some(EndEvent::Answer { call: key, headers: reply.headers, finish: finish_of(&reply) })
    }

    /// A request of a peer, or word that nobody waits for its answer any more.
    pub fn handle_server<'b>(&mut self, now: Instant, event: &'b ServerEvent) -> Option<EndEvent<'b>> {
        match event {
            ServerEvent::Request(request) => self.handle_request(now, request),
            ServerEvent::Cancelled { key } => {
                let call = self.r2p2.call_of(*key)?;
                Some(EndEvent::Cancelled { call, code: Code::Cancelled })
            }
        }
    }

    // LIFE: 13 R2P2
    /// A peer calls.
    fn handle_request<'b>(&mut self, now: Instant, request: &'b Request) -> Option<EndEvent<'b>> {
        let key = request.key;
        let said = match read_request(&request.body) {
            Ok(said) if said.path.is_empty() => {
                self.r2p2.reply(now, key, &ReplyEnvelope::of(Code::Ok, Execution::NotExecuted));
                return None;
            }
            Ok(said) => said,
            Err(uncalled) => return self.refuse(now, key, "", &uncalled),
        };
        match self.called(now, request, &said) {
            Ok(call) => {
                let call = self.calls.insert(call);
                self.r2p2.serve(key, call);
                Some(EndEvent::Opens { call, target: Target::Here, opening: opening_of(&said) })
            }
            Err(uncalled) => self.refuse(now, key, said.path, &uncalled),
        }
    }

    fn refuse<'b>(
        &mut self,
        now: Instant,
        request: RequestKey,
        path: &str,
        why: &RequestRefused,
    ) -> Option<EndEvent<'b>> {
        let Self { r2p2, peers, paths, arrived, .. } = self;
        if let RequestRefused::Refused(status) = why {
            // Addresses that were never served may be anything, and have no series of their own.
            paths.note_refused(*arrived, now, (path, PeerIndex::OTHER), status.code());
        }
        r2p2.refuse(now, request, why, |said| peers.said_here(said));
        None
    }

    /// The call a request means, if it can be one here.
    fn called(
        &mut self,
        now: Instant,
        request: &Request,
        said: &RequestEnvelope<'_>,
    ) -> Result<Call, RequestRefused> {
        check_metadata(said)?;
        PeerRule::check(self.peer_rules, "", service_of(said.path)).map_err(RequestRefused::Refused)?;
        let (called, pattern) = self.paths.served(said.path)?;
        let served: Vec<_> = self.paths.routing().all_types_served(called.method).collect();
        call_of(request, said, (called, pattern), &served, (self.arrived, now))
    }
}
