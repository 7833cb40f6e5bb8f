//! A large `bytes` object written once, in memory that costs few page faults.
//!
//! A record of a long rollout has 50 MB. Memory of that size comes from the kernel page by
//! page, and what a page costs at its first touch is several times what writing it costs.
//! Two things help, and Python's safe interface offers neither: not to fill the object with
//! zeros first, and to ask for large pages.

use std::mem::MaybeUninit;

use pyo3::exceptions::PySystemError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rollfold_core::sink::Slots;
use rustix::mm::{Advice, madvise};

/// From this size on large pages are asked for (two of them fit in whatever the alignment).
const LARGE: usize = 8 << 20;
/// A large page of the usual machines; where it is another size the advice is only worth less.
const LARGE_PAGE: usize = 2 << 20;
/// From this size on the interpreter is let go while the text is written.
const DETACH: usize = 256 << 10;

/// A new `bytes` object of `len` bytes, all of which `fill` must put.
///
/// `fill` runs detached from the interpreter where there is much to write.
///
/// # Errors
/// `MemoryError`, or `SystemError` where `fill` put more or fewer bytes: a fault of ours.
pub fn fresh_bytes(
    py: Python<'_>,
    len: usize,
    fill: impl FnOnce(&mut Slots<'_>) + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(len)?;
    // SAFETY: a null source asks for an object with uninitialised content; what comes is null
    // (with an exception set) or a new reference to a bytes object, which the `Bound` takes over.
    let object = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
    };
    // SAFETY: the object is a bytes object, so this is the start of its `len` bytes. Nobody else
    // has a reference to it, so for as long as this function keeps it to itself they may be
    // written; as `MaybeUninit` they need not have been. (The empty bytes object is shared by
    // everybody, but of that no byte is written.) The object outlives the slots: both live to
    // the end of this function.
    let memory: &mut [MaybeUninit<u8>] = unsafe {
        let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<MaybeUninit<u8>>();
        std::slice::from_raw_parts_mut(start, len)
    };
    if len >= LARGE {
        advise_large_pages(memory);
    }
    let mut slots = Slots::new(memory);
    if len >= DETACH {
        py.detach(|| fill(&mut slots));
    } else {
        fill(&mut slots);
    }
    if slots.is_full() {
        Ok(object)
    } else {
        // The object, not all of it written, is dropped unseen.
        Err(PySystemError::new_err(
            "a record's size was not the size announced",
        ))
    }
}

/// Asks for large pages where whole ones lie within `memory`; that it fails is no error.
fn advise_large_pages(memory: &mut [MaybeUninit<u8>]) {
    let start = memory.as_mut_ptr();
    let before = start.align_offset(LARGE_PAGE);
    let len = memory.len().saturating_sub(before) / LARGE_PAGE * LARGE_PAGE;
    if len > 0 {
        // SAFETY: the range lies within `memory`, which is ours, and this advice changes nothing
        // but how the kernel backs it.
        let _ = unsafe { madvise(start.add(before).cast(), len, Advice::LinuxHugepage) };
    }
}
