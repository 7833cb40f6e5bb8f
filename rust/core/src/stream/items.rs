//! Output items of a responses stream and what their events add up to.

use std::collections::BTreeMap;

use super::Said;
use super::rules::{Place, Rule, Step};
use super::text::Text;
use super::value::{Object, Value};

/// One output item, done or under way.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) value: Object,
    pub(super) done: bool,
    /// An event added content after `output_item.added`.
    pub(super) touched: bool,
    /// Lists whose entries events address by index: content, summary, commands, output.
    lists: BTreeMap<&'static str, BTreeMap<i64, Value>>,
}

impl Item {
    pub(super) fn added(value: Object) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    pub(super) fn done(value: Object) -> Self {
        let mut written = Object::default();
        for (key, member) in value {
            written.push(key, member.written());
        }
        Self {
            value: written,
            done: true,
            ..Self::default()
        }
    }

    /// An item that only its deltas tell of.
    pub(super) fn implied(kind: &str, id: Option<&str>) -> Self {
        let mut value = Object::default();
        if let Some(id) = id {
            value.set("id", Value::string(id));
        }
        value.set("type", Value::string(kind));
        if kind == "message" {
            value.set("role", Value::string("assistant"));
        }
        Self {
            value,
            ..Self::default()
        }
    }

    pub(super) fn added_again(&mut self, item: Object) {
        if self.done {
            return;
        }
        for (key, value) in item {
            let held = self.value.entry(key.as_bytes(), Value::Null);
            if !held.says_something() {
                *held = value;
            }
        }
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.value.str("id")
    }

    pub(super) fn call_id(&self) -> Option<&str> {
        self.value.str("call_id")
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether an event with this item id can mean this item.
    pub(super) fn is_of(&self, id: Option<&str>) -> bool {
        match (id, self.id()) {
            (Some(id), Some(own)) => id == own,
            _ => true,
        }
    }

    /// Whether an `output_item.added` with this id is about this item.
    pub(super) fn is_open_for(&self, id: Option<&str>) -> bool {
        if self.done {
            id.is_some() && id == self.id()
        } else {
            self.is_of(id)
        }
    }

    pub(super) fn is_kind(&self, rule: Rule) -> bool {
        self.value.str("type") == Some(rule.item)
    }

    /// Whether a done item of no known id is this one: it is open and of the same type, or
    /// says the very same.
    pub(super) fn may_become(&self, done: &Item) -> bool {
        if self.done {
            self.value == done.value
        } else {
            let kind = done.value.str("type");
            kind.is_none() || self.value.str("type") == kind
        }
    }

    /// Applies one event; whether it carried something that the model said.
    #[allow(clippy::too_many_lines)] // one arm a place, each a few lines
    pub(super) fn take(&mut self, rule: Rule, mut event: Object) -> Said {
        if self.done {
            return false;
        }
        self.touched = true;
        match rule.place {
            Place::Member(member) => {
                let text = piece(&mut event, member, rule.step);
                let said = says(text.as_ref());
                apply(&mut self.value, member, text, rule.step);
                if let Some(name) = event.remove("name")
                    && !self.value.has("name")
                {
                    self.value.set("name", name);
                }
                said
            }
            Place::Operation(member) => {
                let text = piece(&mut event, member, rule.step);
                let said = says(text.as_ref());
                let operation = self.value.entry(b"operation", Value::Null).make_object();
                apply(operation, member, text, rule.step);
                said
            }
            Place::Entry {
                list,
                index,
                kind,
                member,
            } => {
                let text = piece(&mut event, member, rule.step);
                let said = says(text.as_ref());
                let entry = self.entry(list, event.int(index)).make_object();
                if !entry.has("type") {
                    entry.set("type", Value::string(kind));
                }
                apply(entry, member, text, rule.step);
                if rule.step == Step::Delta || !entry.has("logprobs") {
                    match event.remove("logprobs") {
                        Some(Value::RawList(tokens)) => {
                            entry.entry(b"logprobs", Value::Null).extend_raw(tokens);
                        }
                        Some(Value::Array(tokens)) if !tokens.is_empty() => {
                            entry
                                .entry(b"logprobs", Value::Null)
                                .extend_written(&tokens);
                        }
                        _ => {}
                    }
                }
                said
            }
            Place::Part { list, index } => {
                let Some(Value::Object(part)) = event.remove("part") else {
                    return false;
                };
                let said = part.has("text") || part.has("refusal");
                let held = self.entry(list, event.int(index)).make_object();
                for (key, value) in part {
                    let member = held.entry(key.as_bytes(), Value::Null);
                    if value.says_something() || member.is_null() {
                        *member = value;
                    }
                }
                said
            }
            Place::Annotation => {
                let Some(annotation) = event.remove("annotation") else {
                    return false;
                };
                let part = self
                    .entry("content", event.int("content_index"))
                    .make_object();
                if !part.has("type") {
                    part.set("type", Value::string("output_text"));
                }
                if !annotation.is_null() {
                    part.entry(b"annotations", Value::Null)
                        .make_array()
                        .push(annotation);
                }
                false
            }
            Place::Command => {
                let text = piece(&mut event, "command", rule.step);
                let said = says(text.as_ref());
                let command = self.entry("commands", event.int("command_index"));
                match (command, text, rule.step) {
                    (Value::String(held), Some(text), Step::Delta) => held.push(text),
                    (command, Some(text), _) => *command = Value::String(text),
                    (_, None, _) => {}
                }
                said
            }
            Place::CommandOutput => {
                let output = self.entry("output", event.int("command_index"));
                match (event.remove("delta"), event.remove("output")) {
                    (Some(Value::Object(mut delta)), _) => {
                        let output = output.make_object();
                        for stream in ["stdout", "stderr"] {
                            if let Some(text) = delta.take_text(stream) {
                                output.append(stream, text);
                            }
                        }
                    }
                    (_, Some(whole)) => *output = whole,
                    _ => {}
                }
                false
            }
            Place::Latest(member) => {
                if let Some(value) = event.remove(member) {
                    self.value.set(member, value);
                }
                true
            }
        }
    }

    /// The list's entry at an event's index, the last one where the event gives none.
    fn entry(&mut self, list: &'static str, index: Option<i64>) -> &mut Value {
        let Self { value, lists, .. } = self;
        let entries = lists.entry(list).or_insert_with(|| {
            let came = if list == "commands" {
                let action = value.get_mut("action").and_then(Value::as_object_mut);
                action.and_then(|action| action.remove(list))
            } else {
                value.get_mut(list).map(std::mem::take)
            };
            match came {
                Some(Value::Array(items)) => (0..).zip(items).collect(),
                _ => BTreeMap::new(),
            }
        });
        let index = index.unwrap_or_else(|| entries.last_key_value().map_or(0, |(&last, _)| last));
        entries.entry(index).or_default()
    }

    /// The same with everything in `value`, to be compared.
    pub(super) fn settled(self) -> Self {
        let Self { done, touched, .. } = self;
        match self.finish() {
            Value::Object(value) => Self {
                value,
                done,
                touched,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// The item as it stands; one that is not done is incomplete.
    pub(super) fn finish(self) -> Value {
        let Self {
            mut value,
            done,
            lists,
            ..
        } = self;
        for (list, entries) in lists {
            let entries = entries.into_values();
            let entries: Vec<Value> = if list == "output" {
                entries
                    .flat_map(|entry| match entry {
                        Value::Array(outputs) => outputs,
                        output => vec![output],
                    })
                    .collect()
            } else {
                entries.collect()
            };
            if list == "commands" {
                let action = value.entry(b"action", Value::Null).make_object();
                action.set(list, Value::Array(entries));
            } else {
                value.set(list, Value::Array(entries));
            }
        }
        if !done {
            value.set("status", Value::string("incomplete"));
        }
        Value::Object(value)
    }
}

/// The text that an event brings: its `delta` (or that one's `text`), or the whole member.
fn piece(event: &mut Object, member: &str, step: Step) -> Option<Text> {
    match step {
        Step::Delta => match event.get_mut("delta") {
            Some(Value::String(text)) => Some(std::mem::take(text)),
            Some(Value::Object(delta)) => delta.take_text("text"),
            _ => None,
        },
        Step::Whole => event.take_text(member).or_else(|| event.take_text("text")),
    }
}

fn says(text: Option<&Text>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// A delta goes on; a whole text stands for the deltas, unless it says less.
fn apply(held: &mut Object, member: &str, text: Option<Text>, step: Step) {
    let Some(text) = text else { return };
    if step == Step::Delta {
        held.append(member, text);
    } else if !text.is_empty() || !held.has(member) {
        held.set(member, Value::String(text));
    }
}
