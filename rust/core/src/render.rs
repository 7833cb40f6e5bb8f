//! A value as JSON text, sized before it is written.

use crate::intern::{Blob, Interner, REASONING_KEYS, SharedId};
use crate::json::{Raw, write_f64, write_int, write_str};
use crate::sink::{Counter, Sink};
use crate::value::{Key, Value};

/// Appends `value` as JSON text without blanks of our own.
// Most values are leaves: written where their key is, without a call.
#[allow(clippy::inline_always)]
#[inline(always)]
pub fn render<S: Sink>(value: &Value<'_>, shared: &Interner<'_>, out: &mut S) {
    match value {
        Value::Null => out.put(b"null"),
        Value::Bool(true) => out.put(b"true"),
        Value::Bool(false) => out.put(b"false"),
        Value::Int(number) => write_int(out, *number),
        Value::Float(number) => write_f64(out, *number),
        Value::Str(text) => write_str(out, text),
        Value::Raw(raw) | Value::Parted(raw, _) => out.put(raw.bytes()),
        Value::Text(text) => out.put(text),
        Value::Shared(id) => render_shared(*id, shared, out),
        Value::Array(elements) => render_array(elements, shared, out),
        Value::SharedList(ids) => list(ids.iter(), out, |id, out| render_shared(*id, shared, out)),
        Value::Object(members) => render_object(members, shared, out),
    }
}

fn render_array<S: Sink>(elements: &[Value<'_>], shared: &Interner<'_>, out: &mut S) {
    list(elements, out, |element, out| render(element, shared, out));
}

fn render_object<S: Sink>(members: &[(Key<'_>, Value<'_>)], shared: &Interner<'_>, out: &mut S) {
    let mut before = b'{';
    for (key, value) in members {
        render_key(before, *key, out);
        render(value, shared, out);
        before = b',';
    }
    out.put(if members.is_empty() { b"{}" } else { b"}" });
}

/// Appends a key and its colon after the brace or comma that comes before.
#[allow(clippy::inline_always)]
#[inline(always)]
pub fn render_key<S: Sink>(before: u8, key: Key<'_>, out: &mut S) {
    match key {
        Key::Name(name) => {
            out.put(&[before, b'"']);
            out.put(name.as_bytes());
            out.put(b"\":");
        }
        Key::Raw(raw) => {
            out.put_byte(before);
            out.put(raw.bytes());
            out.put_byte(b':');
        }
    }
}

fn list<T, S: Sink>(
    items: impl IntoIterator<Item = T>,
    out: &mut S,
    mut one: impl FnMut(T, &mut S),
) {
    out.put_byte(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.put_byte(b',');
        }
        one(item, out);
    }
    out.put_byte(b']');
}

fn render_shared<S: Sink>(id: SharedId, shared: &Interner<'_>, out: &mut S) {
    match shared.blob(id) {
        Blob::Raw(raw) => out.put(raw.bytes()),
        Blob::Text(text) => out.put(text),
        // Only the caller that asked for objects adds these, and it never renders text.
        Blob::Foreign(_) => out.put(b"null"),
        Blob::Typed(base) => {
            out.put(b"{\"type\":\"message\"");
            if let Some(raw) = shared.raw(*base) {
                render_members(raw, &["type"], true, out);
            }
            out.put_byte(b'}');
        }
        Blob::WithoutReasoning(base) => {
            out.put_byte(b'{');
            if let Some(raw) = shared.raw(*base) {
                render_members(raw, &REASONING_KEYS, false, out);
            }
            out.put_byte(b'}');
        }
    }
}

fn render_members<S: Sink>(object: Raw<'_>, without: &[&str], mut follows: bool, out: &mut S) {
    for (key, value) in object
        .members()
        .filter(|(key, _)| !without.iter().any(|w| key.is_str(w)))
    {
        if follows {
            out.put_byte(b',');
        }
        follows = true;
        out.put(key.bytes());
        out.put_byte(b':');
        out.put(value.bytes());
    }
}

/// Exactly how many bytes [`render`] appends: it is run without writing.
#[must_use]
pub fn exact_len(value: &Value<'_>, shared: &Interner<'_>) -> usize {
    let mut counter = Counter::default();
    render(value, shared, &mut counter);
    counter.bytes
}

/// About how many bytes [`render`] appends: exact for text that was read and for lists
/// of it, a little more than needed for what we make ourselves.
#[must_use]
pub fn rendered_len(value: &Value<'_>, shared: &Interner<'_>) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Int(_) | Value::Float(_) => 25,
        Value::Str(text) => text.len() + text.len() / 8 + 2,
        Value::Raw(raw) | Value::Parted(raw, _) => raw.bytes().len(),
        Value::Text(text) => text.len(),
        Value::Shared(id) => shared_len(*id, shared),
        Value::Array(elements) => {
            2 + elements
                .iter()
                .map(|element| rendered_len(element, shared) + 1)
                .sum::<usize>()
        }
        Value::SharedList(ids) => {
            2 + ids
                .iter()
                .map(|id| shared_len(*id, shared) + 1)
                .sum::<usize>()
        }
        Value::Object(members) => {
            let member = |(key, value): &(Key<'_>, Value<'_>)| {
                let key = match key {
                    Key::Name(name) => name.len() + 2,
                    Key::Raw(raw) => raw.bytes().len(),
                };
                key + 2 + rendered_len(value, shared)
            };
            2 + members.iter().map(member).sum::<usize>()
        }
    }
}

fn shared_len(id: SharedId, shared: &Interner<'_>) -> usize {
    match shared.blob(id) {
        Blob::Raw(raw) => raw.bytes().len(),
        Blob::Text(text) => text.len(),
        Blob::Foreign(_) => 4,
        Blob::Typed(base) | Blob::WithoutReasoning(base) => shared_len(*base, shared) + 20,
    }
}
