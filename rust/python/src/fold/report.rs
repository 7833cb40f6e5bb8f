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
    pub fn count_and_tell<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.count();
        if self.waited.is_zero() && self.told.is_empty() && self.kept.is_none() {
            return Ok(None);
        }
        let dict = PyDict::new(py);
        dict.set_item("waited_s", self.waited.as_secs_f64())?;
        dict.set_item("told", &self.told)?;
        dict.set_item("kept", &self.kept)?;
        Ok(Some(dict))
    }

    fn count(&self) {
        let met = [
            1,
            self.calls as u64,
            self.bytes as u64,
            self.unreadable as u64,
            u64::try_from(self.waited.as_nanos()).unwrap_or(u64::MAX),
            u64::from(self.lock_unavailable),
            u64::from(self.deleted),
        ];
        for (counter, met) in COUNTERS.iter().zip(met) {
            counter.fetch_add(met, Ordering::Relaxed);
        }
    }
}

/// What is counted, in the order of [`COUNTERS`].
const NAMES: [&str; 7] = [
    "rollouts",
    "calls",
    "bytes",
    "records_unreadable",
    "wait_s",
    "locks_refused",
    "captures_deleted",
];

/// What was counted since the process began; waiting in nanoseconds.
static COUNTERS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// What this process has folded since it began, by name; see `rollfold.stats`.
#[pyfunction]
#[allow(clippy::cast_precision_loss)] // nanoseconds of waiting as seconds
fn counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, counter) in NAMES.into_iter().zip(&COUNTERS) {
        let count = counter.load(Ordering::Relaxed);
        if name == "wait_s" {
            dict.set_item(name, count as f64 / 1e9)?;
        } else {
            dict.set_item(name, count)?;
        }
    }
    Ok(dict)
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(counters, module)?)
}
