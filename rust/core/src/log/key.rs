//! Whose a record is, without building it (contract, sections 2 and 11).

use crate::error::{Error, Result};
use crate::json::{FaultKind, MAX_RECORD_DEPTH, Raw, Scanner, check_utf8};
use crate::pack::{Form, MAX_UNPACKED, Unpacked, form_of, is_packed};
use crate::store::valid_rollout_id;

/// What the index knows of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordKey {
    /// The rollout id, where the record's keys give a valid one.
    pub id: Option<String>,
    /// Whether its rollout never started.
    pub never_started: bool,
}

#[derive(Default)]
struct Keys<'a> {
    rollout_id: Option<Raw<'a>>,
    task: Option<Raw<'a>>,
    rollout: Option<Raw<'a>>,
    attempt: Option<Raw<'a>>,
    omitted: Option<Raw<'a>>,
    drained: Option<Raw<'a>>,
}

impl<'a> Keys<'a> {
    fn note(&mut self, key: Raw<'a>, value: Raw<'a>) {
        // All of them begin alike; most keys of a record end here.
        if !matches!(key.bytes().get(1), Some(b'_' | b'\\')) {
            return;
        }
        let slot = match &*key.as_str().unwrap_or_default() {
            "_ng_rollout_id" => &mut self.rollout_id,
            "_ng_task_index" => &mut self.task,
            "_ng_rollout_index" => &mut self.rollout,
            "_ng_attempt_index" => &mut self.attempt,
            "_ng_omitted_rollout" => &mut self.omitted,
            "_ng_dispatch_drained" => &mut self.drained,
            _ => return,
        };
        *slot = Some(value).filter(|value| !value.is_null());
    }

    fn key(&self) -> RecordKey {
        RecordKey {
            id: self.id().filter(|id| valid_rollout_id(id)),
            never_started: self.omitted.is_some_and(|raw| raw.is_str("never_started"))
                || self.drained.is_some_and(|raw| raw.as_bool() == Some(true)),
        }
    }

    fn id(&self) -> Option<String> {
        let mut id = match (self.rollout_id, self.task, self.rollout) {
            (Some(id), ..) => id.as_str().filter(|id| valid_rollout_id(id))?.into_owned(),
            (None, Some(task), Some(rollout)) => format!("{}-{}", index(task)?, index(rollout)?),
            _ => return None,
        };
        let attempt = self.attempt.and_then(|raw| {
            if raw.is_integer() {
                std::str::from_utf8(raw.bytes()).ok().map(str::to_owned)
            } else {
                raw.as_str().map(std::borrow::Cow::into_owned)
            }
        });
        let digits = attempt
            .as_deref()
            .map_or("", |digits| digits.trim_start_matches('0'));
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            id.push_str("-a");
            id.push_str(digits);
        }
        Some(id)
    }
}

/// A task's or rollout's index: an integer of 0 or more, or a string that may be an id.
fn index(raw: Raw<'_>) -> Option<String> {
    if raw.is_integer() {
        let digits = std::str::from_utf8(raw.bytes()).ok()?;
        return match digits {
            "-0" => Some("0".to_owned()),
            _ => (!digits.starts_with('-')).then(|| digits.to_owned()),
        };
    }
    let text = raw.as_str()?;
    valid_rollout_id(&text).then(|| text.into_owned())
}

/// Checks that a line is a whole record, full or packed, and says whose.
///
/// # Errors
/// What is wrong with the line: it is not strict JSON, no object, or a malformed packed
/// record.
pub fn record_key(line: &[u8]) -> Result<RecordKey> {
    if is_packed(line) {
        return packed_key(line);
    }
    check_utf8(line, 0).map_err(|fault| Error::json(fault.kind.text(), fault.at))?;
    let mut scanner = Scanner::with_max_depth(line, MAX_RECORD_DEPTH);
    let mut keys = Keys::default();
    scanner.blanks();
    scanner
        .object(|scanner, key| {
            keys.note(key, scanner.value()?);
            Ok(())
        })
        .map_err(|fault| Error::json(fault.kind.text(), fault.at))?;
    scanner.blanks();
    if !scanner.at_end() {
        return Err(Error::json(FaultKind::TrailingBytes.text(), scanner.pos()));
    }
    Ok(keys.key())
}

fn packed_key(line: &[u8]) -> Result<RecordKey> {
    let unpacked = Unpacked::read(line, MAX_UNPACKED)?;
    let parts: Vec<Raw<'_>> = unpacked.parts().map(|part| part.text).collect();
    let whole = |raw| resolved(raw, &parts);
    let Some(record) = parts
        .last()
        .map(|record| whole(*record))
        .filter(|record| record.is_object())
    else {
        return Err(Error::Shape {
            key: "record".into(),
            reason: "is no object".into(),
        });
    };
    let mut keys = Keys::default();
    for (key, value) in record.members() {
        keys.note(key, whole(value));
    }
    Ok(keys.key())
}

/// What a reference stands for, or the value itself. Each step goes to a lower part.
fn resolved<'a>(mut raw: Raw<'a>, parts: &[Raw<'a>]) -> Raw<'a> {
    while let (true, Form::Reference(first, None)) = (raw.is_object(), form_of(raw)) {
        raw = parts[first];
    }
    raw
}
