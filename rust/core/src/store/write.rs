//! Appending exchanges: locked, healing, on disk when it says so.

use std::collections::{HashMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, fdatasync, fstat, fsync, ftruncate};
use rustix::io::{Errno, pread, writev};

use super::lock::{Held, LockMode, acquire};
use super::paths::{capture_path, check_rollout_id, incomplete_path};
use super::read::still_at;
use crate::error::{Error, Result};

/// When a record is safe from a crash of the machine. A crash of the process loses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before [`Writer::append`] returns.
    Record,
    /// After the next [`Writer::sync`].
    Batch,
    /// When the kernel gets to it.
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    pub durability: Durability,
    pub file_mode: u32,
    pub dir_mode: u32,
    /// The longest wait for the lock; after it the record is written without.
    pub lock_wait: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Record,
            file_mode: 0o600,
            dir_mode: 0o700,
            lock_wait: Duration::from_secs(5),
        }
    }
}

/// How a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub lock: Held,
    /// The file ended in a torn line, which now ends in a newline.
    pub healed: bool,
}

/// After a lock was not had in time, how long and how patiently its next takers wait: a
/// holder that hangs must not cost every call of the rollout the full wait.
const STUCK_FOR: Duration = Duration::from_secs(30);
const STUCK_WAIT: Duration = Duration::from_millis(50);

/// What one call writes at most.
const IOV_MAX: usize = 1024;

/// How often a writer follows a file that consumers keep taking away.
const REOPENS: usize = 64;

/// Appends to the files of one directory; shared by threads.
#[derive(Debug)]
pub struct Writer {
    root: PathBuf,
    options: WriterOptions,
    unsynced: Mutex<HashSet<PathBuf>>,
    stuck: Mutex<HashMap<PathBuf, Instant>>,
}

impl Writer {
    #[must_use]
    pub fn new(root: PathBuf, options: WriterOptions) -> Self {
        Self {
            root,
            options,
            unsynced: Mutex::default(),
            stuck: Mutex::default(),
        }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn options(&self) -> WriterOptions {
        self.options
    }

    /// Appends one exchange: a line in parts, without its newline. Where that fails, and where the
    /// lock was not had in time, the attempt is marked incomplete if that can be done.
    ///
    /// # Errors
    /// The id is not valid, the line holds a newline, or a file-system call failed.
    pub fn append(&self, id: &str, line: &[&[u8]]) -> Result<Appended> {
        check_rollout_id(id)?;
        let path = capture_path(&self.root, id);
        if line
            .iter()
            .any(|part| memchr::memchr(b'\n', part).is_some())
        {
            return Err(Error::Shape {
                key: "line".into(),
                reason: "holds a newline".into(),
            });
        }
        let outcome = self.append_at(&path, line);
        if !matches!(
            outcome,
            Ok(Appended {
                lock: Held::Locked { .. } | Held::Unavailable,
                ..
            })
        ) {
            // The failure itself is what the caller hears of.
            let _ = self.mark_incomplete(id);
        }
        outcome
    }

    fn append_at(&self, path: &Path, line: &[&[u8]]) -> Result<Appended> {
        let deadline = Instant::now() + self.lock_wait(path);
        for _ in 0..REOPENS {
            let (file, created) = self.open(path)?;
            let left = deadline.saturating_duration_since(Instant::now());
            let lock = acquire(&file, LockMode::Exclusive, left);
            self.remember(path, lock);
            // A consumer may have taken the file while we waited for its lock.
            if !still_at(&file, path) {
                continue;
            }
            let healed = write_line(&file, line, lock.locked())
                .map_err(|error| Error::io("append to", path, error))?;
            self.settle(&file, path, created)?;
            // Without the lock it may have gone under the write: then the line is written
            // again, and a reader that meets it twice drops the copy.
            if lock.locked() || still_at(&file, path) {
                return Ok(Appended { lock, healed });
            }
        }
        Err(Error::io("append to", path, Errno::STALE))
    }

    /// Brings everything that was appended under [`Durability::Batch`] to the disk.
    ///
    /// # Errors
    /// The first file that could not be synced; the others were.
    pub fn sync(&self) -> Result<()> {
        let paths = try_lock(&self.unsynced).map(|mut unsynced| std::mem::take(&mut *unsynced));
        let paths = paths.unwrap_or_default();
        if paths.is_empty() {
            return Ok(());
        }
        let mut outcome = self.sync_dir();
        for path in paths {
            match File::open(&path) {
                Ok(file) => {
                    if let Err(error) = fdatasync(&file) {
                        outcome = outcome.and(Err(Error::io("sync", &path, error)));
                    }
                }
                // Consumed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => outcome = outcome.and(Err(Error::io("sync", &path, error))),
            }
        }
        outcome
    }

    /// Leaves the marker that some exchange of the attempt could not be written.
    ///
    /// # Errors
    /// The id is not valid, or the marker could not be made.
    pub fn mark_incomplete(&self, id: &str) -> Result<()> {
        check_rollout_id(id)?;
        let path = incomplete_path(&self.root, id);
        let (file, created) = self.open(&path)?;
        self.settle(&file, &path, created)
    }

    fn open(&self, path: &Path) -> Result<(File, bool)> {
        match open_to_write(path, self.options.file_mode) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_private_dir(&self.root, self.options.dir_mode)?;
                open_to_write(path, self.options.file_mode)
            }
            other => other,
        }
        .map_err(|error| Error::io("open", path, error))
    }

    fn settle(&self, file: &File, path: &Path, created: bool) -> Result<()> {
        match self.options.durability {
            Durability::Record => {
                fdatasync(file).map_err(|error| Error::io("sync", path, error))?;
                // The name of a new file is the directory's data.
                if created { self.sync_dir() } else { Ok(()) }
            }
            Durability::Batch => {
                let Some(mut unsynced) = try_lock(&self.unsynced) else {
                    return fdatasync(file).map_err(|error| Error::io("sync", path, error));
                };
                if !unsynced.contains(path) {
                    unsynced.insert(path.to_path_buf());
                }
                Ok(())
            }
            Durability::None => Ok(()),
        }
    }

    fn sync_dir(&self) -> Result<()> {
        let synced = File::open(&self.root).and_then(|dir| Ok(fsync(dir)?));
        match synced {
            // Gone with everything in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // Some file systems sync no directories.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            other => other.map_err(|error| Error::io("sync", &self.root, error)),
        }
    }

    fn lock_wait(&self, path: &Path) -> Duration {
        let stuck = try_lock(&self.stuck);
        match stuck.as_ref().and_then(|stuck| stuck.get(path)) {
            Some(since) if since.elapsed() < STUCK_FOR => STUCK_WAIT.min(self.options.lock_wait),
            _ => self.options.lock_wait,
        }
    }

    fn remember(&self, path: &Path, held: Held) {
        let Some(mut stuck) = try_lock(&self.stuck) else {
            return;
        };
        if held == Held::TimedOut {
            stuck.retain(|_, since| since.elapsed() < STUCK_FOR);
            stuck.entry(path.to_path_buf()).or_insert_with(Instant::now);
        } else if !stuck.is_empty() {
            stuck.remove(path);
        }
    }
}

/// A short look rather than a wait: in a forked child the holder may be gone for good, and
/// what these tables know only saves work.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..100 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// One write of the line and its newline, on a line of its own. Returns whether a torn
/// tail was ended first.
fn write_line(file: &File, line: &[&[u8]], locked: bool) -> io::Result<bool> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let before = u64::try_from(stat.st_size).unwrap_or(0);
    let mut last = [b'\n'];
    if before > 0 {
        pread(file, &mut last, before - 1)?;
    }
    let torn = last != [b'\n'];
    let before_it: &[u8] = if torn { b"\n" } else { b"" };
    let parts = [before_it].into_iter().chain(line.iter().copied());
    let mut slices: Vec<IoSlice> = parts.chain([&b"\n"[..]]).map(IoSlice::new).collect();
    let mut left = &mut slices[..];
    let mut written = 0_u64;
    while left.iter().any(|slice| !slice.is_empty()) {
        let few = left.len().min(IOV_MAX);
        let outcome = match writev(file, &left[..few]) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(n) => Ok(n),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(n) => {
                written += n as u64;
                IoSlice::advance_slices(&mut left, n);
            }
            Err(error) => {
                // Under the lock the half line is ours alone to take back; where that
                // fails too, the next writer ends it.
                let ours =
                    fstat(file).is_ok_and(|now| u64::try_from(now.st_size) == Ok(before + written));
                if written > 0 && locked && ours {
                    let _ = ftruncate(file, before);
                }
                return Err(error);
            }
        }
    }
    Ok(torn)
}

/// Opens for appending; `true` where the file is new. Exactly `mode`, whatever the umask.
pub(super) fn open_to_write(path: &Path, mode: u32) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    loop {
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|file| (file, false)),
        }
        match options.clone().create_new(true).mode(mode).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Made meanwhile, and maybe gone again: the next try tells. But a link to
                // nowhere will not open either way.
                let is_link = std::fs::symlink_metadata(path).is_ok_and(|at| at.is_symlink());
                if is_link && std::fs::metadata(path).is_err() {
                    return Err(error);
                }
            }
            Ok(file) => {
                file.set_permissions(Permissions::from_mode(mode))?;
                return Ok((file, true));
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn create_private_dir(dir: &Path, mode: u32) -> Result<()> {
    let outcome = DirBuilder::new().recursive(true).mode(mode).create(dir);
    outcome.map_err(|error| Error::io("create", dir, error))
}
