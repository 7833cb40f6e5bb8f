//! Advisory locks with a bounded wait.

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    Shared,
    Exclusive,
}

/// How an attempt to lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The lock is ours until the file is closed.
    Locked { waited: bool },
    /// Another holder kept it for as long as we were ready to wait.
    TimedOut,
    /// The file system gives no locks.
    Unavailable,
}

impl Held {
    #[must_use]
    pub fn locked(self) -> bool {
        matches!(self, Self::Locked { .. })
    }
}

/// Pauses between tries: `first`, growing by half to `most`.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        Self { next: first, most }
    }

    /// The next pause, never past `left`.
    pub(super) fn pause(&mut self, left: Duration) -> Duration {
        let pause = self.next.min(left);
        self.next = (self.next + self.next / 2).min(self.most);
        pause
    }
}

/// Takes a `flock`, waiting at most `wait`. Polls, because a blocking `flock` has no
/// time-out, and a timer signal is not ours to use inside somebody's process.
pub fn acquire(file: impl AsFd, mode: LockMode, wait: Duration) -> Held {
    let operation = match mode {
        LockMode::Shared => FlockOperation::NonBlockingLockShared,
        LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
    };
    let mut started = None;
    // A line is written within a millisecond or two unless fsync is slow.
    let mut backoff = Backoff::new(Duration::from_micros(250), Duration::from_millis(10));
    loop {
        match flock(&file, operation) {
            Ok(()) => {
                return Held::Locked {
                    waited: started.is_some(),
                };
            }
            Err(Errno::WOULDBLOCK) => {
                let left = wait.saturating_sub(started.get_or_insert_with(Instant::now).elapsed());
                if left.is_zero() {
                    return Held::TimedOut;
                }
                sleep(backoff.pause(left));
            }
            Err(Errno::INTR) => {}
            // ENOLCK, ENOSYS, EBADF, EOPNOTSUPP, EINVAL and whatever else a file system
            // answers: no reason to lose a rollout (contract, section 3).
            Err(_) => return Held::Unavailable,
        }
    }
}
