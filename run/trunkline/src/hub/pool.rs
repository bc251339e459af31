//! Lanes that threads share.

use super::lane::Lane;
use crate::session::Session;
use parking_lot::Mutex;
use std::sync::Arc;

/// A fixed number of lanes, each leased to the threads that call through it. One that no thread uses has no session.
#[derive(Debug)]
pub(crate) struct LanePool {
    lanes: Vec<Arc<Lane>>,
    /// Held while a lane is picked, so that two threads do not pick the same.
    leasing: Mutex<()>,
}

impl LanePool {
    /// Of at least one lane.
    pub(super) fn new(name: &Arc<str>, lanes: usize) -> Self {
        let lanes = (0..lanes.max(1)).map(|_| Lane::of_calls(name)).collect();
        Self { lanes, leasing: Mutex::new(()) }
    }

    /// A lane for a thread: the one with the fewest threads, of several the first. To be
    /// [given back](Lane::give_back).
    pub(crate) fn lease(&self) -> Arc<Lane> {
        let _leasing = self.leasing.lock();
        let lane = self.lanes.iter().min_by_key(|lane| lane.threads()).unwrap_or(&self.lanes[0]);
        lane.take();
        Arc::clone(lane)
    }

    /// The lane that attaches before any other.
    pub(crate) fn first(&self) -> &Arc<Lane> {
        &self.lanes[0]
    }

    /// A session of any lane, the first that has one.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.lanes.iter().find_map(|lane| lane.session())
    }
}

#[cfg(test)]
mod tests {
    //! Shows that threads spread over the lanes, and that a place given back is taken again.
    use super::*;

    #[test]
    fn a_thread_gets_the_lane_with_the_fewest() {
        let pool = LanePool::new(&"test".into(), 3);
        let place = |lane: &Arc<Lane>| pool.lanes.iter().position(|other| Arc::ptr_eq(other, lane)).unwrap();
        let leased: Vec<_> = (0..4).map(|_| pool.lease()).collect();
        assert_eq!(leased.iter().map(place).collect::<Vec<_>>(), [0, 1, 2, 0]);
        leased[1].give_back();
        assert_eq!(place(&pool.lease()), 1);
        assert_eq!(place(&pool.lease()), 1, "it had one thread as the third had, and comes first");
        assert!(pool.session().is_none(), "nothing was used");
        assert_eq!(LanePool::new(&"test".into(), 0).lanes.len(), 1);
    }
}
