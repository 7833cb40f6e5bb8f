//! What a caller asks of the fold for one rollout, and what it is told about it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rollfold_core::capture::Circumstances;
use rollfold_core::fold::{Fold, Mode, Sections, Task};
use rollfold_core::store::{
    Deletion, InflightProbe, Quiet, ReadBuffer, Reading, claim_and_delete, read, wait_quiet,
};

use super::report::Report;
use crate::ffi::lease::writers;

/// One rollout to be folded: everything but its result.
#[pyclass(frozen, module = "rollfold._core")]
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // the interface's flags
pub struct Request {
    pub dirs: Vec<PathBuf>,
    pub rollout_id: String,
    pub task_id: Option<String>,
    pub conflict: Option<String>,
    pub observability: bool,
    pub payloads: bool,
    pub latency_ms: Option<f64>,
    pub not_before: Option<f64>,
    pub quiescence: Duration,
    pub settle: Duration,
    pub lock_wait: Duration,
    pub in_flight: bool,
    pub interrupted: bool,
    pub failed: bool,
    pub delete: bool,
    pub mode: Mode,
}

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (dirs, rollout_id, task_id, conflict, *, observability, payloads=true,
        latency_ms=None, not_before=None, quiescence_s=0.0, settle_s=0.0, lock_wait_s=2.0,
        in_flight=false, interrupted=false, failed=false, delete=false, mode="files"))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn new(
        dirs: Vec<PathBuf>,
        rollout_id: String,
        task_id: Option<String>,
        conflict: Option<String>,
        observability: bool,
        payloads: bool,
        latency_ms: Option<f64>,
        not_before: Option<f64>,
        quiescence_s: f64,
        settle_s: f64,
        lock_wait_s: f64,
        in_flight: bool,
        interrupted: bool,
        failed: bool,
        delete: bool,
        mode: &str,
    ) -> PyResult<Self> {
        let mode = match mode {
            "files" => Mode::Files,
            "merge" => Mode::Merge,
            "record" => Mode::Record,
            other => return Err(PyValueError::new_err(format!("mode: unknown: {other}"))),
        };
        let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
        Ok(Self {
            dirs,
            rollout_id,
            task_id,
            conflict,
            observability,
            payloads,
            latency_ms,
            not_before,
            quiescence: seconds(quiescence_s),
            settle: seconds(settle_s),
            lock_wait: seconds(lock_wait_s),
            in_flight,
            interrupted,
            failed,
            delete,
            mode,
        })
    }
}

/// Buffers that files are read into, kept from one call to the next: fresh memory costs
/// more than reading.
static BUFFERS: Mutex<Vec<ReadBuffer>> = Mutex::new(Vec::new());
const KEPT_BYTES: usize = 64 << 20;
const FIRST_BUFFER: usize = 64 << 10;

/// A buffer of the pool, given back when it is dropped.
///
/// The pool is only ever tried: a child forked while it was held goes without.
#[derive(Debug)]
pub struct Buffer(pub ReadBuffer);

impl Buffer {
    pub fn take() -> Self {
        let pooled = BUFFERS.try_lock().ok().and_then(|mut pool| pool.pop());
        Self(pooled.unwrap_or_else(|| ReadBuffer::with_capacity(FIRST_BUFFER)))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(mut pool) = BUFFERS.try_lock() {
            let kept: usize = pool.iter().map(ReadBuffer::capacity).sum();
            if kept + self.0.capacity() <= KEPT_BYTES {
                self.0.clear();
                pool.push(std::mem::take(&mut self.0));
            }
        }
    }
}

/// A bound on waiting, in seconds; none: the request's own bounds are enough.
pub fn wait_limit(seconds: Option<f64>) -> Duration {
    seconds.map_or(Duration::MAX, |s| {
        Duration::try_from_secs_f64(s).unwrap_or_default()
    })
}

/// One rollout's files as they were read.
#[derive(Debug)]
pub struct Files {
    pub reading: Reading,
    pub in_flight: bool,
    pub waited: Duration,
}

impl Request {
    /// Waits for calls in flight and reads the files into `buffer`; `limit` bounds what
    /// both may wait, whatever the request allows.
    pub fn read(
        &self,
        probe: &mut InflightProbe,
        buffer: &mut ReadBuffer,
        limit: Duration,
    ) -> Files {
        if self.dirs.is_empty() {
            buffer.clear();
            return Files {
                reading: Reading::default(),
                in_flight: false,
                waited: Duration::ZERO,
            };
        }
        let (in_flight, waited) = if self.in_flight {
            (true, Duration::ZERO)
        } else {
            let id = &self.rollout_id;
            let bound = self.quiescence.min(limit);
            let quiet = wait_quiet(&self.dirs, id, bound, self.settle, probe);
            (quiet.quiet == Quiet::InFlight, quiet.waited)
        };
        let lock_wait = self.lock_wait.min(limit.saturating_sub(waited));
        let reading = read(&self.dirs, &self.rollout_id, lock_wait, buffer);
        let waited = waited + reading.waited;
        Files {
            reading,
            in_flight,
            waited,
        }
    }

    /// The fold's first step.
    pub fn scan<'a>(&'a self, files: &Files, text: &'a [u8], sections: Sections<'a>) -> Fold<'a> {
        let reading = &files.reading;
        let (late, rest) = text.split_at(reading.late_len.min(text.len()));
        Fold::scan(Task {
            rollout_id: &self.rollout_id,
            task_id: self.task_id.as_deref(),
            texts: [late, rest],
            captured: !self.dirs.is_empty() || self.mode == Mode::Record,
            mode: self.mode,
            has_files: reading.has_capture || reading.has_late,
            facts: Circumstances {
                incomplete: reading.incomplete,
                unreadable: reading.unreadable.is_some(),
                in_flight: files.in_flight,
                lock_unavailable: reading.lock_unavailable,
                interrupted: self.interrupted,
            },
            sections,
            not_before: self.not_before,
            payloads: self.payloads,
            failed: self.failed,
            identity_conflict: self.conflict.as_deref(),
            observability: self.observability,
            latency_ms: self.latency_ms.filter(|ms| ms.is_finite()),
        })
    }

    /// What is told of a rollout before its second step.
    pub fn report(&self, files: &Files, text: &[u8], fold: &Fold<'_>) -> Report {
        let mut told: Vec<String> = Vec::new();
        if let Some(error) = &files.reading.unreadable {
            told.push(error.to_string());
        }
        for (line, at, why) in &fold.capture.told {
            told.push(format!(
                "{}: line {line} (byte {at}): {why}",
                self.rollout_id
            ));
        }
        Report {
            calls: fold.capture.calls.len(),
            bytes: text.len(),
            unreadable: fold.capture.unreadable,
            waited: files.waited,
            lock_unavailable: files.reading.lock_unavailable,
            told,
            ..Report::default()
        }
    }

    /// Removes the files where that was asked for and nothing speaks against it; `keep` says
    /// what does.
    pub fn delete(&self, files: &Files, keep: Option<&str>, report: &mut Report) {
        let Some(root) = files.reading.root.filter(|_| self.delete) else {
            return;
        };
        if let Some(reason) = keep {
            report.kept = Some(reason.to_owned());
            return;
        }
        let outcome = claim_and_delete(
            &self.dirs[root],
            &self.rollout_id,
            &files.reading,
            self.lock_wait,
            writers,
        );
        match outcome {
            Ok(Deletion::Kept(why)) => report.kept = Some(why.reason().to_owned()),
            Ok(_) => report.deleted = true,
            Err(error) => report.kept = Some(error.to_string()),
        }
    }
}
