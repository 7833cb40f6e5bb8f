//! Chat completion chunks into the completion they add up to (contract, section 14).

use std::collections::{BTreeMap, HashMap};

use super::delta::{extend_list, merge_delta};
use super::parse::is_object;
use super::text::Text;
use super::value::{Object, Value};

/// A chat stream under assembly.
#[derive(Debug, Default)]
pub(super) struct Chat {
    /// The top-level members in the order they first came; choices and usage hold places.
    head: Object,
    choices: BTreeMap<i64, Choice>,
    usage: Value,
    /// A usage with counts that stood in a choice or a vendor's member instead.
    other_usage: Value,
    /// `[DONE]` came.
    done: bool,
}

#[derive(Debug, Default)]
struct Choice {
    members: Object,
    message: Object,
    calls: Calls,
    reasoning: Reasoning,
}

impl Chat {
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    /// Whether the body ended as it should.
    pub(super) fn is_complete(&self) -> bool {
        self.done
            || (!self.choices.is_empty()
                && self
                    .choices
                    .values()
                    .all(|choice| choice.members.has("finish_reason")))
    }

    /// Takes one chunk; whether it carried something that the model said.
    pub(super) fn chunk(&mut self, chunk: Object) -> bool {
        let mut said = false;
        for (key, value) in chunk {
            match key.as_bytes() {
                // Padding against traffic analysis, no content.
                b"obfuscation" => {}
                b"choices" => {
                    self.head.entry(b"choices", Value::Null);
                    if let Value::Array(choices) = value {
                        for (position, choice) in choices.into_iter().enumerate() {
                            if let Value::Object(choice) = choice {
                                said |= self.choice(position, choice);
                            }
                        }
                    }
                }
                b"usage" => {
                    self.head.entry(b"usage", Value::Null);
                    if value.as_object().is_some_and(has_counts) {
                        self.usage = value;
                    }
                }
                b"id" | b"created" | b"model" => {
                    let held = self.head.entry(key.as_bytes(), Value::Null);
                    if !held.says_something() || held.as_int() == Some(0) {
                        *held = value;
                    }
                }
                name => {
                    if let Some(vendor) = value.as_object().filter(|_| name == b"x_groq") {
                        self.note_usage(vendor.get("usage"));
                    }
                    self.head.merge_state(name, value);
                }
            }
        }
        said
    }

    fn note_usage(&mut self, usage: Option<&Value>) {
        if let Some(usage) = usage.filter(|usage| usage.as_object().is_some_and(has_counts)) {
            self.other_usage = usage.clone();
        }
    }

    fn choice(&mut self, position: usize, choice: Object) -> bool {
        self.note_usage(choice.get("usage"));
        let index = choice
            .int("index")
            .unwrap_or_else(|| i64::try_from(position).unwrap_or(0));
        self.choices.entry(index).or_default().take(choice)
    }

    /// The completion, `None` where not one chunk came.
    pub(super) fn finish(self) -> Option<Object> {
        let Self {
            mut head,
            choices,
            usage,
            other_usage,
            ..
        } = self;
        if head.is_empty() {
            return None;
        }
        if head.get("choices").is_some() {
            head.set("object", Value::string("chat.completion"));
            let choices = choices
                .into_iter()
                .map(|(index, choice)| choice.finish(index));
            head.set("choices", Value::Array(choices.collect()));
        }
        let usage = if usage.is_null() { other_usage } else { usage };
        if head.get("usage").is_some() || !usage.is_null() {
            head.set("usage", usage);
        }
        Some(head)
    }
}

/// Whether a usage object knows any count: an integer that is not negative.
fn has_counts(usage: &Object) -> bool {
    usage.iter().any(|(_, value)| match value {
        Value::Number(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        _ => false,
    })
}

impl Choice {
    fn take(&mut self, choice: Object) -> bool {
        let mut said = false;
        for (key, value) in choice {
            match (key.as_bytes(), value) {
                (b"delta", Value::Object(delta)) => said |= self.delta(delta),
                (b"message", Value::Object(message)) => said |= self.message(message),
                (b"index" | b"delta" | b"message", _) => {}
                (b"logprobs", Value::Object(logprobs)) => {
                    let held = self.members.entry(b"logprobs", Value::Null).make_object();
                    for (key, value) in logprobs {
                        let held = held.entry(key.as_bytes(), Value::Null);
                        match value {
                            Value::Null => {}
                            Value::Array(tokens) => held.extend_written(&tokens),
                            Value::RawList(tokens) => held.extend_raw(tokens),
                            other => *held = other,
                        }
                    }
                }
                (b"text", Value::String(text)) => {
                    said |= !text.is_empty();
                    self.members.append("text", text);
                }
                (key, Value::Array(items)) => {
                    extend_list(self.members.entry(key, Value::Null), items);
                }
                (key, value) => {
                    let held = self.members.entry(key, Value::Null);
                    if value.says_something() || held.is_null() {
                        match (held, value) {
                            (Value::Object(held), Value::Object(new)) => {
                                for (key, value) in new {
                                    held.merge_state(key.as_bytes(), value);
                                }
                            }
                            (held, value) => *held = value,
                        }
                    }
                }
            }
        }
        said
    }

    fn delta(&mut self, delta: Object) -> bool {
        let mut said = false;
        let mut reasoning = [None, None];
        for (key, value) in delta {
            match (key.as_bytes(), value) {
                (b"content", value) => {
                    said |= value.says_something();
                    content(self.message.entry(b"content", Value::Null), value);
                }
                // One server sends its only entry without a list around it.
                (b"tool_calls", mut entries @ (Value::Array(_) | Value::Object(_))) => {
                    said |= entries.says_something();
                    self.message.entry(b"tool_calls", Value::Array(Vec::new()));
                    for entry in entries.make_array().drain(..) {
                        if let Value::Object(entry) = entry {
                            self.calls.take(entry);
                        }
                    }
                }
                (name @ (b"reasoning_content" | b"reasoning"), Value::String(text)) => {
                    said |= !text.is_empty();
                    let held = self.message.entry(name, Value::Null);
                    if held.is_null() {
                        *held = Value::String(Text::default());
                    }
                    reasoning[usize::from(name == b"reasoning")] = Some(text);
                }
                (b"function_call", Value::Object(call)) => {
                    said = true;
                    function(
                        self.message
                            .entry(b"function_call", Value::Null)
                            .make_object(),
                        call,
                    );
                }
                (key, value) => {
                    said |= value.says_something()
                        && matches!(
                            key,
                            b"refusal"
                                | b"audio"
                                | b"images"
                                | b"reasoning_details"
                                | b"thinking_blocks"
                                | b"reasoning_content"
                                | b"reasoning"
                        );
                    merge_delta(&mut self.message, key, value);
                }
            }
        }
        self.reasoning.take(reasoning);
        said
    }

    /// A whole message where a delta belongs: fills in what the deltas did not say.
    fn message(&mut self, message: Object) -> bool {
        let mut missing = Object::default();
        for (key, value) in message {
            let known = match key.as_bytes() {
                b"tool_calls" => !self.calls.0.is_empty(),
                b"reasoning_content" | b"reasoning" => !self.reasoning.text.is_empty(),
                _ => std::str::from_utf8(key.as_bytes()).is_ok_and(|key| self.message.has(key)),
            };
            if !known {
                missing.push(key, value);
            }
        }
        self.delta(missing)
    }

    fn finish(self, index: i64) -> Value {
        let Self {
            members,
            mut message,
            calls,
            reasoning,
        } = self;
        if !calls.0.is_empty() {
            message.set("tool_calls", calls.finish());
        }
        reasoning.finish(&mut message);
        let mut choice = Object::default();
        choice.set("index", Value::int(index));
        choice.set("message", Value::Object(message));
        for (key, value) in members {
            choice.push(key, value);
        }
        Value::Object(choice)
    }
}

/// Appends to a message's content: text to text; lists of parts go on, texts within them too.
fn content(held: &mut Value, value: Value) {
    match (&mut *held, value) {
        (_, Value::Null) => {}
        (Value::Null, value) => *held = value,
        (Value::String(held), Value::String(text)) => held.push(text),
        (Value::Array(parts), Value::String(text)) => {
            if !text.is_empty() {
                add_part(parts, text_part(text));
            }
        }
        (held, value) => {
            if let Value::String(text) = held {
                let text = std::mem::take(text);
                *held = if text.is_empty() {
                    Value::Null
                } else {
                    text_part(text)
                };
            }
            let parts = held.make_array();
            match value {
                Value::Array(new) => {
                    for part in new {
                        add_part(parts, part);
                    }
                }
                part => parts.push(part),
            }
        }
    }
}

fn text_part(text: Text) -> Value {
    Value::Object(
        [
            ("type", Value::string("text")),
            ("text", Value::String(text)),
        ]
        .into_iter()
        .collect(),
    )
}

fn add_part(parts: &mut Vec<Value>, part: Value) {
    let text = |part: &Value| {
        part.as_object()
            .filter(|part| part.str("type") == Some("text") && part.iter().count() == 2)
            .and_then(|part| part.text("text").cloned())
    };
    if let Some(more) = text(&part)
        && let Some(last) = parts.last_mut()
        && text(last).is_some()
        && let Some(last) = last.as_object_mut()
    {
        last.append("text", more);
    } else {
        parts.push(part);
    }
}

/// A choice's reasoning, whichever of the two names it came under.
#[derive(Debug, Default)]
struct Reasoning {
    text: Text,
    /// It came as `reasoning_content` at least once.
    under_content: bool,
    /// What `reasoning` said where `reasoning_content` said something else beside it.
    other: Text,
}

impl Reasoning {
    fn take(&mut self, [content, plain]: [Option<Text>; 2]) {
        let content = content.filter(|text| !text.is_empty());
        let plain = plain.filter(|text| !text.is_empty());
        self.under_content |= content.is_some();
        match (content, plain) {
            (Some(content), Some(plain)) if content != plain => {
                self.text.push(content);
                self.other.push(plain);
            }
            (Some(text), _) | (None, Some(text)) => self.text.push(text),
            (None, None) => {}
        }
    }

    fn finish(self, message: &mut Object) {
        if self.text.is_empty() {
            return;
        }
        let (key, twin) = if self.under_content {
            ("reasoning_content", "reasoning")
        } else {
            ("reasoning", "reasoning_content")
        };
        message.set(key, Value::String(self.text));
        if self.other.is_empty() {
            if message.text(twin).is_some_and(Text::is_empty) {
                message.remove(twin);
            }
        } else {
            message.set(twin, Value::String(self.other));
        }
    }
}

/// A choice's tool calls in the order they opened.
#[derive(Debug, Default)]
struct Calls(Vec<Object>, HashMap<Vec<u8>, usize>, HashMap<i64, usize>);

impl Calls {
    fn take(&mut self, mut entry: Object) {
        let id = entry
            .text("id")
            .filter(|id| !id.is_empty())
            .map(|id| id.bytes().into_owned());
        let index = entry.int("index");
        entry.remove("index");
        let Self(calls, by_id, by_index) = self;
        let known = match (&id, index) {
            (Some(id), _) => by_id.get(id).copied(),
            (None, Some(index)) => {
                let called = by_index.get(&index).copied();
                // An index that nobody opened: a name opens a call, a piece continues the last.
                called.or_else(|| {
                    calls
                        .len()
                        .checked_sub(1)
                        .filter(|_| name_of(&entry).is_none())
                })
            }
            (None, None) => calls.len().checked_sub(1),
        };
        // Some servers give all calls of an answer one index and no id: a second name with
        // arguments of its own, after arguments that are whole, is a second call.
        let known = known.filter(|&at| {
            id.is_some()
                || !(has_arguments(&entry) && name_of(&entry).is_some() && is_whole(&calls[at]))
        });
        let at = known.unwrap_or_else(|| {
            calls.push(Object::default());
            calls.len() - 1
        });
        if let Some(id) = id {
            by_id.entry(id).or_insert(at);
        }
        if let Some(index) = index
            && known.is_none()
        {
            by_index.insert(index, at);
        }
        let call = &mut calls[at];
        for (key, value) in entry {
            match (key.as_bytes(), value) {
                (key @ (b"function" | b"custom"), Value::Object(part)) => {
                    function(call.entry(key, Value::Null).make_object(), part);
                }
                (key, value) => merge_delta(call, key, value),
            }
        }
    }

    fn finish(self) -> Value {
        Value::Array(self.0.into_iter().map(Value::Object).collect())
    }
}

fn name_of(entry: &Object) -> Option<&Text> {
    ["function", "custom"]
        .iter()
        .find_map(|key| entry.object(key)?.text("name"))
        .filter(|name| !name.is_empty())
}

fn has_arguments(entry: &Object) -> bool {
    entry
        .object("function")
        .is_some_and(|function| function.has("arguments"))
}

/// Whether a call's arguments are a JSON object already, so that nothing can continue them.
fn is_whole(call: &Object) -> bool {
    match call
        .object("function")
        .and_then(|function| function.get("arguments"))
    {
        Some(Value::Object(_)) => true,
        Some(Value::String(text)) => text.last_byte() == Some(b'}') && is_object(text),
        _ => false,
    }
}

/// A function's pieces: a name in pieces is joined, a name repeated whole is not.
fn function(held: &mut Object, part: Object) {
    for (key, value) in part {
        match (key.as_bytes(), value) {
            (b"name", Value::String(name)) => {
                if held.text("name") != Some(&name) {
                    held.append("name", name);
                }
            }
            (key, value) => merge_delta(held, key, value),
        }
    }
}
