//! What the stages hand on: values that are mostly slices of what was read.
//!
//! A [`Value`] is the shape of a record, not its content: payload text stays where it
//! was read, distinct messages are ids into the rollout's [`Interner`], and only what
//! the record adds is new. Three writers take it: JSON text ([`crate::render`]), packed
//! text ([`crate::pack`]) and Python objects (the extension).

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::intern::SharedId;
use crate::json::Raw;

/// The key of a member: a name of ours, or one that came as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A field of the record.
    Name(&'static str),
    /// A key as it was read: a string value with its quotes.
    Raw(Raw<'a>),
}

impl Key<'_> {
    /// Whether the key, decoded, is `name`.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => *own == name,
            Self::Raw(raw) => raw.is_str(name),
        }
    }
}

/// An object's members in order.
pub type Members<'a> = Vec<(Key<'a>, Value<'a>)>;

/// Objects with more members than this are looked up by hash.
pub(crate) const FEW: usize = 24;

/// Leaves each key once, at its first place: of duplicates the last value wins, however
/// the keys are escaped.
///
/// `key_of` gives a member's key where it came as JSON; our own names are unique.
pub fn last_wins<K: Copy, V>(
    members: &mut Vec<(K, V)>,
    key_of: impl for<'k> Fn(&'k K) -> Option<Raw<'k>>,
) {
    if members.len() > FEW {
        let mut places: HashMap<Cow<'_, str>, usize> = HashMap::with_capacity(members.len());
        let mut kept: Vec<usize> = Vec::with_capacity(members.len());
        // Where each first stands, and where its last value does.
        for (at, (key, _)) in members.iter().enumerate() {
            let text = key_of(key).and_then(Raw::as_str);
            match text.map(|text| places.entry(text)) {
                Some(Entry::Occupied(first)) => kept[*first.get()] = at,
                Some(Entry::Vacant(first)) => {
                    first.insert(kept.len());
                    kept.push(at);
                }
                None => kept.push(at),
            }
        }
        if kept.len() == members.len() {
            return;
        }
        drop(places);
        let mut all: Vec<Option<(K, V)>> = members.drain(..).map(Some).collect();
        members.extend(kept.into_iter().filter_map(|at| all[at].take()));
        return;
    }
    let mut at = 1;
    while at < members.len() {
        let key = key_of(&members[at].0);
        let same = |(other, _): &(K, V)| match (key, key_of(other)) {
            (Some(key), Some(other)) => key.is_same_string(other),
            _ => false,
        };
        match members[..at].iter().position(same) {
            Some(first) => members[first].1 = members.remove(at).1,
            None => at += 1,
        }
    }
}

/// [`last_wins`] for members that came as JSON.
pub fn unique_members(members: &mut Members<'_>) {
    last_wins(members, |key| match key {
        Key::Name(_) => None,
        Key::Raw(raw) => Some(*raw),
    });
}

/// A value of a record.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// A bool.
    Bool(bool),
    /// An integer that we counted.
    Int(i128),
    /// A number that we computed; never NaN or infinite.
    Float(f64),
    /// A string that is not (or no longer) JSON text.
    Str(Cow<'a, str>),
    /// JSON text as it was read.
    Raw(Raw<'a>),
    /// JSON text that we made, strict and without blanks around it.
    Text(Arc<[u8]>),
    /// An array.
    Array(Vec<Value<'a>>),
    /// An object; keys are unique.
    Object(Members<'a>),
    /// A distinct value of the rollout.
    Shared(SharedId),
    /// An array of distinct values; lists that are clones of one another are one list.
    SharedList(Arc<[SharedId]>),
    /// One value in both forms: its text, for who copies, and its parts, for who shares.
    Parted(Raw<'a>, Arc<Value<'a>>),
}

impl<'a> Value<'a> {
    /// A string, or null.
    #[must_use]
    pub fn text(text: Option<impl Into<Cow<'a, str>>>) -> Self {
        text.map_or(Self::Null, |text| Self::Str(text.into()))
    }

    /// JSON text, or null.
    #[must_use]
    pub fn raw(raw: Option<Raw<'a>>) -> Self {
        raw.map_or(Self::Null, Self::Raw)
    }

    /// A counted number, or null.
    #[must_use]
    pub fn int(number: Option<i128>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }

    /// An object of named members.
    #[must_use]
    pub fn object<const N: usize>(members: [(&'static str, Value<'a>); N]) -> Self {
        Self::Object(
            members
                .into_iter()
                .map(|(name, value)| (Key::Name(name), value))
                .collect(),
        )
    }
}

/// What could not be observed or joined (contract, section 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gap<'a> {
    /// The gap's code.
    pub code: Cow<'a, str>,
    /// The invocation it belongs to, where it belongs to one.
    pub invocation_id: Option<Cow<'a, str>>,
    /// What exactly.
    pub detail: Option<Cow<'a, str>>,
}

impl<'a> Gap<'a> {
    /// A gap that belongs to no invocation.
    #[must_use]
    pub fn new(code: &'static str, detail: Option<Cow<'a, str>>) -> Self {
        Self {
            code: Cow::Borrowed(code),
            invocation_id: None,
            detail,
        }
    }

    /// The gap as it stands in observations and trajectories: all three keys.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        Value::object([
            ("code", Value::Str(self.code.clone())),
            ("invocation_id", Value::text(self.invocation_id.clone())),
            ("detail", Value::text(self.detail.clone())),
        ])
    }

    /// The gap as it stands in the capture: the code, and the detail where there is one.
    #[must_use]
    pub fn to_capture_value(&self) -> Value<'a> {
        let mut members = vec![(Key::Name("code"), Value::Str(self.code.clone()))];
        if let Some(detail) = &self.detail {
            members.push((Key::Name("detail"), Value::Str(detail.clone())));
        }
        Value::Object(members)
    }
}

/// Appends a gap unless it is there already: gaps are unique, their order is kept.
pub fn push_gap<'a>(gaps: &mut Vec<Gap<'a>>, gap: Gap<'a>) {
    if !gaps.contains(&gap) {
        gaps.push(gap);
    }
}
