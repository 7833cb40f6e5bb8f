//! Equal slices stored once: a rollout's histories repeat from call to call.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::item::Note;
use crate::json::Raw;

/// A distinct value of one rollout: an index into its [`Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedId(pub u32);

/// Where a distinct value comes from.
#[derive(Clone, Debug)]
pub enum Blob<'a> {
    /// A slice of what was read.
    Raw(Raw<'a>),
    /// JSON text that a converter made.
    Text(Arc<[u8]>),
    /// An object that a converter made and the caller holds: the index in its list.
    Foreign(usize),
    /// Another one with the key `type` and the value `message` before the rest.
    Typed(SharedId),
    /// Another one without the keys that hold its reasoning.
    WithoutReasoning(SharedId),
}

/// The keys that [`Blob::WithoutReasoning`] leaves out (contract, section 8, Chat).
pub const REASONING_KEYS: [&str; 2] = ["reasoning_content", "reasoning"];

/// The distinct values of one rollout.
#[derive(Debug, Default)]
pub struct Interner<'a> {
    table: HashTable<(u64, SharedId)>,
    blobs: Vec<Blob<'a>>,
    /// What is known of the first of them beside their text.
    notes: Vec<Option<Note<'a>>>,
    hasher: FixedState,
}

impl<'a> Interner<'a> {
    /// The id of a value; equal text gives the same id.
    pub fn intern(&mut self, value: Raw<'a>) -> SharedId {
        let hash = self.hasher.hash_one(value.bytes());
        let blobs = &self.blobs;
        let same = |(other, id): &(u64, SharedId)| {
            *other == hash && matches!(&blobs[id.0 as usize], Blob::Raw(raw) if *raw == value)
        };
        if let Some((_, id)) = self.table.find(hash, same) {
            return *id;
        }
        let id = self.add(Blob::Raw(value));
        self.table
            .insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    /// Adds a value without looking for an equal one.
    ///
    /// # Panics
    /// Beyond 2^32 distinct values in one rollout.
    pub fn add(&mut self, blob: Blob<'a>) -> SharedId {
        let id = u32::try_from(self.blobs.len()).expect("more than 2^32 distinct values");
        self.blobs.push(blob);
        SharedId(id)
    }

    /// The value of an id.
    #[must_use]
    pub fn blob(&self, id: SharedId) -> &Blob<'a> {
        &self.blobs[id.0 as usize]
    }

    /// The slice of an id that [`Self::intern`] gave.
    #[must_use]
    pub fn raw(&self, id: SharedId) -> Option<Raw<'a>> {
        match self.blob(id) {
            Blob::Raw(raw) => Some(*raw),
            _ => None,
        }
    }

    /// Remembers what a scan saw of a value.
    pub fn note(&mut self, id: SharedId, note: Note<'a>) {
        let at = id.0 as usize;
        if at >= self.notes.len() {
            self.notes.resize(at + 1, None);
        }
        self.notes[at] = Some(note);
    }

    /// What [`Self::note`] remembered, else what the value's text says.
    #[must_use]
    pub fn noted(&self, id: SharedId) -> Note<'a> {
        let noted = self.notes.get(id.0 as usize).copied().flatten();
        noted.unwrap_or_else(|| self.raw(id).map_or_else(Note::default, Note::of))
    }

    /// How many distinct values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blobs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
}

/// How many ids at the beginning of two lists are the same.
#[must_use]
pub fn same_beginning(left: &[SharedId], right: &[SharedId]) -> usize {
    const MANY: usize = 16;
    let same = |(left, right): &(&[SharedId; MANY], &[SharedId; MANY])| {
        let differing = left
            .iter()
            .zip(*right)
            .fold(0, |all, (l, r)| all | (l.0 ^ r.0));
        differing == 0
    };
    let chunks = left.as_chunks().0.iter().zip(right.as_chunks().0);
    let start = MANY * chunks.take_while(same).count();
    let rest = left[start..].iter().zip(&right[start..]);
    start + rest.take_while(|(left, right)| left == right).count()
}
