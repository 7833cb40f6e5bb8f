//! Where a text could be cut into parts: its longer strings and containers, in order.

use crate::json::decode_string;

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
}

/// The shortest text of its kind that becomes a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortest {
    pub string: usize,
    pub container: usize,
}

struct Open {
    node: u32,
    keys: Keys,
}

/// What an object's keys are so far.
enum Keys {
    None,
    /// All of them are this one, which matches `\$+p`.
    Dollars(String),
    Other,
}

/// Appends the nodes of `text`, which a strict scan has passed, and says how deep it
/// nests. Arrays of scalars and whatever is short have no nodes; a container that holds
/// one has. Without recursion: depth is the caller's business.
pub(super) fn walk(text: &[u8], id: u32, shortest: Shortest, nodes: &mut Vec<Node>) -> usize {
    let mut open: Vec<Open> = Vec::new();
    // Marks of objects that are open, innermost last.
    let mut marks: Vec<(usize, u32)> = Vec::new();
    let mut deepest = 0;
    let mut pos = 0;
    while pos < text.len() {
        match text[pos] {
            b'"' => {
                let end = end_of_string(text, pos);
                if is_key(text, end) {
                    note_key(text, pos, end, id, &mut open, nodes, &mut marks);
                } else if end - pos >= shortest.string {
                    let next = index(nodes.len() + 1);
                    nodes.push(Node {
                        text: id,
                        next,
                        distinct: UNSEEN,
                        depth: 0,
                        start: pos,
                        end,
                    });
                }
                pos = end;
            }
            b'{' | b'[' => {
                open.push(Open {
                    node: index(nodes.len()),
                    keys: if text[pos] == b'{' {
                        Keys::None
                    } else {
                        Keys::Other
                    },
                });
                deepest = deepest.max(open.len());
                nodes.push(Node {
                    text: id,
                    next: 0,
                    distinct: UNSEEN,
                    depth: 0,
                    start: pos,
                    end: 0,
                });
                pos += 1;
            }
            b'}' | b']' => {
                pos += 1;
                if let Some(closed) = open.pop() {
                    while marks.last().is_some_and(|(depth, _)| *depth > open.len()) {
                        marks.pop();
                    }
                    let node = closed.node as usize;
                    if nodes.len() == node + 1 && pos - nodes[node].start < shortest.container {
                        nodes.pop();
                    } else {
                        nodes[node].end = pos;
                        nodes[node].next = index(nodes.len());
                    }
                }
            }
            _ => pos = skip_scalars(text, pos + 1),
        }
    }
    deepest
}

impl Keys {
    fn add(&mut self, quoted: &[u8]) {
        let key = decode_string(quoted);
        let dollars = key
            .strip_suffix('p')
            .is_some_and(|dollars| !dollars.is_empty() && dollars.bytes().all(|byte| byte == b'$'));
        *self = match std::mem::replace(self, Self::Other) {
            Self::None if dollars => Self::Dollars(key.into_owned()),
            Self::Dollars(first) if first == key => Self::Dollars(first),
            _ => Self::Other,
        };
    }
}

/// Sets a mark at the key at `pos` where it needs one, or takes back those of its object.
fn note_key(
    text: &[u8],
    pos: usize,
    end: usize,
    id: u32,
    open: &mut [Open],
    nodes: &mut Vec<Node>,
    marks: &mut Vec<(usize, u32)>,
) {
    let depth = open.len();
    let Some(object) = open.last_mut() else {
        return;
    };
    if matches!(object.keys, Keys::Other) {
        return;
    }
    if matches!(text.get(pos + 1), Some(b'$' | b'\\')) {
        object.keys.add(&text[pos..end]);
    } else {
        object.keys = Keys::Other;
    }
    if matches!(object.keys, Keys::Dollars(_)) {
        marks.push((depth, index(nodes.len())));
        nodes.push(Node {
            text: id,
            next: index(nodes.len() + 1),
            distinct: MARK,
            depth: index(depth),
            start: pos + 1,
            end: pos + 1,
        });
        return;
    }
    while let Some((_, node)) = marks.pop_if(|(its, _)| *its == depth) {
        nodes[node as usize].distinct = DEAD;
    }
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

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

fn load(text: &[u8], pos: usize) -> Option<u64> {
    let bytes = text.get(pos..pos + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Marks the bytes of `word` that equal `byte`; only the lowest mark is exact.
fn equal(word: u64, byte: u8) -> u64 {
    let zero = word ^ (ONES * u64::from(byte));
    zero.wrapping_sub(ONES) & !zero & HIGHS
}

/// The first quote, bracket or brace at or after `pos`. Digits, signs, commas and blanks
/// have no bit 0x40, brackets and letters do: arrays of numbers pass eight bytes a step.
fn skip_scalars(text: &[u8], mut pos: usize) -> usize {
    loop {
        while let Some(word) = load(text, pos) {
            let marks = ((word << 1) & HIGHS) | equal(word, b'"');
            if marks != 0 {
                pos += marks.trailing_zeros() as usize / 8;
                break;
            }
            pos += 8;
        }
        match text.get(pos) {
            None | Some(b'"' | b'{' | b'}' | b'[' | b']') => return pos,
            Some(_) => pos += 1,
        }
    }
}

/// Strings that end within this many bytes are not worth a vectorised search.
const SHORT: usize = 32;

fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut pos = start + 1;
    let short_until = pos + SHORT;
    while pos < short_until
        && let Some(word) = load(text, pos)
    {
        let marks = equal(word, b'"') | equal(word, b'\\');
        if marks == 0 {
            pos += 8;
            continue;
        }
        pos += marks.trailing_zeros() as usize / 8;
        if text[pos] == b'"' {
            return pos + 1;
        }
        pos += 2;
    }
    while let Some(len) = memchr::memchr2(b'"', b'\\', text.get(pos..).unwrap_or_default()) {
        if text[pos + len] == b'"' {
            return pos + len + 1;
        }
        pos += len + 2;
    }
    text.len()
}
