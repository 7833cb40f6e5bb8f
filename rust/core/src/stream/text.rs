//! Text that may be broken for a while: bytes in which half surrogates and cut
//! characters wait for their other half.

use std::borrow::Cow;

use super::rope::{Out, Rewritten, Rope};

/// A string under assembly.
///
/// The bytes are WTF-8, generalised: a half surrogate is its three-byte form, and bytes
/// that are no UTF-8 at all stay as they came. Only [`Text::write_json`] and
/// [`Text::to_string_lossy`] repair: two halves that met become their character, and
/// whatever is still broken becomes U+FFFD. A piece of the rope ends at a whole character,
/// so each can be repaired by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Rope);

impl Text {
    /// All bytes in a row; a copy only where the text is long.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.0.contiguous()
    }

    pub(super) fn rope(&self) -> &Rope {
        &self.0
    }

    pub(super) fn into_rope(self) -> Rope {
        self.0
    }

    /// The text, where it is short and valid, as names and ids are.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        (!self.0.is_long()).then(|| std::str::from_utf8(self.0.first()).ok())?
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing but JSON's blanks is in it.
    pub(super) fn is_blank(&self) -> bool {
        self.0.pieces().flatten().all(u8::is_ascii_whitespace)
    }

    /// The last byte that is no blank.
    pub(super) fn last_byte(&self) -> Option<u8> {
        let mut bytes = self.0.pieces().flatten().rev();
        bytes.find(|byte| !byte.is_ascii_whitespace()).copied()
    }

    pub fn push(&mut self, other: Text) {
        if self.is_empty() {
            *self = other;
        } else if other.0.is_long() && ends_whole(self.0.last()) {
            self.0.append(other.0);
        } else {
            for piece in other.0.into_pieces() {
                self.push_bytes(&piece);
            }
        }
    }

    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.0.room();
            let count = if room > 0 {
                bytes.len().min(room)
            } else if ends_whole(self.0.last()) {
                self.0.begin_piece();
                continue;
            } else {
                1
            };
            let (now, later) = bytes.split_at(count);
            self.0.last().extend_from_slice(now);
            bytes = later;
        }
    }

    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.push_bytes(&[byte]);
    }

    /// Appends a code point; a surrogate is kept as its three-byte form.
    pub(crate) fn push_code_point(&mut self, code: u32) {
        if let Some(character) = char::from_u32(code) {
            self.push_bytes(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            let [.., high, low] = code.to_be_bytes();
            self.push_bytes(&[
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
        for piece in self.0.pieces() {
            repair(piece, |part| out.push_str(part));
        }
        out
    }

    /// How many bytes [`Text::write_json`] appends, where the text is not broken.
    pub(crate) fn json_len(&self) -> usize {
        let escapes = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
        // Five more for a control character, one more for the rest: an upper bound.
        let more = |byte: &u8| if *byte < 0x20 { 5 } else { 1 };
        let bytes = self.0.pieces().flatten();
        let extra: usize = bytes.filter(|byte| escapes(byte)).map(more).sum();
        self.0.len() + extra + 2
    }

    /// Appends the text as a JSON string, quotes included; strict JSON whatever it holds.
    pub(crate) fn write_json(&self, out: &mut impl Out) {
        out.put(b"\"");
        for piece in self.0.pieces() {
            write_piece(piece, out);
        }
        out.put(b"\"");
    }

    /// The same, letting go of what is written.
    pub(super) fn write_json_away(self, out: &mut Rewritten) {
        out.put(b"\"");
        for piece in self.0.into_pieces() {
            write_piece(&piece, out);
            out.recycle(piece);
        }
        out.put(b"\"");
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec().into())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        !self.0.is_long() && self.0.first() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

/// The name of an object's member: bytes as in a [`Text`], in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl Key {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn json_len(&self) -> usize {
        self.0.len() + 2
    }

    pub(crate) fn write_json(&self, out: &mut impl Out) {
        out.put(b"\"");
        write_piece(&self.0, out);
        out.put(b"\"");
    }
}

impl From<Text> for Key {
    fn from(text: Text) -> Self {
        Self(text.0.into_vec())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl PartialEq<str> for Key {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Key {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Whether the bytes end with a whole character, or with broken ones that nothing after
/// them can mend.
fn ends_whole(bytes: &[u8]) -> bool {
    let end = &bytes[bytes.len().saturating_sub(4)..];
    end.iter()
        .rposition(|byte| byte & 0xC0 != 0x80)
        .is_none_or(|start| std::str::from_utf8(&end[start..]).is_ok())
}

fn write_piece(bytes: &[u8], out: &mut impl Out) {
    match std::str::from_utf8(bytes) {
        Ok(_) => escape(bytes, out),
        Err(_) => repair(bytes, |part| escape(part.as_bytes(), out)),
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
pub(crate) fn escape(bytes: &[u8], out: &mut impl Out) {
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.put(&bytes[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.put(b"\\\""),
            b'\\' => out.put(b"\\\\"),
            b'\n' => out.put(b"\\n"),
            b'\r' => out.put(b"\\r"),
            b'\t' => out.put(b"\\t"),
            0x08 => out.put(b"\\b"),
            0x0C => out.put(b"\\f"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.put(b"\\u00");
                out.put(&[
                    HEX[usize::from(control >> 4)],
                    HEX[usize::from(control & 0x0F)],
                ]);
            }
        }
    }
    out.put(&bytes[plain..]);
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
            text.push(Text::from(&bytes[cut..]));
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

    #[test]
    fn a_long_text_is_repaired_like_a_short_one() {
        use super::super::rope::PIECE;
        let pieces: [&[u8]; 6] = [
            "é".as_bytes(),
            "😀".as_bytes(),
            b"\xed\xa0\xbd\xed\xb8\x80",
            b"\xed\xa0\xbda",
            b"\x80\xff",
            b"\x80\x80\x80\x80\x80",
        ];
        for piece in pieces {
            for lead in 0..4 {
                let bytes = [&b"abcd"[..lead], &piece.repeat(2 * PIECE / piece.len())].concat();
                let mut whole = String::new();
                repair(&bytes, |part| whole.push_str(part));
                for step in [1, 7, PIECE - 1, bytes.len()] {
                    let mut text = Text::default();
                    for chunk in bytes.chunks(step) {
                        text.push(Text::from(chunk));
                    }
                    assert!(text.to_string_lossy() == whole, "{piece:?} {lead} {step}");
                    let back: String = serde_json::from_str(&json(&text)).unwrap();
                    assert!(back == whole, "{piece:?} {lead} {step}");
                }
            }
        }
    }
}
