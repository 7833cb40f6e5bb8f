//! JSON text into values, whole and in pieces.

use crate::stream::Rope;
use crate::stream::parse::{MAX_DEPTH, MAX_DIGITS, Strictness, glance, parse, parse_event};
use crate::stream::value::Value;
use proptest::prelude::*;

fn event(json: &str) -> Option<String> {
    parse(json.as_bytes(), Strictness::Event)
        .map(|value| String::from_utf8(value.to_json()).unwrap())
}

fn arguments(json: &str) -> Option<String> {
    parse(json.as_bytes(), Strictness::Arguments)
        .map(|value| String::from_utf8(value.to_json()).unwrap())
}

#[test]
fn order_digits_and_duplicates_stay() {
    let json = r#"{"b":18446744073709551616,"a":1.50e+3,"b":[-0,0.0]}"#;
    assert_eq!(event(json).as_deref(), Some(json));
    let Some(Value::Object(object)) = parse(json.as_bytes(), Strictness::Event) else {
        panic!("an object")
    };
    assert!(
        matches!(object.get("b"), Some(Value::Array(_))),
        "the last one counts"
    );
}

#[test]
fn what_no_reader_could_take_is_null_in_events_and_an_error_in_arguments() {
    let long = "9".repeat(MAX_DIGITS + 1);
    for bad in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1.5E400",
        long.as_str(),
    ] {
        assert_eq!(
            event(&format!("[{bad},1]")).as_deref(),
            Some("[null,1]"),
            "{bad}"
        );
        assert_eq!(arguments(&format!("[{bad},1]")), None, "{bad}");
    }
    assert_eq!(event("\"a\tb\"").as_deref(), Some("\"a\\tb\""));
    assert_eq!(arguments("\"a\tb\""), None);
}

#[test]
fn broken_text_does_not_parse() {
    for bad in [
        "",
        " ",
        "{",
        "[1",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "tru",
        "nul",
        "\"\\x\"",
        "\"\\u12\"",
        "\"a",
        "[] []",
        "1 2",
        "-NaN",
        "NaNN",
        "{\"a\" 1}",
        "'a'",
    ] {
        assert_eq!(event(bad), None, "{bad:?}");
        assert_eq!(arguments(bad), None, "{bad:?}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(event(&nested(MAX_DEPTH)).is_some());
    assert!(event(&nested(MAX_DEPTH + 1)).is_none());
    assert!(event(&"[".repeat(1_000_000)).is_none());
    assert!(event(&"{\"a\":".repeat(1_000_000)).is_none());
}

proptest! {
    #[test]
    fn never_panics_and_writes_what_a_strict_parser_takes(
        bytes in proptest::collection::vec(any::<u8>(), 0..60)
    ) {
        if let Some(value) = parse(&bytes, Strictness::Event) {
            let written = value.to_json();
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&written).is_ok());
        }
    }

    #[test]
    fn agrees_with_a_known_parser_on_json_like_text(
        json in "[\\[\\]{}\":,0-9eE.+\\- a\\\\ntu]{0,24}"
    ) {
        let theirs = serde_json::from_str::<serde_json::Value>(&json);
        let ours = parse(json.as_bytes(), Strictness::Arguments);
        if let Ok(theirs) = theirs {
            let ours = ours.expect("valid JSON parses");
            let back: serde_json::Value = serde_json::from_slice(&ours.to_json()).unwrap();
            prop_assert_eq!(back, theirs);
        } else if let Some(ours) = ours {
            // Lone half surrogates are the one thing we take and a strict parser does not.
            prop_assert!(json.contains("\\u"), "{} {:?}", json, ours);
        }
    }
}

#[test]
fn pieces_parse_like_the_whole() {
    let json = br#" {"a":[1,-2.5e+3,true,null,NaN,-Infinity,"x\\\u00e9\ud83d\ude00y"],"logprobs":{"content":[{"token":"t","logprob":-0.5},1]},"b":{"c":"d"}} "#;
    let whole = parse_event(Rope::from(json.to_vec())).unwrap();
    let written = String::from_utf8(whole.to_json()).unwrap();
    assert!(
        written.contains("[1,-2.5e+3,true,null,null,null,"),
        "{written}"
    );
    for cut in 0..=json.len() {
        for second in [cut, (cut + 1).min(json.len()), (cut + 3).min(json.len())] {
            let mut rope = Rope::default();
            for piece in [&json[..cut], &json[cut..second], &json[second..]] {
                rope.push(piece);
                rope.begin_piece();
            }
            assert!(glance(&rope, &["b"]).object("b").is_some());
            let parsed = parse_event(rope).unwrap();
            assert_eq!(parsed.to_json(), whole.to_json(), "cut at {cut}");
        }
    }
    let mut rope = Rope::default();
    for piece in [&b"{\"a\":1,"[..], b"\"b\":}"] {
        rope.push(piece);
        rope.begin_piece();
    }
    assert_eq!(parse_event(rope.clone()), Err(rope), "given back");
}
