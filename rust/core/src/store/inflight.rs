//! Calls in flight, announced in a way that the kernel takes back with the process.
//!
//! One file per directory, `.rollfold-inflight`, always empty. A writer holds a shared
//! open-file-description lock (`F_OFD_SETLK`) on one byte of it per rollout attempt: the
//! byte at the hash of the attempt's id. A reader asks `F_OFD_GETLK` whether an
//! exclusive lock on that byte would meet one. So 2,000 calls in flight are one file
//! descriptor, and a killed process announces nothing any more.
//!
//! The hash has 62 bits; two ids that share a byte cost a reader a bounded wait for the
//! other's call, never a record. A reader in the writer's own process opens the file
//! for itself, so it meets the lock like any other. A forked child shares the
//! description: it must drop it ([`Announcer::forget`]), else it would hold what its
//! parent announced for as long as it lives. Locks reach as far as the file system
//! carries POSIX locks (NFS version 4 does, many object-store mounts do not).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::read::{open_to_read, still_at};
use super::write::{create_private_dir, open_to_write};
use crate::error::{Error, Result};

/// The file's name in a capture directory.
pub const INFLIGHT_FILE: &str = ".rollfold-inflight";

/// FNV-1a, folded to 62 bits: the same in every build, process and version.
fn byte_of(id: &str) -> i64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The high bits mix best; the sum of start and length must stay an off_t.
    ((hash ^ (hash >> 62)) & 0x3fff_ffff_ffff_ffff).cast_signed()
}

fn byte_lock(kind: libc::c_int, byte: i64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

/// A process's announcements in one directory.
#[derive(Debug)]
pub struct Announcer {
    dir: PathBuf,
    file_mode: u32,
    dir_mode: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    /// Calls in flight per locked byte.
    held: HashMap<i64, usize>,
}

impl Announcer {
    #[must_use]
    pub fn new(dir: PathBuf, file_mode: u32, dir_mode: u32) -> Self {
        Self {
            dir,
            file_mode,
            dir_mode,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a call of `id`. Every success needs its [`Announcer::leave`].
    ///
    /// # Errors
    /// The file cannot be made, or the file system gives no such locks.
    pub fn enter(&self, id: &str) -> Result<()> {
        let byte = byte_of(id);
        let mut state = self.state();
        let path = self.dir.join(INFLIGHT_FILE);
        // Somebody may have emptied the directory under us; what was announced on the
        // old file cannot be seen any more, so it is announced again on the new one.
        if let Some(file) = &state.file
            && rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
        {
            state.file = None;
        }
        if state.file.is_none() {
            let file = self.open(&path)?;
            for held in state.held.keys() {
                set(&file, libc::F_RDLCK, *held).map_err(|e| Error::io("lock", &path, e))?;
            }
            state.file = Some(file);
        }
        let State { file, held } = &mut *state;
        match (held.entry(byte), file) {
            (Entry::Occupied(mut count), _) => *count.get_mut() += 1,
            (Entry::Vacant(free), Some(file)) => {
                set(file, libc::F_RDLCK, byte).map_err(|e| Error::io("lock", &path, e))?;
                free.insert(1);
            }
            (Entry::Vacant(_), None) => {}
        }
        Ok(())
    }

    /// Takes one announcement back.
    pub fn leave(&self, id: &str) {
        let byte = byte_of(id);
        let mut state = self.state();
        let State { file, held } = &mut *state;
        let Entry::Occupied(mut count) = held.entry(byte) else {
            return;
        };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
            if let Some(file) = file
                && set(file, libc::F_UNLCK, byte).is_err()
            {
                // Closing lets everything go; the rest is announced again.
                let kept: Vec<i64> = held.keys().copied().collect();
                *file = match self.open(&self.dir.join(INFLIGHT_FILE)) {
                    Ok(fresh) => fresh,
                    Err(_) => return,
                };
                for byte in kept {
                    let _ = set(file, libc::F_RDLCK, byte);
                }
            }
        }
    }

    /// Calls announced now, in this process.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state().held.values().sum()
    }

    /// In a forked child: closes the inherited description without taking anything back,
    /// so that the parent's announcements end with the parent. Where the fork met another
    /// thread in here nobody can tell what state it left, and the file stays open: what
    /// the parent takes back is taken back all the same.
    pub fn forget(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            *state = State::default();
        }
    }

    fn open(&self, path: &Path) -> Result<File> {
        match open_to_write(path, self.file_mode) {
            Ok((file, _)) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_private_dir(&self.dir, self.dir_mode)?;
                Ok(open_to_write(path, self.file_mode)
                    .map_err(|e| Error::io("open", path, e))?
                    .0)
            }
            Err(error) => Err(Error::io("open", path, error)),
        }
    }
}

fn set(file: &File, kind: libc::c_int, byte: i64) -> std::result::Result<(), Errno> {
    let lock = byte_lock(kind, byte);
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A reader's open `.rollfold-inflight` files, kept for a batch: one system call a look.
///
/// Probes of a process share them, so that a rollout enriched by itself need not open the
/// file either. A shared file is looked at again after [`TRUSTED`]: a directory that was
/// emptied and announced in anew within that time would be missed, and nothing else.
#[derive(Debug, Default)]
pub struct InflightProbe {
    files: Vec<(PathBuf, Arc<File>)>,
}

/// How long a shared file is taken to be the one at its path.
const TRUSTED: Duration = Duration::from_millis(20);

/// Directories whose files stay open for the next probe.
const SHARED: usize = 16;

struct Open {
    dir: PathBuf,
    file: Arc<File>,
    checked: Instant,
}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

impl InflightProbe {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a call of `id` is announced in any of `dirs`. Where nobody ever announced
    /// anything, or the file system gives no such locks, nothing is.
    pub fn in_flight(&mut self, dirs: &[PathBuf], id: &str) -> bool {
        let byte = byte_of(id);
        dirs.iter()
            .any(|dir| self.file(dir).is_some_and(|file| is_locked(file, byte)))
    }

    fn file(&mut self, dir: &Path) -> Option<&File> {
        let known = self.files.iter().position(|(held, _)| held == dir);
        let index = if let Some(index) = known {
            index
        } else {
            self.files.push((dir.to_path_buf(), shared_file(dir)?));
            self.files.len() - 1
        };
        Some(&self.files[index].1)
    }
}

fn shared_file(dir: &Path) -> Option<Arc<File>> {
    let open = || {
        Some(Arc::new(
            open_to_read(&dir.join(INFLIGHT_FILE)).ok().flatten()?,
        ))
    };
    // In a forked child the lock may be held by nobody for ever: then without it.
    let Ok(mut shared) = OPEN.try_lock() else {
        return open();
    };
    if let Some(at) = shared.iter().position(|held| held.dir == dir) {
        let held = &mut shared[at];
        if held.checked.elapsed() < TRUSTED {
            return Some(Arc::clone(&held.file));
        }
        if still_at(&*held.file, &dir.join(INFLIGHT_FILE)) {
            held.checked = Instant::now();
            return Some(Arc::clone(&held.file));
        }
        shared.remove(at);
    }
    let file = open()?;
    if shared.len() == SHARED {
        shared.remove(0);
    }
    shared.push(Open {
        dir: dir.to_path_buf(),
        file: Arc::clone(&file),
        checked: Instant::now(),
    });
    Some(file)
}

fn is_locked(file: &File, byte: i64) -> bool {
    let mut lock = byte_lock(libc::F_WRLCK, byte);
    match fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)) {
        Ok(_) => libc::c_int::from(lock.l_type) != libc::F_UNLCK,
        Err(_) => false,
    }
}
