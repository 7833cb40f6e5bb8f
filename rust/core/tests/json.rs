//! The scanner against tables of what is JSON and what is not, and against `serde_json`.

use proptest::prelude::*;
use rollfold_core::json::{
    self, FaultKind, FieldName, Kind, Raw, Scanner, Tape, write_f64, write_str,
};

fn kind_of(text: &[u8]) -> Option<FaultKind> {
    json::parse(text).err().map(|fault| fault.kind)
}

#[test]
fn strict_json_passes() {
    for text in [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1.5e-7",
        "1E+2",
        "18446744073709551616",
        "\"\"",
        "\"a\\u00e9\\ud83d\\ude00\\n\"",
        "[]",
        "{}",
        " [ 1 , 2,3 ] ",
        "{\"a\":{\"b\":[{}]}}",
        "[1,2, 3,\"x\",null]",
        "\"\u{2028}東京\"",
        "[-1,2.5,[3]]",
        "1e-400",
    ] {
        assert!(
            json::parse(text.as_bytes()).is_ok(),
            "{text}: {:?}",
            json::parse(text.as_bytes())
        );
    }
}

#[test]
fn what_is_no_strict_json_is_refused_at_its_byte() {
    use FaultKind::{
        BadEscape, ControlCharacter, InvalidUtf8, LoneSurrogate, NumberOutOfRange, TooDeep,
        TrailingBytes, UnexpectedByte, UnexpectedEnd,
    };
    let table: &[(&[u8], FaultKind, usize)] = &[
        (b"", UnexpectedEnd, 0),
        (b"NaN", UnexpectedByte, 0),
        (b"nul", UnexpectedEnd, 3),
        (b"Infinity", UnexpectedByte, 0),
        (b"-Infinity", UnexpectedByte, 1),
        (b"01", UnexpectedByte, 1),
        (b"1.", UnexpectedEnd, 2),
        (b"1e", UnexpectedEnd, 2),
        (b".5", UnexpectedByte, 0),
        (b"+1", UnexpectedByte, 0),
        (b"1e400", NumberOutOfRange, 0),
        (b"-1.5e999", NumberOutOfRange, 0),
        (b"[1,]", UnexpectedByte, 3),
        (b"[1 2]", UnexpectedByte, 3),
        (b"[", UnexpectedEnd, 1),
        (b"{\"a\":1,}", UnexpectedByte, 7),
        (b"{\"a\" 1}", UnexpectedByte, 5),
        (b"{a:1}", UnexpectedByte, 1),
        (b"[1}", UnexpectedByte, 2),
        (b"{\"a\":1]", UnexpectedByte, 6),
        (b"\"a", UnexpectedEnd, 2),
        (b"\"a\\", UnexpectedEnd, 3),
        (b"\"\\x\"", BadEscape, 1),
        (b"\"\\u12g4\"", BadEscape, 1),
        (b"\"\\ud83d\"", LoneSurrogate, 1),
        (b"\"\\ude00\"", LoneSurrogate, 1),
        (b"\"\\ud83d\\u0041\"", LoneSurrogate, 1),
        (b"\"a\nb\"", ControlCharacter, 2),
        (
            b"\"0123456789012345678901234567890123456789\x01\"",
            ControlCharacter,
            41,
        ),
        (b"\"a\xff\"", InvalidUtf8, 2),
        (b"1 1", TrailingBytes, 2),
        (b"{}x", TrailingBytes, 2),
    ];
    for (text, kind, at) in table {
        let fault = json::parse(text).expect_err(&String::from_utf8_lossy(text));
        assert_eq!(
            (fault.kind, fault.at),
            (*kind, *at),
            "{}",
            String::from_utf8_lossy(text)
        );
    }
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(kind_of(&nested(1024)), None);
    assert_eq!(kind_of(&nested(1025)), Some(TooDeep));
    assert_eq!(kind_of(&vec![b'['; 1_000_000]), Some(TooDeep));
    assert_eq!(kind_of(&b"{\"a\":".repeat(100_000)), Some(TooDeep));
    assert_eq!(kind_of(&b"9".repeat(4300)), None);
    assert_eq!(kind_of(&b"9".repeat(4301)), Some(NumberOutOfRange));
    assert_eq!(
        kind_of(&[b"9".repeat(400), b".5".to_vec()].concat()),
        Some(NumberOutOfRange)
    );
}

#[test]
fn raw_values_are_read_without_building_them() {
    let raw = json::parse(b" {\"a\" : [1, \"x\\n\", {\"b\":null}] , \"a\":[ ], \"\\u0062\":-2.5} ")
        .unwrap();
    assert_eq!(raw.kind(), Kind::Object);
    assert_eq!(raw.members().count(), 3);
    assert_eq!(raw.get("a").map(Raw::bytes), Some(&b"[ ]"[..]));
    assert_eq!(raw.get("b").and_then(Raw::as_f64), Some(-2.5));
    let (_, first) = raw.members().next().unwrap();
    let parts: Vec<_> = first.elements().map(Raw::bytes).collect();
    assert_eq!(parts, [&b"1"[..], b"\"x\\n\"", b"{\"b\":null}"]);
    assert_eq!(
        first.elements().nth(1).unwrap().as_str().as_deref(),
        Some("x\n")
    );
    assert_eq!(Raw::new(b"9223372036854775808").as_i64(), None);
    assert_eq!(Raw::new(b"1.0").as_i64(), None);
}

/// A key's first letter.
#[derive(Clone, Copy, Default, PartialEq)]
struct Letter(u8);

impl FieldName for Letter {
    fn of(text: &[u8]) -> Self {
        Self(text[0])
    }

    fn is_closed(self) -> bool {
        self.0 == b'z'
    }
}

#[test]
fn a_tape_keeps_the_levels_it_was_asked_for() {
    let text = br#"{"a":[{"b":{"c":1}},2,"s"],"n":[1,2,3],"c":{"x":[]},"z":{"x":1}}"#;
    let mut tape = Tape::default();
    let root = tape.scan(&mut Scanner::new(text), 3).unwrap();
    let array = tape.array(root, Letter(b'a')).unwrap();
    let elements: Vec<_> = tape
        .children(array)
        .map(|i| tape.value(i).bytes())
        .collect();
    assert_eq!(elements, [&br#"{"b":{"c":1}}"#[..], b"\"s\""]);
    assert_eq!(
        tape.children(tape.array(root, Letter(b'n')).unwrap())
            .count(),
        0
    );
    let element = tape.children(array).next().unwrap();
    let b = tape.get(element, Letter(b'b')).unwrap();
    assert_eq!(tape.children(b).count(), 0);
    let z = tape.get(root, Letter(b'z')).unwrap();
    assert_eq!(tape.children(z).count(), 0);
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Into::into),
        ".{0,60}".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::vec((".{0,12}", inner), 0..8)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

fn rebuild(raw: Raw<'_>) -> serde_json::Value {
    match raw.kind() {
        Kind::Array => raw.elements().map(rebuild).collect::<Vec<_>>().into(),
        Kind::Object => serde_json::Value::Object(
            raw.members()
                .map(|(k, v)| (k.as_str().unwrap().into_owned(), rebuild(v)))
                .collect(),
        ),
        Kind::String => raw.as_str().unwrap().into_owned().into(),
        _ => serde_json::from_slice(raw.bytes()).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_value_is_read_as_serde_reads_it(value in json_value(), pretty: bool) {
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let text = text.unwrap();
        prop_assert_eq!(rebuild(json::parse(&text).unwrap()), value);
    }

    #[test]
    fn damage_is_found_wherever_serde_finds_it(
        value in json_value(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut: bool,
    ) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = at.index(text.len());
        if cut { text.truncate(at) } else { text[at] = byte }
        let theirs = serde_json::from_slice::<serde_json::Value>(&text).is_ok();
        prop_assert_eq!(json::parse(&text).is_ok(), theirs, "{}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = json::parse(&text);
    }

    #[test]
    fn strings_and_numbers_are_written_as_they_are_read(text in any::<String>(), number in any::<f64>()) {
        let mut out = Vec::new();
        write_str(&mut out, &text);
        prop_assert_eq!(json::parse(&out).unwrap().as_str().unwrap(), text.as_str());
        if number.is_finite() {
            let mut out = Vec::new();
            write_f64(&mut out, number);
            prop_assert_eq!(json::parse(&out).unwrap().as_f64(), Some(number));
        }
    }
}
