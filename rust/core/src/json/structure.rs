//! Where strings and containers begin and end in text that a strict scan has passed.

use super::block::{BLOCK, quote_marks, structure_marks};

/// How many blocks of a string without escapes are looked at before it counts as a long
/// one, which a search for two bytes passes faster.
const LONG: usize = 4;

/// A cursor that goes forward: each block of 64 bytes is classified once for what is inside
/// of strings, and once for what is outside.
#[derive(Debug)]
pub(crate) struct Structure<'t> {
    text: &'t [u8],
    inside: (usize, u64),
    outside: (usize, u64),
}

impl<'t> Structure<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            inside: (usize::MAX, 0),
            outside: (usize::MAX, 0),
        }
    }

    /// The first quote, bracket or brace at or after `pos`, which lies outside of strings.
    #[inline]
    pub(crate) fn next_outside(&mut self, mut pos: usize) -> Option<usize> {
        while pos < self.text.len() {
            let block = pos & !(BLOCK - 1);
            if block != self.outside.0 {
                self.outside = (block, structure_marks(self.text, block));
            }
            let marks = self.outside.1 >> (pos - block);
            if marks != 0 {
                return Some(pos + marks.trailing_zeros() as usize);
            }
            pos = block + BLOCK;
        }
        None
    }

    /// The byte after the string that begins at `start`.
    #[inline]
    pub(crate) fn end_of_string(&mut self, start: usize) -> usize {
        let mut pos = start + 1;
        let mut plain = 0;
        while pos < self.text.len() {
            let block = pos & !(BLOCK - 1);
            if block != self.inside.0 {
                self.inside = (block, quote_marks(self.text, block));
            }
            let marks = self.inside.1 >> (pos - block);
            if marks == 0 {
                pos = block + BLOCK;
                plain += 1;
                if plain == LONG {
                    plain = 0;
                    pos = self.next_inside(pos);
                }
                continue;
            }
            pos += marks.trailing_zeros() as usize;
            if self.text[pos] == b'"' {
                return pos + 1;
            }
            // An escape; of `\u0041` the digits are plain.
            pos += 2;
            plain = 0;
        }
        self.text.len()
    }

    fn next_inside(&self, pos: usize) -> usize {
        let rest = self.text.get(pos..).unwrap_or_default();
        pos + memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_where_they_end() {
        for len in 0..400 {
            for escape in ["", "\\\"", "\\\\", "\\u0022"] {
                let string = format!("\"{}{escape}{}\"", "a".repeat(len), "b".repeat(len % 70));
                let text = format!("[1, {string},\"x\"]");
                let mut structure = Structure::new(text.as_bytes());
                assert_eq!(structure.next_outside(0), Some(0));
                assert_eq!(structure.next_outside(1), Some(4));
                let end = structure.end_of_string(4);
                assert_eq!(end, 4 + string.len(), "{text}");
                assert_eq!(structure.next_outside(end), Some(end + 1));
                assert_eq!(structure.end_of_string(end + 1), end + 4);
                assert_eq!(structure.next_outside(end + 4), Some(end + 4));
                assert_eq!(structure.next_outside(end + 5), None);
            }
        }
    }
}
