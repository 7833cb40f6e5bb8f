//! A value's structure, kept while it is scanned, so that it is walked once.

use super::raw::{Kind, Raw};
use super::scan::Scanner;
use super::{Fault, MAX_DEPTH};

/// What keys a tape tells apart: a key is looked at once, while it is scanned.
pub trait FieldName: Copy + Default + PartialEq {
    /// The name that a key's text is.
    fn of(text: &[u8]) -> Self;

    /// The name of a key, a string value, however it is escaped.
    fn of_key(key: Raw<'_>) -> Self {
        Self::of(key.as_str().unwrap_or_default().as_bytes())
    }

    /// Whether nothing below a member of this name is wanted.
    fn is_closed(self) -> bool;
}

/// How many nodes an ordinary response has.
const NODES: usize = 64;

/// One value of a tape: its slice, its key where it is a member, and where its
/// next sibling stands.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a, N> {
    /// The value.
    pub value: Raw<'a>,
    /// The key, where the value is an object's member.
    pub key: Option<Raw<'a>>,
    /// What the key is called.
    pub name: N,
    /// Index of the node after this one and everything below it.
    pub end: usize,
    /// Whether every element or member has a node: false for a list with scalars in it.
    pub is_whole: bool,
}

/// The nodes of one value in document order.
///
/// Arrays of scalars have no nodes below them (token ids would be thousands), nor has
/// anything deeper than the depth that was asked for.
#[derive(Debug)]
pub struct Tape<'a, N> {
    nodes: Vec<Node<'a, N>>,
}

impl<N> Default for Tape<'_, N> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<'a, N: FieldName> Tape<'a, N> {
    /// Scans the value at the scanner's position, strictly, keeping `levels` levels of it
    /// but nothing below members with a closed name.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn scan(&mut self, scanner: &mut Scanner<'a>, levels: usize) -> Result<usize, Fault> {
        let root = self.nodes.len();
        self.nodes.reserve(NODES);
        self.record(scanner, None, N::default(), levels.min(MAX_DEPTH))?;
        Ok(root)
    }

    fn record(
        &mut self,
        scanner: &mut Scanner<'a>,
        key: Option<Raw<'a>>,
        name: N,
        levels: usize,
    ) -> Result<(), Fault> {
        let index = self.nodes.len();
        let start = scanner.pos();
        self.nodes.push(Node {
            value: Raw::NULL,
            key,
            name,
            end: 0,
            is_whole: true,
        });
        let mut is_whole = levels > 0;
        match scanner.peek() {
            Some(b'{') if levels > 0 => {
                scanner.object(|scanner, key| {
                    let name: N = scanner.name(key);
                    let levels = if name.is_closed() { 0 } else { levels - 1 };
                    self.record(scanner, Some(key), name, levels)
                })?;
            }
            Some(b'[') if levels > 0 => scanner.array(|scanner| {
                if matches!(scanner.peek(), Some(b'-' | b'0'..=b'9')) {
                    is_whole = false;
                    scanner.numbers()?;
                }
                if matches!(scanner.peek(), Some(b'{' | b'[' | b'"')) {
                    return self.record(scanner, None, N::default(), levels - 1);
                }
                is_whole = false;
                scanner.value().map(|_| ())
            })?,
            _ => {
                scanner.value()?;
            }
        }
        let end = self.nodes.len();
        let node = &mut self.nodes[index];
        node.value = Raw::new(scanner.slice(start, scanner.pos()));
        node.end = end;
        node.is_whole = is_whole;
        Ok(())
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// A node by its index.
    #[must_use]
    pub fn node(&self, index: usize) -> Node<'a, N> {
        self.nodes[index]
    }

    /// The value of a node.
    #[must_use]
    pub fn value(&self, index: usize) -> Raw<'a> {
        self.nodes[index].value
    }

    /// The indices of a node's children in order.
    pub fn children(&self, index: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        let end = self.nodes[index].end;
        let mut next = index + 1;
        std::iter::from_fn(move || {
            (next < end).then(|| {
                let child = next;
                next = self.nodes[child].end;
                child
            })
        })
    }

    /// The index of a member's value by its name; of duplicates the last.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize, name: N) -> Option<usize> {
        let found = |child: &usize| {
            let node = &self.nodes[*child];
            node.name == name && node.key.is_some()
        };
        self.children(index).filter(found).last()
    }

    /// The value of a member, null where it is missing or the node is no object.
    #[must_use]
    #[inline]
    pub fn member(&self, index: usize, name: N) -> Raw<'a> {
        self.get(index, name)
            .map_or(Raw::NULL, |child| self.value(child))
    }

    /// A member that is an array: its index.
    #[must_use]
    #[inline]
    pub fn array(&self, index: usize, name: N) -> Option<usize> {
        self.get(index, name)
            .filter(|child| self.value(*child).kind() == Kind::Array)
    }
}
