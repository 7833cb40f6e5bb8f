//! Whether anybody has a file open for writing, asked of the kernel.
//!
//! A deletion must know: a writer that has opened the capture and not yet its lock would
//! write into a file without a name. No lock shows such a writer; a read lease does, since
//! the kernel grants one only where nobody has the file open for writing, in any process
//! and container of the host.
//!
//! No library wraps leases, so this is the one module with `unsafe` in the crate: two
//! `fcntl` calls with integer arguments on a descriptor that is borrowed, and so open, for
//! as long as they take. They touch no memory of ours.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;

/// Linux, asm-generic/fcntl.h; the libc crate does not have it.
const F_SETSIG: libc::c_int = 10;

/// What the kernel says of a file's writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    None,
    Some,
    /// The file system grants no leases, or not to us.
    Unknown,
}

/// Looks for writers of a file that is open for reading only.
pub(super) fn writers(file: &File) -> Writers {
    // An open for writing breaks a lease with a signal, by default one that ends the
    // process; SIGURG is ignored by default. The lease is let go at once all the same.
    if fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return Writers::Unknown;
    }
    let writers = match fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => Writers::None,
        Err(Errno::EAGAIN) => Writers::Some,
        Err(_) => Writers::Unknown,
    };
    if writers == Writers::None {
        let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
    }
    writers
}

fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> Result<(), Errno> {
    // SAFETY: both commands take an int; the descriptor is open while `file` is borrowed.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    Errno::result(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_writer_is_seen() {
        let path = std::env::temp_dir().join(format!("rollfold-lease-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let reader = File::open(&path).unwrap();
        let alone = writers(&reader);
        let writer = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        let beside = writers(&reader);
        drop(writer);
        let after = writers(&reader);
        std::fs::remove_file(&path).unwrap();
        match alone {
            Writers::Unknown => {}
            _ => assert_eq!(
                (alone, beside, after),
                (Writers::None, Writers::Some, Writers::None)
            ),
        }
    }
}
