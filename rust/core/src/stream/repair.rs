//! Records whose response is null or poorer than the text kept beside it, mended from
//! that text.

use super::parse::{Strictness, parse};
use super::value::Value;
use super::{Assembled, Dialect, Rope, assemble};
use crate::json::{Raw, Scanner, check_utf8, skip_blanks};

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its response says all that its raw text does, or there is no raw text.
    Good,
    /// It had no response; now it has one.
    Filled,
    /// Its response said less than its raw text.
    Enriched,
    /// Its response and its raw text contradict each other: left as it is.
    Differs,
    /// The raw text is the beginning of a body that was too large to keep: left as it is.
    Bounded,
    /// The raw text adds up to nothing: left as it is.
    Nothing,
}

impl Verdict {
    /// A phrase for people.
    #[must_use]
    pub fn text(&self) -> &'static str {
        match self {
            Self::Good => "nothing to repair",
            Self::Filled => "response filled in from response_raw",
            Self::Enriched => "response completed from response_raw",
            Self::Differs => "left: response and response_raw contradict each other",
            Self::Bounded => "left: response_raw was cut at the writer's bound",
            Self::Nothing => "left: response_raw adds up to no response",
        }
    }
}

/// One record of a line, and what it became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub model_call_id: Option<String>,
    pub verdict: Verdict,
}

/// Repairs a line's records: the line anew where one of them changed, and what became of
/// each. `None` where the line is not one or more whole objects: unreadable, untouched.
#[must_use]
pub fn repair_line(line: &[u8]) -> Option<(Option<Vec<u8>>, Vec<Record>)> {
    check_utf8(line, 0).ok()?;
    let mut out = Vec::new();
    let mut records = Vec::new();
    let mut changed = false;
    let mut at = skip_blanks(line, 0);
    while at < line.len() {
        let mut scanner = Scanner::new(&line[at..]);
        let record = scanner.value().ok().filter(|record| record.is_object())?;
        at = skip_blanks(line, at + scanner.pos());
        let (verdict, anew) = repair_record(record);
        changed |= anew.is_some();
        out.extend_from_slice(anew.as_deref().unwrap_or(record.bytes()));
        records.push(Record {
            model_call_id: record
                .get("model_call_id")
                .and_then(Raw::as_str)
                .map(std::borrow::Cow::into_owned),
            verdict,
        });
    }
    (!records.is_empty()).then(|| (changed.then_some(out), records))
}

fn repair_record(record: Raw<'_>) -> (Verdict, Option<Vec<u8>>) {
    let Some(raw) = record.get("response_raw").and_then(Raw::as_str) else {
        return (Verdict::Good, None);
    };
    let held = record.get("response").and_then(|response| {
        parse(response.bytes(), Strictness::Event).filter(|held| held.as_object().is_some())
    });
    let bounded = record
        .get("truncated")
        .is_some_and(|sides| sides.elements().any(|side| side.is_str("response")));
    if bounded {
        return (Verdict::Bounded, None);
    }
    let status = record.get("status_code").and_then(Raw::as_i64);
    let Assembled {
        response,
        error_category,
    } = reread(record, &raw, status);
    let Some(response) = response.map(Rope::into_vec) else {
        let verdict = if held.is_some() {
            Verdict::Good
        } else {
            Verdict::Nothing
        };
        return (verdict, None);
    };
    let verdict = match &held {
        None => Verdict::Filled,
        Some(held) => {
            let found = parse(&response, Strictness::Event).unwrap_or_default();
            if is_within(&found, held, false) {
                return (Verdict::Good, None);
            }
            if !is_within(held, &found, false) {
                return (Verdict::Differs, None);
            }
            Verdict::Enriched
        }
    };
    (
        verdict,
        Some(spliced(record, &response, status, error_category)),
    )
}

/// What a raw body adds up to: a stream, or an object that was not readable as it stood.
fn reread(record: Raw<'_>, raw: &str, status: Option<i64>) -> Assembled {
    if raw.trim_start().starts_with('{') {
        let response = parse(raw.as_bytes(), Strictness::Event)
            .filter(|body| body.as_object().is_some())
            .map(Value::into_json);
        return Assembled {
            response,
            error_category: None,
        };
    }
    let dialect = record.get("dialect").and_then(Raw::as_str);
    let dialect = dialect.and_then(|name| Dialect::from_name(&name));
    assemble(dialect, raw.as_bytes(), status)
}

/// The record with the new response; every other member stays byte by byte, but an error
/// category that only said how well the body could be read.
fn spliced(
    record: Raw<'_>,
    response: &[u8],
    status: Option<i64>,
    error_category: Option<&str>,
) -> Vec<u8> {
    let success = status.is_none_or(|status| (200..300).contains(&status));
    let category = record.get("error_category");
    let reread_decides = success
        && category.is_none_or(|category| {
            category.is_null()
                || category.is_str("capture_parse_error")
                || category.is_str("stream_truncated")
        });
    let category = Value::from(error_category).to_json();
    let mut out = Vec::with_capacity(record.bytes().len() + response.len());
    let (mut has_response, mut has_category) = (false, false);
    for (key, value) in record.members() {
        out.push(if out.is_empty() { b'{' } else { b',' });
        out.extend_from_slice(key.bytes());
        out.push(b':');
        if key.is_str("response") {
            has_response = true;
            out.extend_from_slice(response);
        } else if key.is_str("error_category") && reread_decides {
            has_category = true;
            out.extend_from_slice(&category);
        } else {
            out.extend_from_slice(value.bytes());
        }
    }
    if !has_response {
        out.extend_from_slice(b",\"response\":");
        out.extend_from_slice(response);
    }
    if reread_decides && !has_category && error_category.is_some() {
        out.extend_from_slice(b",\"error_category\":");
        out.extend_from_slice(&category);
    }
    out.push(b'}');
    out
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::string)
    }
}

/// Whether all that `less` says is said by `more`: null and emptiness say nothing, a text
/// may go on, a list may have more entries between its own, a usage count may have grown.
fn is_within(less: &Value, more: &Value, usage: bool) -> bool {
    if !less.says_something() {
        return true;
    }
    match (less, more) {
        (Value::String(less), Value::String(more)) => more.bytes().starts_with(&less.bytes()),
        (Value::Object(less), Value::Object(more)) => less.iter().all(|(key, value)| {
            let theirs = std::str::from_utf8(key.as_bytes())
                .ok()
                .and_then(|key| more.get(key));
            let usage = usage || key == "usage";
            theirs.is_some_and(|theirs| is_within(value, theirs, usage))
                || (!value.says_something())
        }),
        (Value::Array(less), Value::Array(more)) => {
            let mut rest = more.iter();
            less.iter()
                .all(|item| rest.any(|theirs| is_within(item, theirs, usage)))
        }
        (Value::Number(less), Value::Number(more)) => {
            less == more
                || match (less.parse::<f64>(), more.parse::<f64>()) {
                    (Ok(less), Ok(more)) => {
                        (usage && less < more) || less.to_bits() == more.to_bits()
                    }
                    _ => false,
                }
        }
        (less, more) => less == more,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use super::*;

    fn repaired(record: &serde_json::Value) -> (Verdict, serde_json::Value) {
        let line = record.to_string();
        let (anew, records) = repair_line(line.as_bytes()).unwrap();
        let anew = anew.map_or(record.clone(), |line| {
            serde_json::from_slice(&line).unwrap()
        });
        if anew != *record {
            let again = repair_line(anew.to_string().as_bytes()).unwrap();
            assert_eq!(again.0, None, "a second repair changes nothing");
        }
        (records[0].verdict.clone(), anew)
    }

    fn record(response: serde_json::Value, raw: &str) -> serde_json::Value {
        serde_json::json!({"model_call_id": "a", "dialect": "chat", "status_code": 200,
            "error_category": "capture_parse_error", "response": response, "response_raw": raw,
            "big": 1})
    }

    const RAW: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

    fn whole(text: &str) -> serde_json::Value {
        serde_json::json!({"id": "c", "object": "chat.completion", "choices": [
            {"index": 0, "message": {"content": text}, "finish_reason": "stop"}]})
    }

    #[test]
    fn null_and_poorer_responses_are_repaired() {
        for (held, verdict) in [
            (serde_json::json!(null), Verdict::Filled),
            (serde_json::json!([]), Verdict::Filled),
            (whole("hel"), Verdict::Enriched),
            (
                serde_json::json!({"id": "c", "choices": []}),
                Verdict::Enriched,
            ),
        ] {
            let (found, anew) = repaired(&record(held, RAW));
            assert_eq!(found, verdict);
            assert_eq!(anew["response"], whole("hello"));
            assert_eq!(anew["error_category"], serde_json::json!(null));
        }
    }

    #[test]
    fn what_is_good_or_contradicts_or_is_cut_stays() {
        assert_eq!(repaired(&record(whole("hello"), RAW)).0, Verdict::Good);
        assert_eq!(
            repaired(&record(whole("hello world"), RAW)).0,
            Verdict::Good
        );
        assert_eq!(repaired(&record(whole("jello"), RAW)).0, Verdict::Differs);
        assert_eq!(
            repaired(&record(serde_json::json!(null), "<html>")).0,
            Verdict::Nothing
        );
        let mut cut = record(serde_json::json!(null), RAW);
        cut["truncated"] = serde_json::json!(["response"]);
        assert_eq!(repaired(&cut).0, Verdict::Bounded);
        let (found, anew) = repaired(&record(serde_json::json!(null), "{\"choices\":[NaN]}"));
        assert_eq!(
            (found, &anew["response"]),
            (Verdict::Filled, &serde_json::json!({"choices": [null]}))
        );
    }

    #[test]
    fn other_members_keep_their_bytes_and_bad_lines_are_left() {
        let line = format!(
            "{{\"request\":{{\"maximum\":18446744073709551616,\"x\":1.50}},\"response\":null,\"response_raw\":{}}}",
            serde_json::json!(RAW)
        );
        let (anew, _) = repair_line(line.as_bytes()).unwrap();
        let anew = String::from_utf8(anew.unwrap()).unwrap();
        assert!(anew.starts_with(
            "{\"request\":{\"maximum\":18446744073709551616,\"x\":1.50},\"response\":{\"id\""
        ));
        let (two, records) = repair_line(format!("{line}{line}").as_bytes()).unwrap();
        assert_eq!(
            (two.unwrap(), records.len()),
            (format!("{anew}{anew}").into_bytes(), 2)
        );
        for bad in ["", "[]", "{\"a\":NaN}", "{\"a\":1}x", "{\"a\":"] {
            assert_eq!(repair_line(bad.as_bytes()), None, "{bad}");
        }
    }
}
