//! Where each rollout's records lie: derived from the data, and kept beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::is_compressed;
use super::key::record_key;
use super::read::{Item, Reader, read_entry};
use crate::error::{Error, Result};

/// The records of a file in order.
#[derive(Debug, Default)]
pub struct Index {
    /// Where they lie.
    pub entries: Vec<Entry>,
    /// Whether the file beside the data says exactly this.
    pub saved: bool,
    /// The offset of a torn tail of the data.
    pub torn: Option<u64>,
}

/// The index's file.
#[must_use]
pub fn index_path(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(".index");
    PathBuf::from(name)
}

impl Index {
    /// The index of a file: what the index beside it says, where that holds, and what the
    /// data has beyond it.
    ///
    /// # Errors
    /// The data cannot be read.
    pub fn load(data: &Path) -> Result<Self> {
        let size = fs::metadata(data)
            .map_err(|error| Error::io("read", data, error))?
            .len();
        let mut index = match fs::read(index_path(data)) {
            Ok(text) => Self::read(&text),
            Err(_) => Self::default(),
        };
        if !index.holds(data, size) {
            index = Self::default();
        }
        // An index can end in the middle of a frame: its last one is read again.
        let again = match index.entries.last() {
            Some(last) if is_compressed(data) => last.offset,
            Some(last) => last.end(),
            None => 0,
        };
        let kept = index.entries.partition_point(|entry| entry.offset < again);
        let known = index.entries.split_off(kept);
        let mut reader = Reader::open(data, again)?;
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Chunk(chunk) => {
                    for (range, entry) in chunk.lines {
                        // A line that is no record is the reader's to report.
                        if let Ok(key) = record_key(&chunk.text[range]) {
                            index.entries.push(Entry {
                                id: key.id,
                                never_started: key.never_started,
                                ..entry
                            });
                        }
                    }
                }
                Item::Damage(damage) if damage.tail => index.torn = Some(damage.offset),
                Item::Damage(_) => {}
            }
        }
        index.saved &= index.entries[kept..] == known;
        Ok(index)
    }

    fn read(text: &[u8]) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut saved = true;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let entry = line.strip_suffix(b"\n").and_then(Entry::read);
            let follows = |entry: &Entry| {
                entries
                    .last()
                    .is_none_or(|last| (last.offset, last.line) < (entry.offset, entry.line))
            };
            let Some(entry) = entry.filter(follows) else {
                saved = false;
                break;
            };
            entries.push(entry);
        }
        Self {
            entries,
            saved,
            torn: None,
        }
    }

    /// Whether the first and the last record are where it says: another file under the
    /// same name would have to agree with both.
    fn holds(&self, data: &Path, size: u64) -> bool {
        let ends = [self.entries.first(), self.entries.last()];
        ends.into_iter().flatten().all(|entry| {
            entry.end() <= size
                && read_entry(data, entry).is_ok_and(|line| {
                    record_key(&line).is_ok_and(|key| {
                        key.id == entry.id && key.never_started == entry.never_started
                    })
                })
        })
    }

    /// Writes the index's file anew; whole or not at all.
    ///
    /// # Errors
    /// A file-system call failed.
    pub fn save(&self, data: &Path) -> Result<()> {
        let path = index_path(data);
        let mut text = Vec::new();
        for entry in &self.entries {
            entry.write(&mut text);
        }
        let mut name = path.clone().into_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        let written: io::Result<()> =
            fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| {
            // It is in nobody's way but untidy.
            let _ = fs::remove_file(&temporary);
            Error::io("write", &path, error)
        })
    }
}
