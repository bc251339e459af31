//! How much of its window a connection's streams have taken together.

/// What came on a connection and has not been given back to its window. When half of that is taken, messages that are
/// not complete keep nothing of it until three quarters are free: no message would ever be complete if such had all.
#[derive(Debug, Default)]
pub(crate) struct ConnectionWindow {
    taken_bytes: usize,
    is_short: bool,
}

impl ConnectionWindow {
    /// So many bytes of a window of so many have come. Whether it is short from now on.
    #[inline]
    pub fn take(&mut self, bytes: usize, window_bytes: u32) -> bool {
        self.taken_bytes += bytes;
        let is_short = self.taken_bytes > window_bytes as usize / 2;
        is_short && !std::mem::replace(&mut self.is_short, true)
    }

    /// So many bytes are given back.
    #[inline]
    pub fn give_back(&mut self, bytes: usize, window_bytes: u32) {
        self.taken_bytes = self.taken_bytes.saturating_sub(bytes);
        self.is_short &= self.taken_bytes > window_bytes as usize / 4;
    }

    /// Whether messages that are not complete keep nothing of it.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether half of it is left, to go on with a message.
    pub fn takes_more(&self, window_bytes: u32) -> bool {
        self.taken_bytes <= window_bytes as usize / 2
    }

    /// Bytes that have not been given back.
    pub fn taken_bytes(&self) -> usize {
        self.taken_bytes
    }
}

#[cfg(test)]
mod tests {
    //! Shows when a window is short, and that streams are looked at once each time a quarter of it has come.
    use super::*;

    #[test]
    fn short_from_a_half_until_a_quarter() {
        let mut window = ConnectionWindow::default();
        assert!(!window.take(50, 100) && !window.is_short() && window.takes_more(100));
        assert!(window.take(1, 100) && window.is_short());
        for _ in 0..10 {
            window.give_back(20, 100);
            assert!(window.is_short() && window.takes_more(100));
            assert!(!window.take(20, 100), "it has been short all the while");
        }
        window.give_back(26, 100);
        assert!(!window.is_short());
        assert_eq!((window.take(25, 100), window.take(1, 100), window.taken_bytes()), (false, true, 51));
    }
}
