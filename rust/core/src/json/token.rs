//! The strict scanner: what a literal, a number, a string may be.

use super::block::{BLOCK, string_marks};
use super::scan::{Scan, Scanner};
use super::{Fault, FaultKind, MAX_INT_DIGITS, parse_f64};

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

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

/// Whether it makes an escape with the backslash before it, alone.
#[inline]
fn is_short_escape(after: Option<&u8>) -> bool {
    matches!(
        after,
        Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'/' | b'b' | b'f')
    )
}

impl Scanner<'_> {
    pub(super) fn literal(&mut self, word: &[u8]) -> Scan<()> {
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
    pub(super) fn number(&mut self) -> Scan<()> {
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
    pub(super) fn string(&mut self) -> Scan<()> {
        // Mostly it ends within the block that it starts in, and has no escapes.
        let start = self.pos + 1;
        if start & !(BLOCK - 1) == self.block {
            let marks = self.marks >> (start % BLOCK);
            let end = start + marks.trailing_zeros() as usize;
            if marks != 0 && self.text.get(end) == Some(&b'"') {
                self.pos = end + 1;
                return Ok(());
            }
        }
        self.long_string()
    }

    fn long_string(&mut self) -> Scan<()> {
        let text = self.text;
        let mut pos = self.pos + 1;
        loop {
            let block = pos & !(BLOCK - 1);
            if block != self.block {
                self.block = block;
                self.marks = string_marks(text, block);
            }
            let marks = self.marks >> (pos % BLOCK);
            if marks == 0 {
                pos = block + BLOCK;
                if pos >= text.len() {
                    self.pos = pos;
                    return Err(self.fault(FaultKind::UnexpectedEnd));
                }
                continue;
            }
            pos += marks.trailing_zeros() as usize;
            match text[pos] {
                b'"' => {
                    self.pos = pos + 1;
                    return Ok(());
                }
                b'\\' => {
                    self.escaped = true;
                    if is_short_escape(text.get(pos + 1)) {
                        pos += 2;
                    } else {
                        self.pos = pos;
                        self.escape()?;
                        pos = self.pos;
                    }
                }
                _ => {
                    self.pos = pos;
                    return Err(self.fault(FaultKind::ControlCharacter));
                }
            }
        }
    }

    /// An escape that is not one character after the backslash.
    fn escape(&mut self) -> Scan<()> {
        let at = self.pos;
        match self.text.get(self.pos + 1) {
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
