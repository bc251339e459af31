//! What became of the handlers: counted by label, so that tests can wait for it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The server's memory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    by_label: HashMap<String, Counts>,
    open: HashSet<String>,
    at_gates: Vec<Waker>,
    log: Option<File>,
}

/// What became of the handlers under one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Handlers entered.
    pub entered: u64,
    /// Handlers that returned.
    pub returned: u64,
    /// Handlers dropped before they returned.
    pub dropped: u64,
}

/// A handler being counted: dropped without [`Entry::returned`], it was cancelled.
#[derive(Debug)]
pub struct Entry {
    journal: Journal,
    label: String,
    returned: bool,
}

impl Journal {
    /// A journal that also writes the numbers of executed orders to `log`, one line and one write each, so that they
    /// survive whatever happens to this process.
    pub fn with_log(log: File) -> Self {
        let journal = Self::default();
        journal.books().log = Some(log);
        journal
    }

    /// A handler was entered.
    pub fn enter(&self, label: &str) -> Entry {
        self.books().by_label.entry(label.to_owned()).or_default().entered += 1;
        Entry { journal: self.clone(), label: label.to_owned(), returned: false }
    }

    /// What became of the handlers under `label`.
    pub fn counts(&self, label: &str) -> Counts {
        self.books().by_label.get(label).copied().unwrap_or_default()
    }

    /// Opens a gate for good.
    pub fn open(&self, gate: &str) {
        let mut books = self.books();
        books.open.insert(gate.to_owned());
        books.at_gates.drain(..).for_each(Waker::wake);
    }

    /// Waits until a gate is open.
    pub async fn pass(&self, gate: &str) {
        std::future::poll_fn(|cx| {
            let mut books = self.books();
            if books.open.contains(gate) {
                return Poll::Ready(());
            }
            books.at_gates.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Keeps this thread until a gate is open.
    pub fn block_at(&self, gate: &str) {
        while !self.books().open.contains(gate) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An order was executed.
    ///
    /// # Panics
    /// If the log cannot be written: the test could not be trusted.
    pub fn executed(&self, number: u64) {
        if let Some(log) = &mut self.books().log {
            log.write_all(format!("{number}\n").as_bytes()).expect("the log is written");
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The handler returns.
    pub fn returned(mut self) {
        self.returned = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut books = self.journal.books();
        let counts = books.by_label.entry(self.label.clone()).or_default();
        if self.returned {
            counts.returned += 1;
        } else {
            counts.dropped += 1;
        }
    }
}
