//! Quiescence: a bounded wait for a rollout's calls that are still in flight.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use super::inflight::InflightProbe;
use super::lock::Backoff;
use super::paths::capture_path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// Nothing is in flight.
    Quiet,
    /// Something still was when the time was up.
    InFlight,
}

#[derive(Clone, Copy, Debug)]
pub struct Quiescence {
    pub quiet: Quiet,
    pub waited: Duration,
}

/// A wait in steps, for callers that sleep in their own way (an event loop's timers).
#[derive(Debug)]
pub struct QuietWatch {
    timeout: Duration,
    settle: Duration,
    started: Option<Instant>,
    backoff: Backoff,
    /// The file's length as last seen, and when it was first seen so.
    seen: Option<(u64, Instant)>,
}

/// What a step of [`QuietWatch`] asks for.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Sleep(Duration),
    Done(Quiescence),
}

impl QuietWatch {
    /// `timeout` bounds the wait as a whole; `settle` is for writers that announce nothing:
    /// their file must not have grown for that long (zero: no such wait).
    #[must_use]
    pub fn new(timeout: Duration, settle: Duration) -> Self {
        Self {
            timeout,
            settle,
            started: None,
            backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(10)),
            seen: None,
        }
    }

    pub fn step(&mut self, dirs: &[PathBuf], id: &str, probe: &mut InflightProbe) -> Step {
        let unsettled = if probe.in_flight(dirs, id) {
            Some(self.timeout)
        } else if self.settle.is_zero() {
            None
        } else {
            self.growing(dirs, id)
        };
        let Some(hint) = unsettled else {
            return self.done(Quiet::Quiet);
        };
        let left = self.timeout.saturating_sub(self.waited());
        self.started.get_or_insert_with(Instant::now);
        if left.is_zero() {
            return self.done(Quiet::InFlight);
        }
        Step::Sleep(self.backoff.pause(left.min(hint)))
    }

    fn waited(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |at| at.elapsed())
    }

    fn done(&self, quiet: Quiet) -> Step {
        Step::Done(Quiescence {
            quiet,
            waited: self.waited(),
        })
    }

    /// How long the file must still stay as it is, `None` where it has settled. Its own
    /// time of change spares the wait for a file that has long been at rest.
    fn growing(&mut self, dirs: &[PathBuf], id: &str) -> Option<Duration> {
        let found = dirs
            .iter()
            .find_map(|dir| std::fs::metadata(capture_path(dir, id)).ok())?;
        let now = Instant::now();
        let len = found.len();
        let since = match self.seen {
            Some((before, since)) if before == len => since,
            Some(_) => now,
            None => {
                let age = found
                    .modified()
                    .ok()
                    .and_then(|at| SystemTime::now().duration_since(at).ok());
                age.and_then(|age| now.checked_sub(age)).unwrap_or(now)
            }
        };
        self.seen = Some((len, since));
        let left = self
            .settle
            .saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }
}

/// Waits until no call of `id` is in flight, `timeout` at most; not at all where nothing is.
pub fn wait_quiet(
    dirs: &[PathBuf],
    id: &str,
    timeout: Duration,
    foreign_settle: Duration,
    probe: &mut InflightProbe,
) -> Quiescence {
    let mut watch = QuietWatch::new(timeout, foreign_settle);
    loop {
        match watch.step(dirs, id, probe) {
            Step::Sleep(pause) => sleep(pause),
            Step::Done(quiescence) => return quiescence,
        }
    }
}
