//! JSON text into a [`Value`], at two strictnesses.

use super::text::Text;
use super::value::{Object, Value};

/// Deeper nesting than this does not parse: a record wraps a response in a few levels
/// more, and a reader of the store takes 1,024 (contract, section 3).
pub const MAX_DEPTH: usize = 1000;

/// An integer of more digits would make its record unreadable (contract, section 3).
const MAX_DIGITS: usize = 4300;

/// What a text may get wrong and still parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// An event's data: NaN, the infinities and numbers that no reader could take become
    /// null, and raw control characters in strings are kept. Servers write such things,
    /// and the text around them is the model's.
    Event,
    /// What a model wrote as arguments: RFC 8259 and nothing else.
    Arguments,
}

/// Parses a whole text; `None` where it is not JSON or too deep.
#[must_use]
pub fn parse(json: &[u8], strictness: Strictness) -> Option<Value> {
    let mut parser = Parser::new(json, strictness);
    let value = parser.value(0)?;
    parser.at_end().then_some(value)
}

/// A position in a JSON text.
pub(crate) struct Parser<'a> {
    json: &'a [u8],
    at: usize,
    strictness: Strictness,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(json: &'a [u8], strictness: Strictness) -> Self {
        Self {
            json,
            at: 0,
            strictness,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Whether nothing but blanks is left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.blanks();
        self.at == self.json.len()
    }

    fn take(&mut self, expected: &[u8]) -> Option<()> {
        self.json[self.at..]
            .starts_with(expected)
            .then(|| self.at += expected.len())
    }

    pub(crate) fn value(&mut self, depth: usize) -> Option<Value> {
        self.blanks();
        match self.peek()? {
            b'"' => self.string().map(Value::String),
            b'{' if depth < MAX_DEPTH => self.object(depth + 1),
            b'[' if depth < MAX_DEPTH => self.array(depth + 1),
            b't' => self.take(b"true").map(|()| Value::Bool(true)),
            b'f' => self.take(b"false").map(|()| Value::Bool(false)),
            b'n' => self.take(b"null").map(|()| Value::Null),
            b'-' | b'0'..=b'9' | b'N' | b'I' => self.number(),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut object = Object::default();
        self.members(|parser, key| {
            let value = parser.value(depth)?;
            object.push(key, value);
            Some(())
        })?;
        Some(Value::Object(object))
    }

    /// Walks an object; `member` is called with each key, the parser standing at its value.
    pub(crate) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Text) -> Option<()>,
    ) -> Option<()> {
        self.blanks();
        self.take(b"{")?;
        self.blanks();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.blanks();
            let key = self.string()?;
            self.blanks();
            self.take(b":")?;
            self.blanks();
            member(self, key)?;
            self.blanks();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.blanks();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(Value::Array(items));
                }
                _ => return None,
            }
        }
    }

    fn digits(&mut self) -> Option<usize> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        let count = self.at - start;
        (count > 0).then_some(count)
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if let Some(b'N' | b'I') = self.peek() {
            let not_finite = (self.at == start && self.take(b"NaN").is_some())
                || self.take(b"Infinity").is_some();
            return (not_finite && self.strictness == Strictness::Event).then_some(Value::Null);
        }
        let leading_zero = self.peek()? == b'0';
        let whole = self.digits()?;
        if leading_zero && whole > 1 {
            return None;
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            integer = false;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
            integer = false;
        }
        let digits = std::str::from_utf8(&self.json[start..self.at]).ok()?;
        let readable = if integer {
            whole <= MAX_DIGITS
        } else {
            digits.parse::<f64>().is_ok_and(f64::is_finite)
        };
        if readable {
            Some(Value::Number(digits.into()))
        } else {
            (self.strictness == Strictness::Event).then_some(Value::Null)
        }
    }

    fn string(&mut self) -> Option<Text> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let mut text = Text::default();
        loop {
            let rest = &self.json[self.at..];
            let plain = rest
                .iter()
                .position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20)?;
            text.push_bytes(&rest[..plain]);
            self.at += plain + 1;
            match rest[plain] {
                b'"' => return Some(text),
                b'\\' => self.escape(&mut text)?,
                control if self.strictness == Strictness::Event => text.push_byte(control),
                _ => return None,
            }
        }
    }

    fn escape(&mut self, text: &mut Text) -> Option<()> {
        let escape = self.peek()?;
        self.at += 1;
        let byte = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let digits = self.json.get(self.at..self.at + 4)?;
                let mut code = 0;
                for &digit in digits {
                    code = code * 16 + char::from(digit).to_digit(16)?;
                }
                self.at += 4;
                text.push_code_point(code);
                return Some(());
            }
            _ => return None,
        };
        text.push_byte(byte);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
