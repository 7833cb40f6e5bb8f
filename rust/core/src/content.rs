//! What a response holds, read off its shape: tool calls, reasoning, and the decision a
//! turn is made of (contract, sections 4 and 8).

use std::borrow::Cow;
use std::sync::Arc;

use crate::intern::{Blob, Interner, REASONING_KEYS, SharedId};
use crate::json::{self, Kind, Raw, Tape};
use crate::value::{Key, Members, Value, unique_members};

/// Members of a response shorter than this are not worth sharing.
const SHORT: usize = 48;

/// The list that a response carries its content in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `output`: Responses
    Output,
    /// `choices`: Chat Completions
    Choices,
    /// `content`: Anthropic Messages
    Content,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Output, Self::Choices, Self::Content];

    fn key(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Choices => "choices",
            Self::Content => "content",
        }
    }

    /// The shape that a dialect's decisions have; none for a dialect we do not know.
    fn of_dialect(dialect: Option<&str>) -> Option<Self> {
        match dialect? {
            "responses" => Some(Self::Output),
            "chat" => Some(Self::Choices),
            "messages" => Some(Self::Content),
            _ => None,
        }
    }
}

/// A model's decision, as far as it can be told without a converter.
#[derive(Clone, Debug)]
pub enum Decision<'a> {
    /// The items of a Responses output that are objects, with their kinds.
    Output(Vec<(SharedId, Item)>),
    /// The choice that a chat turn takes.
    Choice {
        /// Its message without the reasoning; null without a choice.
        answer: Value<'a>,
        /// Its reasoning, as it is.
        reasoning: Value<'a>,
        /// How many tool calls the message holds.
        tool_calls: usize,
    },
    /// A Messages response: its content blocks, and how many are `tool_use`.
    Blocks {
        /// The content, a list.
        content: Value<'a>,
        /// The `tool_use` blocks among it.
        tool_uses: usize,
    },
}

/// What an item of a Responses list is to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A `reasoning` item.
    Reasoning,
    /// A `function_call` item.
    FunctionCall,
    /// A message that says its role but no type.
    Untyped,
    /// Anything else.
    Other,
}

/// A response on the tape.
#[derive(Clone, Copy)]
pub struct Response<'t, 'a> {
    tape: &'t Tape<'a>,
    root: usize,
}

impl<'t, 'a> Response<'t, 'a> {
    /// The response whose object stands at `root`.
    #[must_use]
    pub fn new(tape: &'t Tape<'a>, root: usize) -> Self {
        Self { tape, root }
    }

    /// The response's text.
    #[must_use]
    pub fn raw(self) -> Raw<'a> {
        self.tape.value(self.root)
    }

    /// A member that is a string.
    #[must_use]
    pub fn string(self, key: &str) -> Option<Cow<'a, str>> {
        self.tape.member(self.root, key).as_str()
    }

    /// A member's value, null where it is missing.
    #[must_use]
    pub fn member(self, key: &str) -> Raw<'a> {
        self.tape.member(self.root, key)
    }

    /// The place of a member that is an object.
    #[must_use]
    pub fn object(self, key: &str) -> Option<usize> {
        self.tape
            .get(self.root, key)
            .filter(|node| self.tape.value(*node).is_object())
    }

    fn shape(self) -> Option<(Shape, usize)> {
        Shape::ALL
            .into_iter()
            .find_map(|shape| Some((shape, self.list(shape)?)))
    }

    fn list(self, shape: Shape) -> Option<usize> {
        self.tape.array(self.root, shape.key())
    }

    /// The elements of a list that are objects.
    fn objects(self, list: usize) -> impl Iterator<Item = usize> + 't {
        let tape = self.tape;
        tape.children(list)
            .filter(move |node| tape.value(*node).is_object())
    }

    fn array_objects(self, node: usize, key: &str) -> impl Iterator<Item = usize> + 't {
        let list = self.tape.array(node, key);
        list.into_iter().flat_map(move |list| self.objects(list))
    }

    /// The choice with `index` 0, else the first.
    fn choice(self) -> Option<usize> {
        let list = self.list(Shape::Choices)?;
        let is_first = |node: &usize| self.tape.member(*node, "index").bytes() == b"0";
        self.objects(list)
            .find(is_first)
            .or_else(|| self.objects(list).next())
    }

    fn message(self, choice: usize) -> Option<usize> {
        let message = self.tape.get(choice, "message")?;
        self.tape.value(message).is_object().then_some(message)
    }

    /// Why the model stopped.
    #[must_use]
    pub fn finish_reason(self) -> Option<Cow<'a, str>> {
        self.string("stop_reason")
            .or_else(|| self.tape.member(self.choice()?, "finish_reason").as_str())
            .or_else(|| {
                let details = self.object("incomplete_details")?;
                self.tape.member(details, "reason").as_str()
            })
    }

    /// The tool calls as records show them.
    #[must_use]
    pub fn tool_calls(self) -> Vec<Value<'a>> {
        let tape = self.tape;
        let Some((shape, list)) = self.shape() else {
            return Vec::new();
        };
        match shape {
            Shape::Output => self
                .objects(list)
                .filter(|item| tape.member(*item, "type").is_str("function_call"))
                .map(|item| {
                    let call_id = tape.member(item, "call_id");
                    let id = if is_empty(call_id) {
                        tape.member(item, "id")
                    } else {
                        call_id
                    };
                    tool_call(
                        id,
                        tape.member(item, "name"),
                        arguments(tape.member(item, "arguments")),
                    )
                })
                .collect(),
            Shape::Choices => self
                .objects(list)
                .filter_map(|choice| self.message(choice))
                .flat_map(|message| self.array_objects(message, "tool_calls"))
                .map(|call| {
                    let function = tape.get(call, "function");
                    let field = |key| function.map_or(Raw::NULL, |node| tape.member(node, key));
                    tool_call(
                        tape.member(call, "id"),
                        field("name"),
                        arguments(field("arguments")),
                    )
                })
                .collect(),
            Shape::Content => self
                .tool_uses(list)
                .map(|block| {
                    let input = tape.member(block, "input");
                    let input = if is_empty(input) {
                        Value::Object(Vec::new())
                    } else {
                        Value::Raw(input)
                    };
                    tool_call(tape.member(block, "id"), tape.member(block, "name"), input)
                })
                .collect(),
        }
    }

    fn tool_uses(self, content: usize) -> impl Iterator<Item = usize> + 't {
        let tape = self.tape;
        self.objects(content)
            .filter(move |block| tape.member(*block, "type").is_str("tool_use"))
    }

    /// The reasoning as one string: mostly it came as one, and stays as it came.
    #[must_use]
    pub fn reasoning(self) -> Option<Value<'a>> {
        let (shape, list) = self.shape()?;
        let mut texts: Vec<Raw<'a>> = Vec::new();
        let mut take = |raw: Raw<'a>| {
            if raw.kind() == Kind::String && !is_empty(raw) {
                texts.push(raw);
            }
        };
        let tape = self.tape;
        for node in self.objects(list) {
            match shape {
                Shape::Output if tape.member(node, "type").is_str("reasoning") => {
                    let summary: Vec<_> = self
                        .array_objects(node, "summary")
                        .map(|part| tape.member(part, "text"))
                        .filter(|text| text.kind() == Kind::String)
                        .collect();
                    if summary.is_empty() {
                        self.array_objects(node, "content")
                            .filter(|part| tape.member(*part, "type").is_str("reasoning_text"))
                            .for_each(|part| take(tape.member(part, "text")));
                    } else {
                        summary.into_iter().for_each(&mut take);
                    }
                }
                Shape::Choices => {
                    if let Some(message) = self.message(node) {
                        take(self.chat_reasoning(message));
                    }
                }
                Shape::Content => {
                    let kind = tape.member(node, "type");
                    if kind.is_str("thinking") || kind.is_str("redacted_thinking") {
                        take(tape.member(node, "thinking"));
                    }
                }
                Shape::Output => {}
            }
        }
        match texts[..] {
            [] => None,
            [text] => Some(Value::Raw(text)),
            _ => {
                let texts: Vec<_> = texts.into_iter().filter_map(Raw::as_str).collect();
                Some(Value::Str(Cow::Owned(texts.join("\n"))))
            }
        }
    }

    /// A chat message's `reasoning_content`, else its `reasoning`.
    fn chat_reasoning(self, message: usize) -> Raw<'a> {
        let [first, second] = REASONING_KEYS.map(|key| self.tape.member(message, key));
        if is_empty(first) { second } else { first }
    }

    /// The decision, where the response holds its dialect's list.
    pub fn decision(
        self,
        dialect: Option<&str>,
        shared: &mut Interner<'a>,
    ) -> Option<Decision<'a>> {
        let (shape, list) = match Shape::of_dialect(dialect) {
            Some(shape) => (shape, self.list(shape)?),
            None => self.shape()?,
        };
        let tape = self.tape;
        Some(match shape {
            Shape::Output => Decision::Output(
                self.objects(list)
                    .map(|node| (shared.intern(tape.value(node)), self.item(node)))
                    .collect(),
            ),
            Shape::Choices => self.chosen(shared),
            Shape::Content => Decision::Blocks {
                content: list_value(tape, list, shared),
                tool_uses: self.tool_uses(list).count(),
            },
        })
    }

    fn item(self, node: usize) -> Item {
        let kind = self.tape.member(node, "type");
        item_kind(kind, self.tape.member(node, "role"))
    }

    fn chosen(self, shared: &mut Interner<'a>) -> Decision<'a> {
        let none = Decision::Choice {
            answer: Value::Null,
            reasoning: Value::Null,
            tool_calls: 0,
        };
        let Some(choice) = self.choice() else {
            return none;
        };
        let Some(message) = self.message(choice) else {
            let answer = Value::Object(Vec::new());
            return Decision::Choice {
                answer,
                reasoning: Value::Null,
                tool_calls: 0,
            };
        };
        let whole = shared.intern(self.tape.value(message));
        let reasons = REASONING_KEYS
            .iter()
            .any(|key| self.tape.get(message, key).is_some());
        let answer = if reasons {
            shared.add(Blob::WithoutReasoning(whole))
        } else {
            whole
        };
        Decision::Choice {
            answer: Value::Shared(answer),
            reasoning: Value::Raw(self.chat_reasoning(message)),
            tool_calls: self.array_objects(message, "tool_calls").count(),
        }
    }

    /// The response's members, what may come again shared.
    pub fn parts(self, shared: &mut Interner<'a>) -> Members<'a> {
        let tape = self.tape;
        let mut members = Members::with_capacity(8);
        for node in tape.children(self.root) {
            let raw = tape.value(node);
            let key = tape.node(node).key.unwrap_or(Raw::NULL);
            let list = raw.kind() == Kind::Array && raw.bytes().len() >= SHORT;
            let value = if list && key.is_str("choices") {
                choices_value(tape, node, shared)
            } else if list && (key.is_str("output") || key.is_str("content")) {
                list_value(tape, node, shared)
            } else {
                Value::Raw(raw)
            };
            members.push((Key::Raw(key), value));
        }
        unique_members(&mut members);
        members
    }
}

/// What an item of a Responses list is, by its type and role.
#[must_use]
pub fn item_kind(kind: Raw<'_>, role: Raw<'_>) -> Item {
    if kind.is_null() && !role.is_null() {
        Item::Untyped
    } else if kind.is_str("reasoning") {
        Item::Reasoning
    } else if kind.is_str("function_call") {
        Item::FunctionCall
    } else {
        Item::Other
    }
}

/// Whether a list holds objects and nothing else: only then its parts say all of it.
fn only_objects(tape: &Tape<'_>, list: usize) -> bool {
    tape.node(list).is_whole && tape.children(list).all(|node| tape.value(node).is_object())
}

/// A list with its objects shared; as it is where anything else is among them.
fn list_value<'a>(tape: &Tape<'a>, list: usize, shared: &mut Interner<'a>) -> Value<'a> {
    let raw = tape.value(list);
    if !only_objects(tape, list) {
        return Value::Raw(raw);
    }
    let ids: Arc<[SharedId]> = tape
        .children(list)
        .map(|node| shared.intern(tape.value(node)))
        .collect();
    Value::Parted(raw, Arc::new(Value::SharedList(ids)))
}

/// The choices with their messages shared.
fn choices_value<'a>(tape: &Tape<'a>, list: usize, shared: &mut Interner<'a>) -> Value<'a> {
    let raw = tape.value(list);
    if !only_objects(tape, list) {
        return Value::Raw(raw);
    }
    let choice = |node: usize, shared: &mut Interner<'a>| {
        let mut members = Members::with_capacity(4);
        for child in tape.children(node) {
            let key = tape.node(child).key.unwrap_or(Raw::NULL);
            let value = tape.value(child);
            let value = if key.is_str("message") && value.is_object() {
                Value::Shared(shared.intern(value))
            } else {
                Value::Raw(value)
            };
            members.push((Key::Raw(key), value));
        }
        unique_members(&mut members);
        Value::Object(members)
    };
    let choices = tape
        .children(list)
        .map(|node| choice(node, shared))
        .collect();
    Value::Parted(raw, Arc::new(Value::Array(choices)))
}

fn tool_call<'a>(id: Raw<'a>, name: Raw<'a>, arguments: Value<'a>) -> Value<'a> {
    Value::object([
        ("call_id", Value::Raw(id)),
        ("name", Value::Raw(name)),
        ("arguments", arguments),
    ])
}

/// A tool call's arguments: an object as it is, a string parsed, anything else `{}`.
fn arguments(raw: Raw<'_>) -> Value<'_> {
    match raw.kind() {
        Kind::Object => Value::Raw(raw),
        Kind::String => match raw.as_str() {
            Some(Cow::Borrowed(text)) => match json::parse(text.as_bytes()) {
                Ok(value) => Value::Raw(value),
                Err(_) => Value::object([("_raw", Value::Raw(raw))]),
            },
            Some(Cow::Owned(text)) => match json::parse(text.as_bytes()) {
                Ok(value) => Value::Text(value.bytes().into()),
                Err(_) => Value::object([("_raw", Value::Raw(raw))]),
            },
            None => Value::Object(Vec::new()),
        },
        _ => Value::Object(Vec::new()),
    }
}

/// Whether a value is missing or empty.
#[must_use]
pub fn is_empty(raw: Raw<'_>) -> bool {
    match raw.kind() {
        Kind::Null => true,
        Kind::String => raw.bytes().len() == 2,
        Kind::Array | Kind::Object => raw.bytes()[1..raw.bytes().len() - 1]
            .trim_ascii()
            .is_empty(),
        Kind::Bool => raw.as_bool() == Some(false),
        Kind::Number => raw.as_f64() == Some(0.0),
    }
}
