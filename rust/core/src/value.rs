//! What the stages hand on: values that are mostly slices of what was read.
//!
//! A [`Value`] is the shape of a record, not its content: payload text stays where it
//! was read, distinct messages are ids into the rollout's [`Interner`], and only what
//! the record adds is new. Three writers take it: JSON text ([`crate::render`]), packed
//! text ([`crate::pack`]) and Python objects (the extension).

use std::borrow::Cow;
use std::sync::Arc;

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

/// Sets a member that came as JSON; of duplicate keys the last wins.
pub fn set_member<'a>(members: &mut Members<'a>, key: Raw<'a>, value: Value<'a>) {
    match members
        .iter_mut()
        .find(|(other, _)| matches!(other, Key::Raw(other) if other.is_same_string(key)))
    {
        Some(same) => same.1 = value,
        None => members.push((Key::Raw(key), value)),
    }
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
