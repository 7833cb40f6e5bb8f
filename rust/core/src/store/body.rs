//! Bodies as they pass by: what is kept of them, and what they turn out to be.

use crate::json::{Fault, FaultKind, Kind, Scanner, check_utf8};
use crate::stream::{
    Assembled, Assembler, Decoder, Dialect, Out, Progress, Rope, Strictness, Value, ending_of,
    escape, parse,
};

/// A body that arrives in chunks and is looked at when it is whole.
#[derive(Debug)]
pub struct Body {
    /// An opening bracket, then the body: checked inside its brackets, it is as deep as it
    /// will be in its line, and no byte of it is copied for that.
    text: Vec<u8>,
    bound: usize,
    cut: bool,
}

/// What a whole body is.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed {
    Empty,
    /// A JSON object as one line of strict JSON.
    Object(Vec<u8>),
    /// An object once what strict JSON does not know (NaN, halves of surrogate pairs, bad
    /// UTF-8, numbers out of range) was replaced; the second is the text as it came.
    Mended(Vec<u8>, Vec<u8>),
    /// Anything else, as it came.
    Other(Vec<u8>),
    /// The first bytes of a body that was too large to keep.
    Cut(Vec<u8>),
}

impl Body {
    /// Keeps at most `bound` bytes.
    #[must_use]
    pub fn new(bound: Option<usize>) -> Self {
        Self {
            text: Vec::new(),
            bound: bound.unwrap_or(usize::MAX),
            cut: false,
        }
    }

    pub fn push(&mut self, chunk: &[u8]) {
        if self.text.is_empty() {
            self.text.reserve(chunk.len() + 2);
            self.text.push(b'[');
        }
        let room = self.bound.saturating_sub(self.text.len() - 1);
        self.cut |= chunk.len() > room;
        self.text.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    /// Says that more of the body was to come than came.
    pub fn cut_off(&mut self) {
        self.cut |= !self.text.is_empty();
    }

    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The bytes that were kept.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.text.get(1..).unwrap_or_default()
    }

    pub(super) fn parsed(mut self) -> Parsed {
        if self.bytes().is_empty() && !self.cut {
            return Parsed::Empty;
        }
        if self.cut {
            self.text.remove(0);
            return Parsed::Cut(self.text);
        }
        self.text.push(b']');
        let object = only_object(&self.text);
        self.text.pop();
        match object {
            Ok(Some((start, end))) => {
                self.text.truncate(end);
                self.text.drain(..start);
                on_one_line(&mut self.text);
                Parsed::Object(self.text)
            }
            Ok(None) => Parsed::Other(self.text.split_off(1)),
            Err(_) => match mend(&self.text[1..]) {
                Some(mended) => Parsed::Mended(mended, self.text.split_off(1)),
                None => Parsed::Other(self.text.split_off(1)),
            },
        }
    }
}

/// Where in `[body]` the body's one value lies, if it is an object.
fn only_object(bracketed: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    check_utf8(bracketed, 0)?;
    let mut scanner = Scanner::new(bracketed);
    let mut found = None;
    let mut count = 0;
    scanner.array(|scanner| {
        let start = scanner.pos();
        let value = scanner.value()?;
        count += 1;
        found = (value.kind() == Kind::Object).then(|| (start, start + value.bytes().len()));
        Ok(())
    })?;
    if !scanner.at_end() {
        return Err(scanner.fault(FaultKind::TrailingBytes));
    }
    Ok(found.filter(|_| count == 1))
}

/// Line ends between the tokens of a pretty-printed body become blanks; inside strings
/// strict JSON has none.
fn on_one_line(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &json[at..]) {
        json[at + found] = b' ';
        at += found + 1;
    }
}

fn mend(body: &[u8]) -> Option<Vec<u8>> {
    let lossy = String::from_utf8_lossy(body);
    match parse(lossy.as_bytes(), Strictness::Event) {
        Some(value @ Value::Object(_)) => Some(value.to_json()),
        _ => None,
    }
}

/// An event stream that passes by: its text for the record, and what it adds up to.
#[derive(Debug)]
pub struct Stream {
    raw: RawText,
    bound: usize,
    seen: usize,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Assembler(Box<Assembler>),
    /// The stream is larger than what may be kept: what still sees its end.
    Ends(Box<Ends>),
}

#[derive(Debug, Default)]
struct Ends {
    decoder: Box<Decoder>,
    seen: u64,
    category: Option<&'static str>,
    ended: bool,
}

impl Stream {
    #[must_use]
    pub fn new(dialect: Option<Dialect>, bound: Option<usize>) -> Self {
        Self {
            raw: RawText::default(),
            bound: bound.unwrap_or(usize::MAX),
            seen: 0,
            reader: Reader::Assembler(Box::new(Assembler::new(dialect))),
        }
    }

    /// Takes the next chunk and says what it brought.
    pub fn push(&mut self, chunk: &[u8]) -> Progress {
        let room = self.bound.saturating_sub(self.seen);
        self.raw.push(&chunk[..chunk.len().min(room)]);
        self.seen = self.seen.saturating_add(chunk.len());
        let progress = match &mut self.reader {
            Reader::Assembler(assembler) => assembler.feed(chunk),
            Reader::Ends(ends) => {
                return Progress {
                    first_token: false,
                    terminal_offset: ends.push(chunk),
                };
            }
        };
        if self.is_cut() {
            let ends = Reader::Ends(Box::default());
            if let Reader::Assembler(assembler) = std::mem::replace(&mut self.reader, ends) {
                self.reader = Reader::Ends(Box::new(Ends::after(*assembler, self.seen)));
            }
        }
        progress
    }

    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.seen > self.bound
    }

    /// The stream's text as the inside of a JSON string, and what it added up to.
    pub(super) fn finish(self, status: Option<i64>) -> (Rope, Assembled) {
        let assembled = match self.reader {
            Reader::Assembler(assembler) => assembler.finish(status),
            Reader::Ends(ends) => Assembled {
                response: None,
                error_category: ends.category(),
            },
        };
        (self.raw.finish(), assembled)
    }
}

impl Ends {
    fn after(assembler: Assembler, seen: usize) -> Self {
        let seen = seen as u64;
        match assembler.give_up() {
            Ok(category) => Self {
                seen,
                category,
                ended: true,
                ..Self::default()
            },
            Err(decoder) => Self {
                decoder,
                seen,
                ..Self::default()
            },
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Option<usize> {
        let before = self.seen;
        self.seen += chunk.len() as u64;
        let mut found = None;
        let Self {
            decoder,
            category,
            ended,
            ..
        } = self;
        decoder.feed(chunk, |event, start| {
            if *ended {
                return;
            }
            (*ended, *category) = ending_of(&event);
            if *ended {
                found = Some(usize::try_from(start.saturating_sub(before)).unwrap_or(0));
            }
        });
        found
    }

    fn category(&self) -> Option<&'static str> {
        if self.ended {
            self.category
        } else {
            Some("stream_truncated")
        }
    }
}

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Bytes that become the inside of a JSON string as they arrive, so that a stream is held
/// once, in the form in which it is written. What is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
struct RawText {
    escaped: Rope,
    /// The beginning of a character that the last chunk cut.
    cut: Vec<u8>,
}

impl RawText {
    fn push(&mut self, mut chunk: &[u8]) {
        while !self.cut.is_empty() {
            let Some((next, rest)) = chunk.split_first() else {
                return;
            };
            self.cut.push(*next);
            match std::str::from_utf8(&self.cut) {
                Ok(_) => escape(&std::mem::take(&mut self.cut), &mut self.escaped),
                Err(error) if error.error_len().is_none() => {}
                // The character never came to its end; the byte begins something else.
                Err(_) => {
                    self.cut.clear();
                    self.escaped.put(REPLACEMENT);
                    break;
                }
            }
            chunk = rest;
        }
        self.take(chunk);
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            escape(chunk.valid().as_bytes(), &mut self.escaped);
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            let cut = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if cut {
                self.cut = invalid.to_vec();
            } else {
                self.escaped.put(REPLACEMENT);
            }
        }
    }

    fn finish(mut self) -> Rope {
        if !self.cut.is_empty() {
            self.escaped.put(REPLACEMENT);
        }
        self.escaped
    }
}

/// The inside of a JSON string that says `bytes`, lossily.
pub(super) fn escaped(bytes: &[u8]) -> Rope {
    let mut text = RawText::default();
    text.push(bytes);
    text.finish()
}
