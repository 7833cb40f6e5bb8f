//! The perf summary (contract, section 9).

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::call::CallRecord;
use crate::observe::{CallIndex, Record, resolve_verifiers};
use crate::usage::{Count, Usage};
use crate::value::{Key, Members, Value};

/// `ng_perf` of a trajectory; none where it has no invocations.
///
/// `turns` gives how many turns an invocation has; `calls` are the trajectory's.
#[must_use]
pub fn perf<'a>(
    invocations: &[Record<'a>],
    calls: &[CallRecord<'a>],
    turns: &HashMap<Cow<'_, str>, usize>,
    tool_calls: usize,
    verifiers: &[Record<'a>],
    latency_ms: Option<Value<'a>>,
) -> Option<Value<'a>> {
    if invocations.is_empty() {
        return None;
    }
    let index = CallIndex::new(calls);
    let (verified, _) = resolve_verifiers(verifiers, &index);
    let mut counted = vec![false; calls.len()];
    let mut num_turns = 0;
    for invocation in invocations {
        let mut own = 0;
        for reference in invocation.references() {
            if let Ok(call) = index.resolve(reference)
                && !verified[call]
                && !std::mem::replace(&mut counted[call], true)
            {
                own += 1;
            }
        }
        let its_turns = turns
            .get(&*invocation.invocation_id())
            .copied()
            .unwrap_or(0);
        num_turns += if its_turns > 0 { its_turns } else { own.max(1) };
    }
    let known = |field: fn(&Usage) -> Count| {
        let counts = calls.iter().zip(&counted).filter(|(_, counted)| **counted);
        let sum = counts
            .filter_map(|(call, _)| field(&call.usage))
            .reduce(u128::saturating_add);
        sum.and_then(|sum| i128::try_from(sum).ok()).map(Value::Int)
    };
    let total = counted.iter().filter(|counted| **counted).count();
    #[allow(clippy::cast_precision_loss)] // counts of calls
    let coverage = (total as f64 / num_turns as f64).min(1.0);
    let mut members: Members<'a> = vec![
        (Key::Name("num_turns"), Value::Int(num_turns as i128)),
        (Key::Name("num_tool_calls"), Value::Int(tool_calls as i128)),
        (
            Key::Name("token_observability_coverage"),
            Value::Float(coverage),
        ),
    ];
    let optional = [
        ("prompt_tokens", known(|usage| usage.tokens_in)),
        ("cached_prompt_tokens", known(|usage| usage.cached_tokens)),
        ("completion_tokens", known(|usage| usage.tokens_out)),
        ("reasoning_tokens", known(|usage| usage.tokens_reasoning)),
        ("total_latency_ms", latency_ms),
    ];
    for (name, value) in optional {
        members.extend(value.map(|value| (Key::Name(name), value)));
    }
    Some(Value::Object(members))
}
