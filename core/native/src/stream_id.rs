//! Which id the next stream gets, and which streams an id says have been opened.

use crate::connection::Connection;
use crate::{Side, StreamId};

impl Connection {
    /// The next id opened here: odd for the initiator, even for the acceptor, rising by two. Ids wrap after 2^31 calls
    /// (two hours at 300,000 calls a second); one that is still open then is passed over.
    pub(crate) fn next_stream(&mut self) -> (StreamId, u64) {
        loop {
            let ordinal = self.opened;
            self.opened += 1;
            let id = self.made_id(ordinal);
            if id.0 != 0 && self.streams.find(id).is_none() {
                return (id, ordinal);
            }
        }
    }

    fn made_id(&self, ordinal: u64) -> StreamId {
        let first = if self.side == Side::Initiator { 1 } else { 2 };
        StreamId((ordinal.wrapping_mul(2).wrapping_add(first)) as u32)
    }

    /// The newest id opened here; zero before the first.
    pub(crate) fn newest_made(&self) -> u32 {
        self.opened.checked_sub(1).map_or(0, |ordinal| self.made_id(ordinal).0)
    }

    /// The ordinal of the newest stream a peer says it has taken; `Some(None)`: none. `None`: it cannot be.
    pub(crate) fn ordinal_of(&self, newest_taken: u32) -> Option<Option<u64>> {
        if newest_taken == 0 {
            return Some(None);
        }
        let behind = self.newest_made().wrapping_sub(newest_taken);
        let last = self.opened.checked_sub(1)?;
        let ordinal = last.checked_sub(u64::from(behind / 2))?;
        behind.is_multiple_of(2).then_some(Some(ordinal))
    }
}

#[cfg(test)]
mod tests {
    //! Shows that stream ids wrap without meeting one that is open, and what a peer may say it has taken.
    use super::*;
    use crate::{Config, Failure, Input, MethodIndex, NewCall};
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
        north.opened = (1 << 31) - 1;
        south.newest_taken = u32::MAX - 2;
        assert_eq!([open(&mut north), open(&mut north), open(&mut north)], [u32::MAX, 3, 5]);
        carry(&mut north, &mut south);
        assert_eq!(south.stream_count(), 4);
        assert_eq!(north.ordinal_of(u32::MAX), Some(Some((1 << 31) - 1)));
        assert_eq!(north.ordinal_of(6), None, "the other side opens even ids");
        assert_eq!(north.ordinal_of(0), Some(None));
    }

    #[test]
    fn even_ids_pass_over_zero() {
        let (_, mut south) = pair();
        south.opened = (1 << 31) - 2;
        let ids = [south.next_stream().0.0, south.next_stream().0.0, south.next_stream().0.0];
        assert_eq!(ids, [u32::MAX - 1, 2, 4]);
    }

    fn gone() -> Failure<'static> {
        Failure { code: Code::Aborted, execution: Execution::Executed, metadata: &[], trailer: None }
    }
}
