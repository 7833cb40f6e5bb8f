//! The converters' turn: all of a rollout's distinct messages in a few calls into Python.

use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};
use rollfold_core::convert::{Answer, Asked};
use rollfold_core::fold::Fold;
use rollfold_core::intern::{Blob, Interner};
use rollfold_core::item::Item;
use rollfold_core::json::Raw;
use rollfold_core::turns::{Job, Outcome};

use super::objects::Objects;
use crate::json::Builder;

/// How many jobs go in one call: between calls others may get the interpreter.
const CHUNK: usize = 12;
/// How long others wait for the interpreter at most while jobs are converted.
const TURN: Duration = Duration::from_millis(1);
/// How long it stays free: long enough for a thread that waits for it to wake up. Who only
/// lets go of it has it back before.
const FREE: Duration = Duration::from_micros(20);

/// Converts the fold's jobs to objects, which are added to its distinct values.
pub fn convert<'py, 'a>(
    fold: &mut Fold<'a>,
    objects: &mut Objects<'py, 'a>,
    converter: &Bound<'py, PyAny>,
) -> PyResult<Vec<Outcome>> {
    let py = converter.py();
    let jobs = fold.jobs().to_vec();
    let mut outcomes = Vec::with_capacity(jobs.len());
    let mut turn = Turn::new(py);
    for chunk in jobs.chunks(CHUNK) {
        turn.go_on()?;
        let jobs = PyList::empty(py);
        for job in chunk {
            let (kind, value) = match job {
                Job::System(id) => ("system", objects.shared(*id, &fold.shared)?),
                Job::Message(id) => ("message", objects.shared(*id, &fold.shared)?),
                Job::Content(content) => {
                    let said = PyDict::new(py);
                    said.set_item("role", "assistant")?;
                    said.set_item("content", objects.value(content, &fold.shared)?)?;
                    ("message", said.into_any())
                }
            };
            jobs.append((kind, value))?;
        }
        for (outcome, job) in converter.call1((jobs,))?.try_iter()?.zip(chunk) {
            let said = matches!(job, Job::Content(_));
            outcomes.push(read(&outcome?, said, objects, &mut fold.shared)?);
        }
    }
    Ok(outcomes)
}

/// Converts the fold's jobs to JSON, which is added to its distinct values. Takes the
/// interpreter for the converters alone, once for all jobs of the same shape.
pub fn convert_json(fold: &mut Fold<'_>, converter: &Py<PyAny>) -> PyResult<Vec<Outcome>> {
    let asked = Asked::new(fold.jobs(), &fold.shared);
    if asked.shapes.is_empty() {
        return Ok(Vec::new());
    }
    let answers = Python::attach(|py| {
        let mut builder = Builder::new(py);
        let mut turn = Turn::new(py);
        let mut answers = Vec::with_capacity(asked.shapes.len());
        for chunk in asked.shapes.chunks(CHUNK) {
            turn.go_on()?;
            let shapes = chunk.iter().map(|shape| builder.build(Raw::new(shape)));
            let jobs = PyList::new(py, shapes.collect::<PyResult<Vec<_>>>()?)?;
            for made in converter.bind(py).call1((jobs,))?.cast::<PyList>()? {
                answers.push(answer(&made)?);
            }
        }
        Ok::<_, PyErr>(answers)
    })?;
    Ok(asked.outcomes(&answers, &mut fold.shared))
}

fn answer(made: &Bound<'_, PyAny>) -> PyResult<Answer> {
    Ok(match made.cast::<PyBytes>() {
        Ok(items) => Ok(items.as_bytes().to_vec()),
        Err(_) => Err(made.extract()?),
    })
}

/// The converters' turn with the interpreter, which they leave to others every now and then.
struct Turn<'py> {
    py: Python<'py>,
    since: Instant,
}

impl<'py> Turn<'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            py,
            since: Instant::now(),
        }
    }

    /// Before each call: leaves the interpreter to the process' other threads, where there
    /// are any and it is time.
    fn go_on(&mut self) -> PyResult<()> {
        static COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if self.since.elapsed() < TURN {
            return Ok(());
        }
        let count = COUNT.import(self.py, "threading", "active_count")?;
        if count.call0()?.extract::<usize>()? > 1 {
            self.py.detach(|| std::thread::sleep(FREE));
        }
        self.since = Instant::now();
        Ok(())
    }
}

fn read<'py, 'a>(
    outcome: &Bound<'py, PyAny>,
    said: bool,
    objects: &mut Objects<'py, 'a>,
    shared: &mut Interner<'a>,
) -> PyResult<Outcome> {
    let Ok(list) = outcome.cast::<PyList>() else {
        return Ok(Outcome::Unconverted(
            outcome.getattr("block_type")?.extract()?,
        ));
    };
    let mut items = Vec::with_capacity(list.len());
    for item in list {
        let mut kind = Item::Other;
        if said && let Ok(dict) = item.cast::<PyDict>() {
            let named = dict.get_item(intern!(dict.py(), "type"))?;
            let named = named.and_then(|named| named.extract::<PyBackedStr>().ok());
            kind = match named.as_deref() {
                Some("reasoning") => Item::Reasoning,
                Some("function_call") => Item::FunctionCall,
                _ => Item::Other,
            };
        }
        objects.foreign.push(item);
        let blob = Blob::Foreign(objects.foreign.len() - 1);
        items.push((shared.add(blob), kind));
    }
    Ok(Outcome::of(items, said))
}

/// The hash in the ids of a message's items (see `rollfold.dialects.anthropic`).
#[pyfunction]
fn digest(items: &[u8]) -> String {
    rollfold_core::convert::digest(items)
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(digest, module)?)
}
