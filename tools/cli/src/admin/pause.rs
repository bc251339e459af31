//! Waiting for time to pass, inside a handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A future that is ready when its time has passed.
///
/// Every pause is a short-lived thread: the admin API pauses about once a second per operator who watches, and a timer
/// of its own would be more machinery than that deserves.
pub struct Pause {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    over: bool,
    waker: Option<Waker>,
}

impl Pause {
    /// Starts to pause.
    pub fn of(time: Duration) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let theirs = Arc::clone(&state);
        let timer = std::thread::Builder::new().name("pause".into()).spawn(move || {
            std::thread::sleep(time);
            end(&theirs);
        });
        if timer.is_err() {
            // No thread to be had: better a busy host's extra picture than none for ever.
            end(&state);
        }
        Self { state }
    }
}

fn end(state: &Mutex<State>) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.over = true;
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
