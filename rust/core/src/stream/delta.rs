//! How a piece is added to what is held where no rule of a dialect's own says it.

use super::value::{Object, Value};

/// Strings under these keys say what a thing is; they are repeated, never in pieces.
const NAMES: [&[u8]; 9] = [
    b"id",
    b"type",
    b"role",
    b"name",
    b"object",
    b"format",
    b"model",
    b"status",
    b"signature",
];

/// Adds `value` to `held[key]`: strings join (but names and ids, which are repeated),
/// objects merge key by key, lists go on (entries of an index merge), null says nothing.
pub(super) fn merge_delta(held: &mut Object, key: &[u8], value: Value) {
    let held = held.entry(key, Value::Null);
    match (held, value) {
        (_, Value::Null) => {}
        (Value::String(held), Value::String(text)) if !NAMES.contains(&key) => held.push(text),
        (Value::Object(held), Value::Object(new)) => {
            for (key, value) in new {
                merge_delta(held, key.as_bytes(), value);
            }
        }
        (held @ (Value::Array(_) | Value::RawList(_)), Value::Array(items)) => {
            if matches!(key, b"images" | b"annotations") {
                held.make_array().extend(items);
            } else {
                extend_list(held, items);
            }
        }
        (held @ (Value::Array(_) | Value::RawList(_)), Value::RawList(items)) => {
            held.extend_raw(items);
        }
        (held, value) => {
            if value.says_something() || held.is_null() {
                *held = value;
            }
        }
    }
}

/// Appends a list's entries; an entry whose `index` and `type` are held already is merged.
pub(super) fn extend_list(held: &mut Value, items: Vec<Value>) {
    let scalars = items
        .iter()
        .all(|item| matches!(item, Value::Number(_) | Value::Bool(_)));
    if scalars && !items.is_empty() {
        held.extend_written(&items);
        return;
    }
    let list = held.make_array();
    for item in items {
        let twin = item.as_object().and_then(|item| {
            let index = item.int("index")?;
            list.iter().rposition(|held| {
                held.as_object().is_some_and(|held| {
                    held.int("index") == Some(index)
                        && (held.str("type") == item.str("type") || !item.has("type"))
                        && (held.str("id") == item.str("id") || !held.has("id") || !item.has("id"))
                })
            })
        });
        match (twin.and_then(|at| list[at].as_object_mut()), item) {
            (Some(held), Value::Object(item)) => {
                for (key, value) in item {
                    merge_delta(held, key.as_bytes(), value);
                }
            }
            (_, item) => list.push(item),
        }
    }
}
