//! Any bytes as a rollout's files and as its result, folded in every mode: no panic, each
//! good line a call and each bad one counted, strict JSON that packs and unpacks to itself,
//! and enriching again changes nothing.
//!
//! Two bytes of flags, then the capture file, the late file and the result, with 0x1E
//! between them. What is no JSON object is an empty result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rollfold_core::capture::Circumstances;
use rollfold_core::fold::{Change, Fold, Mode, Sections, Source, Task};
use rollfold_core::intern::{Blob, Interner};
use rollfold_core::json::{MAX_RECORD_DEPTH, Raw, parse_to_depth};
use rollfold_core::observe::NonFinite;
use rollfold_core::pack::{pack_value, unpack_json};
use rollfold_core::render::{exact_len, render};
use rollfold_core::turns::{Job, Outcome};
use rollfold_core::value::{Key, Members, Value};
use rollfold_fuzz::capture;
use rollfold_fuzz::json::{Rules, Tree, read};

const RECORD: Rules = Rules {
    max_depth: MAX_RECORD_DEPTH,
    line_feeds: true,
};
const CAPTURE: &str = "ng_model_call_capture";
const OBSERVATIONS: &str = "ng_agent_observations";
const TRAJECTORY: &str = "ng_trajectory";
const SOURCE: &str = "_ng_trajectory_source";

fuzz_target!(|data: &[u8]| {
    let [what, facts, rest @ ..] = data else {
        return;
    };
    let mut parts = rest.splitn(3, |byte| *byte == 0x1e);
    let mut part = || parts.next().unwrap_or_default();
    let (file, late, result) = (part(), part(), part());
    let is_result = parse_to_depth(result, MAX_RECORD_DEPTH).is_ok_and(Raw::is_object);
    let result = if is_result {
        result.trim_ascii()
    } else {
        b"{}"
    };
    let run = Run {
        mode: Mode::Files,
        texts: [late, file],
        flags: u16::from_le_bytes([*what, *facts]),
    };
    let fresh = [CAPTURE, TRAJECTORY, SOURCE]
        .iter()
        .all(|key| Raw::new(result).get(key).is_none());

    let once = run.enrich(result);
    if run.captured() {
        run.check_capture(&once, fresh);
    }
    let again = run.enrich(&once.text);
    if fresh {
        assert_same(&again.text, &once.text);
    }
    // Of a trajectory that an agent sent, gaps with our codes go the second time.
    let third = run.enrich(&again.text);
    assert_same(&third.text, &again.text);

    let merge = Run {
        mode: Mode::Merge,
        ..run
    };
    let merged = merge.enrich(result);
    let record = Run {
        mode: Mode::Record,
        texts: [b"", b""],
        ..run
    };
    let attached = record.enrich(&merged.text);
    record.enrich(&attached.text);
    record.enrich(result);
});

/// A way to enrich.
#[derive(Clone, Copy)]
struct Run<'a> {
    mode: Mode,
    texts: [&'a [u8]; 2],
    flags: u16,
}

/// What came of it.
struct Enriched {
    text: Vec<u8>,
    /// Index and id of each call, as they were read.
    calls: Vec<capture::Call>,
    unreadable: usize,
    stale: usize,
    duplicates: Vec<String>,
    keep_files: bool,
}

impl Run<'_> {
    fn flag(&self, bit: u16) -> bool {
        self.flags >> bit & 1 == 1
    }

    fn captured(&self) -> bool {
        !self.flag(0)
    }

    fn not_before(&self) -> Option<f64> {
        self.flag(1).then_some(1_790_000_002.0)
    }

    fn facts(&self) -> Circumstances {
        Circumstances {
            incomplete: self.flag(8),
            unreadable: self.flag(9),
            in_flight: self.flag(10),
            lock_unavailable: self.flag(11),
            interrupted: self.flag(12),
        }
    }

    fn enrich(&self, result: &[u8]) -> Enriched {
        let raw = parse_to_depth(result, MAX_RECORD_DEPTH).expect("a result");
        let get = |key: &str| raw.get(key).filter(|value| !value.is_null());
        let source = match get(SOURCE).and_then(Raw::as_str).as_deref() {
            Some("captures") => Some(Source::Captures),
            Some("agent") => Some(Source::Agent),
            _ => None,
        };
        let captured = self.captured() || self.mode == Mode::Record;
        let texts = if captured { self.texts } else { [&b""[..]; 2] };
        let mut fold = Fold::scan(Task {
            rollout_id: "0-1",
            task_id: self.flag(2).then_some("task"),
            mode: self.mode,
            texts,
            captured,
            has_files: texts.iter().any(|text| !text.is_empty()),
            facts: self.facts(),
            sections: Sections {
                observations: get(OBSERVATIONS),
                trajectory: get(TRAJECTORY),
                verifiers: get("ng_verifier_invocations"),
                capture: get(CAPTURE),
                source,
                resolved: get("resolved").and_then(Raw::as_bool),
                non_finite: NonFinite {
                    text: result,
                    offsets: &[],
                },
            },
            not_before: self.not_before(),
            payloads: !self.flag(3),
            failed: self.flag(4),
            identity_conflict: self.flag(5).then_some("0-1,0-2"),
            observability: !self.flag(6),
            latency_ms: self.flag(7).then_some(12.5),
        });
        let calls = fold.capture.calls.iter().map(|call| capture::Call {
            index: usize::try_from(call.call_index).unwrap_or(usize::MAX),
            id: call.model_call_id.as_deref().map(str::to_owned),
        });
        let calls = calls.collect();
        let (unreadable, stale) = (fold.capture.unreadable, fold.capture.stale);
        let duplicates = fold.capture.duplicates.iter().map(|id| id.to_string());
        let duplicates = duplicates.collect();
        let outcomes = convert(&mut fold);
        let (folded, shared) = fold.finish(&outcomes);

        let mut members: Members<'_> = Vec::new();
        for (key, value) in raw.members() {
            set(&mut members, Key::Raw(key), Change::Set(Value::Raw(value)));
        }
        if let (Change::Set(_), Some(source)) = (&folded.trajectory, folded.source) {
            let name = match source {
                Source::Captures => "captures",
                Source::Agent => "agent",
            };
            let name = Change::Set(Value::text(Some(name)));
            set(&mut members, Key::Name(SOURCE), name);
        }
        set(&mut members, Key::Name(CAPTURE), folded.capture);
        set(&mut members, Key::Name(OBSERVATIONS), folded.observations);
        set(&mut members, Key::Name(TRAJECTORY), folded.trajectory);
        set(&mut members, Key::Name("ng_perf"), folded.perf);
        Enriched {
            text: written(&Value::Object(members), &shared),
            calls,
            unreadable,
            stale,
            duplicates,
            keep_files: folded.keep_files.is_some(),
        }
    }

    /// What was read is what a slow reader finds in the files, and the record says so.
    fn check_capture(&self, once: &Enriched, fresh: bool) {
        let expected = capture::read(&self.texts, self.not_before());
        assert_eq!(once.calls, expected.calls);
        assert_eq!(once.unreadable, expected.unreadable);
        assert_eq!(once.stale, expected.stale);
        assert_eq!(once.duplicates, expected.duplicates);
        if expected.unreadable + expected.stale > 0 {
            assert!(once.keep_files);
        }
        if !fresh {
            return;
        }
        let record = read(&once.text, RECORD).expect("strict JSON");
        let capture = record.get(CAPTURE).expect("captured");
        let calls = capture.get("calls").expect("calls").elements();
        assert_eq!(calls.len(), expected.calls.len());
        let gaps = capture.get("gaps").map_or(&[][..], Tree::elements);
        let details = |code: &str| -> Vec<&str> {
            let of_code = |gap: &&Tree| gap.get("code").and_then(Tree::text) == Some(code);
            let gaps = gaps.iter().filter(of_code);
            gaps.filter_map(|gap| gap.get("detail")?.text()).collect()
        };
        let count = |n: usize| (n > 0).then(|| format!("count={n}"));
        let said = |code: &str| details(code).first().map(|detail| (*detail).to_owned());
        assert_eq!(
            said("model_call_capture_records_unreadable"),
            count(expected.unreadable)
        );
        assert_eq!(
            said("model_call_capture_stale_records"),
            count(expected.stale)
        );
        assert_eq!(details("model_call_duplicate"), expected.duplicates);
    }
}

/// Sets, removes or leaves a member; of duplicate keys the last wins.
fn set<'a>(members: &mut Members<'a>, key: Key<'a>, change: Change<'a>) {
    let is_key = |(other, _): &(Key<'a>, Value<'a>)| match key {
        Key::Name(name) => other.is(name),
        Key::Raw(raw) => raw.as_str().is_some_and(|name| other.is(&name)),
    };
    let place = members.iter().position(is_key);
    match (change, place) {
        (Change::Keep, _) | (Change::Remove, None) => {}
        (Change::Remove, Some(at)) => drop(members.remove(at)),
        (Change::Set(value), Some(at)) => members[at].1 = value,
        (Change::Set(value), None) => members.push((key, value)),
    }
}

/// A record's text; what is packed comes back as the same.
fn written(record: &Value<'_>, shared: &Interner<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    render(record, shared, &mut text);
    assert_eq!(text.len(), exact_len(record, shared));
    parse_to_depth(&text, MAX_RECORD_DEPTH).expect("strict JSON");
    let mut packed = Vec::new();
    pack_value(record, shared, &mut packed);
    assert_same(&unpack_json(&packed, u64::MAX).expect("our own"), &text);
    text
}

/// Two texts of the same values: blanks, escapes and duplicate keys may differ.
fn assert_same(left: &[u8], right: &[u8]) {
    if left != right {
        let settled = |text| read(text, RECORD).map(Tree::settled);
        assert_eq!(settled(left), settled(right));
    }
}

/// A converter that knows nothing of any dialect and refuses some of what it gets, always
/// the same.
fn convert(fold: &mut Fold<'_>) -> Vec<Outcome> {
    let jobs = fold.jobs().to_vec();
    let mut outcomes = Vec::with_capacity(jobs.len());
    for job in jobs {
        let (said, value) = match job {
            Job::System(id) | Job::Message(id) => (false, Value::Shared(id)),
            Job::Content(content) => (true, content),
        };
        let mut text = Vec::new();
        render(&value, &fold.shared, &mut text);
        if text.len() % 5 == 0 {
            outcomes.push(Outcome::Unconverted("refused".to_owned()));
            continue;
        }
        let item = [b"{\"type\":\"message\",\"content\":", &text[..], b"}"].concat();
        let items = vec![fold.shared.add(Blob::Text(item.into()))];
        outcomes.push(if said {
            Outcome::Decided {
                items: items.clone(),
                answer: items,
                reasoning: None,
                tool_calls: text.len() % 3,
            }
        } else {
            Outcome::Items(items)
        });
    }
    outcomes
}
