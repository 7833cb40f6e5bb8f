//! The join: references to model calls meet the captured calls, and nothing is guessed
//! (contract, section 6).

use std::borrow::Cow;
use std::hash::Hash;

use hashbrown::hash_map::Entry as Slot;
use hashbrown::{HashMap, HashSet};

use super::field::{Field, Reference};
use super::gaps::UniqueGaps;
use super::record::{COMPACTION, INVOCATION, Record};
use super::{Bundle, Entry};
use crate::call::CallRecord;
use crate::value::Gap;

const CONFLICT: &str = "model_call_reference_conflict";
const UNMATCHED: &str = "model_call_reference_unmatched";
const AMBIGUOUS: &str = "model_call_reference_ambiguous";
const UNOWNED: &str = "model_call_ownership_unavailable";

/// The codes that the join writes, and drops before it does.
pub const JOIN_GAPS: [&str; 4] = [CONFLICT, UNMATCHED, AMBIGUOUS, UNOWNED];

/// An empty id is no id.
fn known<'c>(id: Option<&'c Cow<'_, str>>) -> Option<&'c str> {
    id.map(AsRef::as_ref).filter(|id| !id.is_empty())
}

/// The captured calls by what a reference can name them with.
#[derive(Debug)]
pub struct CallIndex<'c, 'a> {
    calls: &'c [CallRecord<'a>],
    by_id: HashMap<&'c str, Named>,
    by_response: HashMap<(&'c str, &'c str), Named>,
}

/// The calls of one name, in order: mostly one.
#[derive(Debug)]
struct Named {
    first: usize,
    others: Vec<usize>,
}

impl Named {
    fn add<K: Eq + Hash>(names: &mut HashMap<K, Self>, name: K, call: usize) {
        match names.entry(name) {
            Slot::Occupied(named) => named.into_mut().others.push(call),
            Slot::Vacant(free) => {
                free.insert(Self {
                    first: call,
                    others: Vec::new(),
                });
            }
        }
    }
}

impl<'c, 'a> CallIndex<'c, 'a> {
    /// Indexes the calls.
    #[must_use]
    pub fn new(calls: &'c [CallRecord<'a>]) -> Self {
        let mut index = Self {
            calls,
            by_id: HashMap::with_capacity(calls.len()),
            by_response: HashMap::with_capacity(calls.len()),
        };
        for (at, call) in calls.iter().enumerate() {
            if let Some(id) = known(call.model_call_id.as_ref()) {
                Named::add(&mut index.by_id, id, at);
            }
            if let (Some(model), Some(response)) =
                (&call.model_ref, known(call.response_id.as_ref()))
            {
                Named::add(&mut index.by_response, (&*model.name, response), at);
            }
        }
        index
    }

    /// The calls that a reference could mean.
    pub fn candidates<'s>(
        &'s self,
        reference: &'s Reference<'_>,
    ) -> impl Iterator<Item = usize> + 's + use<'s, 'c, 'a> {
        let model = reference.model_ref.as_ref().map(|model| &*model.name);
        let response = known(reference.response_id.as_ref());
        let by_id = known(reference.model_call_id.as_ref()).map(|id| self.by_id.get(id));
        let found = match (by_id, model, response) {
            (Some(found), _, _) => found,
            (None, Some(model), Some(response)) => self.by_response.get(&(model, response)),
            _ => None,
        };
        let fits = move |at: &usize| {
            let call = &self.calls[*at];
            let call_model = call.model_ref.as_ref().map(|model| &*model.name);
            (model.is_none() || model == call_model)
                && (response.is_none() || response == call.response_id.as_deref())
        };
        let calls = |named: &'s Named| std::iter::once(&named.first).chain(&named.others);
        found.into_iter().flat_map(calls).copied().filter(fits)
    }

    /// The one call that a reference means.
    ///
    /// # Errors
    /// It means none or several: the code of the gap.
    pub fn resolve(&self, reference: &Reference<'_>) -> Result<usize, &'static str> {
        let mut candidates = self.candidates(reference);
        match (candidates.next(), candidates.next()) {
            (Some(call), None) => Ok(call),
            (None, _) => Err(UNMATCHED),
            _ => Err(AMBIGUOUS),
        }
    }

    /// The calls that an invocation's references could mean.
    #[must_use]
    pub fn named_by(&self, invocation: &Record<'_>) -> HashSet<usize> {
        let references = invocation.references().iter();
        references
            .flat_map(|reference| self.candidates(reference))
            .collect()
    }

    /// The full reference to a call.
    #[must_use]
    pub fn reference(&self, call: usize) -> Reference<'a> {
        Reference {
            resolved: Some(call),
            ..self.calls[call].reference()
        }
    }

    fn detail(&self, call: usize) -> Option<Cow<'a, str>> {
        let record = &self.calls[call];
        let name = known(record.model_call_id.as_ref()).or(known(record.response_id.as_ref()));
        name.map(|name| Cow::Owned(name.to_owned()))
    }
}

/// What the join decided about the calls.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// Per call the invocation that owns it: its place among the bundle's invocations.
    pub owners: Vec<Option<usize>>,
    /// Per call whether a compaction made it (its `model_calls` mean it).
    pub compaction_calls: Vec<bool>,
    /// Per call whether a verifier made it.
    pub verifier_calls: Vec<bool>,
}

/// Resolves the verifiers' references: which calls they mean, and the gaps of the others.
#[must_use]
pub fn resolve_verifiers<'a>(
    verifiers: &[Record<'a>],
    index: &CallIndex<'_, 'a>,
) -> (Vec<bool>, Vec<Gap<'a>>) {
    let mut named = vec![false; index.calls.len()];
    let mut gaps = UniqueGaps::default();
    for verifier in verifiers {
        for reference in verifier.references() {
            match index.resolve(reference) {
                Ok(call) => named[call] = true,
                Err(code) => gaps.push(Gap {
                    code: Cow::Borrowed(code),
                    invocation_id: Some(verifier.invocation_id()),
                    detail: reference.detail(),
                }),
            }
        }
    }
    (named, gaps.into_vec())
}

/// Joins a bundle with the captured calls, in place: references become full ones, and
/// what could not be joined becomes gaps.
#[must_use]
pub fn join<'a>(
    bundle: &mut Bundle<'a>,
    verifiers: &[Record<'a>],
    calls: &[CallRecord<'a>],
) -> Joined {
    bundle.gaps.retain(|gap| !JOIN_GAPS.contains(&&*gap.code));
    let index = CallIndex::new(calls);
    append_session_calls(bundle, &index);

    let (verifier_calls, verifier_gaps) = resolve_verifiers(verifiers, &index);
    let mut joined = Joined {
        owners: vec![None; calls.len()],
        compaction_calls: vec![false; calls.len()],
        verifier_calls,
    };
    let mut gaps: UniqueGaps<'a> = std::mem::take(&mut bundle.gaps).into_iter().collect();
    for (at, invocation) in bundle.of_mut(&INVOCATION).enumerate() {
        let id = invocation.invocation_id();
        for reference in invocation.references_mut().into_iter().flatten() {
            match own(reference, at, &index, &mut joined.owners) {
                Ok(()) => {}
                Err((code, detail)) => add(&mut gaps, code, &id, detail),
            }
        }
    }
    join_compactions(bundle, &index, &mut joined, &mut gaps);
    gaps.extend(verifier_gaps);
    for (call, owner) in calls.iter().zip(&joined.owners) {
        if owner.is_none() {
            let name = known(call.model_call_id.as_ref()).or(known(call.response_id.as_ref()));
            let name = name.unwrap_or("unknown");
            let detail = format!("capture:{name}:call_index={}", call.call_index);
            gaps.push(Gap::new(UNOWNED, Some(Cow::Owned(detail))));
        }
    }
    bundle.gaps = gaps.into_vec();
    joined
}

fn add<'a>(
    gaps: &mut UniqueGaps<'a>,
    code: &'static str,
    invocation: &Cow<'a, str>,
    detail: Option<Cow<'a, str>>,
) {
    let invocation_id = Some(invocation.clone());
    gaps.push(Gap {
        code: Cow::Borrowed(code),
        invocation_id,
        detail,
    });
}

/// Calls made in an invocation's session that no reference of it could mean are its too.
fn append_session_calls<'a>(bundle: &mut Bundle<'a>, index: &CallIndex<'_, 'a>) {
    let mut sessions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, call) in index.calls.iter().enumerate() {
        if let (Some(session), Some(_)) = (
            known(call.client_session_id.as_ref()),
            known(call.model_call_id.as_ref()),
        ) {
            sessions.entry(session).or_default().push(at);
        }
    }
    if sessions.is_empty() {
        return;
    }
    for invocation in bundle.of_mut(&INVOCATION) {
        let Some(calls) = sessions.get(&*invocation.invocation_id()) else {
            continue;
        };
        let named = index.named_by(invocation);
        let new = calls.iter().filter(|call| !named.contains(*call));
        let new: Vec<_> = new.map(|call| index.reference(*call)).collect();
        if let Some(references) = invocation.references_mut() {
            references.extend(new);
        }
    }
}

type Refused<'a> = (&'static str, Option<Cow<'a, str>>);

/// Resolves an invocation's reference to a call that nobody owns yet.
fn own<'a>(
    reference: &mut Reference<'a>,
    invocation: usize,
    index: &CallIndex<'_, 'a>,
    owners: &mut [Option<usize>],
) -> Result<(), Refused<'a>> {
    let call = index
        .resolve(reference)
        .map_err(|code| (code, reference.detail()))?;
    if owners[call].is_some() {
        return Err((CONFLICT, index.detail(call)));
    }
    owners[call] = Some(invocation);
    replace(reference, index.reference(call));
    Ok(())
}

fn replace<'a>(reference: &mut Reference<'a>, full: Reference<'a>) {
    let extra = std::mem::take(&mut reference.extra);
    *reference = Reference { extra, ..full };
}

fn join_compactions<'a>(
    bundle: &mut Bundle<'a>,
    index: &CallIndex<'_, 'a>,
    joined: &mut Joined,
    gaps: &mut UniqueGaps<'a>,
) {
    let places: HashMap<Cow<'a, str>, usize> = bundle
        .of(&INVOCATION)
        .enumerate()
        .map(|(at, record)| (record.invocation_id(), at))
        .collect();
    for entry in &mut bundle.entries {
        let Entry::Known(record) = entry else {
            continue;
        };
        if !std::ptr::eq(record.schema, &raw const COMPACTION) {
            continue;
        }
        let id = record.invocation_id();
        let own_place = places.get(&id).copied();
        for name in ["model_calls", "before_model_call", "after_model_call"] {
            let must_be_owned = name == "model_calls";
            let mut one = |reference: &mut Reference<'a>| {
                let refused = match index.resolve(reference) {
                    Err(code) => (code, reference.detail()),
                    Ok(call) => {
                        joined.compaction_calls[call] |= must_be_owned;
                        match joined.owners[call] {
                            Some(owner) if Some(owner) != own_place => {
                                (CONFLICT, index.detail(call))
                            }
                            None if must_be_owned => (UNOWNED, reference.detail()),
                            _ => return replace(reference, index.reference(call)),
                        }
                    }
                };
                let detail = refused
                    .1
                    .map(|detail| Cow::Owned(format!("{name}:{detail}")));
                add(gaps, refused.0, &id, detail);
            };
            match record.field_mut(name) {
                Some(Field::References(references)) => references.iter_mut().for_each(&mut one),
                Some(Field::Reference(Some(reference))) => one(reference),
                _ => {}
            }
        }
    }
}
