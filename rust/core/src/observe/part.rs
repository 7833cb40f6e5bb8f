//! What an agent reports, scanned once: its records are read off the tape.

use crate::json::{FieldName, Kind, MAX_RECORD_DEPTH, Raw, Scanner, Tape};

/// The deepest that anything is read: a trajectory's turns, a turn's references, their models.
const LEVELS: usize = 8;
/// The members whose parts are read.
const OPEN: [&str; 11] = [
    "gaps",
    "turns",
    "records",
    "model_ref",
    "tool_calls",
    "invocations",
    "model_calls",
    "token_stats",
    "response_metadata",
    "before_model_call",
    "after_model_call",
];

/// Whether a member's parts are read: payloads and conversations are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open(bool);

impl FieldName for Open {
    fn of(text: &[u8]) -> Self {
        Self(OPEN.iter().any(|name| text == name.as_bytes()))
    }

    fn is_closed(self) -> bool {
        !self.0
    }
}

/// One value of what was reported.
#[derive(Clone, Copy, Debug)]
pub struct Part<'t, 'a> {
    tape: &'t Tape<'a, Open>,
    node: usize,
}

impl<'t, 'a> Part<'t, 'a> {
    /// Scans a value that is known to be strict JSON.
    #[must_use]
    pub fn scan(tape: &'t mut Tape<'a, Open>, value: Raw<'a>) -> Option<Self> {
        let mut scanner = Scanner::with_max_depth(value.bytes(), MAX_RECORD_DEPTH);
        let node = tape.scan(&mut scanner, LEVELS).ok()?;
        Some(Self { tape, node })
    }

    /// Its text.
    #[must_use]
    pub fn raw(self) -> Raw<'a> {
        self.tape.value(self.node)
    }

    fn children(self) -> impl Iterator<Item = Self> {
        let Self { tape, node } = self;
        tape.children(node).map(move |node| Self { tape, node })
    }

    /// How many members or elements it has, bare scalars of a list not counted.
    #[must_use]
    pub fn count(self) -> usize {
        self.children().count()
    }

    /// The members of an object in order, duplicates included; empty for anything else.
    pub fn members(self) -> impl Iterator<Item = (Raw<'a>, Self)> {
        self.children()
            .filter_map(|child| Some((self.tape.node(child.node).key?, child)))
    }

    /// The value of a key; of duplicates the last.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Self> {
        self.members()
            .filter(|(k, _)| k.is_str(key))
            .last()
            .map(|(_, value)| value)
    }

    /// The elements of a list that holds no bare scalars; none where it is anything else.
    #[must_use]
    pub fn elements(self) -> Option<impl Iterator<Item = Self>> {
        let is_list = self.raw().kind() == Kind::Array && self.tape.node(self.node).is_whole;
        is_list.then(|| self.children())
    }
}
