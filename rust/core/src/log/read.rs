//! Reading a log's file from one end to the other, whatever it has been through.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use zstd::stream::read::Decoder;
use zstd::zstd_safe::{find_frame_compressed_size, get_error_name, get_frame_content_size};

use super::entry::Entry;
use super::is_compressed;
use super::key::record_key;
use crate::error::{Error, Result};

/// How much is read at once.
const BLOCK: usize = 1 << 20;
/// What a frame may hold; ours hold a record, or a megabyte of smaller ones.
const MOST_TEXT: u64 = 8 << 30;
/// A frame's header may say any size: so much is believed before it is seen.
const MOST_RESERVED: u64 = 256 << 20;
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// What comes next in a file.
#[derive(Debug)]
pub enum Item {
    /// Whole lines.
    Chunk(Chunk),
    /// Bytes that are none.
    Damage(Damage),
}

/// Whole lines and where each lies.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The text of the lines.
    pub text: Vec<u8>,
    /// Each line's range in the text, without its newline, and its place in the file
    /// (an entry without a key). Blank lines are left out.
    pub lines: Vec<(Range<usize>, Entry)>,
}

/// Bytes of a file that no record could be read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// What is wrong.
    pub reason: String,
    /// Whether they reach the file's end: the writer was killed, or is at work.
    pub tail: bool,
}

/// A cursor over a log's file.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    compressed: bool,
    /// What was read and not given out yet, and the offset of its first byte.
    buffer: Vec<u8>,
    start: u64,
    at_end: bool,
    carry: Option<Carry>,
}

/// A line that its frame did not end: other writers cut frames anywhere.
#[derive(Debug)]
struct Carry {
    text: Vec<u8>,
    offset: u64,
    line: u64,
}

impl Reader {
    /// Opens a file at the start of a line or a frame.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, offset: u64) -> Result<Self> {
        let failed = |error| Error::io("read", path, error);
        let mut file = File::open(path).map_err(failed)?;
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            compressed: is_compressed(path),
            buffer: Vec::new(),
            start: offset,
            at_end: false,
            carry: None,
        })
    }

    /// The next lines, or the next damage; none at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        if self.compressed {
            self.next_frame()
        } else {
            self.next_lines()
        }
    }

    fn fill(&mut self) -> Result<()> {
        let more = BLOCK.max(self.buffer.len());
        let read = (&self.file)
            .take(more as u64)
            .read_to_end(&mut self.buffer)
            .map_err(|error| Error::io("read", &self.path, error))?;
        self.at_end = read < more;
        Ok(())
    }

    /// Takes the first bytes out of the buffer.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(len);
        self.start += len as u64;
        std::mem::replace(&mut self.buffer, rest)
    }

    fn next_lines(&mut self) -> Result<Option<Item>> {
        let mut searched = 0;
        loop {
            let found = memchr::memrchr(b'\n', &self.buffer[searched..]);
            if let Some(last) = found {
                let offset = self.start;
                let text = self.take(searched + last + 1);
                return Ok(Some(Item::Chunk(split_plain(text, offset))));
            }
            if self.at_end {
                break;
            }
            searched = self.buffer.len();
            self.fill()?;
        }
        let offset = self.start;
        let text = self.take(self.buffer.len());
        Ok(last_line(text, offset, |text, offset| {
            split_plain(text, offset)
        }))
    }

    fn next_frame(&mut self) -> Result<Option<Item>> {
        let mut damage: Option<Damage> = None;
        loop {
            if self.buffer.len() < MAGIC.len() && !self.at_end {
                self.fill()?;
            }
            if self.buffer.is_empty() {
                break;
            }
            let reason = match self.frame()? {
                Ok((len, text)) => {
                    if let Some(mut damage) = damage {
                        damage.length = self.start - damage.offset;
                        return Ok(Some(Item::Damage(damage)));
                    }
                    let offset = self.start;
                    self.take(len);
                    let chunk = self.split_frame(text, offset, len as u64);
                    return Ok(Some(Item::Chunk(chunk)));
                }
                Err(reason) => reason,
            };
            // A line that went on in what is broken goes with it.
            let carried = self.carry.take().map(|carry| carry.offset);
            damage.get_or_insert_with(|| Damage {
                offset: carried.unwrap_or(self.start),
                length: 0,
                reason,
                tail: false,
            });
            self.skip_to_magic()?;
        }
        if let Some(mut damage) = damage {
            damage.length = self.start - damage.offset;
            damage.tail = true;
            return Ok(Some(Item::Damage(damage)));
        }
        let Some(carry) = self.carry.take() else {
            return Ok(None);
        };
        let length = self.start - carry.offset;
        Ok(last_line(carry.text, carry.offset, |text, offset| Chunk {
            lines: vec![(0..text.len(), place(offset, length, carry.line))],
            text,
        }))
    }

    /// The size and the text of the frame that the buffer begins with, or what is wrong.
    fn frame(&mut self) -> Result<std::result::Result<(usize, Vec<u8>), String>> {
        loop {
            match find_frame_compressed_size(&self.buffer) {
                Ok(len) => {
                    let text = decode(&self.buffer[..len]).map(|text| (len, text));
                    return Ok(text.map_err(|error| error.to_string()));
                }
                Err(code) => {
                    let reason = get_error_name(code);
                    if self.at_end || !reason.contains("size is incorrect") {
                        return Ok(Err(if reason.contains("size is incorrect") {
                            "cut off".to_owned()
                        } else {
                            reason.to_lowercase()
                        }));
                    }
                }
            }
            self.fill()?;
        }
    }

    /// Drops bytes up to the next that could begin a frame.
    fn skip_to_magic(&mut self) -> Result<()> {
        let mut from = 1;
        loop {
            if let Some(at) =
                memchr::memmem::find(&self.buffer[from.min(self.buffer.len())..], &MAGIC)
            {
                self.take(from + at);
                return Ok(());
            }
            if self.at_end {
                self.take(self.buffer.len());
                return Ok(());
            }
            // A magic may have been cut in two.
            let keep = self.buffer.len().min(MAGIC.len() - 1);
            self.take(self.buffer.len() - keep);
            from = 0;
            self.fill()?;
        }
    }

    fn split_frame(&mut self, text: Vec<u8>, offset: u64, length: u64) -> Chunk {
        let mut chunk = Chunk::default();
        let mut at = 0;
        let mut line = 0;
        if let Some(mut carry) = self.carry.take() {
            let Some(end) = memchr::memchr(b'\n', &text) else {
                carry.text.extend_from_slice(&text);
                self.carry = Some(carry);
                return chunk;
            };
            carry.text.extend_from_slice(&text[..=end]);
            at = carry.text.len();
            line = 1;
            let span = offset + length - carry.offset;
            chunk
                .lines
                .push((0..at - 1, place(carry.offset, span, carry.line)));
            carry.text.extend_from_slice(&text[end + 1..]);
            chunk.text = carry.text;
        } else {
            chunk.text = text;
        }
        while let Some(len) = memchr::memchr(b'\n', &chunk.text[at..]) {
            if !is_blank(&chunk.text[at..at + len]) {
                chunk
                    .lines
                    .push((at..at + len, place(offset, length, line)));
            }
            at += len + 1;
            line += 1;
        }
        if at < chunk.text.len() {
            self.carry = Some(Carry {
                text: chunk.text.split_off(at),
                offset,
                line,
            });
        }
        chunk
    }
}

fn place(offset: u64, length: u64, line: u64) -> Entry {
    Entry {
        offset,
        length,
        line,
        id: None,
        never_started: false,
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

fn split_plain(text: Vec<u8>, offset: u64) -> Chunk {
    let mut lines = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let len = memchr::memchr(b'\n', &text[at..]).unwrap_or(text.len() - at);
        let next = (at + len + 1).min(text.len());
        if !is_blank(&text[at..at + len]) {
            let entry = place(offset + at as u64, (next - at) as u64, 0);
            lines.push((at..at + len, entry));
        }
        at = next;
    }
    Chunk { text, lines }
}

/// A last line without its newline is a record where it is a whole one.
fn last_line(
    text: Vec<u8>,
    offset: u64,
    whole: impl FnOnce(Vec<u8>, u64) -> Chunk,
) -> Option<Item> {
    if is_blank(&text) {
        return None;
    }
    if record_key(&text).is_ok() {
        return Some(Item::Chunk(whole(text, offset)));
    }
    Some(Item::Damage(Damage {
        offset,
        length: text.len() as u64,
        reason: "cut off".to_owned(),
        tail: true,
    }))
}

fn decode(frame: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut decoder = Decoder::with_buffer(frame)?.single_frame();
    decoder.window_log_max(31)?;
    let said = get_frame_content_size(frame).ok().flatten().unwrap_or(0);
    let reserved = usize::try_from(said.min(MOST_RESERVED)).unwrap_or(0);
    let mut text = Vec::with_capacity(reserved + 1);
    decoder.take(MOST_TEXT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_TEXT {
        return Err(std::io::Error::other("a frame of too much text"));
    }
    Ok(text)
}

/// Reads the one record that an entry points to, without its newline.
///
/// # Errors
/// The file cannot be read there, or holds something else there.
pub fn read_entry(path: &Path, entry: &Entry) -> Result<Vec<u8>> {
    let failed = |error| Error::io("read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(entry.offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(entry.length)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let elsewhere = || Error::json("no record where the index says", 0).at(path, 0);
    if bytes.len() as u64 != entry.length {
        return Err(elsewhere());
    }
    if !is_compressed(path) {
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        return if memchr::memchr(b'\n', &bytes).is_none() {
            Ok(bytes)
        } else {
            Err(elsewhere())
        };
    }
    let mut text = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = find_frame_compressed_size(&bytes[at..]).map_err(|_| elsewhere())?;
        text.append(&mut decode(&bytes[at..at + len]).map_err(|_| elsewhere())?);
        at += len;
    }
    let line = usize::try_from(entry.line).unwrap_or(usize::MAX);
    let line = text
        .split(|byte| *byte == b'\n')
        .nth(line)
        .map(<[u8]>::to_vec);
    line.filter(|line| !is_blank(line)).ok_or_else(elsewhere)
}
