//! What a capture reader must take and what it must refuse (the contract, section 3).

/// One text with the answer that it should get.
pub struct Case {
    pub name: &'static str,
    pub text: Vec<u8>,
    pub valid: bool,
}

fn case(name: &'static str, valid: bool, text: impl Into<Vec<u8>>) -> Case {
    Case {
        name,
        text: text.into(),
        valid,
    }
}

/// A value of `depth` nested containers, the outermost counted as the first.
fn nested(depth: usize) -> Vec<u8> {
    let inner = depth - 1;
    [
        br#"{"request":"#.as_slice(),
        &b"[".repeat(inner),
        &b"]".repeat(inner),
        b"}",
    ]
    .concat()
}

/// A line whose request holds `value` as it stands.
fn held(value: &[u8]) -> Vec<u8> {
    [
        br#"{"model_call_id":"a","request":{"x":"#.as_slice(),
        value,
        b"}}",
    ]
    .concat()
}

pub fn cases() -> Vec<Case> {
    vec![
        case("128 levels", true, nested(128)),
        case("129 levels", true, nested(129)),
        case("1,024 levels", true, nested(1024)),
        case("1,025 levels", false, nested(1025)),
        case("100,000 levels", false, nested(100_000)),
        case("100,000 open brackets", false, b"[".repeat(100_000)),
        case("integer of 65 bits", true, held(b"18446744073709551616")),
        case("integer of 4,000 digits", true, held(&b"9".repeat(4000))),
        case("integer of 4,301 digits", false, held(&b"9".repeat(4301))),
        case("1e400", false, held(b"1e400")),
        case("-0", true, held(b"-0")),
        case("1E+5", true, held(b"1E+5")),
        case("01", false, held(b"01")),
        case("1.", false, held(b"1.")),
        case(".5", false, held(b".5")),
        case("+1", false, held(b"+1")),
        case("-", false, held(b"-")),
        case("1e", false, held(b"1e")),
        case("NaN", false, held(b"NaN")),
        case("Infinity", false, held(b"Infinity")),
        case("-Infinity", false, held(b"-Infinity")),
        case("nul", false, held(b"nul")),
        case("True", false, held(b"True")),
        case("surrogate pair, escaped", true, held(br#""\ud83d\ude00""#)),
        case("lone high surrogate", false, held(br#""\ud83d""#)),
        case("lone low surrogate", false, held(br#""\ude00""#)),
        case(
            "high surrogate, then a letter",
            false,
            held(br#""\ud83dx""#),
        ),
        case("two high surrogates", false, held(br#""\ud83d\ud83d""#)),
        case("lone surrogate in a key", false, held(br#"{"\ud83d":1}"#)),
        case(r"\u with a bad digit", false, held(br#""\u12g4""#)),
        case(r"\u cut short", false, held(br#""\u12""#)),
        case(r"\x", false, held(br#""\x41""#)),
        case("raw newline in a string", false, held(b"\"a\nb\"")),
        case("raw tab in a string", false, held(b"\"a\tb\"")),
        case("NUL in a string", false, held(b"\"a\0b\"")),
        case("DEL in a string", true, held(b"\"a\x7fb\"")),
        case(
            "U+2028 in a string",
            true,
            held("\"a\u{2028}b\"".as_bytes()),
        ),
        case("invalid UTF-8 in a string", false, held(b"\"a\xffb\"")),
        case("invalid UTF-8 in a key", false, held(b"{\"\xc3\":1}")),
        case("UTF-8 cut short", false, held(b"\"\xe2\x82\"")),
        case("overlong UTF-8", false, held(b"\"\xc0\xaf\"")),
        case("UTF-8 of a surrogate", false, held(b"\"\xed\xa0\x80\"")),
        case("trailing word", false, b"{} x".to_vec()),
        case("trailing brace", false, b"{}}".to_vec()),
        case("two values", false, b"{}{}".to_vec()),
        case("trailing comma in an object", false, held(br#"{"a":1,}"#)),
        case("trailing comma in an array", false, held(b"[1,]")),
        case("missing comma", false, held(b"[1 2]")),
        case("missing colon", false, held(br#"{"a" 1}"#)),
        case("key without quotes", false, held(b"{a:1}")),
        case("single quotes", false, held(b"'a'")),
        case("comment", false, held(b"/**/1")),
        case("mismatched brackets", false, held(b"[1}")),
        case("unterminated string", false, br#"{"a":"b"#.to_vec()),
        case(
            "string that ends in a backslash",
            false,
            br#"{"a":"b\"#.to_vec(),
        ),
        case("unterminated object", false, br#"{"a":1"#.to_vec()),
        case("nothing", false, b"".to_vec()),
        case("form feed between tokens", false, held(b"\x0c1")),
        case("no-break space between tokens", false, held(b"\xc2\xa01")),
        case("NUL between tokens", false, held(b"\x001")),
        case("duplicate keys", true, held(br#"{"a":1,"a":2}"#)),
        case("spaces, tabs, CR between tokens", true, held(b" \t\r[ ] ")),
    ]
}
