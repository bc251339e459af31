//! Every count the engine keeps beside what it counts, held against it: for tests, which look after every step.

use crate::call::{Body, Call, ClientEnd, Direction, Half, Item, ServerEnd};
use crate::engine::Engine;
use crate::grpc::{GrpcPeer, WebStream};
use crate::held::Holding;
use crate::owners::Owners;
use crate::{CallKey, GrpcKey, PeerKey, SessionKey};
use std::collections::HashSet;

/// # Errors
/// The first book that does not agree with its contents.
pub(crate) fn audit(engine: &Engine) -> Result<(), String> {
    if let Some(what) = engine.owners.invariants.first() {
        return Err(format!("does not hold: {what}"));
    }
    engine.owners.grpc.iter().try_for_each(|(key, peer)| audit_grpc(engine, key, peer))?;
    engine.owners.peers.iter().try_for_each(|(key, _)| audit_peer(engine, key))?;
    engine.owners.sessions.iter().try_for_each(|(key, _)| audit_session(engine, key))?;
    halves(engine).try_for_each(|(key, call, direction, half)| {
        match (direction, &call.client, &call.server) {
            (
                Direction::Request,
                ClientEnd::Grpc { .. } | ClientEnd::Peer { .. } | ClientEnd::Shard { .. },
                _,
            )
            | (
                Direction::Response,
                _,
                ServerEnd::Grpc { .. } | ServerEnd::Peer { .. } | ServerEnd::Shard { .. },
            ) => agree(
                &format!("{key:?}: charged to a sending session"),
                half.charged.unsigned_abs() as usize,
                0,
            ),
            _ => Ok(()),
        }
    })?;
    let copies = engine.calls.iter().map(|(_, call)| match call.client {
        ClientEnd::Mirror { bytes, .. } => bytes as usize,
        _ => 0,
    });
    agree("mirror bytes", engine.owners.admission.copied_bytes(), copies.sum())?;
    let kept = engine.calls.iter().filter_map(|(_, call)| call.attempts.as_ref());
    agree(
        "bytes kept for attempts",
        engine.owners.attempts.kept_bytes(),
        kept.map(|attempts| attempts.kept_bytes).sum(),
    )?;
    let waits = |call: &Call| call.queued.is_some_and(|queued| queued.at.is_none());
    let waiting = engine.calls.iter().filter(|(_, call)| waits(call)).count();
    if waiting < engine.owners.unserved.len() {
        return Err(format!("{} calls wait for services, {waiting} know it", engine.owners.unserved.len()));
    }
    let made = &engine.owners.r2p2.made;
    agree("R2P2 request bytes", made.bytes() as usize, made.each().map(|(_, _, bytes)| bytes).sum())?;
    for (remote, _, _) in engine.owners.remotes.over_r2p2() {
        let there = engine.owners.remotes.find(remote).and_then(|remote| remote.r2p2.as_ref());
        let each = made.each().filter(|(_, at, _)| *at == remote);
        let bytes = there.map_or(0, |there| there.made.used());
        agree("R2P2 request bytes of an endpoint", bytes as usize, each.map(|(.., bytes)| bytes).sum())?;
    }
    audit_shards(engine)?;
    let (grpc, native) = (engine.owners.grpc.iter(), engine.owners.peers.iter());
    let holdings = grpc.map(|(_, peer)| &peer.holding).chain(native.map(|(_, peer)| &peer.holding));
    let holdings = holdings.chain(engine.owners.sessions.iter().map(|(_, session)| &session.holding));
    let booked = holdings.map(Holding::booked_bytes).sum::<u64>();
    agree("bytes booked for sources", engine.owners.held.booked().0 as usize, booked as usize)?;
    let ended = made.each().map(|(call, ..)| call).find(|call| !engine.calls.contains(*call));
    ended.map_or(Ok(()), |call| Err(format!("R2P2: {call:?} has ended and is kept")))
}

/// Entries in all lines of calls.
pub(crate) fn entries_in_line(engine: &Engine) -> usize {
    let Owners { peers, grpc, sessions, remotes, r2p2, shards, .. } = &engine.owners;
    let native = peers.iter().map(|(_, peer)| peer.blocked.len());
    let grpc = grpc.iter().map(|(_, peer)| peer.blocked.len());
    let heaps = sessions.iter().map(|(_, session)| session.entries_in_line());
    let endpoints = remotes.keys().into_iter().filter_map(|key| remotes.find(key));
    let endpoints = endpoints.map(|remote| remote.waiting.len());
    let all = native.chain(grpc).chain(heaps).chain(endpoints);
    all.sum::<usize>() + r2p2.made.entries_in_line() + shards.entries_in_line()
}

fn audit_shards(engine: &Engine) -> Result<(), String> {
    let parked = halves(engine).filter(|(_, call, direction, _)| call.crosses(*direction));
    let parked = parked.flat_map(|(_, _, _, half)| {
        let is_here = |bytes: &usize| half.large_of.is_none() || !engine.owners.limits.is_large(*bytes);
        half.backlog.iter().map(Item::parked_bytes).filter(is_here)
    });
    agree("bytes waiting for another shard", engine.owners.shards.parked_bytes(), parked.sum())?;
    for shard in engine.owners.shards.others() {
        let (served, made) = engine.owners.shards.book(shard);
        if let Some(call) = served.iter().find(|call| !engine.calls.contains(**call)) {
            return Err(format!("{shard:?}: {call:?} has ended and is kept"));
        }
        let is_there =
            |call: &&Call| matches!(call.server, ServerEnd::Shard { shard: there, .. } if there == shard);
        let calls = engine.calls.iter().map(|(_, call)| call);
        agree(&format!("calls at {shard:?}"), made, calls.filter(is_there).count())?;
    }
    Ok(())
}

fn audit_grpc(engine: &Engine, key: GrpcKey, peer: &GrpcPeer) -> Result<(), String> {
    let of = |what: &str| format!("gRPC peer {}: {what}", peer.label);
    let streams = || peer.streams.values();
    let queued = streams().map(|stream| stream.outgoing.queued_bytes);
    agree(&of("queued bytes"), peer.queued_bytes as usize, queued.sum::<u64>() as usize)?;
    let waiting =
        halves(engine).filter(|(_, call, direction, _)| call.forwarded_from(*direction) == Some(key));
    let waiting = waiting.flat_map(|(_, _, _, half)| &half.backlog).filter_map(Item::body);
    let waiting = waiting.map(Body::uncharged_bytes).sum::<usize>();
    let gathered = halves(engine)
        .filter(|(_, call, direction, _)| call.grpc_sender(*direction).is_some_and(|at| at.peer == key));
    let gathered = gathered.filter_map(|(_, _, _, half)| half.gathered.as_deref()?.body());
    let gathered = gathered.map(Body::uncharged_bytes).sum::<usize>();
    let held = streams().map(|stream| stream.incoming.held()).sum::<usize>();
    agree(&of("arriving bytes"), peer.arriving_bytes, held + waiting + gathered)?;
    let unreleased = streams().map(|stream| stream.incoming.unreleased).sum();
    agree(&of("bytes taken of its window"), peer.window.taken_bytes(), unreleased)?;
    let replays = streams().filter_map(|stream| stream.replay.as_ref());
    agree(&of("replay bytes"), peer.replay_bytes, replays.map(|replay| replay.bytes).sum())?;
    for (tag, stream) in &peer.streams {
        agree(
            &of("bytes in line"),
            stream.outgoing.in_line() as usize,
            stream.outgoing.queued_bytes as usize,
        )?;
        if stream.outgoing.queued_bytes > 0 && peer.remote.is_some() && stream.incoming.over {
            return Err(of(&format!("{tag:?} is answered and has bytes to send")));
        }
        let call = stream.call.map(|call| engine.calls.find(call));
        let is_named = |call: &Call| {
            let goes =
                matches!(call.server, ServerEnd::Grpc { peer, stream } if (peer, stream) == (key, *tag));
            goes || call.comes_by(WebStream { peer: key, tag: *tag })
        };
        match call {
            None if stream.outgoing.queued_bytes == 0 => return Err(of(&format!("{tag:?} is nobody's"))),
            Some(None) => return Err(of(&format!("the call of {tag:?} has ended"))),
            Some(Some(call)) if !is_named(call) => return Err(of(&format!("{tag:?} has another's call"))),
            _ => {}
        }
    }
    Ok(())
}

fn audit_peer(engine: &Engine, key: PeerKey) -> Result<(), String> {
    let Some(peer) = engine.owners.peers.find(key) else { return Ok(()) };
    if let Some(why) = peer.connection.audit() {
        return Err(format!("peer {}: {why}", peer.label));
    }
    let private = peer.assemblies.values().map(crate::assembly::Assembly::private_bytes).sum::<usize>();
    let missing = peer.assemblies.values().map(crate::assembly::Assembly::missing_bytes).sum::<usize>();
    agree(&format!("peer {}: missing bytes", peer.label), peer.missing_bytes, missing)?;
    let gathered =
        halves(engine).filter(|(_, call, direction, _)| call.native_sender(*direction) == Some(key));
    let gathered = gathered.filter_map(|(_, _, _, half)| half.gathered.as_deref()).map(Item::parked_bytes);
    let waiting = halves(engine).filter(|(_, _, _, half)| half.large_of == Some(key));
    let waiting = waiting.flat_map(|(_, _, _, half)| &half.backlog).map(Item::parked_bytes);
    let waiting = waiting.filter(|bytes| engine.owners.limits.is_large(*bytes)).sum::<usize>();
    agree(
        &format!("peer {}: assembling bytes", peer.label),
        peer.assembling_bytes,
        private + gathered.sum::<usize>() + waiting,
    )
}

fn audit_session(engine: &Engine, key: SessionKey) -> Result<(), String> {
    let Some(session) = engine.owners.sessions.find(key) else { return Ok(()) };
    let of = |what: &str| format!("session {}: {what}", session.label);
    let lent = engine.owners.peers.lent().filter(|lent| lent.session == key).count();
    agree(&of("ranges lent"), session.lent, lent)?;
    let parked = halves(engine).filter(|(_, call, direction, _)| call.receiver(*direction) == Some(key));
    let parked = parked.flat_map(|(_, _, _, half)| {
        let large_elsewhere = half.large_of.is_some() || half.large_waits;
        let of_session = move |bytes: &usize| !large_elsewhere || !engine.owners.limits.is_large(*bytes);
        half.backlog.iter().map(Item::parked_bytes).filter(of_session)
    });
    agree(&of("parked bytes"), session.parked_bytes.used() as usize, parked.sum())?;
    let answers = halves(engine)
        .filter(|(_, call, direction, half)| call.receiver(*direction) == Some(key) && half.large_waits);
    let answers = answers.flat_map(|(_, _, _, half)| half.backlog.iter().map(Item::parked_bytes));
    let answers = answers.filter(|bytes| engine.owners.limits.is_large(*bytes)).sum();
    agree(&of("bytes of large answers"), session.answer_bytes, answers)?;
    let held = halves(engine).filter_map(|(_, _, _, half)| half.share.held());
    let held = held.filter(|(session, _)| *session == key).map(|(_, bytes)| bytes as usize);
    let arriving = engine.owners.peers.iter().flat_map(|(_, peer)| peer.assemblies.values());
    let arriving = arriving.filter(|one| one.block().is_some_and(|(session, _)| session == key));
    let arriving = arriving.map(|one| one.counted as usize).sum();
    agree(&of("bytes arriving"), session.arriving_bytes as usize, arriving)?;
    agree(&of("bytes held by streams"), session.stream_bytes as usize, held.sum())?;
    let holds = |call: CallKey| engine.calls.find(call).is_some_and(|call| call.handler() == Some(key));
    if let Some((call, bytes)) = session.openings.held().find(|(call, _)| !holds(*call)) {
        return Err(of(&format!("{bytes} bytes of an opening are {call:?}'s, which it does not serve")));
    }
    let served = engine.calls.iter().filter(|(_, call)| call.handler() == Some(key) && call.admitted).count();
    if session.delivered.used() > served as u64 {
        return Err(of(&format!("{} calls are delivered, and there are {served}", session.delivered.used())));
    }
    let known: HashSet<CallKey> = engine.owners.sessions.calls_of(&engine.calls, key).into_iter().collect();
    let is_unknown = |call: &CallKey| !known.contains(call);
    let mut its = engine.calls.iter().filter(|(_, call)| call.is_of(key)).map(|(call, _)| call);
    if let Some(call) = its.find(is_unknown) {
        return Err(of(&format!("{call:?} is its and would outlive it")));
    }
    match session.made.values().find(|call| !engine.calls.contains(**call)) {
        Some(call) => Err(of(&format!("{call:?} has ended and is kept"))),
        None => Ok(()),
    }
}

/// Both directions of every call.
fn halves(engine: &Engine) -> impl Iterator<Item = (CallKey, &Call, Direction, &Half)> {
    engine.calls.iter().flat_map(|(key, call)| {
        [Direction::Request, Direction::Response]
            .map(|direction| (key, call, direction, call.half_of(direction)))
    })
}

fn agree(what: &str, book: usize, contents: usize) -> Result<(), String> {
    if book == contents { Ok(()) } else { Err(format!("{what}: {book} in the book, {contents} there")) }
}
