//! A call record: what is derived from one exchange (contract, section 4).

use std::borrow::Cow;
use std::sync::Arc;

use crate::content::{Decision, Response};
use crate::exchange::{Exchange, ScanState};
use crate::intern::{Interner, SharedId};
use crate::json::{Kind, MAX_RECORD_DEPTH, Raw, Scanner, Tape, next_delimiter};
use crate::names::Name;
use crate::observe::Reference;
use crate::parts::Parts;
use crate::usage::{Count, Usage};
use crate::value::{Key, Members, Value};

/// Which model server a call went to: `{"type": "responses_api_models", "name": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelRef<'a> {
    /// The server's name.
    pub name: Cow<'a, str>,
}

impl<'a> ModelRef<'a> {
    /// The one type a reference has.
    pub const TYPE: &'static str = "responses_api_models";

    /// The name, a string without escapes, of a reference that is written as we do it.
    pub(crate) fn plain(raw: Raw<'a>) -> Option<Raw<'a>> {
        const HEAD: &[u8] = br#"{"type":"responses_api_models","name":"#;
        let name = raw.bytes().strip_prefix(HEAD)?.strip_suffix(b"}")?;
        let is_one = name.len() > 1 && next_delimiter(name, 1) == name.len() - 1;
        (is_one && name[0] == b'"' && name.ends_with(b"\"")).then(|| Raw::new(name))
    }

    /// The reference as it stands in records.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        Value::object([
            ("type", Value::Str(Cow::Borrowed(Self::TYPE))),
            ("name", Value::Str(self.name.clone())),
        ])
    }
}

/// A body that is an object: its text, and its parts with the distinct ones shared.
#[derive(Clone, Debug)]
pub struct Payload<'a> {
    /// The text as it was read.
    pub raw: Raw<'a>,
    /// The members.
    pub parts: Arc<Value<'a>>,
}

impl<'a> Payload<'a> {
    /// The body as it stands in records.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        Value::Parted(self.raw, Arc::clone(&self.parts))
    }
}

/// A time or duration that can be: a negative one is unknown, and costs nothing else.
#[must_use]
pub fn amount(raw: Option<Raw<'_>>) -> Option<Raw<'_>> {
    // Without a sign, and short of what a double cannot hold, nothing needs to be computed.
    raw.filter(|raw| match raw.bytes() {
        [b'0'..=b'9', ..] if raw.bytes().len() < 300 => true,
        _ => raw.as_f64().is_some_and(|n| n.is_finite() && n >= 0.0),
    })
}

/// One captured call.
#[derive(Clone, Debug, Default)]
pub struct CallRecord<'a> {
    /// The call's own id; null for a duplicate that differs.
    pub model_call_id: Option<Cow<'a, str>>,
    /// `response.id`
    pub response_id: Option<Cow<'a, str>>,
    /// The session the client named.
    pub client_session_id: Option<Cow<'a, str>>,
    /// The line's number among the capture's records.
    pub call_index: i64,
    /// The model server.
    pub model_ref: Option<ModelRef<'a>>,
    /// The call's id, its model server and its response's id as they came, where they did.
    pub came_as: [Option<Raw<'a>>; 3],
    /// The model's name: a string, as all of these.
    pub model: Option<Raw<'a>>,
    /// `responses`, `chat`, `messages`, or one we do not know.
    pub dialect: Option<Raw<'a>>,
    /// HTTP status as the client saw it.
    pub status_code: Option<Raw<'a>>,
    /// `response.status`
    pub response_status: Option<Raw<'a>>,
    /// Why the model stopped.
    pub finish_reason: Option<Raw<'a>>,
    /// Whether the call was sent on.
    pub upstream_attempted: Option<bool>,
    /// `upstream` or `local`
    pub response_source: Option<Raw<'a>>,
    /// HTTP status of the server behind.
    pub upstream_status_code: Option<Raw<'a>>,
    /// Why the server answered itself.
    pub local_response_reason: Option<Raw<'a>>,
    /// Unix seconds.
    pub started_at: Option<Raw<'a>>,
    /// Unix seconds.
    pub completed_at: Option<Raw<'a>>,
    /// Token counts.
    pub usage: Usage,
    /// Milliseconds.
    pub latency_total_ms: Option<Raw<'a>>,
    /// Milliseconds to the first token.
    pub latency_ttft_ms: Option<Raw<'a>>,
    /// What went wrong.
    pub error_category: Option<Raw<'a>>,
    /// The request, where it is an object.
    pub request: Option<Payload<'a>>,
    /// The response, where it is an object.
    pub response: Option<Payload<'a>>,
    /// The last entry of the request's `messages` or `input`.
    pub last_message: Option<Raw<'a>>,
    /// The text of a request body that is no object: a string.
    pub request_raw: Option<Raw<'a>>,
    /// The text of a response body that is no object, or of a stream: a string.
    pub response_raw: Option<Raw<'a>>,
    /// The tool calls as records show them.
    pub tool_calls: Vec<Value<'a>>,
    /// The reasoning as one text.
    pub reasoning_content: Option<Value<'a>>,
    /// The model's decision, where the response holds one.
    pub decision: Option<Decision<'a>>,
}

impl<'a> CallRecord<'a> {
    /// Derives the record of an exchange; `tape` is the one it was scanned onto.
    #[must_use]
    pub fn derive(
        call_index: i64,
        exchange: &mut Exchange<'a>,
        tape: &Tape<'a, Name>,
        shared: &mut Interner<'a>,
    ) -> Self {
        let text = |raw: Option<Raw<'a>>| raw.and_then(Raw::as_str);
        let string = |raw: Option<Raw<'a>>| raw.filter(|raw| raw.kind() == Kind::String);
        let mut record = Self {
            model_call_id: text(exchange.model_call_id),
            client_session_id: text(exchange.client_session_id),
            call_index,
            model_ref: exchange.model_name.take().map(|name| ModelRef { name }),
            came_as: [
                exchange.model_call_id,
                exchange
                    .model_ref
                    .filter(|raw| ModelRef::plain(*raw).is_some()),
                None,
            ],
            dialect: string(exchange.dialect),
            status_code: exchange.status_code,
            upstream_attempted: exchange.upstream_attempted.and_then(Raw::as_bool),
            response_source: string(exchange.response_source),
            upstream_status_code: exchange.upstream_status_code,
            local_response_reason: string(exchange.local_response_reason),
            started_at: exchange.started_at,
            completed_at: exchange.completed_at,
            latency_total_ms: exchange.latency_ms,
            latency_ttft_ms: exchange.latency_ttft_ms,
            error_category: string(exchange.error_category),
            request_raw: string(exchange.request_raw),
            response_raw: string(exchange.response_raw),
            ..Self::default()
        };
        let mut asked_model = None;
        if let Some(request) = &mut exchange.request {
            let parts = std::mem::take(&mut request.parts);
            asked_model = string(member(&parts, "model", shared));
            record.last_message = last_message(&parts, shared);
            record.request = Some(Payload {
                raw: request.raw,
                parts: Arc::new(Value::Object(parts)),
            });
        }
        record.model = asked_model;
        if let Some(root) = exchange.response {
            let response = Response::new(tape, root);
            let model = response.member(Name::Model);
            if !model.is_null() && !model.is_str("") {
                record.model = string(Some(model));
            }
            record.came_as[2] = response.string(Name::Id);
            record.response_id = record.came_as[2].and_then(Raw::as_str);
            record.response_status = response.string(Name::Status);
            record.finish_reason = response.finish_reason();
            record.usage = response
                .object(Name::Usage)
                .map_or_else(Usage::default, |node| Usage::read(tape, node));
            record.tool_calls = response.tool_calls();
            record.reasoning_content = response.reasoning();
            let mut parts = Parts::new(tape);
            record.decision = response.decision(record.dialect, &mut parts, shared);
            let parts = Arc::new(Value::Object(parts.members(root, shared)));
            record.response = Some(Payload {
                raw: response.raw(),
                parts,
            });
        }
        record
    }

    /// Reads a call record that a result holds; what its bodies do not say (they may be
    /// withheld) is taken from the record. None where it is no call record.
    #[must_use]
    pub fn from_record(record: Raw<'a>, state: &mut ScanState<'a>) -> Option<Self> {
        let mut scanner = Scanner::with_max_depth(record.bytes(), MAX_RECORD_DEPTH);
        let mut exchange = Exchange::scan(&mut scanner, state).ok()?;
        if exchange.wrong_type().is_some() {
            return None;
        }
        let known = |key: &str| record.get(key).filter(|value| !value.is_null());
        let string = |key: &str| known(key).filter(|value| value.kind() == Kind::String);
        let count = |key: &str| std::str::from_utf8(known(key)?.bytes()).ok()?.parse().ok();
        let index = known("call_index").and_then(Raw::as_i64).unwrap_or(0);
        let call = Self::derive(index, &mut exchange, &state.tape, &mut state.shared);
        if let Some(request) = exchange.request.take() {
            state.histories.remember(request);
        }
        let [id, model_ref, response_id] = call.came_as;
        let response_id = string("response_id").or(response_id);
        Some(Self {
            response_id: response_id.and_then(Raw::as_str),
            came_as: [id, model_ref, response_id],
            model: string("model").or(call.model),
            response_status: string("response_status").or(call.response_status),
            finish_reason: string("finish_reason").or(call.finish_reason),
            latency_total_ms: known("latency_total_ms"),
            usage: Usage {
                tokens_in: count("tokens_in").or(call.usage.tokens_in),
                tokens_out: count("tokens_out").or(call.usage.tokens_out),
                tokens_reasoning: count("tokens_reasoning").or(call.usage.tokens_reasoning),
                tokens_total: count("tokens_total").or(call.usage.tokens_total),
                cached_tokens: count("cached_tokens").or(call.usage.cached_tokens),
                cache_creation_tokens: count("cache_creation_tokens")
                    .or(call.usage.cache_creation_tokens),
            },
            reasoning_content: string("reasoning_content")
                .map(Value::Raw)
                .or(call.reasoning_content),
            ..call
        })
    }

    /// The record as it stands in `ng_model_call_capture.calls`, in the contract's order
    /// of keys; without payloads the four bodies are absent. The tool calls and the reasoning
    /// move into it.
    #[must_use]
    pub fn take_value(&mut self, payloads: bool) -> Value<'a> {
        let session = Value::text(self.client_session_id.clone());
        let count = |count: Count| Value::int(count.and_then(|n| i128::try_from(n).ok()));
        let [id, model_ref, response_id] = self.names();
        let mut members = Members::with_capacity(32);
        let named = |(name, value)| (Key::Name(name), value);
        let known = [
            ("model_call_id", id),
            ("response_id", response_id),
            ("client_session_id", session),
            ("call_index", Value::Int(self.call_index.into())),
            ("model_ref", model_ref),
            ("model", Value::raw(self.model)),
            ("dialect", Value::raw(self.dialect)),
            ("status_code", Value::raw(self.status_code)),
            ("response_status", Value::raw(self.response_status)),
            ("finish_reason", Value::raw(self.finish_reason)),
            (
                "upstream_attempted",
                self.upstream_attempted.map_or(Value::Null, Value::Bool),
            ),
            ("response_source", Value::raw(self.response_source)),
            (
                "upstream_status_code",
                Value::raw(self.upstream_status_code),
            ),
            (
                "local_response_reason",
                Value::raw(self.local_response_reason),
            ),
            ("started_at", Value::raw(self.started_at)),
            ("completed_at", Value::raw(self.completed_at)),
            ("tokens_in", count(self.usage.tokens_in)),
            ("tokens_out", count(self.usage.tokens_out)),
            ("tokens_reasoning", count(self.usage.tokens_reasoning)),
            ("tokens_total", count(self.usage.tokens_total)),
        ];
        members.extend(known.map(named));
        if payloads {
            let body =
                |body: &Option<Payload<'a>>| body.as_ref().map_or(Value::Null, Payload::to_value);
            let bodies = [
                ("request", body(&self.request)),
                ("response", body(&self.response)),
                ("request_raw", Value::raw(self.request_raw)),
                ("response_raw", Value::raw(self.response_raw)),
            ];
            members.extend(bodies.map(named));
        }
        let derived = [
            (
                "tool_calls",
                Value::Array(std::mem::take(&mut self.tool_calls)),
            ),
            (
                "reasoning_content",
                self.reasoning_content.take().unwrap_or(Value::Null),
            ),
            (
                "cache_hit",
                self.usage
                    .cached_tokens
                    .map_or(Value::Null, |n| Value::Bool(n > 0)),
            ),
            ("cached_tokens", count(self.usage.cached_tokens)),
            (
                "cache_creation_tokens",
                count(self.usage.cache_creation_tokens),
            ),
            ("error_category", Value::raw(self.error_category)),
            ("latency_total_ms", Value::raw(self.latency_total_ms)),
            ("latency_ttft_ms", Value::raw(self.latency_ttft_ms)),
        ];
        members.extend(derived.map(named));
        Value::Object(members)
    }

    /// Whether the call's id, its model server and its response's id can be written as they
    /// came.
    fn is_named_as_it_came(&self) -> bool {
        let known = [
            self.model_call_id.is_some(),
            self.model_ref.is_some(),
            self.response_id.is_some(),
        ];
        known == self.came_as.map(|raw| raw.is_some())
    }

    /// The call's id, its model server and its response's id.
    #[must_use]
    pub fn names(&self) -> [Value<'a>; 3] {
        if self.is_named_as_it_came() {
            return self.came_as.map(Value::raw);
        }
        let model_ref = self.model_ref.as_ref();
        [
            Value::text(self.model_call_id.clone()),
            model_ref.map_or(Value::Null, ModelRef::to_value),
            Value::text(self.response_id.clone()),
        ]
    }

    /// The full reference to this call.
    #[must_use]
    pub fn reference(&self) -> Reference<'a> {
        Reference {
            came_as: self.is_named_as_it_came().then_some(self.came_as),
            model_call_id: self.model_call_id.clone(),
            model_ref: self.model_ref.clone(),
            response_id: self.response_id.clone(),
            ..Reference::default()
        }
    }

    /// A member of the request, where there is a request.
    #[must_use]
    pub fn asked(&self, key: &str) -> Option<&Value<'a>> {
        match &*self.request.as_ref()?.parts {
            Value::Object(members) => find(members, key),
            _ => None,
        }
    }

    /// Drops the bodies (contract, section 13).
    pub fn withhold_payloads(&mut self) {
        self.request = None;
        self.response = None;
        self.request_raw = None;
        self.response_raw = None;
        self.last_message = None;
        self.decision = None;
    }
}

fn find<'v, 'a>(members: &'v Members<'a>, key: &str) -> Option<&'v Value<'a>> {
    members
        .iter()
        .find(|(name, _)| name.is(key))
        .map(|(_, value)| value)
}

fn member<'a>(members: &Members<'a>, key: &str, shared: &Interner<'a>) -> Option<Raw<'a>> {
    match find(members, key)? {
        Value::Raw(raw) => Some(*raw),
        Value::Shared(id) => shared.raw(*id),
        _ => None,
    }
}

/// The distinct messages of a request's list, as its parts hold them.
#[must_use]
pub fn list_ids<'v>(value: &'v Value<'_>) -> Option<&'v Arc<[SharedId]>> {
    match value {
        Value::Parted(_, parts) => match &**parts {
            Value::SharedList(ids) => Some(ids),
            _ => None,
        },
        _ => None,
    }
}

fn last_message<'a>(parts: &Members<'a>, shared: &Interner<'a>) -> Option<Raw<'a>> {
    let list = ["messages", "input"]
        .iter()
        .find_map(|key| list_ids(find(parts, key)?))?;
    shared.raw(*list.last()?)
}
