//! The steps of the fold that are usable alone (`rollfold.trajectory`).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rollfold_core::call::CallRecord;
use rollfold_core::exchange::{Exchange, ScanState};
use rollfold_core::json::Scanner;
use rollfold_core::turns::content_of;

use super::objects::Objects;
use crate::json::{Builder, Origin, Serialized, serialize_traced};

/// A call's turn content in a dialect that needs no converter: question, answer,
/// reasoning, number of tool calls.
///
/// Raises `ValueError` where the response holds no list of the dialect's.
#[pyfunction]
fn turn_content<'py>(
    py: Python<'py>,
    dialect: &str,
    request: &Bound<'py, PyAny>,
    response: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut made = Serialized::default();
    made.text.extend_from_slice(b"{\"dialect\":");
    rollfold_core::json::write_str(&mut made.text, dialect);
    made.text.extend_from_slice(b",\"request\":");
    serialize_traced(request, &mut made)?;
    made.text.extend_from_slice(b",\"response\":");
    serialize_traced(response, &mut made)?;
    made.text.push(b'}');
    let mut state = ScanState::default();
    let mut exchange = Exchange::scan(&mut Scanner::new(&made.text), &mut state)
        .map_err(|fault| PyValueError::new_err(fault.to_string()))?;
    let call = CallRecord::derive(0, &mut exchange, &state.tape, &mut state.shared);
    let Some((question, answer, reasoning, tool_calls)) = content_of(&call, &mut state.shared)
    else {
        return Err(PyValueError::new_err(format!(
            "response: no decision of dialect {dialect}"
        )));
    };
    let mut objects = Objects::new(py, Builder::with_origin(py, Origin(&made)));
    let parts = [&question, &answer, &reasoning].map(|part| objects.value(part, &state.shared));
    let [question, answer, reasoning] = parts;
    (question?, answer?, reasoning?, tool_calls).into_pyobject(py)
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(turn_content, module)?)
}
