//! Telling a captured call that an earlier enrichment put into an agent's trajectory from
//! one that the agent sent (contract, section 5, Enriching again).
//!
//! Calls without an id have nothing else to be known by than what both places hold: their
//! times, their metadata and their counts. The bodies are in the trajectory alone.

use crate::json::Raw;
use crate::observe::{Field, Record};

/// The fields that both places hold: name in the trajectory, name in the capture.
const TIMES: [(&str, &str); 3] = [
    ("started_at", "started_at"),
    ("completed_at", "completed_at"),
    ("duration_ms", "latency_total_ms"),
];
const METADATA: [&str; 12] = [
    "response_id",
    "model",
    "dialect",
    "status_code",
    "response_status",
    "finish_reason",
    "upstream_attempted",
    "response_source",
    "upstream_status_code",
    "local_response_reason",
    "error_category",
    "latency_ttft_ms",
];
const COUNTS: [(&str, &str); 5] = [
    ("prompt_tokens", "tokens_in"),
    ("completion_tokens", "tokens_out"),
    ("reasoning_tokens", "tokens_reasoning"),
    ("total_tokens", "tokens_total"),
    ("cached_tokens", "cached_tokens"),
];

fn append(key: &mut Vec<u8>, value: Option<Raw<'_>>) {
    let number = value
        .and_then(Raw::as_f64)
        .filter(|_| value.is_some_and(|v| !v.is_integer()));
    match number {
        // A time that cannot be is null in the trajectory.
        Some(number) if number < 0.0 || !number.is_finite() => key.extend_from_slice(b"null"),
        Some(number) => key.extend_from_slice(&number.to_bits().to_le_bytes()),
        None => key.extend_from_slice(value.unwrap_or(Raw::NULL).bytes()),
    }
    key.push(b',');
}

/// The key of a call record.
pub fn captured_key(call: Raw<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    for (_, name) in TIMES.iter().chain(&COUNTS) {
        append(&mut key, call.get(name));
    }
    for name in METADATA {
        append(&mut key, call.get(name));
    }
    key
}

/// The key of a trajectory's model call.
pub fn own_key(record: &Record<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    for (name, _) in TIMES {
        append(&mut key, record.field(name).and_then(Field::raw));
    }
    let nested = |outer: &str, name: &str| match record.field(outer) {
        Some(Field::Nested(inner)) => inner.field(name).and_then(Field::raw),
        _ => None,
    };
    for (name, _) in COUNTS {
        append(&mut key, nested("token_stats", name));
    }
    for name in METADATA {
        append(&mut key, nested("response_metadata", name));
    }
    key
}
