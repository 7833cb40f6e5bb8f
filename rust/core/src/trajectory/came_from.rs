//! Telling a captured call that an earlier enrichment put into an agent's trajectory from
//! one that the agent sent (contract, section 5, Enriching again).
//!
//! Calls without an id have nothing else to be known by than what both places hold: their
//! times, their metadata and their counts. The bodies are in the trajectory alone.

use crate::call::amount;
use crate::json::{Raw, write_str};
use crate::observe::{Field, Record};

/// The fields that both places hold: name in the trajectory, name in the capture.
const TIMES: [(&str, &str); 3] = [
    ("started_at", "started_at"),
    ("completed_at", "completed_at"),
    ("duration_ms", "latency_total_ms"),
];
const FIRST_TOKEN: &str = "latency_ttft_ms";
const METADATA: [&str; 11] = [
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
];
const COUNTS: [(&str, &str); 5] = [
    ("prompt_tokens", "tokens_in"),
    ("completion_tokens", "tokens_out"),
    ("reasoning_tokens", "tokens_reasoning"),
    ("total_tokens", "tokens_total"),
    ("cached_tokens", "cached_tokens"),
];

/// A time or a duration; one that cannot be is null in the trajectory.
fn append_amount(key: &mut Vec<u8>, value: Option<Raw<'_>>) {
    let value = amount(value);
    match value
        .filter(|value| !value.is_integer())
        .and_then(Raw::as_f64)
    {
        Some(number) => key.extend_from_slice(&number.to_bits().to_le_bytes()),
        None => key.extend_from_slice(value.unwrap_or(Raw::NULL).bytes()),
    }
    key.push(b',');
}

/// A word, an identifier or a whole number; strings by their text, however escaped.
fn append(key: &mut Vec<u8>, value: Option<Raw<'_>>) {
    let value = value.unwrap_or(Raw::NULL);
    match value.as_str() {
        Some(text) => write_str(key, &text),
        None => key.extend_from_slice(value.bytes()),
    }
    key.push(b',');
}

/// The key of a call record.
pub fn captured_key(call: Raw<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    for (_, name) in TIMES {
        append_amount(&mut key, call.get(name));
    }
    for name in COUNTS.map(|(_, name)| name).into_iter().chain(METADATA) {
        append(&mut key, call.get(name));
    }
    append_amount(&mut key, call.get(FIRST_TOKEN));
    key
}

/// The key of a trajectory's model call.
pub fn own_key(record: &Record<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    for (name, _) in TIMES {
        append_amount(&mut key, record.field(name).and_then(Field::raw));
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
    append_amount(&mut key, nested("response_metadata", FIRST_TOKEN));
    key
}
