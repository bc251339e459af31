//! An executor of several threads, none of which drains a ring.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

/// Every time a task is woken it moves: the next of the threads polls it.
pub struct Executor {
    queues: Vec<mpsc::Sender<Arc<Task>>>,
    threads: Vec<JoinHandle<()>>,
    next: AtomicUsize,
}

struct Task {
    /// `None` when it has ended.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queues: Vec<mpsc::Sender<Arc<Task>>>,
    turn: AtomicUsize,
}

impl Executor {
    pub fn new(threads: usize) -> Self {
        let (queues, taken): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel()).unzip();
        let run = |tasks: mpsc::Receiver<Arc<Task>>| {
            std::thread::spawn(move || tasks.into_iter().for_each(|task: Arc<Task>| task.poll()))
        };
        Self { queues, threads: taken.into_iter().map(run).collect(), next: AtomicUsize::new(0) }
    }

    /// Begins a task, on each of the threads in turn. What it gives can be received once it has ended.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (tell, hear) = mpsc::channel();
        let future = async move {
            let _ = tell.send(future.await);
        };
        let task = Arc::new(Task {
            future: Mutex::new(Some(Box::pin(future))),
            queues: self.queues.clone(),
            turn: AtomicUsize::new(self.next.fetch_add(1, Ordering::Relaxed)),
        });
        task.wake();
        hear
    }

    /// Waits until every task has ended: then nobody can wake one any more, and the threads have nothing to wait for.
    pub fn finish(self) {
        drop(self.queues);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut future = self.future.lock().unwrap();
        if let Some(running) = &mut *future
            && running.as_mut().poll(&mut Context::from_waker(&waker)) != Poll::Pending
        {
            *future = None;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.queues.len();
        // Its thread ends only when no task is left.
        let _ = self.queues[turn].send(Arc::clone(&self));
    }
}
