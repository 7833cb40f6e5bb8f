//! Enriching again: what an earlier enrichment left, and what of it stays (contract,
//! section 5).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::call::CallRecord;
use crate::capture::GAP_ORDER;
use crate::json::{Kind, Raw};
use crate::observe::{Bundle, INVOCATION, JOIN_GAPS, Record};
use crate::render::render;
use crate::trajectory::{Producer, came_from};
use crate::value::{Gap, Key, Members, Value};

const LATE: &str = "model_call_capture_late_records";

/// Codes of gaps that an enrichment writes into a trajectory, beside those of the capture
/// and the join; the two that cannot be found out again are not among them.
const PROJECTED: [&str; 9] = [
    "agent_observations_invalid",
    "tool_call_output_ambiguous",
    "turn_content_unconverted",
    "model_calls_unavailable",
    "turns_unavailable",
    "conversation_unavailable",
    "trajectory_projection_failed",
    "compaction_model_call_match_ambiguous",
    "compaction_model_call_join_failed",
];

/// A capture that a result holds already.
#[derive(Clone, Debug)]
pub struct Held<'a> {
    members: Vec<(Raw<'a>, Raw<'a>)>,
    ids: HashSet<Cow<'a, str>>,
    /// Whether it has calls.
    pub has_calls: bool,
}

impl<'a> Held<'a> {
    /// Reads `ng_model_call_capture`; none where it is no object.
    #[must_use]
    pub fn parse(raw: Raw<'a>) -> Option<Self> {
        if !raw.is_object() {
            return None;
        }
        let calls = raw.get("calls");
        let ids = calls.into_iter().flat_map(Raw::elements);
        let ids = ids
            .filter_map(|call| call.get("model_call_id")?.as_str())
            .filter(|id| !id.is_empty())
            .collect();
        Some(Self {
            members: raw.members().collect(),
            ids,
            has_calls: calls.is_some_and(|calls| calls.elements().next().is_some()),
        })
    }

    /// Whether it knows more than the files: how many records they have and it has not.
    #[must_use]
    pub fn outlives(&self, calls: &[CallRecord<'_>], has_files: bool) -> Option<usize> {
        if !has_files {
            return Some(0);
        }
        let ids = calls
            .iter()
            .filter_map(|call| call.model_call_id.as_deref());
        let present: HashSet<&str> = ids.collect();
        if self.ids.iter().all(|id| present.contains(&**id)) {
            return None;
        }
        let known = |call: &&CallRecord<'_>| {
            call.model_call_id
                .as_ref()
                .is_some_and(|id| self.ids.contains(id))
        };
        Some(calls.iter().filter(|call| !known(call)).count())
    }

    /// The capture as it stays: with the gap of late records at its place, where there
    /// are any.
    #[must_use]
    pub fn with_late_records(&self, late: usize) -> Value<'a> {
        let mut members: Members<'a> = Vec::new();
        let mut gaps: Vec<Value<'a>> = Vec::new();
        let mut codes: Vec<Cow<'a, str>> = Vec::new();
        for (key, value) in &self.members {
            if !key.is_str("gaps") {
                members.push((Key::Raw(*key), Value::Raw(*value)));
                continue;
            }
            for gap in value.elements() {
                let code = gap.get("code").and_then(Raw::as_str).unwrap_or_default();
                if code != LATE {
                    codes.push(code);
                    gaps.push(Value::Raw(gap));
                }
            }
        }
        if late > 0 {
            let rank = |code: &str| GAP_ORDER.iter().position(|known| *known == code);
            let place = codes.iter().position(|code| rank(code) > rank(LATE));
            let gap = Gap::new(LATE, Some(Cow::Owned(format!("count={late}"))));
            gaps.insert(place.unwrap_or(gaps.len()), gap.to_capture_value());
        }
        if !gaps.is_empty() {
            members.push((Key::Name("gaps"), Value::Array(gaps)));
        }
        Value::Object(members)
    }
}

/// A held capture whose calls have no bodies (any more): the trajectory has them.
#[must_use]
pub fn without_bodies(capture: Raw<'_>) -> Value<'_> {
    const BODIES: [&str; 4] = ["request", "response", "request_raw", "response_raw"];
    let members = capture.members().map(|(key, value)| {
        if !key.is_str("calls") {
            return (Key::Raw(key), Value::Raw(value));
        }
        let calls = value.elements().map(|call| {
            if call.is_object() {
                let kept = call
                    .members()
                    .filter(|(key, _)| !BODIES.iter().any(|b| key.is_str(b)));
                Value::Object(
                    kept.map(|(key, value)| (Key::Raw(key), Value::Raw(value)))
                        .collect(),
                )
            } else {
                Value::Raw(call)
            }
        });
        (Key::Raw(key), Value::Array(calls.collect()))
    });
    Value::Object(members.collect())
}

/// Takes away what the observations gave: it stands behind the agent's own, in the bundle's
/// order, with what is surely ours among it. One of the agent's own that is equal to one of
/// the bundle keeps its place.
fn pop_ours<T>(
    parts: &mut Vec<T>,
    place_of: impl Fn(&T) -> Option<usize>,
    is_ours: impl Fn(&T) -> bool,
) {
    let mut next = usize::MAX;
    while let Some(last) = parts.last() {
        match place_of(last) {
            Some(place) if place < next => next = place,
            None if is_ours(last) => {}
            _ => break,
        }
        parts.pop();
    }
}

/// What the agent itself sent, of a trajectory that an earlier enrichment merged into.
///
/// Invocations and gaps equal to those of the observations, and calls without an id equal
/// to those of the capture that the result holds, are ours; so are the gaps that we write.
#[must_use]
pub fn without_ours<'a>(
    mut producer: Producer<'a>,
    observations: Option<&Bundle<'a>>,
    capture: Option<Raw<'a>>,
) -> Producer<'a> {
    let text = |value: &Value<'a>| {
        let mut text = Vec::new();
        render(value, &crate::intern::Interner::default(), &mut text);
        text
    };
    if let Some(bundle) = observations {
        let observed: HashMap<Vec<u8>, usize> = bundle
            .of(&INVOCATION)
            .enumerate()
            .map(|(place, record)| (text(&record.to_value(false)), place))
            .collect();
        let place = |record: &Record<'a>| observed.get(&text(&record.to_value(true))).copied();
        pop_ours(&mut producer.invocations, place, |_| false);
    }
    let calls = capture.and_then(|capture| capture.get("calls"));
    let mut captured: HashMap<Vec<u8>, Vec<i64>> = HashMap::new();
    for call in calls.into_iter().flat_map(Raw::elements) {
        let has_id = call
            .get("model_call_id")
            .is_some_and(|id| id.kind() == Kind::String && !id.is_str(""));
        if !has_id {
            let index = call.get("call_index").and_then(Raw::as_i64);
            let same = captured.entry(came_from::captured_key(call)).or_default();
            same.push(index.unwrap_or(-1));
        }
    }
    // Ours stand behind the agent's own: one of those that says no more keeps its place.
    for (place, record) in producer.model_calls.iter().enumerate().rev() {
        let has_id = record
            .text("model_call_id")
            .is_some_and(|id| !id.is_empty());
        if !has_id
            && let Some(same) = captured.get_mut(&came_from::own_key(record))
            && let Some(index) = same.pop()
        {
            producer.places.insert(index, place);
        }
    }
    let is_ours = |gap: &Gap<'a>| {
        let code = &*gap.code;
        PROJECTED.contains(&code) || JOIN_GAPS.contains(&code) || GAP_ORDER.contains(&code)
    };
    let gaps = observations.into_iter().flat_map(|bundle| &bundle.gaps);
    let observed: HashMap<&Gap<'a>, usize> = gaps.zip(0..).collect();
    let place = |gap: &Gap<'a>| observed.get(gap).copied();
    pop_ours(&mut producer.gaps, place, is_ours);
    // What the observations say too, and yet stands before theirs, the agent has said itself.
    producer
        .gaps
        .retain(|gap| !is_ours(gap) || observed.contains_key(gap));
    producer
}
