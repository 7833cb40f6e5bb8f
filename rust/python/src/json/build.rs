//! Strict JSON text to Python objects.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use rollfold_core::json::{
    Decoder, Kind, Raw, has_long_integer, next_delimiter, parse_f64_prefix, skip_blanks,
};
use rollfold_core::value::Key;

use super::Serialized;
use super::keys::Keys;
use crate::gc_pause::GcPause;

/// From this size on a container is given to orjson, which builds numbers and short strings
/// faster than the stable interface of Python lets us.
const LARGE: usize = 2 << 10;

/// Where text came from Python objects: its slices are given back as those.
#[derive(Clone, Copy)]
pub struct Origin<'a>(pub &'a Serialized);

/// Builds Python objects from JSON text that a strict scan has passed.
pub struct Builder<'py, 'a> {
    py: Python<'py>,
    keys: Keys,
    origin: Option<Origin<'a>>,
    decoder: Decoder,
    /// The elements of the arrays that are being built, the innermost one's last.
    elements: Vec<Bound<'py, PyAny>>,
    _pause: GcPause<'py>,
}

impl<'py, 'a> Builder<'py, 'a> {
    /// A builder for one call into the extension.
    pub fn new(py: Python<'py>) -> Self {
        Self {
            py,
            keys: Keys::take(),
            origin: None,
            decoder: Decoder::default(),
            elements: Vec::new(),
            _pause: GcPause::new(py),
        }
    }

    /// A builder that knows objects which parts of the text came from.
    pub fn with_origin(py: Python<'py>, origin: Origin<'a>) -> Self {
        Self {
            origin: Some(origin),
            ..Self::new(py)
        }
    }

    /// The value's object.
    pub fn build(&mut self, raw: Raw<'_>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(object) = self.original(raw.bytes()) {
            return Ok(object);
        }
        if let Some(object) = self.large(raw) {
            return Ok(object);
        }
        let mut cursor = Cursor {
            text: raw.bytes(),
            pos: 0,
        };
        self.value(&mut cursor)
    }

    /// A key's string, from its JSON text.
    pub fn key(&mut self, quoted: &[u8]) -> PyResult<Bound<'py, PyString>> {
        let [b'"', text @ .., b'"'] = quoted else {
            return self.string(quoted);
        };
        if let Some(key) = self.keys.get(self.py, text) {
            return Ok(key);
        }
        let key = self.string(quoted)?;
        if !text.contains(&b'\\') {
            self.keys.put(text, &key);
        }
        Ok(key)
    }

    /// The string of a key of ours.
    pub fn name(&mut self, name: &'static str) -> Bound<'py, PyString> {
        if let Some(key) = self.keys.get(self.py, name.as_bytes()) {
            return key;
        }
        let key = PyString::intern(self.py, name);
        self.keys.put(name.as_bytes(), &key);
        key
    }

    /// The string of a key, as it came or ours.
    pub fn key_of(&mut self, key: Key<'_>) -> PyResult<Bound<'py, PyString>> {
        match key {
            Key::Raw(raw) => self.key(raw.bytes()),
            Key::Name(name) => Ok(self.name(name)),
        }
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

    /// A large container's object, where orjson gives what the text says: it knows no
    /// integers beyond 64 bits and has a bound on depth of its own.
    fn large(&self, raw: Raw<'_>) -> Option<Bound<'py, PyAny>> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let text = raw.bytes();
        let is_container = matches!(raw.kind(), Kind::Array | Kind::Object);
        if text.len() < LARGE || !is_container || has_long_integer(text) {
            return None;
        }
        let loads = LOADS.import(self.py, "orjson", "loads").ok()?;
        loads.call1((PyBytes::new(self.py, text),)).ok()
    }

    fn value(&mut self, cursor: &mut Cursor<'_>) -> PyResult<Bound<'py, PyAny>> {
        match cursor.peek() {
            b'"' => {
                let text = self.decoder.read(cursor.text, &mut cursor.pos);
                Ok(to_string(self.py, text)?.into_any())
            }
            b'{' => self.object(cursor),
            b'[' => self.array(cursor),
            b't' => Ok(cursor.literal(4, true.into_pyobject(self.py)?.to_owned().into_any())),
            b'f' => Ok(cursor.literal(5, false.into_pyobject(self.py)?.to_owned().into_any())),
            b'n' => Ok(cursor.literal(4, self.py.None().into_bound(self.py))),
            _ => self.number(cursor),
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'_>) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        cursor.open();
        while cursor.peek() != b'}' {
            let key = self.key(cursor.string())?;
            cursor.separator(b':');
            let value = self.value(cursor)?;
            dict.set_item(key, value)?;
            cursor.separator(b',');
        }
        cursor.pos += 1;
        Ok(dict.into_any())
    }

    fn array(&mut self, cursor: &mut Cursor<'_>) -> PyResult<Bound<'py, PyAny>> {
        let first = self.elements.len();
        cursor.open();
        while cursor.peek() != b']' {
            if matches!(cursor.peek(), b'0'..=b'9' | b'-') {
                self.numbers(cursor)?;
            } else {
                let element = self.value(cursor)?;
                self.elements.push(element);
            }
            cursor.separator(b',');
        }
        cursor.pos += 1;
        Ok(PyList::new(self.py, self.elements.drain(first..))?.into_any())
    }

    /// Runs through `1,2,3`: token ids and log probabilities come by the thousand.
    fn numbers(&mut self, cursor: &mut Cursor<'_>) -> PyResult<()> {
        loop {
            let number = self.number(cursor)?;
            self.elements.push(number);
            match cursor.text.get(cursor.pos..cursor.pos + 2) {
                Some([b',', b'0'..=b'9' | b'-']) => cursor.pos += 1,
                _ => return Ok(()),
            }
        }
    }

    #[inline]
    fn number(&self, cursor: &mut Cursor<'_>) -> PyResult<Bound<'py, PyAny>> {
        // What 64 bits surely hold is read while its end is looked for.
        let text = &cursor.text[cursor.pos..];
        let negative = text.first() == Some(&b'-');
        let digits = &text[usize::from(negative)..];
        let mut small: i64 = 0;
        let mut len = 0;
        for byte in digits {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            small = small.wrapping_mul(10).wrapping_add(i64::from(digit));
            len += 1;
        }
        if matches!(digits.get(len), Some(b'.' | b'e' | b'E')) {
            let (number, len) = parse_f64_prefix(text);
            cursor.pos += len;
            return Ok(PyFloat::new(self.py, number).into_any());
        }
        cursor.pos += usize::from(negative) + len;
        if len <= 18 {
            let small = if negative { -small } else { small };
            return Ok(PyInt::new(self.py, small).into_any());
        }
        let digits = String::from_utf8_lossy(&text[..usize::from(negative) + len]);
        self.py.get_type::<PyInt>().call1((digits,))
    }

    fn string(&mut self, quoted: &[u8]) -> PyResult<Bound<'py, PyString>> {
        to_string(self.py, self.decoder.read(quoted, &mut 0))
    }
}

fn to_string<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyString>> {
    PyString::from_bytes(py, text)
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
        let mut end = next_delimiter(self.text, start + 1);
        while self.text.get(end) == Some(&b'\\') {
            end = next_delimiter(self.text, end + 2);
        }
        self.pos = (end + 1).min(self.text.len());
        &self.text[start..self.pos]
    }
}
