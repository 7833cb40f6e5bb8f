//! The converters' turn as text: what they take, and what they made of it.
//!
//! A converter sorts a message's parts; the texts in it only pass through. So a short
//! stand-in goes to the converter in each one's place ([`Asked::new`]) and the text is put
//! back into what comes of it ([`Asked::outcomes`]). What then is left of a message is its
//! shape: many messages have the same, which is converted once, and no text becomes a string
//! of the converter's, to be decoded, encoded and hashed there.
//!
//! A stand-in is its text's number in the message between two DEL characters. It may come
//! back anywhere in a string, but what it stands for has one form: what was in `input`,
//! which a converter writes out as JSON text, is escaped for JSON within a string, all else
//! for a string. A message that holds DEL where no stand-in is goes as it came.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::HashMap;
use memchr::{memchr, memchr_iter, memmem};
use twox_hash::XxHash3_128;

use crate::intern::{Blob, Interner, SharedId};
use crate::item::{Item, item_kind};
use crate::json::{
    Raw, decode_string, end_of_value, next_delimiter, skip_blanks, write_int, write_str,
};
use crate::render::render;
use crate::turns::{Job, Outcome};
use crate::value::Value;

/// The keys (of a message, a block, an image's source) whose strings only pass through the
/// converter, and whose lists and objects hold such keys again.
const PASSING: [&[u8]; 11] = [
    b"\"content\"",
    b"\"data\"",
    b"\"id\"",
    b"\"media_type\"",
    b"\"name\"",
    b"\"signature\"",
    b"\"source\"",
    b"\"text\"",
    b"\"thinking\"",
    b"\"tool_use_id\"",
    b"\"url\"",
];
/// The key whose value, whatever it is, becomes JSON text in a string.
const NESTED: &[u8] = b"\"input\"";
const DEL: u8 = 0x7f;

/// How items begin that have an id of ours: the hash goes in after it.
const NAMED: [&[u8]; 2] = [
    br#"{"type":"message","id":"msg_"#,
    br#"{"type":"reasoning","id":"rs_"#,
];

/// The hash in the ids of a message's items: of their JSON, with ids that lack it.
#[must_use]
pub fn digest(items: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(items))
}

/// What a converter made of a shape: a JSON array of items, or the type of the block that it
/// could not convert.
pub type Answer = Result<Vec<u8>, String>;

/// Jobs as a converter takes them.
#[derive(Debug, Default)]
pub struct Asked<'a> {
    /// The distinct shapes: JSON, `[kind, value]`.
    pub shapes: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, usize>,
    jobs: Vec<Shaped>,
    /// What the stand-ins of all jobs stand for, escaped and without quotes.
    texts: Vec<Cow<'a, [u8]>>,
}

/// A job's shape and its texts.
#[derive(Debug)]
struct Shaped {
    shape: usize,
    texts: Range<usize>,
    /// Whether it is what the model said.
    said: bool,
}

impl<'a> Asked<'a> {
    /// The jobs' shapes.
    #[must_use]
    pub fn new(jobs: &[Job<'a>], shared: &Interner<'a>) -> Self {
        let mut asked = Self::default();
        let mut shape = Vec::new();
        for job in jobs {
            let first = asked.texts.len();
            asked.write(job, shared, true, &mut shape);
            let stand_ins = asked.texts.len() - first;
            if memchr_iter(DEL, &shape).count() != 2 * stand_ins || holds_escaped_del(&shape) {
                asked.texts.truncate(first);
                asked.write(job, shared, false, &mut shape);
            }
            let known = asked.known.get(&shape).copied();
            asked.jobs.push(Shaped {
                shape: known.unwrap_or(asked.shapes.len()),
                texts: first..asked.texts.len(),
                said: matches!(job, Job::Content(_)),
            });
            if known.is_none() {
                asked.known.insert(shape.clone(), asked.shapes.len());
                asked.shapes.push(shape.clone());
            }
        }
        asked
    }

    fn write(&mut self, job: &Job<'a>, shared: &Interner<'a>, shaped: bool, out: &mut Vec<u8>) {
        let (before, value, after): (&[u8], _, &[u8]) = match job {
            Job::System(id) => (br#"["system","#, &Value::Shared(*id), b"]"),
            Job::Message(id) => (br#"["message","#, &Value::Shared(*id), b"]"),
            Job::Content(content) => (
                br#"["message",{"role":"assistant","content":"#,
                content,
                b"}]",
            ),
        };
        out.clear();
        out.extend_from_slice(before);
        let raw = match value {
            Value::Raw(raw) | Value::Parted(raw, _) => Some(*raw),
            Value::Shared(id) => shared.raw(*id),
            _ => None,
        };
        match raw {
            Some(raw) if shaped => self.shape(raw.bytes(), out),
            _ => render(value, shared, out),
        }
        out.extend_from_slice(after);
    }

    /// Appends a value with stand-ins for its texts.
    fn shape(&mut self, value: &'a [u8], out: &mut Vec<u8>) {
        let first = self.texts.len();
        let (mut at, mut copied) = (0, 0);
        let (mut passing_at, mut nested_until) = (usize::MAX, 0);
        while let Some(distance) = memchr(b'"', &value[at..]) {
            let start = at + distance;
            let (end, as_written) = end_of_string(value, start);
            at = end;
            let colon = skip_blanks(value, at);
            if value.get(colon) == Some(&b':') {
                let key = &value[start..at];
                at = skip_blanks(value, colon + 1);
                passing_at = at;
                let nested = at < nested_until;
                if !nested && key == NESTED {
                    nested_until = end_of_value(value, at);
                } else if !nested && !PASSING.contains(&key) {
                    at = end_of_value(value, at);
                }
            } else if (start == passing_at || start < nested_until) && end - start > 2 {
                out.extend_from_slice(&value[copied..=start]);
                copied = end - 1;
                out.push(DEL);
                write_int(out, (self.texts.len() - first) as i128);
                out.push(DEL);
                let quoted = &value[start..end];
                self.texts
                    .push(text(quoted, as_written, start < nested_until));
            }
        }
        out.extend_from_slice(&value[copied..]);
    }

    /// What came of the jobs, whose shapes have these answers; items are added to the
    /// distinct values.
    pub fn outcomes(&self, answers: &[Answer], shared: &mut Interner<'a>) -> Vec<Outcome> {
        let answers: Vec<_> = answers.iter().map(templates).collect();
        let mut items = Items::default();
        let outcome = |job: &Shaped| match &answers[job.shape] {
            Ok(templates) => {
                let texts = &self.texts[job.texts.clone()];
                Outcome::of(items.add(templates, texts, shared), job.said)
            }
            Err(kind) => Outcome::Unconverted((*kind).to_owned()),
        };
        self.jobs.iter().map(outcome).collect()
    }
}

/// What a stand-in stands for: a string's text as [`write_str`] writes it, escaped once more
/// where it is to be JSON within a string.
fn text(quoted: &[u8], as_written: bool, nested: bool) -> Cow<'_, [u8]> {
    let text = if as_written {
        Cow::Borrowed(&quoted[1..quoted.len() - 1])
    } else {
        let mut text = Vec::with_capacity(quoted.len());
        write_str(&mut text, &decode_string(quoted));
        text.pop();
        text.remove(0);
        Cow::Owned(text)
    };
    if nested {
        Cow::Owned(escaped(&text))
    } else {
        text
    }
}

fn holds_escaped_del(text: &[u8]) -> bool {
    memchr(b'\\', text).is_some() && memmem::find(text, b"\\u007").is_some()
}

fn templates(answer: &Answer) -> Result<Vec<Template<'_>>, &str> {
    let items = answer.as_deref().map_err(String::as_str)?;
    Ok(Raw::new(items).elements().map(Template::new).collect())
}

/// An item with stand-ins.
struct Template<'t> {
    text: &'t [u8],
    kind: Item,
    /// Where the hash goes in.
    id_at: Option<usize>,
}

impl<'t> Template<'t> {
    fn new(item: Raw<'t>) -> Self {
        let kind = item.members().find(|(key, _)| key.is_str("type"));
        let kind = kind.map_or(Raw::NULL, |(_, kind)| kind);
        let text = item.bytes();
        let named = NAMED.into_iter().find(|named| text.starts_with(named));
        Self {
            text,
            kind: item_kind(kind, Raw::NULL),
            id_at: named.map(<[u8]>::len),
        }
    }

    /// Appends the item with its texts.
    fn fill(&self, texts: &[Cow<'_, [u8]>], out: &mut Vec<u8>) {
        let mut item = self.text;
        while !texts.is_empty()
            && let Some(at) = memchr(DEL, item)
        {
            out.extend_from_slice(&item[..at]);
            item = &item[at + 1..];
            let len = memchr(DEL, item).unwrap_or(item.len());
            let digits = item[..len].iter().map(|digit| usize::from(digit & 15));
            let number = digits.fold(0, |number, digit| number * 10 + digit);
            out.extend_from_slice(texts.get(number).map_or(b"", |text| text));
            item = item.get(len + 1..).unwrap_or_default();
        }
        out.extend_from_slice(item);
    }
}

/// One job's items.
#[derive(Debug, Default)]
struct Items {
    /// As a JSON array, and where in it each ends.
    array: Vec<u8>,
    ends: Vec<usize>,
    named: Vec<u8>,
}

impl Items {
    /// Adds the items, their ids complete, to the distinct values.
    fn add(
        &mut self,
        templates: &[Template<'_>],
        texts: &[Cow<'_, [u8]>],
        shared: &mut Interner<'_>,
    ) -> Vec<(SharedId, Item)> {
        self.array.clear();
        self.ends.clear();
        for template in templates {
            let before = if self.ends.is_empty() { b'[' } else { b',' };
            self.array.push(before);
            template.fill(texts, &mut self.array);
            self.ends.push(self.array.len());
        }
        self.array.push(b']');
        let mut hash = None;
        let mut start = 0;
        let ends = self.ends.iter().zip(templates);
        ends.map(|(end, template)| {
            let item = &self.array[start + 1..*end];
            start = *end;
            let text = if let Some(at) = template.id_at {
                let hash = hash.get_or_insert_with(|| digest(&self.array));
                self.named.clear();
                self.named.extend_from_slice(&item[..at]);
                self.named.extend_from_slice(hash.as_bytes());
                self.named.push(b'_');
                self.named.extend_from_slice(&item[at..]);
                &self.named
            } else {
                item
            };
            (shared.add(Blob::Text(text.into())), template.kind)
        })
        .collect()
    }
}

/// The end of the string that starts at `start` of checked text, and whether [`write_str`]
/// would write it with the same escapes.
fn end_of_string(text: &[u8], start: usize) -> (usize, bool) {
    let mut as_written = true;
    let mut at = next_delimiter(text, start + 1);
    while text.get(at) == Some(&b'\\') {
        as_written &= match text.get(at + 1) {
            Some(b'u') => is_control(text.get(at + 2..at + 6)),
            other => other != Some(&b'/'),
        };
        at = next_delimiter(text, at + 2);
    }
    ((at + 1).min(text.len()), as_written)
}

/// Whether the digits, as [`write_str`] writes them, are those of a control character that
/// has no shorter escape.
fn is_control(digits: Option<&[u8]>) -> bool {
    match digits {
        Some([b'0', b'0', b'0', low]) => matches!(low, b'0'..=b'7' | b'b' | b'e' | b'f'),
        Some([b'0', b'0', b'1', low]) => matches!(low, b'0'..=b'9' | b'a'..=b'f'),
        _ => false,
    }
}

/// An escaped text escaped once more.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut from = 0;
    loop {
        let at = next_delimiter(text, from);
        out.extend_from_slice(&text[from..at]);
        let Some(byte) = text.get(at) else {
            return out;
        };
        out.extend_from_slice(&[b'\\', *byte]);
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(shared: &Interner<'_>, outcome: &Outcome) -> Vec<String> {
        let Outcome::Items(items) = outcome else {
            panic!("{outcome:?}")
        };
        let text = |id: &SharedId| match shared.blob(*id) {
            Blob::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        items.iter().map(text).collect()
    }

    /// The shapes and texts of messages, and what comes of them by these answers.
    fn converted(messages: &[&str], answers: &[&str]) -> (Vec<String>, Vec<Vec<String>>) {
        let mut shared = Interner::default();
        let jobs: Vec<_> = messages
            .iter()
            .map(|message| Job::Message(shared.intern(Raw::new(message.as_bytes()))))
            .collect();
        let asked = Asked::new(&jobs, &shared);
        let shapes = asked.shapes.iter();
        let shapes = shapes.map(|shape| String::from_utf8_lossy(shape).into_owned());
        let shapes = shapes.collect();
        let answers: Vec<Answer> = answers.iter().map(|a| Ok(a.as_bytes().to_vec())).collect();
        let outcomes = asked.outcomes(&answers, &mut shared);
        let outcomes = outcomes.iter().map(|outcome| texts(&shared, outcome));
        (shapes, outcomes.collect())
    }

    #[test]
    fn texts_come_back_where_their_stand_ins_are() {
        let message = r#"{"role":"user","content":[{"text":"a\/b\u00e9","n":["t"]},{"text":"c"}]}"#;
        let other = r#"{"role":"user","content":[{"text":"\"","n":["t"]},{"text":"\u000a"}]}"#;
        let (shapes, made) = converted(&[message, other], &["[{\"t\":\"\x7f1\x7f,\x7f0\x7f\"}]"]);
        let shape = "[\"message\",{\"role\":\"user\",\"content\":\
                     [{\"text\":\"\x7f0\x7f\",\"n\":[\"t\"]},{\"text\":\"\x7f1\x7f\"}]}]";
        assert_eq!(shapes, [shape]);
        assert_eq!(made, [[r#"{"t":"c,a/bé"}"#], [r#"{"t":"\n,\""}"#]]);
    }

    #[test]
    fn what_is_in_an_input_is_escaped_twice() {
        let message = r#"{"content":[{"input":{"a":["\n"],"b":{"input":"\u0001"}},"id":"\t"}]}"#;
        let answer = "[{\"arguments\":\"[\\\"\x7f0\x7f\x7f1\x7f\\\"]\",\"id\":\"\x7f2\x7f\"}]";
        let (_, made) = converted(&[message], &[answer]);
        let expected = r#"{"arguments":"[\"\\n\\u0001\"]","id":"\t"}"#;
        assert_eq!(made, [[expected]]);
    }

    #[test]
    fn a_message_that_holds_del_goes_as_it_came() {
        for key in ["\x7f", r"\u007F"] {
            let message = format!(r#"{{"content":[{{"input":{{"{key}":"t"}}}}]}}"#);
            let (shapes, made) = converted(&[&message], &["[\"\x7f0\x7f\"]"]);
            assert_eq!(shapes, [format!("[\"message\",{message}]")]);
            assert_eq!(made, [["\"\x7f0\x7f\""]]);
        }
        let (shapes, made) = converted(&["{\"text\":\"\x7f7\x7f\"}"], &["[\"\x7f0\x7f\"]"]);
        assert_eq!(shapes, ["[\"message\",{\"text\":\"\x7f0\x7f\"}]"]);
        assert_eq!(made, [["\"\x7f7\x7f\""]]);
    }

    #[test]
    fn ids_get_the_hash_of_all_items() {
        let said = r#"{"type":"message","id":"msg_0","role":"assistant"}"#;
        let call = r#"{"type":"function_call","id":"msg_1"}"#;
        let all = format!("[{said},{call}]");
        let (_, made) = converted(&["{}"], &[&all]);
        let named = said.replace("msg_0", &format!("msg_{}_0", digest(all.as_bytes())));
        assert_eq!(made, [[named, call.to_owned()]]);
        // Ids are in records that others keep: never another hash.
        assert_eq!(digest(b"[]"), "39347ff402b6c53d831154110e30ac6a");
    }
}
