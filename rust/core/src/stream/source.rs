//! Where JSON text comes from, piece by piece.

use super::rope::Rope;

/// JSON text under reading.
pub(super) trait Source {
    /// The bytes at hand; none only at the end.
    fn rest(&self) -> &[u8];
    /// Goes on by so many of the bytes at hand.
    fn advance(&mut self, count: usize);
}

/// Text that stays where it is.
pub(super) struct Lent<'a> {
    now: &'a [u8],
    later: Option<Box<dyn Iterator<Item = &'a [u8]> + 'a>>,
}

impl<'a> Lent<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self {
            now: json,
            later: None,
        }
    }

    pub(super) fn of(rope: &'a Rope) -> Self {
        if !rope.is_long() {
            return Self::new(rope.first());
        }
        let mut source = Self {
            now: b"",
            later: Some(Box::new(rope.pieces())),
        };
        source.advance(0);
        source
    }
}

impl Source for Lent<'_> {
    fn rest(&self) -> &[u8] {
        self.now
    }

    fn advance(&mut self, count: usize) {
        self.now = &self.now[count..];
        while self.now.is_empty()
            && let Some(later) = &mut self.later
        {
            match later.next() {
                Some(next) => self.now = next,
                None => self.later = None,
            }
        }
    }
}

/// Text that is let go as it is read.
pub(super) struct Given<I> {
    now: Vec<u8>,
    at: usize,
    later: I,
}

impl Given<()> {
    #[allow(clippy::new_ret_no_self)] // the iterator has no name
    pub(super) fn new(rope: Rope) -> Given<impl Iterator<Item = Vec<u8>>> {
        let mut source = Given {
            now: Vec::new(),
            at: 0,
            later: rope.into_pieces(),
        };
        source.advance(0);
        source
    }
}

impl<I: Iterator<Item = Vec<u8>>> Source for Given<I> {
    fn rest(&self) -> &[u8] {
        &self.now[self.at..]
    }

    fn advance(&mut self, count: usize) {
        self.at += count;
        if self.at == self.now.len()
            && let Some(next) = self.later.next()
        {
            self.now = next;
            self.at = 0;
        }
    }
}
