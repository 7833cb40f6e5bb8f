//! Gaps in order, each once, however many there are: a rollout whose capture is gone has
//! as many as references.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::field::{Malformed, NonFinite};
use super::list;
use super::part::Part;
use super::record::{GAP, Record};
use crate::value::{Gap, Members, Value};

/// Gaps unique by code, invocation and detail, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct UniqueGaps<'a> {
    gaps: Vec<Gap<'a>>,
    places: HashTable<(u64, usize)>,
    hasher: FixedState,
}

impl<'a> UniqueGaps<'a> {
    /// Appends a gap unless it is there already.
    pub fn push(&mut self, gap: Gap<'a>) {
        let hash = self.hasher.hash_one(&gap);
        let gaps = &self.gaps;
        let same = |(other, place): &(u64, usize)| *other == hash && gaps[*place] == gap;
        if self.places.find(hash, same).is_none() {
            let place = (hash, self.gaps.len());
            self.places.insert_unique(hash, place, |(hash, _)| *hash);
            self.gaps.push(gap);
        }
    }

    /// The gaps.
    #[must_use]
    pub fn into_vec(self) -> Vec<Gap<'a>> {
        self.gaps
    }
}

impl<'a> Extend<Gap<'a>> for UniqueGaps<'a> {
    fn extend<I: IntoIterator<Item = Gap<'a>>>(&mut self, gaps: I) {
        for gap in gaps {
            self.push(gap);
        }
    }
}

impl<'a> FromIterator<Gap<'a>> for UniqueGaps<'a> {
    fn from_iter<I: IntoIterator<Item = Gap<'a>>>(gaps: I) -> Self {
        let mut unique = Self::default();
        unique.extend(gaps);
        unique
    }
}

/// The keys of gaps that the contract does not know: they pass through.
#[derive(Clone, Debug, Default)]
pub struct GapExtras<'a>(HashMap<Gap<'a>, Members<'a>>);

impl<'a> GapExtras<'a> {
    /// Gaps as they stand in observations and trajectories, with what came beside.
    pub fn to_value<'g>(&self, gaps: impl IntoIterator<Item = &'g Gap<'a>>) -> Value<'a>
    where
        'a: 'g,
    {
        let one = |gap: &'g Gap<'a>| {
            let mut value = gap.to_value();
            if let Value::Object(members) = &mut value
                && let Some(extra) = self.0.get(gap)
            {
                members.extend(extra.iter().cloned());
            }
            value
        };
        Value::Array(gaps.into_iter().map(one).collect())
    }
}

/// The gaps of a bundle or a trajectory, unique, and what they hold beside.
///
/// # Errors
/// One is no object or has a wrong type.
pub fn parse_gaps<'a>(
    part: Option<Part<'_, 'a>>,
    non_finite: NonFinite<'_>,
) -> Result<(Vec<Gap<'a>>, GapExtras<'a>), Malformed> {
    let mut gaps = UniqueGaps::default();
    let mut extras = GapExtras::default();
    for part in list(part, "gaps", non_finite)? {
        let record = Record::parse(&GAP, part, non_finite)?;
        let gap = Gap {
            code: record.text("code").ok_or(Malformed("code"))?,
            invocation_id: record.text("invocation_id"),
            detail: record.text("detail"),
        };
        if !record.extra.is_empty() {
            extras.0.entry(gap.clone()).or_insert(record.extra);
        }
        gaps.push(gap);
    }
    Ok((gaps.into_vec(), extras))
}
