//! Responses events into the response they add up to (contract, section 14).

use std::collections::BTreeMap;

use super::items::Item;
use super::reported::put_back;
use super::rules::Rule;
use super::value::{Object, Value};
use super::{Said, carries_content};

/// A responses stream under assembly.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// The last response object that an event carried, without its output.
    response: Object,
    /// The output that the last response object had, where it was a terminal event's.
    output: Vec<Value>,
    items: BTreeMap<i64, Vec<Item>>,
    unknown: Vec<Value>,
    audio: Object,
    /// `response.completed`, `.incomplete` or `.failed` came.
    done: bool,
}

impl Responses {
    pub(super) fn is_complete(&self) -> bool {
        self.done
    }

    /// Takes one event of the given type.
    pub(super) fn event(&mut self, kind: &str, mut event: Object) -> Said {
        if let Some(Value::Object(response)) = event.get_mut("response")
            && kind.starts_with("response.")
        {
            return self.snapshot(kind, std::mem::take(response));
        }
        match kind {
            "response.output_item.added" | "response.output_item.done" => {
                let Some(Value::Object(item)) = event.remove("item") else {
                    return false;
                };
                let index = self.index(&event, item.str("id"));
                let said = !matches!(
                    item.str("type"),
                    Some("message" | "reasoning" | "mcp_list_tools")
                ) || ["content", "summary", "encrypted_content"]
                    .iter()
                    .any(|key| item.has(key));
                if kind.ends_with("done") {
                    self.item_done(index, item);
                } else {
                    self.item_added(index, item);
                }
                said
            }
            "response.audio.delta" | "response.audio.transcript.delta" => {
                let key = if kind == "response.audio.delta" {
                    "data"
                } else {
                    "transcript"
                };
                let Some(delta) = event.take_text("delta") else {
                    return false;
                };
                let said = !delta.is_empty();
                self.audio.append(key, delta);
                said
            }
            "response.audio.done" | "response.audio.transcript.done" | "keepalive" | "ping" => {
                false
            }
            _ => {
                if let Some(rule) = Rule::of(kind) {
                    return self.item_event(rule, event);
                }
                if carries_content(&event) {
                    self.unknown.push(Value::Object(event).written());
                }
                false
            }
        }
    }

    /// A response object: each is a snapshot that stands for the one before.
    fn snapshot(&mut self, kind: &str, mut response: Object) -> Said {
        let output = match response.get_mut("output") {
            Some(Value::Array(items)) => std::mem::take(items),
            _ => Vec::new(),
        };
        for (key, value) in response {
            // A bare snapshot (some servers send only the status) keeps what is known.
            let held = self.response.entry(key.as_bytes(), Value::Null);
            if !value.is_null() || held.is_null() {
                *held = value.written();
            }
        }
        let terminal = super::is_terminal(kind);
        self.done |= terminal;
        let said = terminal && !output.is_empty();
        if terminal {
            // The terminal event's items are compared once, here, so that the reported
            // ones do not stay in memory beside them.
            let reported = std::mem::take(&mut self.items);
            let earlier = std::mem::take(&mut self.output);
            self.output = put_back(output, earlier, reported, kind == "response.completed");
        } else if !output.is_empty() && self.items.is_empty() {
            for (index, item) in output.into_iter().enumerate() {
                if let (Ok(index), Value::Object(item)) = (i64::try_from(index), item) {
                    self.item_added(index, item);
                }
            }
        }
        said
    }

    /// Where an event's item belongs: its output index, else where its id is, else the last.
    fn index(&self, event: &Object, id: Option<&str>) -> i64 {
        event.int("output_index").unwrap_or_else(|| {
            let by_id = id.and_then(|id| {
                self.items
                    .iter()
                    .rev()
                    .find(|(_, items)| items.iter().any(|item| item.id() == Some(id)))
            });
            let last = self.items.last_key_value();
            match (by_id, last) {
                (Some((&index, _)), _) => index,
                (None, Some((&index, items))) => {
                    let same = items
                        .last()
                        .is_some_and(|item| !item.is_done() && item.is_of(id));
                    index.saturating_add(i64::from(!same))
                }
                (None, None) => 0,
            }
        })
    }

    fn item_event(&mut self, rule: Rule, event: Object) -> Said {
        let id = event.str("item_id").map(str::to_owned);
        let placed = event.int("output_index").is_some();
        let index = self.index(&event, id.as_deref());
        let items = self.items.entry(index).or_default();
        let by_id = items
            .iter()
            .rposition(|item| id.is_some() && item.id() == id.as_deref());
        // Some servers' events name another id than their items have; an index of their
        // own decides then, as long as an item of the kind is open there.
        let open = items.iter().rposition(|item| {
            !item.is_done() && (item.is_of(id.as_deref()) || (placed && item.is_kind(rule)))
        });
        let late = items.last().is_some_and(Item::is_done) && !rule.is_delta();
        let at = match by_id.or(open) {
            Some(at) => at,
            // The whole text of an item that was reported before it.
            None if late => return false,
            None => {
                items.push(Item::implied(rule.item, id.as_deref()));
                items.len() - 1
            }
        };
        items[at].take(rule, event)
    }

    fn item_added(&mut self, index: i64, item: Object) {
        let items = self.items.entry(index).or_default();
        let id = item.str("id").map(str::to_owned);
        match items
            .last_mut()
            .filter(|held| held.is_open_for(id.as_deref()))
        {
            // Sent twice, or after its first deltas: what was added stays.
            Some(held) => held.added_again(item),
            None => items.push(Item::added(item)),
        }
    }

    fn item_done(&mut self, index: i64, item: Object) {
        let items = self.items.entry(index).or_default();
        let done = Item::done(item);
        let known = |own: Option<&str>, other: Option<&str>| own.is_some() && own == other;
        let same = items
            .iter()
            .rposition(|held| known(held.id(), done.id()))
            .or_else(|| {
                items
                    .iter()
                    .rposition(|held| known(held.call_id(), done.call_id()))
            })
            .or_else(|| items.iter().rposition(|held| held.may_become(&done)));
        match same {
            Some(at) => items[at] = done,
            None => items.push(done),
        }
    }

    /// The response, `None` where nothing of one came.
    pub(super) fn finish(self, failed: bool) -> Option<Object> {
        let Self {
            mut response,
            output,
            items,
            unknown,
            audio,
            done,
        } = self;
        let empty = response.is_empty() && items.is_empty() && unknown.is_empty();
        if empty && output.is_empty() && audio.is_empty() {
            return None;
        }
        let output = if done {
            put_back(output, Vec::new(), items, true)
        } else {
            items.into_values().flatten().map(Item::finish).collect()
        };
        response.set("output", Value::Array(output));
        if !done {
            let status = if failed { "failed" } else { "incomplete" };
            response.set("status", Value::string(status));
        }
        if !audio.is_empty() {
            response.set("audio", Value::Object(audio));
        }
        if !unknown.is_empty() {
            response.set("unknown_events", Value::Array(unknown));
        }
        Some(response)
    }
}
