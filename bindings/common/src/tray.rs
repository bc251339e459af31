//! Where something lies while no operation works with it.

use parking_lot::Mutex;

/// A place for one thing, taken by one operation at a time.
#[derive(Debug)]
pub struct Tray<T>(Mutex<TrayContents<T>>);

#[derive(Debug)]
struct TrayContents<T> {
    what: Option<T>,
    /// What comes back is not kept.
    is_closed: bool,
}

/// What was taken; it goes back when this is dropped, unless it was [kept](Borrowed::keep).
#[derive(Debug)]
pub struct Borrowed<'t, T> {
    what: Option<T>,
    tray: &'t Tray<T>,
}

impl<T> Tray<T> {
    /// With `what` in it.
    pub fn new(what: T) -> Self {
        Self(Mutex::new(TrayContents { what: Some(what), is_closed: false }))
    }

    /// Takes what is there; `None` while somebody else has it, or for good.
    pub fn take(&self) -> Option<Borrowed<'_, T>> {
        let what = self.0.lock().what.take()?;
        Some(Borrowed { what: Some(what), tray: self })
    }

    /// Takes what is there and does not give it back.
    pub fn empty(&self) -> Option<T> {
        self.0.lock().what.take()
    }

    /// The same for good: what somebody has goes when it comes back.
    pub fn close(&self) -> Option<T> {
        let mut contents = self.0.lock();
        contents.is_closed = true;
        contents.what.take()
    }
}

impl<T> Borrowed<'_, T> {
    /// What was taken. `None` never: only [`Borrowed::keep`] takes it out, and ends this.
    pub fn get(&mut self) -> Option<&mut T> {
        self.what.as_mut()
    }

    /// Does not give it back.
    pub fn keep(mut self) -> Option<T> {
        self.what.take()
    }
}

impl<T> Drop for Borrowed<'_, T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            let mut contents = self.tray.0.lock();
            if !contents.is_closed {
                contents.what = Some(what);
                return;
            }
            // Not under the lock: it may wake others.
            drop(contents);
            drop(what);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a thing is one operation's at a time.
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_taken_comes_back_unless_it_is_kept() {
        let tray = Tray::new(7);
        let held = tray.take().unwrap();
        assert!(tray.take().is_none(), "somebody has it");
        drop(held);
        assert_eq!(tray.take().and_then(Borrowed::keep), Some(7));
        assert!(tray.take().is_none(), "it was kept");
    }

    #[test]
    fn what_comes_back_to_a_closed_tray_goes() {
        let what = Arc::new(());
        let tray = Tray::new(Arc::clone(&what));
        let held = tray.take().unwrap();
        assert!(tray.close().is_none(), "somebody has it");
        drop(held);
        assert!(tray.take().is_none() && Arc::strong_count(&what) == 1);
    }
}
