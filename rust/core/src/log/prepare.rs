//! Records on their way into a file: formed, compressed, and nobody waits for it.

use std::borrow::Cow;
use std::sync::Mutex;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::entry::Entry;
use super::key::{RecordKey, record_key};
use crate::error::{Error, Result};
use crate::json::Raw;
use crate::pack::{MAX_UNPACKED, is_packed, pack_json, pack_text, unpack_json};

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole JSON text.
    Full,
    /// Each distinct value once (`docs/packed.md`).
    Packed,
}

/// The form and the compression of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Full or packed.
    pub form: Form,
    /// The level of the zstd frames; plain lines without.
    pub level: Option<i32>,
}

/// A record to be written.
#[derive(Clone, Debug)]
pub struct LogRecord<'a> {
    /// Its text, full or packed, as it came.
    pub text: Cow<'a, [u8]>,
    /// Whose it is, where the caller knows: text in the log's own form is then written
    /// without a look at it.
    pub key: Option<RecordKey>,
}

/// So much text goes into a frame before the next is begun.
const FRAME_TEXT: usize = 1 << 20;

/// Buffers that were used before: their pages are there already.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
const MOST_SPARE: usize = 4;
/// A larger buffer than this is given back to the system.
const LARGEST_SPARE: usize = 128 << 20;

/// Bytes that are ready to be appended to a file, and the entries for its index with
/// offsets from the first of them.
#[derive(Debug, Default)]
pub struct Prepared {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.bytes));
    }
}

/// Never waits: a thread that a fork left behind may hold the lock for good.
fn take_spare() -> Vec<u8> {
    SPARE
        .try_lock()
        .ok()
        .and_then(|mut spare| spare.pop())
        .unwrap_or_default()
}

fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > LARGEST_SPARE {
        return;
    }
    buffer.clear();
    if let Ok(mut spare) = SPARE.try_lock()
        && spare.len() < MOST_SPARE
    {
        spare.push(buffer);
    }
}

impl Prepared {
    /// Forms and compresses records; those that are no records are left out.
    ///
    /// # Errors
    /// In the list: which record is none, and why. Else: the compressor failed.
    pub fn new(records: &[LogRecord<'_>], shape: Shape) -> Result<(Self, Vec<(usize, Error)>)> {
        let mut building = Building::new(shape);
        let mut refused = Vec::new();
        for (number, record) in records.iter().enumerate() {
            if let Err(error) = building.add(record) {
                refused.push((number, error));
            }
            if building.lines.len() >= FRAME_TEXT {
                building.end_frame()?;
            }
        }
        Ok((building.finish()?, refused))
    }

    /// Takes one record that `render` appends to a buffer in the form that the shape
    /// says: it goes from there to the file, without a copy of its own in between.
    ///
    /// # Errors
    /// What `render` returns, or the compressor failed.
    pub fn rendered(
        key: RecordKey,
        shape: Shape,
        render: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<Self> {
        let mut building = Building::new(shape);
        render(&mut building.lines)?;
        building.end_line(0, key);
        building.finish()
    }

    /// How many bytes the file grows by.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many records there are.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the records lie once the first byte is at `offset`.
    pub fn entries_at(&self, offset: u64) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().map(move |entry| Entry {
            offset: entry.offset + offset,
            ..entry.clone()
        })
    }
}

struct Building {
    shape: Shape,
    /// The lines that are not in a frame yet; in a plain log all of them.
    lines: Vec<u8>,
    /// Frames that are done.
    frames: Vec<u8>,
    entries: Vec<Entry>,
    /// How many of the entries are in frames.
    framed: usize,
}

impl Building {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            lines: take_spare(),
            frames: Vec::new(),
            entries: Vec::new(),
            framed: 0,
        }
    }

    fn add(&mut self, record: &LogRecord<'_>) -> Result<()> {
        let text = record.text.trim_ascii();
        let key = match &record.key {
            Some(key) => key.clone(),
            None => record_key(text)?,
        };
        let start = self.lines.len();
        match (self.shape.form, is_packed(text)) {
            (Form::Packed, false) => {
                let packed = if record.key.is_some() {
                    pack_text(text)?
                } else {
                    pack_json(Raw::new(text))
                };
                self.lines.extend_from_slice(&packed);
            }
            (Form::Full, true) => {
                let full = unpack_json(text, MAX_UNPACKED)?;
                self.lines.extend_from_slice(&full);
            }
            _ => self.lines.extend_from_slice(text),
        }
        self.end_line(start, key);
        Ok(())
    }

    fn end_line(&mut self, start: usize, key: RecordKey) {
        // A newline in strict JSON can only be a blank.
        let line = &mut self.lines[start..];
        let mut at = 0;
        while let Some(len) = memchr::memchr(b'\n', &line[at..]) {
            line[at + len] = b' ';
            at += len + 1;
        }
        self.lines.push(b'\n');
        let plain = self.shape.level.is_none();
        self.entries.push(Entry {
            offset: if plain { start as u64 } else { 0 },
            length: (self.lines.len() - start) as u64,
            line: if plain {
                0
            } else {
                (self.entries.len() - self.framed) as u64
            },
            id: key.id,
            never_started: key.never_started,
        });
    }

    fn end_frame(&mut self) -> Result<()> {
        let Some(level) = self.shape.level else {
            return Ok(());
        };
        if self.lines.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| Error::Shape {
            key: "zstd".into(),
            reason: error.to_string().into(),
        };
        let mut compressor = Compressor::new(level).map_err(failed)?;
        compressor
            .set_parameter(CParameter::ChecksumFlag(true))
            .map_err(failed)?;
        let frame = compressor.compress(&self.lines).map_err(failed)?;
        let offset = self.frames.len() as u64;
        for entry in &mut self.entries[self.framed..] {
            entry.offset = offset;
            entry.length = frame.len() as u64;
        }
        self.framed = self.entries.len();
        self.frames.extend_from_slice(&frame);
        self.lines.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Prepared> {
        self.end_frame()?;
        let bytes = if self.shape.level.is_some() {
            give_back(self.lines);
            self.frames
        } else {
            self.lines
        };
        Ok(Prepared {
            bytes,
            entries: self.entries,
        })
    }
}
