//! Messages events into the message they add up to (contract, section 14).

use super::delta::merge_delta;
use super::parse::parse_arguments;
use super::text::Text;
use super::value::{Object, Value};
use super::{Said, carries_content};

/// A messages stream under assembly.
#[derive(Debug, Default)]
pub(super) struct Messages {
    message: Object,
    blocks: Vec<Block>,
    unknown: Vec<Value>,
    /// `message_stop` or `[DONE]` came.
    done: bool,
}

#[derive(Debug)]
struct Block {
    index: i64,
    value: Object,
    /// The pieces of the input's JSON.
    input: Text,
    stopped: bool,
    /// Something was added since the block's start.
    touched: bool,
}

/// What each delta type adds to, the member it adds, and the block type that has it.
const DELTAS: [(&str, &str, &str); 4] = [
    ("text_delta", "text", "text"),
    ("thinking_delta", "thinking", "thinking"),
    ("signature_delta", "signature", "thinking"),
    ("input_json_delta", "partial_json", "tool_use"),
];

/// Block types whose input comes in pieces of JSON.
fn has_input(kind: &str) -> bool {
    kind.ends_with("tool_use")
}

impl Messages {
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.done
    }

    /// Takes one event of the given type.
    pub(super) fn event(&mut self, kind: &str, mut event: Object) -> Said {
        match kind {
            "ping" => false,
            "message_start" => match event.remove("message") {
                Some(Value::Object(message)) => self.start(message),
                _ => false,
            },
            "content_block_start" => match event.remove("content_block") {
                Some(Value::Object(block)) => {
                    let index = event.int("index").unwrap_or_else(|| self.next_index());
                    self.block(index, block)
                }
                _ => false,
            },
            "content_block_delta" => match event.remove("delta") {
                Some(Value::Object(delta)) => {
                    let index = event.int("index");
                    self.delta(index, delta)
                }
                _ => false,
            },
            "content_block_stop" => {
                if let Some(at) = self.find(event.int("index")) {
                    self.blocks[at].stopped = true;
                }
                false
            }
            "message_delta" => {
                if let Some(Value::Object(delta)) = event.remove("delta") {
                    self.members(delta);
                }
                self.members(event);
                false
            }
            "message_stop" => {
                self.done = true;
                self.members(event);
                false
            }
            _ => {
                if carries_content(&event) {
                    self.unknown.push(Value::Object(event));
                }
                false
            }
        }
    }

    fn start(&mut self, message: Object) -> Said {
        let mut said = false;
        for (key, value) in message {
            match (key.as_bytes(), value) {
                (b"content", Value::Array(blocks)) => {
                    self.message.entry(b"content", Value::Null);
                    for block in blocks {
                        if let Value::Object(block) = block {
                            let index = self.next_index();
                            said |= self.block(index, block);
                        }
                    }
                }
                (b"content", Value::String(text)) if !text.is_empty() => {
                    self.message.entry(b"content", Value::Null);
                    let members = [
                        ("type", Value::string("text")),
                        ("text", Value::String(text)),
                    ];
                    let index = self.next_index();
                    said |= self.block(index, members.into_iter().collect());
                }
                // A second start must not undo what a first one and the deltas said.
                (b"id" | b"model" | b"type" | b"role", value) => {
                    let held = self.message.entry(key.as_bytes(), Value::Null);
                    if !held.says_something() {
                        *held = value;
                    }
                }
                (key, value) => self.member(key, value),
            }
        }
        said
    }

    /// Members of a message that a later event knows better.
    fn members(&mut self, members: Object) {
        for (key, value) in members {
            if !matches!(key.as_bytes(), b"type" | b"index") {
                self.member(key.as_bytes(), value);
            }
        }
    }

    fn member(&mut self, key: &[u8], value: Value) {
        match (key, value) {
            (b"usage", value) => {
                let held = self.message.entry(b"usage", Value::Null);
                greatest(held, value);
            }
            (_, Value::Null) => {
                self.message.entry(key, Value::Null);
            }
            (_, value) => *self.message.entry(key, Value::Null) = value,
        }
    }

    fn next_index(&self) -> i64 {
        self.blocks
            .iter()
            .map(|block| block.index.saturating_add(1))
            .max()
            .unwrap_or(0)
    }

    fn find(&self, index: Option<i64>) -> Option<usize> {
        match index {
            Some(index) => self.blocks.iter().rposition(|block| block.index == index),
            None => self.blocks.len().checked_sub(1),
        }
    }

    fn block(&mut self, index: i64, value: Object) -> Said {
        let said = match value.str("type") {
            Some("text") => value.has("text"),
            Some("thinking") => value.has("thinking"),
            Some(_) => true,
            None => false,
        };
        // From here on another model answers, and the message names the one that did.
        if value.str("type") == Some("fallback")
            && let Some(model) = value.object("to").and_then(|to| to.get("model"))
            && model.says_something()
        {
            self.message.set("model", model.clone());
        }
        // The same start again, before anything was added: sent twice, not a second block.
        let again = self.find(Some(index)).is_some_and(|at| {
            let held = &self.blocks[at];
            !held.touched && !held.stopped && held.value == value
        });
        if !again {
            self.open(index, value);
        }
        said
    }

    /// Adds a block, and says its place.
    fn open(&mut self, index: i64, value: Object) -> usize {
        self.blocks.push(Block {
            index,
            value,
            input: Text::default(),
            stopped: false,
            touched: false,
        });
        self.blocks.len() - 1
    }

    fn delta(&mut self, index: Option<i64>, mut delta: Object) -> Said {
        let kind = delta.str("type").unwrap_or_default().to_owned();
        let known = DELTAS.iter().find(|(name, ..)| *name == kind);
        let fits = |block: &Block| {
            let held = block.value.str("type").unwrap_or_default();
            match known {
                Some((_, "partial_json", _)) => !matches!(held, "text" | "thinking"),
                Some((_, _, wanted)) => {
                    held == *wanted || !(matches!(held, "text" | "thinking") || has_input(held))
                }
                None => true,
            }
        };
        let at = self
            .find(index)
            .filter(|&at| fits(&self.blocks[at]))
            .unwrap_or_else(|| {
                let mut value = Object::default();
                let wanted = match known {
                    Some((.., wanted)) => wanted,
                    None if kind == "citations_delta" => "text",
                    None => "unknown",
                };
                value.set("type", Value::string(wanted));
                let index = index.unwrap_or_else(|| self.next_index());
                self.open(index, value)
            });
        let block = &mut self.blocks[at];
        block.touched = true;
        let piece = known.and_then(|(_, member, _)| match delta.remove(member) {
            Some(Value::String(text)) => Some((*member, text)),
            Some(other) => {
                delta.set(member, other);
                None
            }
            None => None,
        });
        let mut said = false;
        match piece {
            Some(("partial_json", text)) => {
                said = !text.is_empty();
                block.input.push(text);
            }
            // Repeated whole it is still one signature.
            Some(("signature", text)) if block.value.text("signature") == Some(&text) => {}
            Some(("signature", text)) => block.value.append("signature", text),
            Some((member, text)) => {
                said = !text.is_empty();
                block.value.append(member, text);
            }
            None => {}
        }
        for (key, value) in delta {
            match key.as_bytes() {
                b"type" => {}
                b"citation" if kind == "citations_delta" => {
                    block
                        .value
                        .entry(b"citations", Value::Null)
                        .make_array()
                        .push(value);
                }
                b"encrypted_content" => *block.value.entry(key.as_bytes(), Value::Null) = value,
                key => {
                    said |= matches!(value, Value::String(ref text) if !text.is_empty());
                    merge_delta(&mut block.value, key, value);
                }
            }
        }
        said
    }

    /// The message, `None` where nothing of one came.
    pub(super) fn finish(self) -> Option<Object> {
        let Self {
            mut message,
            mut blocks,
            unknown,
            ..
        } = self;
        if message.is_empty() && blocks.is_empty() && unknown.is_empty() {
            return None;
        }
        if !blocks.is_empty() || message.get("content").is_some() {
            blocks.sort_by_key(|block| block.index);
            let blocks = blocks
                .into_iter()
                .map(|block| Value::Object(block.finish()));
            message.set("content", Value::Array(blocks.collect()));
        }
        if !unknown.is_empty() {
            message.set("unknown_events", Value::Array(unknown));
        }
        Some(message)
    }
}

impl Block {
    fn finish(self) -> Object {
        let Self {
            mut value, input, ..
        } = self;
        if input.is_blank() {
            if value.str("type").is_some_and(has_input) && !value.has("input") {
                value.set("input", Value::Object(Object::default()));
            }
        } else {
            // JSON that is cut off or broken stays what it is: a text, said to be one.
            let input = parse_arguments(input).unwrap_or_else(|text| {
                Value::Object([("_raw", Value::String(text))].into_iter().collect())
            });
            value.set("input", input);
        }
        value
    }
}

/// Usage is cumulative: per count the greatest, null and absence never overwrite.
fn greatest(held: &mut Value, value: Value) {
    match (held, value) {
        (_, Value::Null) => {}
        (Value::Object(held), Value::Object(new)) => {
            for (key, value) in new {
                greatest(held.entry(key.as_bytes(), Value::Null), value);
            }
        }
        (Value::Number(held), Value::Number(new)) => {
            if is_greater(&new, held) {
                *held = new;
            }
        }
        (held, value) => {
            if value.says_something() || held.is_null() {
                *held = value;
            }
        }
    }
}

/// Compares counts by their digits, however many; anything else is no count and loses.
fn is_greater(new: &str, held: &str) -> bool {
    let count = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    match (count(new), count(held)) {
        (true, true) => (new.len(), new) > (held.len(), held),
        (new_is_count, held_is_count) => new_is_count || !held_is_count,
    }
}
