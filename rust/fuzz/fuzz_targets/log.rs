//! A log's file with damage in it: no panic, every record before the damage is read, where
//! resynchronising is possible those after it too, the index says the same, and the next
//! writer goes on behind what is whole.
//!
//! A byte of flags, three of where and how the damage is, then records with 0x1E between
//! them; the last piece is the garbage that is put between them or at the end.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rollfold_core::log::{
    Damage, Entry, Form, Index, Item, LogFile, LogRecord, Prepared, Reader, Shape, index_path,
    read_entry, record_key,
};

/// First bytes of a zstd frame, and the three that those of skippable frames end with: what
/// holds them is a frame for all that a reader can tell.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() {
        shared.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let dir = base.join(format!("rollfold-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    dir
});

/// A record as it was written.
struct Written {
    line: Vec<u8>,
    bytes: Vec<u8>,
}

fuzz_target!(|data: &[u8]| {
    let [flags, place, cut, flip, rest @ ..] = data else {
        return;
    };
    let shape = Shape {
        form: if flags & 1 == 0 {
            Form::Full
        } else {
            Form::Packed
        },
        level: (flags & 2 == 2).then_some(1),
    };
    let name = if shape.level.is_some() {
        "log.jsonl.zst"
    } else {
        "log.jsonl"
    };
    let path = DIR.join(name);
    for file in [
        path.clone(),
        index_path(&path),
        path.with_added_extension("torn"),
    ] {
        let _ = fs::remove_file(file);
    }

    let mut pieces: Vec<&[u8]> = rest.split(|byte| *byte == 0x1e).take(8).collect();
    let garbage = pieces.pop().unwrap_or_default();
    let written: Vec<Written> = pieces
        .iter()
        .filter_map(|piece| write(piece, shape))
        .collect();

    // Whole up to `whole` bytes, `before` records; `after` records behind the damage.
    let before = usize::from(*place) % (written.len() + 1);
    let mut bytes: Vec<u8> = written[..before]
        .iter()
        .flat_map(|w| w.bytes.clone())
        .collect();
    let whole = bytes.len();
    let mut after = &written[before..];
    match flags >> 2 & 3 {
        // Garbage between whole records.
        0 => {
            bytes.extend_from_slice(garbage);
            bytes.extend(after.iter().flat_map(|w| w.bytes.clone()));
            if shape.level.is_none() && !matches!(garbage.last(), None | Some(b'\n')) {
                // It runs into the line behind it.
                after = after.get(1..).unwrap_or_default();
            }
        }
        // A record cut off, and nothing behind it.
        1 => {
            if let Some(torn) = after.first() {
                let kept = usize::from(*cut) % torn.bytes.len();
                bytes.extend_from_slice(&torn.bytes[..kept]);
            }
            after = &[];
        }
        // A record cut off, and others behind it.
        2 => {
            if let Some((torn, others)) = after.split_first() {
                let kept = usize::from(*cut) % torn.bytes.len();
                bytes.extend_from_slice(&torn.bytes[..kept]);
                bytes.extend(others.iter().flat_map(|w| w.bytes.clone()));
            }
            after = &[];
        }
        // A byte that is another.
        _ => {
            if let Some(struck) = after.first() {
                let at = usize::from(*cut) % struck.bytes.len();
                bytes.extend(after.iter().flat_map(|w| w.bytes.clone()));
                bytes[whole + at] ^= flip | 1;
            }
            after = &[];
        }
    }
    let resynchronises =
        shape.level.is_none() || !(has(garbage, &MAGIC) || has(garbage, &SKIPPABLE));
    fs::write(&path, &bytes).expect("written");

    let size = bytes.len() as u64;
    let (lines, damages) = read(&path);
    for damage in &damages {
        assert!(damage.length > 0 && damage.offset + damage.length <= size);
        assert_eq!(damage.tail, damage.offset + damage.length == size);
        assert!(damage.offset >= whole as u64);
    }
    for pair in damages.windows(2) {
        assert!(pair[0].offset + pair[0].length <= pair[1].offset);
    }
    let mut offset = 0;
    for (record, (line, entry)) in written[..before].iter().zip(&lines) {
        assert_eq!(*line, record.line);
        assert_eq!(
            (entry.offset, entry.length),
            (offset, record.bytes.len() as u64)
        );
        offset += entry.length;
    }
    assert!(lines.len() >= before);
    if resynchronises {
        let behind = &lines[before..];
        assert!(
            behind.len() >= after.len(),
            "what is behind the damage is lost"
        );
        let last = &behind[behind.len() - after.len()..];
        assert!(
            last.iter()
                .map(|(line, _)| line)
                .eq(after.iter().map(|w| &w.line))
        );
    }
    // What is none of these is said: as damage, or as a line that is no record.
    let bad = lines
        .iter()
        .filter(|(line, _)| record_key(line).is_err())
        .count();
    if lines.len() - bad < written.len() && flags >> 2 & 3 == 0 && resynchronises {
        assert!(bad + damages.len() > 0);
    }

    let index = Index::load(&path).expect("a file");
    let records: Vec<Entry> = lines
        .iter()
        .filter_map(|(line, entry)| {
            let key = record_key(line).ok()?;
            Some(Entry {
                id: key.id,
                never_started: key.never_started,
                ..entry.clone()
            })
        })
        .collect();
    assert_eq!(index.entries, records);
    let tail = damages.last().filter(|damage| damage.tail);
    assert_eq!(index.torn, tail.map(|damage| damage.offset));
    for (entry, (line, _)) in index
        .entries
        .iter()
        .zip(lines.iter().filter(|(line, _)| record_key(line).is_ok()))
    {
        assert_eq!(
            &read_entry(&path, entry).expect("where the index says"),
            line
        );
    }

    // The next writer moves what is torn aside and goes on.
    let mut opened = LogFile::open(&path).expect("opened");
    assert_eq!(opened.moved, tail.map_or(0, |damage| damage.length));
    let next = b"{\"_ng_rollout_id\":\"next\"}";
    let prepared = prepare(next, shape).expect("a record");
    opened.file.append(&prepared).expect("appended");
    opened.file.close();
    let (more, damages_after) = read(&path);
    let expected = lines.iter().map(|(line, _)| line);
    assert!(
        more.iter()
            .map(|(line, _)| line)
            .take(lines.len())
            .eq(expected)
    );
    assert_eq!(
        record_key(&more.last().expect("appended").0)
            .expect("a record")
            .id
            .as_deref(),
        Some("next")
    );
    assert_eq!(more.len(), lines.len() + 1);
    // Where it is, that is: why may be told otherwise once more follows.
    let kept = damages.len() - usize::from(tail.is_some());
    let place = |damage: &Damage| (damage.offset, damage.length);
    assert!(
        damages_after
            .iter()
            .map(place)
            .eq(damages[..kept].iter().map(place))
    );
    let index = Index::load(&path).expect("a file");
    assert!(index.torn.is_none());
    assert_eq!(index.entries.len(), records.len() + 1);
});

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn prepare(text: &[u8], shape: Shape) -> Option<Prepared> {
    let record = LogRecord {
        text: text.into(),
        key: None,
    };
    let (prepared, _) = Prepared::new(&[record], shape).expect("compressed");
    (!prepared.is_empty()).then_some(prepared)
}

/// One record as an append of its own writes it; none where it is no record.
fn write(text: &[u8], shape: Shape) -> Option<Written> {
    let plain = Shape {
        level: None,
        ..shape
    };
    let mut line = prepare(text, plain)?.bytes().to_vec();
    assert_eq!(line.pop(), Some(b'\n'));
    let bytes = prepare(text, shape)?.bytes().to_vec();
    Some(Written { line, bytes })
}

fn read(path: &Path) -> (Vec<(Vec<u8>, Entry)>, Vec<Damage>) {
    let mut reader = Reader::open(path, 0).expect("opened");
    let (mut lines, mut damages) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().expect("read") {
        match item {
            Item::Chunk(chunk) => {
                for (range, entry) in chunk.lines {
                    lines.push((chunk.text[range].to_vec(), entry));
                }
            }
            Item::Damage(damage) => damages.push(damage),
        }
    }
    (lines, damages)
}
