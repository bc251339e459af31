//! How a shard makes room for a connection: the oldest of all shards that has not said what it wants gives way
//! (`giving_way.rs`).
//!
//! What a connection has said may lie unread: its shard had no turn since. So each is read before it gives way, as in
//! its own turn. If that is enough to know what it wants, it stays, and the next gives way; a crowd that says a byte
//! each is no better off than one that is silent.

use crate::giving_way::{GAVE_WAY, GivesWay};
use crate::shard::Shard;
use crate::token::Token;
use crate::unidentified::{Unidentified, UnidentifiedKey};
use trunkline_net::{Ready, Source};

/// Connections that are read for one that wants their place: if so many have said what they want, the shard has other
/// work to do first.
const LOOKS_MAX: usize = 64;

/// What there is for another connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundRoom {
    /// A connection of this shard was closed.
    Made,
    /// Another shard is about to close one.
    Soon,
    /// Other shards are about to close as many as they may be asked to, or so many have been looked at in vain.
    Later,
    /// Nobody gives way.
    Nowhere,
}

/// Has the oldest connection closed that has shown nothing of what it wants: of this source, or of the one that has
/// most of them.
pub(crate) fn make(shard: &mut Shard, source: Option<Source>) -> FoundRoom {
    for _ in 0..LOOKS_MAX {
        match shard.pending.places.unidentified.give_way(shard.index, source) {
            None => return FoundRoom::Nowhere,
            Some(GivesWay::Others) => return FoundRoom::Soon,
            Some(GivesWay::Later) => return FoundRoom::Later,
            Some(GivesWay::Own(key, unidentified)) if !is_there(shard, key, unidentified) => {
                // It has ended, or is about to.
                shard.pending.places.unidentified.remove(key);
            }
            Some(GivesWay::Own(key, unidentified)) => {
                // Another shard may have given away its place meanwhile: then it is closed for that.
                if is_silent(shard, key, unidentified) && shard.pending.places.unidentified.remove(key) {
                    close(shard, key, unidentified);
                    return FoundRoom::Made;
                }
            }
        }
    }
    FoundRoom::Later
}

/// Whether a connection of this shard still has not said what it wants once what it has said is read.
pub(crate) fn is_silent(shard: &mut Shard, key: UnidentifiedKey, unidentified: Unidentified) -> bool {
    if !is_there(shard, key, unidentified) {
        return false;
    }
    let ready =
        |token: Token| Ready { token: token.to_poller(), readable: true, writable: false, is_gone: false };
    match unidentified {
        Unidentified::Pending(id) => shard.serve_pending(id, ready(Token::Pending(id))),
        Unidentified::Peer(peer) => {
            shard.with_natives(|natives, lent| natives.serve(lent, peer, ready(Token::Peer(peer))));
        }
    }
    is_there(shard, key, unidentified)
}

/// Closes a connection that gives way.
pub(crate) fn close(shard: &mut Shard, key: UnidentifiedKey, unidentified: Unidentified) {
    match unidentified {
        Unidentified::Peer(peer) => {
            shard.with_natives(|natives, lent| natives.lose(lent, peer, GAVE_WAY));
        }
        Unidentified::Pending(id) => {
            if let Some(pending) = shard.pending.open.remove(&id) {
                shard.socket_timers.cancel(pending.alarm);
                tracing::info!(source = ?key.source, "a silent connection gives way to another");
            }
        }
    }
}

fn is_there(shard: &Shard, key: UnidentifiedKey, unidentified: Unidentified) -> bool {
    match unidentified {
        Unidentified::Pending(id) => {
            shard.pending.open.get(&id).is_some_and(|pending| pending.unidentified == Some(key))
        }
        Unidentified::Peer(peer) => shard.sockets.is_unidentified(peer, key),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that what lies unread is read before anybody gives way, on whichever shard; that a beginning helps nobody;
    //! that nobody is out of time before it is read, either;
    //! and that the place of one that gave way is the newcomer's, however many others have not been given back.
    use super::*;
    use crate::handle::Daemon;
    use crate::handle::tests::shards_at_rest;
    use crate::purpose::Purpose;
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use trunkline_native::PREAMBLE;
    use trunkline_net::Stream;

    /// All that a client of HTTP/2 says at first.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Two shards that have places for so many connections.
    fn two_shards(places: usize) -> (Daemon, Vec<Shard>) {
        shards_at_rest(&format!(
            "[daemon]\nshards = 2\nconnections_max = {places}\nconnections_per_source_max = {places}\n"
        ))
    }

    /// Somebody connects and says this, which is not read yet.
    fn connect(shard: &mut Shard, said: &[u8]) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        theirs.write_all(said).unwrap();
        shard.admit_accepted(Stream::inherit(ours.into(), false).unwrap(), &Purpose::Peers);
        theirs
    }

    fn is_open(mut client: &UnixStream) -> bool {
        loop {
            match client.read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn are_open<const N: usize>(clients: &[UnixStream; N]) -> [bool; N] {
        std::array::from_fn(|index| is_open(&clients[index]))
    }

    #[test]
    fn what_lies_unread_is_read_before_one_gives_way() {
        let preamble = PREAMBLE.to_le_bytes();
        for newcomers_shard in [0, 1] {
            let (_daemon, mut shards) = two_shards(5);
            let said: [&[u8]; 5] = [PREFACE, b"", b"P", &preamble, PREFACE];
            let first = said.map(|said| connect(&mut shards[0], said));
            let mut others = Vec::new();
            let after = [
                [true, false, true, true, true],
                [true, false, false, true, true],
                [true, false, false, false, true],
            ];
            for open in after {
                others.push(connect(&mut shards[newcomers_shard], b""));
                shards[0].take_commands();
                assert_eq!(are_open(&first), open, "newcomers are shard {newcomers_shard}'s");
                assert!(others.iter().all(is_open));
            }
            // Who comes next finds two that have said what they want, and three silent newcomers.
            others.push(connect(&mut shards[newcomers_shard], b""));
            shards.iter_mut().for_each(Shard::take_commands);
            assert_eq!(are_open(&first), [true, false, false, false, true]);
            assert_eq!(others.iter().map(is_open).collect::<Vec<_>>(), [false, true, true, true]);
        }
    }

    #[test]
    fn who_is_read_before_its_shard_hears_that_its_place_is_given_away_stays() {
        let (_daemon, mut shards) = two_shards(2);
        let first = [PREFACE, b""].map(|said| connect(&mut shards[0], said));
        let newcomer = connect(&mut shards[1], b"");
        let id = *shards[0].pending.open.keys().min().unwrap();
        let token = Token::Pending(id).to_poller();
        shards[0].serve_pending(id, Ready { token, readable: true, writable: false, is_gone: false });
        shards[0].take_commands();
        assert_eq!(are_open(&first), [true, false]);
        assert!(is_open(&newcomer));
    }

    #[test]
    fn where_all_have_spoken_the_silent_newcomer_gives_way() {
        let (_daemon, mut shards) = two_shards(2);
        let first = [PREFACE, PREFACE].map(|said| connect(&mut shards[0], said));
        let newcomer = connect(&mut shards[1], b"");
        shards.iter_mut().for_each(Shard::take_commands);
        assert_eq!(are_open(&first), [true, true]);
        assert!(!is_open(&newcomer));
    }

    #[test]
    fn what_lies_unread_is_read_before_time_is_up() {
        let (_daemon, mut shards) = two_shards(3);
        let first = [PREFACE, b"P", b""].map(|said| connect(&mut shards[0], said));
        let mut ids: Vec<u64> = shards[0].pending.open.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| shards[0].pending_timed_out(id));
        assert_eq!(are_open(&first), [true, false, false]);
    }

    #[test]
    fn the_place_that_was_made_is_the_newcomers_though_others_are_owed() {
        const PLACES: usize = 12;
        let (_daemon, mut shards) = two_shards(PLACES);
        let others: Vec<_> = (0..PLACES).map(|_| connect(&mut shards[0], b"")).collect();
        let own: Vec<_> = (0..PLACES).map(|_| connect(&mut shards[1], b"")).collect();
        // The first shard has had no turn: twelve places are not given back yet.
        let newcomer = connect(&mut shards[1], PREFACE);
        assert_eq!(own.iter().filter(|one| is_open(one)).count(), PLACES - 1, "one gives way");
        assert_eq!(shards[1].pending.places.unidentified.count(), PLACES, "and the newcomer is let in");
        shards[0].take_commands();
        assert!(!others.iter().any(is_open) && is_open(&newcomer));
    }
}
