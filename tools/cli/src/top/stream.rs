//! Pictures of a daemon one by one, from its successor, too, when it is replaced.
//!
//! The stream of pictures is a call to an application of the daemon's own process, and ends with it. A thread asks for
//! another then, for as long as a successor may take to answer; whoever shows pictures waits for the next, and knows by
//! its absence that the daemon has stopped answering.

use super::picture::Picture;
use crate::admin::proto::TopRequest;
use crate::admin::proto::admin_client::AdminClient;
use crate::operator::{ANSWER_MAX, silence};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use trunkline::{Code, Execution, Status, Wait};

/// Time without a daemon after which there is no successor.
const SUCCESSOR_MAX: Duration = Duration::from_secs(5);
/// Between two questions whether it is there.
const LOOK: Duration = Duration::from_millis(50);

/// The pictures of a daemon and of those that take its place.
pub struct PictureStream {
    coming: Receiver<Result<Picture, Status>>,
    /// A daemon that answers has the next picture by then.
    patience: Duration,
}

impl PictureStream {
    /// Asks for one every `interval_ms`.
    pub fn of(client: AdminClient, interval_ms: u32) -> Self {
        // One picture waits; of a daemon whose pictures nobody takes no more are asked for.
        let (sender, coming) = sync_channel(1);
        std::thread::spawn(move || follow(&client, interval_ms, &sender));
        Self { coming, patience: Duration::from_millis(interval_ms.into()) + ANSWER_MAX }
    }

    /// The next one.
    ///
    /// # Errors
    /// Why no more come.
    pub fn next(&self) -> Result<Picture, Status> {
        self.coming.recv_timeout(self.patience).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => Status::deadline_exceeded(silence()),
                RecvTimeoutError::Disconnected => Status::unavailable("the daemon sends no more pictures"),
            })
        })
    }
}

/// Sends pictures until nobody takes them, or no daemon has any.
fn follow(client: &AdminClient, interval_ms: u32, pictures: &SyncSender<Result<Picture, Status>>) {
    // When the last daemon went away.
    let mut gone: Option<Instant> = None;
    loop {
        let end = match client.top(TopRequest { interval_ms }).wait() {
            Ok(mut stream) => loop {
                match stream.recv().wait() {
                    Ok(Some(picture)) => {
                        gone = None;
                        if pictures.send(Ok(picture.into_inner().into())).is_err() {
                            return;
                        }
                    }
                    Ok(None) => break Status::unavailable("the daemon has ended"),
                    Err(status) => break status,
                }
            },
            Err(status) => status,
        };
        if has_left(&end) {
            gone.get_or_insert_with(Instant::now);
        }
        if !gone.is_some_and(|gone| may_follow(&end) && gone.elapsed() < SUCCESSOR_MAX) {
            let _ = pictures.send(Err(end));
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a daemon was there, and has gone away.
fn has_left(end: &Status) -> bool {
    end.code() == Code::Unavailable && end.execution() != Execution::NotExecuted
}

/// Whether somebody else may answer soon: nobody is there, or a daemon whose own services are not yet.
fn may_follow(end: &Status) -> bool {
    matches!(end.code(), Code::Unavailable | Code::Unimplemented)
}

#[cfg(test)]
mod tests {
    //! Shows after which ends a successor is looked for.
    use super::*;

    #[test]
    fn a_successor_is_looked_for_where_there_was_a_daemon() {
        let gone =
            Status::unavailable("the serving application went away").with_execution(Execution::Unknown);
        assert!(has_left(&gone) && may_follow(&gone));
        let nobody = Status::unavailable("no daemon").with_execution(Execution::NotExecuted);
        assert!(!has_left(&nobody) && may_follow(&nobody));
        let denied = Status::new(Code::PermissionDenied, "").with_execution(Execution::Executed);
        assert!(!has_left(&denied) && !may_follow(&denied));
    }
}
