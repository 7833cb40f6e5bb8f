//! A small owned JSON tree for streams: keys keep their order, numbers their digits,
//! strings may be broken for a while.

use std::collections::HashMap;

use super::parse::{Strictness, parse};
use super::rope::{Out, Rewritten, Rope};
use super::text::{Key, Text};

/// One JSON value.
///
/// `Raw` and `RawList` hold finished, compact, strict JSON text: what is only kept and
/// never looked at again needs no tree (a list of log-probabilities takes several times
/// its text as one).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    /// The digits as they came; always a valid, finite JSON number.
    Number(Box<str>),
    String(Text),
    Array(Vec<Value>),
    Object(Object),
    /// One value, written.
    Raw(Rope),
    /// The elements of a list, written and joined with commas, without the brackets.
    RawList(Rope),
}

/// An object's members in order. A key that came twice is kept twice; the last one counts.
#[derive(Clone, Debug, Default)]
pub struct Object {
    members: Vec<(Key, Value)>,
    /// Where each key's last member is, once a large object is merged into.
    #[allow(clippy::box_collection)] // eight bytes in every object, not fifty
    index: Option<Box<HashMap<Vec<u8>, usize>>>,
}

/// From this many members on keys are looked up by hash when members are merged in.
const INDEXED_FROM: usize = 48;

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.members == other.members
    }
}

impl Object {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.members
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.get_mut_text(key.as_bytes())
    }

    fn get_mut_text(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.members
            .iter_mut()
            .rev()
            .find(|(name, _)| name.as_bytes() == key)
            .map(|(_, value)| value)
    }

    /// The value at `key`, which becomes `default` first where there is none.
    pub fn entry(&mut self, key: &[u8], default: Value) -> &mut Value {
        let at = self.position(key).unwrap_or_else(|| {
            self.push(Key::from(key), default);
            self.members.len() - 1
        });
        &mut self.members[at].1
    }

    fn position(&mut self, key: &[u8]) -> Option<usize> {
        if self.members.len() < INDEXED_FROM {
            return self
                .members
                .iter()
                .rposition(|(name, _)| name.as_bytes() == key);
        }
        let index = self.index.get_or_insert_with(|| {
            let keys = self
                .members
                .iter()
                .enumerate()
                .map(|(at, (name, _))| (name.as_bytes().to_vec(), at));
            Box::new(keys.collect())
        });
        index.get(key).copied()
    }

    pub fn set(&mut self, key: &str, value: Value) {
        *self.entry(key.as_bytes(), Value::Null) = value;
    }

    pub(crate) fn push(&mut self, key: Key, value: Value) {
        if let Some(index) = &mut self.index {
            index.insert(key.as_bytes().to_vec(), self.members.len());
        }
        self.members.push((key, value));
    }

    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.index = None;
        let mut last = None;
        self.members.retain_mut(|(name, value)| {
            let stays = name != key;
            if !stays {
                last = Some(std::mem::replace(value, Value::Null));
            }
            stays
        });
        last
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.members.iter().map(|(key, value)| (key, value))
    }

    /// The string at `key`.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&Text> {
        self.get(key).and_then(Value::as_text)
    }

    /// The string at `key`, where there is one that is valid and not empty.
    #[must_use]
    pub fn str(&self, key: &str) -> Option<&str> {
        self.text(key)
            .and_then(Text::as_str)
            .filter(|text| !text.is_empty())
    }

    /// The integer at `key`, where it is one that fits.
    #[must_use]
    pub fn int(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_int)
    }

    #[must_use]
    pub fn object(&self, key: &str) -> Option<&Object> {
        self.get(key).and_then(Value::as_object)
    }

    #[must_use]
    pub fn array(&self, key: &str) -> Option<&[Value]> {
        self.get(key).and_then(Value::as_array)
    }

    /// Whether there is a value at `key` that says something ([`Value::says_something`]).
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(Value::says_something)
    }

    /// Appends `text` to the string at `key`; anything else there is replaced.
    pub fn append(&mut self, key: &str, text: Text) {
        let held = self.entry(key.as_bytes(), Value::Null);
        if let Value::String(held) = held {
            held.push(text);
        } else {
            *held = Value::String(text);
        }
    }

    /// Takes the string at `key`; an empty one is left.
    pub(super) fn take_text(&mut self, key: &str) -> Option<Text> {
        match self.get_mut(key) {
            Some(Value::String(text)) => Some(std::mem::take(text)),
            _ => None,
        }
    }

    /// Merges what a later snapshot says into this one: null says nothing, objects merge
    /// key by key, a list goes on or stands for the earlier one, the rest is replaced.
    pub fn merge_state(&mut self, key: &[u8], value: Value) {
        let held = self.entry(key, Value::Null);
        match (held, value) {
            (_, Value::Null) => {}
            (Value::Object(held), Value::Object(new)) => {
                for (key, value) in new {
                    held.merge_state(key.as_bytes(), value);
                }
            }
            (Value::Array(held), Value::Array(new)) if !new.starts_with(held) => {
                if !held.starts_with(&new) {
                    held.extend(new);
                }
            }
            (held, value) => *held = value,
        }
    }
}

impl IntoIterator for Object {
    type Item = (Key, Value);
    type IntoIter = std::vec::IntoIter<(Key, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

impl FromIterator<(&'static str, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (&'static str, Value)>>(members: I) -> Self {
        let members = members
            .into_iter()
            .map(|(key, value)| (Key::from(key), value));
        Self {
            members: members.collect(),
            index: None,
        }
    }
}

impl Value {
    #[must_use]
    pub fn string(text: &str) -> Self {
        Self::String(Text::from(text))
    }

    #[must_use]
    pub fn int(number: i64) -> Self {
        Self::Number(number.to_string().into())
    }

    #[must_use]
    pub fn as_text(&self) -> Option<&Text> {
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        if let Self::Object(object) = self {
            Some(object)
        } else {
            None
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        if let Self::Object(object) = self {
            Some(object)
        } else {
            None
        }
    }

    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Self::Array(items) = self {
            Some(items)
        } else {
            None
        }
    }

    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Number(digits) = self {
            digits.parse().ok()
        } else {
            None
        }
    }

    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether the value is more than null, the empty string, an empty list or object.
    #[must_use]
    pub fn says_something(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(_) | Self::Number(_) => true,
            Self::String(text) => !text.is_empty(),
            Self::Array(items) => !items.is_empty(),
            Self::Object(object) => !object.is_empty(),
            Self::Raw(json) => {
                json.is_long() || !matches!(json.first(), b"null" | b"\"\"" | b"[]" | b"{}")
            }
            Self::RawList(json) => !json.is_empty(),
        }
    }

    /// The object in here; whatever else was here becomes an empty one.
    pub fn make_object(&mut self) -> &mut Object {
        if !matches!(self, Self::Object(_)) {
            *self = Self::Object(Object::default());
        }
        match self {
            Self::Object(object) => object,
            _ => unreachable!("it was made one"),
        }
    }

    /// The list in here; null becomes an empty one, anything else its only element.
    pub fn make_array(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Self::Array(_)) {
            *self = match std::mem::replace(self, Self::Null) {
                Self::Null => Self::Array(Vec::new()),
                list @ Self::RawList(_) => parse(&list.to_json(), Strictness::Event)
                    .unwrap_or_else(|| Self::Array(vec![list])),
                held => Self::Array(vec![held]),
            };
        }
        match self {
            Self::Array(items) => items,
            _ => unreachable!("it was made one"),
        }
    }

    /// Appends the elements of a list, written out; for long lists that nobody looks into.
    pub(super) fn extend_written(&mut self, elements: &[Value]) {
        let mut list = Rope::default();
        write_elements(elements, &mut list);
        self.extend_raw(list);
    }

    /// Appends elements that are written already.
    pub(super) fn extend_raw(&mut self, elements: Rope) {
        if !matches!(self, Self::RawList(_)) {
            let mut list = Rewritten::default();
            match std::mem::take(self) {
                Self::Null => {}
                Self::Array(items) => write_elements_away(items, &mut list),
                other => other.write_away(&mut list),
            }
            *self = Self::RawList(list.finish());
        }
        if let Self::RawList(list) = self
            && !elements.is_empty()
        {
            if !list.is_empty() {
                list.push(b",");
            }
            list.append(elements);
        }
    }

    /// The same value as written text: less memory, no more looking inside.
    #[must_use]
    pub(super) fn written(self) -> Self {
        match self {
            Self::Array(_) | Self::Object(_) | Self::RawList(_) => {
                let mut json = self.into_json();
                json.shrink();
                Self::Raw(json)
            }
            other => other,
        }
    }

    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Sized first: growing by doubling would hold a large response twice.
        let mut out = Vec::with_capacity(self.json_len());
        self.write(&mut out);
        out
    }

    /// About how many bytes the written value takes; rarely less than it does.
    fn json_len(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 5,
            Self::Number(digits) => digits.len(),
            Self::String(text) => text.json_len(),
            Self::Array(items) => 2 + items.iter().map(|item| item.json_len() + 1).sum::<usize>(),
            Self::Object(object) => {
                let member = |(key, value): (&Key, &Value)| key.json_len() + value.json_len() + 2;
                2 + object.iter().map(member).sum::<usize>()
            }
            Self::Raw(json) => json.len(),
            Self::RawList(json) => json.len() + 2,
        }
    }

    /// The value as compact strict JSON, letting go of what is written.
    #[must_use]
    pub fn into_json(self) -> Rope {
        let mut out = Rewritten::default();
        self.write_away(&mut out);
        out.finish()
    }

    /// Appends the value as compact strict JSON.
    pub(crate) fn write(&self, out: &mut impl Out) {
        match self {
            Self::Null => out.put(b"null"),
            Self::Bool(true) => out.put(b"true"),
            Self::Bool(false) => out.put(b"false"),
            Self::Number(digits) => out.put(digits.as_bytes()),
            Self::String(text) => text.write_json(out),
            Self::Array(items) => {
                out.put(b"[");
                write_elements(items, out);
                out.put(b"]");
            }
            Self::Object(object) => {
                out.put(b"{");
                for (at, (key, value)) in object.iter().enumerate() {
                    if at > 0 {
                        out.put(b",");
                    }
                    key.write_json(out);
                    out.put(b":");
                    value.write(out);
                }
                out.put(b"}");
            }
            Self::Raw(json) => json.pieces().for_each(|piece| out.put(piece)),
            Self::RawList(json) => {
                out.put(b"[");
                json.pieces().for_each(|piece| out.put(piece));
                out.put(b"]");
            }
        }
    }

    fn write_away(self, out: &mut Rewritten) {
        match self {
            Self::String(text) => text.write_json_away(out),
            Self::Array(items) => {
                out.put(b"[");
                write_elements_away(items, out);
                out.put(b"]");
            }
            Self::Object(object) => {
                out.put(b"{");
                for (at, (key, value)) in object.into_iter().enumerate() {
                    if at > 0 {
                        out.put(b",");
                    }
                    key.write_json(out);
                    out.put(b":");
                    value.write_away(out);
                }
                out.put(b"}");
            }
            Self::Raw(json) => out.append(json),
            Self::RawList(json) => {
                out.put(b"[");
                out.append(json);
                out.put(b"]");
            }
            other => other.write(out),
        }
    }
}

fn write_elements(items: &[Value], out: &mut impl Out) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put(b",");
        }
        item.write(out);
    }
}

fn write_elements_away(items: Vec<Value>, out: &mut Rewritten) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.put(b",");
        }
        item.write_away(out);
    }
}
