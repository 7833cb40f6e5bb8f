//! Writes that nobody's event loop should wait for, on threads that come and go.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A thread without work ends after this long: an idle server keeps none, and a fork
/// finds none.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs in the order they come, several at once. Dropping it lets them finish.
#[derive(Debug)]
pub struct Queue {
    shared: Arc<Shared>,
    most: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    unfinished: usize,
}

impl Queue {
    /// A queue of at most `most` threads (at least one); none is started yet.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            shared: Arc::default(),
            most: most.max(1),
        }
    }

    /// Runs a job soon; at once, on this thread, where no thread can be had.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        state.unfinished += 1;
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= self.most {
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("rollfold-capture".into());
        if thread.spawn(move || shared.work()).is_err() {
            let mut state = self.shared.state();
            state.threads -= 1;
            if state.threads == 0
                && let Some(job) = state.jobs.pop_front()
            {
                drop(state);
                self.shared.run(job);
            }
        }
    }

    /// Waits until every job has run, `timeout` at most; whether they have.
    #[must_use]
    pub fn drain(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state();
        while state.unfinished > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.run(job);
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (woken, timeout) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn run(&self, job: Job) {
        // A job that panics says so itself, when what it held is dropped.
        let _ = catch_unwind(AssertUnwindSafe(job));
        let mut state = self.state();
        state.unfinished -= 1;
        if state.unfinished == 0 {
            self.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_job_runs_once_and_a_panic_costs_itself() {
        let queue = Queue::new(4);
        let count = Arc::new(AtomicUsize::new(0));
        for number in 0..500 {
            let count = Arc::clone(&count);
            queue.submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
                assert!(number % 100 != 99, "one in a hundred");
            });
        }
        assert!(queue.drain(Duration::from_secs(20)));
        assert_eq!(count.load(Ordering::Relaxed), 500);
        assert!(queue.shared.state().threads <= 4);
    }

    #[test]
    fn a_drain_is_bounded() {
        let queue = Queue::new(1);
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        queue.submit(move || {
            let _ = wait.recv();
        });
        assert!(!queue.drain(Duration::from_millis(20)));
        drop(go_on);
        assert!(queue.drain(Duration::from_secs(20)));
    }
}
