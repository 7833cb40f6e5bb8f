//! The line of an exchange, put together from what the recorder knows and the bodies'
//! own bytes: no body is built as values to be written.

use std::borrow::Cow;

use super::body::{Body, Parsed, Stream, escaped};
use crate::json::{write_f64, write_int, write_str};
use crate::stream::{Assembled, Dialect, Rope, assemble, category_of_status};

/// What a recorder knows of a call besides its bodies (contract, section 3).
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    pub model_call_id: &'a str,
    pub dialect: &'a str,
    /// The `name` in `model_ref`; no name, no reference.
    pub server_name: Option<&'a str>,
    /// Unix seconds.
    pub started_at: f64,
    pub completed_at: f64,
    pub latency_ms: f64,
    pub latency_ttft_ms: Option<f64>,
    pub status_code: Option<i64>,
    /// What went wrong beyond what status and body say (an exception, a client gone).
    pub error_category: Option<&'a str>,
    pub client_session_id: Option<&'a str>,
    pub upstream_attempted: Option<bool>,
    /// `upstream` or `local`.
    pub response_source: Option<&'a str>,
    pub upstream_status_code: Option<i64>,
    pub local_response_reason: Option<&'a str>,
}

/// The response's body, whichever way it came.
#[derive(Debug)]
pub enum Response {
    Whole(Body),
    Stream(Box<Stream>),
}

/// A composed line, in parts that are written one after the other.
#[derive(Debug)]
pub struct Line(Vec<Cow<'static, [u8]>>);

impl Line {
    #[must_use]
    pub fn parts(&self) -> Vec<&[u8]> {
        self.0.iter().map(AsRef::as_ref).collect()
    }

    #[must_use]
    pub fn joined(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// One side of the exchange, ready to be written.
#[derive(Default)]
struct Side {
    object: Option<Rope>,
    /// The inside of a JSON string.
    raw: Option<Rope>,
    cut: bool,
    category: Option<&'static str>,
}

impl Side {
    fn of(parsed: Parsed) -> Self {
        let raw = |text: Vec<u8>| Some(escaped(&text));
        match parsed {
            Parsed::Empty => Self::default(),
            Parsed::Object(json) => Self {
                object: Some(json.into()),
                ..Self::default()
            },
            Parsed::Mended(json, text) => Self {
                object: Some(json.into()),
                raw: raw(text),
                ..Self::default()
            },
            Parsed::Other(text) => Self {
                raw: raw(text),
                category: Some("capture_parse_error"),
                ..Self::default()
            },
            Parsed::Cut(text) => Self {
                raw: raw(text),
                cut: true,
                ..Self::default()
            },
        }
    }
}

/// Composes the line of a call that has ended.
#[must_use]
pub fn compose(facts: &Facts<'_>, request: Body, response: Response) -> Line {
    let request = Side::of(request.parsed());
    let response = response_side(facts, response);
    // A redirect's page is no model's answer that could not be read.
    let success = facts
        .status_code
        .is_none_or(|status| (200..300).contains(&status));
    // What happened to the call says more than what its cut-off body looks like; a status
    // that is no success says more than either.
    let category = facts
        .status_code
        .and_then(category_of_status)
        .or(facts.error_category)
        .or(response.category.filter(|_| success));
    let mut line = Parts::default();
    line.head(facts, category);
    line.text(b",\"request\":");
    line.value(request.object);
    line.text(b",\"response\":");
    line.value(response.object);
    line.optional_str("client_session_id", facts.client_session_id);
    line.raw("request_raw", request.raw);
    line.raw("response_raw", response.raw);
    if let Some(attempted) = facts.upstream_attempted {
        line.key("upstream_attempted");
        line.text(if attempted { b"true" } else { b"false" });
    }
    line.optional_str("response_source", facts.response_source);
    if let Some(status) = facts.upstream_status_code {
        line.key("upstream_status_code");
        write_int(&mut line.open, status.into());
    }
    line.optional_str("local_response_reason", facts.local_response_reason);
    match (request.cut, response.cut) {
        (false, false) => {}
        (true, false) => line.text(br#","truncated":["request"]"#),
        (false, true) => line.text(br#","truncated":["response"]"#),
        (true, true) => line.text(br#","truncated":["request","response"]"#),
    }
    line.text(b"}");
    line.finish()
}

fn response_side(facts: &Facts<'_>, response: Response) -> Side {
    let whole = match response {
        Response::Stream(stream) => {
            let cut = stream.is_cut();
            let (raw, assembled) = stream.finish(facts.status_code);
            return stream_side(raw, assembled, cut);
        }
        Response::Whole(body) => body.parsed(),
    };
    match whole {
        // An event stream that its content type did not announce.
        Parsed::Other(text) if begins_as_stream(&text) => {
            let dialect = Dialect::from_name(facts.dialect);
            let assembled = assemble(dialect, &text, facts.status_code);
            stream_side(escaped(&text), assembled, false)
        }
        parsed => Side::of(parsed),
    }
}

fn stream_side(raw: Rope, assembled: Assembled, cut: bool) -> Side {
    Side {
        object: assembled.response,
        raw: (!raw.is_empty()).then_some(raw),
        cut,
        category: assembled.error_category,
    }
}

fn begins_as_stream(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    [&b"data:"[..], b"event:", b"id:", b"retry:", b":"]
        .into_iter()
        .any(|field| text.starts_with(field))
}

#[derive(Default)]
struct Parts {
    done: Vec<Cow<'static, [u8]>>,
    open: Vec<u8>,
}

impl Parts {
    fn head(&mut self, facts: &Facts<'_>, category: Option<&str>) {
        self.text(b"{\"model_call_id\":");
        write_str(&mut self.open, facts.model_call_id);
        self.key("dialect");
        write_str(&mut self.open, facts.dialect);
        self.key("model_ref");
        match facts.server_name {
            Some(name) => {
                self.text(b"{\"type\":\"responses_api_models\",\"name\":");
                write_str(&mut self.open, name);
                self.text(b"}");
            }
            None => self.text(b"null"),
        }
        self.number("started_at", Some(facts.started_at));
        self.number("completed_at", Some(facts.completed_at));
        self.number("latency_ms", Some(facts.latency_ms));
        self.number("latency_ttft_ms", facts.latency_ttft_ms);
        self.key("status_code");
        match facts.status_code {
            Some(status) => write_int(&mut self.open, status.into()),
            None => self.text(b"null"),
        }
        self.key("error_category");
        match category {
            Some(category) => write_str(&mut self.open, category),
            None => self.text(b"null"),
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.open.extend_from_slice(text);
    }

    fn key(&mut self, key: &str) {
        self.text(b",\"");
        self.text(key.as_bytes());
        self.text(b"\":");
    }

    fn number(&mut self, key: &str, number: Option<f64>) {
        self.key(key);
        write_f64(&mut self.open, number.unwrap_or(f64::NAN));
    }

    fn optional_str(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.key(key);
            write_str(&mut self.open, text);
        }
    }

    fn value(&mut self, json: Option<Rope>) {
        match json {
            Some(json) => self.part(json),
            None => self.text(b"null"),
        }
    }

    fn raw(&mut self, key: &str, escaped: Option<Rope>) {
        if let Some(escaped) = escaped {
            self.key(key);
            self.text(b"\"");
            self.part(escaped);
            self.text(b"\"");
        }
    }

    /// A body of its own stays where it is: the parts are written, not joined.
    fn part(&mut self, part: Rope) {
        self.done.push(std::mem::take(&mut self.open).into());
        self.done.extend(part.into_pieces().map(Cow::Owned));
    }

    fn finish(mut self) -> Line {
        self.done.push(self.open.into());
        Line(self.done)
    }
}
