//! Calls one after another on several threads, with texts of a length, until they are to end: `flood BYTES`,
//! `flood-ends`.

use crate::proto::probe::Text;
use crate::proto::probe::probe_client::ProbeClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use trunkline::Wait;

const THREADS: usize = 4;

/// The threads that call, if any do.
#[derive(Debug, Default)]
pub(super) struct Floods {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, String>>>,
}

impl Floods {
    /// `begun`, or why not.
    pub(super) fn begin(&mut self, client: &ProbeClient, bytes: &str) -> String {
        let Ok(bytes) = bytes.parse() else { return format!("no number of bytes: {bytes}") };
        for _ in 0..THREADS {
            let (client, over) = (client.clone(), Arc::clone(&self.over));
            self.threads.push(std::thread::spawn(move || {
                let mut calls = 0;
                while !over.load(Ordering::Relaxed) {
                    let text = Text { text: "x".repeat(bytes) };
                    client.echo(text).wait().map_err(|status| status.to_string())?;
                    calls += 1;
                }
                Ok(calls)
            }));
        }
        "begun".into()
    }

    /// How many calls were answered, `OK 712`, or how one failed.
    pub(super) fn end(self) -> String {
        self.over.store(true, Ordering::Relaxed);
        let mut calls = 0;
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(made)) => calls += made,
                Ok(Err(why)) => return why,
                Err(_) => return "it panicked".into(),
            }
        }
        format!("OK {calls}")
    }
}
