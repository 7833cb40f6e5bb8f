//! JSON text into a [`Value`], at two strictnesses.

use super::rope::Rope;
use super::source::{Given, Lent, Source};
use super::text::{Key, Text};
use super::value::{Object, Value};

/// Deeper nesting than this does not parse: a record wraps a response in a few levels
/// more, and a reader of the store takes 1,024 (contract, section 3).
pub const MAX_DEPTH: usize = 1000;

/// An integer of more digits would make its record unreadable (contract, section 3).
pub(super) const MAX_DIGITS: usize = 4300;

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
    Parser::new(Lent::new(json), strictness).whole()
}

/// Parses an event's data. The lists of log-probabilities come out written: as trees they
/// would take several times their text.
///
/// A long text is let go as it is read, so that it is not held beside what it says. Where
/// it does not parse it is given back.
pub(super) fn parse_event(json: Rope) -> Result<Value, Rope> {
    if json.is_long() {
        if !is_json(&json) {
            return Err(json);
        }
        let parsed = Parser::event(Given::new(json)).whole();
        return Ok(parsed.unwrap_or_default());
    }
    let parsed = Parser::event(Lent::new(json.first())).whole();
    parsed.ok_or(json)
}

/// Parses what a model wrote as arguments; what does not parse is given back.
pub(super) fn parse_arguments(text: Text) -> Result<Value, Text> {
    let strictness = Strictness::Arguments;
    if text.rope().is_long() {
        if Parser::hollow(Lent::of(text.rope()), strictness)
            .whole()
            .is_none()
        {
            return Err(text);
        }
        let parsed = Parser::new(Given::new(text.into_rope()), strictness).whole();
        return Ok(parsed.unwrap_or_default());
    }
    let parsed = Parser::new(Lent::of(text.rope()), strictness).whole();
    parsed.ok_or(text)
}

/// Whether arguments are a whole JSON object.
pub(super) fn is_object(arguments: &Text) -> bool {
    let mut parser = Parser::hollow(Lent::of(arguments.rope()), Strictness::Arguments);
    matches!(parser.value(0), Some(Value::Object(_))) && parser.at_end()
}

fn is_json(json: &Rope) -> bool {
    Parser::hollow(Lent::of(json), Strictness::Event)
        .whole()
        .is_some()
}

/// The members of an object that `wanted` names; the others, and what follows the first
/// fault, are left out.
pub(super) fn glance(json: &Rope, wanted: &[&str]) -> Object {
    let mut found = Object::default();
    let mut parser = Parser::event(Lent::of(json));
    parser.members(|parser, key| {
        parser.hollow = !wanted.iter().any(|name| key == *name);
        let value = parser.value(1);
        if !std::mem::take(&mut parser.hollow) {
            found.push(key, value?);
        }
        Some(())
    });
    found
}

/// A position in a JSON text.
pub(super) struct Parser<S> {
    source: S,
    strictness: Strictness,
    /// Checks only: strings and containers come out empty.
    hollow: bool,
    /// Whether lists of log-probabilities are written at once.
    writes: bool,
    /// Within log-probabilities.
    written: bool,
}

impl<S: Source> Parser<S> {
    pub(super) fn new(source: S, strictness: Strictness) -> Self {
        Self {
            source,
            strictness,
            hollow: false,
            writes: false,
            written: false,
        }
    }

    fn event(source: S) -> Self {
        Self {
            writes: true,
            ..Self::new(source, Strictness::Event)
        }
    }

    fn hollow(source: S, strictness: Strictness) -> Self {
        Self {
            hollow: true,
            ..Self::new(source, strictness)
        }
    }

    fn whole(mut self) -> Option<Value> {
        let value = self.value(0)?;
        self.at_end().then_some(value)
    }

    fn peek(&self) -> Option<u8> {
        self.source.rest().first().copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.source.advance(1);
        }
    }

    /// Whether nothing but blanks is left.
    pub(super) fn at_end(&mut self) -> bool {
        self.blanks();
        self.peek().is_none()
    }

    fn take(&mut self, expected: &[u8]) -> Option<()> {
        for &byte in expected {
            if self.peek()? != byte {
                return None;
            }
            self.source.advance(1);
        }
        Some(())
    }

    pub(super) fn value(&mut self, depth: usize) -> Option<Value> {
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
            let outside = parser.written;
            parser.written |= parser.writes && key == "logprobs";
            let value = parser.value(depth)?;
            parser.written = outside;
            if !parser.hollow {
                object.push(key, value);
            }
            Some(())
        })?;
        Some(Value::Object(object))
    }

    /// Walks an object; `member` is called with each key, the parser standing at its value.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Key) -> Option<()>,
    ) -> Option<()> {
        self.blanks();
        self.take(b"{")?;
        self.blanks();
        if self.peek()? == b'}' {
            self.source.advance(1);
            return Some(());
        }
        loop {
            self.blanks();
            let key = self.string()?;
            self.blanks();
            self.take(b":")?;
            self.blanks();
            member(self, key.into())?;
            self.blanks();
            match self.peek()? {
                b',' => self.source.advance(1),
                b'}' => {
                    self.source.advance(1);
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.source.advance(1);
        self.blanks();
        if self.peek()? == b']' {
            self.source.advance(1);
            return Some(Value::Array(Vec::new()));
        }
        let mut items = Vec::new();
        let mut list = Rope::default();
        loop {
            let item = self.value(depth)?;
            if self.written && !self.hollow {
                if !list.is_empty() {
                    list.push(b",");
                }
                item.write(&mut list);
            } else if !self.hollow {
                items.push(item);
            }
            self.blanks();
            match self.peek()? {
                b',' => self.source.advance(1),
                b']' => {
                    self.source.advance(1);
                    break;
                }
                _ => return None,
            }
        }
        Some(if list.is_empty() {
            Value::Array(items)
        } else {
            list.shrink();
            Value::RawList(list)
        })
    }

    fn number(&mut self) -> Option<Value> {
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let rest = self.source.rest();
        if let Some(end) = rest.iter().position(|byte| !in_number(byte)) {
            if !matches!(&rest[..end], b"" | b"-") {
                let value = number(&rest[..end], self.strictness);
                self.source.advance(end);
                return value;
            }
        } else {
            // It goes on in the next piece, or ends the text.
            let mut digits = Vec::new();
            while let Some(byte) = self.peek().filter(in_number) {
                digits.push(byte);
                self.source.advance(1);
            }
            if digits != b"-" {
                return number(&digits, self.strictness);
            }
        }
        let negative = self.peek() == Some(b'-');
        if negative {
            self.source.advance(1);
        }
        match self.peek()? {
            b'N' if !negative => self.take(b"NaN")?,
            b'I' => self.take(b"Infinity")?,
            _ => return None,
        }
        (self.strictness == Strictness::Event).then_some(Value::Null)
    }

    fn string(&mut self) -> Option<Text> {
        if self.peek()? != b'"' {
            return None;
        }
        self.source.advance(1);
        let mut text = Text::default();
        loop {
            let rest = self.source.rest();
            if rest.is_empty() {
                return None;
            }
            let plain = rest
                .iter()
                .position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
            let end = plain.unwrap_or(rest.len());
            if !self.hollow {
                text.push_bytes(&rest[..end]);
            }
            let stop = plain.map(|at| rest[at]);
            self.source.advance(end + usize::from(stop.is_some()));
            match stop {
                None => {}
                Some(b'"') => return Some(text),
                Some(b'\\') => self.escape(&mut text)?,
                Some(_) if self.strictness == Strictness::Event && self.hollow => {}
                Some(control) if self.strictness == Strictness::Event => text.push_byte(control),
                Some(_) => return None,
            }
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.source.advance(1);
        Some(byte)
    }

    fn escape(&mut self, text: &mut Text) -> Option<()> {
        let escape = self.next()?;
        let byte = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = 0;
                for _ in 0..4 {
                    code = code * 16 + char::from(self.next()?).to_digit(16)?;
                }
                if !self.hollow {
                    text.push_code_point(code);
                }
                return Some(());
            }
            _ => return None,
        };
        if !self.hollow {
            text.push_byte(byte);
        }
        Some(())
    }
}

/// A number's value: null where no reader could take it.
fn number(digits: &[u8], strictness: Strictness) -> Option<Value> {
    let count = |digits: &[u8]| {
        digits
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let whole_part = digits.strip_prefix(b"-").unwrap_or(digits);
    let whole = count(whole_part);
    if whole == 0 || (whole > 1 && whole_part[0] == b'0') {
        return None;
    }
    let mut rest = &whole_part[whole..];
    let integer = rest.is_empty();
    if let Some(fraction) = rest.strip_prefix(b".") {
        let places = count(fraction);
        if places == 0 {
            return None;
        }
        rest = &fraction[places..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let signed = matches!(exponent, [b'+' | b'-', ..]);
        let exponent = &exponent[usize::from(signed)..];
        let places = count(exponent);
        if places == 0 {
            return None;
        }
        rest = &exponent[places..];
    }
    if !rest.is_empty() {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let readable = if integer {
        whole <= MAX_DIGITS
    } else {
        digits.parse::<f64>().is_ok_and(f64::is_finite)
    };
    if readable {
        Some(Value::Number(digits.into()))
    } else {
        (strictness == Strictness::Event).then_some(Value::Null)
    }
}
