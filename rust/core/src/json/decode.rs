//! Decoding strings of checked text in one pass, into memory that is used again.

use wide::u8x16;

use super::raw::decode_escape;

const LANE: usize = 16;

/// The 16 bytes at `at`, where there are as many.
#[inline]
fn lane(text: &[u8], at: usize) -> Option<&[u8; LANE]> {
    text.get(at..)?.first_chunk()
}

/// The first byte at or after `at` that `find` marks in a lane; the text's end where there
/// is none. Beyond the text it looks at zero bytes.
#[inline]
fn next_marked(text: &[u8], mut at: usize, find: impl Fn(u8x16) -> u8x16) -> usize {
    let marks = |bytes| find(u8x16::new(bytes)).move_mask().cast_unsigned();
    while let Some(bytes) = lane(text, at) {
        let found = marks(*bytes);
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += LANE;
    }
    let rest = text.get(at..).unwrap_or_default();
    let mut bytes = [0; LANE];
    bytes[..rest.len()].copy_from_slice(rest);
    let found = marks(bytes).trailing_zeros() as usize;
    at + found.min(rest.len())
}

#[inline]
fn equal(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.cmp_eq(u8x16::splat(byte))
}

#[inline]
fn delimiters(bytes: u8x16) -> u8x16 {
    equal(bytes, b'"') | equal(bytes, b'\\')
}

/// The first quote or backslash at or after `at`; the text's end where there is none.
#[must_use]
#[inline]
pub fn next_delimiter(text: &[u8], at: usize) -> usize {
    next_marked(text, at, delimiters)
}

/// The first quote or bracket of any kind at or after `at`; the text's end where there is
/// none.
#[inline]
pub(super) fn next_structural(text: &[u8], at: usize) -> usize {
    next_marked(text, at, |bytes| {
        // With this bit set, square brackets are curly ones.
        let curly = bytes | u8x16::splat(0x20);
        equal(bytes, b'"') | equal(curly, b'{') | equal(curly, b'}')
    })
}

/// Decodes strings one after the other.
#[derive(Debug, Default)]
pub struct Decoder {
    // Only ever grows; what lies beyond the current string is left from earlier ones.
    memory: Vec<u8>,
}

impl Decoder {
    /// The content of the string whose opening quote stands at `pos` of checked text, in
    /// UTF-8; `pos` moves on to after its closing quote.
    #[inline]
    pub fn read<'s>(&'s mut self, text: &'s [u8], pos: &mut usize) -> &'s [u8] {
        let start = *pos + 1;
        let end = next_delimiter(text, start);
        if text.get(end) != Some(&b'\\') {
            *pos = end + 1;
            return text.get(start..end).unwrap_or_default();
        }
        self.decode(text, start, end, pos)
    }

    /// The content of one string of checked text, of which it is all.
    pub fn whole(quoted: &[u8]) -> Vec<u8> {
        let mut decoder = Self {
            memory: vec![0; quoted.len() + 12 + LANE],
        };
        let backslash = next_delimiter(quoted, 1);
        if quoted.get(backslash) != Some(&b'\\') {
            return quoted.get(1..backslash).unwrap_or_default().to_vec();
        }
        let len = decoder.decode(quoted, 1, backslash, &mut 0).len();
        decoder.memory.truncate(len);
        decoder.memory
    }

    /// Goes on at the first backslash.
    fn decode(&mut self, text: &[u8], start: usize, backslash: usize, pos: &mut usize) -> &[u8] {
        let mut len = backslash - start;
        self.reserve(len + LANE);
        self.memory[..len].copy_from_slice(&text[start..backslash]);
        let mut at = backslash;
        // At a backslash, or where the text ends, which checked text does not.
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            // An escape gives at most as many bytes as it has.
            self.reserve(len + 12 + LANE);
            at += match rest.get(1) {
                Some(b'n') => self.byte(&mut len, b'\n'),
                Some(b't') => self.byte(&mut len, b'\t'),
                Some(b'"') => self.byte(&mut len, b'"'),
                Some(b'\\') => self.byte(&mut len, b'\\'),
                _ => {
                    let mut character = [0; 4];
                    let (used, size) = decode_escape(rest, &mut character);
                    self.memory[len..len + 4].copy_from_slice(&character);
                    len += size;
                    used
                }
            };
            at = self.run(text, at, &mut len);
            if text.get(at) != Some(&b'\\') {
                break;
            }
        }
        *pos = at + 1;
        &self.memory[..len]
    }

    #[inline]
    fn byte(&mut self, len: &mut usize, byte: u8) -> usize {
        self.memory[*len] = byte;
        *len += 1;
        2
    }

    /// Copies up to the next quote or backslash and returns where that is. Whole lanes are
    /// copied; what is too much is overwritten by what comes next.
    #[inline]
    fn run(&mut self, text: &[u8], mut at: usize, len: &mut usize) -> usize {
        while let Some(bytes) = lane(text, at) {
            self.reserve(*len + LANE);
            self.memory[*len..*len + LANE].copy_from_slice(bytes);
            let found = delimiters(u8x16::new(*bytes)).move_mask();
            if found != 0 {
                let before = found.trailing_zeros() as usize;
                *len += before;
                return at + before;
            }
            *len += LANE;
            at += LANE;
        }
        let end = next_delimiter(text, at);
        let rest = &text[at.min(end)..end];
        self.reserve(*len + rest.len());
        self.memory[*len..*len + rest.len()].copy_from_slice(rest);
        *len += rest.len();
        end
    }

    #[inline]
    fn reserve(&mut self, len: usize) {
        if self.memory.len() < len {
            self.memory.resize(len.next_power_of_two(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::Decoder;

    fn read(quoted: &[u8]) -> (Vec<u8>, usize) {
        let mut pos = 0;
        let text = Decoder::default().read(quoted, &mut pos).to_vec();
        (text, pos)
    }

    proptest! {
        #[test]
        fn gives_what_was_written(text in "([ -~]|[\"\\\\/\n\r\t\u{8}\u{c}\u{1}é→😀]){0,90}") {
            let mut quoted = serde_json::to_vec(&text).unwrap();
            prop_assert_eq!(read(&quoted), (text.clone().into_bytes(), quoted.len()));
            let len = quoted.len();
            quoted.extend_from_slice(b",\"and more text that follows\\n\"");
            prop_assert_eq!(read(&quoted), (text.clone().into_bytes(), len));
            // Every character escaped.
            let mut units = String::new();
            for unit in text.encode_utf16() {
                write!(units, "\\u{unit:04x}").unwrap();
            }
            let escaped = format!("\"{units}\"");
            prop_assert_eq!(read(escaped.as_bytes()), (text.into_bytes(), escaped.len()));
        }

        #[test]
        fn never_panics(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut quoted = vec![b'"'];
            quoted.extend(text);
            read(&quoted);
        }
    }
}
