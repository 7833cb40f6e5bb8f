//! Recordings of calls in flight, and the queue that writes them.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollfold_core::store::{
    Announcer, Body, Facts, Line, Queue, Response, Stream, Writer, compose,
};
use rollfold_core::stream::Dialect;

use crate::store::{CaptureWriter, InflightAnnouncer, lock_outcome, seconds};

/// From this size on other threads get the interpreter while a chunk is taken.
const DETACH_FROM: usize = 16 * 1024;

/// An exchange's line, ready to be written.
#[pyclass(frozen, module = "rollfold._core")]
pub struct ComposedLine {
    pub line: Line,
}

#[pymethods]
impl ComposedLine {
    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.line.joined())
    }
}

/// A call's bodies as they pass by.
#[pyclass(frozen, module = "rollfold._core")]
pub struct Recording {
    dialect: String,
    bound: Option<usize>,
    bodies: Mutex<Option<Bodies>>,
}

struct Bodies {
    request: Body,
    response: Response,
}

#[pymethods]
impl Recording {
    #[new]
    #[pyo3(signature = (dialect, max_body_bytes = None))]
    fn new(dialect: String, max_body_bytes: Option<usize>) -> Self {
        let bodies = Bodies {
            request: Body::new(max_body_bytes),
            response: Response::Whole(Body::new(max_body_bytes)),
        };
        Self {
            dialect,
            bound: max_body_bytes,
            bodies: Mutex::new(Some(bodies)),
        }
    }

    fn feed_request(&self, chunk: &[u8]) -> PyResult<()> {
        self.with(|bodies| bodies.request.push(chunk))
    }

    fn start_response(&self, stream: bool) -> PyResult<()> {
        self.with(|bodies| {
            bodies.response = if stream {
                let dialect = Dialect::from_name(&self.dialect);
                Response::Stream(Box::new(Stream::new(dialect, self.bound)))
            } else {
                Response::Whole(Body::new(self.bound))
            };
        })
    }

    fn feed_response(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<(bool, Option<usize>)> {
        let feed = || {
            self.with(|bodies| match &mut bodies.response {
                Response::Whole(body) => {
                    body.push(chunk);
                    (false, None)
                }
                Response::Stream(stream) => {
                    let progress = stream.push(chunk);
                    (progress.first_token, progress.terminal_offset)
                }
            })
        };
        if chunk.len() < DETACH_FROM {
            feed()
        } else {
            py.detach(feed)
        }
    }

    #[pyo3(signature = (
        *, model_call_id, server_name = None, started_at, completed_at,
        latency_ms, latency_ttft_ms = None, status_code = None, error_category = None,
        client_session_id = None, upstream_attempted = None, response_source = None,
        upstream_status_code = None, local_response_reason = None, request_cut = false,
    ))]
    #[allow(clippy::too_many_arguments)] // the exchange's fields, by keyword
    fn end(
        &self,
        model_call_id: String,
        server_name: Option<String>,
        started_at: f64,
        completed_at: f64,
        latency_ms: f64,
        latency_ttft_ms: Option<f64>,
        status_code: Option<i64>,
        error_category: Option<String>,
        client_session_id: Option<String>,
        upstream_attempted: Option<bool>,
        response_source: Option<String>,
        upstream_status_code: Option<i64>,
        local_response_reason: Option<String>,
        request_cut: bool,
    ) -> PyResult<EndedCall> {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        let Bodies {
            mut request,
            response,
        } = bodies.take().ok_or_else(ended)?;
        if request_cut {
            request.cut_off();
        }
        let call = Ended {
            dialect: self.dialect.clone(),
            model_call_id,
            server_name,
            client_session_id,
            error_category,
            response_source,
            local_response_reason,
            numbers: Facts {
                started_at,
                completed_at,
                latency_ms,
                latency_ttft_ms,
                status_code,
                upstream_attempted,
                upstream_status_code,
                ..Facts::default()
            },
            request,
            response,
        };
        Ok(EndedCall {
            call: Mutex::new(Some(call)),
        })
    }
}

impl Recording {
    fn with<T>(&self, act: impl FnOnce(&mut Bodies) -> T) -> PyResult<T> {
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.as_mut().map(act).ok_or_else(ended)
    }
}

fn ended() -> PyErr {
    PyValueError::new_err("the recording was written before")
}

/// A call that has ended and is not composed yet: everything its line needs.
#[pyclass(frozen, module = "rollfold._core")]
pub struct EndedCall {
    call: Mutex<Option<Ended>>,
}

struct Ended {
    dialect: String,
    model_call_id: String,
    server_name: Option<String>,
    client_session_id: Option<String>,
    error_category: Option<String>,
    response_source: Option<String>,
    local_response_reason: Option<String>,
    /// The rest, which holds no text.
    numbers: Facts<'static>,
    request: Body,
    response: Response,
}

impl Ended {
    fn compose(self) -> Line {
        let facts = Facts {
            model_call_id: &self.model_call_id,
            dialect: &self.dialect,
            server_name: self.server_name.as_deref(),
            error_category: self.error_category.as_deref(),
            client_session_id: self.client_session_id.as_deref(),
            response_source: self.response_source.as_deref(),
            local_response_reason: self.local_response_reason.as_deref(),
            ..self.numbers
        };
        compose(&facts, self.request, self.response)
    }
}

#[pymethods]
impl EndedCall {
    fn compose(&self, py: Python<'_>) -> PyResult<ComposedLine> {
        let call = self.take()?;
        let line = py.detach(|| call.compose());
        Ok(ComposedLine { line })
    }
}

impl EndedCall {
    fn take(&self) -> PyResult<Ended> {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        call.take().ok_or_else(ended)
    }
}

/// What became of calls that a [`CaptureQueue`] wrote, for one event loop: a pipe becomes
/// readable when there is something to take.
#[pyclass(frozen, module = "rollfold._core")]
pub struct Completions {
    shared: Arc<Completed>,
}

struct Completed {
    outcomes: Mutex<Vec<Outcome>>,
    reader: PipeReader,
    writer: PipeWriter,
}

/// A call's number, how its lock was had, and why it was not written, if it was not.
type Outcome = (u64, &'static str, Option<String>);

impl Completed {
    fn push(&self, outcome: Outcome) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.push(outcome);
        // One byte wakes the loop for all that is there: the pipe never fills.
        if outcomes.len() == 1 {
            let _ = (&self.writer).write_all(b"!");
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = std::io::pipe()?;
        let outcomes = Mutex::default();
        let shared = Arc::new(Completed {
            outcomes,
            reader,
            writer,
        });
        Ok(Self { shared })
    }

    fn fileno(&self) -> i32 {
        self.shared.reader.as_raw_fd()
    }

    fn take(&self) -> Vec<Outcome> {
        let mut outcomes = self
            .shared
            .outcomes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !outcomes.is_empty() {
            let _ = (&self.shared.reader).read_exact(&mut [0]);
        }
        std::mem::take(&mut *outcomes)
    }
}

/// Composes and writes calls on threads of its own, which never need the interpreter.
#[pyclass(frozen, module = "rollfold._core")]
pub struct CaptureQueue {
    writer: Arc<Writer>,
    queue: Queue,
}

/// A job's end, however it comes: its announcement is taken back and its outcome told.
struct Ending {
    announced: Option<(Arc<Announcer>, String)>,
    completed: Option<Arc<Completed>>,
    outcome: Outcome,
}

impl Ending {
    /// Takes the whole of itself into the job: a closure that set the field alone would
    /// capture the field alone.
    fn tell(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some((announcer, rollout_id)) = &self.announced {
            announcer.leave(rollout_id);
        }
        if let Some(completed) = &self.completed {
            completed.push(std::mem::take(&mut self.outcome));
        }
    }
}

#[pymethods]
impl CaptureQueue {
    #[new]
    #[pyo3(signature = (writer, *, threads = 16))]
    fn new(writer: &CaptureWriter, threads: usize) -> Self {
        Self {
            writer: Arc::clone(&writer.writer),
            queue: Queue::new(threads),
        }
    }

    #[pyo3(signature = (rollout_id, call, *, announcer = None, completions = None, number = 0))]
    fn submit(
        &self,
        rollout_id: String,
        call: &EndedCall,
        announcer: Option<&InflightAnnouncer>,
        completions: Option<&Completions>,
        number: u64,
    ) -> PyResult<()> {
        let call = call.take()?;
        let writer = Arc::clone(&self.writer);
        let mut ending = Ending {
            announced: announcer.map(|held| (Arc::clone(&held.announcer), rollout_id.clone())),
            completed: completions.map(|completions| Arc::clone(&completions.shared)),
            outcome: (number, "failed", Some("the writer panicked".into())),
        };
        self.queue.submit(move || {
            let line = call.compose();
            ending.tell(match writer.append(&rollout_id, &line.parts()) {
                Ok(appended) => (number, lock_outcome(appended.lock), None),
                Err(error) => (number, "failed", Some(error.to_string())),
            });
        });
        Ok(())
    }

    fn drain(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = seconds(timeout_s, "timeout_s")?;
        Ok(py.detach(|| self.queue.drain(timeout)))
    }
}

/// Adds this topic's classes.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ComposedLine>()?;
    module.add_class::<EndedCall>()?;
    module.add_class::<Recording>()?;
    module.add_class::<Completions>()?;
    module.add_class::<CaptureQueue>()
}
