//! Writing JSON: strings and numbers.

use super::token::plain_len;
use crate::sink::Sink;

/// Appends `text` as a JSON string.
pub fn write_str(out: &mut impl Sink, text: &str) {
    out.put_byte(b'"');
    let mut rest = text.as_bytes();
    loop {
        let plain = plain_len(rest);
        out.put(&rest[..plain]);
        let Some(byte) = rest.get(plain) else {
            break;
        };
        write_escape(out, *byte);
        rest = &rest[plain + 1..];
    }
    out.put_byte(b'"');
}

fn write_escape(out: &mut impl Sink, byte: u8) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            let digit = |d: u8| b"0123456789abcdef"[usize::from(d)];
            out.put(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            return;
        }
    };
    out.put(&[b'\\', short]);
}

/// Appends an integer.
pub fn write_int(out: &mut impl Sink, number: i128) {
    let mut buffer = itoa::Buffer::new();
    let digits = match u64::try_from(number) {
        Ok(small) => buffer.format(small),
        Err(_) => buffer.format(number),
    };
    out.put(digits.as_bytes());
}

/// Appends a double, with the fewest digits that read back the same; `null` where JSON
/// has no such number.
pub fn write_f64(out: &mut impl Sink, number: f64) {
    if number.is_finite() {
        out.put(zmij::Buffer::new().format_finite(number).as_bytes());
    } else {
        out.put(b"null");
    }
}
