//! A slice that is known to hold one JSON value.

use std::borrow::Cow;

use super::decode::{Decoder, next_delimiter, next_structural};
use super::scan::skip_blanks;

/// What a value is, told by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number of any size
    Number,
    /// A string
    String,
    /// An array
    Array,
    /// An object
    Object,
}

/// One whole value, without blanks around it, that a strict scan has passed.
///
/// Reading one never fails: the accessors return `None` where the value is of another
/// kind. Nothing here checks syntax again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Raw<'a>(&'a [u8]);

impl std::fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Raw({})", String::from_utf8_lossy(self.0))
    }
}

impl<'a> Raw<'a> {
    /// JSON `null`.
    pub const NULL: Raw<'static> = Raw(b"null");

    /// Takes bytes that are known to be one strict JSON value, without blanks around it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The value's text.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// What it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'"') => Kind::String,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// The string, decoded.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| decode_string(self.0))
    }

    /// Whether it is the string `text`.
    #[must_use]
    #[inline]
    pub fn is_str(self, text: &str) -> bool {
        let [b'"', inner @ .., b'"'] = self.0 else {
            return false;
        };
        let text = text.as_bytes();
        // Escapes are all that can make unlike bytes alike, and they are longer than what
        // they stand for, six times at most.
        if inner.len() == text.len() {
            return inner == text && !text.contains(&b'\\');
        }
        (text.len()..=6 * text.len()).contains(&inner.len())
            && (inner[0] == text[0] || inner[0] == b'\\')
            && self.is_escaped_str(text)
    }

    fn is_escaped_str(self, text: &[u8]) -> bool {
        memchr::memchr(b'\\', self.0).is_some() && decode_string(self.0).as_bytes() == text
    }

    /// Whether both are strings of the same text, however it is escaped.
    #[must_use]
    pub fn is_same_string(self, other: Raw<'_>) -> bool {
        let first = [self, other].map(|raw| raw.0.get(1));
        if first[0] != first[1] && !first.contains(&Some(&b'\\')) {
            return false;
        }
        let escaped = |raw: Raw<'_>| memchr::memchr(b'\\', raw.0).is_some();
        self.0 == other.0 || ((escaped(self) || escaped(other)) && self.as_str() == other.as_str())
    }

    /// The bool.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The number as a double; an integer passes, however long.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        (self.kind() == Kind::Number).then(|| parse_f64(self.0))
    }

    /// Whether it is a number without fraction and exponent.
    #[must_use]
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number && !self.0.iter().any(|b| matches!(b, b'.' | b'e' | b'E'))
    }

    /// The integer, where 64 bits hold it.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        if !self.is_integer() {
            return None;
        }
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }

    /// The members of an object in order, duplicates included; empty for anything else.
    #[must_use]
    pub fn members(self) -> Members<'a> {
        Members(Walk::new(self.0, b'{'))
    }

    /// The elements of an array; empty for anything else.
    #[must_use]
    pub fn elements(self) -> Elements<'a> {
        Elements(Walk::new(self.0, b'['))
    }

    /// The value of a key; of duplicates the last.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Raw<'a>> {
        self.members()
            .filter(|(k, _)| k.is_str(key))
            .last()
            .map(|(_, v)| v)
    }
}

#[derive(Clone, Debug)]
struct Walk<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Walk<'a> {
    fn new(text: &'a [u8], open: u8) -> Self {
        let pos = if text.first() == Some(&open) {
            skip_blanks(text, 1)
        } else {
            text.len()
        };
        Self { text, pos }
    }

    fn done(&self) -> bool {
        matches!(self.text.get(self.pos), None | Some(b'}' | b']'))
    }

    fn value(&mut self) -> Raw<'a> {
        let start = self.pos;
        self.pos = end_of_value(self.text, start);
        Raw(&self.text[start..self.pos])
    }

    /// Moves over blanks and one separator.
    fn separator(&mut self, separator: u8) {
        self.pos = skip_blanks(self.text, self.pos);
        if self.text.get(self.pos) == Some(&separator) {
            self.pos = skip_blanks(self.text, self.pos + 1);
        }
    }
}

/// Iterator over an object's members: the key as a string value, and its value.
#[derive(Clone, Debug)]
pub struct Members<'a>(Walk<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Raw<'a>, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.done() {
            return None;
        }
        let key = self.0.value();
        self.0.separator(b':');
        let value = self.0.value();
        self.0.separator(b',');
        Some((key, value))
    }
}

/// Iterator over an array's elements.
#[derive(Clone, Debug)]
pub struct Elements<'a>(Walk<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.done() {
            return None;
        }
        let value = self.0.value();
        self.0.separator(b',');
        Some(value)
    }
}

/// The end of the value that starts at `pos` of text that a strict scan has passed.
pub(crate) fn end_of_value(text: &[u8], pos: usize) -> usize {
    match text.get(pos) {
        Some(b'"') => end_of_string(text, pos),
        Some(b'{' | b'[') => {
            let mut depth = 0usize;
            let mut at = pos;
            loop {
                at = next_structural(text, at);
                match text.get(at) {
                    Some(b'"') => {
                        at = end_of_string(text, at);
                        continue;
                    }
                    Some(b'{' | b'[') => depth += 1,
                    Some(_) => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    None => return text.len(),
                }
                at += 1;
            }
        }
        _ => text[pos.min(text.len())..]
            .iter()
            .position(|b| matches!(b, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\r' | b'\n'))
            .map_or(text.len(), |len| pos + len),
    }
}

fn end_of_string(text: &[u8], pos: usize) -> usize {
    let mut at = next_delimiter(text, pos + 1);
    while text.get(at) == Some(&b'\\') {
        at = next_delimiter(text, at + 2);
    }
    (at + 1).min(text.len())
}

/// Decodes a string value (with its quotes).
#[must_use]
pub fn decode_string(quoted: &[u8]) -> Cow<'_, str> {
    let inner = match quoted {
        [b'"', inner @ .., b'"'] => inner,
        _ => quoted,
    };
    if memchr::memchr(b'\\', inner).is_none() {
        return match simdutf8::basic::from_utf8(inner) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(inner),
        };
    }
    let decoded = String::from_utf8(Decoder::whole(quoted));
    Cow::Owned(
        decoded.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// Decodes the escape that `rest` starts with; says how many bytes it had and how many of
/// `out` its character has.
pub(super) fn decode_escape(rest: &[u8], out: &mut [u8; 4]) -> (usize, usize) {
    let plain = match rest.get(1) {
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => {
            let (character, used) = match (unit(rest), rest.get(6..).and_then(unit_after)) {
                (high @ 0xD800..=0xDBFF, Some(low @ 0xDC00..=0xDFFF)) => (
                    char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)),
                    12,
                ),
                (unit, _) => (char::from_u32(unit), 6),
            };
            let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
            return (used, character.encode_utf8(out).len());
        }
        Some(other) => *other,
        None => return (1, 0),
    };
    out[0] = plain;
    (2, 1)
}

fn unit(escape: &[u8]) -> u32 {
    let digits = escape.get(2..6).unwrap_or_default();
    digits.iter().fold(0, |unit, d| {
        unit << 4 | (*d as char).to_digit(16).unwrap_or(0)
    })
}

fn unit_after(rest: &[u8]) -> Option<u32> {
    rest.starts_with(b"\\u").then(|| unit(rest))
}

/// A number's text as a double, rounded to nearest; infinite beyond its range.
#[must_use]
pub fn parse_f64(text: &[u8]) -> f64 {
    fast_float2::parse(text).unwrap_or(f64::NAN)
}

/// The number that `text` starts with as a double, as [`parse_f64`] gives it, and how many
/// bytes it has.
#[must_use]
pub fn parse_f64_prefix(text: &[u8]) -> (f64, usize) {
    fast_float2::parse_partial(text).unwrap_or((f64::NAN, text.len()))
}
