//! Bytes in pieces: they grow without being copied, and are let go piece by piece, so that
//! a body that turns into another form is not held twice.

use std::borrow::Cow;

/// A piece's size as long as there are few.
pub(super) const PIECE: usize = 64 * 1024;

/// How many pieces there may be before larger ones are made: a line is written in one
/// call, which takes 1,024 at most.
const FEW: usize = 64;

/// Where written bytes go.
pub(crate) trait Out {
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Out for Rope {
    fn put(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// Bytes in pieces.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// The pieces before the last one; most ropes have none.
    #[allow(clippy::vec_box, clippy::box_collection)] // eight bytes in every value, not 24
    full: Option<Box<Vec<Vec<u8>>>>,
    last: Vec<u8>,
}

impl Rope {
    pub fn push(&mut self, bytes: &[u8]) {
        self.push_into(bytes, &mut Vec::new());
    }

    /// Appends; a new piece takes its memory from those that are spare.
    fn push_into(&mut self, mut bytes: &[u8], spare: &mut Vec<Vec<u8>>) {
        loop {
            let room = self.room();
            if bytes.len() <= room {
                self.last.extend_from_slice(bytes);
                return;
            }
            let (now, later) = bytes.split_at(room);
            self.last.extend_from_slice(now);
            self.end_piece();
            match spare.pop() {
                Some(piece) => self.last = piece,
                None => self.last.reserve(PIECE),
            }
            bytes = later;
        }
    }

    /// How many bytes the last piece still takes.
    pub(super) fn room(&self) -> usize {
        let size = match &self.full {
            Some(full) if full.len() >= FEW => PIECE * (full.len() / FEW + 1),
            _ => PIECE,
        };
        size.saturating_sub(self.last.len())
    }

    /// The last piece, to be appended to.
    pub(super) fn last(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    fn end_piece(&mut self) {
        if !self.last.is_empty() {
            let mut piece = std::mem::take(&mut self.last);
            piece.shrink_to_fit();
            self.full.get_or_insert_default().push(piece);
        }
    }

    /// Ends the last piece; there is room in a new one.
    pub(super) fn begin_piece(&mut self) {
        self.end_piece();
        self.last.reserve(PIECE);
    }

    /// Appends all pieces of another as they are.
    pub(super) fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if let Some(pieces) = other.full {
            self.end_piece();
            self.full.get_or_insert_default().extend(*pieces);
            self.last = other.last;
        } else {
            self.push(&other.last);
        }
    }

    pub fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_empty() && self.full.is_none()
    }

    pub(super) fn clear(&mut self) {
        self.full = None;
        self.last.clear();
    }

    /// Whether there is more than one piece.
    pub(super) fn is_long(&self) -> bool {
        self.full.is_some()
    }

    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let full = self.full.iter().flat_map(|full| full.iter());
        full.chain([&self.last]).map(Vec::as_slice)
    }

    pub fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        let full = self.full.map_or_else(Vec::new, |full| *full);
        full.into_iter()
            .chain([self.last])
            .filter(|piece| !piece.is_empty())
    }

    /// The first piece, which is all there is where the rope is not long.
    pub(super) fn first(&self) -> &[u8] {
        self.pieces().next().unwrap_or_default()
    }

    /// All bytes in a row; a copy only where the rope is long.
    #[must_use]
    pub fn contiguous(&self) -> Cow<'_, [u8]> {
        if self.is_long() {
            Cow::Owned(self.pieces().collect::<Vec<_>>().concat())
        } else {
            Cow::Borrowed(&self.last)
        }
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        if self.is_long() {
            self.contiguous().into_owned()
        } else {
            self.last
        }
    }

    /// Takes the first bytes away; they are all in the first piece.
    pub(super) fn drop_front(&mut self, count: usize) {
        let first = match &mut self.full {
            Some(full) => full.first_mut(),
            None => Some(&mut self.last),
        };
        if let Some(first) = first {
            first.drain(..count);
        }
    }

    /// Gives back memory that a short rope does not need.
    pub(super) fn shrink(&mut self) {
        self.last.shrink_to_fit();
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            full: None,
            last: bytes,
        }
    }
}

/// A rope that is written from others, in the memory that they let go. Where one thread
/// reads a body and another writes its line, the allocator would not do that: it keeps what
/// each of them frees apart.
#[derive(Default)]
pub(super) struct Rewritten {
    rope: Rope,
    spare: Vec<Vec<u8>>,
}

impl Rewritten {
    /// Takes a piece's memory; what it said is written.
    pub(super) fn recycle(&mut self, mut piece: Vec<u8>) {
        if piece.capacity() >= PIECE {
            piece.clear();
            self.spare.push(piece);
        }
    }

    pub(super) fn append(&mut self, rope: Rope) {
        self.rope.append(rope);
    }

    pub(super) fn finish(self) -> Rope {
        self.rope
    }
}

impl Out for Rewritten {
    fn put(&mut self, bytes: &[u8]) {
        self.rope.push_into(bytes, &mut self.spare);
    }
}

/// Equal bytes, wherever they are cut.
impl PartialEq for Rope {
    fn eq(&self, other: &Self) -> bool {
        if self.is_long() || other.is_long() {
            self.len() == other.len() && (self.pieces().flatten()).eq(other.pieces().flatten())
        } else {
            self.last == other.last
        }
    }
}

impl Eq for Rope {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_grow_with_the_whole() {
        let mut rope = Rope::default();
        let chunk = vec![b'x'; 100_000];
        for _ in 0..3_000 {
            rope.push(&chunk);
        }
        assert_eq!(rope.len(), 300_000_000);
        assert!(rope.pieces().count() < 1_000, "{}", rope.pieces().count());
        assert!(rope.pieces().all(|piece| piece.len() <= 4_000_000));
    }

    proptest! {
        #[test]
        fn bytes_stay_in_order_however_they_come(
            sizes in proptest::collection::vec(0..3 * PIECE, 0..6),
            appended in any::<bool>(),
        ) {
            let mut rope = Rope::default();
            let mut whole = Vec::new();
            for (at, size) in sizes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..size).map(|byte| (byte * 31 + at).to_le_bytes()[0]).collect();
                whole.extend_from_slice(&bytes);
                if appended {
                    let mut other = Rope::default();
                    other.push(&bytes);
                    rope.append(other);
                } else {
                    rope.push(&bytes);
                }
            }
            prop_assert_eq!(rope.len(), whole.len());
            prop_assert_eq!(rope.is_empty(), whole.is_empty());
            prop_assert_eq!(&rope, &Rope::from(whole.clone()));
            prop_assert_eq!(rope.clone().into_pieces().collect::<Vec<_>>().concat(), whole.clone());
            prop_assert_eq!(rope.contiguous(), whole.as_slice());
            prop_assert_eq!(rope.into_vec(), whole);
        }
    }
}
