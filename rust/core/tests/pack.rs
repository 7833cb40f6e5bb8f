//! Packing and back: the same bytes, whatever the record holds.

use std::sync::Arc;

use proptest::prelude::*;
use rollfold_core::intern::{Blob, Interner};
use rollfold_core::json::{self, Raw};
use rollfold_core::pack::{MAX_UNPACKED, pack_json, pack_text, pack_value, unpack_json};
use rollfold_core::render::render;
use rollfold_core::value::{Key, Value};

fn there_and_back(text: &str) -> String {
    let packed = pack_text(text.as_bytes()).expect(text);
    json::parse(&packed).expect("strict JSON");
    let full = unpack_json(&packed, MAX_UNPACKED)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&packed)));
    assert_eq!(String::from_utf8_lossy(&full), text);
    String::from_utf8(packed).expect("UTF-8")
}

const LONG: &str = "a text of more than thirty-two bytes, so that it pays to share it";

#[test]
fn what_occurs_twice_is_a_part() {
    let packed = there_and_back(&format!(r#"{{"a":"{LONG}","b":["{LONG}",1]}}"#));
    assert_eq!(
        packed,
        format!(
            r#"{{"rollfold_packed":1,"parts":["{LONG}"],"record":{{"a":{{"$p":0}},"b":[{{"$p":0}},1]}}}}"#
        )
    );
}

#[test]
fn a_growing_history_is_one_run_a_call() {
    let messages: Vec<String> = (0..40)
        .map(|n| format!(r#"{{"role":"user","content":"{n} {LONG}"}}"#))
        .collect();
    let calls: Vec<String> = (1..=40)
        .map(|n| format!("[{}]", messages[..n].join(",")))
        .collect();
    let packed = there_and_back(&format!(r#"{{"calls":[{}]}}"#, calls.join(",")));
    assert!(packed.contains(r#"[{"$p":[0,30]}]"#), "{packed}");
    assert_eq!(packed.matches(r#""$p""#).count(), 40 - 1 + 1);
}

#[test]
fn data_that_looks_like_a_reference_is_escaped() {
    for text in [
        r#"{"$p":0}"#,
        r#"{"$$p":[0,1]}"#,
        r#"{"a":[{"$p":{"$p":[1]}},{"$p":1,"b":2},{"b":1,"$p":2}]}"#,
        r#"{"\u0024p":0}"#,
        r#"{"$\u0070":0}"#,
        r#"[{"$p":1,"$p":2},{"$p":1,"$$p":2}]"#,
        r#"[{"$p":1,"\u0024p":{"$p":3}}]"#,
        r#"{"$":1,"p":2,"$q":{"$px":1}}"#,
    ] {
        there_and_back(text);
        // The same where it becomes a part, and inside of one.
        there_and_back(&format!(r#"[[{text},"{LONG}"],[{text},"{LONG}"]]"#));
    }
    let packed = there_and_back(r#"[{"$p":0},{"$$p":0}]"#);
    assert!(packed.ends_with(r#""record":[{"$$p":0},{"$$$p":0}]}"#));
}

#[test]
fn numbers_keep_their_digits() {
    let digits = "9".repeat(4300);
    there_and_back(&format!(
        r#"{{"n":[1.0,1e0,-0,-0.0,1E+2,{digits}],"m":[1.0,1e0,-0,-0.0,1E+2,{digits}]}}"#
    ));
}

#[test]
fn scalars_are_records_too() {
    for text in ["null", "17", r#""a""#, "[]", "{}", "true"] {
        there_and_back(text);
    }
    there_and_back(&format!(r#""{LONG}""#));
}

#[test]
fn a_packed_record_is_one_line() {
    let packed = pack_text(b"{\n  \"a\": 1,\r\n  \"b\": [\n1\n]\n}\n").unwrap();
    assert!(!packed.contains(&b'\n') && !packed.contains(&b'\r'));
    let full = unpack_json(&packed, MAX_UNPACKED).unwrap();
    let values: serde_json::Value = serde_json::from_slice(&full).unwrap();
    assert_eq!(values, serde_json::json!({"a": 1, "b": [1]}));
}

#[test]
fn blanks_between_elements_break_no_run() {
    let list: Vec<String> = (0..9).map(|n| format!(r#""{n} {LONG}""#)).collect();
    let packed = pack_text(format!("[[{0}], [{0} ]]", list.join(" , ")).as_bytes()).unwrap();
    let text = String::from_utf8(packed.clone()).unwrap();
    assert_eq!(text.matches("[{\"$p\":[0,9]}").count(), 2, "{text}");
    assert_eq!(text.matches("[{\"$p\":[0,9]} ]").count(), 1, "{text}");
    let full = unpack_json(&packed, MAX_UNPACKED).unwrap();
    let full: serde_json::Value = serde_json::from_slice(&full).unwrap();
    let list: serde_json::Value = serde_json::from_str(&format!("[{}]", list.join(","))).unwrap();
    assert_eq!(full, serde_json::json!([list, list]));
}

#[test]
fn depth_overflows_no_stack() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    there_and_back_deep(&deep(json::MAX_RECORD_DEPTH));
    there_and_back_deep(&format!("[{0},{0}]", deep(json::MAX_RECORD_DEPTH - 1)));
    assert!(pack_text(deep(json::MAX_RECORD_DEPTH + 1).as_bytes()).is_err());
    assert!(pack_text(deep(1_000_000).as_bytes()).is_err());
}

fn there_and_back_deep(text: &str) {
    let packed = pack_text(text.as_bytes()).unwrap();
    assert_eq!(unpack_json(&packed, MAX_UNPACKED).unwrap(), text.as_bytes());
}

fn refused(packed: &str) -> String {
    let error = unpack_json(packed.as_bytes(), MAX_UNPACKED).expect_err(packed);
    let text = error.to_string();
    assert!(!text.contains('\n'));
    text
}

#[test]
fn malformed_packed_text_is_refused_in_one_line() {
    let record = |parts: &str, record: &str| {
        format!(r#"{{"rollfold_packed":1,"parts":{parts},"record":{record}}}"#)
    };
    for (packed, reason) in [
        (record("[1]", r#"{"$p":1}"#), "not before it"),
        (record(r#"[{"$p":0}]"#, r#"{"$p":0}"#), "not before it"),
        (record(r#"[[{"$p":1}],2]"#, "1"), "not before it"),
        (record("[1,2]", r#"[{"$p":[1,2]}]"#), "not before it"),
        (record("[1,2]", r#"{"a":{"$p":[0,2]}}"#), "outside an array"),
        (record("[1,2]", r#"{"$p":[0,2]}"#), "outside an array"),
        (record(r#"[1,{"$p":[0,1]}]"#, "1"), "outside an array"),
        (record("[1]", r#"{"$p":"0"}"#), "malformed"),
        (record("[1]", r#"{"$p":0.0}"#), "malformed"),
        (record("[1]", r#"{"$p":-1}"#), "malformed"),
        (record("[1]", r#"{"$p":true}"#), "malformed"),
        (record("[1]", r#"{"$p":99999999999999999999}"#), "malformed"),
        (record("[1]", r#"[{"$p":[0,0]}]"#), "malformed"),
        (record("[1]", r#"[{"$p":[0]}]"#), "malformed"),
        (record("[1]", r#"[{"$p":[0,1,1]}]"#), "malformed"),
        (record("[1,2]", r#"[{"$p":0,"$p":1}]"#), "malformed"),
        (record("{}", "1"), "parts"),
        (r#"{"rollfold_packed":1,"parts":[]}"#.into(), "record"),
        (r#"{"rollfold_packed":1,"record":1}"#.into(), "parts"),
        (r#"{"parts":[],"record":1}"#.into(), "rollfold_packed"),
        (
            r#"{"rollfold_packed":2,"parts":[],"record":1}"#.into(),
            "rollfold_packed",
        ),
        (
            r#"{"rollfold_packed":1,"parts":[],"record":1,"record":2}"#.into(),
            "twice",
        ),
        (record("[]", "1") + "x", "trailing"),
        (record("[", "1"), "unexpected"),
        (
            r#"{"rollfold_packed":1,"parts":[],"record":"#.into(),
            "unexpected end",
        ),
        ("17".into(), "unexpected"),
        (String::new(), "unexpected end"),
    ] {
        let text = refused(&packed);
        assert!(text.contains(reason), "{packed}: {text}");
    }
}

#[test]
fn other_members_of_the_envelope_are_ignored() {
    let packed =
        br#" { "later" : [1], "record":[{"$p":[0,2]} , 3], "parts":[1,2],"rollfold_packed":1 } "#;
    assert_eq!(unpack_json(packed, MAX_UNPACKED).unwrap(), b"[1,2 , 3]");
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let mut parts = vec![r#""0123456789""#.to_owned()];
    for n in 0..60 {
        parts.push(format!(r#"[{{"$p":{n}}},{{"$p":{n}}}]"#));
    }
    let packed = format!(
        r#"{{"rollfold_packed":1,"parts":[{}],"record":{{"$p":60}}}}"#,
        parts.join(",")
    );
    assert!(refused(&packed).contains("limit"));
    let deep = |parts: usize| {
        let parts: Vec<String> = std::iter::once("[]".to_owned())
            .chain((1..parts).map(|n| format!(r#"[{{"$p":{}}}]"#, n - 1)))
            .collect();
        format!(
            r#"{{"rollfold_packed":1,"parts":[{}],"record":{{"$p":{}}}}}"#,
            parts.join(","),
            parts.len() - 1
        )
    };
    assert!(refused(&deep(100_000)).contains("deep"));
    assert!(unpack_json(deep(json::MAX_RECORD_DEPTH).as_bytes(), MAX_UNPACKED).is_ok());
    assert!(refused(&deep(json::MAX_RECORD_DEPTH + 1)).contains("deep"));
    // A chain of parts that are other parts nests nothing, however long.
    let parts: Vec<String> = std::iter::once("[]".to_owned())
        .chain((1..200_000).map(|n| format!(r#"{{"$p":{}}}"#, n - 1)))
        .collect();
    let chain = format!(
        r#"{{"rollfold_packed":1,"parts":[{}],"record":{{"$p":199999}}}}"#,
        parts.join(",")
    );
    assert_eq!(unpack_json(chain.as_bytes(), MAX_UNPACKED).unwrap(), b"[]");
    let small = pack_text(format!(r#"["{LONG}","{LONG}"]"#).as_bytes()).unwrap();
    assert!(
        unpack_json(&small, 100)
            .unwrap_err()
            .to_string()
            .contains("limit is 100")
    );
    assert!(unpack_json(&small, 200).is_ok());
}

fn packed_value(value: &Value<'_>, shared: &Interner<'_>) -> String {
    let mut packed = Vec::new();
    pack_value(value, shared, &mut packed);
    let mut full = Vec::new();
    render(value, shared, &mut full);
    let unpacked = unpack_json(&packed, MAX_UNPACKED)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&packed)));
    assert_eq!(
        String::from_utf8_lossy(&unpacked),
        String::from_utf8_lossy(&full)
    );
    String::from_utf8(packed).unwrap()
}

#[test]
fn a_value_is_packed_from_its_ids() {
    let texts: Vec<String> = (0..20)
        .map(|n| format!(r#"{{"role":"tool","content":[{{"text":"{n} {LONG}"}}],"n":{n}}}"#))
        .collect();
    let mut shared = Interner::default();
    let messages: Vec<_> = texts
        .iter()
        .map(|text| shared.intern(Raw::new(text.as_bytes())))
        .collect();
    let items: Vec<_> = (0..20)
        .map(|n| {
            let text = format!(r#"{{"type":"output","output":"{n} {LONG}"}}"#);
            shared.add(Blob::Text(Arc::from(text.into_bytes())))
        })
        .collect();
    let typed = shared.add(Blob::Typed(messages[3]));
    let calls = (1..=20).map(|n| {
        let request = Value::Object(vec![
            (
                Key::Name("messages"),
                Value::SharedList(messages[..n].into()),
            ),
            (
                Key::Name("tools"),
                Value::Raw(Raw::new(texts[0].as_bytes())),
            ),
            (Key::Name("p"), Value::Null),
        ]);
        let question: Arc<[_]> = items[..n].into();
        Value::object([
            (
                "request",
                Value::Parted(Raw::new(b"0"), Arc::new(request)).unparted(),
            ),
            ("question", Value::SharedList(Arc::clone(&question))),
            ("again", Value::SharedList(question)),
            (
                "answer",
                Value::Array(vec![
                    Value::Null,
                    Value::Shared(items[n - 1]),
                    Value::Shared(typed),
                    Value::Raw(Raw::new(texts[n - 1].as_bytes())),
                    Value::Object(vec![(Key::Name("$p"), Value::Int(n as i128))]),
                    Value::Object(vec![(
                        Key::Raw(Raw::new(br#""\u0024$p""#)),
                        Value::Bool(true),
                    )]),
                    Value::Raw(Raw::new(br#"{"$p":7}"#)),
                    Value::Text(Arc::from(&br#"[{"$p":7}]"#[..])),
                    Value::Float(1.5),
                ]),
            ),
            ("reasoning", Value::text(Some(format!("{n}\n{LONG}")))),
            ("id", Value::text(Some("short"))),
        ])
    });
    let record = Value::Array(calls.collect());
    let packed = packed_value(&record, &shared);
    // Each text once, as one run a list.
    assert_eq!(packed.matches(&format!("7 {LONG}")).count(), 2, "{packed}");
    assert_eq!(
        packed.matches(r#""question":[{"$p":[42,"#).count(),
        19,
        "{packed}"
    );
}

#[test]
fn lists_that_grow_shrink_and_part_are_packed_by_what_they_share() {
    let texts: Vec<String> = (0..60)
        .map(|n| format!(r#"{{"role":"tool","content":"{n} {LONG}"}}"#))
        .collect();
    let mut shared = Interner::default();
    let ids: Vec<_> = texts
        .iter()
        .map(|text| shared.intern(Raw::new(text.as_bytes())))
        .collect();
    let beginning = |len: usize| Value::SharedList(ids[..len].into());
    let parted = |len: usize, at: usize| {
        let mut list = ids[..len].to_vec();
        list[at] = ids[59];
        Value::SharedList(list.into())
    };
    let grown = beginning(40);
    let record = Value::Array(vec![
        beginning(20),
        grown.clone(),
        beginning(3),
        Value::SharedList([].into()),
        parted(20, 1),
        grown,
        parted(45, 30),
        parted(46, 30),
        beginning(50),
        Value::Shared(ids[4]),
        Value::Shared(ids[5]),
        Value::Raw(Raw::new(texts[6].as_bytes())),
    ]);
    let packed = packed_value(&record, &shared);
    assert!(packed.ends_with(
        r#""record":[[{"$p":[0,20]}],[{"$p":[0,40]}],[{"$p":[0,3]}],[],[{"$p":0},{"$p":50},{"$p":[2,18]}],[{"$p":[0,40]}],[{"$p":[0,30]},{"$p":50},{"$p":[31,14]}],[{"$p":[0,30]},{"$p":50},{"$p":[31,15]}],[{"$p":[0,50]}],{"$p":[4,3]}]}"#
    ), "{packed}");
}

trait Unparted {
    fn unparted(self) -> Self;
}

impl Unparted for Value<'_> {
    /// `render` writes the text, `pack_value` the parts: here the text is not at hand.
    fn unparted(self) -> Self {
        match self {
            Value::Parted(_, parts) => Arc::unwrap_or_clone(parts),
            other => other,
        }
    }
}

#[test]
fn parted_values_are_packed_by_their_parts() {
    let text = format!(r#"{{"messages":["{LONG}"],"n":1}}"#);
    let mut shared = Interner::default();
    let id = shared.intern(Raw::new(&text.as_bytes()[13..13 + LONG.len() + 2]));
    let parts = Arc::new(Value::Object(vec![
        (Key::Name("messages"), Value::SharedList([id].into())),
        (Key::Name("n"), Value::Int(1)),
    ]));
    let parted = Value::Parted(Raw::new(text.as_bytes()), parts);
    let packed = packed_value(&Value::Array(vec![parted.clone(), parted]), &shared);
    assert_eq!(packed.matches(LONG).count(), 1);
    assert!(packed.contains(r#"{"messages":[{"$p":0}],"n":1}"#));
}

fn any_json() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("\"$p\"".to_owned()),
        Just("\"$$p\"".to_owned()),
        Just("\"\\u0024p\"".to_owned()),
        Just("\"a\"".to_owned()),
        Just("\"\"".to_owned()),
        Just(format!("\"{LONG}\"")),
        "\"[a-z$p\\u00e9]{0,4}\"",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just(format!("\"{LONG}\"")),
        Just(format!("\"\\\"{LONG}\\\\\"")),
        "-?[1-9][0-9]{0,60}(\\.[0-9]{1,9})?",
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        "[0-9a-f]{40}".prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(6, 96, 8, move |inner| {
        let blank = prop_oneof![Just(""), Just(""), Just(" "), Just("\t")];
        prop_oneof![
            // Blanks around the commas of an array go where its elements become a run.
            prop::collection::vec(inner.clone(), 0..8)
                .prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec((key.clone(), inner.clone(), blank), 0..4).prop_map(|list| {
                let list: Vec<String> = list
                    .into_iter()
                    .map(|(k, v, b)| format!("{b}{k}{b}:{b}{v}{b}"))
                    .collect();
                format!("{{{}}}", list.join(","))
            }),
            inner.clone().prop_map(|v| format!("[{v},{v},{v}]")),
            (inner.clone(), inner)
                .prop_map(|(v, w)| format!("[[{v},{w}],[{v},{w},1],{{\"x\":{v}}}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_record_comes_back_byte_for_byte(text in any_json()) {
        there_and_back(&text);
        // A packed record is data too.
        let packed = pack_json(Raw::new(text.as_bytes()));
        there_and_back(std::str::from_utf8(&packed).unwrap());
    }

    #[test]
    fn broken_packed_text_never_panics(text in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut packed = pack_text(format!("[{text},{text}]").as_bytes()).unwrap();
        let at = at.index(packed.len());
        packed[at] = byte;
        let _ = unpack_json(&packed, 1 << 20);
        packed.truncate(at);
        let _ = unpack_json(&packed, 1 << 20);
    }
}
