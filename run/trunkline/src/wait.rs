//! Waiting for a future on a plain thread.

use crate::context::{self, Blocking};
use crate::kick::Kick;
use crate::session::Session;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Blocking use of every future of this library, and of any other: `client.say_hello(request).wait()?`.
///
/// The waiting thread drains the completion ring itself: nothing stands between the daemon and the caller, which makes
/// this the way with the lowest latency. It looks at the ring for some microseconds and then sleeps.
///
/// Not for use inside the tasks of an async executor: it blocks the executor's thread. In a handler it is allowed; the
/// worker goes on receiving meanwhile, but starts no other handler.
///
/// ```
/// use trunkline::Wait;
///
/// assert_eq!(async { 6 * 7 }.wait(), 42);
/// ```
pub trait Wait: IntoFuture + Sized {
    /// Blocks until the future is ready.
    ///
    /// # Panics
    /// If this process has no descriptor left for what the thread sleeps on; each thread takes one when it first waits.
    fn wait(self) -> Self::Output {
        block_on(self.into_future())
    }
}

impl<F: IntoFuture> Wait for F {}

/// Drives `future` on this thread until it is ready; what [`Wait::wait`] does.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let own = context::own_kick();
    let kick = &own.kick;
    let mut cx = Context::from_waker(&own.waker);
    let scope = Blocking::enter();
    let mut duty = Duty { followed: None, is_nested: scope.is_nested(), kick };
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
            return out;
        }
        let target = scope.take_target();
        if duty.followed.is_some() && duty.followed != target {
            duty.pass_on();
        }
        if let Some(session) = target
            && session.drive(kick)
        {
            duty.followed = Some(session);
        }
        kick.sleep(None);
        kick.take();
    }
}

/// What a thread owes others when it stops waiting, by a panic of its future, too.
struct Duty<'k> {
    /// The session the thread followed in, if it did.
    followed: Option<Arc<Session>>,
    is_nested: bool,
    kick: &'k Arc<Kick>,
}

impl Duty<'_> {
    /// A thread that followed may have been chosen to lead: now it goes elsewhere, somebody else must.
    fn pass_on(&mut self) {
        if let Some(session) = self.followed.take() {
            session.hand_over();
        }
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        self.pass_on();
        if self.is_nested {
            // The kick taken may have been meant for the future that called us.
            self.kick.kick();
        }
    }
}
