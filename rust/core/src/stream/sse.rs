//! The event-stream format: bytes in, events out, cut anywhere.
//!
//! Follows the HTML standard's "interpreting an event stream": CR, LF and CRLF end a
//! line and nothing else does, comments and unknown fields are skipped, several `data`
//! lines join with a newline, an event without data is none. One thing is ours: an event
//! that the end of the body cuts off before its blank line is handed out at the end, so
//! that a last event whose data is whole is not lost.

use memchr::memchr2;

use super::rope::{PIECE, Rope};

/// An event's `event` and `data` fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field, empty where there was none.
    pub name: Vec<u8>,
    /// The `data` lines, joined with newlines.
    pub data: Rope,
}

/// The parser's state between two chunks.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not states
pub struct Decoder {
    /// The beginning of a line whose end has not come yet.
    line: Rope,
    /// How long it is; less of it may be kept.
    line_len: u64,
    /// Of every line and event only the beginning is kept.
    beginnings: bool,
    /// The last byte was a CR that ended a line; a LF right after it belongs to it.
    after_cr: bool,
    /// The first bytes of the body have been looked at for a byte order mark.
    past_bom: bool,
    event: Event,
    has_data: bool,
    /// The event's first data line became complete and nobody has looked at it yet.
    fresh: bool,
    /// Where the current event's first byte is, counted from the body's first byte.
    event_start: Option<u64>,
    /// Bytes of the chunks before this one.
    consumed: u64,
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

impl Decoder {
    /// From now on only the beginning of every line and event is kept.
    pub(crate) fn keep_beginnings(&mut self) {
        self.beginnings = true;
        for held in [&mut self.line, &mut self.event.data] {
            if held.is_long() {
                *held = held.first().to_vec().into();
            }
        }
    }

    /// Takes the next chunk; `dispatch` gets each event that it completes, and the offset
    /// in the body of the event's first byte.
    pub fn feed(&mut self, chunk: &[u8], mut dispatch: impl FnMut(Event, u64)) {
        let mut rest = chunk;
        let mut offset = self.consumed;
        self.consumed += chunk.len() as u64;
        while !rest.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    offset += 1;
                    continue;
                }
            }
            let start = offset - self.line_len;
            let Some(end) = memchr2(b'\r', b'\n', rest) else {
                self.line_len += rest.len() as u64;
                keep(&mut self.line, rest, self.beginnings);
                break;
            };
            self.after_cr = rest[end] == b'\r';
            if self.line_len == 0 {
                self.end_line(&rest[..end], start, &mut dispatch);
            } else {
                let mut line = std::mem::take(&mut self.line);
                keep(&mut line, &rest[..end], self.beginnings);
                self.line_len = 0;
                if line.is_long() {
                    self.end_long_line(line, start);
                } else {
                    self.end_line(line.first(), start, &mut dispatch);
                    line.clear();
                    self.line = line;
                }
            }
            rest = &rest[end + 1..];
            offset += end as u64 + 1;
        }
    }

    /// Ends the body: the event that no blank line ended, where it has data.
    pub fn finish(&mut self, mut dispatch: impl FnMut(Event, u64)) {
        let line = std::mem::take(&mut self.line);
        let start = self.consumed - std::mem::take(&mut self.line_len);
        if line.is_long() {
            self.end_long_line(line, start);
        } else if !line.is_empty() {
            self.end_line(line.first(), start, &mut dispatch);
        }
        self.end_event(&mut dispatch);
    }

    /// The event under way and where it began, where its first data line has just become
    /// complete. Says so once an event, so that a long one is not looked at again and again.
    pub fn first_line(&mut self) -> Option<(&Event, u64)> {
        (std::mem::take(&mut self.fresh) && self.has_data)
            .then(|| (&self.event, self.event_start.unwrap_or(0)))
    }

    fn end_line(&mut self, mut line: &[u8], start: u64, dispatch: &mut impl FnMut(Event, u64)) {
        if !self.past_bom {
            self.past_bom = true;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.end_event(dispatch);
            return;
        }
        self.event_start.get_or_insert(start);
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                self.begin_data();
                keep(&mut self.event.data, value, self.beginnings);
            }
            b"event" => {
                self.event.name.clear();
                self.event.name.extend_from_slice(value);
            }
            _ => {}
        }
    }

    /// A line of several pieces: its data is moved, not copied.
    fn end_long_line(&mut self, mut line: Rope, start: u64) {
        let first = line.first();
        let mut before = 0;
        if !std::mem::replace(&mut self.past_bom, true) && first.starts_with(BOM) {
            before = BOM.len();
        }
        self.event_start.get_or_insert(start);
        let Some(value) = first[before..].strip_prefix(b"data:") else {
            // A comment, or a name longer than any.
            return;
        };
        before += b"data:".len() + usize::from(value.starts_with(b" "));
        line.drop_front(before);
        self.begin_data();
        self.event.data.append(line);
    }

    fn begin_data(&mut self) {
        if self.has_data && !(self.beginnings && self.event.data.len() >= PIECE) {
            self.event.data.push(b"\n");
        }
        self.fresh = !self.has_data;
        self.has_data = true;
    }

    fn end_event(&mut self, dispatch: &mut impl FnMut(Event, u64)) {
        let event = std::mem::take(&mut self.event);
        let start = self.event_start.take();
        if std::mem::take(&mut self.has_data)
            && !event.data.is_empty()
            && let Some(start) = start
        {
            dispatch(event, start);
        }
    }
}

fn keep(held: &mut Rope, bytes: &[u8], beginning: bool) {
    let most = if beginning { held.room() } else { bytes.len() };
    held.push(&bytes[..bytes.len().min(most)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(chunks: &[&[u8]]) -> Vec<(String, String, u64)> {
        let mut out = Vec::new();
        let mut decoder = Decoder::default();
        let mut take = |event: Event, start| {
            out.push((
                String::from_utf8_lossy(&event.name).into_owned(),
                String::from_utf8_lossy(&event.data.contiguous()).into_owned(),
                start,
            ));
        };
        for chunk in chunks {
            decoder.feed(chunk, &mut take);
        }
        decoder.finish(&mut take);
        out
    }

    fn data(body: &str) -> Vec<String> {
        events(&[body.as_bytes()])
            .into_iter()
            .map(|(_, data, _)| data)
            .collect()
    }

    #[test]
    fn every_line_end_ends_a_line_and_nothing_else_does() {
        for end in ["\n", "\r", "\r\n"] {
            let body = format!("event: e{end}data: a\u{2028}b{end}{end}data: c{end}{end}");
            assert_eq!(data(&body), ["a\u{2028}b", "c"], "{end:?}");
        }
        assert_eq!(
            data("data: a\u{b}\u{c}\u{85}\u{2029}b\n\n"),
            ["a\u{b}\u{c}\u{85}\u{2029}b"]
        );
    }

    #[test]
    fn the_standard_examples() {
        assert_eq!(data("data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
        assert_eq!(
            data(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"),
            ["first event", "second event",]
        );
        assert_eq!(data("data\n\ndata\ndata\n\ndata:"), ["\n"]);
        assert_eq!(
            data("data:test\n\ndata: test\n\ndata:  test\n\n"),
            ["test", "test", " test"]
        );
    }

    #[test]
    fn odd_bodies() {
        assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\n"), ["a"]);
        assert_eq!(data("event: message_stop\n\n"), Vec::<String>::new());
        assert_eq!(data("Data: a\n\ndata : b\n\ndata: c"), ["c"]);
        assert_eq!(data(""), Vec::<String>::new());
        assert_eq!(
            events(&[b"event: x\n\ndata: a\n\n"]),
            [(String::new(), "a".into(), 10)]
        );
    }

    #[test]
    fn a_huge_line_is_read_like_a_small_one() {
        let text = "x".repeat(PIECE + 7);
        for body in [
            format!("data: {text}\n\n"),
            format!("data:{text}\ndata: {text}\n\n"),
            format!("event: a\ndata: b\ndata:  {text}\r\n\r\n"),
            format!("\u{feff}data: {text}\n:{text}\n{text}\nid: {text}\n\ndata: c\n\n"),
        ] {
            let whole = events(&[body.as_bytes()]);
            for cut in [1, 7, 30, PIECE, body.len() - 3, body.len() - 1] {
                let (one, other) = body.as_bytes().split_at(cut);
                assert_eq!(events(&[one, other]), whole, "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_event_knows_where_it_begins() {
        let body = b": hi\n\n\nevent: a\ndata: 1\n\r\ndata: 2\n\n";
        for cut in 0..=body.len() {
            let found = events(&[&body[..cut], &body[cut..]]);
            let starts: Vec<_> = found.iter().map(|(.., start)| *start).collect();
            assert_eq!(starts, [7, 26], "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            body in "(data|event|id|x)?[: ]{0,2}[ab\u{e9}\u{2028}]{0,3}[\r\n]{0,3}",
            more in "(data: [a\u{1f600}]{0,2}(\n|\r|\r\n){1,2}){0,4}",
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        ) {
            let body = body + &more;
            let bytes = body.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in at {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(events(&chunks), events(&[bytes]));
        }
    }
}
