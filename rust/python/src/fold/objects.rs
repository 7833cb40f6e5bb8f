//! A folded value as Python objects: equal messages are one object.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use rollfold_core::intern::{Blob, Interner, REASONING_KEYS, SharedId};
use rollfold_core::json::Raw;
use rollfold_core::value::Value;

use crate::json::Builder;

/// Builds a rollout's objects, each distinct value once.
pub struct Objects<'py, 'a> {
    py: Python<'py>,
    builder: Builder<'py, 'a>,
    made: Vec<Option<Bound<'py, PyAny>>>,
    lists: HashMap<*const SharedId, Bound<'py, PyAny>>,
    /// What converters made, by the index in [`Blob::Foreign`].
    pub foreign: Vec<Bound<'py, PyAny>>,
}

impl<'py, 'a> Objects<'py, 'a> {
    /// Nothing made yet.
    pub fn new(py: Python<'py>, builder: Builder<'py, 'a>) -> Self {
        Self {
            py,
            builder,
            made: Vec::new(),
            lists: HashMap::new(),
            foreign: Vec::new(),
        }
    }

    /// The object of a distinct value.
    pub fn shared(&mut self, id: SharedId, shared: &Interner<'a>) -> PyResult<Bound<'py, PyAny>> {
        let at = id.0 as usize;
        if let Some(Some(object)) = self.made.get(at) {
            return Ok(object.clone());
        }
        let object = match shared.blob(id) {
            Blob::Raw(raw) => self.builder.build(*raw)?,
            Blob::Text(text) => self.builder.build(Raw::new(text))?,
            Blob::Foreign(index) => self.foreign[*index].clone(),
            Blob::Typed(base) => {
                let typed = PyDict::new(self.py);
                typed.set_item("type", "message")?;
                let base = self.shared(*base, shared)?;
                for (key, value) in base.cast::<PyDict>()? {
                    if !key.eq("type")? {
                        typed.set_item(key, value)?;
                    }
                }
                typed.into_any()
            }
            Blob::WithoutReasoning(base) => {
                let base = self.shared(*base, shared)?;
                let rest = base.cast::<PyDict>()?.copy()?;
                for key in REASONING_KEYS {
                    if rest.contains(key)? {
                        rest.del_item(key)?;
                    }
                }
                rest.into_any()
            }
        };
        if self.made.len() <= at {
            self.made.resize(shared.len().max(at + 1), None);
        }
        self.made[at] = Some(object.clone());
        Ok(object)
    }

    /// A list of distinct values; lists that are clones of one another are one object.
    pub fn list(
        &mut self,
        ids: &Arc<[SharedId]>,
        shared: &Interner<'a>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(list) = self.lists.get(&ids.as_ptr()) {
            return Ok(list.clone());
        }
        let items: Vec<_> = ids
            .iter()
            .map(|id| self.shared(*id, shared))
            .collect::<PyResult<_>>()?;
        let list = PyList::new(self.py, items)?.into_any();
        if !ids.is_empty() {
            self.lists.insert(ids.as_ptr(), list.clone());
        }
        Ok(list)
    }

    /// The object of a value.
    pub fn value(
        &mut self,
        value: &Value<'a>,
        shared: &Interner<'a>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match value {
            Value::Null => py.None().into_bound(py),
            Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
            Value::Int(number) => match i64::try_from(*number) {
                Ok(small) => PyInt::new(py, small).into_any(),
                Err(_) => number.into_pyobject(py)?.into_any(),
            },
            Value::Float(number) => PyFloat::new(py, *number).into_any(),
            Value::Str(text) => PyString::new(py, text).into_any(),
            Value::Raw(raw) => self.builder.build(*raw)?,
            Value::Text(text) => self.builder.build(Raw::new(text))?,
            Value::Shared(id) => self.shared(*id, shared)?,
            Value::SharedList(ids) => self.list(ids, shared)?,
            Value::Parted(_, parts) => self.value(parts, shared)?,
            Value::Array(elements) => {
                let items: Vec<_> = elements
                    .iter()
                    .map(|element| self.value(element, shared))
                    .collect::<PyResult<_>>()?;
                PyList::new(py, items)?.into_any()
            }
            Value::Object(members) => {
                let dict = PyDict::new(py);
                for (key, value) in members {
                    let value = self.value(value, shared)?;
                    dict.set_item(self.builder.key_of(*key)?, value)?;
                }
                dict.into_any()
            }
        })
    }
}
