//! Writing JSON: strings and numbers.

/// Appends `text` as a JSON string.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..0x20 => {
                out.extend_from_slice(&bytes[start..at]);
                start = at + 1;
                let digit = |d: u8| b"0123456789abcdef"[usize::from(d)];
                out.extend_from_slice(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    digit(byte >> 4),
                    digit(byte & 15),
                ]);
                continue;
            }
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        out.extend_from_slice(escape);
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// Appends an integer.
pub fn write_int(out: &mut Vec<u8>, number: i128) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a double, with the fewest digits that read back the same; `null` where JSON
/// has no such number.
pub fn write_f64(out: &mut Vec<u8>, number: f64) {
    if number.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}
