//! How reported items find their place in a terminal event's output.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::items::Item;
use super::parse::{Strictness, parse};
use super::value::{Object, Value};

type Same = fn(&Item, &Object) -> bool;

/// Where in an output each name (an id) is.
struct Named<'a>(HashMap<&'a str, Vec<usize>>);

impl<'a> Named<'a> {
    fn new(output: &'a [Value], name: impl Fn(&'a Object) -> Option<&'a str>) -> Self {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, item) in output.iter().enumerate() {
            if let Some(name) = item.as_object().and_then(&name) {
                places.entry(name).or_default().push(at);
            }
        }
        Self(places)
    }

    fn all(&self, name: Option<&str>) -> impl Iterator<Item = usize> {
        name.and_then(|name| self.0.get(name))
            .into_iter()
            .flatten()
            .copied()
    }
}

const MAX_PAIRS: usize = 1 << 18;

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
    let ids = Named::new(&output, |item| item.str("id"));
    let calls = Named::new(&output, |item| item.str("call_id"));
    // Contents are compared pair by pair: not for thousands of items.
    let compare = output.len() * known.len() <= MAX_PAIRS;
    let everywhere = if compare { 0..output.len() } else { 0..0 };
    for tier in 0..4 {
        for (place, (index, item)) in places.iter_mut().zip(&known) {
            if place.is_some() {
                continue;
            }
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let is_free = |&at: &usize| !taken[at] && output[at].as_object().is_some();
            let fits = |same: Same| {
                let output = &output;
                move |at: &usize| {
                    output[*at]
                        .as_object()
                        .is_some_and(|other| same(item, other))
                }
            };
            *place = match tier {
                0 => ids.all(item.id()).find(is_free),
                1 => calls
                    .all(item.call_id())
                    .filter(is_free)
                    .find(fits(same_kind)),
                2 => Some(index)
                    .filter(|at| *at < output.len())
                    .filter(is_free)
                    .filter(fits(same_place)),
                _ => everywhere.clone().filter(is_free).find(fits(same_content)),
            };
            if let Some(at) = *place {
                taken[at] = true;
            }
        }
    }

    // Deltas under another id than their item's: the item is there already.
    let echoed: Vec<bool> = places
        .iter()
        .zip(&known)
        .map(|(place, (_, item))| {
            let is_there = |candidate: &Value| {
                candidate
                    .as_object()
                    .is_some_and(|candidate| same_content(item, candidate))
            };
            place.is_none() && !item.done && compare && output.iter().any(is_there)
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

fn same_kind(item: &Item, candidate: &Object) -> bool {
    item.value.str("type") == candidate.str("type")
}

/// At the item's own index, where one of the two has no id to tell them apart.
fn same_place(item: &Item, candidate: &Object) -> bool {
    same_kind(item, candidate)
        && item
            .call_id()
            .is_none_or(|call| candidate.str("call_id").is_none_or(|own| own == call))
        && (item.id().is_none() || candidate.str("id").is_none())
}

fn same_content(item: &Item, candidate: &Object) -> bool {
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

fn thawed(value: &Value) -> Cow<'_, Value> {
    let parsed = |json: &[u8]| Cow::Owned(parse(json, Strictness::Event).unwrap_or_default());
    match value {
        Value::Raw(json) => parsed(&json.contiguous()),
        Value::RawList(_) => parsed(&value.to_json()),
        other => Cow::Borrowed(other),
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
