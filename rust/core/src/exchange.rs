//! One exchange: an object of a capture file, as slices (contract, section 3).

use std::borrow::Cow;

use crate::call::ModelRef;
use crate::history::{Histories, Scanned, Utf8Mark};
use crate::intern::Interner;
use crate::json::{Fault, FaultKind, Kind, Raw, Scanner, Tape};
use crate::names::Name;

/// How deep a response is looked into: to the fields of a chat tool call's function.
const RESPONSE_LEVELS: usize = 8;

/// A capture record's fields as they came; null and missing are the same.
#[derive(Debug, Default)]
pub struct Exchange<'a> {
    /// The whole record's text.
    pub text: &'a [u8],
    /// `model_call_id`
    pub model_call_id: Option<Raw<'a>>,
    /// `dialect`
    pub dialect: Option<Raw<'a>>,
    /// `model_ref`
    pub model_ref: Option<Raw<'a>>,
    /// The name in it, where it has the one shape there is.
    pub model_name: Option<Cow<'a, str>>,
    /// `started_at`
    pub started_at: Option<Raw<'a>>,
    /// `completed_at`
    pub completed_at: Option<Raw<'a>>,
    /// `latency_ms`
    pub latency_ms: Option<Raw<'a>>,
    /// `latency_ttft_ms`
    pub latency_ttft_ms: Option<Raw<'a>>,
    /// `status_code`
    pub status_code: Option<Raw<'a>>,
    /// `error_category`
    pub error_category: Option<Raw<'a>>,
    /// `client_session_id`
    pub client_session_id: Option<Raw<'a>>,
    /// `request_raw`
    pub request_raw: Option<Raw<'a>>,
    /// `response_raw`
    pub response_raw: Option<Raw<'a>>,
    /// `upstream_attempted`
    pub upstream_attempted: Option<Raw<'a>>,
    /// `response_source`
    pub response_source: Option<Raw<'a>>,
    /// `upstream_status_code`
    pub upstream_status_code: Option<Raw<'a>>,
    /// `local_response_reason`
    pub local_response_reason: Option<Raw<'a>>,
    /// `request`, where it is an object.
    pub request: Option<Scanned<'a>>,
    /// `response`, where it is an object: its node on the tape.
    pub response: Option<usize>,
}

/// What scanning a rollout's records needs to remember from one to the next.
#[derive(Debug, Default)]
pub struct ScanState<'a> {
    /// The distinct values.
    pub shared: Interner<'a>,
    /// The conversations.
    pub histories: Histories<'a>,
    /// The structure of the response at hand.
    pub tape: Tape<'a, Name>,
    /// The last model reference, and the name in it.
    model_ref: Option<(Raw<'a>, Option<Cow<'a, str>>)>,
}

impl<'a> Exchange<'a> {
    /// Scans one record, an object, at the scanner's position.
    ///
    /// # Errors
    /// The first rule of strict JSON that it breaks.
    pub fn scan(scanner: &mut Scanner<'a>, state: &mut ScanState<'a>) -> Result<Self, Fault> {
        let start = scanner.pos();
        let mut exchange = Self::default();
        let mut utf8 = Utf8Mark(start);
        state.tape.clear();
        scanner.object(|scanner, key| {
            match scanner.name(key) {
                Name::Request if scanner.peek() == Some(b'{') => {
                    let request = state
                        .histories
                        .scan(scanner, &mut state.shared, &mut utf8)?;
                    exchange.request = Some(request);
                    return Ok(());
                }
                Name::Response if scanner.peek() == Some(b'{') => {
                    let node = state.tape.scan(scanner, RESPONSE_LEVELS)?;
                    exchange.response = Some(node);
                    return Ok(());
                }
                Name::Request => exchange.request = None,
                Name::Response => exchange.response = None,
                name => {
                    let value = scanner.value()?;
                    if let Some(field) = exchange.field(name) {
                        *field = (!value.is_null()).then_some(value);
                    }
                    return Ok(());
                }
            }
            scanner.value().map(|_| ())
        })?;
        utf8.finish(scanner)?;
        exchange.text = scanner.slice(start, scanner.pos());
        if let Some(raw) = exchange.model_ref {
            // Mostly the one of the record before.
            if state
                .model_ref
                .as_ref()
                .is_none_or(|(last, _)| *last != raw)
            {
                state.model_ref = Some((raw, model_ref_name(raw)));
            }
            exchange.model_name = state.model_ref.as_ref().and_then(|(_, name)| name.clone());
        }
        Ok(exchange)
    }

    fn field(&mut self, name: Name) -> Option<&mut Option<Raw<'a>>> {
        Some(match name {
            Name::ModelCallId => &mut self.model_call_id,
            Name::Dialect => &mut self.dialect,
            Name::ModelRef => &mut self.model_ref,
            Name::StartedAt => &mut self.started_at,
            Name::CompletedAt => &mut self.completed_at,
            Name::LatencyMs => &mut self.latency_ms,
            Name::LatencyTtftMs => &mut self.latency_ttft_ms,
            Name::StatusCode => &mut self.status_code,
            Name::ErrorCategory => &mut self.error_category,
            Name::ClientSessionId => &mut self.client_session_id,
            Name::RequestRaw => &mut self.request_raw,
            Name::ResponseRaw => &mut self.response_raw,
            Name::UpstreamAttempted => &mut self.upstream_attempted,
            Name::ResponseSource => &mut self.response_source,
            Name::UpstreamStatusCode => &mut self.upstream_status_code,
            Name::LocalResponseReason => &mut self.local_response_reason,
            _ => return None,
        })
    }

    /// The name of a field whose value has the wrong type, if any.
    #[must_use]
    pub fn wrong_type(&self) -> Option<&'static str> {
        let fits = |raw: Option<Raw<'a>>, fits: fn(Raw<'a>) -> bool| raw.is_none_or(fits);
        let string = |raw| fits(raw, |raw| raw.kind() == Kind::String);
        let number = |raw| fits(raw, |raw| raw.kind() == Kind::Number);
        let integer = |raw| fits(raw, Raw::is_integer);
        let source = |raw: Raw<'_>| raw.is_str("upstream") || raw.is_str("local");
        let checks = [
            ("model_call_id", string(self.model_call_id)),
            ("dialect", string(self.dialect)),
            (
                "model_ref",
                self.model_ref.is_none() || self.model_name.is_some(),
            ),
            ("started_at", number(self.started_at)),
            ("completed_at", number(self.completed_at)),
            ("latency_ms", number(self.latency_ms)),
            ("latency_ttft_ms", number(self.latency_ttft_ms)),
            ("status_code", integer(self.status_code)),
            ("error_category", string(self.error_category)),
            ("client_session_id", string(self.client_session_id)),
            (
                "upstream_attempted",
                fits(self.upstream_attempted, |raw| raw.as_bool().is_some()),
            ),
            ("response_source", fits(self.response_source, source)),
            ("local_response_reason", string(self.local_response_reason)),
            ("upstream_status_code", integer(self.upstream_status_code)),
        ];
        let wrong = checks.iter().find(|(_, fits)| !fits);
        wrong.map(|(name, _)| *name)
    }

    /// Whether it started before `not_before`, Unix seconds (contract, section 10).
    #[must_use]
    pub fn is_stale(&self, not_before: Option<f64>) -> bool {
        let started = self.started_at.and_then(Raw::as_f64);
        started
            .zip(not_before)
            .is_some_and(|(started, not_before)| started < not_before)
    }
}

/// The name in a model reference of the one shape there is.
#[must_use]
pub fn model_ref_name(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    if let Some(name) = ModelRef::plain(raw) {
        return name.as_str();
    }
    let mut kind = None;
    let mut name = None;
    for (key, value) in raw.members() {
        if key.is_str("type") {
            kind = Some(value);
        } else if key.is_str("name") {
            name = value.as_str();
        } else {
            return None;
        }
    }
    kind.filter(|kind| kind.is_str(ModelRef::TYPE))?;
    name
}

/// A record of a capture file: an exchange, or why it is none.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // the large one is the usual one, and none is kept
pub enum Record<'a> {
    /// A record that can be read.
    Good(Exchange<'a>),
    /// One that cannot: the byte of the file it starts at, and what is wrong.
    Bad(usize, Unreadable),
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is no strict JSON; the offset is from the start of the file.
    Syntax(Fault),
    /// It is no object.
    NoObject,
    /// A field has the wrong type.
    Field(&'static str),
    /// A line of NUL bytes: a crash's padding.
    Padding,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(fault) => write!(f, "{fault}"),
            Self::NoObject => f.write_str("not a JSON object"),
            Self::Field(name) => write!(f, "{name} has the wrong type"),
            Self::Padding => f.write_str("a line of NUL bytes"),
        }
    }
}

/// Reads a capture file's text, record by record; `each` also gets the line's number
/// from 1 and the state with the record's tape.
pub fn each_record<'a>(
    text: &'a [u8],
    state: &mut ScanState<'a>,
    mut each: impl FnMut(usize, Record<'a>, &mut ScanState<'a>),
) {
    let mut pos = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let mut line = 0;
    while pos < text.len() {
        line += 1;
        let start = pos;
        let padded = text[pos] == 0;
        while matches!(text.get(pos), Some(0 | b' ' | b'\t' | b'\r')) {
            pos += 1;
        }
        // The common line: one object and nothing else.
        if text.get(pos) == Some(&b'{') {
            let mut scanner = Scanner::in_line(text, pos);
            if let Ok(exchange) = Exchange::scan(&mut scanner, state) {
                let end = skip_padding(text, scanner.pos());
                if matches!(text.get(end), None | Some(b'\n')) {
                    each(line, record(pos, exchange), state);
                    pos = end + 1;
                    continue;
                }
            }
        }
        let end = memchr::memchr(b'\n', &text[pos..]).map_or(text.len(), |len| pos + len);
        if pos == end {
            if padded || text[start..end].contains(&0) {
                each(line, Record::Bad(start, Unreadable::Padding), state);
            }
        } else {
            odd_line(text, pos, end, state, |record, state| {
                each(line, record, state);
            });
        }
        pos = end + 1;
    }
}

fn record(at: usize, exchange: Exchange<'_>) -> Record<'_> {
    match exchange.wrong_type() {
        None => Record::Good(exchange),
        Some(field) => Record::Bad(at, Unreadable::Field(field)),
    }
}

fn skip_padding(text: &[u8], mut pos: usize) -> usize {
    while matches!(text.get(pos), Some(0 | b' ' | b'\t' | b'\r')) {
        pos += 1;
    }
    pos
}

/// A line that is not one object: several back to back, or something broken.
///
/// Whole objects are read twice, to know the line's end before the first is handed on.
fn odd_line<'a>(
    text: &'a [u8],
    start: usize,
    end: usize,
    state: &mut ScanState<'a>,
    mut each: impl FnMut(Record<'a>, &mut ScanState<'a>),
) {
    let line = &text[..end];
    let mut starts = Vec::new();
    let mut pos = start;
    let mut unnamed = None;
    let broken = loop {
        if line.get(pos) != Some(&b'{') {
            let fault = Fault {
                kind: FaultKind::TrailingBytes,
                at: pos,
            };
            let what = if starts.is_empty() {
                Unreadable::NoObject
            } else {
                Unreadable::Syntax(fault)
            };
            if starts.is_empty() {
                // `nul`, `{"a` and the like: the syntax says more, where it is broken.
                let mut scanner = Scanner::in_line(line, pos);
                let what = scanner.value().err().map_or(what, Unreadable::Syntax);
                return each(Record::Bad(start, what), state);
            }
            return each(Record::Bad(start, what), state);
        }
        let mut scanner = Scanner::in_line(line, pos);
        match Exchange::scan(&mut scanner, state) {
            Ok(exchange) => {
                let named = exchange
                    .model_call_id
                    .is_some_and(|id| id.kind() == Kind::String);
                if !named && unnamed.is_none() {
                    unnamed = Some(starts.len());
                }
                starts.push(pos);
            }
            Err(fault) => break Some((pos, Unreadable::Syntax(fault))),
        }
        if skip_padding(line, scanner.pos()) == end {
            break None;
        }
        scanner.blanks();
        pos = scanner.pos();
    };
    let kept = match (broken, unnamed) {
        (Some(_), Some(unnamed)) => unnamed,
        _ => starts.len(),
    };
    for at in &starts[..kept] {
        let mut scanner = Scanner::in_line(line, *at);
        if let Ok(exchange) = Exchange::scan(&mut scanner, state) {
            each(record(*at, exchange), state);
        }
    }
    if let Some((at, what)) = broken {
        each(
            Record::Bad(starts.get(kept).copied().unwrap_or(at), what),
            state,
        );
    }
}
