//! `StreamAssembler` and `assemble_stream`: event-stream bodies into responses.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollfold_core::stream::{Assembled, Assembler, Dialect, assemble, repair_file};

/// From this size on other threads get the interpreter while a chunk is taken.
const DETACH_FROM: usize = 16 * 1024;

/// What one chunk of a stream brought.
#[pyclass(frozen, module = "rollfold._core")]
pub struct StreamProgress {
    #[pyo3(get)]
    first_token: bool,
    #[pyo3(get)]
    terminal_offset: Option<usize>,
}

#[pymethods]
impl StreamProgress {
    fn __repr__(&self) -> String {
        let first_token = if self.first_token { "True" } else { "False" };
        let offset = self
            .terminal_offset
            .map_or("None".to_owned(), |offset| offset.to_string());
        format!("StreamProgress(first_token={first_token}, terminal_offset={offset})")
    }
}

/// A streamed body under assembly.
#[pyclass(frozen, module = "rollfold._core")]
pub struct StreamAssembler {
    inner: Mutex<Option<Assembler>>,
}

#[pymethods]
impl StreamAssembler {
    #[new]
    #[pyo3(signature = (dialect = None))]
    fn new(dialect: Option<&str>) -> PyResult<Self> {
        let assembler = Assembler::new(dialect_named(dialect)?);
        Ok(Self {
            inner: Mutex::new(Some(assembler)),
        })
    }

    fn feed(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<StreamProgress> {
        let feed = || self.with(|inner| inner.as_mut().map(|assembler| assembler.feed(chunk)));
        let progress = if chunk.len() < DETACH_FROM {
            feed()
        } else {
            py.detach(feed)
        };
        let progress = progress.ok_or_else(ended)?;
        Ok(StreamProgress {
            first_token: progress.first_token,
            terminal_offset: progress.terminal_offset,
        })
    }

    #[pyo3(signature = (status_code = None))]
    fn finish<'py>(
        &self,
        py: Python<'py>,
        status_code: Option<i64>,
    ) -> PyResult<(Option<Bound<'py, PyBytes>>, Option<&'static str>)> {
        let assembler = self.with(Option::take).ok_or_else(ended)?;
        Ok(converted(py, py.detach(|| assembler.finish(status_code))))
    }
}

impl StreamAssembler {
    /// A panic elsewhere is no reason to refuse a stream its end.
    fn with<T>(&self, act: impl FnOnce(&mut Option<Assembler>) -> T) -> T {
        act(&mut self
            .inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[pyfunction]
#[pyo3(signature = (dialect, raw, status_code = None))]
fn assemble_stream<'py>(
    py: Python<'py>,
    dialect: Option<&str>,
    raw: &[u8],
    status_code: Option<i64>,
) -> PyResult<(Option<Bound<'py, PyBytes>>, Option<&'static str>)> {
    let dialect = dialect_named(dialect)?;
    Ok(converted(
        py,
        py.detach(|| assemble(dialect, raw, status_code)),
    ))
}

fn dialect_named(name: Option<&str>) -> PyResult<Option<Dialect>> {
    name.map(|name| {
        Dialect::from_name(name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "dialect: {name:?} is none of 'chat', 'messages', 'responses'"
            ))
        })
    })
    .transpose()
}

fn ended() -> PyErr {
    PyValueError::new_err("the stream was finished before")
}

fn converted(
    py: Python<'_>,
    assembled: Assembled,
) -> (Option<Bound<'_, PyBytes>>, Option<&'static str>) {
    let response = assembled
        .response
        .map(|json| PyBytes::new(py, &json.contiguous()));
    (response, assembled.error_category)
}

/// What `repair_capture` did to a file, or would do.
#[pyclass(frozen, get_all, module = "rollfold._core")]
pub struct RepairReport {
    records: usize,
    repaired: usize,
    unreadable: usize,
    kept_as: Option<PathBuf>,
    remarks: Vec<(usize, Option<String>, &'static str)>,
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // an argument is converted, not borrowed
#[pyo3(signature = (path, *, dry_run = false, lock_wait_s = 5.0))]
fn repair_capture(
    py: Python<'_>,
    path: PathBuf,
    dry_run: bool,
    lock_wait_s: f64,
) -> PyResult<RepairReport> {
    let wait = Duration::try_from_secs_f64(lock_wait_s)
        .map_err(|error| PyValueError::new_err(format!("lock_wait_s: {error}")))?;
    let report = py
        .detach(|| repair_file(&path, dry_run, wait))
        .map_err(super::store::raised)?;
    Ok(RepairReport {
        records: report.records,
        repaired: report.repaired(),
        unreadable: report.unreadable,
        kept_as: report.kept_as,
        remarks: report
            .changes
            .into_iter()
            .map(|(line, record)| (line, record.model_call_id, record.verdict.text()))
            .collect(),
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StreamAssembler>()?;
    module.add_class::<StreamProgress>()?;
    module.add_class::<RepairReport>()?;
    module.add_function(wrap_pyfunction!(assemble_stream, module)?)?;
    module.add_function(wrap_pyfunction!(repair_capture, module)?)
}
