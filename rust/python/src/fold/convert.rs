//! The converters' turn: all of a rollout's distinct messages in a few calls into Python.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList};
use rollfold_core::fold::Fold;
use rollfold_core::intern::{Blob, Interner};
use rollfold_core::item::Item;
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

/// What an item of a response is to its turn, by its type.
fn item_of(kind: Option<&str>) -> Item {
    match kind {
        Some("reasoning") => Item::Reasoning,
        Some("function_call") => Item::FunctionCall,
        _ => Item::Other,
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
        let mut kind = Item::Other;
        let blob = if let Ok(text) = item.cast::<PyBytes>() {
            let text: Arc<[u8]> = text.as_bytes().into();
            if said {
                let named = Raw::new(&text).get("type").and_then(Raw::as_str);
                kind = item_of(named.as_deref());
            }
            Blob::Text(text)
        } else {
            if said && let Ok(dict) = item.cast::<PyDict>() {
                let named = dict.get_item(intern!(dict.py(), "type"))?;
                kind = item_of(
                    named
                        .and_then(|named| named.extract::<PyBackedStr>().ok())
                        .as_deref(),
                );
            }
            objects.foreign.push(item);
            Blob::Foreign(objects.foreign.len() - 1)
        };
        let id = shared.add(blob);
        items.push(id);
        if kind == Item::Reasoning {
            reasoning.push(id);
        } else if said {
            answer.push(id);
            tool_calls += usize::from(kind == Item::FunctionCall);
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
