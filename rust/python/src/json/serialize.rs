//! Python objects to strict JSON text.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rollfold_core::json::{MAX_RECORD_DEPTH, write_f64, write_int, write_str};

/// Text made from Python objects, and where in it they went.
#[derive(Default)]
pub struct Serialized {
    /// Strict JSON.
    pub text: Vec<u8>,
    /// The containers in the order of their first byte: start, end, and the object.
    pub containers: Vec<(usize, usize, Py<PyAny>)>,
    /// Offsets of the nulls that were NaN or infinite.
    pub non_finite: Vec<usize>,
}

struct Writer<'a> {
    out: &'a mut Serialized,
    traced: bool,
    depth: usize,
}

/// Gives an object as strict JSON; see `dumps` for the rules.
pub fn serialize(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    Ok(serialize_numbers(object)?.text)
}

/// Gives an object as strict JSON, and where in it numbers were not finite.
pub fn serialize_numbers(object: &Bound<'_, PyAny>) -> PyResult<Serialized> {
    let mut out = Serialized::default();
    Writer {
        out: &mut out,
        traced: false,
        depth: 0,
    }
    .value(object)?;
    Ok(out)
}

/// Appends an object as strict JSON, remembering which container went where, so that a
/// slice of the text can be given back as the very object it came from.
pub fn serialize_traced(object: &Bound<'_, PyAny>, out: &mut Serialized) -> PyResult<()> {
    Writer {
        out,
        traced: true,
        depth: 0,
    }
    .value(object)
}

impl Writer<'_> {
    fn value(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(text) = object.cast::<PyString>() {
            self.string(text)
        } else if object.is_none() {
            self.push(b"null");
            Ok(())
        } else if let Ok(flag) = object.cast::<PyBool>() {
            self.push(if flag.is_true() { b"true" } else { b"false" });
            Ok(())
        } else if let Ok(number) = object.cast::<PyInt>() {
            self.integer(number)
        } else if let Ok(number) = object.cast::<PyFloat>() {
            let number = number.value();
            if !number.is_finite() {
                self.out.non_finite.push(self.out.text.len());
            }
            write_f64(&mut self.out.text, number);
            Ok(())
        } else if let Ok(dict) = object.cast::<PyDict>() {
            self.container(object, |writer| writer.dict(dict))
        } else if let Ok(list) = object.cast::<PyList>() {
            self.container(object, |writer| writer.array(list.iter()))
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            self.container(object, |writer| writer.array(tuple.iter()))
        } else {
            let name = object.get_type().fully_qualified_name()?;
            Err(PyTypeError::new_err(format!(
                "{name} is not JSON serializable"
            )))
        }
    }

    fn push(&mut self, text: &[u8]) {
        self.out.text.extend_from_slice(text);
    }

    fn container(
        &mut self,
        object: &Bound<'_, PyAny>,
        body: impl FnOnce(&mut Self) -> PyResult<()>,
    ) -> PyResult<()> {
        if self.depth >= MAX_RECORD_DEPTH {
            let message = format!("nested deeper than {MAX_RECORD_DEPTH}");
            return Err(PyValueError::new_err(message));
        }
        self.depth += 1;
        if self.traced {
            let index = self.out.containers.len();
            let start = self.out.text.len();
            self.out
                .containers
                .push((start, start, object.clone().unbind()));
            body(self)?;
            self.out.containers[index].1 = self.out.text.len();
        } else {
            body(self)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn dict(&mut self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        self.push(b"{");
        let mut follows = false;
        for (key, value) in dict {
            if follows {
                self.push(b",");
            }
            follows = true;
            let Ok(key) = key.cast::<PyString>() else {
                let name = key.get_type().fully_qualified_name()?;
                return Err(PyTypeError::new_err(format!(
                    "keys must be strings, not {name}"
                )));
            };
            self.string(key)?;
            self.push(b":");
            self.value(&value)?;
        }
        self.push(b"}");
        Ok(())
    }

    fn array<'py>(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<()> {
        self.push(b"[");
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.push(b",");
            }
            self.value(&item)?;
        }
        self.push(b"]");
        Ok(())
    }

    fn integer(&mut self, number: &Bound<'_, PyInt>) -> PyResult<()> {
        if let Ok(small) = number.extract::<i64>() {
            write_int(&mut self.out.text, i128::from(small));
            return Ok(());
        }
        // int's own text: an IntEnum's str is its name.
        let text = number
            .py()
            .get_type::<PyInt>()
            .call_method1("__repr__", (number,))?;
        self.push(text.cast::<PyString>()?.to_str()?.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        if let Ok(text) = text.to_str() {
            write_str(&mut self.out.text, text);
            return Ok(());
        }
        // Half surrogates: two that meet are a character, one alone is U+FFFD.
        let units = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?;
        let units: Vec<u16> = units
            .extract::<Vec<u8>>()?
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        write_str(&mut self.out.text, &String::from_utf16_lossy(&units));
        Ok(())
    }
}
