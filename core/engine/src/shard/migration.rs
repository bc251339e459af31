//! A session that moves from one shard to another, with its calls in flight.
//!
//! What its calls have to do with others stays where it is: connections, workers, policies, timers of attempts. On the
//! shard it leaves, each of its calls goes on with the other shard as the end that the session was; there, each begins
//! as a call with the session as one end and the shard it has left as the other, in the middle of what crosses. So a
//! call in flight becomes one that has crossed, and what follows goes the way of every such call.
//!
//! ```text
//!   before   session ── call ── peer
//!   after                  peer ── call ── shard 1 │ shard 0 ── call ── session
//! ```
//!
//! The host carries the session itself: its rings, its heaps and a [`MovedSession`]. Until that has arrived, nothing
//! goes the same way (`links.rs`); meanwhile what the session serves is served by both shards in the eyes of others,
//! and calls for it are kept where they come (`offers.rs`).
//!
//! A handler knows its calls by the ids they were delivered under: it brings them along, and they say which shard gave
//! them, so that none is given twice.
//!
//! # What keeps a session where it is
//! Something of it that cannot be told from its memory ([`Stays`]). It does not last: the host asks again.

use super::copies::sent_types;
use super::crossing::{CrossedBody, Offers, Payer, ShardIndex, ShardSaid, ShardStage};
use super::offers::{leaves, tell_offers};
use super::origin::origin_of;
use crate::call::{Body, Call, ClientEnd, Direction, Half, Item, ServerEnd};
use crate::convert::private;
use crate::due::Due;
use crate::engine::Engine;
use crate::held::Holding;
use crate::named_peer::NamedPeer;
use crate::owners::Owners;
use crate::registry::{MethodKey, MethodTypes, Registry};
use crate::session::{Route, Session};
use crate::sessions::SessionEnds;
use crate::shard::ShardLinks;
use crate::target::Target;
use crate::turn::Turn;
use crate::wait_accounts::WaitAccounts;
use crate::{CallKey, SessionKey};
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_call::Instant;
use trunkline_policy::Side;
use trunkline_telemetry::PeerIndex;

/// Calls made on the shard a session has left have numbers of that shard at the one it goes to: with this bit they are
/// none of its own.
const BROUGHT: u64 = 1 << 63;

/// A session on its way, without its memory.
#[derive(Debug)]
pub struct MovedSession {
    from: ShardIndex,
    session: Session,
    routes: Vec<MovedRoute>,
    services: Vec<Box<str>>,
    calls: Vec<MovedCall>,
}

impl MovedSession {
    /// What its application is called.
    pub fn label(&self) -> &str {
        &self.session.label
    }
}

/// How often a call follows its session at most. Where both move to and fro, each move adds a call in the middle.
const CALL_MOVES_MAX: u8 = 8;

/// What keeps a session where it is for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// It is gone, or not to serve on.
    #[error("the session is ending")]
    Leaving,
    /// It is the daemon's own.
    #[error("the session is the daemon's own")]
    OfTheHouse,
    /// A connection reads from its send heap, or a socket is read into its receive heap.
    #[error("the session's memory is in use by a connection")]
    Lent,
    /// A call of it looks for an endpoint, or was judged and is not delivered.
    #[error("a call of the session begins")]
    Begins,
    /// A call of it has followed it as often as calls do: each time, a call more hands on what it says.
    #[error("a call of the session has moved with it {CALL_MOVES_MAX} times")]
    Followed,
    /// More of it waits than may between shards.
    #[error("more messages of the session wait than may between shards")]
    Full,
}

/// What calls are that have moved, by what they were: one that a session makes and handles itself has become two.
#[derive(Default)]
struct NowIs {
    made: HashMap<CallKey, CallKey>,
    delivered: HashMap<CallKey, CallKey>,
}

#[derive(Debug)]
enum MovedRoute {
    Calls {
        types: Arc<MethodTypes>,
        target: Option<String>,
    },
    /// Served, unless it has withdrawn.
    Serves(Option<Arc<MethodTypes>>),
}

/// A call as the other shard is to have it.
#[derive(Debug)]
struct MovedCall {
    /// What it was on the shard the session has left.
    was: CallKey,
    path: Arc<str>,
    /// Where it has gone, for reports.
    peer: Option<NamedPeer>,
    call: Call,
}

/// Takes a session out of its shard, for another.
///
/// # Errors
/// What keeps it; nothing has changed then that anybody would notice.
pub fn release_session(
    engine: &mut Engine,
    turn: &mut Turn<'_>,
    key: SessionKey,
    to: ShardIndex,
) -> Result<MovedSession, Stays> {
    engine.owners.sessions.discard_abandoned(turn.heaps);
    let calls = engine.owners.sessions.calls_of(&engine.calls, key);
    may_leave(engine, key, to, &calls)?;
    for call in &calls {
        privatize(engine, turn, key, *call)?;
    }
    let (routes, services) = routes_of(engine, key);
    let mut parked = engine.owners.sessions.find_mut(key).map_or_else(Vec::new, |session| {
        session.parked.drain().into_iter().chain(session.parked_streams.drain()).collect()
    });
    let mut moved = Vec::new();
    for call in &calls {
        moved.extend(split_made(engine, key, *call, to, &mut parked));
    }
    for call in &calls {
        moved.extend(split_delivered(engine, key, *call, to, &mut parked));
    }
    let owners = engine.owners.sessions.find(key).map_or_else(Vec::new, |session| {
        services.iter().map(|service| (service.clone(), session.identity.clone())).collect()
    });
    let offers = Offers::of_session(served(&routes), owners);
    leaves(engine, to, offers);
    engine.withdraw(key);
    let from = engine.owners.shards.own();
    let session = take_out(engine, key).ok_or(Stays::Leaving)?;
    for (call, direction) in parked {
        engine.unblock(turn, call, direction);
    }
    engine.go_on(turn);
    Ok(MovedSession { from, session, routes, services, calls: moved })
}

/// Takes a session in that comes from another shard. Its heaps are to answer to the returned key; then calls that
/// waited for it go on ([`Engine::serve_waiting`]).
pub fn adopt_session(engine: &mut Engine, moved: MovedSession) -> SessionKey {
    let MovedSession { from, session, routes, services, calls } = moved;
    let identity = session.identity.clone();
    let key = engine.owners.sessions.insert(session);
    if let Some(session) = engine.owners.sessions.find_mut(key) {
        session.holding.belongs_to(&identity);
    }
    for service in &services {
        engine.owners.service_users.enter(key, &identity, service);
        engine.owners.unserved.serve(service);
    }
    engine.binder().describe_again(key);
    for route in routes {
        match route {
            MovedRoute::Calls { types, target } => {
                let target =
                    target.and_then(|target| engine.binder().bring_target(&identity, &types.path, &target));
                let _ = engine.binder().bind_call(key, types, target.map_or(Target::Anyone, Target::Cluster));
            }
            MovedRoute::Serves(Some(types)) => _ = engine.binder().bind_service(key, types),
            MovedRoute::Serves(None) => {
                let _ = engine.binder().add_route(key, Route::Serves);
            }
        }
    }
    let mut now_is = NowIs::default();
    let brought: Vec<CallKey> = calls
        .into_iter()
        .map(|call| {
            let (was, is_made) = (call.was, call.call.maker().is_some());
            let now = bring(engine, key, from, call);
            if is_made { &mut now_is.made } else { &mut now_is.delivered }.insert(was, now);
            now
        })
        .collect();
    for call in brought {
        relate(engine, call, &now_is);
    }
    engine.owners.sessions.line_up(key);
    engine.peer_answers().changed(&services);
    // Before it is said that it is here.
    tell_offers(engine);
    engine.owners.shards.push(from, ShardSaid::Arrived);
    key
}

fn may_leave(engine: &Engine, key: SessionKey, to: ShardIndex, calls: &[CallKey]) -> Result<(), Stays> {
    let session = engine.owners.sessions.find(key).filter(|session| !session.gone).ok_or(Stays::Leaving)?;
    if session.draining || engine.owners.draining || !engine.owners.shards.others().any(|shard| shard == to) {
        return Err(Stays::Leaving);
    }
    if session.stands_by || engine.owners.registry.serves_for_the_house(key) {
        return Err(Stays::OfTheHouse);
    }
    let is_arriving = |peer: &crate::peer::Peer| {
        peer.assemblies.values().any(|one| one.block().is_some_and(|(session, _)| session == key))
    };
    if session.lent > 0 || engine.owners.peers.iter().any(|(_, peer)| is_arriving(peer)) {
        return Err(Stays::Lent);
    }
    let calls: Vec<&Call> = calls.iter().filter_map(|call| engine.calls.find(*call)).collect();
    if calls.iter().any(|call| call.moves >= CALL_MOVES_MAX) {
        return Err(Stays::Followed);
    }
    let mut waiting_bytes = 0;
    for call in calls {
        let made = call.maker().is_some_and(|(session, _)| session == key);
        let looks = matches!(call.server, ServerEnd::Cluster { .. } | ServerEnd::Attempts);
        // Where its call crosses anew it would be judged anew.
        let is_judged = call.handler() == Some(key)
            && !call.handed_over
            && engine.owners.admission.chain().stands_on(Side::Server);
        if made && looks || call.is_made_for_another() && !call.handed_over || is_judged {
            return Err(Stays::Begins);
        }
        for half in [&call.request, &call.response] {
            for body in half.backlog.iter().chain(half.gathered.as_deref()).filter_map(Item::body) {
                // What lies in its own heap is copied where it moves.
                let is_own = body.lent().is_some_and(|(of, _)| of == key);
                waiting_bytes += if is_own { body.len() as usize } else { body.parked_bytes() };
                if matches!(body, Body::Placed { session, .. } if *session == key) {
                    return Err(Stays::Lent);
                }
            }
        }
    }
    let limit = engine.owners.limits.parked_bytes_per_session;
    if engine.owners.shards.parked_bytes() + waiting_bytes > limit { Err(Stays::Full) } else { Ok(()) }
}

/// What waits of a session's messages in a call waits as a private copy, and its blocks go back.
fn privatize(engine: &mut Engine, turn: &Turn<'_>, session: SessionKey, key: CallKey) -> Result<(), Stays> {
    let Engine { calls, owners: Owners { shards, sessions, .. } } = engine;
    let Some(call) = calls.find_mut(key) else { return Ok(()) };
    for direction in [Direction::Request, Direction::Response] {
        privatize_half((shards, sessions), turn, session, (call, direction))?;
    }
    Ok(())
}

fn privatize_half(
    (shards, sessions): (&mut ShardLinks, &mut SessionEnds),
    turn: &Turn<'_>,
    session: SessionKey,
    (call, direction): (&mut Call, Direction),
) -> Result<(), Stays> {
    let types = call.sender_types(direction);
    let form = types.as_ref().map(|types| types.of(direction));
    let (from, payer) = (shards.own(), Payer::Session(session));
    let mut freed = Vec::new();
    let half = call.half(direction);
    for body in half.backlog.iter_mut().chain(half.gathered.as_deref_mut()).filter_map(Item::body_mut) {
        let Some((_, payload)) = body.lent().filter(|(of, _)| *of == session) else { continue };
        let mut bytes = Vec::new();
        let encoding = private(turn.heaps, form, body, &mut bytes).map_err(|_| Stays::Lent)?;
        shards.charge(payer, bytes.len() as u32);
        freed.push(payload.span);
        let (charged, compression) = (body.window_cost(), payload.compression);
        let copy = CrossedBody { bytes, encoding, compression, charged, from, payer };
        *body = Body::Crossed(Box::new(copy));
    }
    freed.into_iter().for_each(|span| sessions.give_back(session, span));
    Ok(())
}

/// What a session has bound, route by route, and the services it serves.
fn routes_of(engine: &Engine, key: SessionKey) -> (Vec<MovedRoute>, Vec<Box<str>>) {
    let Some(session) = engine.owners.sessions.find(key) else { return (Vec::new(), Vec::new()) };
    let target_of = |target: &Target| match target {
        Target::Cluster(cluster) => {
            Some(engine.owners.remotes.label(engine.owners.clusters.target_of(*cluster)?))
        }
        Target::Anyone | Target::Here => None,
    };
    let served = engine.owners.registry.types_by_route(key);
    let route_of = |(index, route): (u32, &Route)| match route {
        Route::Calls { types, target, .. } => {
            MovedRoute::Calls { types: Arc::clone(types), target: target_of(target) }
        }
        Route::Serves => MovedRoute::Serves(served.get(&index).copied().cloned()),
    };
    let routes = (0..).zip(&session.routes).map(route_of).collect();
    (routes, engine.owners.service_users.services_of(key).to_vec())
}

fn served(routes: &[MovedRoute]) -> impl Iterator<Item = &Arc<MethodTypes>> {
    routes.iter().filter_map(|route| match route {
        MovedRoute::Serves(types) => types.as_ref(),
        MovedRoute::Calls { .. } => None,
    })
}

/// A call the session makes, if this is one: from now on another shard does.
fn split_made(
    engine: &mut Engine,
    session: SessionKey,
    key: CallKey,
    to: ShardIndex,
    parked: &mut Vec<(CallKey, Direction)>,
) -> Option<MovedCall> {
    let Engine {
        calls,
        owners: Owners { sessions, peers, grpc, shards, held, invariants, limits, registry, telemetry, .. },
    } = engine;
    let call = calls.find_mut(key)?;
    let (own, path) = (shards.own(), path_of(registry, call));
    let ClientEnd::Session { session: maker, types, .. } = &call.client else { return None };
    if *maker != session {
        return None;
    }
    let (types, is_over) = (Arc::clone(types), call.outcome.is_some());
    let there = call.sender_types(Direction::Response).unwrap_or_else(|| Arc::clone(&types));
    let server = match is_over {
        true => ServerEnd::Nobody,
        false => ServerEnd::Shard { shard: own, types: there, stage: ShardStage::Accepted, late: false },
    };
    let origin = origin_of((&mut *sessions, peers, grpc), call);
    let mut moved = copy_of(call, server);
    moved.client = call.client.clone();
    moved.request = Half { ended: call.request.ended, charged: call.request.charged, ..Half::default() };
    call.request.charged = 0;
    moved.response = call.response.take_receiver_side();
    (moved.request.bytes, moved.request.messages) = (call.request.bytes, call.request.messages);
    (moved.response.bytes, moved.response.messages) = (call.response.bytes, call.response.messages);
    (moved.client_stamps, moved.outcome) = (call.client_stamps, call.outcome);
    moved.spans = call.spans.take();
    let peer = NamedPeer::of(telemetry, call.peer_index);
    moved.peer_index = call.peer_index.min(PeerIndex::LOCAL);
    if is_over {
        (moved.server_stamps, moved.server_measured) = (call.server_stamps, call.server_measured);
        engine.forget(key);
        return Some(MovedCall { was: key, path, peer, call: moved });
    }
    moved.parent = call.parent.take();
    let number = key.to_bits() | BROUGHT;
    let client = ClientEnd::Shard { shard: to, call: number, types: Some(types), origin, logged: false };
    let mut accounts = WaitAccounts { sessions, peers, grpc, shards, held, invariants, limits };
    let gathered = accounts.take_kept(call, Direction::Response);
    engine.change_end(key, Direction::Response, |call| {
        call.client = client;
        call.response.backlog.extend(gathered);
    });
    engine.owners.shards.enter(to, number, key);
    push_once(parked, (key, Direction::Response), engine);
    Some(MovedCall { was: key, path, peer, call: moved })
}

/// A call that is delivered to the session, if this is one: from now on it is at another shard.
fn split_delivered(
    engine: &mut Engine,
    session: SessionKey,
    key: CallKey,
    to: ShardIndex,
    parked: &mut Vec<(CallKey, Direction)>,
) -> Option<MovedCall> {
    let Engine { calls, owners: Owners { sessions, peers, grpc, shards, invariants, registry, .. } } = engine;
    let call = calls.find_mut(key)?;
    let ServerEnd::Session { session: handler, types } = &call.server else { return None };
    if *handler != session {
        return None;
    }
    let (own, path, types) = (shards.own(), path_of(registry, call), Arc::clone(types));
    let (known_as, origin) = (call.delivered_id(own, key), origin_of((&mut *sessions, peers, grpc), call));
    // What a peer sends without its header cannot be told apart there.
    let sent = sent_types(call, Direction::Request);
    // It is through with it, or has not seen it.
    let is_there = call.handed_over && !call.response.ended;
    let stage = if is_there { ShardStage::Accepted } else { ShardStage::Chosen };
    let mut moved = copy_of(call, ServerEnd::Session { session, types: Arc::clone(&types) });
    moved.client = ClientEnd::Shard { shard: own, call: key.to_bits(), types: sent, origin, logged: true };
    moved.request = call.request.take_receiver_side();
    let comes_more = !call.request.backlog.is_empty() || call.request.gathered.is_some();
    moved.request.ended = call.request.ended && !comes_more;
    moved.response = Half {
        introduced: call.response.introduced,
        charged: std::mem::take(&mut call.response.charged),
        ..Half::default()
    };
    moved.server_stamps = call.server_stamps;
    moved.server_stamps.wait_ns = 0;
    moved.receive_wait_ns = call.receive_wait_ns;
    moved.subtree_below = std::mem::take(&mut call.subtree_below);
    moved.children = std::mem::take(&mut call.children);
    (moved.known_as, moved.served_as) = (Some(known_as), call.served_as);
    (call.known_as, call.place) = (None, None);
    if !is_there && let Some((_, bytes)) = moved.request.share.end() {
        sessions.streams_hold_less(invariants, session, bytes);
    }
    engine.change_end(key, Direction::Request, |call| {
        call.server = ServerEnd::Shard { shard: to, types, stage, late: false };
    });
    engine.owners.shards.note_made(to);
    if is_there {
        push_once(parked, (key, Direction::Request), engine);
    }
    is_there.then_some(MovedCall { was: key, path, peer: None, call: moved })
}

/// What both ends of a call know of it.
fn copy_of(call: &Call, server: ServerEnd) -> Call {
    let mut copy = Call::new(call.method, call.client.clone(), server, call.deadline);
    (copy.admitted, copy.handed_over, copy.moves) = (true, true, call.moves + 1);
    copy.message_bytes_max = call.message_bytes_max;
    copy.trace.clone_from(&call.trace);
    copy.path.clone_from(&call.path);
    copy.choice = call.choice;
    copy
}

fn path_of(registry: &Registry, call: &Call) -> Arc<str> {
    call.path.as_deref().map_or_else(|| Arc::clone(registry.path(call.method)), Arc::from)
}

/// What waits for the session may go on: what waits for its turn or for policies does not, and has its own timer.
fn push_once(parked: &mut Vec<(CallKey, Direction)>, entry: (CallKey, Direction), engine: &mut Engine) {
    let Some(call) = engine.calls.find_mut(entry.0) else { return };
    let is_queued = call.policies.as_ref().is_some_and(|policies| policies.queued.is_some());
    if !call.half(entry.1).backlog.is_empty() && !is_queued && !parked.contains(&entry) {
        parked.push(entry);
    }
}

/// The session itself. What is held for it here is given back.
fn take_out(engine: &mut Engine, key: SessionKey) -> Option<Session> {
    let mut session = engine.owners.sessions.remove(key)?;
    engine.binder().unbind(&session.identity, std::mem::take(&mut session.routes));
    engine.owners.held.leave(std::mem::take::<Holding>(&mut session.holding));
    session.answer_bytes = 0;
    (session.parked_bytes, session.delivered, session.openings) = Default::default();
    (session.made, session.served, session.calls_booked) = Default::default();
    session.brought.clear();
    Some(session)
}

/// A call begins in the middle.
fn bring(engine: &mut Engine, session: SessionKey, from: ShardIndex, moved: MovedCall) -> CallKey {
    let MovedCall { was, path, peer, mut call } = moved;
    if let Some(peer) = peer {
        call.peer_index = peer.number(&mut engine.owners.telemetry);
    }
    (call.method, call.path) = method_of(engine, &path, call.path);
    call.request.share.move_to(session);
    call.response.share.move_to(session);
    if call.outcome.is_none() && call.client_stamps.d2 != Instant::default() {
        let stamps = &mut call.client_stamps;
        // It has not been on its way for long enough to have them.
        for stamp in [&mut stamps.d3, &mut stamps.d4, &mut stamps.k6] {
            *stamp = if *stamp == Instant::default() { stamps.d2 } else { *stamp };
        }
    }
    let deadline = call.deadline.instant().filter(|_| call.outcome.is_none());
    if let ClientEnd::Session { session: maker, .. } = &mut call.client {
        *maker = session;
    }
    if let ServerEnd::Session { session: handler, .. } = &mut call.server {
        *handler = session;
    }
    let (made, known_as, is_served) = (call.maker(), call.known_as, call.handler().is_some());
    let is_at_work = matches!(call.server, ServerEnd::Shard { .. });
    let Engine { calls, owners: Owners { timers, .. } } = engine;
    let (key, begun) = calls.renew();
    call.timer = deadline.map(|at| timers.insert(at, Due::Deadline(key)));
    *begun = call;
    if is_at_work {
        engine.owners.shards.bring(from, was.to_bits() | BROUGHT, key);
    }
    if is_served {
        engine.owners.sessions.note_served(&engine.calls, key, session);
    }
    let Some(found) = engine.owners.sessions.find_mut(session) else { return key };
    if let Some((_, id)) = made {
        found.made.insert(id, key);
    }
    if let Some(id) = known_as {
        found.delivered.take_untold(1);
        found.brought.insert(id, key);
        engine.owners.shards.enter(from, was.to_bits(), key);
    }
    key
}

/// The method of a call, and its path if the method stands for others, too.
fn method_of(engine: &mut Engine, path: &Arc<str>, named: Option<Box<str>>) -> (MethodKey, Option<Box<str>>) {
    if let Some(method) = engine.owners.registry.own_key_of(path) {
        return (method, None);
    }
    if let Some(called) = engine.paths().called(path) {
        return (called.method, called.path);
    }
    let Owners { registry, telemetry, .. } = &mut engine.owners;
    (registry.intern_for_call(path, || telemetry.method(path)), named)
}

/// Calls that handlers of the session have made name each other by what they are called here.
fn relate(engine: &mut Engine, key: CallKey, now_is: &NowIs) {
    let Some(call) = engine.calls.find_mut(key) else { return };
    call.parent = call.parent.and_then(|parent| now_is.delivered.get(&parent).copied());
    call.children = call.children.iter().filter_map(|child| now_is.made.get(child).copied()).collect();
}
