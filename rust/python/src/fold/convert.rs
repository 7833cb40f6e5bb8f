//! The converters' turn: all of a rollout's distinct messages in a few calls into Python.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rollfold_core::fold::Fold;
use rollfold_core::intern::{Blob, Interner};
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
            outcomes.push(read(&outcome?, said, objects, &mut fold.shared, keep)?);
        }
    }
    Ok(outcomes)
}

fn read<'py, 'a>(
    outcome: &Bound<'py, PyAny>,
    said: bool,
    objects: &mut Objects<'py, 'a>,
    shared: &mut Interner<'a>,
    keep: Keep,
) -> PyResult<Outcome> {
    let Ok(list) = outcome.cast::<PyList>() else {
        return Ok(Outcome::Unconverted(
            outcome.getattr("block_type")?.extract()?,
        ));
    };
    let mut items = Vec::with_capacity(list.len());
    let (mut answer, mut reasoning, mut tool_calls) = (Vec::new(), Vec::new(), 0);
    for item in list {
        let kind = match item.cast::<PyDict>() {
            Ok(item) if said => item.get_item(intern!(item.py(), "type"))?,
            _ => None,
        };
        let id = shared.add(match keep {
            Keep::Text => Blob::Text(serialize(&item)?.into()),
            Keep::Objects => {
                objects.foreign.push(item);
                Blob::Foreign(objects.foreign.len() - 1)
            }
        });
        items.push(id);
        let is = |name: &str| {
            kind.as_ref()
                .is_some_and(|kind| kind.eq(name).unwrap_or(false))
        };
        if is("reasoning") {
            reasoning.push(id);
        } else if said {
            answer.push(id);
            tool_calls += usize::from(is("function_call"));
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
