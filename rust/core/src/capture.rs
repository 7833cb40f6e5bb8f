//! The merge: a rollout's exchanges become its call records, metrics and gaps
//! (contract, sections 3 and 5).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::call::CallRecord;
use crate::exchange::{Record, ScanState, Unreadable, each_record};
use crate::json::Raw;
use crate::usage::{Count, Usage};
use crate::value::{Gap, Key, Members, Value};

/// How many unreadable records are remembered with their reason.
const TOLD: usize = 8;

/// The codes of a capture's gaps, in their order.
pub const GAP_ORDER: [&str; 12] = [
    "model_call_capture_no_records",
    "model_call_capture_records_unreadable",
    "model_call_capture_incomplete",
    "model_call_capture_unreadable",
    "model_call_capture_not_quiescent",
    "model_call_capture_lock_unavailable",
    "model_call_duplicate",
    "model_call_capture_late_records",
    "model_call_capture_stale_records",
    "rollout_identity_conflict",
    "rollout_interrupted",
    "agent_observation_join_failed",
];

/// What a capture's text holds.
#[derive(Debug, Default)]
pub struct Capture<'a> {
    /// The calls, by index.
    pub calls: Vec<CallRecord<'a>>,
    /// How many records could not be read.
    pub unreadable: usize,
    /// The first of those: line, byte of the text, and why.
    pub told: Vec<(usize, usize, Unreadable)>,
    /// How many belong to an earlier dispatch.
    pub stale: usize,
    /// Ids that came more than once, in order.
    pub duplicates: Vec<Cow<'a, str>>,
    /// Whether one of those was not a mere replay.
    pub duplicate_differs: bool,
    next_index: i64,
    seen: HashMap<Cow<'a, str>, Seen<'a>>,
}

/// The records of one call id: mostly one.
#[derive(Debug, Default)]
struct Seen<'a> {
    first: Option<&'a [u8]>,
    others: HashSet<&'a [u8]>,
    /// Whether the id is among the duplicates.
    told: bool,
}

impl<'a> Seen<'a> {
    /// Notes a record's text; false where it was there.
    fn is_new(&mut self, text: &'a [u8]) -> bool {
        match self.first {
            None => {
                self.first = Some(text);
                true
            }
            Some(first) => first != text && self.others.insert(text),
        }
    }
}

impl<'a> Capture<'a> {
    /// Reads one file's text after what was read before.
    pub fn read(&mut self, text: &'a [u8], state: &mut ScanState<'a>, not_before: Option<f64>) {
        each_record(text, state, |line, record, state| {
            let call_index = self.next_index;
            self.next_index += 1;
            let mut exchange = match record {
                Record::Good(exchange) => exchange,
                Record::Bad(at, why) => {
                    self.unreadable += 1;
                    if self.told.len() < TOLD {
                        self.told.push((line, at, why));
                    }
                    return;
                }
            };
            if exchange.is_stale(not_before) {
                self.stale += 1;
                return;
            }
            let mut is_duplicate = false;
            let id = exchange.model_call_id.and_then(Raw::as_str);
            // An empty id is no id.
            if let Some(id) = id.filter(|id| !id.is_empty()) {
                let earlier = self.seen.entry(id.clone()).or_default();
                is_duplicate = earlier.first.is_some();
                if is_duplicate && !std::mem::replace(&mut earlier.told, true) {
                    self.duplicates.push(id);
                }
                if !earlier.is_new(exchange.text) {
                    return;
                }
            }
            let mut call =
                CallRecord::derive(call_index, &mut exchange, &state.tape, &mut state.shared);
            if is_duplicate {
                call.model_call_id = None;
                call.came_as[0] = None;
                self.duplicate_differs = true;
            }
            self.calls.push(call);
            if let Some(request) = exchange.request.take() {
                state.histories.remember(request);
            }
        });
    }
}

/// What the fold knows of the files beside what they hold.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, each a gap of its own
pub struct Circumstances {
    /// The incomplete marker is there.
    pub incomplete: bool,
    /// A file could not be read at all.
    pub unreadable: bool,
    /// Calls were still in flight when the wait ended.
    pub in_flight: bool,
    /// A file was read without a lock.
    pub lock_unavailable: bool,
    /// The rollout was killed before it gave a result.
    pub interrupted: bool,
}

/// The capture's gaps in the contract's order; the join's failure comes after them.
#[must_use]
pub fn gaps<'a>(
    capture: &Capture<'a>,
    facts: Circumstances,
    identity_conflict: Option<Cow<'a, str>>,
) -> Vec<Gap<'a>> {
    let mut gaps = Vec::new();
    let mut add = |applies: bool, code: &'static str, detail: Option<Cow<'a, str>>| {
        if applies {
            gaps.push(Gap::new(code, detail));
        }
    };
    let count = |n: usize| Some(Cow::Owned(format!("count={n}")));
    let nothing = capture.calls.is_empty()
        && capture.unreadable == 0
        && capture.stale == 0
        && !facts.incomplete
        && !facts.unreadable;
    add(nothing, "model_call_capture_no_records", None);
    let bad = capture.unreadable;
    add(bad > 0, "model_call_capture_records_unreadable", count(bad));
    add(facts.incomplete, "model_call_capture_incomplete", None);
    add(facts.unreadable, "model_call_capture_unreadable", None);
    add(facts.in_flight, "model_call_capture_not_quiescent", None);
    add(
        facts.lock_unavailable,
        "model_call_capture_lock_unavailable",
        None,
    );
    for id in &capture.duplicates {
        add(true, "model_call_duplicate", Some(id.clone()));
    }
    add(
        capture.stale > 0,
        "model_call_capture_stale_records",
        count(capture.stale),
    );
    let conflict = identity_conflict.is_some();
    add(conflict, "rollout_identity_conflict", identity_conflict);
    add(facts.interrupted, "rollout_interrupted", None);
    gaps
}

/// `ng_model_call_capture` of a rollout; the calls' tool calls and reasoning move into it.
#[must_use]
pub fn take_value<'a>(
    rollout_id: &'a str,
    calls: &mut [CallRecord<'a>],
    gaps: &[Gap<'a>],
    payloads: bool,
) -> Value<'a> {
    let (metrics, coverage) = metrics(calls);
    let calls = calls
        .iter_mut()
        .map(|call| call.take_value(payloads))
        .collect();
    let mut members: Members<'a> = vec![
        (
            Key::Name("rollout_id"),
            Value::Str(Cow::Borrowed(rollout_id)),
        ),
        (Key::Name("metrics"), metrics),
        (Key::Name("calls"), Value::Array(calls)),
    ];
    if !coverage.is_empty() {
        members.push((Key::Name("metrics_coverage"), Value::Object(coverage)));
    }
    if !gaps.is_empty() {
        let gaps = gaps.iter().map(Gap::to_capture_value).collect();
        members.push((Key::Name("gaps"), Value::Array(gaps)));
    }
    Value::Object(members)
}

/// The sums over calls of what is known, and, per field that some calls knew and others
/// did not, how many it covers.
fn metrics<'a>(calls: &[CallRecord<'a>]) -> (Value<'a>, Members<'a>) {
    const COUNTS: [(&str, fn(&Usage) -> Count); 5] = [
        ("tokens_in", |usage| usage.tokens_in),
        ("tokens_out", |usage| usage.tokens_out),
        ("tokens_reasoning", |usage| usage.tokens_reasoning),
        ("tokens_total", |usage| usage.tokens_total),
        ("cached_tokens", |usage| usage.cached_tokens),
    ];
    let mut members = Members::new();
    let mut coverage = Members::new();
    let mut note = |name: &'static str, known: usize| {
        if known > 0 && known < calls.len() {
            coverage.push((Key::Name(name), Value::Int(known as i128)));
        }
    };
    for (name, field) in COUNTS {
        let known = || calls.iter().filter_map(|call| field(&call.usage));
        note(name, known().count());
        let sum = known().reduce(u128::saturating_add);
        let sum = Value::int(sum.and_then(|sum| i128::try_from(sum).ok()));
        members.push((Key::Name(name), sum));
    }
    let latencies = || {
        calls
            .iter()
            .filter_map(|call| call.latency_total_ms?.as_f64())
    };
    note("latency_total_ms", latencies().count());
    let sum = latencies().reduce(|sum, latency| sum + latency);
    let sum = sum
        .filter(|sum| sum.is_finite())
        .map_or(Value::Null, Value::Float);
    members.push((Key::Name("latency_total_ms"), sum));
    members.push((Key::Name("num_calls"), Value::Int(calls.len() as i128)));
    (Value::Object(members), coverage)
}
