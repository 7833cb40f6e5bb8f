//! A folded value as Python objects: equal messages are one object.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyListMethods, PyString};
use rollfold_core::intern::{Blob, Interner, REASONING_KEYS, SharedId, same_beginning};
use rollfold_core::json::Raw;
use rollfold_core::value::Value;

use crate::json::Builder;

/// From this many equal elements on the next list is a slice of the last one and the rest.
const LONG: usize = 8;

/// Builds a rollout's objects, each distinct value once.
pub struct Objects<'py, 'a> {
    py: Python<'py>,
    builder: Builder<'py, 'a>,
    made: Vec<Option<Bound<'py, PyAny>>>,
    lists: HashMap<*const SharedId, Bound<'py, PyAny>>,
    /// The last long list.
    last: Option<(Arc<[SharedId]>, Bound<'py, PyList>)>,
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
            last: None,
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
        // A history is mostly the one before with something after it.
        let beginning = self.last.as_ref().and_then(|(before, made)| {
            let same = same_beginning(before, ids);
            (same >= LONG).then(|| made.get_slice(0, same))
        });
        let known = beginning.as_ref().map_or(0, PyListMethods::len);
        let mut rest = Vec::with_capacity(ids.len() - known);
        for id in &ids[known..] {
            rest.push(self.shared(*id, shared)?);
        }
        let list = match beginning {
            Some(list) => {
                for item in rest {
                    list.append(item)?;
                }
                list
            }
            None => PyList::new(self.py, rest)?,
        };
        if ids.len() >= LONG {
            self.last = Some((Arc::clone(ids), list.clone()));
        }
        if !ids.is_empty() {
            self.lists.insert(ids.as_ptr(), list.clone().into_any());
        }
        Ok(list.into_any())
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
                let mut items = Vec::with_capacity(elements.len());
                for element in elements {
                    items.push(self.value(element, shared)?);
                }
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
