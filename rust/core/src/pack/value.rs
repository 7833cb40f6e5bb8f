//! Packing what the fold makes, without rendering it first.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::plan::{Plan, Run, SHORTEST};
use super::{HEAD, MIDDLE};
use crate::intern::{Interner, SharedId};
use crate::json::{Kind, Raw, decode_string, write_str};
use crate::render::{render, render_key, rendered_len};
use crate::value::{Key, Value};

/// Appends `record` in its packed form.
///
/// Distinct values of the rollout are looked at once each, lists of them by their ids.
pub fn pack_value(record: &Value<'_>, shared: &Interner<'_>, out: &mut Vec<u8>) {
    let mut packer = Packer {
        shared,
        plan: Plan::with_capacity(64 + shared.len() * 4),
        by_id: vec![u32::MAX; shared.len()],
        lists: HashMap::new(),
        texts: Vec::new(),
        cursor: 0,
    };
    packer.count(record);
    packer.link(record);
    packer.plan.number();
    packer.cursor = 0;
    out.reserve(packer.plan.size() + packer.texts.len() * 16 + 64 * 1024);
    out.extend_from_slice(HEAD);
    packer.plan.write_parts(out);
    out.extend_from_slice(MIDDLE);
    packer.write(record, out);
    out.push(b'}');
}

struct Packer<'v, 'a> {
    shared: &'v Interner<'a>,
    plan: Plan<'v>,
    /// The distinct value of each shared id that was met.
    by_id: Vec<u32>,
    /// The last list that was met, by its first id: the next begins like it.
    lists: HashMap<SharedId, &'v [SharedId]>,
    /// The distinct values of the texts that stand in the record itself, in order.
    texts: Vec<u32>,
    /// The next of `texts`, while the record is walked again.
    cursor: usize,
}

/// Whether a text of the record is looked up: the rest is written as it is.
fn is_kept(text: &[u8]) -> bool {
    matches!(Raw::new(text).kind(), Kind::Object | Kind::Array) || text.len() >= SHORTEST.string
}

impl<'v> Packer<'v, '_> {
    fn count(&mut self, value: &'v Value<'_>) {
        match value {
            Value::Raw(raw) if is_kept(raw.bytes()) => self.keep(Cow::Borrowed(raw.bytes())),
            Value::Text(text) if is_kept(text) => self.keep(Cow::Borrowed(text)),
            Value::Str(text) if text.len() + 2 >= SHORTEST.string => {
                let mut quoted = Vec::with_capacity(text.len() + text.len() / 8 + 2);
                write_str(&mut quoted, text);
                self.keep(Cow::Owned(quoted));
            }
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Raw(_)
            | Value::Text(_)
            | Value::Str(_) => {}
            Value::Parted(_, parts) => self.count(parts),
            Value::Array(elements) => elements.iter().for_each(|element| self.count(element)),
            Value::Object(members) => members.iter().for_each(|(_, value)| self.count(value)),
            Value::Shared(id) => {
                self.shared(*id);
            }
            Value::SharedList(ids) => {
                for id in self.new_in(ids) {
                    let distinct = self.shared(*id);
                    self.plan.force(distinct);
                }
            }
        }
    }

    fn keep(&mut self, text: Cow<'v, [u8]>) {
        let distinct = self.plan.add(text);
        self.texts.push(distinct);
    }

    fn shared(&mut self, id: SharedId) -> u32 {
        let known = self.by_id[id.0 as usize];
        if known != u32::MAX {
            self.plan.again(known);
            return known;
        }
        let text = if let Some(raw) = self.shared.raw(id) {
            Cow::Borrowed(raw.bytes())
        } else {
            let value = Value::Shared(id);
            let mut text = Vec::with_capacity(rendered_len(&value, self.shared));
            render(&value, self.shared, &mut text);
            Cow::Owned(text)
        };
        let distinct = self.plan.add(text);
        self.by_id[id.0 as usize] = distinct;
        distinct
    }

    /// The distinct value of the next text, where this value has one.
    fn next_text(&mut self, value: &Value<'_>) -> Option<u32> {
        let kept = match value {
            Value::Raw(raw) => is_kept(raw.bytes()),
            Value::Text(text) => is_kept(text),
            Value::Str(text) => text.len() + 2 >= SHORTEST.string,
            Value::Shared(id) => return Some(self.by_id[id.0 as usize]),
            _ => false,
        };
        kept.then(|| {
            self.cursor += 1;
            self.texts[self.cursor - 1]
        })
    }

    fn link(&mut self, value: &'v Value<'_>) {
        self.lists.clear();
        self.link_value(value);
    }

    /// What a list has after the beginning that it has in common with the last one of
    /// its history; that list's ids are parts already.
    fn new_in(&mut self, ids: &'v [SharedId]) -> &'v [SharedId] {
        let Some(first) = ids.first() else {
            return ids;
        };
        let last = self.lists.insert(*first, ids).unwrap_or_default();
        let both = last.len().min(ids.len());
        if last[..both] == ids[..both] {
            return &ids[both..];
        }
        let same = last.iter().zip(ids).take_while(|(a, b)| a == b).count();
        &ids[same..]
    }

    fn link_value(&mut self, value: &'v Value<'_>) -> Option<u32> {
        match value {
            Value::Parted(_, parts) => return self.link_value(parts),
            Value::Array(elements) => {
                let list: Vec<u32> = elements
                    .iter()
                    .filter_map(|element| self.link_value(element))
                    .collect();
                self.plan.link_list(list.into_iter());
            }
            Value::Object(members) => {
                for (_, value) in members {
                    self.link_value(value);
                }
            }
            Value::SharedList(ids) => {
                let new = self.new_in(ids);
                if !new.is_empty() {
                    for id in new {
                        self.plan.link(self.by_id[id.0 as usize]);
                    }
                    self.plan
                        .link_list(ids.iter().map(|id| self.by_id[id.0 as usize]));
                }
            }
            _ => {
                let distinct = self.next_text(value)?;
                self.plan.link(distinct);
                return Some(distinct);
            }
        }
        None
    }

    fn write(&mut self, value: &Value<'_>, out: &mut Vec<u8>) {
        match value {
            Value::Parted(_, parts) => self.write(parts, out),
            Value::Array(elements) => {
                let mut list = List::new(out);
                for element in elements {
                    let distinct = self.next_text(element);
                    let part = distinct.and_then(|distinct| self.plan.part(distinct));
                    match (part, distinct) {
                        (Some(number), _) => list.part(number, out),
                        (None, Some(distinct)) => {
                            list.element(out);
                            self.plan.write_inside(distinct, out);
                        }
                        (None, None) => {
                            list.element(out);
                            self.write(element, out);
                        }
                    }
                }
                list.end(out);
            }
            Value::SharedList(ids) => {
                let mut list = List::new(out);
                for id in ids.iter() {
                    // Every one of them was forced to be a part.
                    if let Some(number) = self.plan.part(self.by_id[id.0 as usize]) {
                        list.part(number, out);
                    }
                }
                list.end(out);
            }
            Value::Object(members) => self.write_object(members, out),
            _ => match self.next_text(value) {
                Some(distinct) => match self.plan.part(distinct) {
                    Some(number) => Run::new(number).flush(out),
                    None => self.plan.write_inside(distinct, out),
                },
                None => render(value, self.shared, out),
            },
        }
    }

    fn write_object(&mut self, members: &[(Key<'_>, Value<'_>)], out: &mut Vec<u8>) {
        let escaped = is_escaped(members);
        out.push(b'{');
        for (number, (key, value)) in members.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            let start = out.len();
            render_key(*key, out);
            if escaped {
                out.insert(start + 1, b'$');
            }
            self.write(value, out);
        }
        out.push(b'}');
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

/// An array under way.
struct List {
    run: Run,
    empty: bool,
}

impl List {
    fn new(out: &mut Vec<u8>) -> Self {
        out.push(b'[');
        Self {
            run: Run::default(),
            empty: true,
        }
    }

    fn part(&mut self, number: u32, out: &mut Vec<u8>) {
        if !self.run.extend(number) {
            self.element(out);
            self.run = Run::new(number);
        }
    }

    /// Makes place for an element.
    fn element(&mut self, out: &mut Vec<u8>) {
        self.run.flush(out);
        if !self.empty {
            out.push(b',');
        }
        self.empty = false;
    }

    fn end(mut self, out: &mut Vec<u8>) {
        self.run.flush(out);
        out.push(b']');
    }
}
