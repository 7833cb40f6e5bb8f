//! A result as JSON text: its parts, and the record that is made of it.

use std::borrow::Cow;
use std::ops::Range;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};
use rollfold_core::error::Error;
use rollfold_core::fold::{Change, Folded, Sections};
use rollfold_core::json::{self, MAX_RECORD_DEPTH, Raw};
use rollfold_core::observe::NonFinite;
use rollfold_core::value::{Key, Members, Value};

use super::{PERF, READ, SOURCE, source_name, source_of};
use crate::json::{Builder, Serialized, serialize, serialize_numbers};

/// A result's text: as it came, or made from a dict.
enum Text {
    Came(PyBackedBytes),
    /// Strict as it came, in several lines: now it is one.
    Lined(Vec<u8>),
    Made(Serialized),
}

/// The error with the key of the result that it is about, where it is about one.
fn naming_key(result: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let members = result.cast::<PyDict>().into_iter().flatten();
    let at_fault = |(_, value): &(_, Bound<'_, PyAny>)| serialize(value).is_err();
    match members
        .filter(|(key, _)| serialize(key).is_ok())
        .find(at_fault)
    {
        Some((key, _)) => naming("result", &key, error),
        None => error,
    }
}

fn naming(what: &str, key: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = key.py();
    let text = format!("{what}: {key}: {}", error.value(py));
    PyErr::from_type(error.get_type(py), text)
}

/// A result on its way into the JSON forms: read once, then asked for keys and folded.
#[pyclass(frozen, module = "rollfold._core")]
pub struct Body {
    text: Text,
    /// Where the members' keys and values stand; of duplicate keys the last.
    members: Vec<(Range<usize>, Range<usize>)>,
    identity: Identity,
}

#[pymethods]
impl Body {
    /// Takes `bytes` as they are and a dict as its text; `keys` are the row's identity.
    ///
    /// Raises `TypeError` for anything else, `ValueError` where the bytes are no strict JSON
    /// object.
    #[new]
    fn new(result: &Bound<'_, PyAny>, keys: &Bound<'_, PyDict>) -> PyResult<Self> {
        let text = if result.is_instance_of::<PyBytes>() {
            Text::Came(result.extract()?)
        } else if result.is_instance_of::<PyDict>() {
            Text::Made(serialize_numbers(result).map_err(|error| naming_key(result, error))?)
        } else {
            let name = result.get_type().fully_qualified_name()?;
            return Err(PyTypeError::new_err(format!(
                "result must be bytes or a dict, not {name}"
            )));
        };
        let members = spans(text.bytes()).map_err(crate::store::raised)?;
        Ok(Self {
            text: text.on_one_line(),
            members,
            identity: identity(keys)?,
        })
    }

    /// The values of some keys, as a dict; null and missing are left out.
    fn members<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<PyBackedStr>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let parsed = self.parsed();
        let mut builder = Builder::new(py);
        for key in keys {
            if let Some(value) = parsed.get(&key) {
                found.set_item(key, builder.build(value)?)?;
            }
        }
        Ok(found)
    }
}

impl Body {
    /// The identity keys that the result gets where it lacks them.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The result's members.
    pub fn parsed(&self) -> Parsed<'_> {
        let text = self.text.bytes();
        let slice = |span: &Range<usize>| Raw::new(&text[span.clone()]);
        let members = self.members.iter();
        let offsets = match &self.text {
            Text::Made(made) => &made.non_finite[..],
            Text::Came(_) | Text::Lined(_) => &[],
        };
        Parsed {
            members: members
                .map(|(key, value)| (slice(key), slice(value)))
                .collect(),
            non_finite: NonFinite { text, offsets },
        }
    }
}

impl Text {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Came(bytes) => bytes,
            Self::Lined(text) => text,
            Self::Made(made) => &made.text,
        }
    }

    /// The text, strict as it is, with spaces for its breaks: they stand between values.
    fn on_one_line(self) -> Self {
        let is_break = |byte: u8| matches!(byte, b'\n' | b'\r');
        match &self {
            Self::Came(text) if memchr::memchr2(b'\n', b'\r', text).is_some() => {
                let space = |byte: &u8| if is_break(*byte) { b' ' } else { *byte };
                Self::Lined(text.iter().map(space).collect())
            }
            _ => self,
        }
    }
}

/// Scans a result's text for its members.
fn spans(text: &[u8]) -> Result<Vec<(Range<usize>, Range<usize>)>, Error> {
    let members = json::parse_members(text, MAX_RECORD_DEPTH)
        .map_err(|fault| Error::json(format!("result: {}", fault.kind.text()), fault.at))?
        .ok_or_else(|| Error::Shape {
            key: "result".into(),
            reason: "is no JSON object".into(),
        })?;
    let span = |raw: Raw<'_>| {
        let start = raw.bytes().as_ptr().addr() - text.as_ptr().addr();
        start..start + raw.bytes().len()
    };
    let members = members.into_iter();
    Ok(members
        .map(|(key, value)| (span(key), span(value)))
        .collect())
}

/// A result's members.
pub struct Parsed<'a> {
    members: Vec<(Raw<'a>, Raw<'a>)>,
    non_finite: NonFinite<'a>,
}

/// Identity keys of the row and their values, both as JSON, for a result that lacks them.
pub type Identity = Vec<(Vec<u8>, Vec<u8>)>;

/// The identity of a row as text.
fn identity(keys: &Bound<'_, PyDict>) -> PyResult<Identity> {
    keys.iter()
        .map(|(key, value)| {
            let text = serialize(&value).map_err(|error| naming("row", &key, error))?;
            Ok((serialize(&key)?, text))
        })
        .collect()
}

impl<'a> Parsed<'a> {
    fn get(&self, name: &str) -> Option<Raw<'a>> {
        let found = self.members.iter().find(|(key, _)| key.is_str(name));
        found
            .map(|(_, value)| *value)
            .filter(|value| !value.is_null())
    }

    /// The parts that the fold reads.
    pub fn sections(&self) -> Sections<'a> {
        Sections {
            observations: self.get(READ[0]),
            trajectory: self.get(READ[1]),
            verifiers: self.get(READ[2]),
            capture: self.get(READ[3]),
            source: source_of(self.get(SOURCE).and_then(Raw::as_str).as_deref()),
            resolved: self.get("resolved").and_then(Raw::as_bool),
            non_finite: self.non_finite,
        }
    }

    /// The record: the result's members, the row's identity, and what was folded.
    pub fn record(&self, identity: &'a Identity, folded: Option<Folded<'a>>) -> Value<'a> {
        let mut members: Members<'a> = self
            .members
            .iter()
            .map(|(key, value)| (Key::Raw(*key), Value::Raw(*value)))
            .collect();
        for (name, value) in identity {
            let value = Value::Raw(Raw::new(value));
            let name = Raw::new(name);
            let text = name.as_str().unwrap_or_default();
            match members.iter_mut().find(|(key, _)| key.is(&text)) {
                // NaN is a value: it became null in the text alone.
                Some((_, Value::Raw(old))) if !old.is_null() || self.non_finite.holds(*old) => {}
                Some(same) => same.1 = value,
                None => members.push((Key::Raw(name), value)),
            }
        }
        let Some(folded) = folded else {
            return Value::Object(members);
        };
        let source = match (&folded.trajectory, folded.source) {
            (Change::Set(_), Some(source)) => {
                Change::Set(Value::Str(Cow::Borrowed(source_name(source))))
            }
            _ => Change::Keep,
        };
        let changes = [
            (READ[3], folded.capture),
            (READ[0], folded.observations),
            (READ[1], folded.trajectory),
            (PERF, folded.perf),
            (SOURCE, source),
        ];
        for (name, change) in changes {
            let place = members.iter().position(|(key, _)| key.is(name));
            match (change, place) {
                (Change::Keep, _) | (Change::Remove, None) => {}
                (Change::Remove, Some(at)) => drop(members.remove(at)),
                (Change::Set(value), Some(at)) => members[at].1 = value,
                (Change::Set(value), None) => members.push((Key::Name(name), value)),
            }
        }
        Value::Object(members)
    }
}

/// Adds this file's class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Body>()
}
