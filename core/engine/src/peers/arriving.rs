//! Large messages on their way in: what comes of them, and who stands still.

use super::ends::PeerEnds;
use crate::assembly::{Assembly, AssemblyPlace};
use crate::held::HeldBudget;
use crate::limits::ARRIVING;
use crate::{CallKey, Heaps, PeerKey};
use trunkline_call::Fault;
use trunkline_native::StreamId;

impl PeerEnds {
    /// A peer begins a message, for which there is a place. It may send all of it from now on. `false`: it is gone.
    ///
    /// # Errors
    /// No more may be held for it, or not so much at once (`bytes_max`).
    pub fn begin_assembly(
        &mut self,
        held: &mut HeldBudget,
        bytes_max: usize,
        (key, stream): (PeerKey, StreamId),
        mut assembly: Assembly,
    ) -> Result<bool, Fault> {
        let Some(peer) = self.table.find_mut(key) else { return Ok(false) };
        let total = assembly.total;
        if matches!(assembly.place, AssemblyPlace::Private(_)) {
            if peer.assembling_bytes + total as usize > bytes_max {
                return Err(Fault::Limit { name: ARRIVING, limit: bytes_max as u64 });
            }
            peer.await_bytes(held, total as usize)?;
        }
        // There is room for all of it, so the peer may send all of it, however small its window is.
        assembly.ahead = peer.connection.make_room(stream, total);
        peer.assemblies.insert(stream, assembly);
        Ok(true)
    }

    /// So much of it is counted in the bytes that arrive in a session's receive heap.
    pub fn count_arriving(&mut self, (key, stream): (PeerKey, StreamId), counted: u32) {
        let peer = self.table.find_mut(key);
        if let Some(assembly) = peer.and_then(|peer| peer.assemblies.get_mut(&stream)) {
            assembly.counted = counted;
        }
    }

    /// Takes bytes of a message, which are none when the host has read them into place itself. The message, with its
    /// last.
    ///
    /// # Errors
    /// Nothing more may be held for its sender: what becomes of its call.
    pub fn take_chunk(
        &mut self,
        held: &mut HeldBudget,
        heaps: &mut dyn Heaps,
        (key, stream): (PeerKey, StreamId),
        offset: u32,
        bytes: &[u8],
        last: bool,
    ) -> Result<Option<Assembly>, (CallKey, Fault)> {
        let Some(peer) = self.table.find_mut(key) else { return Ok(None) };
        let may = peer.take_bytes(held, stream, offset as usize + bytes.len());
        let Some(assembly) = peer.assemblies.get_mut(&stream) else { return Ok(None) };
        may.map_err(|fault| (assembly.call, fault))?;
        if let Some(into) = assembly.room(heaps, offset, bytes.len()) {
            into.copy_from_slice(bytes);
        }
        Ok(last.then(|| peer.take_assembly(stream)).flatten())
    }

    /// The memory the next bytes of a connection's socket belong in, for the host to read it into. None where nothing
    /// more may be held for its sender: what comes ends the call.
    pub fn wanted<'a>(
        &'a mut self,
        held: &mut HeldBudget,
        heaps: &'a mut dyn Heaps,
        key: PeerKey,
    ) -> Option<&'a mut [u8]> {
        let peer = self.table.find_mut(key)?;
        let placement = peer.connection.wanted()?;
        let (stream, offset, len) = (placement.stream, placement.offset, placement.bytes as usize);
        peer.take_bytes(held, stream, offset as usize + len).ok()?;
        peer.assemblies.get_mut(&stream)?.room(heaps, offset, len)
    }

    /// A message is given up.
    pub fn take_assembly(&mut self, key: PeerKey, stream: StreamId) -> Option<Assembly> {
        self.table.find_mut(key)?.take_assembly(stream)
    }

    /// Whether somebody is to look in a while whether a connection's messages go on, and nobody is to yet.
    pub fn is_to_be_looked_at(&mut self, key: PeerKey) -> bool {
        let peer = self.table.find_mut(key).filter(|peer| !peer.assemblies.is_empty());
        peer.is_some_and(|peer| !std::mem::replace(&mut peer.is_looked_at, true))
    }

    /// Looks whether they do: the calls of those that do not.
    pub fn stalled(&mut self, key: PeerKey) -> Vec<CallKey> {
        let Some(peer) = self.table.find_mut(key) else { return Vec::new() };
        peer.is_looked_at = false;
        peer.assemblies.values_mut().filter_map(|one| one.has_stalled().then_some(one.call)).collect()
    }
}
