//! The strict scanner.

use super::block::{BLOCK, number_run, string_marks};
use super::raw::Raw;
use super::{Fault, FaultKind, MAX_DEPTH, MAX_INT_DIGITS, MAX_RECORD_DEPTH, parse_f64};

type Scan<T> = Result<T, Fault>;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A cursor over text that is not trusted.
///
/// UTF-8 is not looked at here: the caller checks the ranges it has not seen before
/// ([`super::check_utf8`]), all at once and at memory speed.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    pos: usize,
    depth: usize,
    /// Where the block starts that was classified last, and its marks.
    block: usize,
    marks: u64,
    max_depth: usize,
    one_line: bool,
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

#[inline]
fn load(text: &[u8], pos: usize) -> Option<u64> {
    let bytes = text.get(pos..pos + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Marks (high bit) the bytes that are no ASCII digit; only the lowest mark is exact.
#[inline]
fn non_digit_marks(word: u64) -> u64 {
    // A digit is 0x30..=0x39: after the xor it is 0..=9, so adding 0x76 stays below 0x80.
    let digits = word ^ (ONES * 0x30);
    (digits.wrapping_add(ONES * 0x76) | digits) & HIGHS
}

/// How many bytes come before the first that a string must escape.
pub(super) fn plain_len(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() {
        let marks = string_marks(text, at);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    text.len()
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
    fn unexpected(&self) -> Fault {
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
        self.skip()?;
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

    fn literal(&mut self, word: &[u8]) -> Scan<()> {
        let rest = self.rest();
        if rest.starts_with(word) {
            self.pos += word.len();
            return Ok(());
        }
        let same = rest.iter().zip(word).take_while(|(a, b)| a == b).count();
        self.pos += same;
        Err(self.unexpected())
    }

    #[inline]
    fn digits(&mut self) -> usize {
        let start = self.pos;
        while let Some(word) = load(self.text, self.pos) {
            let marks = non_digit_marks(word);
            if marks != 0 {
                self.pos += marks.trailing_zeros() as usize / 8;
                return self.pos - start;
            }
            self.pos += 8;
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.pos += 1;
        }
        self.pos - start
    }

    #[inline]
    fn number(&mut self) -> Scan<()> {
        let start = self.pos;
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        let first = self.peek();
        let int_digits = self.digits();
        if int_digits == 0 {
            return Err(self.unexpected());
        }
        if first == Some(b'0') && int_digits > 1 {
            self.pos -= int_digits - 1;
            return Err(self.fault(FaultKind::UnexpectedByte));
        }
        let mut next = self.peek();
        if !matches!(next, Some(b'.' | b'e' | b'E')) {
            return if int_digits > MAX_INT_DIGITS {
                self.pos = start;
                Err(self.fault(FaultKind::NumberOutOfRange))
            } else {
                Ok(())
            };
        }
        if next == Some(b'.') {
            self.pos += 1;
            if self.digits() == 0 {
                return Err(self.unexpected());
            }
            next = self.peek();
        }
        let exponent = matches!(next, Some(b'e' | b'E'));
        if exponent {
            self.pos += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.pos += 1;
            }
            if self.digits() == 0 {
                return Err(self.unexpected());
            }
        }
        // Without an exponent only hundreds of digits can pass a double's range.
        if (exponent || int_digits > 300) && !parse_f64(&self.text[start..self.pos]).is_finite() {
            self.pos = start;
            return Err(self.fault(FaultKind::NumberOutOfRange));
        }
        Ok(())
    }

    /// Skips a string from its opening quote to after its closing one.
    #[inline]
    fn string(&mut self) -> Scan<()> {
        self.pos += 1;
        loop {
            let block = self.pos & !(BLOCK - 1);
            if block != self.block {
                self.block = block;
                self.marks = string_marks(self.text, block);
            }
            let marks = self.marks >> (self.pos - block);
            if marks == 0 {
                self.pos = block + BLOCK;
                if self.pos >= self.text.len() {
                    return Err(self.fault(FaultKind::UnexpectedEnd));
                }
                continue;
            }
            self.pos += marks.trailing_zeros() as usize;
            match self.text[self.pos] {
                b'"' => {
                    self.pos += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                _ => return Err(self.fault(FaultKind::ControlCharacter)),
            }
        }
    }

    #[inline]
    fn escape(&mut self) -> Scan<()> {
        let at = self.pos;
        match self.text.get(self.pos + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.pos += 2;
                Ok(())
            }
            Some(b'u') => {
                let first = self.unit(at)?;
                self.pos += 6;
                match first {
                    0xD800..=0xDBFF => {
                        if self.rest().starts_with(b"\\u")
                            && matches!(self.unit(self.pos)?, 0xDC00..=0xDFFF)
                        {
                            self.pos += 6;
                            Ok(())
                        } else {
                            self.pos = at;
                            Err(self.fault(FaultKind::LoneSurrogate))
                        }
                    }
                    0xDC00..=0xDFFF => {
                        self.pos = at;
                        Err(self.fault(FaultKind::LoneSurrogate))
                    }
                    _ => Ok(()),
                }
            }
            Some(_) => Err(self.fault(FaultKind::BadEscape)),
            None => {
                self.pos = self.text.len();
                Err(self.fault(FaultKind::UnexpectedEnd))
            }
        }
    }

    /// The UTF-16 unit of the `\uXXXX` at `at`.
    fn unit(&self, at: usize) -> Scan<u32> {
        let Some(digits) = self.text.get(at + 2..at + 6) else {
            return Err(Fault {
                kind: FaultKind::UnexpectedEnd,
                at: self.text.len(),
            });
        };
        digits.iter().try_fold(0u32, |unit, digit| {
            (*digit as char)
                .to_digit(16)
                .map(|d| unit << 4 | d)
                .ok_or(Fault {
                    kind: FaultKind::BadEscape,
                    at,
                })
        })
    }
}
