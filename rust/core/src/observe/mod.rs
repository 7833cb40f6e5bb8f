//! What the agent harness reported, and its join with the captured calls (contract,
//! section 6).

mod compaction;
mod field;
mod gaps;
mod join;
mod part;
mod record;

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::json::{Raw, Tape};
use crate::value::{Gap, Key, Members, Value, unique_members};

pub use compaction::attach_compactions;
pub use field::{Field, FieldType, Malformed, NonFinite, Reference};
pub use gaps::{GapExtras, UniqueGaps, parse_gaps};
pub use join::{CallIndex, JOIN_GAPS, Joined, join, resolve_verifiers};
pub use part::Part;
pub use record::{
    COMPACTION, GAP, INVOCATION, Record, SANDBOX, Schema, TIMING_SOURCE, TOOL_CALL, TOOL_STATUS,
    VERIFIER,
};

/// One entry of `records`.
#[derive(Clone, Debug)]
pub enum Entry<'a> {
    /// A record of a kind the contract knows.
    Known(Record<'a>),
    /// Another one, passed through.
    Unknown(Raw<'a>),
}

/// A well-formed `ng_agent_observations`.
#[derive(Clone, Debug, Default)]
pub struct Bundle<'a> {
    /// Which harness reported.
    pub source: Cow<'a, str>,
    /// What it reported.
    pub entries: Vec<Entry<'a>>,
    /// What it could not observe, and what could not be joined.
    pub gaps: Vec<Gap<'a>>,
    /// What gaps hold beside the keys that the contract knows.
    gap_extras: GapExtras<'a>,
    /// Keys that the contract does not know.
    pub extra: Members<'a>,
}

impl<'a> Bundle<'a> {
    /// Reads a bundle.
    ///
    /// # Errors
    /// Any rule of section 6 that it breaks makes the whole bundle malformed.
    pub fn parse(raw: Raw<'a>, non_finite: NonFinite<'_>) -> Result<Self, Malformed> {
        let wrong = Malformed("ng_agent_observations");
        let mut tape = Tape::default();
        let whole = Part::scan(&mut tape, raw).filter(|part| part.raw().is_object());
        let whole = whole.ok_or(wrong)?;
        let mut bundle = Self::default();
        let (mut source, mut records, mut gaps) = (None, None, None);
        for (key, value) in whole.members() {
            if key.is_str("source") {
                source = value.raw().as_str();
            } else if key.is_str("records") {
                records = Some(value);
            } else if key.is_str("gaps") {
                gaps = Some(value);
            } else {
                bundle.extra.push((Key::Raw(key), Value::Raw(value.raw())));
            }
        }
        unique_members(&mut bundle.extra);
        bundle.source = source.ok_or(Malformed("source"))?;
        for part in list(records, "records", non_finite)? {
            bundle.entries.push(match record::schema_of(part)? {
                Some(schema) => Entry::Known(Record::parse(schema, part, non_finite)?),
                None => Entry::Unknown(part.raw()),
            });
        }
        (bundle.gaps, bundle.gap_extras) = parse_gaps(gaps, non_finite)?;
        check_tree(bundle.of(&INVOCATION))?;
        Ok(bundle)
    }

    /// The records of one kind, in order.
    pub fn of(&self, schema: &'static Schema) -> impl Iterator<Item = &Record<'a>> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Known(record) if std::ptr::eq(record.schema, schema) => Some(record),
            _ => None,
        })
    }

    /// The records of one kind, to be changed.
    pub fn of_mut(&mut self, schema: &'static Schema) -> impl Iterator<Item = &mut Record<'a>> {
        self.entries
            .iter_mut()
            .filter_map(move |entry| match entry {
                Entry::Known(record) if std::ptr::eq(record.schema, schema) => Some(record),
                _ => None,
            })
    }

    /// The bundle as it is written back.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        let entry = |entry: &Entry<'a>| match entry {
            Entry::Known(record) => record.to_value(true),
            Entry::Unknown(raw) => Value::Raw(*raw),
        };
        let mut members = vec![
            (Key::Name("source"), Value::Str(self.source.clone())),
            (
                Key::Name("records"),
                Value::Array(self.entries.iter().map(entry).collect()),
            ),
            (Key::Name("gaps"), self.gap_extras.to_value(&self.gaps)),
        ];
        members.extend(self.extra.iter().cloned());
        Value::Object(members)
    }
}

/// The elements of a list of objects, none where it is missing.
///
/// # Errors
/// It is there and no list, or holds a scalar.
pub fn list<'t, 'a>(
    part: Option<Part<'t, 'a>>,
    name: &'static str,
    non_finite: NonFinite<'_>,
) -> Result<impl Iterator<Item = Part<'t, 'a>> + use<'t, 'a>, Malformed> {
    let there = part.filter(|part| !part.raw().is_null() || non_finite.holds(part.raw()));
    let elements = there.map(|part| part.elements().ok_or(Malformed(name)));
    Ok(elements.transpose()?.into_iter().flatten())
}

/// Refuses a repeated invocation id and a cycle of parents.
///
/// # Errors
/// The field at fault.
pub fn check_tree<'r, 'a: 'r>(
    invocations: impl Iterator<Item = &'r Record<'a>>,
) -> Result<(), Malformed> {
    let mut parents: HashMap<Cow<'a, str>, Option<Cow<'a, str>>> = HashMap::new();
    for invocation in invocations {
        let parent = invocation.text("parent_invocation_id");
        if parents.insert(invocation.invocation_id(), parent).is_some() {
            return Err(Malformed("invocation_id"));
        }
    }
    let mut settled: HashSet<&str> = HashSet::new();
    for id in parents.keys() {
        let mut path: HashSet<&str> = HashSet::new();
        let mut next = Some(&**id);
        while let Some(id) = next.filter(|id| !settled.contains(id)) {
            if !path.insert(id) {
                return Err(Malformed("parent_invocation_id"));
            }
            next = parents.get(id).and_then(Option::as_deref);
        }
        settled.extend(path);
    }
    Ok(())
}

/// Reads `ng_verifier_invocations`; a malformed list counts as none.
#[must_use]
pub fn parse_verifiers<'a>(raw: Option<Raw<'a>>, non_finite: NonFinite<'_>) -> Vec<Record<'a>> {
    let mut tape = Tape::default();
    let Some(part) = raw.and_then(|raw| Part::scan(&mut tape, raw)) else {
        return Vec::new();
    };
    let Ok(entries) = list(Some(part), "ng_verifier_invocations", non_finite) else {
        return Vec::new();
    };
    let parsed = entries.map(|part| Record::parse(&VERIFIER, part, non_finite));
    parsed.collect::<Result<_, _>>().unwrap_or_default()
}
