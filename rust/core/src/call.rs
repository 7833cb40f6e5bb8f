//! A call record: what is derived from one exchange (contract, section 4).

use std::borrow::Cow;
use std::sync::Arc;

use crate::json::Raw;
use crate::usage::Usage;
use crate::value::Value;

/// Which model server a call went to: `{"type": "responses_api_models", "name": ...}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelRef<'a> {
    /// The server's name.
    pub name: Cow<'a, str>,
}

impl<'a> ModelRef<'a> {
    /// The one type a reference has.
    pub const TYPE: &'static str = "responses_api_models";

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
    /// The model's name.
    pub model: Option<Cow<'a, str>>,
    /// `responses`, `chat`, `messages`, or one we do not know.
    pub dialect: Option<Cow<'a, str>>,
    /// HTTP status as the client saw it.
    pub status_code: Option<Raw<'a>>,
    /// `response.status`
    pub response_status: Option<Cow<'a, str>>,
    /// Why the model stopped.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Whether the call was sent on.
    pub upstream_attempted: Option<bool>,
    /// `upstream` or `local`
    pub response_source: Option<Cow<'a, str>>,
    /// HTTP status of the server behind.
    pub upstream_status_code: Option<Raw<'a>>,
    /// Why the server answered itself.
    pub local_response_reason: Option<Cow<'a, str>>,
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
    pub error_category: Option<Cow<'a, str>>,
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
}
