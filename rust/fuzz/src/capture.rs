//! A capture file's lines (contract, section 3), read one at a time.

use crate::json::{Rules, Tree, read_prefix};

const LINE: Rules = Rules {
    max_depth: 1024,
    line_feeds: false,
};

/// A record that takes an index: readable or not.
#[derive(Clone, Debug)]
pub enum Record<'a> {
    Good { text: &'a [u8], tree: Tree },
    Bad,
}

/// A call that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub index: usize,
    pub id: Option<String>,
}

/// What a rollout's files hold.
#[derive(Debug, Default)]
pub struct Expected {
    pub calls: Vec<Call>,
    pub unreadable: usize,
    pub stale: usize,
    pub duplicates: Vec<String>,
}

/// Reads files, one after the other.
pub fn read(files: &[&[u8]], not_before: Option<f64>) -> Expected {
    let mut expected = Expected::default();
    let mut seen: Vec<(String, Vec<&[u8]>)> = Vec::new();
    let records = files.iter().flat_map(|file| records(file));
    for (index, record) in records.enumerate() {
        let Record::Good { text, tree } = record else {
            expected.unreadable += 1;
            continue;
        };
        if let (Some(Tree::Number(started)), Some(not_before)) =
            (tree.known("started_at"), not_before)
            && started
                .parse()
                .is_ok_and(|started: f64| started < not_before)
        {
            expected.stale += 1;
            continue;
        }
        let mut id = tree.known("model_call_id").and_then(Tree::text);
        if let Some(own) = id.filter(|id| !id.is_empty()) {
            match seen.iter_mut().find(|(other, _)| other == own) {
                None => seen.push((own.to_owned(), vec![text])),
                Some((own, texts)) => {
                    if !expected.duplicates.contains(own) {
                        expected.duplicates.push(own.clone());
                    }
                    if texts.contains(&text) {
                        continue;
                    }
                    texts.push(text);
                    id = None;
                }
            }
        }
        expected.calls.push(Call {
            index,
            id: id.map(str::to_owned),
        });
    }
    expected
}

fn records(file: &[u8]) -> Vec<Record<'_>> {
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    file.split(|byte| *byte == b'\n')
        .flat_map(of_line)
        .collect()
}

fn is_padding(byte: u8) -> bool {
    matches!(byte, 0 | b' ' | b'\t' | b'\r')
}

fn of_line(line: &[u8]) -> Vec<Record<'_>> {
    let Some(start) = line.iter().position(|byte| !is_padding(*byte)) else {
        return if line.contains(&0) {
            vec![Record::Bad]
        } else {
            Vec::new()
        };
    };
    let end = line
        .iter()
        .rposition(|byte| !is_padding(*byte))
        .unwrap_or(start)
        + 1;
    let mut rest = &line[start..end];
    let mut records = Vec::new();
    while !rest.is_empty() {
        if rest[0] != b'{' {
            return vec![Record::Bad];
        }
        let Some((tree, len)) = read_prefix(rest, LINE) else {
            // Something broken that begins as an object: what is without an id before it
            // may be a part of it.
            let named = |record: &Record<'_>| match record {
                Record::Good { tree, .. } => tree
                    .known("model_call_id")
                    .is_some_and(|id| id.text().is_some()),
                Record::Bad => true,
            };
            let kept = records.iter().take_while(|record| named(record)).count();
            records.truncate(kept);
            records = records.into_iter().map(typed).collect();
            records.push(Record::Bad);
            return records;
        };
        records.push(Record::Good {
            text: &rest[..len],
            tree,
        });
        rest = &rest[len..];
        while let [b' ' | b'\t' | b'\r', more @ ..] = rest {
            rest = more;
        }
    }
    records.into_iter().map(typed).collect()
}

/// A record with a field of the wrong type is unreadable.
fn typed(record: Record<'_>) -> Record<'_> {
    match record {
        Record::Good { tree, .. } if !fields_fit(&tree) => Record::Bad,
        record => record,
    }
}

fn fields_fit(tree: &Tree) -> bool {
    let is_string = |value: &Tree| value.text().is_some();
    let is_number = |value: &Tree| matches!(value, Tree::Number(_));
    let is_integer =
        |value: &Tree| matches!(value, Tree::Number(digits) if !digits.contains(['.', 'e', 'E']));
    let is_bool = |value: &Tree| matches!(value, Tree::Bool(_));
    let is_source = |value: &Tree| matches!(value.text(), Some("upstream" | "local"));
    let rules: [(&[&str], &dyn Fn(&Tree) -> bool); 6] = [
        (
            &[
                "model_call_id",
                "dialect",
                "error_category",
                "client_session_id",
                "local_response_reason",
            ],
            &is_string,
        ),
        (
            &[
                "started_at",
                "completed_at",
                "latency_ms",
                "latency_ttft_ms",
            ],
            &is_number,
        ),
        (&["status_code", "upstream_status_code"], &is_integer),
        (&["upstream_attempted"], &is_bool),
        (&["response_source"], &is_source),
        (&["model_ref"], &is_model_ref),
    ];
    rules
        .iter()
        .all(|(names, fits)| names.iter().all(|name| tree.known(name).is_none_or(fits)))
}

fn is_model_ref(value: &Tree) -> bool {
    let Tree::Object(members) = value else {
        return false;
    };
    members
        .iter()
        .all(|(key, _)| key == "type" || key == "name")
        && value.get("type").and_then(Tree::text) == Some("responses_api_models")
        && value.get("name").and_then(Tree::text).is_some()
}
