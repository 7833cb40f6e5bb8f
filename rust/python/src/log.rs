//! The rollout log's files, under `rollfold.log`.
#![allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python are owned here, so that detached code can use them"
)]

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use rollfold_core::log::{
    Entry, Form, Index, Item, LogFile, LogRecord, Opened, Prepared, Reader, RecordKey, Shape,
    read_entry, record_key, writer_at_work,
};

use super::store::raised;

/// An entry for Python: offset, length, line.
type Place = (u64, u64, u64);

/// Records that are ready for a file.
#[pyclass(frozen, module = "rollfold._core")]
pub struct LogFrames(pub Prepared);

#[pymethods]
impl LogFrames {
    /// How many records there are.
    #[getter]
    fn records(&self) -> usize {
        self.0.records()
    }

    /// How many bytes the file grows by.
    #[getter]
    fn size(&self) -> usize {
        self.0.len()
    }
}

/// The shape of a log's files by its names in Python.
pub fn shape_named(form: &str, level: Option<i32>) -> PyResult<Shape> {
    let form = match form {
        "full" => Form::Full,
        "packed" => Form::Packed,
        _ => {
            let message = format!("form: {form:?} is none of 'full', 'packed'");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(Shape { form, level })
}

#[pyfunction]
fn prepare_log(
    py: Python<'_>,
    records: Vec<PyBackedBytes>,
    key: Option<(Option<String>, bool)>,
    form: &str,
    level: Option<i32>,
) -> PyResult<(LogFrames, Vec<(usize, String)>)> {
    let shape = shape_named(form, level)?;
    let (prepared, refused) = py
        .detach(|| {
            let key = key.map(|(id, never_started)| RecordKey { id, never_started });
            let records: Vec<LogRecord<'_>> = records
                .iter()
                .map(|record| LogRecord {
                    text: Cow::Borrowed(record),
                    key: key.clone(),
                })
                .collect();
            Prepared::new(&records, shape)
        })
        .map_err(raised)?;
    let refused = refused
        .into_iter()
        .map(|(number, error)| (number, error.to_string()))
        .collect();
    Ok((LogFrames(prepared), refused))
}

/// A file that is open for appending.
#[pyclass(frozen, module = "rollfold._core")]
pub struct LogWriter {
    file: Mutex<Option<LogFile>>,
    #[pyo3(get)]
    path: PathBuf,
    #[pyo3(get)]
    moved: u64,
    #[pyo3(get)]
    unlocked: bool,
}

#[pymethods]
impl LogWriter {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let Opened {
            file,
            moved,
            unlocked,
        } = py.detach(|| LogFile::open(&path)).map_err(raised)?;
        Ok(Self {
            file: Mutex::new(Some(file)),
            path,
            moved,
            unlocked,
        })
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> u64 {
        py.detach(|| {
            self.with(|file| Ok(file.len()))
                .unwrap_or_default()
                .unwrap_or_default()
        })
    }

    #[pyo3(signature = (frames, sync = false))]
    fn append(&self, py: Python<'_>, frames: &LogFrames, sync: bool) -> PyResult<()> {
        py.detach(|| {
            self.with(|file| {
                file.append(&frames.0)?;
                if sync { file.sync() } else { Ok(()) }
            })
        })
        .map_err(raised)?
        .ok_or_else(closed)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(LogFile::sync))
            .map_err(raised)?
            .ok_or_else(closed)
    }

    /// Lets the next writer in; again does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(file) = self.slot().take() {
                file.close();
            }
        });
    }
}

impl LogWriter {
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<LogFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs with the file, unless it is closed; only while detached.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut LogFile) -> rollfold_core::error::Result<T>,
    ) -> rollfold_core::error::Result<Option<T>> {
        self.slot().as_mut().map(act).transpose()
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the log's file is closed")
}

/// Bytes of a file that no record could be read from.
#[pyclass(frozen, get_all, module = "rollfold._core")]
pub struct LogDamage {
    offset: u64,
    length: u64,
    reason: String,
    tail: bool,
}

/// Reads a file's lines in batches.
#[pyclass(frozen, module = "rollfold._core")]
pub struct LogReader(Mutex<Reader>);

#[derive(IntoPyObject)]
enum Batch<'py> {
    Lines(Vec<(Bound<'py, PyBytes>, u64, u64, u64)>),
    Damage(Py<LogDamage>),
}

#[pymethods]
impl LogReader {
    #[new]
    #[pyo3(signature = (path, offset = 0))]
    fn new(path: PathBuf, offset: u64) -> PyResult<Self> {
        let reader = Reader::open(&path, offset).map_err(raised)?;
        Ok(Self(Mutex::new(reader)))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Batch<'py>>> {
        let item = py.detach(|| {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next_item()
        });
        Ok(match item.map_err(raised)? {
            None => None,
            Some(Item::Chunk(chunk)) => {
                let line = |(range, entry): (std::ops::Range<usize>, Entry)| {
                    let text = PyBytes::new(py, &chunk.text[range]);
                    (text, entry.offset, entry.length, entry.line)
                };
                Some(Batch::Lines(chunk.lines.into_iter().map(line).collect()))
            }
            Some(Item::Damage(damage)) => Some(Batch::Damage(Py::new(
                py,
                LogDamage {
                    offset: damage.offset,
                    length: damage.length,
                    reason: damage.reason,
                    tail: damage.tail,
                },
            )?)),
        })
    }
}

#[pyfunction]
fn load_log_index(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(Option<String>, bool, Place)>> {
    let index = py
        .detach(|| {
            let index = Index::load(&path)?;
            // A writer keeps its own index; where we may not write, the next pays again.
            if !index.saved && !writer_at_work(&path) {
                let _ = index.save(&path);
            }
            Ok(index)
        })
        .map_err(raised)?;
    let entry = |entry: Entry| {
        let place = (entry.offset, entry.length, entry.line);
        (entry.id, entry.never_started, place)
    };
    Ok(index.entries.into_iter().map(entry).collect())
}

#[pyfunction]
fn read_log_record(py: Python<'_>, path: PathBuf, place: Place) -> PyResult<Bound<'_, PyBytes>> {
    let entry = Entry {
        offset: place.0,
        length: place.1,
        line: place.2,
        id: None,
        never_started: false,
    };
    let line = py.detach(|| read_entry(&path, &entry)).map_err(raised)?;
    Ok(PyBytes::new(py, &line))
}

#[pyfunction]
fn log_record_key(py: Python<'_>, line: &[u8]) -> PyResult<(Option<String>, bool)> {
    let key = py
        .detach(|| record_key(line))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((key.id, key.never_started))
}

#[pyfunction]
fn log_writer_at_work(py: Python<'_>, path: PathBuf) -> bool {
    py.detach(|| writer_at_work(&path))
}

/// Adds this topic's classes and functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LogFrames>()?;
    module.add_class::<LogWriter>()?;
    module.add_class::<LogReader>()?;
    module.add_class::<LogDamage>()?;
    module.add_function(wrap_pyfunction!(prepare_log, module)?)?;
    module.add_function(wrap_pyfunction!(load_log_index, module)?)?;
    module.add_function(wrap_pyfunction!(read_log_record, module)?)?;
    module.add_function(wrap_pyfunction!(log_record_key, module)?)?;
    module.add_function(wrap_pyfunction!(log_writer_at_work, module)?)
}
