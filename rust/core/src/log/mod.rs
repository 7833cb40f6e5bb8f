//! The rollout log: files of records, one a line, full or packed, plain or in zstd frames.
//!
//! A record is in the file when its append returns; what a kill cuts off is the tail of
//! the last append, which the next writer moves aside. `docs/log.md` defines the files.

mod entry;
mod index;
mod key;
mod prepare;
mod read;
mod write;

pub use entry::Entry;
pub use index::{Index, index_path};
pub use key::{RecordKey, record_key};
pub use prepare::{Form, LogRecord, Prepared, Shape};
pub use read::{Chunk, Damage, Item, Reader, read_entry};
pub use write::{LogFile, Opened, writer_at_work};

use std::path::Path;

/// Whether a file holds zstd frames: its name says so.
#[must_use]
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| suffix == "zst")
}
