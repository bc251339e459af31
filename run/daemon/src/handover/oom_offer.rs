//! Which of two daemons the kernel ends where memory is gone: the one that takes over, as long as the other can go on.
//! By itself it ends the larger one, which is the one that serves.

use std::fs;
use std::io;

const FILE: &str = "/proc/self/oom_score_adj";
/// The highest there is: this process goes first.
const FIRST: &str = "1000";

/// This process offers itself to the kernel in the place of others, until it [serves](Self::take_back).
#[derive(Debug)]
pub(super) struct OomOffer {
    /// What the file said before; `None`: nothing was changed.
    before: Option<String>,
}

impl OomOffer {
    /// Makes it. Where the kernel refuses, the hand-over goes on all the same.
    pub fn make() -> Self {
        let before = fs::read_to_string(FILE).and_then(|before| fs::write(FILE, FIRST).map(|()| before));
        if let Err(error) = &before {
            tracing::debug!(%error, "the old daemon may be ended for want of memory before this one");
        }
        Self { before: before.ok() }
    }

    /// This process serves now, and stands where the other stood.
    pub fn take_back(&self) {
        if let Some(before) = &self.before
            && let Err(error) = put_back(before)
        {
            tracing::warn!(%error, "the kernel ends this daemon first where memory is gone (oom_score_adj)");
        }
    }
}

fn put_back(before: &str) -> io::Result<()> {
    fs::write(FILE, before.trim())
}

#[cfg(test)]
mod tests {
    //! Shows what the kernel is told, and that it is as before afterwards.
    use super::*;

    #[test]
    fn an_offer_is_made_and_taken_back() {
        let said = || fs::read_to_string(FILE).unwrap();
        let before = said();
        let offer = OomOffer::make();
        assert_eq!(said().trim(), FIRST);
        offer.take_back();
        assert_eq!(said(), before);
    }
}
