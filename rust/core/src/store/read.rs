//! Reading one attempt's files under a shared lock, into the caller's buffer.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, OFlags, Stat, fstat, stat};
use rustix::io::Errno;

use super::buffer::ReadBuffer;
use super::lock::{Held, LockMode, acquire};
use super::paths::{capture_path, check_rollout_id, incomplete_path, late_path};
use crate::error::Error;

/// Which file was read, and how far: what a claim must find unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub dev: u64,
    pub ino: u64,
    pub len: u64,
}

impl FileIdentity {
    #[allow(clippy::cast_sign_loss, clippy::useless_conversion)] // st_dev and st_size differ by platform
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev.into(),
            ino: stat.st_ino.into(),
            len: stat.st_size as u64,
        }
    }

    pub(super) fn same_file(self, other: Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}

/// What [`read`] found. Facts, no judgement: which gaps they make is the fold's.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not states
pub struct Reading {
    /// The directory (index into `dirs`) whose file or marker won.
    pub root: Option<usize>,
    /// `buf[..late_len]` came from the late file, the rest from the capture file. A torn
    /// tail of the first does not run into the second.
    pub late_len: usize,
    pub has_capture: bool,
    pub has_late: bool,
    pub incomplete: bool,
    /// A file exists and could not be read at all; what the other gave is kept.
    pub unreadable: Option<Error>,
    /// Read without a lock: the file system gives none, or it was not had in time.
    pub lock_unavailable: bool,
    /// How long locks were waited for.
    pub waited: Duration,
    /// The capture file as it was read.
    pub identity: Option<FileIdentity>,
}

/// Reads an attempt: the late file's lines, then the capture file's, replacing what `buf`
/// held. The first directory with the capture file wins, else the first with a late file,
/// else the first with the marker (contract, section 3).
///
/// Eight system calls where there is one directory: open, flock, fstat, read, close, the
/// marker, the late file, and the in-flight probe that goes before.
pub fn read(dirs: &[PathBuf], id: &str, lock_wait: Duration, buf: &mut ReadBuffer) -> Reading {
    buf.clear();
    let mut reading = Reading::default();
    if let Err(error) = check_rollout_id(id) {
        reading.unreadable = Some(error);
        return reading;
    }
    for (index, dir) in dirs.iter().enumerate() {
        let Some(outcome) = read_file(&capture_path(dir, id), lock_wait, buf) else {
            continue;
        };
        reading.root = Some(index);
        reading.has_capture = true;
        reading.note(outcome, true);
        break;
    }
    if let Some(index) = reading.root {
        reading.incomplete = exists(&incomplete_path(&dirs[index], id));
        let capture_len = buf.len();
        if let Some(outcome) = read_file(&late_path(&dirs[index], id), lock_wait, buf) {
            reading.has_late = true;
            reading.note(outcome, false);
            // Late lines are rare and go first; the usual read stays one call.
            buf.rotate_left(capture_len);
            reading.late_len = buf.len() - capture_len;
        }
        return reading;
    }
    for (index, dir) in dirs.iter().enumerate() {
        let Some(outcome) = read_file(&late_path(dir, id), lock_wait, buf) else {
            continue;
        };
        reading.root = Some(index);
        reading.has_late = true;
        reading.note(outcome, false);
        reading.late_len = buf.len();
        reading.incomplete = exists(&incomplete_path(dir, id));
        return reading;
    }
    reading.root = dirs
        .iter()
        .position(|dir| exists(&incomplete_path(dir, id)));
    reading.incomplete = reading.root.is_some();
    reading
}

struct Outcome {
    lock_unavailable: bool,
    waited: Duration,
    result: Result<FileIdentity, Error>,
}

impl Reading {
    fn note(&mut self, outcome: Outcome, capture: bool) {
        self.lock_unavailable |= outcome.lock_unavailable;
        self.waited += outcome.waited;
        match outcome.result {
            Ok(identity) if capture => self.identity = Some(identity),
            Ok(_) => {}
            Err(error) => self.unreadable = self.unreadable.take().or(Some(error)),
        }
    }
}

/// Appends a file to `buf`; `None` where there is no such file.
fn read_file(path: &Path, lock_wait: Duration, buf: &mut ReadBuffer) -> Option<Outcome> {
    let mut outcome = Outcome {
        lock_unavailable: false,
        waited: Duration::ZERO,
        result: Err(Error::io("read", path, Errno::STALE)),
    };
    let deadline = Instant::now() + lock_wait;
    let kept = buf.len();
    // A consumer may take the file while we wait for its lock: then the path says anew
    // what there is to read.
    for _ in 0..16 {
        let file = match open_to_read(path) {
            Ok(Some(file)) => file,
            Ok(None) => return None,
            Err(error) => {
                outcome.result = Err(Error::io("open", path, error));
                return Some(outcome);
            }
        };
        let started = Instant::now();
        let held = acquire(
            &file,
            LockMode::Shared,
            deadline.saturating_duration_since(started),
        );
        if held != (Held::Locked { waited: false }) {
            outcome.waited += started.elapsed();
        }
        outcome.lock_unavailable = !held.locked();
        if held == (Held::Locked { waited: true }) && !still_at(&file, path) {
            continue;
        }
        match read_to_end(&file, buf) {
            Ok(identity) => outcome.result = Ok(identity),
            Err(error) => {
                buf.truncate(kept);
                outcome.result = Err(Error::io("read", path, error));
            }
        }
        break;
    }
    Some(outcome)
}

/// `O_NONBLOCK`: a FIFO under a capture's name must be an error, not a wait.
pub(super) fn open_to_read(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Whether the open file is still the one that its path names.
pub(super) fn still_at(file: impl AsFd, path: &Path) -> bool {
    match (fstat(file), stat(path)) {
        (Ok(open), Ok(named)) => FileIdentity::of(&open).same_file(FileIdentity::of(&named)),
        _ => false,
    }
}

fn exists(path: &Path) -> bool {
    match stat(path) {
        Ok(_) => true,
        // A marker that cannot be looked at may be there: said rather than missed.
        Err(error) => !absent(&error.into()),
    }
}

/// Reads into spare capacity, so that no byte is zeroed before it is written. The size is
/// only a hint: a file of any size is read until it ends.
fn read_to_end(file: &File, buf: &mut ReadBuffer) -> io::Result<FileIdentity> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let mut identity = FileIdentity::of(&stat);
    let kept = buf.len();
    let expected = usize::try_from(identity.len).map_err(io::Error::other)?;
    // One byte more, so that the read that meets the end is the first one.
    buf.reserve(expected + 1)?;
    loop {
        let memory = buf.memory();
        if memory.len() == memory.capacity() {
            memory.try_reserve(memory.capacity() / 4 + 4096)?;
        }
        let asked = memory.capacity() - memory.len();
        match rustix::io::read(file, spare_capacity(memory)) {
            Ok(0) => break,
            Ok(got) if got < asked && buf.len() - kept >= expected => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    identity.len = (buf.len() - kept) as u64;
    Ok(identity)
}
