//! The writing side of the capture store: recordings of calls in flight, the writer, the
//! announcements. Reading it is the fold's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::ffi::lease::writers;
use crate::json::Builder;
use crate::recording::ComposedLine;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollfold_core::error::Error;
use rollfold_core::exchange::{Record, ScanState, each_record};
use rollfold_core::json::Raw;
use rollfold_core::store::{
    self, Announcer, Deletion, Durability, Held, InflightProbe, ReadBuffer, Reading, Writer,
    WriterOptions,
};

pub fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Io {
            action,
            path,
            source,
        } => match source.raw_os_error() {
            // Python puts number and path around the words.
            Some(code) => {
                let words = source.to_string();
                let words = words.split(" (os error").next().unwrap_or_default();
                PyOSError::new_err((
                    code,
                    format!("cannot {action}: {words}"),
                    path.into_os_string(),
                ))
            }
            None => PyOSError::new_err(text),
        },
        _ => PyValueError::new_err(text),
    }
}

pub fn seconds(value: f64, name: &str) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| PyValueError::new_err(format!("{name}: {value} is no duration in seconds")))
}

pub fn lock_outcome(held: Held) -> &'static str {
    match held {
        Held::Locked { .. } => "locked",
        Held::TimedOut => "timed_out",
        Held::Unavailable => "unavailable",
    }
}

/// Appends to the captures of one directory.
#[pyclass(frozen, module = "rollfold._core")]
pub struct CaptureWriter {
    pub writer: Arc<Writer>,
}

#[pymethods]
impl CaptureWriter {
    #[new]
    #[pyo3(signature = (root, *, durability = "record", file_mode = 0o600, dir_mode = 0o700, lock_wait_s = 5.0))]
    fn new(
        root: PathBuf,
        durability: &str,
        file_mode: u32,
        dir_mode: u32,
        lock_wait_s: f64,
    ) -> PyResult<Self> {
        let durability = match durability {
            "record" => Durability::Record,
            "batch" => Durability::Batch,
            "none" => Durability::None,
            other => {
                return Err(PyValueError::new_err(format!(
                    "durability: {other:?} is none of 'record', 'batch', 'none'"
                )));
            }
        };
        let options = WriterOptions {
            durability,
            file_mode,
            dir_mode,
            lock_wait: seconds(lock_wait_s, "lock_wait_s")?,
        };
        Ok(Self {
            writer: Arc::new(Writer::new(root, options)),
        })
    }

    fn append(&self, py: Python<'_>, rollout_id: &str, line: &[u8]) -> PyResult<&'static str> {
        py.detach(|| self.writer.append(rollout_id, &[line]))
            .map(|appended| lock_outcome(appended.lock))
            .map_err(raised)
    }

    fn write(
        &self,
        py: Python<'_>,
        rollout_id: &str,
        line: &ComposedLine,
    ) -> PyResult<&'static str> {
        py.detach(|| self.writer.append(rollout_id, &line.line.parts()))
            .map(|appended| lock_outcome(appended.lock))
            .map_err(raised)
    }

    fn mark_incomplete(&self, py: Python<'_>, rollout_id: &str) -> PyResult<()> {
        py.detach(|| self.writer.mark_incomplete(rollout_id))
            .map_err(raised)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.writer.sync()).map_err(raised)
    }
}

/// What this process has in flight in one directory.
#[pyclass(frozen, module = "rollfold._core")]
pub struct InflightAnnouncer {
    pub announcer: Arc<Announcer>,
}

#[pymethods]
impl InflightAnnouncer {
    #[new]
    #[pyo3(signature = (root, *, file_mode = 0o600, dir_mode = 0o700))]
    fn new(root: PathBuf, file_mode: u32, dir_mode: u32) -> Self {
        Self {
            announcer: Arc::new(Announcer::new(root, file_mode, dir_mode)),
        }
    }

    fn enter(&self, rollout_id: &str) -> PyResult<()> {
        self.announcer.enter(rollout_id).map_err(raised)
    }

    fn leave(&self, rollout_id: &str) {
        self.announcer.leave(rollout_id);
    }

    fn forget(&self) {
        self.announcer.forget();
    }

    fn __len__(&self) -> usize {
        self.announcer.count()
    }
}

/// An exchange and its index in the capture.
type Numbered<'py> = (usize, Bound<'py, PyAny>);
/// Whether it is the late file's, the line from 1, the byte in that file, what is wrong.
type BadLine = (bool, usize, usize, String);

/// An attempt's files as they were read.
#[pyclass(frozen, module = "rollfold._core")]
pub struct CaptureReading {
    dirs: Vec<PathBuf>,
    rollout_id: String,
    reading: Reading,
    data: ReadBuffer,
}

#[pymethods]
impl CaptureReading {
    #[new]
    #[pyo3(signature = (dirs, rollout_id, *, lock_wait_s = 5.0))]
    fn new(
        py: Python<'_>,
        dirs: Vec<PathBuf>,
        rollout_id: String,
        lock_wait_s: f64,
    ) -> PyResult<Self> {
        let wait = seconds(lock_wait_s, "lock_wait_s")?;
        store::check_rollout_id(&rollout_id).map_err(raised)?;
        let mut data = ReadBuffer::default();
        let reading = py.detach(|| store::read(&dirs, &rollout_id, wait, &mut data));
        Ok(Self {
            dirs,
            rollout_id,
            reading,
            data,
        })
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }

    #[getter]
    fn late_len(&self) -> usize {
        self.reading.late_len
    }

    #[getter]
    fn found(&self) -> bool {
        self.reading.has_capture || self.reading.has_late
    }

    #[getter]
    fn incomplete(&self) -> bool {
        self.reading.incomplete
    }

    #[getter]
    fn lock_unavailable(&self) -> bool {
        self.reading.lock_unavailable
    }

    #[getter]
    fn unreadable(&self) -> Option<String> {
        self.reading.unreadable.as_ref().map(ToString::to_string)
    }

    fn exchanges<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Numbered<'py>>, Vec<BadLine>)> {
        let (late, capture) = self.data.split_at(self.reading.late_len);
        let mut good = Vec::new();
        let mut bad = Vec::new();
        let mut index = 0;
        let mut failure = None;
        for (is_late, text) in [(true, late), (false, capture)] {
            let mut state = ScanState::default();
            let mut builder = Builder::new(py);
            each_record(text, &mut state, |line, record, _| {
                match record {
                    Record::Good(exchange) => match builder.build(Raw::new(exchange.text)) {
                        Ok(built) => good.push((index, built)),
                        Err(error) => failure = Some(error),
                    },
                    Record::Bad(at, why) => bad.push((is_late, line, at, why.to_string())),
                }
                index += 1;
            });
        }
        failure.map_or(Ok((good, bad)), Err)
    }

    #[pyo3(signature = (*, lock_wait_s = 5.0))]
    fn delete(&self, py: Python<'_>, lock_wait_s: f64) -> PyResult<&'static str> {
        let wait = seconds(lock_wait_s, "lock_wait_s")?;
        let Some(root) = self.reading.root.and_then(|root| self.dirs.get(root)) else {
            return Ok("nothing");
        };
        let outcome = py
            .detach(|| {
                store::claim_and_delete(root, &self.rollout_id, &self.reading, wait, writers)
            })
            .map_err(raised)?;
        Ok(match outcome {
            Deletion::Nothing => "nothing",
            Deletion::Deleted => "deleted",
            Deletion::Kept(kept) => kept.reason(),
        })
    }
}

/// Whether a call of the rollout attempt is announced in one of the directories.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // arguments are built for the call
fn in_flight(py: Python<'_>, dirs: Vec<PathBuf>, rollout_id: &str) -> bool {
    py.detach(|| InflightProbe::new().in_flight(&dirs, rollout_id))
}

/// Removes an attempt's files, read or not; how many there were.
#[pyfunction]
#[pyo3(signature = (root, rollout_id, *, lock_wait_s = 5.0))]
#[allow(clippy::needless_pass_by_value)] // arguments are built for the call
fn clear_capture(
    py: Python<'_>,
    root: PathBuf,
    rollout_id: &str,
    lock_wait_s: f64,
) -> PyResult<usize> {
    let wait = seconds(lock_wait_s, "lock_wait_s")?;
    py.detach(|| store::clear(&root, rollout_id, wait))
        .map_err(raised)
}

/// Adds this topic's classes and functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CaptureWriter>()?;
    module.add_class::<CaptureReading>()?;
    module.add_class::<InflightAnnouncer>()?;
    module.add_function(wrap_pyfunction!(in_flight, module)?)?;
    module.add_function(wrap_pyfunction!(clear_capture, module)?)
}
