//! Taking an attempt's files away without losing what a writer adds meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    CWD, FlockOperation, OFlags, RenameFlags, flock, fstat, link, renameat_with, unlink,
};
use rustix::io::Errno;

use super::lock::{Held, LockMode, acquire};
use super::paths::{capture_path, check_rollout_id, incomplete_path, late_path};
use super::read::{FileIdentity, Reading, absent, still_at};
use crate::error::{Error, Result};

/// Between letting the lock go and taking it again, where the kernel cannot say whether
/// anybody has the file open for writing: time for one that waits on the lock.
const HANDOVER: Duration = Duration::from_millis(2);

/// How long a writer that has the file open gets for its line, be the machine loaded.
const WRITER: Duration = Duration::from_secs(1);

/// What the kernel says of a file's writers, other than through locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Nobody has it open for writing, in any process and container of the host.
    None,
    /// Somebody has.
    Some,
    /// The file system cannot tell, or not us.
    Unknown,
}

/// Asks for the writers of a file that is open for reading only: a writer that has opened
/// the capture and not yet its lock would write into a file without a name. What asks is
/// the extension's, where the kernel's C interface is.
pub type AskWriters = fn(&File) -> Writers;

/// How a deletion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// There was no file.
    Nothing,
    Deleted,
    Kept(Kept),
}

/// Why a capture stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It grew after it was read, and stays under its own name.
    Grown,
    /// It grew (or was locked) while it was being deleted, and stays as the late file.
    Late,
    /// Another file has taken its place.
    Replaced,
    /// There is a late file already, which is not deleted.
    LateExists,
    LockUnavailable,
    /// It was not read.
    Unreadable,
}

impl Kept {
    /// The reason in words, for a warning and a counter's name.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Grown => "grew after it was read",
            Self::Late => "grew while it was being deleted",
            Self::Replaced => "was replaced after it was read",
            Self::LateExists => "has a late file beside it",
            Self::LockUnavailable => "lock unavailable",
            Self::Unreadable => "could not be read",
        }
    }
}

/// The outcome of [`claim`].
#[derive(Debug)]
pub enum Claimed {
    Done(Deletion),
    /// The file is claimed; [`Claim::finish`] deletes it. A batch finishes its claims some
    /// rollouts later, and so does not sleep.
    Pending(Claim),
}

/// A capture that was renamed to its late name. Dropped unfinished, it stays there, and
/// the next read takes its lines: a crash loses nothing.
#[derive(Debug)]
pub struct Claim {
    file: File,
    late: PathBuf,
    marker: Option<PathBuf>,
    identity: FileIdentity,
    released: Instant,
}

/// First half of a deletion (contract, section 12): under an exclusive lock, checks that
/// the capture is as it was read, renames it, and lets the lock go.
///
/// # Errors
/// The id is not valid, or a file-system call failed; nothing was deleted then.
pub fn claim(root: &Path, id: &str, reading: &Reading, lock_wait: Duration) -> Result<Claimed> {
    check_rollout_id(id)?;
    let kept = |why| Ok(Claimed::Done(Deletion::Kept(why)));
    let (path, late) = (capture_path(root, id), late_path(root, id));
    let marker = reading.incomplete.then(|| incomplete_path(root, id));
    if reading.lock_unavailable {
        return kept(Kept::LockUnavailable);
    }
    if reading.unreadable.is_some() {
        return kept(Kept::Unreadable);
    }
    if reading.has_late {
        return kept(Kept::LateExists);
    }
    let Some(identity) = reading.identity else {
        return Ok(Claimed::Done(match marker {
            Some(marker) if remove(&marker)? => Deletion::Deleted,
            _ => Deletion::Nothing,
        }));
    };
    let Some(mut file) = open_to_claim(&path)? else {
        return Ok(Claimed::Done(Deletion::Nothing));
    };
    let mut held = acquire(&file, LockMode::Exclusive, lock_wait);
    if held == Held::Unavailable
        && let Some(writable) = open_to_claim_by_writing(&path)?
    {
        file = writable;
        held = acquire(&file, LockMode::Exclusive, lock_wait);
    }
    if !held.locked() {
        return kept(Kept::LockUnavailable);
    }
    let found = identity_of(&file, &path)?;
    if !found.same_file(identity) || !still_at(&file, &path) {
        return kept(Kept::Replaced);
    }
    if found != identity {
        return kept(Kept::Grown);
    }
    if !rename_to_new(&path, &late)? {
        return kept(Kept::LateExists);
    }
    // A failed unlock is one that closing does.
    let _ = flock(&file, FlockOperation::Unlock);
    Ok(Claimed::Pending(Claim {
        file,
        late,
        marker,
        identity,
        released: Instant::now(),
    }))
}

impl Claim {
    /// Second half: takes the lock again and unlinks the file if it still has not grown.
    ///
    /// # Errors
    /// A file-system call failed; the lines are in the late file then.
    pub fn finish(self, lock_wait: Duration, writers: AskWriters) -> Result<Deletion> {
        loop {
            // Whoever opens the file from now on finds it under its late name, to read.
            let known = writers(&self.file);
            let elapsed = self.released.elapsed();
            match known {
                Writers::None => {}
                Writers::Some if elapsed < WRITER => {
                    if identity_of(&self.file, &self.late)? != self.identity {
                        return Ok(Deletion::Kept(Kept::Late));
                    }
                    sleep(HANDOVER / 4);
                    continue;
                }
                // It may write as long as it has it open.
                Writers::Some => return Ok(Deletion::Kept(Kept::Late)),
                Writers::Unknown => sleep(HANDOVER.saturating_sub(elapsed)),
            }
            if !acquire(&self.file, LockMode::Exclusive, lock_wait).locked() {
                return Ok(Deletion::Kept(Kept::Late));
            }
            let found = identity_of(&self.file, &self.late)?;
            if found != self.identity || !still_at(&self.file, &self.late) {
                return Ok(Deletion::Kept(Kept::Late));
            }
            break;
        }
        remove(&self.late)?;
        if let Some(marker) = &self.marker {
            remove(marker)?;
        }
        Ok(Deletion::Deleted)
    }
}

/// [`claim`] and [`Claim::finish`] in one, for a single rollout.
///
/// # Errors
/// As theirs.
pub fn claim_and_delete(
    root: &Path,
    id: &str,
    reading: &Reading,
    lock_wait: Duration,
    writers: AskWriters,
) -> Result<Deletion> {
    match claim(root, id, reading, lock_wait)? {
        Claimed::Done(deletion) => Ok(deletion),
        Claimed::Pending(claim) => claim.finish(lock_wait, writers),
    }
}

/// Removes everything of an attempt, read or not (before it is dispatched anew). Returns
/// how many files went. A writer that has the file open starts a new one.
///
/// # Errors
/// The id is not valid, or a file could not be removed.
pub fn clear(root: &Path, id: &str, lock_wait: Duration) -> Result<usize> {
    check_rollout_id(id)?;
    let mut removed = 0;
    for path in [capture_path(root, id), late_path(root, id)] {
        // A lock that is not had in time does not keep what the caller wants gone.
        let held = open_to_claim(&path).ok().flatten();
        if let Some(file) = &held {
            acquire(file, LockMode::Exclusive, lock_wait);
        }
        removed += usize::from(remove(&path)?);
    }
    Ok(removed + usize::from(remove(&incomplete_path(root, id))?))
}

/// Opened for reading, so that we are no writer ourselves; NFS wants one for an exclusive
/// lock, and gets it in [`open_to_claim_by_writing`].
fn open_to_claim(path: &Path) -> Result<Option<File>> {
    open_with(path, false)
}

fn open_to_claim_by_writing(path: &Path) -> Result<Option<File>> {
    open_with(path, true)
}

fn open_with(path: &Path, write: bool) -> Result<Option<File>> {
    // A FIFO under a capture's name must not be waited for.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags)
        .open(path)
    {
        Ok(file) => Ok(Some(file)),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(Error::io("open", path, error)),
    }
}

fn identity_of(file: &File, path: &Path) -> Result<FileIdentity> {
    Ok(FileIdentity::of(
        &fstat(file).map_err(|error| Error::io("stat", path, error))?,
    ))
}

/// Whether there was a file to remove.
fn remove(path: &Path) -> Result<bool> {
    match unlink(path) {
        Ok(()) => Ok(true),
        Err(error) if absent(&error.into()) => Ok(false),
        Err(error) => Err(Error::io("remove", path, error)),
    }
}

/// Renames where nothing has the new name; `false` where something has.
fn rename_to_new(from: &Path, to: &Path) -> Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(Errno::EXIST) => return Ok(false),
        // Not every network file system knows the flag; a hard link never replaces.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(Error::io("rename", from, error)),
    }
    match link(from, to) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(error) => return Err(Error::io("rename", from, error)),
    }
    remove(from)
}
