//! Which values occur more than once, and in which order they become parts.

use std::borrow::Cow;
use std::cmp::Reverse;

use hashbrown::{HashMap, HashTable};

use super::nodes::{DEAD, MARK, Node, Shortest, UNSEEN, Walker, index};

/// What is shorter is not worth a reference. Measured on the record of the benches' swe
/// shape (50 MB): packed 737 KB from 16 bytes on, 745 from 32, 774 from 64, 775 from 128,
/// 849 from 256; below 32 it takes longer, above it does not get faster by much.
pub(super) const SHORTEST: Shortest = Shortest {
    string: 32,
    container: 32,
};

/// A distinct value.
#[derive(Debug)]
struct Distinct {
    /// The first node that has it.
    node: u32,
    /// In how many places it stands; places inside repeated values count once.
    count: u32,
    /// Whether it is a part whatever its count.
    forced: bool,
    /// How many values stand around it, counted from the record, where most do.
    level: u32,
    /// Its place among the parts.
    number: u32,
}

/// The distinct values of one record.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    texts: Vec<Cow<'a, [u8]>>,
    nodes: Vec<Node>,
    table: HashTable<(u64, u32)>,
    distinct: Vec<Distinct>,
    /// The last container of the same length, beginning and end: often it is the same.
    similar: HashMap<u64, u32>,
    walker: Walker,
    /// Neighbours in an array that are parts, as ranges of `members`.
    lists: Vec<(usize, usize)>,
    members: Vec<u32>,
    order: Vec<u32>,
}

impl<'a> Plan<'a> {
    /// A plan with room for about so many distinct values.
    pub(super) fn with_capacity(values: usize) -> Self {
        Self {
            texts: Vec::with_capacity(values),
            nodes: Vec::with_capacity(values * 2),
            table: HashTable::with_capacity(values),
            distinct: Vec::with_capacity(values),
            similar: HashMap::with_capacity(values / 4),
            ..Self::default()
        }
    }

    /// Counts one more place of a text (one strict value): its distinct value.
    pub(super) fn add(&mut self, text: Cow<'a, [u8]>) -> u32 {
        if !matches!(text.first(), Some(b'{' | b'[')) {
            let hash = self.walker.hash(&text);
            return match self.find(hash, &text) {
                Some(found) => self.again(found),
                None => self.enter_scalar(hash, text),
            };
        }
        let likeness = self.likeness(&text);
        if let Some(found) = self.similar.get(&likeness).copied()
            && self.text(self.distinct[found as usize].node) == &text[..]
        {
            return self.again(found);
        }
        if memchr::memchr2(b'\n', b'\r', &text).is_some() {
            return self.add(Cow::Owned(on_one_line(&text)));
        }
        let distinct = self.add_container(text);
        self.similar.insert(likeness, distinct);
        distinct
    }

    /// [`Self::add`] for a string that we made and do not keep.
    pub(super) fn add_made(&mut self, string: &[u8]) -> u32 {
        let hash = self.walker.hash(string);
        match self.find(hash, string) {
            Some(found) => self.again(found),
            None => self.enter_scalar(hash, Cow::Owned(string.to_vec())),
        }
    }

    fn add_container(&mut self, text: Cow<'a, [u8]>) -> u32 {
        let root = self.nodes.len();
        let id = index(self.texts.len());
        self.walker.walk(&text, id, SHORTEST, &mut self.nodes);
        if self.nodes.len() == root {
            // Too short to be worth a node of its own.
            let hash = self.walker.hash(&text);
            return match self.find(hash, &text) {
                Some(found) => self.again(found),
                None => self.enter_scalar(hash, text),
            };
        }
        let hash = self.nodes[root].hash;
        if let Some(found) = self.find(hash, &text) {
            self.nodes.truncate(root);
            return self.again(found);
        }
        self.texts.push(text);
        let distinct = self.enter(hash, root);
        let mut at = root + 1;
        while at < self.nodes.len() {
            let node = self.nodes[at];
            if matches!(node.distinct, MARK | DEAD) {
                at += 1;
                continue;
            }
            let text = &self.texts[id as usize][node.start..node.end];
            if let Some(found) = self.find(node.hash, text) {
                self.nodes[at].distinct = self.again(found);
                at = node.next as usize;
            } else {
                self.enter(node.hash, at);
                at += 1;
            }
        }
        distinct
    }

    /// A text without nodes inside.
    fn enter_scalar(&mut self, hash: u64, text: Cow<'a, [u8]>) -> u32 {
        let root = self.nodes.len();
        self.nodes.push(Node {
            text: index(self.texts.len()),
            next: index(root + 1),
            distinct: UNSEEN,
            depth: 0,
            start: 0,
            end: text.len(),
            hash,
        });
        self.texts.push(text);
        self.enter(hash, root)
    }

    /// A hash of some of the text only.
    fn likeness(&self, text: &[u8]) -> u64 {
        const SOME: usize = 48;
        let first = &text[..text.len().min(SOME)];
        let last = &text[text.len().saturating_sub(SOME)..];
        let len = text.len() as u64;
        self.walker.hash(first) ^ self.walker.hash(last).rotate_left(17) ^ len
    }

    /// Counts one more place of a distinct value.
    pub(super) fn again(&mut self, distinct: u32) -> u32 {
        self.distinct[distinct as usize].count += 1;
        distinct
    }

    /// Makes a distinct value a part, however often it occurs.
    pub(super) fn force(&mut self, distinct: u32) {
        self.distinct[distinct as usize].forced = true;
    }

    fn find(&self, hash: u64, text: &[u8]) -> Option<u32> {
        let same = |(other, distinct): &(u64, u32)| {
            *other == hash && self.text(self.distinct[*distinct as usize].node) == text
        };
        self.table.find(hash, same).map(|(_, distinct)| *distinct)
    }

    fn enter(&mut self, hash: u64, node: usize) -> u32 {
        let distinct = index(self.distinct.len());
        self.distinct.push(Distinct {
            node: index(node),
            count: 1,
            forced: false,
            level: 0,
            number: u32::MAX,
        });
        self.nodes[node].distinct = distinct;
        self.table
            .insert_unique(hash, (hash, distinct), |(hash, _)| *hash);
        distinct
    }

    fn text(&self, node: u32) -> &[u8] {
        let node = self.nodes[node as usize];
        &self.texts[node.text as usize][node.start..node.end]
    }

    fn is_part(&self, distinct: u32) -> bool {
        let distinct = &self.distinct[distinct as usize];
        distinct.forced || distinct.count > 1
    }

    /// The place of a distinct value among the parts, where it is one.
    pub(super) fn part(&self, distinct: u32) -> Option<u32> {
        let number = self.distinct[distinct as usize].number;
        (number != u32::MAX).then_some(number)
    }

    /// Notes that the record itself holds this value.
    pub(super) fn link(&mut self, distinct: u32) {
        if self.is_part(distinct) {
            let level = &mut self.distinct[distinct as usize].level;
            *level = (*level).max(1);
        } else {
            self.link_inside(distinct, 1);
        }
    }

    /// Notes neighbours in an array of the record; they are linked by themselves.
    pub(super) fn link_list(&mut self, list: impl Iterator<Item = u32>) {
        let start = self.members.len();
        for distinct in list {
            if self.is_part(distinct) {
                self.members.push(distinct);
            }
        }
        self.end_list(start);
    }

    fn end_list(&mut self, start: usize) {
        if self.members.len() > start + 1 {
            self.lists.push((start, self.members.len()));
        } else {
            self.members.truncate(start);
        }
    }

    /// Puts the parts inside a value at `level` at least.
    fn link_inside(&mut self, distinct: u32, level: u32) {
        let mut refs = Refs::of(self, distinct);
        let mut start = self.members.len();
        let mut last_end = usize::MAX;
        while let Some(child) = refs.next(self) {
            let node = self.nodes[child as usize];
            let inner = &mut self.distinct[node.distinct as usize];
            inner.level = inner.level.max(level);
            let text = &self.texts[node.text as usize];
            if last_end > node.start || !is_comma(&text[last_end..node.start]) {
                self.end_list(start);
                start = self.members.len();
            }
            self.members.push(node.distinct);
            last_end = node.end;
        }
        self.end_list(start);
    }

    /// Numbers the parts, innermost first, so that every part comes after those it
    /// refers to, and neighbours stand together: the longest list decides, since the
    /// shorter ones of a growing history are its beginnings.
    pub(super) fn number(&mut self) {
        let parts: Vec<u32> = (0..index(self.distinct.len()))
            .filter(|distinct| self.is_part(*distinct))
            .collect();
        // What holds a value is longer than it, so this is from the outside in.
        let mut holders: Vec<(Reverse<usize>, u32)> = parts
            .iter()
            .filter_map(|distinct| {
                let at = self.distinct[*distinct as usize].node;
                let node = self.nodes[at as usize];
                (node.next > at + 1).then_some((Reverse(node.end - node.start), *distinct))
            })
            .collect();
        holders.sort_unstable();
        for (_, distinct) in holders {
            let level = self.distinct[distinct as usize].level;
            self.link_inside(distinct, level + 1);
        }
        let level = |distinct: &u32| self.distinct[*distinct as usize].level;
        let deepest = parts.iter().map(level).max().unwrap_or(0);
        let mut lists = std::mem::take(&mut self.lists);
        lists.sort_by_key(|(start, end)| Reverse(end - start));
        let mut levels: Vec<Vec<u32>> = vec![Vec::new(); deepest as usize + 1];
        let listed = lists
            .iter()
            .flat_map(|(start, end)| &self.members[*start..*end]);
        for distinct in listed.chain(&parts) {
            let value = &mut self.distinct[*distinct as usize];
            if value.number == u32::MAX {
                value.number = 0;
                levels[value.level as usize].push(*distinct);
            }
        }
        for distinct in levels.into_iter().rev().flatten() {
            self.distinct[distinct as usize].number = index(self.order.len());
            self.order.push(distinct);
        }
    }

    /// How many bytes the parts take about.
    pub(super) fn size(&self) -> usize {
        self.order
            .iter()
            .map(|distinct| self.text(self.distinct[*distinct as usize].node).len() + 1)
            .sum()
    }

    /// Appends the parts, separated by commas.
    pub(super) fn write_parts(&self, out: &mut Vec<u8>) {
        for (number, distinct) in self.order.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            self.write_inside(*distinct, out);
        }
    }

    /// Appends a value's text, with references to the parts inside it.
    pub(super) fn write_inside(&self, distinct: u32, out: &mut Vec<u8>) {
        let root = self.nodes[self.distinct[distinct as usize].node as usize];
        let text = &self.texts[root.text as usize];
        let mut refs = Refs::of(self, distinct);
        refs.with_marks = true;
        let mut run = Run::default();
        let mut pos = root.start;
        while let Some(child) = refs.next(self) {
            let node = self.nodes[child as usize];
            let gap = &text[pos..node.start];
            pos = node.end;
            let number = if node.distinct == MARK {
                None
            } else {
                self.part(node.distinct)
            };
            if number.is_none_or(|number| !is_comma(gap) || !run.extend(number)) {
                run.flush(out);
                out.extend_from_slice(gap);
                match number {
                    Some(number) => run = Run::new(number),
                    None => out.push(b'$'),
                }
            }
        }
        run.flush(out);
        out.extend_from_slice(&text[pos..root.end]);
    }
}

/// The outermost parts inside a value, in order.
struct Refs {
    at: usize,
    end: usize,
    with_marks: bool,
}

impl Refs {
    fn of(plan: &Plan<'_>, distinct: u32) -> Self {
        let node = plan.distinct[distinct as usize].node as usize;
        Self {
            at: node + 1,
            end: plan.nodes[node].next as usize,
            with_marks: false,
        }
    }

    fn next(&mut self, plan: &Plan<'_>) -> Option<u32> {
        while self.at < self.end {
            let at = self.at;
            let node = plan.nodes[at];
            if node.distinct == MARK && self.with_marks {
                self.at += 1;
                return Some(index(at));
            }
            if !matches!(node.distinct, MARK | DEAD) && plan.is_part(node.distinct) {
                self.at = node.next as usize;
                return Some(index(at));
            }
            self.at += 1;
        }
        None
    }
}

/// References to parts that follow one another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    first: u32,
    len: u32,
}

impl Run {
    pub(super) fn new(first: u32) -> Self {
        Self { first, len: 1 }
    }

    /// Takes in the next part of an array, where it is the one that follows.
    pub(super) fn extend(&mut self, number: u32) -> bool {
        let follows = self.len > 0 && self.first + self.len == number;
        self.len += u32::from(follows);
        follows
    }

    /// Writes the reference, if there is one, and says so.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> bool {
        let mut digits = itoa::Buffer::new();
        match std::mem::take(&mut self.len) {
            0 => return false,
            1 => {
                out.extend_from_slice(b"{\"$p\":");
                out.extend_from_slice(digits.format(self.first).as_bytes());
                out.push(b'}');
            }
            len => {
                out.extend_from_slice(b"{\"$p\":[");
                out.extend_from_slice(digits.format(self.first).as_bytes());
                out.push(b',');
                out.extend_from_slice(digits.format(len).as_bytes());
                out.extend_from_slice(b"]}");
            }
        }
        true
    }
}

fn is_comma(gap: &[u8]) -> bool {
    gap == b"," || gap.trim_ascii() == b","
}

/// A packed record is one line: newlines, which can only be blanks here, become spaces.
fn on_one_line(text: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    };
    text.iter().map(blank).collect()
}
