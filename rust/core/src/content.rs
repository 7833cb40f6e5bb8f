//! What a response holds, read off its shape: tool calls, reasoning, and the decision a
//! turn is made of (contract, sections 4 and 8).

use std::borrow::Cow;

use crate::intern::{Blob, Interner, SharedId};
use crate::item::{Item, item_kind};
use crate::json::{self, Kind, Raw, Tape};
use crate::names::Name;
use crate::parts::Parts;
use crate::value::Value;

/// What [`crate::intern::REASONING_KEYS`] are on the tape.
const REASONING_NAMES: [Name; 2] = [Name::ReasoningContent, Name::Reasoning];

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

    fn name(self) -> Name {
        match self {
            Self::Output => Name::Output,
            Self::Choices => Name::Choices,
            Self::Content => Name::Content,
        }
    }

    /// The shape that a dialect's decisions have; none for a dialect we do not know.
    fn of_dialect(dialect: Option<Raw<'_>>) -> Option<Self> {
        let dialect = dialect?;
        let known = ["responses", "chat", "messages"];
        let at = known.iter().position(|name| dialect.is_str(name))?;
        Some(Self::ALL[at])
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

/// A response on the tape.
#[derive(Clone, Copy)]
pub struct Response<'t, 'a> {
    tape: &'t Tape<'a, Name>,
    root: usize,
}

impl<'t, 'a> Response<'t, 'a> {
    /// The response whose object stands at `root`.
    #[must_use]
    pub fn new(tape: &'t Tape<'a, Name>, root: usize) -> Self {
        Self { tape, root }
    }

    /// The response's text.
    #[must_use]
    pub fn raw(self) -> Raw<'a> {
        self.tape.value(self.root)
    }

    /// A member that is a string.
    #[must_use]
    pub fn string(self, name: Name) -> Option<Raw<'a>> {
        string(self.tape.member(self.root, name))
    }

    /// A member's value, null where it is missing.
    #[must_use]
    pub fn member(self, name: Name) -> Raw<'a> {
        self.tape.member(self.root, name)
    }

    /// The place of a member that is an object.
    #[must_use]
    pub fn object(self, name: Name) -> Option<usize> {
        self.tape
            .get(self.root, name)
            .filter(|node| self.tape.value(*node).is_object())
    }

    fn shape(self) -> Option<(Shape, usize)> {
        Shape::ALL
            .into_iter()
            .find_map(|shape| Some((shape, self.list(shape)?)))
    }

    fn list(self, shape: Shape) -> Option<usize> {
        self.tape.array(self.root, shape.name())
    }

    /// The elements of a list that are objects.
    fn objects(self, list: usize) -> impl Iterator<Item = usize> + 't {
        let tape = self.tape;
        tape.children(list)
            .filter(move |node| tape.value(*node).is_object())
    }

    fn array_objects(self, node: usize, name: Name) -> impl Iterator<Item = usize> + 't {
        let list = self.tape.array(node, name);
        list.into_iter().flat_map(move |list| self.objects(list))
    }

    /// The choice with `index` 0, else the first.
    fn choice(self) -> Option<usize> {
        let list = self.list(Shape::Choices)?;
        let is_first = |node: &usize| {
            let index = self.tape.member(*node, Name::Index);
            index.is_integer() && index.as_i64() == Some(0)
        };
        self.objects(list)
            .find(is_first)
            .or_else(|| self.objects(list).next())
    }

    fn message(self, choice: usize) -> Option<usize> {
        let message = self.tape.get(choice, Name::Message)?;
        self.tape.value(message).is_object().then_some(message)
    }

    /// Why the model stopped.
    #[must_use]
    pub fn finish_reason(self) -> Option<Raw<'a>> {
        self.string(Name::StopReason)
            .or_else(|| string(self.tape.member(self.choice()?, Name::FinishReason)))
            .or_else(|| {
                let details = self.object(Name::IncompleteDetails)?;
                string(self.tape.member(details, Name::Reason))
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
                .filter(|item| tape.member(*item, Name::Type).is_str("function_call"))
                .map(|item| {
                    let call_id = tape.member(item, Name::CallId);
                    let id = if is_empty(call_id) {
                        tape.member(item, Name::Id)
                    } else {
                        call_id
                    };
                    tool_call(
                        id,
                        tape.member(item, Name::Name),
                        arguments(tape.member(item, Name::Arguments)),
                    )
                })
                .collect(),
            Shape::Choices => self
                .objects(list)
                .filter_map(|choice| self.message(choice))
                .flat_map(|message| self.array_objects(message, Name::ToolCalls))
                .map(|call| {
                    let function = tape.get(call, Name::Function);
                    let field = |name| function.map_or(Raw::NULL, |node| tape.member(node, name));
                    tool_call(
                        tape.member(call, Name::Id),
                        field(Name::Name),
                        arguments(field(Name::Arguments)),
                    )
                })
                .collect(),
            Shape::Content => self
                .tool_uses(list)
                .map(|block| {
                    let input = tape.member(block, Name::Input);
                    let input = if is_empty(input) {
                        Value::Object(Vec::new())
                    } else {
                        Value::Raw(input)
                    };
                    tool_call(
                        tape.member(block, Name::Id),
                        tape.member(block, Name::Name),
                        input,
                    )
                })
                .collect(),
        }
    }

    fn tool_uses(self, content: usize) -> impl Iterator<Item = usize> + 't {
        let tape = self.tape;
        self.objects(content)
            .filter(move |block| tape.member(*block, Name::Type).is_str("tool_use"))
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
                Shape::Output if tape.member(node, Name::Type).is_str("reasoning") => {
                    let summary: Vec<_> = self
                        .array_objects(node, Name::Summary)
                        .map(|part| tape.member(part, Name::Text))
                        .filter(|text| text.kind() == Kind::String)
                        .collect();
                    if summary.is_empty() {
                        self.array_objects(node, Name::Content)
                            .filter(|part| tape.member(*part, Name::Type).is_str("reasoning_text"))
                            .for_each(|part| take(tape.member(part, Name::Text)));
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
                    let kind = tape.member(node, Name::Type);
                    if kind.is_str("thinking") || kind.is_str("redacted_thinking") {
                        take(tape.member(node, Name::Thinking));
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
        let [first, second] = REASONING_NAMES.map(|name| self.tape.member(message, name));
        if is_empty(first) { second } else { first }
    }

    /// The decision, where the response holds its dialect's list.
    pub fn decision(
        self,
        dialect: Option<Raw<'_>>,
        parts: &mut Parts<'_, 'a>,
        shared: &mut Interner<'a>,
    ) -> Option<Decision<'a>> {
        let (shape, list) = match Shape::of_dialect(dialect) {
            Some(shape) => (shape, self.list(shape)?),
            None => self.shape()?,
        };
        Some(match shape {
            Shape::Output => Decision::Output(
                self.objects(list)
                    .map(|node| (parts.intern(node, shared), self.item(node)))
                    .collect(),
            ),
            Shape::Choices => self.chosen(parts, shared),
            Shape::Content => Decision::Blocks {
                content: parts.list(list, shared),
                tool_uses: self.tool_uses(list).count(),
            },
        })
    }

    fn item(self, node: usize) -> Item {
        let kind = self.tape.member(node, Name::Type);
        item_kind(kind, self.tape.member(node, Name::Role))
    }

    fn chosen(self, parts: &mut Parts<'_, 'a>, shared: &mut Interner<'a>) -> Decision<'a> {
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
        let whole = parts.intern(message, shared);
        let reasons = REASONING_NAMES
            .iter()
            .any(|name| self.tape.get(message, *name).is_some());
        let answer = if reasons {
            shared.add(Blob::WithoutReasoning(whole))
        } else {
            whole
        };
        Decision::Choice {
            answer: Value::Shared(answer),
            reasoning: Value::Raw(self.chat_reasoning(message)),
            tool_calls: self.array_objects(message, Name::ToolCalls).count(),
        }
    }
}

fn string(raw: Raw<'_>) -> Option<Raw<'_>> {
    (raw.kind() == Kind::String).then_some(raw)
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
            Some(Cow::Borrowed(text)) => match json::parse_str(text) {
                Ok(value) => Value::Raw(value),
                Err(_) => Value::object([("_raw", Value::Raw(raw))]),
            },
            Some(Cow::Owned(text)) => match json::parse_str(&text) {
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
