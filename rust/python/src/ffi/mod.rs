//! What a compiler cannot check: Python's and the kernel's C interfaces, where no safe
//! library wraps what is needed. The one module of the project with `unsafe` in it; each
//! block says why it holds.
#![allow(unsafe_code)]

pub mod fresh_bytes;
pub mod lease;
