//! Strict JSON text to Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString};
use rollfold_core::json::{Raw, parse_f64, skip_blanks};

use super::Serialized;

const CACHED_KEYS: usize = 512;
const LONGEST_CACHED_KEY: usize = 40;

/// Where text came from Python objects: its slices are given back as those.
#[derive(Clone, Copy)]
pub struct Origin<'a>(pub &'a Serialized);

/// Builds Python objects from JSON text that a strict scan has passed.
///
/// Keys are made once: payloads have few distinct ones and many of each.
pub struct Builder<'py, 'a> {
    py: Python<'py>,
    keys: Vec<Option<(&'a [u8], Bound<'py, PyString>)>>,
    origin: Option<Origin<'a>>,
}

impl<'py, 'a> Builder<'py, 'a> {
    /// A builder for one call into the extension.
    pub fn new(py: Python<'py>) -> Self {
        Self {
            py,
            keys: Vec::new(),
            origin: None,
        }
    }

    /// A builder that knows objects which parts of the text came from.
    pub fn with_origin(py: Python<'py>, origin: Origin<'a>) -> Self {
        Self {
            py,
            keys: Vec::new(),
            origin: Some(origin),
        }
    }

    /// The value's object.
    pub fn build(&mut self, raw: Raw<'a>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(object) = self.original(raw.bytes()) {
            return Ok(object);
        }
        let mut cursor = Cursor {
            text: raw.bytes(),
            pos: 0,
        };
        self.value(&mut cursor)
    }

    /// A key's string, from its JSON text.
    pub fn key(&mut self, quoted: &'a [u8]) -> Bound<'py, PyString> {
        if quoted.len() > LONGEST_CACHED_KEY {
            return self.string(quoted);
        }
        if self.keys.is_empty() {
            self.keys.resize(CACHED_KEYS, None);
        }
        let hash = quoted
            .iter()
            .fold(quoted.len(), |h, b| h.wrapping_mul(31) ^ usize::from(*b));
        let slot = (hash ^ (hash >> 9)) % CACHED_KEYS;
        if let Some((text, key)) = &self.keys[slot]
            && *text == quoted
        {
            return key.clone();
        }
        let key = self.string(quoted);
        self.keys[slot] = Some((quoted, key.clone()));
        key
    }

    /// The container that a slice of the origin's text was made from.
    fn original(&self, slice: &[u8]) -> Option<Bound<'py, PyAny>> {
        let Origin(source) = self.origin?;
        let start = slice
            .as_ptr()
            .addr()
            .checked_sub(source.text.as_ptr().addr())?;
        let end = start + slice.len();
        if end > source.text.len() {
            return None;
        }
        let index = source
            .containers
            .binary_search_by_key(&start, |container| container.0)
            .ok()?;
        let (_, its_end, object) = &source.containers[index];
        (*its_end == end).then(|| object.bind(self.py).clone())
    }

    fn value(&mut self, cursor: &mut Cursor<'a>) -> PyResult<Bound<'py, PyAny>> {
        match cursor.peek() {
            b'"' => Ok(self.string(cursor.string()).into_any()),
            b'{' => self.object(cursor),
            b'[' => self.array(cursor),
            b't' => Ok(cursor.literal(4, true.into_pyobject(self.py)?.to_owned().into_any())),
            b'f' => Ok(cursor.literal(5, false.into_pyobject(self.py)?.to_owned().into_any())),
            b'n' => Ok(cursor.literal(4, self.py.None().into_bound(self.py))),
            _ => self.number(cursor.number()),
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'a>) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        cursor.open();
        while cursor.peek() != b'}' {
            let key = self.key(cursor.string());
            cursor.separator(b':');
            let value = self.value(cursor)?;
            dict.set_item(key, value)?;
            cursor.separator(b',');
        }
        cursor.pos += 1;
        Ok(dict.into_any())
    }

    fn array(&mut self, cursor: &mut Cursor<'a>) -> PyResult<Bound<'py, PyAny>> {
        let mut items = Vec::new();
        cursor.open();
        while cursor.peek() != b']' {
            items.push(self.value(cursor)?);
            cursor.separator(b',');
        }
        cursor.pos += 1;
        Ok(PyList::new(self.py, items)?.into_any())
    }

    fn number(&self, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let mut small: i64 = 0;
        if text.len() <= 18 && text[0] != b'-' {
            for byte in text {
                if !byte.is_ascii_digit() {
                    return Ok(PyFloat::new(self.py, parse_f64(text)).into_any());
                }
                small = small * 10 + i64::from(byte - b'0');
            }
            return Ok(PyInt::new(self.py, small).into_any());
        }
        let raw = Raw::new(text);
        if let Some(small) = raw.as_i64() {
            Ok(PyInt::new(self.py, small).into_any())
        } else if raw.is_integer() {
            let digits = String::from_utf8_lossy(text);
            self.py.get_type::<PyInt>().call1((digits,))
        } else {
            Ok(PyFloat::new(self.py, parse_f64(text)).into_any())
        }
    }

    fn string(&self, quoted: &'a [u8]) -> Bound<'py, PyString> {
        let inner = &quoted[1..quoted.len() - 1];
        if memchr::memchr(b'\\', inner).is_none()
            && let Ok(text) = simdutf8::basic::from_utf8(inner)
        {
            return PyString::new(self.py, text);
        }
        PyString::new(self.py, &rollfold_core::json::decode_string(quoted))
    }
}

/// A cursor over text that was checked; at its end it reads zero bytes.
struct Cursor<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> u8 {
        self.text.get(self.pos).copied().unwrap_or(b'}')
    }

    fn open(&mut self) {
        self.pos = skip_blanks(self.text, self.pos + 1);
    }

    fn separator(&mut self, separator: u8) {
        if self.peek() <= b' ' {
            self.pos = skip_blanks(self.text, self.pos);
        }
        if self.peek() == separator {
            self.pos += 1;
            if self.peek() <= b' ' {
                self.pos = skip_blanks(self.text, self.pos);
            }
        }
    }

    fn literal<T>(&mut self, len: usize, value: T) -> T {
        self.pos += len;
        value
    }

    /// A string with its quotes.
    fn string(&mut self) -> &'a [u8] {
        let start = self.pos;
        let mut at = start + 1;
        while let Some(len) = memchr::memchr2(b'"', b'\\', &self.text[at.min(self.text.len())..]) {
            if self.text[at + len] == b'"' {
                self.pos = at + len + 1;
                break;
            }
            at += len + 2;
        }
        &self.text[start..self.pos]
    }

    fn number(&mut self) -> &'a [u8] {
        let start = self.pos;
        while matches!(self.peek(), b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
            self.pos += 1;
        }
        &self.text[start..self.pos]
    }
}
