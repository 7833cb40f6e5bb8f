//! Appending to a log's file: one writer at a time, nothing torn but the last append.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fdatasync, flock};
use rustix::io::Errno;

use super::entry::Entry;
use super::index::{Index, index_path};
use super::prepare::Prepared;
use crate::error::{Error, Result};
use crate::store::{Held, LockMode, acquire};

/// How long a reader may have the lock that only asks whether a writer has it.
const PASSING: Duration = Duration::from_millis(100);

/// A file that is open for appending, locked for as long as it is.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
    /// None once it could not be written: it is derived, the next opening mends it.
    index: Option<File>,
    end: u64,
    /// Appended since the last sync.
    unsynced: bool,
}

/// A file just opened, and what had to be done for that.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: LogFile,
    /// Bytes of a torn tail that were moved to the file's `.torn`.
    pub moved: u64,
    /// The file system has no locks: nothing keeps other writers out.
    pub unlocked: bool,
}

impl LogFile {
    /// Opens or makes a file, and heals its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where another writer has it; a file-system call
    /// failed.
    pub fn open(path: &Path) -> Result<Opened> {
        let failed = |error: io::Error| Error::io("open", path, error);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let unlocked = match acquire(&file, LockMode::Exclusive, PASSING) {
            Held::Locked { .. } => false,
            Held::TimedOut => return Err(Error::io("lock", path, Errno::WOULDBLOCK)),
            Held::Unavailable => true,
        };
        let mut opened = Opened {
            file: Self {
                file,
                path: path.to_path_buf(),
                index: None,
                end: 0,
                unsynced: false,
            },
            moved: 0,
            unlocked,
        };
        let index = Index::load(path)?;
        opened.moved = opened.file.heal(&index)?;
        opened.file.end = opened.file.size()?;
        let file = index_path(path);
        if index.saved || index.save(path).is_ok() {
            opened.file.index = OpenOptions::new().append(true).create(true).open(file).ok();
        }
        Ok(opened)
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
        Ok(metadata
            .map_err(|error| Error::io("read", &self.path, error))?
            .len())
    }

    /// Moves a torn tail aside, or ends a whole last line; how many bytes were moved.
    fn heal(&mut self, index: &Index) -> Result<u64> {
        let failed = |error: io::Error| Error::io("heal", &self.path, error);
        let size = self.size()?;
        if let Some(offset) = index.torn {
            let mut tail = vec![0; usize::try_from(size - offset).unwrap_or(0)];
            self.file.read_exact_at(&mut tail, offset).map_err(failed)?;
            let mut name = self.path.clone().into_os_string();
            name.push(".torn");
            tail.push(b'\n');
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(name)
                .and_then(|mut torn| torn.write_all(&tail))
                .map_err(failed)?;
            self.file.set_len(offset).map_err(failed)?;
            return Ok(size - offset);
        }
        if size > 0 && !super::is_compressed(&self.path) {
            let mut last = [0];
            self.file
                .read_exact_at(&mut last, size - 1)
                .map_err(failed)?;
            if last != *b"\n" {
                // A whole record, or blanks: only the newline is missing.
                (&self.file).write_all(b"\n").map_err(failed)?;
            }
        }
        Ok(0)
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's size after the last append.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Whether nothing was written to it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Appends what was prepared: all of it, or on an error none.
    ///
    /// # Errors
    /// A file-system call failed.
    pub fn append(&mut self, prepared: &Prepared) -> Result<()> {
        if prepared.is_empty() {
            return Ok(());
        }
        let offset = self.size()?;
        if let Err(error) = (&self.file).write_all(prepared.bytes()) {
            // A disk that is full leaves half a record otherwise.
            let _ = self.file.set_len(offset);
            return Err(Error::io("append to", &self.path, error));
        }
        self.end = offset + prepared.len() as u64;
        self.unsynced = true;
        self.append_index(prepared.entries_at(offset));
        Ok(())
    }

    fn append_index(&mut self, entries: impl Iterator<Item = Entry>) {
        let Some(index) = &mut self.index else {
            return;
        };
        let mut text = Vec::new();
        for entry in entries {
            entry.write(&mut text);
        }
        if index.write_all(&text).is_err() {
            self.index = None;
        }
    }

    /// Brings what was appended to the disk.
    ///
    /// # Errors
    /// The system could not.
    pub fn sync(&mut self) -> Result<()> {
        if self.unsynced {
            fdatasync(&self.file).map_err(|error| Error::io("sync", &self.path, error))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Lets the next writer in. (A file that is only dropped keeps the lock for as long as
    /// a forked child has it open too.)
    pub fn close(self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether some writer has the file open now.
#[must_use]
pub fn writer_at_work(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}
