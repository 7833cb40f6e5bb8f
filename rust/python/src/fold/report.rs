//! What was met on a rollout's way: counted for the process, told where a person should know.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What was met on the way: facts for counters and log lines.
#[derive(Debug, Default)]
pub struct Report {
    pub calls: usize,
    pub bytes: usize,
    pub unreadable: usize,
    pub waited: Duration,
    pub lock_unavailable: bool,
    pub told: Vec<String>,
    pub kept: Option<String>,
    pub deleted: bool,
}

impl Report {
    /// Counts the rollout, and gives what is to be told of it: none where that is nothing.
    pub fn told<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        COUNTERS.add(self);
        if self.waited.is_zero() && self.told.is_empty() && self.kept.is_none() {
            return Ok(None);
        }
        let dict = PyDict::new(py);
        dict.set_item("waited_s", self.waited.as_secs_f64())?;
        dict.set_item("told", &self.told)?;
        dict.set_item("kept", &self.kept)?;
        Ok(Some(dict))
    }
}

/// What was counted since the process began.
#[derive(Debug, Default)]
struct Counters {
    rollouts: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
    records_unreadable: AtomicU64,
    wait_ns: AtomicU64,
    locks_refused: AtomicU64,
    captures_deleted: AtomicU64,
}

static COUNTERS: Counters = Counters {
    rollouts: AtomicU64::new(0),
    calls: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    records_unreadable: AtomicU64::new(0),
    wait_ns: AtomicU64::new(0),
    locks_refused: AtomicU64::new(0),
    captures_deleted: AtomicU64::new(0),
};

impl Counters {
    fn add(&self, report: &Report) {
        let waited = u64::try_from(report.waited.as_nanos()).unwrap_or(u64::MAX);
        for (counter, met) in [
            (&self.rollouts, 1),
            (&self.calls, report.calls as u64),
            (&self.bytes, report.bytes as u64),
            (&self.records_unreadable, report.unreadable as u64),
            (&self.wait_ns, waited),
            (&self.locks_refused, u64::from(report.lock_unavailable)),
            (&self.captures_deleted, u64::from(report.deleted)),
        ] {
            if met > 0 {
                counter.fetch_add(met, Ordering::Relaxed);
            }
        }
    }
}

/// What this process has folded since it began, by name; see `rollfold.stats`.
#[pyfunction]
#[allow(clippy::cast_precision_loss)] // nanoseconds of waiting as seconds
fn counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let dict = PyDict::new(py);
    dict.set_item("rollouts", count(&COUNTERS.rollouts))?;
    dict.set_item("calls", count(&COUNTERS.calls))?;
    dict.set_item("bytes", count(&COUNTERS.bytes))?;
    dict.set_item("records_unreadable", count(&COUNTERS.records_unreadable))?;
    dict.set_item("wait_s", count(&COUNTERS.wait_ns) as f64 / 1e9)?;
    dict.set_item("locks_refused", count(&COUNTERS.locks_refused))?;
    dict.set_item("captures_deleted", count(&COUNTERS.captures_deleted))?;
    Ok(dict)
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(counters, module)?)
}
