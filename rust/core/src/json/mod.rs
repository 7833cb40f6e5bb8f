//! Slices of JSON without building values: the one place that knows the syntax.
//!
//! [`Scanner`] walks bytes it does not trust and is strict (contract, section 3): no
//! NaN, no lone surrogate escapes, no trailing garbage, no nesting deeper than
//! [`MAX_DEPTH`], integers of at most [`MAX_INT_DIGITS`] digits, no fraction or exponent
//! beyond a double. What it returns are [`Raw`] slices, which the rest of the core reads
//! without checking again.

mod block;
mod decode;
mod raw;
mod scan;
mod structure;
mod tape;
mod token;
mod write;

pub use block::has_long_integer;
pub use decode::{Decoder, next_delimiter};
pub(crate) use raw::end_of_value;
pub use raw::{Elements, Kind, Members, Raw, decode_string, parse_f64, parse_f64_prefix};
pub use scan::{Scanner, skip_blanks};
pub(crate) use structure::Structure;
pub use tape::{FieldName, Node, Tape};
pub use write::{write_f64, write_int, write_str};

/// The deepest nesting that is read; the outermost container is depth 1.
pub const MAX_DEPTH: usize = 1024;
/// The deepest nesting of a record, which holds payloads below some levels of its own.
pub const MAX_RECORD_DEPTH: usize = MAX_DEPTH + 64;
/// The longest integer that is read, in digits.
pub const MAX_INT_DIGITS: usize = 4300;

/// What is wrong with a text that should have been JSON, and at which byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rule that was broken.
    pub kind: FaultKind,
    /// Byte offset from the start of the text that was scanned.
    pub at: usize,
}

/// The rules of strict JSON that a text can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The text ends inside a value.
    UnexpectedEnd,
    /// A byte that cannot stand here.
    UnexpectedByte,
    /// A control character inside a string.
    ControlCharacter,
    /// A backslash followed by something that is no escape.
    BadEscape,
    /// Half a surrogate pair.
    LoneSurrogate,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// Nesting deeper than the reader's limit: [`MAX_DEPTH`], or [`MAX_RECORD_DEPTH`].
    TooDeep,
    /// A number that no double holds, or an integer of too many digits.
    NumberOutOfRange,
    /// Something after the value.
    TrailingBytes,
}

impl FaultKind {
    /// A short phrase for error messages.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::UnexpectedEnd => "unexpected end",
            Self::UnexpectedByte => "unexpected character",
            Self::ControlCharacter => "control character in a string",
            Self::BadEscape => "invalid escape",
            Self::LoneSurrogate => "lone surrogate escape",
            Self::InvalidUtf8 => "invalid UTF-8",
            Self::TooDeep => "nested too deep",
            Self::NumberOutOfRange => "number out of range",
            Self::TrailingBytes => "trailing characters",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.kind.text(), self.at)
    }
}

impl std::error::Error for Fault {}

/// An object's members, keys and values as they came.
pub type RawMembers<'a> = Vec<(Raw<'a>, Raw<'a>)>;

/// Checks that `text` is one strict JSON value, blanks around it allowed.
///
/// # Errors
/// The first rule that `text` breaks, with its byte offset.
pub fn parse(text: &[u8]) -> Result<Raw<'_>, Fault> {
    parse_to_depth(text, MAX_DEPTH)
}

/// The same with another limit than [`MAX_DEPTH`].
///
/// # Errors
/// The first rule that `text` breaks, with its byte offset.
pub fn parse_to_depth(text: &[u8], max_depth: usize) -> Result<Raw<'_>, Fault> {
    check_utf8(text, 0)?;
    parse_checked(text, max_depth)
}

/// [`parse`] of text that is known to be UTF-8.
///
/// # Errors
/// The first other rule that `text` breaks, with its byte offset.
pub fn parse_str(text: &str) -> Result<Raw<'_>, Fault> {
    parse_checked(text.as_bytes(), MAX_DEPTH)
}

fn parse_checked(text: &[u8], max_depth: usize) -> Result<Raw<'_>, Fault> {
    let mut scanner = Scanner::with_max_depth(text, max_depth);
    scanner.blanks();
    let value = scanner.value()?;
    scanner.blanks();
    if scanner.at_end() {
        Ok(value)
    } else {
        Err(scanner.fault(FaultKind::TrailingBytes))
    }
}

/// The members of a text that is one strict JSON object, of duplicate keys the last value;
/// none where it is another value.
///
/// # Errors
/// The first rule that `text` breaks, with its byte offset.
pub fn parse_members(text: &[u8], max_depth: usize) -> Result<Option<RawMembers<'_>>, Fault> {
    check_utf8(text, 0)?;
    let mut scanner = Scanner::with_max_depth(text, max_depth);
    scanner.blanks();
    let mut members = None;
    if scanner.peek() == Some(b'{') {
        let members = members.insert(RawMembers::with_capacity(16));
        scanner.object(|scanner, key| {
            let value = scanner.value()?;
            members.push((key, value));
            Ok(())
        })?;
        crate::value::last_wins(members, |key| Some(*key));
    } else {
        scanner.value()?;
    }
    scanner.blanks();
    if scanner.at_end() {
        Ok(members)
    } else {
        Err(scanner.fault(FaultKind::TrailingBytes))
    }
}

/// Checks UTF-8; `base` is added to the offset in the fault.
///
/// # Errors
/// [`FaultKind::InvalidUtf8`] at the first bad byte.
pub fn check_utf8(bytes: &[u8], base: usize) -> Result<(), Fault> {
    if simdutf8::basic::from_utf8(bytes).is_ok() {
        return Ok(());
    }
    let at = std::str::from_utf8(bytes)
        .err()
        .map_or(0, |e| e.valid_up_to());
    Err(Fault {
        kind: FaultKind::InvalidUtf8,
        at: base + at,
    })
}
