//! The strings of keys, made once and kept from one call to the next.
//!
//! Records and payloads have few distinct keys and many of each: the same string object
//! saves making it, and its hash is known.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyString;

const SLOTS: usize = 1024;
const LONGEST: usize = 46;

/// A key that was met: its text and its string.
struct Slot {
    len: usize,
    text: [u8; LONGEST],
    key: Py<PyString>,
}

/// Keys that were met, by their text; of those that share a slot the last.
#[derive(Default)]
pub struct Keys {
    slots: Vec<Option<Slot>>,
}

/// The caches that nobody uses at the moment.
///
/// The pool is only ever tried: a child forked while it was held goes without.
static POOL: Mutex<Vec<Keys>> = Mutex::new(Vec::new());
const KEPT: usize = 4;

impl Keys {
    /// A cache of the pool, given back when it is dropped.
    pub fn take() -> Self {
        let pooled = POOL.try_lock().ok().and_then(|mut pool| pool.pop());
        pooled.unwrap_or_default()
    }

    /// The string of a key whose text has no escapes.
    pub fn get<'py>(&mut self, py: Python<'py>, text: &[u8]) -> Option<Bound<'py, PyString>> {
        let slot = self.slots.get(place(text))?.as_ref()?;
        (slot.text.get(..slot.len) == Some(text)).then(|| slot.key.bind(py).clone())
    }

    /// Remembers a key's string; a long key is not worth it.
    pub fn put(&mut self, text: &[u8], key: &Bound<'_, PyString>) {
        if text.len() > LONGEST {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let mut slot = Slot {
            len: text.len(),
            text: [0; LONGEST],
            key: key.clone().unbind(),
        };
        slot.text[..text.len()].copy_from_slice(text);
        self.slots[place(text)] = Some(slot);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Ok(mut pool) = POOL.try_lock()
            && pool.len() < KEPT
        {
            let slots = std::mem::take(&mut self.slots);
            pool.push(Self { slots });
        }
    }
}

/// The slot of a text: told by its length, its first and its last bytes.
#[inline]
fn place(text: &[u8]) -> usize {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (first, last) = if text.len() >= 8 {
        (word(text.first_chunk()), word(text.last_chunk()))
    } else {
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text);
        (u64::from_le_bytes(bytes), 0)
    };
    let mixed =
        (first ^ last.rotate_left(29) ^ text.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}
