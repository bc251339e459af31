//! Which id the next stream gets, and which streams an id says have been opened.

use crate::wire::{Header, out_of_place};
use crate::{ProtocolError, Side, StreamId};

/// The ids both sides have opened: odd ones the initiator, even ones the acceptor, rising by two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamIds {
    pub side: Side,
    /// Streams ever opened here; the next id follows from it.
    pub opened: u64,
    /// The newest stream the peer opened; zero before the first.
    pub newest_taken: u32,
}

impl StreamIds {
    pub fn new(side: Side) -> Self {
        Self { side, opened: 0, newest_taken: 0 }
    }

    /// The next id opened here, and the how-manieth it is. Ids wrap after 2^31 calls (two hours at 300,000 calls a
    /// second); one that is still open then is passed over.
    #[inline]
    pub fn next(&mut self, is_open: impl Fn(StreamId) -> bool) -> (StreamId, u64) {
        loop {
            let ordinal = self.opened;
            self.opened += 1;
            let id = self.made(ordinal);
            if id.0 != 0 && !is_open(id) {
                return (id, ordinal);
            }
        }
    }

    /// The peer opens a stream: its id has to be the peer's, and newer than all before it.
    pub fn check_new(&self, header: &Header) -> Result<(), ProtocolError> {
        if !self.is_peers(header.stream) {
            return Err(out_of_place(header, "the id's parity is this side's"));
        }
        let ahead = header.stream.wrapping_sub(self.newest_taken);
        if header.stream == 0 || ahead == 0 || ahead > i32::MAX as u32 {
            return Err(out_of_place(header, "ids of new streams must rise"));
        }
        Ok(())
    }

    /// A frame of a stream: somebody has to have opened it.
    pub fn check_opened(&self, header: &Header) -> Result<(), ProtocolError> {
        let id = header.stream;
        let newest = if self.is_peers(id) { self.newest_taken } else { self.newest_made() };
        let behind = newest.wrapping_sub(id);
        if id == 0 || newest == 0 || behind > i32::MAX as u32 {
            return Err(out_of_place(header, "the stream was never opened"));
        }
        Ok(())
    }

    /// The ordinal of the newest stream a peer says it has taken; `Some(None)`: none. `None`: it cannot be.
    pub fn ordinal_of(&self, newest_taken: u32) -> Option<Option<u64>> {
        if newest_taken == 0 {
            return Some(None);
        }
        let behind = self.newest_made().wrapping_sub(newest_taken);
        let last = self.opened.checked_sub(1)?;
        let ordinal = last.checked_sub(u64::from(behind / 2))?;
        behind.is_multiple_of(2).then_some(Some(ordinal))
    }

    fn made(&self, ordinal: u64) -> StreamId {
        let first = if self.side == Side::Initiator { 1 } else { 2 };
        StreamId((ordinal.wrapping_mul(2).wrapping_add(first)) as u32)
    }

    /// The newest id opened here; zero before the first.
    fn newest_made(&self) -> u32 {
        self.opened.checked_sub(1).map_or(0, |ordinal| self.made(ordinal).0)
    }

    fn is_peers(&self, stream: u32) -> bool {
        (stream % 2 == 1) == (self.side == Side::Acceptor)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that stream ids wrap without meeting one that is open, and what a peer may say it has taken.
    use super::*;
    use crate::{Config, Connection, Failure, Input, MethodIndex, NewCall};
    use std::sync::Arc;
    use trunkline_call::{Code, Deadline, Execution, Instant};

    const NOW: Instant = Instant(0);

    /// Moves what `from` has to say.
    fn carry(from: &mut Connection, to: &mut Connection) {
        let mut bytes = Vec::new();
        for chunk in from.poll_transmit(NOW, 1 << 20) {
            let crate::Chunk::Bytes(chunk) = chunk else { panic!("no body is shared here") };
            bytes.extend_from_slice(chunk);
        }
        from.transmitted(bytes.len());
        let mut input = Input::new(&bytes);
        while to.handle_bytes(NOW, &mut input).unwrap().is_some() {}
    }

    fn pair() -> (Connection, Connection) {
        let config = Arc::new(Config::default());
        let mut north = Connection::new(Side::Initiator, Arc::clone(&config), NOW);
        let mut south = Connection::new(Side::Acceptor, config, NOW);
        carry(&mut north, &mut south);
        carry(&mut south, &mut north);
        north.announce_schema("/a.B/C", 0, 0).unwrap();
        carry(&mut north, &mut south);
        (north, south)
    }

    fn open(connection: &mut Connection) -> u32 {
        let (method, deadline) = (MethodIndex(0), Deadline::NONE);
        let call =
            NewCall { tag: 0, method, caller: None, deadline, stamps: false, metadata: &[], end: true };
        connection.open_call(NOW, &call, None).unwrap().0
    }

    #[test]
    fn ids_wrap_past_one_that_is_open() {
        let (mut north, mut south) = pair();
        assert_eq!([open(&mut north), open(&mut north)], [1, 3]);
        south.send_error(NOW, StreamId(3), &gone()).unwrap_err();
        carry(&mut north, &mut south);
        south.send_error(NOW, StreamId(3), &gone()).unwrap();
        carry(&mut south, &mut north);
        // As if 2^31 - 1 calls had come and gone.
        north.streams.ids.opened = (1 << 31) - 1;
        south.streams.ids.newest_taken = u32::MAX - 2;
        assert_eq!([open(&mut north), open(&mut north), open(&mut north)], [u32::MAX, 3, 5]);
        carry(&mut north, &mut south);
        assert_eq!(south.stream_count(), 4);
        assert_eq!(north.streams.ids.ordinal_of(u32::MAX), Some(Some((1 << 31) - 1)));
        assert_eq!(north.streams.ids.ordinal_of(6), None, "the other side opens even ids");
        assert_eq!(north.streams.ids.ordinal_of(0), Some(None));
    }

    #[test]
    fn even_ids_pass_over_zero() {
        let mut south = StreamIds { opened: (1 << 31) - 2, ..StreamIds::new(Side::Acceptor) };
        let ids = [(); 3].map(|()| south.next(|_| false).0.0);
        assert_eq!(ids, [u32::MAX - 1, 2, 4]);
    }

    fn gone() -> Failure<'static> {
        Failure { code: Code::Aborted, execution: Execution::Executed, metadata: &[], trailer: None }
    }
}
