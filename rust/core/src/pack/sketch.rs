//! A record's text but for what could be a part: in its place are holes.

use std::borrow::Cow;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::nodes::index;
use super::plan::{Plan, SHORTEST};
use crate::intern::{Blob, Interner, SharedId, same_beginning};
use crate::json::{decode_string, write_str};
use crate::render::{render, render_key, rendered_len};
use crate::value::{Key, Value};

/// A record that was walked once.
pub(super) struct Sketch<'v, 'a> {
    shared: &'v Interner<'a>,
    pub plan: Plan<'v>,
    /// The record's text without what belongs into the holes.
    pub text: Vec<u8>,
    pub holes: Vec<Hole>,
    pub lists: Vec<List<'v>>,
    /// The distinct value of each shared id that was met.
    by_id: Vec<u32>,
    /// The lists by where their ids are kept.
    by_place: HashMap<usize, u32>,
    /// The last list that was met, by its first id: the next begins like it.
    by_first: HashMap<SharedId, u32>,
    quoted: Vec<u8>,
}

/// A place in the sketch's text where something belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub at: usize,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A distinct value of the plan.
    Distinct(u32),
    /// A list of distinct values.
    List(u32),
}

/// An array of distinct values, each of which is a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'v> {
    pub ids: &'v [SharedId],
    /// The list that is its beginning.
    pub extends: Option<u32>,
    /// How many ids at its beginning another list has met.
    known: usize,
    /// Whether a longer list begins like it.
    is_beginning: bool,
}

impl<'v, 'a> Sketch<'v, 'a> {
    pub(super) fn new(shared: &'v Interner<'a>) -> Self {
        Self {
            shared,
            plan: Plan::with_capacity(64 + shared.len() * 4),
            // Calls have some distinct values each, and fields of their own.
            text: Vec::with_capacity(16 * 1024 + shared.len() * 256),
            holes: Vec::with_capacity(256 + shared.len() * 2),
            lists: Vec::new(),
            by_id: vec![u32::MAX; shared.len()],
            by_place: HashMap::new(),
            by_first: HashMap::new(),
            quoted: Vec::new(),
        }
    }

    /// Adds a value after what is there.
    // Most values are leaves: added where their key is, without a call.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    pub(super) fn value(&mut self, value: &'v Value<'_>) {
        match value {
            Value::Null => self.text.extend_from_slice(b"null"),
            Value::Raw(raw) if is_inline(raw.bytes()) => self.text.extend_from_slice(raw.bytes()),
            _ => self.other(value),
        }
    }

    fn other(&mut self, value: &'v Value<'_>) {
        match value {
            Value::Raw(raw) => self.raw(raw.bytes()),
            Value::Text(text) => self.raw(text),
            Value::Str(text) if text.len() + 2 >= SHORTEST.string => {
                self.quoted.clear();
                write_str(&mut self.quoted, text);
                let distinct = self.plan.add_made(&self.quoted);
                self.hole(What::Distinct(distinct));
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => {
                render(value, self.shared, &mut self.text);
            }
            Value::Parted(_, parts) => self.value(parts),
            Value::Array(elements) => {
                self.text.push(b'[');
                for (number, element) in elements.iter().enumerate() {
                    if number > 0 {
                        self.text.push(b',');
                    }
                    self.value(element);
                }
                self.text.push(b']');
            }
            Value::Object(members) => self.object(members),
            Value::Shared(id) => {
                let distinct = self.shared(*id);
                self.hole(What::Distinct(distinct));
            }
            Value::SharedList(ids) if ids.is_empty() => self.text.extend_from_slice(b"[]"),
            Value::SharedList(ids) => {
                let list = self.list(ids);
                self.hole(What::List(list));
            }
        }
    }

    fn hole(&mut self, what: What) {
        let at = self.text.len();
        self.holes.push(Hole { at, what });
    }

    fn raw(&mut self, text: &'v [u8]) {
        if is_inline(text) {
            self.text.extend_from_slice(text);
        } else {
            let distinct = self.plan.add(Cow::Borrowed(text));
            self.hole(What::Distinct(distinct));
        }
    }

    fn object(&mut self, members: &'v [(Key<'_>, Value<'_>)]) {
        let escaped = is_escaped(members);
        let mut before = b'{';
        for (key, value) in members {
            let start = self.text.len();
            render_key(before, *key, &mut self.text);
            if escaped {
                self.text.insert(start + 2, b'$');
            }
            self.value(value);
            before = b',';
        }
        let end: &[u8] = if members.is_empty() { b"{}" } else { b"}" };
        self.text.extend_from_slice(end);
    }

    fn shared(&mut self, id: SharedId) -> u32 {
        let known = self.by_id[id.0 as usize];
        if known != u32::MAX {
            return self.plan.again(known);
        }
        let text = match self.shared.blob(id) {
            Blob::Raw(raw) => Cow::Borrowed(raw.bytes()),
            Blob::Text(text) => Cow::Borrowed(&text[..]),
            _ => {
                let value = Value::Shared(id);
                let mut text = Vec::with_capacity(rendered_len(&value, self.shared));
                render(&value, self.shared, &mut text);
                Cow::Owned(text)
            }
        };
        let distinct = self.plan.add(text);
        self.by_id[id.0 as usize] = distinct;
        distinct
    }

    fn list(&mut self, ids: &'v [SharedId]) -> u32 {
        let number = index(self.lists.len());
        match self.by_place.entry(ids.as_ptr().addr()) {
            Entry::Occupied(met) => return *met.get(),
            Entry::Vacant(new) => {
                new.insert(number);
            }
        }
        let mut list = List {
            ids,
            extends: None,
            known: 0,
            is_beginning: false,
        };
        if let Some(last) = self.by_first.insert(ids[0], number) {
            let before = &mut self.lists[last as usize];
            list.known = same_beginning(before.ids, ids);
            if list.known == before.ids.len() {
                before.is_beginning = true;
                list.extends = Some(last);
            } else if list.known == ids.len() {
                list.is_beginning = true;
                self.by_first.insert(ids[0], last);
            }
        }
        for id in &ids[list.known..] {
            let distinct = self.shared(*id);
            self.plan.force(distinct);
        }
        self.lists.push(list);
        number
    }

    /// Tells the plan which values stand where.
    pub(super) fn link(&mut self) {
        let mut neighbours: Vec<u32> = Vec::new();
        let mut last_end = 0;
        for Hole { at, what } in &self.holes {
            if &self.text[last_end..*at] != b"," {
                self.plan.link_list(neighbours.drain(..));
            }
            last_end = *at;
            if let What::Distinct(distinct) = what {
                self.plan.link(*distinct);
                neighbours.push(*distinct);
            } else {
                self.plan.link_list(neighbours.drain(..));
            }
        }
        self.plan.link_list(neighbours.drain(..));
        for list in &self.lists {
            let distinct = |id: &SharedId| self.by_id[id.0 as usize];
            for id in &list.ids[list.known..] {
                self.plan.link(distinct(id));
            }
            if !list.is_beginning {
                self.plan.link_list(list.ids.iter().map(distinct));
            }
        }
    }

    /// The place among the parts of each shared id; of one that is none it is any number.
    pub(super) fn parts_by_id(&self) -> Vec<u32> {
        let part = |distinct: &u32| {
            let known = (*distinct != u32::MAX).then_some(*distinct);
            known.and_then(|distinct| self.plan.part(distinct))
        };
        let parts = self.by_id.iter().map(part);
        parts.map(Option::unwrap_or_default).collect()
    }

    /// About how long the packed text is.
    pub(super) fn size(&self) -> usize {
        self.plan.size() + self.text.len() + self.holes.len() * 24 + 1024
    }
}

/// Whether a text stays where it is: short, without anything that must be escaped.
fn is_inline(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| !matches!(byte, b'$' | b'\\' | b'\n' | b'\r');
    match text.first() {
        Some(b'{' | b'[') => text.len() < SHORTEST.container && text.iter().all(is_plain),
        _ => text.len() < SHORTEST.string,
    }
}

/// Whether a reader would take the object for a reference, or for an escaped one.
fn is_escaped(members: &[(Key<'_>, Value<'_>)]) -> bool {
    let looks_so = |key: &Key<'_>| {
        let key = match key {
            Key::Name(name) => Cow::Borrowed(*name),
            Key::Raw(raw) => decode_string(raw.bytes()),
        };
        key.strip_suffix('p')
            .is_some_and(|dollars| !dollars.is_empty() && dollars.bytes().all(|b| b == b'$'))
    };
    matches!(members, [(key, _)] if looks_so(key))
}
