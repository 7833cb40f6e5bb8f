//! JSON on the border: Python objects to strict text, text to Python objects.

mod build;
mod keys;
mod serialize;

pub use build::{Builder, Origin};
pub use serialize::{Serialized, serialize, serialize_numbers, serialize_traced};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollfold_core::json;
use rollfold_core::sink::Sink;

use crate::fresh_bytes::fresh_bytes;

/// Gives any record as strict JSON.
///
/// NaN and the infinities become null, half a surrogate pair U+FFFD, integers keep all
/// their digits. Raises `TypeError` for what JSON has no word for and `ValueError` for
/// what is nested too deep to be read again.
#[pyfunction]
fn dumps<'py>(record: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let text = serialize(record)?;
    fresh_bytes(record.py(), text.len(), |slots| slots.put(&text))
}

/// Builds the value of strict JSON text.
///
/// As deep as a record may be, so that whatever [`dumps`] gives can be read. Raises
/// `ValueError` with the byte offset where the text is not strict JSON (contract,
/// section 3).
#[pyfunction]
fn loads<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let raw = json::parse_to_depth(text, json::MAX_RECORD_DEPTH)
        .map_err(|fault| PyValueError::new_err(fault.to_string()))?;
    Builder::new(py).build(raw)
}

/// Adds this topic's functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(dumps, module)?)?;
    module.add_function(wrap_pyfunction!(loads, module)?)
}
