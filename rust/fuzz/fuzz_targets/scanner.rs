//! Any bytes to the scanner and to a slow reader: the same verdict, the same values, however
//! deep it may go and whatever a line feed is; and a fault lies within the text.
//!
//! The first byte picks the depth, and whether the text is a file's line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rollfold_core::json::{
    self, Fault, FieldName, Kind, MAX_DEPTH, MAX_RECORD_DEPTH, Raw, Scanner, Tape, check_utf8,
};
use rollfold_fuzz::json::{Rules, Tree, read, read_prefix};

fuzz_target!(|data: &[u8]| {
    let [how, text @ ..] = data else { return };
    if how & 1 == 1 {
        return line(text);
    }
    let max_depth = match how >> 1 {
        0 => MAX_DEPTH,
        1 => MAX_RECORD_DEPTH,
        few => usize::from(few) / 8,
    };
    let rules = Rules {
        max_depth,
        line_feeds: true,
    };
    match (json::parse_to_depth(text, max_depth), read(text, rules)) {
        (Ok(raw), Some(tree)) => {
            same(raw, &tree);
            walked(raw, max_depth, &tree);
        }
        (Err(fault), None) => assert!(fault.at <= text.len()),
        (ours, slow) => panic!("{ours:?}, and the slow reader: {slow:?}"),
    }
});

/// A value at the start of a file's line.
fn line(text: &[u8]) {
    let rules = Rules {
        max_depth: MAX_DEPTH,
        line_feeds: false,
    };
    let slow = read_prefix(text, rules);
    let value = |scanner: &mut Scanner<'_>| -> Result<usize, Fault> {
        scanner.value()?;
        check_utf8(&text[..scanner.pos()], 0)?;
        Ok(scanner.pos())
    };
    match (value(&mut Scanner::in_line(text, 0)), &slow) {
        (Ok(end), Some((_, len))) => assert_eq!(end, *len),
        (Err(fault), None) => assert!(fault.at <= text.len()),
        (ours, slow) => panic!("{ours:?}, and the slow reader: {slow:?}"),
    }
    // With its structure kept on the way.
    for levels in [0, 1, 3] {
        let mut tape = Tape::default();
        let mut scanner = Scanner::in_line(text, 0);
        let root = tape.scan(&mut scanner, levels);
        let end = scanner.pos();
        let root = root.and_then(|root| check_utf8(&text[..end], 0).map(|()| root));
        match (root, &slow) {
            (Ok(root), Some((tree, len))) => {
                assert_eq!(end, *len);
                taped(&tape, root, levels, tree);
            }
            (Err(_), None) => {}
            (ours, slow) => panic!("{ours:?}, and the slow reader: {slow:?}"),
        }
    }
}

/// The value read without checking again is the reference's.
fn same(raw: Raw<'_>, tree: &Tree) {
    match tree {
        Tree::Null => assert!(raw.is_null()),
        Tree::Bool(value) => assert_eq!(raw.as_bool(), Some(*value)),
        Tree::Number(digits) => {
            assert_eq!(raw.bytes(), digits.as_bytes());
            let slow: f64 = digits.parse().expect("a number");
            assert_eq!(raw.as_f64().map(f64::to_bits), Some(slow.to_bits()));
            assert_eq!(raw.as_i64(), digits.parse().ok());
        }
        Tree::String(text) => {
            assert_eq!(raw.as_str().as_deref(), Some(&**text));
            assert!(raw.is_str(text));
        }
        Tree::Array(elements) => {
            assert_eq!(raw.kind(), Kind::Array);
            assert_eq!(raw.elements().count(), elements.len());
            raw.elements().zip(elements).for_each(|(r, t)| same(r, t));
        }
        Tree::Object(members) => {
            assert_eq!(raw.kind(), Kind::Object);
            assert_eq!(raw.members().count(), members.len());
            for ((key, value), (name, tree)) in raw.members().zip(members) {
                assert_eq!(key.as_str().as_deref(), Some(&**name));
                same(value, tree);
            }
            if let Some((name, _)) = members.first() {
                same(
                    raw.get(name).expect("a member"),
                    tree.get(name).expect("a member"),
                );
            }
        }
    }
}

/// The outermost level, walked member by member.
fn walked(raw: Raw<'_>, max_depth: usize, tree: &Tree) {
    let mut scanner = Scanner::with_max_depth(raw.bytes(), max_depth);
    let mut count = 0;
    let walk = match tree {
        Tree::Object(members) => scanner.object(|scanner, key| {
            assert_eq!(key.as_str().as_deref(), Some(&*members[count].0));
            count += 1;
            scanner.value().map(|_| ())
        }),
        Tree::Array(_) => scanner.array(|scanner| scanner.value().map(|_| ())),
        _ => return,
    };
    walk.expect("read before");
    assert!(scanner.at_end());
}

/// Whether a key is the one that nothing is kept below.
#[derive(Clone, Copy, Default, PartialEq)]
struct Key {
    closed: bool,
}

impl FieldName for Key {
    fn of(text: &[u8]) -> Self {
        Self {
            closed: text == b"closed",
        }
    }

    fn is_closed(self) -> bool {
        self.closed
    }
}

fn taped(tape: &Tape<'_, Key>, node: usize, levels: usize, tree: &Tree) {
    same(tape.value(node), tree);
    let children: Vec<usize> = tape.children(node).collect();
    let nodes: Vec<(Option<&str>, &Tree)> = match tree {
        _ if levels == 0 => Vec::new(),
        Tree::Object(members) => members.iter().map(|(k, v)| (Some(&**k), v)).collect(),
        Tree::Array(elements) => {
            let has_node =
                |tree: &&Tree| matches!(tree, Tree::Array(_) | Tree::Object(_) | Tree::String(_));
            let kept: Vec<_> = elements
                .iter()
                .filter(has_node)
                .map(|e| (None, e))
                .collect();
            assert_eq!(tape.node(node).is_whole, kept.len() == elements.len());
            kept
        }
        _ => Vec::new(),
    };
    assert_eq!(children.len(), nodes.len());
    for (child, (name, tree)) in children.into_iter().zip(nodes) {
        let key = tape.node(child).key;
        assert_eq!(key.and_then(Raw::as_str).as_deref(), name);
        let closed = name == Some("closed");
        assert_eq!(tape.node(child).name.closed, closed);
        taped(tape, child, if closed { 0 } else { levels - 1 }, tree);
    }
}
