//! How reported items find their place in a terminal event's output.

use std::collections::BTreeMap;

use super::items::Item;
use super::parse::{Strictness, parse};
use super::value::{Object, Value};

/// A terminal event's output with the reported items that it lacks back in output order.
///
/// `earlier` is the output of a terminal event before this one. An item is the same as a
/// reported one where the ids are equal, else the call ids, else (a server that numbers
/// anew) all they both say. Members that the terminal event left empty are filled in.
pub(super) fn put_back(
    mut output: Vec<Value>,
    earlier: Vec<Value>,
    reported: BTreeMap<i64, Vec<Item>>,
    completed: bool,
) -> Vec<Value> {
    let earlier = (0..).zip(earlier).filter_map(|(index, item)| match item {
        Value::Object(item) => Some((index, Item::done(item))),
        _ => None,
    });
    let reported = reported
        .into_iter()
        .flat_map(|(index, items)| items.into_iter().map(move |item| (index, item)));
    let mut known: Vec<(i64, Item)> = earlier
        .chain(reported)
        .filter(|(_, item)| item.done || item.touched || !completed)
        .map(|(index, item)| (index, item.settled()))
        .collect();
    known.sort_by_key(|(index, _)| *index);

    let mut places: Vec<Option<usize>> = vec![None; known.len()];
    let mut taken = vec![false; output.len()];
    for same in [same_id, same_call, same_place, same_content] {
        for (place, (index, item)) in places.iter_mut().zip(&known) {
            if place.is_some() {
                continue;
            }
            *place = output.iter().enumerate().position(|(at, candidate)| {
                !taken[at]
                    && candidate
                        .as_object()
                        .is_some_and(|candidate| same(item, *index, candidate, at))
            });
            if let Some(at) = *place {
                taken[at] = true;
            }
        }
    }

    // Deltas under another id than their item's: the item is there already.
    let echoed: Vec<bool> = places
        .iter()
        .zip(&known)
        .map(|(place, (index, item))| {
            let is_there = |candidate: &Value| {
                candidate
                    .as_object()
                    .is_some_and(|candidate| same_content(item, *index, candidate, 0))
            };
            place.is_none() && !item.done && output.iter().any(is_there)
        })
        .collect();

    let mut result = Vec::with_capacity(output.len() + known.len());
    let mut next = 0;
    for ((place, (index, item)), echoed) in places.into_iter().zip(known).zip(echoed) {
        if echoed {
            continue;
        }
        if let Some(at) = place {
            if let (Some(final_item), Value::Object(item)) =
                (output[at].as_object_mut(), item.finish())
            {
                fill(final_item, item);
            }
            while next <= at {
                result.push(std::mem::take(&mut output[next]));
                next += 1;
            }
        } else {
            let before = usize::try_from(index).unwrap_or(0);
            while next < output.len() && !taken[next] && result.len() < before {
                result.push(std::mem::take(&mut output[next]));
                next += 1;
            }
            result.push(item.finish());
        }
    }
    result.extend(output.into_iter().skip(next));
    result.into_iter().map(written_members).collect()
}

fn written_members(item: Value) -> Value {
    match item {
        Value::Object(item) => Value::Object(Item::done(item).value),
        other => other,
    }
}

fn same_id(item: &Item, _: i64, candidate: &Object, _: usize) -> bool {
    item.id().is_some() && item.id() == candidate.str("id")
}

fn same_kind(item: &Item, candidate: &Object) -> bool {
    item.value.str("type") == candidate.str("type")
}

fn same_call(item: &Item, _: i64, candidate: &Object, _: usize) -> bool {
    same_kind(item, candidate)
        && item.call_id().is_some()
        && item.call_id() == candidate.str("call_id")
}

/// At the item's own index, where one of the two has no id to tell them apart.
fn same_place(item: &Item, index: i64, candidate: &Object, at: usize) -> bool {
    same_kind(item, candidate)
        && usize::try_from(index) == Ok(at)
        && item
            .call_id()
            .is_none_or(|call| candidate.str("call_id").is_none_or(|own| own == call))
        && (item.id().is_none() || candidate.str("id").is_none())
}

fn same_content(item: &Item, _: i64, candidate: &Object, _: usize) -> bool {
    const APART: [&str; 5] = ["id", "type", "status", "role", "encrypted_content"];
    if !same_kind(item, candidate) {
        return false;
    }
    let mut common = 0;
    for (key, value) in item.value.iter() {
        let Ok(key) = std::str::from_utf8(key.as_bytes()) else {
            return false;
        };
        if APART.contains(&key) || !value.says_something() {
            continue;
        }
        if let Some(theirs) = candidate.get(key).filter(|theirs| theirs.says_something()) {
            if !alike(&thawed(value), &thawed(theirs)) {
                return false;
            }
            common += 1;
        }
    }
    common > 0
}

fn thawed(value: &Value) -> Value {
    match value {
        Value::Raw(json) => parse(json, Strictness::Event).unwrap_or(Value::Null),
        Value::RawList(_) => parse(&value.to_json(), Strictness::Event).unwrap_or(Value::Null),
        other => other.clone(),
    }
}

/// Equal, where null, absence and emptiness are the same.
fn alike(one: &Value, other: &Value) -> bool {
    if !one.says_something() || !other.says_something() {
        return one.says_something() == other.says_something();
    }
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let covers = |one: &Object, other: &Object| {
                one.iter().all(|(key, value)| {
                    let theirs = std::str::from_utf8(key.as_bytes())
                        .ok()
                        .and_then(|key| other.get(key));
                    alike(value, theirs.unwrap_or(&Value::Null))
                })
            };
            covers(one, other) && covers(other, one)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (one, other) => one == other,
    }
}

/// Members that the final item left empty, from the reported one.
fn fill(final_item: &mut Object, reported: Object) {
    for (key, value) in reported {
        if key == "status" || !value.says_something() {
            continue;
        }
        let held = final_item.entry(key.as_bytes(), Value::Null);
        if !held.says_something() {
            *held = value;
        }
    }
}
