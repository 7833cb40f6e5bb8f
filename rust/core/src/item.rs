//! What a message or an item is to a turn: told while it is scanned, so that none is walked
//! again.

use crate::json::{FieldName, Kind, Raw};
use crate::names::Name;

/// What an item of a Responses list is to a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Item {
    /// A `reasoning` item.
    Reasoning,
    /// A `function_call` item.
    FunctionCall,
    /// A message that says its role but no type.
    Untyped,
    /// Anything else.
    #[default]
    Other,
}

/// What turns ask of a message or an item, without walking it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Note<'a> {
    /// What it is among Responses items.
    pub item: Item,
    /// The content, a list, of what the model said.
    pub said: Option<Raw<'a>>,
}

impl<'a> Note<'a> {
    /// Reads a value member by member.
    #[must_use]
    pub fn of(raw: Raw<'a>) -> Self {
        let mut noting = Noting::default();
        for (key, value) in raw.members() {
            noting.member(Name::of_key(key), value);
        }
        noting.finish()
    }
}

/// A [`Note`] in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noting<'a> {
    kind: Option<Raw<'a>>,
    role: Option<Raw<'a>>,
    content: Option<Raw<'a>>,
}

impl<'a> Noting<'a> {
    /// Takes the next member; of duplicate keys the last wins.
    #[inline]
    pub fn member(&mut self, name: Name, value: Raw<'a>) {
        match name {
            Name::Type => self.kind = Some(value),
            Name::Role => self.role = Some(value),
            Name::Content => self.content = Some(value),
            _ => {}
        }
    }

    /// All members were taken.
    #[must_use]
    pub fn finish(self) -> Note<'a> {
        let role = self.role.unwrap_or(Raw::NULL);
        let is_list = |raw: &Raw<'_>| raw.kind() == Kind::Array;
        let said = self
            .content
            .filter(|raw| is_list(raw) && role.is_str("assistant"));
        Note {
            item: item_kind(self.kind.unwrap_or(Raw::NULL), role),
            said,
        }
    }
}

/// What an item of a Responses list is, by its type and role.
#[must_use]
pub fn item_kind(kind: Raw<'_>, role: Raw<'_>) -> Item {
    if kind.is_null() && !role.is_null() {
        Item::Untyped
    } else if kind.is_str("reasoning") {
        Item::Reasoning
    } else if kind.is_str("function_call") {
        Item::FunctionCall
    } else {
        Item::Other
    }
}
