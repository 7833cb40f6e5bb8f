//! Tool calls: what was observed meets what the agent said and what came out (contract,
//! section 7).

use std::borrow::Cow;

use hashbrown::HashMap;

use super::producer::EXECUTED;
use crate::json::Raw;
use crate::observe::{Field, Record, UniqueGaps};
use crate::value::{Gap, Members, Value};

type Place<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Where an invocation's tool call belongs: its invocation's id and its own.
fn place<'a>(record: &Record<'a>) -> Place<'a> {
    (
        record.invocation_id(),
        record.text("tool_call_id").unwrap_or_default(),
    )
}

/// Merges observed tool calls into the agent's own; both lists keep their order.
///
/// An observation's output is the `function_call_output` of its id in its invocation's
/// conversation. Where an id comes several times the k-th observation takes the k-th
/// output and merges into the agent's own k-th; where their numbers differ nothing is
/// assigned and a gap says so.
pub fn merge_tool_calls<'a>(
    own: &mut Vec<Record<'a>>,
    observed: &[&Record<'a>],
    invocations: &[Record<'a>],
    gaps: &mut UniqueGaps<'a>,
) {
    if observed.is_empty() {
        return;
    }
    let outputs = outputs(invocations);
    let mut counts: HashMap<Place<'a>, usize> = HashMap::new();
    for record in observed {
        *counts.entry(place(record)).or_default() += 1;
    }
    let mut owned: HashMap<Place<'a>, Vec<usize>> = HashMap::new();
    for (at, record) in own.iter().enumerate() {
        owned.entry(place(record)).or_default().push(at);
    }
    let mut met: HashMap<Place<'a>, usize> = HashMap::new();
    for record in observed {
        let key = place(record);
        let nth = met.entry(key.clone()).or_default();
        let found = outputs.get(&key).map_or(&[][..], Vec::as_slice);
        let output = if found.len() == counts[&key] {
            found.get(*nth).copied()
        } else {
            None
        };
        if !found.is_empty() && found.len() != counts[&key] {
            let gap = Gap {
                code: Cow::Borrowed("tool_call_output_ambiguous"),
                invocation_id: Some(key.0.clone()),
                detail: Some(key.1.clone()),
            };
            gaps.push(gap);
        }
        let executed = executed(record, output);
        match owned.get(&key).and_then(|places| places.get(*nth)) {
            Some(at) => merge(&mut own[*at], executed),
            None => own.push(executed),
        }
        *nth += 1;
    }
}

/// The outputs in the invocations' conversations, in order.
fn outputs<'a>(invocations: &[Record<'a>]) -> HashMap<Place<'a>, Vec<Raw<'a>>> {
    let mut outputs: HashMap<Place<'a>, Vec<Raw<'a>>> = HashMap::new();
    for invocation in invocations {
        let items = invocation.field("conversation").and_then(Field::raw);
        for item in items.into_iter().flat_map(Raw::elements) {
            let (mut kind, mut call_id, mut output) = (None, None, None);
            for (key, value) in item.members() {
                if key.is_str("type") {
                    kind = Some(value);
                } else if key.is_str("call_id") {
                    call_id = value.as_str();
                } else if key.is_str("output") {
                    output = Some(value);
                }
            }
            if kind.is_some_and(|kind| kind.is_str("function_call_output"))
                && let Some(call_id) = call_id
            {
                let key = (invocation.invocation_id(), call_id);
                outputs
                    .entry(key)
                    .or_default()
                    .push(output.unwrap_or(Raw::NULL));
            }
        }
    }
    outputs
}

/// An observed tool call as the trajectory holds it: without unknown keys.
fn executed<'a>(record: &Record<'a>, output: Option<Raw<'a>>) -> Record<'a> {
    let mut fields = record.fields.clone();
    fields.push(Field::Plain(Value::raw(output)));
    Record {
        schema: &EXECUTED,
        fields,
        extra: Members::new(),
    }
}

/// What the observation knows wins, but `unknown` does not overwrite a known status.
fn merge<'a>(own: &mut Record<'a>, observed: Record<'a>) {
    for (index, field) in observed.fields.into_iter().enumerate() {
        let unknown =
            EXECUTED.fields[index].0 == "status" && field.text().as_deref() == Some("unknown");
        if !field.is_null() && !unknown {
            own.fields[index] = field;
        }
    }
}
