//! The converters' turn: all of a rollout's distinct messages in a few calls into Python.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};
use rollfold_core::fold::Fold;
use rollfold_core::intern::{Blob, Interner};
use rollfold_core::json::Raw;
use rollfold_core::turns::{Job, Outcome};

use super::objects::Objects;

/// How many jobs go in one call: between calls others may get the interpreter.
const CHUNK: usize = 12;
/// How long others wait for the interpreter at most while jobs are converted.
const TURN: Duration = Duration::from_millis(1);
/// How long it stays free: long enough for a thread that waits for it to wake up. Who only
/// lets go of it has it back before.
const FREE: Duration = Duration::from_micros(20);

/// Converts the fold's jobs; what comes, objects or JSON as `bytes`, is added to its
/// distinct values.
pub fn convert<'py, 'a>(
    fold: &mut Fold<'a>,
    objects: &mut Objects<'py, 'a>,
    converter: &Bound<'py, PyAny>,
) -> PyResult<Vec<Outcome>> {
    let py = converter.py();
    let jobs = fold.jobs().to_vec();
    let mut outcomes = Vec::with_capacity(jobs.len());
    let mut turn = Instant::now();
    for chunk in jobs.chunks(CHUNK) {
        if turn.elapsed() >= TURN {
            give_way(py)?;
            turn = Instant::now();
        }
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

/// Leaves the interpreter to the process' other threads, where there are any.
fn give_way(py: Python<'_>) -> PyResult<()> {
    static COUNT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let count = COUNT.import(py, "threading", "active_count")?;
    if count.call0()?.extract::<usize>()? > 1 {
        py.detach(|| std::thread::sleep(FREE));
    }
    Ok(())
}

/// What an item is to a turn; only asked of what a model said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    FunctionCall,
    Other,
}

impl Kind {
    fn of_text(item: &[u8], said: bool) -> Self {
        let kind = said.then(|| Raw::new(item).get("type")).flatten();
        let is = |name: &str| kind.is_some_and(|kind| kind.is_str(name));
        Self::of(is)
    }

    fn of_object(item: &Bound<'_, PyAny>, said: bool) -> PyResult<Self> {
        let kind = match item.cast::<PyDict>() {
            Ok(item) if said => item.get_item(intern!(item.py(), "type"))?,
            _ => None,
        };
        Ok(Self::of(|name| {
            let is = kind.as_ref().map(|kind| kind.eq(name));
            is.is_some_and(|is| is.unwrap_or(false))
        }))
    }

    fn of(is: impl Fn(&str) -> bool) -> Self {
        if is("reasoning") {
            Self::Reasoning
        } else if is("function_call") {
            Self::FunctionCall
        } else {
            Self::Other
        }
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
    let (mut answer, mut reasoning, mut tool_calls) = (Vec::new(), Vec::new(), 0);
    for item in list {
        let kind;
        let blob = if let Ok(text) = item.cast::<PyBytes>() {
            let text: Arc<[u8]> = text.as_bytes().into();
            kind = Kind::of_text(&text, said);
            Blob::Text(text)
        } else {
            kind = Kind::of_object(&item, said)?;
            objects.foreign.push(item);
            Blob::Foreign(objects.foreign.len() - 1)
        };
        let id = shared.add(blob);
        items.push(id);
        if kind == Kind::Reasoning {
            reasoning.push(id);
        } else if said {
            answer.push(id);
            tool_calls += usize::from(kind == Kind::FunctionCall);
        }
    }
    Ok(if said {
        Outcome::Decided {
            items,
            answer,
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            tool_calls,
        }
    } else {
        Outcome::Items(items)
    })
}
