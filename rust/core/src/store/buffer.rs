//! The memory that captures are read into, used again from one rollout to the next.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// What the first byte's address is a multiple of.
///
/// An allocator puts large memory 16 bytes after a page's start, and that is where copying
/// from a page's start, as the kernel does for a read, is several times slower on some
/// processors: they take the two for overlapping.
const ALIGNMENT: usize = 64;

/// Bytes that start where reading into them is fast.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl ReadBuffer {
    /// An empty buffer with room for about `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            memory: Vec::with_capacity(capacity),
            start: 0,
        }
    }

    /// Forgets the content, keeps the memory.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.start = 0;
    }

    /// How many bytes of memory there are.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// Drops what lies beyond the first `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        self.memory.truncate(self.start + len);
    }

    /// Makes room for `more` bytes; an empty buffer's start is aligned.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        if !self.is_empty() {
            return self.memory.try_reserve(more);
        }
        self.clear();
        self.memory.try_reserve(more.saturating_add(ALIGNMENT))?;
        self.start = self.memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        self.memory.resize(self.start, 0);
        Ok(())
    }

    /// The memory to append to, without moving what is there.
    pub(super) fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_starts_aligned_and_keeps_its_place() {
        let mut buffer = ReadBuffer::default();
        for size in [1, 100, 5_000, 300_000, 40] {
            buffer.clear();
            buffer.reserve(size).unwrap();
            assert!(buffer.is_empty());
            assert!(buffer.capacity() >= size);
            buffer.memory().extend_from_slice(b"abc");
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
            buffer.reserve(10).unwrap();
            assert_eq!(&buffer[..], b"abc");
            buffer.truncate(1);
            assert_eq!(&buffer[..], b"a");
        }
    }
}
