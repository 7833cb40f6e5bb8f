//! Responses input as turns hold it: items with their type (contract, section 8).

use hashbrown::HashMap;

use crate::call::{CallRecord, list_ids};
use crate::content::is_empty;
use crate::intern::{Blob, Interner, SharedId};
use crate::item::Item;
use crate::json::{Kind, Raw, write_str};
use crate::value::Value;

/// Responses items with their type, each made once.
#[derive(Debug, Default)]
pub(crate) struct Typed {
    made: HashMap<SharedId, SharedId>,
    messages: HashMap<(&'static str, SharedId), SharedId>,
}

impl Typed {
    /// The item itself, or where it needs its type one that has it.
    pub fn item(&mut self, id: SharedId, item: Item, shared: &mut Interner<'_>) -> SharedId {
        if item == Item::Untyped {
            *self
                .made
                .entry(id)
                .or_insert_with(|| shared.add(Blob::Typed(id)))
        } else {
            id
        }
    }

    /// A message with one text, made of what stands in the request.
    fn message<'a>(
        &mut self,
        role: &'static str,
        content: Raw<'a>,
        shared: &mut Interner<'a>,
    ) -> SharedId {
        let content = shared.intern(content);
        *self.messages.entry((role, content)).or_insert_with(|| {
            let mut text = b"{\"type\":\"message\",\"role\":".to_vec();
            write_str(&mut text, role);
            text.extend_from_slice(b",\"content\":");
            text.extend_from_slice(shared.raw(content).unwrap_or(Raw::NULL).bytes());
            text.push(b'}');
            shared.add(Blob::Text(text.into()))
        })
    }

    /// What a Responses call asked: its instructions as a message, then its input.
    pub fn question<'a>(&mut self, call: &CallRecord<'a>, shared: &mut Interner<'a>) -> Value<'a> {
        let raw = |value: Option<&Value<'a>>, shared: &Interner<'a>| match value {
            Some(Value::Raw(raw) | Value::Parted(raw, _)) => Some(*raw),
            Some(Value::Shared(id)) => shared.raw(*id),
            _ => None,
        };
        let input = call.asked("input");
        let text = raw(input, shared);
        let instructions = raw(call.asked("instructions"), shared).filter(|raw| !is_empty(*raw));
        let system = instructions.map(|raw| self.message("system", raw, shared));
        let mut question: Vec<SharedId> = system.into_iter().collect();
        match input.and_then(list_ids) {
            Some(ids) => {
                let before = question.len();
                for id in ids.iter() {
                    let item = shared.noted(*id).item;
                    question.push(self.item(*id, item, shared));
                }
                if before == 0 && question[..] == ids[..] {
                    return input.cloned().unwrap_or(Value::Null);
                }
            }
            None if question.is_empty() => return Value::raw(text),
            None => match text {
                Some(text) if text.kind() == Kind::String => {
                    question.push(self.message("user", text, shared));
                }
                Some(text) if !text.is_null() => question.push(shared.intern(text)),
                _ => {}
            },
        }
        Value::SharedList(question.into())
    }
}
