//! The full record back from its packed form.

use std::borrow::Cow;

use super::nodes::{MARK, Node, Shortest, Walker, index};
use crate::error::{Error, Result};
use crate::json::{FaultKind, MAX_RECORD_DEPTH, Raw, Scanner, check_utf8, skip_blanks};
use crate::sink::Sink;

/// The size up to which a record is unpacked unless the caller says otherwise: nested
/// references can make a short line stand for any length.
pub const MAX_UNPACKED: u64 = 4 << 30;

/// A piece of a part or of the record.
#[derive(Clone, Copy, Debug)]
enum Segment {
    /// Bytes `start..end` of the packed text.
    Text(usize, usize),
    /// So many parts from `first` on, with commas between them.
    Parts { first: u32, count: u32 },
}

/// What a part consists of.
#[derive(Clone, Copy, Debug, Default)]
struct Body {
    segments: (usize, usize),
    /// Size of the text it stands for.
    len: u64,
    depth: usize,
}

/// A packed record that was checked.
#[derive(Debug)]
pub struct Unpacked<'a> {
    text: &'a [u8],
    segments: Vec<Segment>,
    /// The parts, then the record.
    bodies: Vec<Body>,
    /// For each body the one that it is another name of, which is most often itself.
    aliases: Vec<u32>,
    slices: Vec<Raw<'a>>,
    limit: u64,
    /// Sum of what the bodies take where parts are shared.
    shared_len: u64,
}

/// A part, or the record, for who builds something else than text.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its text in the packed form.
    pub text: Raw<'a>,
    /// Whether it is plain: without references and escaped keys.
    pub plain: bool,
}

/// Whether a line has the packed form, by its first member; blanks before it are passed.
#[must_use]
pub fn is_packed(line: &[u8]) -> bool {
    let at = skip_blanks(line, 0);
    line.get(at) == Some(&b'{')
        && line[skip_blanks(line, at + 1)..].starts_with(b"\"rollfold_packed\"")
}

/// Gives the full record of a packed one as JSON text.
///
/// # Errors
/// What is wrong with the packed text and where; a record of more than `limit` bytes.
pub fn unpack_json(packed: &[u8], limit: u64) -> Result<Vec<u8>> {
    let unpacked = Unpacked::read(packed, limit)?;
    let mut out = Vec::with_capacity(unpacked.full_len()?);
    unpacked.write(&mut out);
    Ok(out)
}

impl<'a> Unpacked<'a> {
    /// Checks a packed record: strict JSON, known version, every reference in place.
    ///
    /// # Errors
    /// What is wrong with the packed text and where; a record that takes more than
    /// `limit` bytes even where equal parts are one object: every text once, and eight
    /// bytes for each reference to a part.
    pub fn read(packed: &'a [u8], limit: u64) -> Result<Self> {
        let mut slices = envelope(packed)?;
        let mut unpacked = Self {
            text: packed,
            segments: Vec::new(),
            bodies: Vec::with_capacity(slices.len()),
            aliases: Vec::with_capacity(slices.len()),
            slices: Vec::new(),
            limit,
            shared_len: 0,
        };
        let mut nodes = Vec::new();
        let mut walker = Walker::default();
        for (number, slice) in slices.iter().enumerate() {
            let body = unpacked.compile(*slice, number, &mut walker, &mut nodes)?;
            let alias = match unpacked.segments[body.segments.0..body.segments.1] {
                [Segment::Parts { first, .. }] => unpacked.aliases[first as usize],
                _ => index(number),
            };
            unpacked.aliases.push(alias);
            unpacked.bodies.push(body);
        }
        unpacked.slices.append(&mut slices);
        Ok(unpacked)
    }

    /// The parts in order, then the record.
    pub fn parts(&self) -> impl Iterator<Item = Part<'a>> + '_ {
        self.slices.iter().zip(&self.bodies).map(|(text, body)| {
            let segments = &self.segments[body.segments.0..body.segments.1];
            Part {
                text: *text,
                plain: matches!(segments, [Segment::Text(..)]),
            }
        })
    }

    /// Size of the full text.
    ///
    /// # Errors
    /// It is larger than the limit.
    pub fn full_len(&self) -> Result<usize> {
        let len = self.bodies.last().map_or(0, |body| body.len);
        self.check_size(len)?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Refuses what would be too large.
    fn check_size(&self, size: u64) -> Result<()> {
        if size <= self.limit {
            return Ok(());
        }
        Err(Error::Shape {
            key: "record".into(),
            reason: format!(
                "unpacks to {size} bytes or more, the limit is {}",
                self.limit
            )
            .into(),
        })
    }

    /// Writes the full text, of which [`Self::full_len`] tells the size.
    pub fn write(&self, out: &mut impl Sink) {
        // Every body but an alias writes text of its own, so the work is in proportion to
        // the output; its source is small and stays in the processor's cache.
        let record = self.aliases[self.bodies.len() - 1];
        let mut stack = vec![Frame::of(&self.bodies[record as usize])];
        while let Some(frame) = stack.last_mut() {
            if frame.next_part < frame.last_part {
                let part = self.aliases[frame.next_part as usize] as usize;
                frame.next_part += 1;
                if std::mem::replace(&mut frame.follows, true) {
                    out.put_byte(b',');
                }
                let body = &self.bodies[part];
                match self.segments[body.segments.0..body.segments.1] {
                    [Segment::Text(start, end)] => out.put(&self.text[start..end]),
                    _ => stack.push(Frame::of(body)),
                }
            } else if frame.segment < frame.end {
                match self.segments[frame.segment] {
                    Segment::Text(start, end) => out.put(&self.text[start..end]),
                    Segment::Parts { first, count } => {
                        frame.next_part = first;
                        frame.last_part = first + count;
                        frame.follows = false;
                    }
                }
                frame.segment += 1;
            } else {
                stack.pop();
            }
        }
    }

    fn compile(
        &mut self,
        slice: Raw<'_>,
        number: usize,
        walker: &mut Walker,
        nodes: &mut Vec<Node>,
    ) -> Result<Body> {
        let base = slice.bytes().as_ptr().addr() - self.text.as_ptr().addr();
        let text = slice.bytes();
        nodes.clear();
        let depth = walker.walk(text, 0, MARKS_ONLY, nodes);
        let mut body = Body {
            segments: (self.segments.len(), 0),
            len: 0,
            depth,
        };
        let mut pos = 0;
        let mut at = 0;
        while at < nodes.len() {
            let mark = nodes[at];
            at += 1;
            if mark.distinct != MARK {
                continue;
            }
            let key_at = base + mark.start;
            let dollar = if text[mark.start] == b'$' {
                1
            } else {
                ESCAPED_DOLLAR
            };
            let quote = text[mark.start..].iter().position(|byte| *byte == b'"');
            let key = mark.start + quote.unwrap_or_default();
            if !is_reference_key(&text[mark.start..key]) {
                self.text_segment(&mut body, base + pos, key_at);
                pos = mark.start + dollar;
                continue;
            }
            let object = nodes[at - 2];
            let malformed = |reason: &'static str| Err(Error::json(reason, base + object.start));
            let Some((first, count)) = reference(&text[object.start..object.end]) else {
                return malformed("malformed reference");
            };
            if count.is_some() && !in_array(text, object.start) {
                return malformed("a reference to several parts outside an array");
            }
            let count = count.unwrap_or(1);
            if first as usize + count as usize > number {
                return malformed("reference to a part that is not before it");
            }
            self.text_segment(&mut body, base + pos, base + object.start);
            pos = object.end;
            at = object.next as usize;
            self.segments.push(Segment::Parts { first, count });
            self.shared_len = self.shared_len.saturating_add(8 * u64::from(count));
            self.check_size(self.shared_len)?;
            // The containers that are open around the reference.
            let around = mark.depth as usize - 1;
            let mut len = u64::from(count) - 1;
            for part in &self.bodies[first as usize..(first + count) as usize] {
                len = len.saturating_add(part.len);
                body.depth = body.depth.max(around.saturating_add(part.depth));
            }
            body.len = body.len.saturating_add(len);
            if body.depth > MAX_RECORD_DEPTH {
                return malformed(TOO_DEEP);
            }
        }
        self.text_segment(&mut body, base + pos, base + text.len());
        body.segments.1 = self.segments.len();
        if body.depth > MAX_RECORD_DEPTH {
            return Err(Error::json(TOO_DEEP, base));
        }
        self.check_size(self.shared_len)?;
        Ok(body)
    }

    fn text_segment(&mut self, body: &mut Body, start: usize, end: usize) {
        if end > start {
            self.segments.push(Segment::Text(start, end));
            body.len = body.len.saturating_add((end - start) as u64);
            self.shared_len = self.shared_len.saturating_add((end - start) as u64);
        }
    }
}

/// Nothing but what holds a mark is a node.
const MARKS_ONLY: Shortest = Shortest {
    string: usize::MAX,
    container: usize::MAX,
};

const TOO_DEEP: &str = "unpacks to something nested too deep";

/// Length of `\u0024`.
const ESCAPED_DOLLAR: usize = 6;

struct Frame {
    segment: usize,
    end: usize,
    next_part: u32,
    last_part: u32,
    /// Whether the next part comes after another of its run.
    follows: bool,
}

impl Frame {
    fn of(body: &Body) -> Self {
        let (segment, end) = body.segments;
        Self {
            segment,
            end,
            next_part: 0,
            last_part: 0,
            follows: false,
        }
    }
}

/// The values of the three members: the parts, then the record.
fn envelope(packed: &[u8]) -> Result<Vec<Raw<'_>>> {
    check_utf8(packed, 0).map_err(|fault| Error::json(fault.kind.text(), fault.at))?;
    // The envelope nests two levels around a part.
    let mut scanner = Scanner::with_max_depth(packed, MAX_RECORD_DEPTH + 2);
    scanner.blanks();
    let mut parts = None;
    let mut record = None;
    let mut version = None;
    let mut twice = None;
    let outcome = scanner.object(|scanner, key| {
        let at = scanner.pos();
        let seen = if key.is_str("parts") {
            let mut list = Vec::new();
            if scanner.peek() == Some(b'[') {
                scanner.array(|scanner| {
                    list.push(scanner.value()?);
                    Ok(())
                })?;
                parts.replace(list).is_some()
            } else {
                scanner.value()?;
                false
            }
        } else if key.is_str("record") {
            record.replace(scanner.value()?).is_some()
        } else if key.is_str("rollfold_packed") {
            version.replace(scanner.value()?).is_some()
        } else {
            // What a later version adds, readers of this one may ignore.
            scanner.value()?;
            false
        };
        if seen {
            twice.get_or_insert(at);
        }
        Ok(())
    });
    outcome.map_err(|fault| Error::json(fault.kind.text(), fault.at))?;
    scanner.blanks();
    if !scanner.at_end() {
        return Err(Error::json(FaultKind::TrailingBytes.text(), scanner.pos()));
    }
    if let Some(at) = twice {
        return Err(Error::json("a member of the packed form stands twice", at));
    }
    match version.map(Raw::bytes) {
        Some(b"1") => {}
        Some(_) => return Err(shape("rollfold_packed", "is not 1, the version read here")),
        None => return Err(shape("rollfold_packed", "is missing: not a packed record")),
    }
    let Some(mut parts) = parts else {
        return Err(shape("parts", "is missing, or not an array"));
    };
    let Some(record) = record else {
        return Err(shape("record", "is missing"));
    };
    if u32::try_from(parts.len()).is_err() {
        return Err(shape("parts", "has more than 2^32 elements"));
    }
    parts.push(record);
    Ok(parts)
}

fn shape(key: &'static str, reason: &'static str) -> Error {
    Error::Shape {
        key: Cow::Borrowed(key),
        reason: Cow::Borrowed(reason),
    }
}

/// Whether the text between a key's quotes is `$p`, escaped or not.
fn is_reference_key(key: &[u8]) -> bool {
    matches!(key, b"$p" | b"$\\u0070" | b"\\u0024p" | b"\\u0024\\u0070")
}

/// What an object of a packed text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `{"$p":first}` or, with the count, `{"$p":[first,count]}`.
    Reference(usize, Option<usize>),
    /// An object with one key, which has one `$` too many.
    Escaped,
    /// Data as it is.
    Plain,
}

/// Tells what an object of a text that [`Unpacked::read`] has passed is.
#[must_use]
pub fn form_of(object: Raw<'_>) -> Form {
    let mut members = object.members();
    let Some((key, _)) = members.next() else {
        return Form::Plain;
    };
    if !matches!(key.bytes().get(1), Some(b'$' | b'\\')) {
        return Form::Plain;
    }
    let name = key.as_str().unwrap_or_default();
    let dollars = name.strip_suffix('p').unwrap_or_default();
    if dollars.is_empty()
        || dollars.bytes().any(|byte| byte != b'$')
        || members.any(|(key, _)| !key.is_str(&name))
    {
        return Form::Plain;
    }
    match reference(object.bytes()) {
        Some((first, count)) if dollars.len() == 1 => {
            Form::Reference(first as usize, count.map(|count| count as usize))
        }
        _ => Form::Escaped,
    }
}

/// The first part that a reference object names, and their number where it gives one.
fn reference(object: &[u8]) -> Option<(u32, Option<u32>)> {
    let mut members = Raw::new(object).members();
    let (_, value) = members.next()?;
    if members.next().is_some() {
        return None;
    }
    if let Some(first) = natural(value) {
        return Some((first, None));
    }
    let mut numbers = value.elements();
    let (first, count) = (natural(numbers.next()?)?, natural(numbers.next()?)?);
    (count > 0 && numbers.next().is_none()).then_some((first, Some(count)))
}

fn natural(value: Raw<'_>) -> Option<u32> {
    u32::try_from(value.as_i64()?).ok()
}

/// Whether the object at `start` is an element: before it stands a bracket, or a comma,
/// which in an object comes before a key.
fn in_array(text: &[u8], start: usize) -> bool {
    matches!(text[..start].trim_ascii_end().last(), Some(b'[' | b','))
}
