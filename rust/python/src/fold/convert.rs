//! The converters' turn: all of a rollout's distinct messages in a few calls into Python.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rollfold_core::fold::Fold;
use rollfold_core::intern::{Blob, Interner, SharedId};
use rollfold_core::turns::{Job, Outcome};

use super::objects::Objects;
use crate::json::serialize;

/// How many jobs go in one call: between calls others get the interpreter.
const CHUNK: usize = 48;

/// What becomes of the items that converters make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They stay objects.
    Objects,
    /// They become text.
    Text,
}

/// Converts the fold's jobs; what comes is added to its distinct values.
pub fn convert<'py, 'a>(
    fold: &mut Fold<'a>,
    objects: &mut Objects<'py, 'a>,
    converter: &Bound<'py, PyAny>,
    keep: Keep,
) -> PyResult<Vec<Outcome>> {
    let py = converter.py();
    let jobs = fold.jobs().to_vec();
    let mut outcomes = Vec::with_capacity(jobs.len());
    for chunk in jobs.chunks(CHUNK) {
        if !outcomes.is_empty() {
            py.detach(std::thread::yield_now);
        }
        let jobs = PyList::empty(py);
        for job in chunk {
            let (kind, value) = match job {
                Job::System(id) => ("system", objects.shared(*id, &fold.shared)?),
                Job::Message(id) => ("message", objects.shared(*id, &fold.shared)?),
                Job::Content(content) => {
                    let response = PyDict::new(py);
                    response.set_item("content", objects.value(content, &fold.shared)?)?;
                    ("response", response.into_any())
                }
            };
            jobs.append((kind, value))?;
        }
        for outcome in converter.call1((jobs,))?.try_iter()? {
            outcomes.push(read(&outcome?, objects, &mut fold.shared, keep)?);
        }
    }
    Ok(outcomes)
}

fn read<'py, 'a>(
    outcome: &Bound<'py, PyAny>,
    objects: &mut Objects<'py, 'a>,
    shared: &mut Interner<'a>,
    keep: Keep,
) -> PyResult<Outcome> {
    let mut items = |list: &Bound<'py, PyAny>| -> PyResult<Vec<SharedId>> {
        let list = list.cast::<PyList>()?;
        list.iter()
            .map(|item| {
                Ok(shared.add(match keep {
                    Keep::Text => Blob::Text(serialize(&item)?.into()),
                    Keep::Objects => {
                        objects.foreign.push(item);
                        Blob::Foreign(objects.foreign.len() - 1)
                    }
                }))
            })
            .collect()
    };
    if outcome.is_instance_of::<PyList>() {
        return Ok(Outcome::Items(items(outcome)?));
    }
    if let Ok(parts) = outcome.cast::<PyTuple>() {
        let reasoning = parts.get_item(1)?;
        return Ok(Outcome::Decided {
            answer: items(&parts.get_item(0)?)?,
            reasoning: if reasoning.is_none() {
                None
            } else {
                Some(items(&reasoning)?)
            },
            tool_calls: parts.get_item(2)?.extract()?,
        });
    }
    Ok(Outcome::Unconverted(
        outcome.getattr("block_type")?.extract()?,
    ))
}
