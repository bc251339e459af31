//! The start of a streaming call: made by whichever half is used first.

use super::draft::{Draft, Hurdle};
use super::made::Made;
use crate::message::Sendable;
use futures_util::lock::Mutex;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::Poll;
use trunkline_call::Status;

/// A call that both halves of a stream share.
pub(crate) struct Opening<B> {
    stage: Mutex<Stage<B>>,
    /// No message follows: to be said as soon as there is a call to say it about.
    closed: AtomicBool,
}

/// An [`Opening`] as the receiving half sees it.
pub(crate) trait Start: fmt::Debug + Send + Sync {
    /// The call, started without a message if it has not been started.
    fn start(self: Arc<Self>) -> Starting<Arc<Made>>;
}

pub(crate) type Starting<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

enum Stage<B> {
    Fresh(Option<Box<Draft<B>>>),
    Starting(Starting<Made>),
    Open(Arc<Made>),
    Failed(Status),
}

impl<B: Sendable> Opening<B> {
    pub(super) fn new(draft: Draft<B>) -> Arc<Self> {
        let stage = Mutex::new(Stage::Fresh(Some(Box::new(draft))));
        Arc::new(Self { stage, closed: AtomicBool::new(false) })
    }

    /// Changes the draft, if the call has not been started.
    pub(super) fn adjust(&self, change: impl FnOnce(&mut Draft<B>)) {
        if let Some(mut stage) = self.stage.try_lock()
            && let Stage::Fresh(Some(draft)) = &mut *stage
        {
            change(draft);
        }
    }

    /// The call. Starts it if it has not been started, with `first` as its first message (which is taken then).
    ///
    /// Whoever stops waiting here leaves the start to the next who asks; a message taken stays part of it.
    pub(crate) async fn open(&self, first: Option<&mut Option<B>>, end: bool) -> Result<Arc<Made>, Status> {
        let made = self.open_locked(first, end).await?;
        // SYNC: pairs with the fence in `close`; the lock has been let go of.
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            made.half_close();
        }
        Ok(made)
    }

    async fn open_locked(&self, first: Option<&mut Option<B>>, end: bool) -> Result<Arc<Made>, Status> {
        let mut stage = self.stage.lock().await;
        if let Stage::Fresh(draft) = &mut *stage {
            let Some(mut draft) = draft.take() else {
                return Err(Status::internal("a stream without a call"));
            };
            draft.body = first.and_then(Option::take);
            draft.end = end;
            let tried = poll_fn(|cx| Poll::Ready(draft.try_start(cx.waker(), false))).await;
            *stage = match tried {
                Ok(made) => Stage::Open(Arc::new(made)),
                Err(Hurdle::Never(status)) => Stage::Failed(status),
                Err(_) => Stage::Starting(Box::pin(draft.start())),
            };
        }
        if let Stage::Starting(starting) = &mut *stage {
            *stage = match starting.await {
                Ok(made) => Stage::Open(Arc::new(made)),
                Err(status) => Stage::Failed(status),
            };
        }
        match &*stage {
            Stage::Open(made) => Ok(Arc::clone(made)),
            Stage::Failed(status) => Err(status.clone()),
            Stage::Fresh(_) | Stage::Starting(_) => Err(Status::internal("a stream was not started")),
        }
    }
}

impl<B> Opening<B> {
    /// No message follows.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // SYNC: pairs with the fence in `open`. Either we get the lock and see the call, or whoever has the lock to
        // start the call sees the flag after letting go of it (Dekker).
        fence(Ordering::SeqCst);
        if let Some(stage) = self.stage.try_lock()
            && let Stage::Open(made) = &*stage
        {
            made.half_close();
        }
    }
}

impl<B> fmt::Debug for Opening<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl<B: Sendable> Start for Opening<B> {
    fn start(self: Arc<Self>) -> Starting<Arc<Made>> {
        Box::pin(async move { self.open(None, false).await })
    }
}

impl<B> fmt::Debug for Stage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fresh(_) => "fresh",
            Self::Starting(_) => "starting",
            Self::Open(_) => "open",
            Self::Failed(_) => "failed",
        })
    }
}
