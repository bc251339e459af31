//! Changes of the daemon that were asked for by those who may not, until whoever keeps the audit log takes them.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use trunkline_engine::DeniedChange;

/// Those that wait; more are counted. Whoever may not change anything asks as often as they like.
const WAITING_MAX: usize = 64;

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct Denials {
    sender: SyncSender<DeniedChange>,
    /// Until somebody takes it.
    receiver: Option<Receiver<DeniedChange>>,
    left_out: u64,
}

impl Default for Denials {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        Self { sender, receiver: Some(receiver), left_out: 0 }
    }
}

impl Denials {
    pub fn note(&mut self, mut denied: DeniedChange) {
        denied.left_out += std::mem::take(&mut self.left_out);
        if let Err(TrySendError::Full(denied) | TrySendError::Disconnected(denied)) =
            self.sender.try_send(denied)
        {
            self.left_out = denied.left_out + 1;
        }
    }

    pub fn take(&mut self) -> Option<Receiver<DeniedChange>> {
        self.receiver.take()
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is told, and what is only counted.
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_with_the_next_that_does() {
        let mut denials = Denials::default();
        let denied = DeniedChange::new("uid:7", "/trunkline.admin.v1.Control/Upgrade", "no");
        (0..WAITING_MAX + 3).for_each(|_| denials.note(denied.clone()));
        denials.note(DeniedChange { left_out: 2, ..denied.clone() });
        let told = denials.take().unwrap();
        assert_eq!(
            (told.try_iter().map(|one| one.left_out).sum::<u64>(), denials.take().is_none()),
            (0, true)
        );
        denials.note(denied.clone());
        denials.note(denied);
        assert_eq!(told.try_iter().map(|one| one.left_out).collect::<Vec<_>>(), [6, 0]);
    }
}
