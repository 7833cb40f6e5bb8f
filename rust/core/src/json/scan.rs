//! The strict scanner: how containers are walked and values skipped.

use super::block::number_run;
use super::raw::Raw;
use super::tape::FieldName;
use super::{Fault, FaultKind, MAX_DEPTH, MAX_RECORD_DEPTH};

pub(super) type Scan<T> = Result<T, Fault>;

/// A cursor over text that is not trusted.
///
/// UTF-8 is not looked at here: the caller checks the ranges it has not seen before
/// ([`super::check_utf8`]), all at once and at memory speed.
#[derive(Debug)]
pub struct Scanner<'a> {
    pub(super) text: &'a [u8],
    pub(super) pos: usize,
    depth: usize,
    /// Where the block starts that was classified last, and its marks.
    pub(super) block: usize,
    pub(super) marks: u64,
    max_depth: usize,
    one_line: bool,
    /// Whether the last key, or string that crossed a block, had an escape.
    pub(super) escaped: bool,
}

/// The bits that tell which open containers are objects: a packed record nests a
/// record's parts two levels deeper.
const DEPTH_WORDS: usize = (MAX_RECORD_DEPTH + 2) / 64 + 1;

/// The first position at or after `pos` that holds no JSON blank.
#[must_use]
pub fn skip_blanks(text: &[u8], mut pos: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = text.get(pos) {
        pos += 1;
    }
    pos
}

impl<'a> Scanner<'a> {
    /// A scanner at the start of `text`, at depth 0.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            pos: 0,
            depth: 0,
            block: usize::MAX,
            marks: 0,
            max_depth: MAX_DEPTH,
            one_line: false,
            escaped: false,
        }
    }

    /// The same with another limit than [`MAX_DEPTH`]; two levels above
    /// [`MAX_RECORD_DEPTH`] at most.
    #[must_use]
    pub fn with_max_depth(text: &'a [u8], max_depth: usize) -> Self {
        Self {
            max_depth: max_depth.min(MAX_RECORD_DEPTH + 2),
            ..Self::new(text)
        }
    }

    /// A scanner at `pos` of a file of lines: a line feed is no blank, so that no value
    /// reaches past the end of its line.
    #[must_use]
    pub fn in_line(text: &'a [u8], pos: usize) -> Self {
        Self {
            pos,
            one_line: true,
            ..Self::new(text)
        }
    }

    /// The byte offset of the next byte.
    #[must_use]
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Whether everything was read.
    #[must_use]
    pub fn at_end(&self) -> bool {
        self.pos >= self.text.len()
    }

    /// The next byte, if any.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.text.get(self.pos).copied()
    }

    /// What is left.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.text[self.pos.min(self.text.len())..]
    }

    /// A slice of the text that was scanned.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        &self.text[start..end]
    }

    /// Moves on by `len` bytes that the caller knows to be whole values.
    pub fn advance(&mut self, len: usize) {
        self.pos += len;
    }

    /// A fault at the current position.
    #[must_use]
    #[cold]
    pub fn fault(&self, kind: FaultKind) -> Fault {
        Fault {
            kind,
            at: self.pos.min(self.text.len()),
        }
    }

    #[cold]
    pub(super) fn unexpected(&self) -> Fault {
        self.fault(if self.at_end() {
            FaultKind::UnexpectedEnd
        } else {
            FaultKind::UnexpectedByte
        })
    }

    /// Skips blanks.
    #[inline]
    pub fn blanks(&mut self) {
        // Compact JSON has none: one comparison decides.
        if self.text.get(self.pos).is_some_and(|b| *b <= b' ') {
            self.skip_blanks();
        }
    }

    fn skip_blanks(&mut self) {
        if self.one_line {
            while let Some(b' ' | b'\t' | b'\r') = self.text.get(self.pos) {
                self.pos += 1;
            }
        } else {
            self.pos = skip_blanks(self.text, self.pos);
        }
    }

    /// Reads one value of any kind and returns its slice; blanks before it are the
    /// caller's business.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    #[inline]
    pub fn value(&mut self) -> Scan<Raw<'a>> {
        let start = self.pos;
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.skip()?,
        }
        Ok(Raw::new(&self.text[start..self.pos]))
    }

    /// Walks an object: `member` is called with each key (decoded where it has escapes,
    /// as raw text between the quotes) and must consume the value.
    ///
    /// # Errors
    /// The first rule that the text breaks, or what `member` returns.
    pub fn object(&mut self, mut member: impl FnMut(&mut Self, Raw<'a>) -> Scan<()>) -> Scan<()> {
        if self.peek() != Some(b'{') {
            return Err(self.unexpected());
        }
        self.enter()?;
        self.blanks();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            self.blanks();
            match self.peek() {
                Some(b',') => {
                    self.pos += 1;
                    self.blanks();
                }
                Some(b'}') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// What the key is called that was just read: the first that a member asks.
    #[inline]
    pub fn name<N: FieldName>(&self, key: Raw<'a>) -> N {
        match key.bytes() {
            [b'"', text @ .., b'"'] if !self.escaped => N::of(text),
            _ => N::of_key(key),
        }
    }

    /// Walks an array: `element` is called at the first byte of each element, with its
    /// index, and must consume it, and may consume more whole elements with the commas
    /// between them.
    ///
    /// # Errors
    /// The first rule that the text breaks, or what `element` returns.
    pub fn array(&mut self, mut element: impl FnMut(&mut Self) -> Scan<()>) -> Scan<()> {
        if self.peek() != Some(b'[') {
            return Err(self.unexpected());
        }
        self.enter()?;
        self.blanks();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(());
        }
        loop {
            element(self)?;
            self.blanks();
            match self.peek() {
                Some(b',') => {
                    self.pos += 1;
                    self.blanks();
                }
                Some(b']') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn enter(&mut self) -> Scan<()> {
        if self.depth >= self.max_depth {
            return Err(self.fault(FaultKind::TooDeep));
        }
        self.depth += 1;
        self.pos += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.pos += 1;
    }

    /// A key, the colon after it, and the blanks up to the value.
    #[inline]
    fn key(&mut self) -> Scan<Raw<'a>> {
        let start = self.pos;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        self.escaped = false;
        self.string()?;
        let key = Raw::new(&self.text[start..self.pos]);
        self.blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected());
        }
        self.pos += 1;
        self.blanks();
        Ok(key)
    }

    /// Skips one value without recursion: the kinds of the open containers are bits.
    fn skip(&mut self) -> Scan<()> {
        let base = self.depth;
        let mut objects = [0u64; DEPTH_WORDS];
        loop {
            // At the first byte of a value.
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b'{') => {
                    self.enter()?;
                    self.blanks();
                    if self.peek() == Some(b'}') {
                        self.leave();
                    } else {
                        objects[self.depth / 64] |= 1 << (self.depth % 64);
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.enter()?;
                    self.blanks();
                    if self.peek() == Some(b']') {
                        self.leave();
                    } else {
                        objects[self.depth / 64] &= !(1 << (self.depth % 64));
                        if matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
                            self.numbers()?;
                        }
                        continue;
                    }
                }
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.unexpected()),
            }
            // After a value: close what ends here.
            loop {
                if self.depth == base {
                    return Ok(());
                }
                self.blanks();
                let in_object = objects[self.depth / 64] >> (self.depth % 64) & 1 == 1;
                match (self.peek(), in_object) {
                    (Some(b','), true) => {
                        self.pos += 1;
                        self.blanks();
                        self.key()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.pos += 1;
                        self.blanks();
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => self.leave(),
                    _ => return Err(self.unexpected()),
                }
            }
        }
    }

    /// Runs through `1,2,3,` of an array of numbers (token ids, log probabilities) and
    /// stops at the first byte of the last one, or of what is no number.
    pub(super) fn numbers(&mut self) -> Scan<()> {
        loop {
            let run = number_run(self.text, self.pos);
            if run > 0 {
                self.pos += run;
                if matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
                    continue;
                }
                self.blanks();
                return Ok(());
            }
            let start = self.pos;
            self.number()?;
            if self.peek() != Some(b',') {
                self.pos = start;
                return Ok(());
            }
            self.pos += 1;
            if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
                self.blanks();
                return Ok(());
            }
        }
    }
}
