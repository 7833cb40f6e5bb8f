//! Whether anybody has a file open for writing, asked of the kernel.
//!
//! A deletion must know: a writer that has opened the capture and not yet its lock would
//! write into a file without a name. No lock shows such a writer; a read lease does, since
//! the kernel grants one only where nobody has the file open for writing, in any process
//! and container of the host.
//!
//! No library wraps leases: these are `fcntl` calls with integer arguments on a descriptor
//! that is borrowed, and so open, for as long as they take. They touch no memory of ours.

use std::fs::File;
use std::os::fd::AsRawFd;

use rollfold_core::store::Writers;

/// Linux, asm-generic/fcntl.h; the libc crate does not have it everywhere.
const F_SETSIG: libc::c_int = 10;

/// Looks for writers of a file that is open for reading only.
pub fn writers(file: &File) -> Writers {
    // An open for writing breaks a lease with a signal, by default one that ends the
    // process; SIGURG is ignored by default. The lease is let go at once all the same.
    if fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return Writers::Unknown;
    }
    match fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
            Writers::None
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Writers::Some,
        Err(_) => Writers::Unknown,
    }
}

fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> std::io::Result<()> {
    // SAFETY: each of these commands takes an int; the descriptor is open while `file` is
    // borrowed.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if answer == -1 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
