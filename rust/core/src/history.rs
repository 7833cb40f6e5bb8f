//! What a request repeats of the ones before it is found by comparing bytes, not by
//! walking it: histories are append-only most of the time.
//!
//! A [`Histories`] keeps the requests of the last few conversations. A message list is
//! compared with theirs; the elements in the common part are known to be valid and
//! distinct already, so the scanner jumps over them. After a difference (a marker that
//! moved, a message that was rewritten) it tries to fall in step again.

use std::sync::Arc;

use crate::intern::{Interner, SharedId};
use crate::item::Noting;
use crate::json::{Fault, Raw, Scanner, check_utf8};
use crate::names::Name;
use crate::value::{Key, Members, Value, unique_members};

/// How many conversations of a rollout are remembered: the agent, some subagents, a judge.
const CONVERSATIONS: usize = 8;
/// Members shorter than this are not worth sharing.
const SHORT: usize = 48;

/// A member of a request that has been seen.
#[derive(Debug)]
struct Member<'a> {
    key: Raw<'a>,
    value: Raw<'a>,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    /// One distinct value.
    Whole(SharedId),
    /// A list: where its elements start and end within it, and which they are.
    List(Vec<(usize, usize)>, Arc<[SharedId]>),
}

/// The members of one request.
type Request<'a> = Vec<Member<'a>>;

/// A request that was scanned.
#[derive(Debug)]
pub struct Scanned<'a> {
    /// The request's text.
    pub raw: Raw<'a>,
    /// Its members, the long ones shared.
    pub parts: Members<'a>,
    seen: Request<'a>,
    extends: Option<usize>,
}

/// The requests of the last conversations, the latest first.
#[derive(Debug, Default)]
pub struct Histories<'a> {
    requests: Vec<Request<'a>>,
}

/// Which bytes of a record are known to be UTF-8.
#[derive(Debug)]
pub struct Utf8Mark(pub usize);

impl Utf8Mark {
    /// Checks what was scanned since the last mark and jumps over `len` known bytes.
    fn jump(&mut self, scanner: &mut Scanner<'_>, len: usize) -> Result<(), Fault> {
        let end = scanner.pos();
        check_utf8(scanner.slice(self.0, end), self.0)?;
        scanner.advance(len);
        self.0 = scanner.pos();
        Ok(())
    }

    /// Checks what was scanned since the last mark.
    ///
    /// # Errors
    /// The first byte that is not UTF-8.
    pub fn finish(&self, scanner: &Scanner<'_>) -> Result<(), Fault> {
        check_utf8(scanner.slice(self.0, scanner.pos()), self.0)
    }
}

impl<'a> Histories<'a> {
    /// Scans a request, an object, at the scanner's position.
    ///
    /// # Errors
    /// The first rule of strict JSON that it breaks.
    pub fn scan(
        &self,
        scanner: &mut Scanner<'a>,
        shared: &mut Interner<'a>,
        utf8: &mut Utf8Mark,
    ) -> Result<Scanned<'a>, Fault> {
        let start = scanner.pos();
        let mut parts = Members::with_capacity(8);
        let mut seen = Request::with_capacity(8);
        let mut extends = None;
        scanner.object(|scanner, key| {
            let name = scanner.name(key);
            let is_list = matches!(name, Name::Messages | Name::Input);
            let value = if is_list && scanner.peek() == Some(b'[') {
                let (member, history) = self.list(key, scanner, shared, utf8)?;
                extends = history.or(extends);
                let value = list_value(&member);
                seen.push(member);
                value
            } else {
                self.whole(key, scanner, shared, utf8, &mut seen)?
            };
            parts.push((Key::Raw(key), value));
            Ok(())
        })?;
        unique_members(&mut parts);
        let raw = Raw::new(scanner.slice(start, scanner.pos()));
        Ok(Scanned {
            raw,
            parts,
            seen,
            extends,
        })
    }

    /// Remembers a request whose whole record turned out to be valid.
    pub fn remember(&mut self, scanned: Scanned<'a>) {
        if let Some(index) = scanned.extends {
            self.requests.remove(index);
        }
        self.requests.truncate(CONVERSATIONS - 1);
        self.requests.insert(0, scanned.seen);
    }

    fn members(&self, key: Raw<'a>) -> impl Iterator<Item = (usize, &Member<'a>)> {
        self.requests
            .iter()
            .enumerate()
            .filter_map(move |(index, request)| {
                request
                    .iter()
                    .find(|member| member.key == key)
                    .map(|member| (index, member))
            })
    }

    /// A member that is no message list.
    fn whole(
        &self,
        key: Raw<'a>,
        scanner: &mut Scanner<'a>,
        shared: &mut Interner<'a>,
        utf8: &mut Utf8Mark,
        seen: &mut Request<'a>,
    ) -> Result<Value<'a>, Fault> {
        let rest = scanner.rest();
        for (_, member) in self.members(key) {
            if let Seen::Whole(id) = member.seen
                && rest.starts_with(member.value.bytes())
            {
                utf8.jump(scanner, member.value.bytes().len())?;
                seen.push(Member {
                    key,
                    value: member.value,
                    seen: Seen::Whole(id),
                });
                return Ok(Value::Shared(id));
            }
        }
        let value = scanner.value()?;
        let ends_itself = matches!(value.bytes().first(), Some(b'"' | b'{' | b'['));
        if value.bytes().len() < SHORT || !ends_itself {
            return Ok(Value::Raw(value));
        }
        let id = shared.intern(value);
        seen.push(Member {
            key,
            value,
            seen: Seen::Whole(id),
        });
        Ok(Value::Shared(id))
    }

    /// A message list, and which conversation it goes on with.
    fn list(
        &self,
        key: Raw<'a>,
        scanner: &mut Scanner<'a>,
        shared: &mut Interner<'a>,
        utf8: &mut Utf8Mark,
    ) -> Result<(Member<'a>, Option<usize>), Fault> {
        let start = scanner.pos();
        let text = scanner.rest();
        let best = self
            .members(key)
            .filter_map(|(index, member)| match &member.seen {
                Seen::List(spans, ids) => {
                    let same = same_elements(text, member.value.bytes(), spans, 0);
                    Some((
                        same,
                        index,
                        Known {
                            text: member.value.bytes(),
                            spans,
                            ids,
                        },
                    ))
                }
                Seen::Whole(_) => None,
            })
            // The first of the longest: the latest conversation.
            .reduce(|best, next| if next.0 > best.0 { next } else { best });

        // Mostly what was there and a message or two.
        let room = best
            .as_ref()
            .map_or(4, |(_, _, known)| known.spans.len() + 4);
        let mut spans: Vec<(usize, usize)> = Vec::with_capacity(room);
        let mut ids: Vec<SharedId> = Vec::with_capacity(room);
        let mut next: usize = 0;
        // What the choice of the conversation has compared already.
        let mut compared = best.as_ref().map(|(same, _, _)| *same);
        scanner.array(|scanner| {
            if let Some((_, _, known)) = &best {
                let rest = scanner.rest();
                for from in [next, next.saturating_sub(1)] {
                    let same = compared.take().unwrap_or_else(|| known.same(rest, from));
                    if same > 0 {
                        let at = scanner.pos() - start;
                        let offset = known.start(from);
                        let taken = &known.spans[from..from + same];
                        spans.extend(
                            taken
                                .iter()
                                .map(|(s, e)| (s - offset + at, e - offset + at)),
                        );
                        ids.extend_from_slice(&known.ids[from..from + same]);
                        next = from + same;
                        return utf8.jump(scanner, taken[same - 1].1 - offset);
                    }
                }
            }
            let at = scanner.pos();
            let id = element(scanner, shared)?;
            spans.push((at - start, scanner.pos() - start));
            ids.push(id);
            next += 1;
            Ok(())
        })?;
        let value = Raw::new(scanner.slice(start, scanner.pos()));
        // A request that keeps all but the last two messages goes on with its conversation.
        let extends = best
            .filter(|(same, _, known)| *same > 0 && same + 2 >= known.spans.len())
            .map(|(_, index, _)| index);
        Ok((
            Member {
                key,
                value,
                seen: Seen::List(spans, ids.into()),
            },
            extends,
        ))
    }
}

/// Scans an element that was not seen where it was expected, and notes what turns ask of it.
fn element<'a>(scanner: &mut Scanner<'a>, shared: &mut Interner<'a>) -> Result<SharedId, Fault> {
    if scanner.peek() != Some(b'{') {
        return Ok(shared.intern(scanner.value()?));
    }
    let start = scanner.pos();
    let mut note = Noting::default();
    scanner.object(|scanner, key| {
        let name = scanner.name(key);
        let value = scanner.value()?;
        note.member(name, value);
        Ok(())
    })?;
    let id = shared.intern(Raw::new(scanner.slice(start, scanner.pos())));
    shared.note(id, note.finish());
    Ok(id)
}

/// A list that was seen before.
struct Known<'s, 'a> {
    text: &'a [u8],
    spans: &'s [(usize, usize)],
    ids: &'s [SharedId],
}

impl Known<'_, '_> {
    fn start(&self, element: usize) -> usize {
        self.spans
            .get(element)
            .map_or(self.text.len(), |(start, _)| *start)
    }

    /// How many elements from `element` on `text` starts with.
    fn same(&self, text: &[u8], element: usize) -> usize {
        let spans = self.spans.get(element..).unwrap_or_default();
        let start = self.start(element);
        same_elements(text, &self.text[start..], spans, start)
    }
}

fn list_value<'a>(member: &Member<'a>) -> Value<'a> {
    match &member.seen {
        Seen::List(_, ids) => {
            Value::Parted(member.value, Arc::new(Value::SharedList(Arc::clone(ids))))
        }
        Seen::Whole(id) => Value::Shared(*id),
    }
}

/// How many elements, of spans measured from `offset`, `text` and `known` start with.
fn same_elements(text: &[u8], known: &[u8], spans: &[(usize, usize)], offset: usize) -> usize {
    if spans.is_empty() {
        return 0;
    }
    let common = common_prefix(text, known);
    let within = spans.partition_point(|(_, end)| end - offset <= common);
    // Only what ends itself ends where its bytes end: `12` may go on as `123`.
    let ends_itself =
        |(start, _): &(usize, usize)| matches!(known.get(start - offset), Some(b'{' | b'[' | b'"'));
    spans[..within]
        .iter()
        .position(|span| !ends_itself(span))
        .unwrap_or(within)
}

/// How many bytes two texts start with in common.
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let len = left.len().min(right.len());
    // Blocks at memory speed, then the place within the one that differs.
    let mut at = 0;
    for block in [4096, 512, 64] {
        while at + block <= len && left[at..at + block] == right[at..at + block] {
            at += block;
        }
    }
    let rest = left[at..len].iter().zip(&right[at..len]);
    at + rest.take_while(|(l, r)| l == r).count()
}

#[cfg(test)]
mod tests {
    use super::{Histories, Utf8Mark, common_prefix};
    use crate::intern::Interner;
    use crate::json::{Raw, Scanner};
    use crate::value::{Key, Value};

    fn ids(
        histories: &mut Histories<'static>,
        shared: &mut Interner<'static>,
        text: &'static str,
    ) -> Vec<u32> {
        let mut scanner = Scanner::new(text.as_bytes());
        let scanned = histories
            .scan(&mut scanner, shared, &mut Utf8Mark(0))
            .unwrap();
        assert!(scanner.at_end());
        let value = scanned
            .parts
            .iter()
            .find(|(k, _)| *k == Key::Raw(Raw::new(b"\"messages\"")));
        let Some((_, Value::Parted(_, list))) = value else {
            panic!("no list")
        };
        let Value::SharedList(list) = &**list else {
            panic!("no list")
        };
        let list = list.iter().map(|id| id.0).collect();
        histories.remember(scanned);
        list
    }

    #[test]
    fn repeated_messages_are_the_same_ones_wherever_they_stand() {
        let (mut h, mut s) = (Histories::default(), Interner::default());
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":["a",{"b":1}]}"#), [0, 1]);
        assert_eq!(
            ids(&mut h, &mut s, r#"{"messages":["a",{"b":1},"c"]}"#),
            [0, 1, 2]
        );
        // Rewritten in the middle, inserted, removed, other blanks.
        assert_eq!(
            ids(&mut h, &mut s, r#"{"messages":["a",{"b":2},"c"]}"#),
            [0, 3, 2]
        );
        assert_eq!(
            ids(&mut h, &mut s, r#"{"messages":["x","a",{"b":2},"c"]}"#),
            [4, 0, 3, 2]
        );
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":["a","c"]}"#), [0, 2]);
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":[ "a" ,"c" ]}"#), [0, 2]);
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":[]}"#), [] as [u32; 0]);
    }

    #[test]
    fn a_number_does_not_end_where_an_earlier_one_did() {
        let (mut h, mut s) = (Histories::default(), Interner::default());
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":["a",12]}"#), [0, 1]);
        assert_eq!(ids(&mut h, &mut s, r#"{"messages":["a",123]}"#), [0, 2]);
    }

    #[test]
    fn a_known_part_does_not_hide_what_follows_it() {
        let (mut h, mut s) = (Histories::default(), Interner::default());
        ids(&mut h, &mut s, r#"{"messages":["a","b"]}"#);
        for text in [
            r#"{"messages":["a","b"x]}"#,
            r#"{"messages":["a","b","#,
            r#"{"messages":["a" "b"]}"#,
        ] {
            assert!(
                h.scan(&mut Scanner::new(text.as_bytes()), &mut s, &mut Utf8Mark(0))
                    .is_err()
            );
        }
        let mut bad = br#"{"messages":["a","b","?"]}"#.to_vec();
        bad[22] = 0xff;
        let bad: &'static [u8] = bad.leak();
        let mut scanner = Scanner::new(bad);
        let mut utf8 = Utf8Mark(0);
        h.scan(&mut scanner, &mut s, &mut utf8).unwrap();
        assert!(utf8.finish(&scanner).is_err());
    }

    #[test]
    fn common_prefixes_end_at_the_first_difference() {
        let left = vec![7u8; 5000];
        for at in [0, 1, 1023, 1024, 1025, 4999] {
            let mut right = left.clone();
            right[at] = 8;
            assert_eq!(common_prefix(&left, &right), at);
        }
        assert_eq!(common_prefix(&left, &left[..77]), 77);
    }
}
