//! What the control thread and a shard hand over, each from its own thread, and how they go on if it was in vain.

use super::order::{Leave, LeaveError, Moved, PartsSent, SentSets, Stand, Standing};
use super::records::RecordedPart;
use super::wire::{Channel, Memory, Secure, Word};
use crate::clock::now;
use crate::control::Control;
use crate::shard::Shard;
use rustix::fd::{AsFd, BorrowedFd};
use serde_bytes::ByteBuf;
use trunkline_engine::{R2p2Port, export_state};
use trunkline_policy::encode_modules;
use trunkline_shm::RingIndices;
use trunkline_telemetry::{Ask, CallsAsk};

impl Leave {
    /// Hands the control socket and its connections over. Comes back only if that was in vain.
    pub fn with_connections_of(&self, control: &mut Control) {
        // A daemon of an earlier version does not say of those who attach that they may send some.
        control.take_descriptors_of_all(true);
        let _ = self.done.send(send_connections(control, &self.channel));
        while let Ok(written) = self.in_vain.recv() {
            control.write_last_lines();
            drop(written);
        }
        control.take_descriptors_of_all(false);
    }
}

/// Stands still, until it is told to hand over or to go on.
pub(crate) fn stand(shard: &mut Shard, order: Stand) -> Standing {
    // What can go, goes: it need not be carried.
    shard.let_out();
    let _ = order.stands.send(());
    Standing(order.leave)
}

/// Hands everything over.
pub(crate) fn hand_over(shard: &mut Shard, leave: Box<Leave>) -> PartsSent {
    // Whatever becomes of the hand-over, this daemon writes down what was done here.
    shard.report_policies(usize::MAX);
    shard.crossings.park(&mut shard.engine);
    shard.sockets.make_portable();
    let sent = send_parts(shard, &leave.channel, &leave.sets);
    let sent = sent.and_then(|moved| {
        if leave.counts {
            send_counted(shard, &leave.channel)?;
        }
        if let Some(from) = leave.recorded.get(shard.index) {
            send_recorded(shard, &leave.channel, *from)?;
        }
        Ok(moved)
    });
    let _ = leave.done.send(sent);
    PartsSent(leave)
}

/// It was in vain.
pub(crate) fn go_on(shard: &mut Shard) {
    // What the TLS library had read of the sockets is read from here on.
    shard.sockets.read_buffered_soon();
    shard.pressing = true;
}

fn send_connections(control: &Control, channel: &Channel) -> Result<Moved, LeaveError> {
    if let Some(listener) = &control.listener {
        let path = listener.path().display().to_string();
        channel.send(&Word::Socket { path, sessions: control.sessions }, &listener.descriptors())?;
    }
    let mut moved = Moved::default();
    for (_, client) in control.clients.iter().filter(|(_, client)| !client.is_closed()) {
        // Applications of this very process end with it.
        if client.is_own_process() {
            continue;
        }
        let (shard, session) = client.session().map_or((0, None), |at| (at.shard, Some(at.key)));
        let may_move = client.may_move();
        moved.sessions += usize::from(session.is_some() && may_move);
        let (session, identity) = (session.map(|key| key.to_bits()), client.identity().map(Into::into));
        let word = Word::Client { shard, session, may_move, identity };
        channel.send(&word, &[client.socket().as_fd()])?;
    }
    Ok(moved)
}

fn send_parts(shard: &Shard, channel: &Channel, known: &SentSets) -> Result<Moved, LeaveError> {
    let index = shard.index;
    for listening in &shard.listening {
        let (configured, endpoint) = (listening.configured.clone(), listening.endpoint.clone());
        channel
            .send(&Word::Listener { shard: index, configured, endpoint }, &[listening.listener.as_fd()])?;
    }
    for (port, socket) in shard.udp.sockets() {
        let word = Word::Datagrams { shard: index, is_client: port == R2p2Port::Client };
        channel.send(&word, &[socket.as_fd()])?;
    }
    for (stream, first) in shard.pending.transferable() {
        channel.send(&Word::Pending { shard: index, first: first.to_vec() }, &[stream.as_fd()])?;
    }
    let exported = export_state(&shard.engine)?;
    let (mut sets, mut numbers) = (Vec::new(), Vec::new());
    for schema in &exported.schemas {
        let source = schema.source.as_ref().ok_or(LeaveError::Source)?;
        match known.are_prepared() {
            true => numbers.push(known.send(channel, source)?.number),
            false => sets.push(ByteBuf::from(source.to_vec())),
        }
    }
    let state = ByteBuf::from(exported.state);
    channel.send(&Word::State { shard: index, state, sets, numbers }, &[])?;
    let (modules, refused) = shard.engine.export_modules();
    if let Some(refused) = refused.into_iter().next() {
        return Err(LeaveError::Module(refused));
    }
    let states = ByteBuf::from(encode_modules(&modules));
    channel.send(&Word::Modules { shard: index, states }, &[])?;
    send_memory(shard, channel)?;
    let mut moved = Moved { calls: shard.engine.snapshot().calls, ..Moved::default() };
    for (peer, socket) in shard.sockets.iter() {
        let Some(session) = socket.can_move() else { continue };
        let (peer, endpoint_is_tcp) = (peer.to_bits(), socket.stream().is_tcp());
        let (secure, keys) = session.map(Secure::of).unzip();
        channel
            .send(&Word::Peer { shard: index, peer, endpoint_is_tcp, secure }, &[socket.stream().as_fd()])?;
        keys.map_or(Ok(()), |keys| channel.send_keys(&keys))?;
        moved.connections += 1;
    }
    Ok(moved)
}

/// What the shard has counted: no call has ended since it stands still.
fn send_counted(shard: &mut Shard, channel: &Channel) -> Result<(), LeaveError> {
    let series = shard.engine.telemetry().snapshot(now(), &Ask::default()).series;
    channel.send(&Word::Counted { shard: shard.index, series }, &[])?;
    Ok(())
}

/// The calls it has recorded since it was asked last.
fn send_recorded(shard: &mut Shard, channel: &Channel, from: u64) -> Result<(), LeaveError> {
    let mut ask = CallsAsk::all_from(from);
    loop {
        let calls = shard.engine.telemetry().calls(&ask);
        let (next, more) = (calls.next, calls.more);
        if let Some(part) = RecordedPart::of(calls) {
            channel.send(&Word::Recorded { shard: shard.index, part }, &[])?;
        }
        ask.from = Some(next);
        if !more {
            return Ok(());
        }
    }
}

fn send_memory(shard: &Shard, channel: &Channel) -> Result<(), LeaveError> {
    for lodged in shard.heaps.lodged() {
        let regions = lodged.regions;
        let rings = shard.sessions.look(lodged.key);
        // A successor of an earlier version asks for the reading end of a pipe beside what it rings: it only keeps it.
        let bells = rings.map(|rings| {
            let ringer = rings.peer_doorbell.as_fd();
            [rings.own_doorbell.as_fd(), ringer, ringer]
        });
        let indices = rings.map(|rings| {
            let at = RingIndices::of(&rings.submissions, &rings.completions);
            [at.submission_head, at.completion_tail, at.completion_head]
        });
        let blocks = lodged.blocks.iter().map(|block| (block.offset, block.len, block.lent)).collect();
        let open = lodged.open.into_iter().map(|(offset, bytes)| (offset, ByteBuf::from(bytes)));
        let memory = Memory {
            sizes: Memory::sizes_of(&regions.config),
            indices,
            heap_number: lodged.number,
            blocks,
            open: open.collect(),
        };
        let word = Word::Memory { shard: shard.index, session: lodged.key.to_bits(), memory };
        let memory = [regions.rings.as_fd(), regions.send_heap.as_fd()];
        let fds: Vec<BorrowedFd<'_>> = memory.into_iter().chain(bells.into_iter().flatten()).collect();
        channel.send(&word, &fds)?;
    }
    Ok(())
}
