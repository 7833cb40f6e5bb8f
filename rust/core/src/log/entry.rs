//! Where a record lies in its file, and the line of the index that says so.

use crate::json::{Raw, parse, write_str};

/// One record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First byte of its line, or of the frame that holds it.
    pub offset: u64,
    /// Bytes of the line with its newline, or of the frame.
    pub length: u64,
    /// Which of the frame's lines it is; 0 in a plain file.
    pub line: u64,
    /// The rollout id; a record without a valid one has none.
    pub id: Option<String>,
    /// Whether its rollout never started (contract, section 11).
    pub never_started: bool,
}

impl Entry {
    /// The byte after the record's line or frame.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Appends the index's line, `[offset,length,line,id,never_started,check]`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut digits = itoa::Buffer::new();
        for (before, number) in [(b'[', self.offset), (b',', self.length), (b',', self.line)] {
            out.push(before);
            out.extend_from_slice(digits.format(number).as_bytes());
        }
        out.push(b',');
        match &self.id {
            Some(id) => write_str(out, id),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(if self.never_started {
            b",true,"
        } else {
            b",false,"
        });
        let check = check(&out[start..]);
        out.extend_from_slice(digits.format(check).as_bytes());
        out.extend_from_slice(b"]\n");
    }

    /// Reads such a line.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let checked = memchr::memrchr(b',', text)? + 1;
        let mut fields = parse(text).ok()?.elements();
        let mut number = || u64::try_from(fields.next()?.as_i64()?).ok();
        let (offset, length, line) = (number()?, number()?, number()?);
        let id = fields.next()?;
        let never_started = fields.next()?.as_bool()?;
        if fields.next()?.as_i64()? != i64::from(check(&text[..checked])) {
            return None;
        }
        Some(Self {
            offset,
            length,
            line,
            id: if id == Raw::NULL {
                None
            } else {
                Some(id.as_str()?.into_owned())
            },
            never_started,
        })
    }
}

/// FNV-1a: tells a line of an index that was damaged.
fn check(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
