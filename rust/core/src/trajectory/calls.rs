//! Model calls of a trajectory: the agent's own, and the captured ones (contract,
//! section 7).

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::call::{CallRecord, ModelRef, amount};
use crate::exchange::model_ref_name;
use crate::json::Kind;
use crate::observe::{Field, Record};
use crate::usage::{Count, Usage};
use crate::value::{Key, Value};

/// A trajectory's model calls.
#[derive(Debug, Default)]
pub struct ProjectedCalls<'a> {
    /// As the trajectory holds them.
    pub values: Vec<Value<'a>>,
    /// The same calls by what references name and perf counts; none where they are just
    /// the captured ones.
    pub merged: Option<Vec<CallRecord<'a>>>,
}

/// Merges captured calls into the agent's own of the same id; the others follow.
///
/// `ours` are the places, by call index, of captured calls without an id that an earlier
/// enrichment put among the agent's own: they are replaced, or go.
#[must_use]
pub fn project_calls<'a>(
    own: &[Record<'a>],
    mut ours: HashMap<i64, usize>,
    calls: &[CallRecord<'a>],
) -> ProjectedCalls<'a> {
    if own.is_empty() {
        return ProjectedCalls {
            values: calls.iter().map(model_call).collect(),
            merged: None,
        };
    }
    let places: HashMap<Cow<'a, str>, usize> = own
        .iter()
        .enumerate()
        .filter_map(|(at, record)| Some((own_id(record)?, at)))
        .collect();
    let mut values: Vec<Value<'a>> = own.iter().map(|record| record.to_value(true)).collect();
    let mut merged: Vec<CallRecord<'a>> = own.iter().map(stand_in).collect();
    for call in calls {
        let place = call.model_call_id.as_ref().and_then(|id| places.get(id));
        if let Some(at) = place {
            merge_known(&mut values[*at], model_call(call));
            merge_stand_in(&mut merged[*at], call);
        } else if call.model_call_id.as_deref().unwrap_or_default().is_empty()
            && let Some(at) = ours.remove(&call.call_index)
        {
            values[at] = model_call(call);
            merged[at] = call.clone();
        } else {
            values.push(model_call(call));
            merged.push(call.clone());
        }
    }
    let mut gone: Vec<usize> = ours.into_values().collect();
    gone.sort_unstable();
    for place in gone.into_iter().rev() {
        values.remove(place);
        merged.remove(place);
    }
    ProjectedCalls {
        values,
        merged: Some(merged),
    }
}

fn own_id<'a>(record: &Record<'a>) -> Option<Cow<'a, str>> {
    record.text("model_call_id").filter(|id| !id.is_empty())
}

/// A captured call as a trajectory holds it.
#[must_use]
pub fn model_call<'a>(call: &CallRecord<'a>) -> Value<'a> {
    let [id, model_ref, response_id] = call.names();
    let count = |count: Count| Value::int(count.and_then(|n| i128::try_from(n).ok()));
    let body = |payload: &Option<crate::call::Payload<'a>>, raw| match payload {
        Some(payload) => payload.to_value(),
        None => Value::raw(raw),
    };
    let metadata = Value::object([
        ("response_id", response_id),
        ("model_ref", model_ref),
        ("model", Value::raw(call.model)),
        ("dialect", Value::raw(call.dialect)),
        ("status_code", Value::raw(call.status_code)),
        ("response_status", Value::raw(call.response_status)),
        ("finish_reason", Value::raw(call.finish_reason)),
        (
            "upstream_attempted",
            call.upstream_attempted.map_or(Value::Null, Value::Bool),
        ),
        ("response_source", Value::raw(call.response_source)),
        (
            "upstream_status_code",
            Value::raw(call.upstream_status_code),
        ),
        (
            "local_response_reason",
            Value::raw(call.local_response_reason),
        ),
        ("error_category", Value::raw(call.error_category)),
        ("latency_ttft_ms", Value::raw(amount(call.latency_ttft_ms))),
    ]);
    let tokens = Value::object([
        ("prompt_tokens", count(call.usage.tokens_in)),
        ("completion_tokens", count(call.usage.tokens_out)),
        ("reasoning_tokens", count(call.usage.tokens_reasoning)),
        ("total_tokens", count(call.usage.tokens_total)),
        ("cached_tokens", count(call.usage.cached_tokens)),
    ]);
    Value::object([
        ("model_call_id", id),
        ("started_at", Value::raw(amount(call.started_at))),
        ("completed_at", Value::raw(amount(call.completed_at))),
        ("duration_ms", Value::raw(amount(call.latency_total_ms))),
        ("request", body(&call.request, call.request_raw)),
        ("response", body(&call.response, call.response_raw)),
        ("response_metadata", metadata),
        ("token_stats", tokens),
    ])
}

/// What the newer knows wins, also inside the nested objects.
fn merge_known<'a>(older: &mut Value<'a>, newer: Value<'a>) {
    let (Value::Object(older), Value::Object(newer)) = (older, newer) else {
        return;
    };
    for (key, value) in newer {
        let Key::Name(name) = key else { continue };
        let Some((_, old)) = older.iter_mut().find(|(key, _)| key.is(name)) else {
            continue;
        };
        match (&value, &*old) {
            (Value::Object(_), Value::Object(_)) => merge_known(old, value),
            (Value::Null, _) => {}
            (Value::Raw(raw), _) if raw.kind() == Kind::Null => {}
            _ => *old = value,
        }
    }
}

/// The agent's own call by what references name and perf counts.
fn stand_in<'a>(record: &Record<'a>) -> CallRecord<'a> {
    let nested = |name: &str| match record.field(name) {
        Some(Field::Nested(inner)) => Some(inner),
        _ => None,
    };
    let metadata = nested("response_metadata");
    let count = |name: &str| {
        let raw = nested("token_stats")?.field(name)?.raw()?;
        std::str::from_utf8(raw.bytes()).ok()?.parse().ok()
    };
    CallRecord {
        model_call_id: own_id(record),
        response_id: metadata.and_then(|metadata| metadata.text("response_id")),
        model_ref: metadata
            .and_then(|metadata| metadata.field("model_ref")?.raw())
            .and_then(model_ref_name)
            .map(|name| ModelRef { name }),
        usage: Usage {
            tokens_in: count("prompt_tokens"),
            tokens_out: count("completion_tokens"),
            tokens_reasoning: count("reasoning_tokens"),
            tokens_total: count("total_tokens"),
            cached_tokens: count("cached_tokens"),
            cache_creation_tokens: None,
        },
        ..CallRecord::default()
    }
}

fn merge_stand_in<'a>(own: &mut CallRecord<'a>, call: &CallRecord<'a>) {
    own.came_as = [None; 3];
    own.response_id = call.response_id.clone().or_else(|| own.response_id.take());
    own.model_ref = call.model_ref.clone().or_else(|| own.model_ref.take());
    let (ours, theirs) = (&mut own.usage, &call.usage);
    ours.tokens_in = theirs.tokens_in.or(ours.tokens_in);
    ours.tokens_out = theirs.tokens_out.or(ours.tokens_out);
    ours.tokens_reasoning = theirs.tokens_reasoning.or(ours.tokens_reasoning);
    ours.tokens_total = theirs.tokens_total.or(ours.tokens_total);
    ours.cached_tokens = theirs.cached_tokens.or(ours.cached_tokens);
}
