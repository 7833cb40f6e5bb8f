//! Text that may be broken for a while: bytes in which half surrogates and cut
//! characters wait for their other half.

use std::borrow::Borrow;

/// A string under assembly.
///
/// The bytes are WTF-8, generalised: a half surrogate is its three-byte form, and bytes
/// that are no UTF-8 at all stay as they came. Only [`Text::write_json`] and
/// [`Text::to_string_lossy`] repair: two halves that met become their character, and
/// whatever is still broken becomes U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text(Vec<u8>);

impl Text {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push(&mut self, other: &Text) {
        self.0.extend_from_slice(&other.0);
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Appends a code point; a surrogate is kept as its three-byte form.
    pub(crate) fn push_code_point(&mut self, code: u32) {
        if let Some(character) = char::from_u32(code) {
            self.0
                .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            let [.., high, low] = code.to_be_bytes();
            self.0.extend_from_slice(&[
                0xE0 | (high >> 4),
                0x80 | ((high & 0x0F) << 2) | (low >> 6),
                0x80 | (low & 0x3F),
            ]);
        }
    }

    /// The text with everything broken mended or replaced.
    #[must_use]
    pub fn to_string_lossy(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        repair(&self.0, |piece| out.push_str(piece));
        out
    }

    /// How many bytes [`Text::write_json`] appends, where the text is not broken.
    pub(crate) fn json_len(&self) -> usize {
        let escapes = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
        // Five more for a control character, one more for the rest: an upper bound.
        let more = |byte: &u8| if *byte < 0x20 { 5 } else { 1 };
        let extra: usize = self.0.iter().filter(|byte| escapes(byte)).map(more).sum();
        self.0.len() + extra + 2
    }

    /// Appends the text as a JSON string, quotes included; strict JSON whatever it holds.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        match std::str::from_utf8(&self.0) {
            Ok(_) => escape(&self.0, out),
            Err(_) => repair(&self.0, |piece| escape(piece.as_bytes(), out)),
        }
        out.push(b'"');
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Hands `emit` the valid pieces of `bytes`, with halves joined and the rest replaced.
fn repair(mut bytes: &[u8], mut emit: impl FnMut(&str)) {
    while !bytes.is_empty() {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                emit(valid);
                return;
            }
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                emit(&String::from_utf8_lossy(valid));
                let skip = if let Some(first) = surrogate(rest) {
                    let second = surrogate(&rest[3..]);
                    match second {
                        Some(second) if first < 0xDC00 && second >= 0xDC00 => {
                            let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                            let joined =
                                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                            emit(joined.encode_utf8(&mut [0; 4]));
                            6
                        }
                        _ => {
                            emit("\u{fffd}");
                            3
                        }
                    }
                } else {
                    emit("\u{fffd}");
                    error.error_len().unwrap_or(rest.len())
                };
                bytes = &rest[skip..];
            }
        }
    }
}

/// The surrogate whose three-byte form `bytes` begins with.
fn surrogate(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [0xED, second @ 0xA0..=0xBF, third @ 0x80..=0xBF, ..] => {
            Some(0xD000 | (u32::from(second & 0x3F) << 6) | u32::from(third & 0x3F))
        }
        _ => None,
    }
}

/// Appends valid UTF-8 with what JSON does not allow in a string escaped.
pub(crate) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 0x0F)]);
            }
        }
    }
    out.extend_from_slice(&bytes[plain..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &Text) -> String {
        let mut out = Vec::new();
        text.write_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn halves(codes: &[u32]) -> Text {
        let mut text = Text::default();
        for &code in codes {
            text.push_code_point(code);
        }
        text
    }

    #[test]
    fn halves_join_and_lone_ones_are_replaced() {
        assert_eq!(json(&halves(&[0x68, 0xD83D, 0xDE00, 0x21])), "\"h😀!\"");
        assert_eq!(json(&halves(&[0xD83D])), "\"\u{fffd}\"");
        assert_eq!(json(&halves(&[0xDE00, 0xD83D])), "\"\u{fffd}\u{fffd}\"");
        assert_eq!(json(&halves(&[0xD83D, 0xD83D, 0xDE00])), "\"\u{fffd}😀\"");
        assert_eq!(json(&halves(&[0xD83D, 0x61])), "\"\u{fffd}a\"");
        assert_eq!(halves(&[0xDBFF, 0xDFFF]).to_string_lossy(), "\u{10ffff}");
    }

    #[test]
    fn a_character_cut_between_two_pieces_is_whole_again() {
        let bytes = "é€😀".as_bytes();
        for cut in 0..=bytes.len() {
            let mut text = Text::from(&bytes[..cut]);
            text.push(&Text::from(&bytes[cut..]));
            assert_eq!(json(&text), "\"é€😀\"", "cut at {cut}");
        }
        assert_eq!(
            json(&Text::from(&b"a\xffb\xe2\x82"[..])),
            "\"a\u{fffd}b\u{fffd}\""
        );
    }

    #[test]
    fn everything_json_forbids_is_escaped() {
        for code in 0..0x20 {
            let written = json(&halves(&[code]));
            let back: String = serde_json::from_str(&written).unwrap();
            assert_eq!(back.chars().map(u32::from).collect::<Vec<_>>(), [code]);
        }
        assert_eq!(json(&Text::from("\"\\\u{2028}")), "\"\\\"\\\\\u{2028}\"");
    }
}
