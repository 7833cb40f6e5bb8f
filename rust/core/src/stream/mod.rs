//! Streamed bodies into the response they add up to (contract, section 14).
//!
//! [`Assembler`] takes a body chunk by chunk, [`assemble`] whole. Neither fails on any
//! bytes, and where the chunks are cut makes no difference to what comes out.

mod chat;
mod delta;
mod items;
mod messages;
mod parse;
mod repair;
mod repair_file;
mod reported;
mod responses;
mod rope;
mod rules;
mod source;
mod sse;
mod text;
mod value;

use chat::Chat;
use messages::Messages;
use parse::{glance, parse_event};
use responses::Responses;

pub use parse::{MAX_DEPTH, Strictness, parse};
pub use repair::{Record, Verdict, repair_line};
pub use repair_file::{Report, repair_file};
pub(crate) use rope::Out;
pub use rope::Rope;
pub use sse::{Decoder, Event};
pub(crate) use text::escape;
pub use text::{Key, Text};
pub use value::{Object, Value};

/// Whether an event carried content, reasoning, a refusal or a tool call.
type Said = bool;

/// The API whose events a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Chat,
    Messages,
    Responses,
}

impl Dialect {
    /// The dialect of that name in an exchange (contract, section 3).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "chat" => Some(Self::Chat),
            "messages" => Some(Self::Messages),
            "responses" => Some(Self::Responses),
            _ => None,
        }
    }

    /// The dialect that an event is of, told by its shape.
    fn of(kind: &str, event: &Object) -> Option<Self> {
        if kind.starts_with("response.") {
            Some(Self::Responses)
        } else if kind.starts_with("message_") || kind.starts_with("content_block_") {
            Some(Self::Messages)
        } else if event.get("choices").is_some() {
            Some(Self::Chat)
        } else {
            None
        }
    }
}

/// What one chunk brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The body's first content, reasoning, refusal or tool call is in this chunk.
    pub first_token: bool,
    /// The body's first terminal event is in this chunk: the offset in the chunk at which
    /// the event starts, 0 where it began in an earlier one.
    pub terminal_offset: Option<usize>,
}

/// What a body added up to.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// The response as compact strict JSON; `None` where nothing of one came.
    pub response: Option<Rope>,
    /// Why the call does not count as clean (contract, sections 3 and 14).
    pub error_category: Option<&'static str>,
}

/// A streamed body under assembly.
#[derive(Debug)]
pub struct Assembler {
    decoder: Decoder,
    state: State,
    said: bool,
    terminal: bool,
    consumed: u64,
}

#[derive(Debug)]
struct State {
    body: Body,
    /// What error events said.
    error: Option<Object>,
    incomplete: bool,
    cancelled: bool,
    /// Some event's data was not JSON.
    unreadable: bool,
}

#[derive(Debug)]
enum Body {
    /// Nothing has told the dialect yet.
    Unknown,
    Chat(Chat),
    Messages(Messages),
    Responses(Box<Responses>),
}

impl From<Dialect> for Body {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Chat => Self::Chat(Chat::default()),
            Dialect::Messages => Self::Messages(Messages::default()),
            Dialect::Responses => Self::Responses(Box::default()),
        }
    }
}

/// Assembles a whole body.
#[must_use]
pub fn assemble(dialect: Option<Dialect>, body: &[u8], status_code: Option<i64>) -> Assembled {
    let mut assembler = Assembler::new(dialect);
    assembler.feed(body);
    assembler.finish(status_code)
}

impl Assembler {
    /// An assembler; without a dialect the first event that has a known shape decides.
    #[must_use]
    pub fn new(dialect: Option<Dialect>) -> Self {
        Self {
            decoder: Decoder::default(),
            state: State {
                body: dialect.map_or(Body::Unknown, Body::from),
                error: None,
                incomplete: false,
                cancelled: false,
                unreadable: false,
            },
            said: false,
            terminal: false,
            consumed: 0,
        }
    }

    /// Takes the body's next chunk.
    pub fn feed(&mut self, chunk: &[u8]) -> Progress {
        let Self {
            decoder,
            state,
            said: said_before,
            terminal: ended_before,
            consumed,
        } = self;
        let mut said = false;
        let mut terminal = None;
        decoder.feed(chunk, |event, start| {
            let effect = state.event(event);
            said |= effect.said;
            if effect.terminal {
                terminal.get_or_insert(start);
            }
        });
        // A client that reads line by line acts on a terminal event's data line; its blank
        // line may come a chunk later.
        if terminal.is_none()
            && !*ended_before
            && let Some((event, start)) = decoder.first_line()
            && may_be_terminal(event)
        {
            terminal = ending_of(event).0.then_some(start);
        }
        let progress = Progress {
            first_token: said && !*said_before,
            terminal_offset: terminal
                .filter(|_| !*ended_before)
                .map(|start| usize::try_from(start.saturating_sub(*consumed)).unwrap_or(0)),
        };
        *said_before |= said;
        *ended_before |= terminal.is_some();
        *consumed += chunk.len() as u64;
        progress
    }

    /// What is left where the body may be kept no more: its error category, if it has ended,
    /// else what still finds its end.
    pub(crate) fn give_up(self) -> Result<Option<&'static str>, Box<Decoder>> {
        if self.terminal {
            Ok(self.finish(None).error_category)
        } else {
            let mut decoder = self.decoder;
            decoder.keep_beginnings();
            Err(Box::new(decoder))
        }
    }

    /// Ends the body. `status_code` is the HTTP status, where there was one.
    #[must_use]
    pub fn finish(mut self, status_code: Option<i64>) -> Assembled {
        let state = &mut self.state;
        self.decoder.finish(|event, _| {
            state.event(event);
        });
        self.state.finish(status_code)
    }
}

#[derive(Clone, Copy, Default)]
struct Effect {
    said: Said,
    terminal: bool,
}

impl State {
    fn event(&mut self, event: Event) -> Effect {
        if is_done_mark(&event.data) {
            match &mut self.body {
                Body::Chat(chat) => chat.done(),
                Body::Messages(messages) => messages.done(),
                // It ends no response: nothing has said its status.
                Body::Responses(_) | Body::Unknown => {}
            }
            return Effect {
                said: false,
                terminal: true,
            };
        }
        let Event { name, data } = event;
        let data = match parse_event(data) {
            Ok(value) => return self.value(&name, value),
            Err(data) => data.into_vec(),
        };
        if name == b"error" {
            let text = Value::String(Text::from(&*data));
            self.error(&[("message", text)].into_iter().collect());
            return Effect {
                said: false,
                terminal: true,
            };
        }
        // Servers that forget the blank line between events: each data line is one.
        let mut effect = Effect::default();
        let mut lines = data.split(|&byte| byte == b'\n').peekable();
        let first = lines.next();
        if lines.peek().is_none() {
            self.unreadable = true;
            return effect;
        }
        for line in first.into_iter().chain(lines) {
            let mut data = Rope::default();
            data.push(line);
            let part = self.event(Event {
                name: name.clone(),
                data,
            });
            effect.said |= part.said;
            effect.terminal |= part.terminal;
        }
        effect
    }

    fn value(&mut self, name: &[u8], value: Value) -> Effect {
        let Value::Object(mut event) = value else {
            // JSON, but nothing that any dialect sends.
            self.unreadable |= value.says_something();
            return Effect::default();
        };
        let kind = kind_of(name, &event).to_owned();
        let is_error = is_error(name, &kind, &event);
        if is_error {
            self.error(&event);
            if event.get("choices").is_none() {
                return Effect {
                    said: false,
                    terminal: true,
                };
            }
            event.remove("error");
        }
        if let Body::Unknown = self.body {
            match Dialect::of(&kind, &event) {
                Some(dialect) => self.body = dialect.into(),
                None => {
                    return Effect {
                        said: false,
                        terminal: is_error,
                    };
                }
            }
        }
        let terminal = is_error || is_terminal(&kind);
        self.incomplete |= kind == "response.incomplete";
        self.cancelled |= matches!(kind.as_str(), "response.cancelled" | "response.canceled");
        if kind == "response.failed" && self.error.is_none() {
            self.error = Some(Object::default());
        }
        let said = match &mut self.body {
            Body::Unknown => false,
            Body::Chat(chat) => chat.chunk(event),
            Body::Messages(messages) => messages.event(&kind, event),
            Body::Responses(responses) => responses.event(&kind, event),
        };
        Effect { said, terminal }
    }

    /// Keeps what an error event says: the first that says anything.
    fn error(&mut self, event: &Object) {
        if self.error.as_ref().is_none_or(Object::is_empty) {
            let mut error = event.clone();
            error.remove("choices");
            self.error = Some(error);
        }
    }

    fn finish(self, status_code: Option<i64>) -> Assembled {
        let Self {
            body,
            error,
            incomplete,
            cancelled,
            unreadable,
        } = self;
        let failed = error.is_some();
        let (complete, response) = match body {
            Body::Unknown => (false, None),
            Body::Chat(chat) => (chat.is_complete(), chat.finish()),
            Body::Messages(messages) => (messages.is_complete(), messages.finish()),
            Body::Responses(responses) => (responses.is_complete(), responses.finish(failed)),
        };
        let response = match (response, error.filter(|error| !error.is_empty())) {
            (Some(mut response), Some(mut event)) => {
                if !response.has("error") {
                    // An error event has its error inside, but that of the Responses API,
                    // which is its error.
                    let error = event.remove("error").filter(Value::says_something);
                    event.remove("type");
                    event.remove("sequence_number");
                    response.set("error", error.unwrap_or(Value::Object(event)));
                }
                Some(response)
            }
            (None, Some(event)) => Some(event),
            (response, None) => response,
        };
        let error_category = match status_code {
            Some(status) if !(200..300).contains(&status) => category_of_status(status),
            _ if failed => Some("upstream_error"),
            _ if cancelled => Some("cancelled"),
            _ if incomplete => Some("incomplete"),
            _ if !complete => Some("stream_truncated"),
            _ if unreadable => Some("capture_parse_error"),
            _ => None,
        };
        Assembled {
            response: response.map(|response| Value::Object(response).into_json()),
            error_category,
        }
    }
}

/// The error category of a status that is no success.
pub(crate) fn category_of_status(status: i64) -> Option<&'static str> {
    match status {
        408 | 504 => Some("timeout"),
        429 => Some("rate_limit"),
        401 | 403 => Some("auth"),
        404 => Some("not_found"),
        400..500 => Some("client_error"),
        500.. => Some("upstream_error"),
        _ => None,
    }
}

fn is_done_mark(data: &Rope) -> bool {
    let data = data.first().trim_ascii_start();
    data.strip_prefix(b"\"")
        .unwrap_or(data)
        .starts_with(b"[DONE]")
}

/// An event's type: what its data says, else what its `event` field says.
fn kind_of<'a>(name: &'a [u8], event: &'a Object) -> &'a str {
    event
        .str("type")
        .or_else(|| std::str::from_utf8(name).ok())
        .unwrap_or_default()
}

fn is_error(name: &[u8], kind: &str, event: &Object) -> bool {
    matches!(kind, "error" | "response.error")
        || name == b"error"
        // A step of a responses stream may tell of a tool's error.
        || (event.has("error") && !kind.starts_with("response."))
        || (event.str("object") == Some("error") && event.get("choices").is_none())
}

/// Whether an event of this type ends a stream; `[DONE]` and errors are told apart.
fn is_terminal(kind: &str) -> bool {
    matches!(
        kind,
        "message_stop"
            | "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.canceled"
    )
}

/// A look at an event's bytes that spares parsing most of them.
fn may_be_terminal(event: &Event) -> bool {
    const ENDS: [&[u8]; 6] = [
        b"\"error\"",
        b"message_stop",
        b"response.completed",
        b"response.incomplete",
        b"response.failed",
        b"response.cancel",
    ];
    let finds = |needle: &[u8]| memchr::memmem::find(event.data.first(), needle).is_some();
    event.data.is_long()
        || is_done_mark(&event.data)
        || event.name == b"error"
        || std::str::from_utf8(&event.name).is_ok_and(is_terminal)
        || ENDS.iter().any(|end| finds(end))
}

/// Whether an event ends a stream, and with which error category. The data's end may be
/// missing.
pub(crate) fn ending_of(event: &Event) -> (bool, Option<&'static str>) {
    if is_done_mark(&event.data) {
        return (true, None);
    }
    let object = glance(&event.data, &["type", "error", "object", "choices"]);
    let kind = kind_of(&event.name, &object);
    if is_error(&event.name, kind, &object) {
        return (true, Some("upstream_error"));
    }
    let category = match kind {
        "response.incomplete" => Some("incomplete"),
        "response.failed" => Some("upstream_error"),
        "response.cancelled" | "response.canceled" => Some("cancelled"),
        _ => None,
    };
    (is_terminal(kind), category)
}

/// Whether an event of a type we do not know says more than what it is about.
fn carries_content(event: &Object) -> bool {
    event.iter().any(|(key, value)| {
        let about = std::str::from_utf8(key.as_bytes()).is_ok_and(|key| {
            key == "type"
                || key == "id"
                || key == "obfuscation"
                || key == "sequence_number"
                || key == "status"
                || key.ends_with("_id")
                || key.ends_with("index")
        });
        !about && value.says_something()
    })
}

#[cfg(test)]
mod tests;
