//! `pack` and `unpack`: records and their packed form (docs/packed.md).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use rollfold_core::error::Error;
use rollfold_core::json::{Kind, Raw};
use rollfold_core::pack::{self, Form, MAX_UNPACKED, Unpacked, form_of};

use super::fresh_bytes::fresh_bytes;
use super::json::{Builder, serialize};

fn refused(error: &Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pyfunction]
fn pack_json<'py>(py: Python<'py>, record: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let packed = py.detach(|| pack::pack_text(record));
    Ok(PyBytes::new(py, &packed.map_err(|error| refused(&error))?))
}

#[pyfunction]
fn pack_object<'py>(record: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = record.py();
    let text = serialize(record)?;
    let packed = py.detach(|| pack::pack_json(Raw::new(&text)));
    Ok(PyBytes::new(py, &packed))
}

#[pyfunction]
#[pyo3(signature = (packed, max_bytes = MAX_UNPACKED))]
fn unpack_json<'py>(
    py: Python<'py>,
    packed: &[u8],
    max_bytes: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let (unpacked, len) = py
        .detach(|| {
            let unpacked = Unpacked::read(packed, max_bytes)?;
            let len = unpacked.full_len()?;
            Ok((unpacked, len))
        })
        .map_err(|error| refused(&error))?;
    fresh_bytes(py, len, |slots| unpacked.write(slots))
}

#[pyfunction]
#[pyo3(signature = (packed, max_bytes = MAX_UNPACKED))]
fn unpack_object<'py>(
    py: Python<'py>,
    packed: &[u8],
    max_bytes: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let unpacked = py
        .detach(|| Unpacked::read(packed, max_bytes))
        .map_err(|error| refused(&error))?;
    let mut objects = Objects {
        py,
        builder: Builder::new(py),
        parts: Vec::new(),
    };
    for part in unpacked.parts() {
        let object = if part.plain {
            objects.builder.build(part.text)?
        } else {
            objects.value(part.text)?
        };
        objects.parts.push(object);
    }
    // The record comes last.
    objects
        .parts
        .pop()
        .ok_or_else(|| PyValueError::new_err("record: is missing"))
}

#[pyfunction]
fn is_packed(line: &[u8]) -> bool {
    pack::is_packed(line)
}

/// Builds a record in which equal parts are one object.
struct Objects<'py, 'a> {
    py: Python<'py>,
    builder: Builder<'py, 'a>,
    parts: Vec<Bound<'py, PyAny>>,
}

impl<'py, 'a> Objects<'py, 'a> {
    fn value(&mut self, raw: Raw<'a>) -> PyResult<Bound<'py, PyAny>> {
        match raw.kind() {
            Kind::Object if may_refer(raw.bytes()) => self.object(raw),
            Kind::Array if may_refer(raw.bytes()) => {
                let mut items = Vec::new();
                for element in raw.elements() {
                    match (element.kind(), form_of(element)) {
                        (Kind::Object, Form::Reference(first, count)) => {
                            let end = first + count.unwrap_or(1);
                            items.extend_from_slice(&self.parts[first..end]);
                        }
                        _ => items.push(self.value(element)?),
                    }
                }
                Ok(PyList::new(self.py, items)?.into_any())
            }
            _ => self.builder.build(raw),
        }
    }

    fn object(&mut self, raw: Raw<'a>) -> PyResult<Bound<'py, PyAny>> {
        let escaped = match form_of(raw) {
            Form::Reference(first, _) => return Ok(self.parts[first].clone()),
            form => form == Form::Escaped,
        };
        let dict = PyDict::new(self.py);
        for (key, value) in raw.members() {
            let value = self.value(value)?;
            if escaped {
                let name = key.as_str().unwrap_or_default();
                dict.set_item(PyString::new(self.py, &name[1..]), value)?;
            } else {
                dict.set_item(self.builder.key(key.bytes())?, value)?;
            }
        }
        Ok(dict.into_any())
    }
}

/// Whether a text can hold a reference or an escaped key: cheaper to ask than to walk.
fn may_refer(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"\"$").is_some()
        || memchr::memmem::find(text, b"\"\\u0024").is_some()
}

/// Adds this topic's functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pack_json, module)?)?;
    module.add_function(wrap_pyfunction!(pack_object, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_json, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_object, module)?)?;
    module.add_function(wrap_pyfunction!(is_packed, module)?)?;
    module.add("MAX_UNPACKED", MAX_UNPACKED)
}
