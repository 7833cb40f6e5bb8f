//! Where a text could be cut into parts: its longer strings and containers, in order.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::json::{Structure, decode_string};

/// A node that was never looked up: it lies inside one that was seen before.
pub(super) const UNSEEN: u32 = u32::MAX;
/// A place where a key needs one more `$`, or has one too many.
pub(super) const MARK: u32 = u32::MAX - 1;
/// A mark that turned out to be none: the object has other keys too.
pub(super) const DEAD: u32 = u32::MAX - 2;

/// A stretch of a text, or a mark in it (then it is empty).
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Which text.
    pub text: u32,
    /// Index of the node after this one and everything inside it.
    pub next: u32,
    /// Index of the distinct value, or one of the three constants.
    pub distinct: u32,
    /// How many containers are open around a mark.
    pub depth: u32,
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// Equal stretches have equal hashes, wherever they stand.
    pub hash: u64,
}

/// The shortest text of its kind that becomes a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortest {
    pub string: usize,
    pub container: usize,
}

/// Finds the nodes of texts, one text after the other.
#[derive(Debug, Default)]
pub(super) struct Walker {
    open: Vec<Open>,
    /// Marks of objects that are open, innermost last: at which depth, and the node.
    marks: Vec<(usize, u32)>,
    hasher: FixedState,
}

/// A container that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: u32,
    keys: Keys,
    /// The hash of what it holds so far.
    hash: u64,
    /// Where what is not hashed yet begins.
    from: usize,
}

/// What an object's keys are so far.
#[derive(Clone, Copy, Debug)]
enum Keys {
    None,
    /// All of them are the one that stands there, which matches `\$+p`.
    Dollars(usize, usize),
    Other,
}

impl Walker {
    /// Appends the nodes of `text`, which a strict scan has passed, and says how deep it
    /// nests. Arrays of scalars and whatever is short have no nodes; a container that holds
    /// one has. Without recursion: depth is the caller's business.
    pub(super) fn walk(
        &mut self,
        text: &[u8],
        id: u32,
        shortest: Shortest,
        nodes: &mut Vec<Node>,
    ) -> usize {
        let mut structure = Structure::new(text);
        let node = |start, end, hash, next| Node {
            text: id,
            next,
            distinct: UNSEEN,
            depth: 0,
            start,
            end,
            hash,
        };
        self.open.clear();
        self.marks.clear();
        let mut deepest = 0;
        let mut pos = 0;
        while let Some(at) = structure.next_outside(pos) {
            match text[at] {
                b'"' => {
                    let end = structure.end_of_string(at);
                    if is_key(text, end) {
                        self.note_key(text, (at, end), id, nodes);
                    } else if end - at >= shortest.string {
                        let hash = self.hash(&text[at..end]);
                        nodes.push(node(at, end, hash, index(nodes.len() + 1)));
                        self.take_in(text, at, end, hash);
                    }
                    pos = end;
                }
                b'{' | b'[' => {
                    self.open.push(Open {
                        node: index(nodes.len()),
                        keys: if text[at] == b'{' {
                            Keys::None
                        } else {
                            Keys::Other
                        },
                        hash: 0,
                        from: at,
                    });
                    deepest = deepest.max(self.open.len());
                    nodes.push(node(at, 0, 0, 0));
                    pos = at + 1;
                }
                _ => {
                    pos = at + 1;
                    if let Some(closed) = self.open.pop() {
                        self.close(closed, text, pos, shortest, nodes);
                    }
                }
            }
        }
        deepest
    }

    /// The hash of a text in which no nodes are looked for.
    pub(super) fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    fn close(
        &mut self,
        closed: Open,
        text: &[u8],
        end: usize,
        shortest: Shortest,
        nodes: &mut Vec<Node>,
    ) {
        while self
            .marks
            .last()
            .is_some_and(|(depth, _)| *depth > self.open.len())
        {
            self.marks.pop();
        }
        let node = closed.node as usize;
        let start = nodes[node].start;
        if nodes.len() == node + 1 && end - start < shortest.container {
            nodes.pop();
            return;
        }
        let hash = mix(closed.hash, self.hash(&text[closed.from..end]));
        nodes[node].end = end;
        nodes[node].hash = hash;
        nodes[node].next = index(nodes.len());
        self.take_in(text, start, end, hash);
    }

    /// Hashes what the innermost open container holds up to a node, and the node by its
    /// own hash: so every byte is hashed once, however deep it lies.
    fn take_in(&mut self, text: &[u8], start: usize, end: usize, hash: u64) {
        let Some(open) = self.open.last_mut() else {
            return;
        };
        let before = self.hasher.hash_one(&text[open.from..start]);
        open.hash = mix(mix(open.hash, before), hash);
        open.from = end;
    }

    /// Sets a mark at a key where it needs one, or takes back those of its object.
    fn note_key(&mut self, text: &[u8], key: (usize, usize), id: u32, nodes: &mut Vec<Node>) {
        let depth = self.open.len();
        let Some(object) = self.open.last_mut() else {
            return;
        };
        if matches!(object.keys, Keys::Other) {
            return;
        }
        object.keys = if matches!(text.get(key.0 + 1), Some(b'$' | b'\\')) {
            object.keys.and(text, key)
        } else {
            Keys::Other
        };
        if matches!(object.keys, Keys::Dollars(..)) {
            self.marks.push((depth, index(nodes.len())));
            nodes.push(Node {
                text: id,
                next: index(nodes.len() + 1),
                distinct: MARK,
                depth: index(depth),
                start: key.0 + 1,
                end: key.0 + 1,
                hash: 0,
            });
            return;
        }
        while let Some((_, node)) = self.marks.pop_if(|(its, _)| *its == depth) {
            nodes[node as usize].distinct = DEAD;
        }
    }
}

impl Keys {
    /// The keys with one more, which stands at `at`.
    fn and(self, text: &[u8], at: (usize, usize)) -> Self {
        let key = decode_string(&text[at.0..at.1]);
        let is_dollars = key
            .strip_suffix('p')
            .is_some_and(|dollars| !dollars.is_empty() && dollars.bytes().all(|byte| byte == b'$'));
        match self {
            Self::None if is_dollars => Self::Dollars(at.0, at.1),
            Self::Dollars(start, end) if decode_string(&text[start..end]) == key => self,
            _ => Self::Other,
        }
    }
}

/// One hash of two, in which their order counts.
fn mix(first: u64, second: u64) -> u64 {
    let product =
        u128::from(first ^ 0x9e37_79b9_7f4a_7c15) * u128::from(second ^ 0xd6e8_feb8_6659_fd93);
    let bytes = product.to_le_bytes();
    let (halves, _) = bytes.as_chunks::<8>();
    u64::from_le_bytes(halves[0]) ^ u64::from_le_bytes(halves[1])
}

/// # Panics
/// Beyond 2^32 nodes, which takes a text of 64 GB or more.
pub(super) fn index(number: usize) -> u32 {
    u32::try_from(number).expect("more than 2^32 values in one record")
}

fn is_key(text: &[u8], end: usize) -> bool {
    let mut pos = end;
    while let Some(byte) = text.get(pos) {
        match byte {
            b':' => return true,
            b' ' | b'\t' | b'\r' | b'\n' => pos += 1,
            _ => return false,
        }
    }
    false
}
