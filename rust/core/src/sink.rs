//! Where JSON text goes: appended to a vector, counted, both, or put into memory of its size.

use std::mem::MaybeUninit;

/// Takes text piece by piece.
pub trait Sink {
    /// Takes `bytes` after what was put before.
    fn put(&mut self, bytes: &[u8]);

    /// Takes one byte.
    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

/// Counts what it is given: the exact size of a text before it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    /// How many bytes came.
    pub bytes: usize,
}

impl Sink for Counter {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
    }
}

/// Keeps a text of up to so many bytes, and counts one of any length: whether a text is
/// short shows while it is written.
#[derive(Debug)]
pub struct Short<'t> {
    text: &'t mut Vec<u8>,
    most: usize,
    len: usize,
}

impl<'t> Short<'t> {
    /// Keeps in `text`, which it empties, up to `most` bytes.
    #[must_use]
    pub fn new(text: &'t mut Vec<u8>, most: usize) -> Self {
        text.clear();
        Self { text, most, len: 0 }
    }

    /// The text where it is short, else how long it would be.
    ///
    /// # Errors
    /// It is longer than what is kept.
    pub fn finish(self) -> Result<&'t [u8], usize> {
        if self.len <= self.most {
            Ok(self.text)
        } else {
            Err(self.len)
        }
    }
}

impl Sink for Short<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        if self.len <= self.most {
            self.text.extend_from_slice(bytes);
        }
    }
}

/// Memory of a fixed size that was never written, filled from its start.
///
/// What does not fit is dropped and counted, never written elsewhere.
#[derive(Debug)]
pub struct Slots<'m> {
    free: &'m mut [MaybeUninit<u8>],
    dropped: usize,
}

impl<'m> Slots<'m> {
    /// All of `memory` is to be filled.
    #[must_use]
    pub fn new(memory: &'m mut [MaybeUninit<u8>]) -> Self {
        Self {
            free: memory,
            dropped: 0,
        }
    }

    /// Whether every byte of the memory was written, and nothing was too much.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.dropped == 0
    }
}

impl Sink for Slots<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(self.free.len());
        let (slots, free) = std::mem::take(&mut self.free).split_at_mut(fits);
        // One copy: the compiler knows this loop.
        for (slot, byte) in slots.iter_mut().zip(bytes) {
            slot.write(*byte);
        }
        self.free = free;
        self.dropped += bytes.len() - fits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_know_when_they_are_full() {
        let mut memory = [MaybeUninit::uninit(); 5];
        let mut slots = Slots::new(&mut memory);
        slots.put(b"abc");
        assert!(!slots.is_full());
        slots.put(b"de");
        assert!(slots.is_full());
        slots.put(b"f");
        assert!(!slots.is_full());
    }

    #[test]
    fn a_short_text_is_kept_and_a_long_one_counted() {
        let mut text = b"from before".to_vec();
        for (most, kept) in [
            (0, Err(4)),
            (3, Err(4)),
            (4, Ok(&b"abcd"[..])),
            (9, Ok(b"abcd")),
        ] {
            let mut short = Short::new(&mut text, most);
            short.put(b"abc");
            short.put_byte(b'd');
            assert_eq!(short.finish(), kept);
        }
    }

    #[test]
    fn a_counter_counts_what_a_vector_gets() {
        let mut counter = Counter::default();
        let mut text = Vec::new();
        for sink in [&mut counter as &mut dyn Sink, &mut text] {
            sink.put(b"abc");
            sink.put_byte(b'd');
        }
        assert_eq!((counter.bytes, text), (4, b"abcd".to_vec()));
    }
}
