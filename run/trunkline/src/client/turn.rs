//! Waiting for room in a session.

use crate::session::{Place, Room, Session};
use std::future::poll_fn;
use std::sync::Arc;

/// A place in the queue for one kind of room, kept over several tries, given up when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    session: Arc<Session>,
    place: Place,
}

/// Waits until it is worth trying again: in the place of `turn`, if that is in this queue, else at the end. `None` when
/// the session is another process's.
pub(crate) async fn wait_for(
    turn: Option<Turn>,
    session: &Arc<Session>,
    room: Room,
    wanted_bytes: u32,
) -> Option<Turn> {
    let mut turn = match turn {
        Some(turn) if Arc::ptr_eq(&turn.session, session) && turn.place.room == room => turn,
        _ => {
            let ticket = session.with(|books, _| books.join(room))?;
            Turn { session: Arc::clone(session), place: Place { room, ticket, wanted_bytes } }
        }
    };
    turn.place.wanted_bytes = wanted_bytes;
    let mut first = true;
    poll_fn(|cx| {
        let first = std::mem::take(&mut first);
        turn.session.poll_with(cx, |books, asker, effects| books.poll_room(turn.place, first, asker, effects))
    })
    .await?;
    Some(turn)
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.with(|books, effects| books.leave_room(self.place, effects));
    }
}
