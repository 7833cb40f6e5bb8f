//! A response's members, with what may come again in a later request shared.

use std::sync::Arc;

use crate::intern::{Interner, SharedId};
use crate::json::{Kind, Raw, Tape};
use crate::names::{Name, repeat};
use crate::value::{FEW, Key, Members, Value, unique_members};

/// Members of a response shorter than this are not worth sharing.
const SHORT: usize = 48;

/// The distinct parts of one response, each looked up once.
#[derive(Debug)]
pub struct Parts<'t, 'a> {
    tape: &'t Tape<'a, Name>,
    /// Places on the tape and their ids, in order.
    ids: Vec<(usize, SharedId)>,
    /// The list that was made last, and of which node.
    list: Option<(usize, Value<'a>)>,
}

impl<'t, 'a> Parts<'t, 'a> {
    /// Those of the response on this tape.
    #[must_use]
    pub fn new(tape: &'t Tape<'a, Name>) -> Self {
        Self {
            tape,
            ids: Vec::new(),
            list: None,
        }
    }

    /// The id of a node's value.
    pub fn intern(&mut self, node: usize, shared: &mut Interner<'a>) -> SharedId {
        match self.ids.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(at) => self.ids[at].1,
            Err(at) => {
                let id = shared.intern(self.tape.value(node));
                self.ids.insert(at, (node, id));
                id
            }
        }
    }

    /// A list with its objects shared; as it is where anything else is among them.
    pub fn list(&mut self, list: usize, shared: &mut Interner<'a>) -> Value<'a> {
        let tape = self.tape;
        let raw = tape.value(list);
        if !only_objects(tape, list) {
            return Value::Raw(raw);
        }
        if let Some((_, made)) = self.list.as_ref().filter(|(node, _)| *node == list) {
            return made.clone();
        }
        let elements = tape.children(list).map(|node| self.intern(node, shared));
        let elements: Arc<[SharedId]> = elements.collect();
        let value = Value::Parted(raw, Arc::new(Value::SharedList(elements)));
        self.list = Some((list, value.clone()));
        value
    }

    /// The choices with their messages shared.
    fn choices(&mut self, list: usize, shared: &mut Interner<'a>) -> Value<'a> {
        let tape = self.tape;
        let raw = tape.value(list);
        if !only_objects(tape, list) {
            return Value::Raw(raw);
        }
        let choices = tape.children(list).map(|choice| {
            let members = self.members_of(choice, 4, |parts, name, node| {
                let raw = parts.tape.value(node);
                if name == Name::Message && raw.is_object() {
                    Value::Shared(parts.intern(node, shared))
                } else {
                    Value::Raw(raw)
                }
            });
            Value::Object(members)
        });
        let choices = choices.collect();
        Value::Parted(raw, Arc::new(Value::Array(choices)))
    }

    /// The members of the response at `root`.
    pub fn members(&mut self, root: usize, shared: &mut Interner<'a>) -> Members<'a> {
        self.members_of(root, 12, |parts, name, node| {
            let raw = parts.tape.value(node);
            let list = raw.kind() == Kind::Array && raw.bytes().len() >= SHORT;
            match name {
                Name::Choices if list => parts.choices(node, shared),
                Name::Output | Name::Content if list => parts.list(node, shared),
                _ => Value::Raw(raw),
            }
        })
    }

    /// An object's members, mostly `few`; of duplicate keys the last.
    fn members_of(
        &mut self,
        object: usize,
        few: usize,
        mut value: impl FnMut(&mut Self, Name, usize) -> Value<'a>,
    ) -> Members<'a> {
        let tape = self.tape;
        let mut members = Members::with_capacity(few);
        for child in tape.children(object) {
            let node = tape.node(child);
            let key = Key::Raw(node.key.unwrap_or(Raw::NULL));
            members.push((key, value(self, node.name, child)));
        }
        let keys = tape.children(object).map(|child| {
            let node = tape.node(child);
            (node.name, node.key.unwrap_or(Raw::NULL))
        });
        if members.len() > FEW || repeat(keys) {
            unique_members(&mut members);
        }
        members
    }
}

/// Whether a list holds objects and nothing else: only then its parts say all of it.
fn only_objects(tape: &Tape<'_, Name>, list: usize) -> bool {
    tape.node(list).is_whole && tape.children(list).all(|node| tape.value(node).is_object())
}
