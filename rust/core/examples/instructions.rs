//! A stage of the core over one capture, again and again: the subject of the
//! instruction-count check (`tests/test_instructions.py`) and of profiles.
//!
//!     instructions STAGE CAPTURE REPEATS [OBSERVATIONS]
//!
//! Stages: `scan` (strict JSON), `calls` (call records), `fold` (the whole record, without
//! converters: what they would make of a message is the message), `full` (and its text),
//! `packed` (and its packed text). OBSERVATIONS is a file with the agent's own. The
//! difference between two numbers of repeats is what the stage itself costs.

use std::hint::black_box;

use rollfold_core::call::CallRecord;
use rollfold_core::exchange::{Record, ScanState, each_record};
use rollfold_core::fold::{Change, Fold, Sections, Task};
use rollfold_core::intern::Interner;
use rollfold_core::json::{self, Raw};
use rollfold_core::pack::pack_value;
use rollfold_core::render::render;
use rollfold_core::turns::{Job, Outcome};
use rollfold_core::value::{Key, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [stage, path, repeats, rest @ ..] = arguments.as_slice() else {
        return Err("usage: instructions STAGE CAPTURE REPEATS [OBSERVATIONS]".into());
    };
    let capture = std::fs::read(path)?;
    let observations = rest.first().map(std::fs::read).transpose()?;
    let observations = observations.as_deref().map(json::parse).transpose()?;
    let mut out = Vec::new();
    for _ in 0..repeats.parse()? {
        let capture = black_box(capture.as_slice());
        out.clear();
        match stage.as_str() {
            "scan" => scan(capture)?,
            "calls" => calls(capture),
            "fold" => drop(black_box(fold(capture, observations))),
            "full" => {
                let (record, shared) = fold(capture, observations);
                render(&record, &shared, &mut out);
            }
            "packed" => {
                let (record, shared) = fold(capture, observations);
                pack_value(&record, &shared, &mut out);
            }
            _ => return Err(format!("no stage {stage}").into()),
        }
        black_box(&out);
    }
    Ok(())
}

/// Strict JSON, line by line.
fn scan(capture: &[u8]) -> Result<(), json::Fault> {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', capture) {
        black_box(json::parse(&capture[start..end])?);
        start = end + 1;
    }
    Ok(())
}

/// Exchanges, their distinct values, and a call record of each.
fn calls(capture: &[u8]) {
    let mut state = ScanState::default();
    let mut index = 0;
    each_record(capture, &mut state, |_, record, state| {
        if let Record::Good(mut exchange) = record {
            let call = CallRecord::derive(index, &mut exchange, &state.tape, &mut state.shared);
            if let Some(request) = exchange.request.take() {
                state.histories.remember(request);
            }
            black_box(call);
        }
        index += 1;
    });
    black_box(state);
}

/// The record's parts that an enrichment writes.
fn fold<'a>(capture: &'a [u8], observations: Option<Raw<'a>>) -> (Value<'a>, Interner<'a>) {
    let fold = Fold::scan(Task {
        rollout_id: "0-0",
        task_id: Some("task"),
        texts: [b"", capture],
        captured: true,
        has_files: true,
        sections: Sections {
            observations,
            ..Sections::default()
        },
        payloads: true,
        observability: true,
        ..Task::default()
    });
    let outcomes: Vec<_> = fold.jobs().iter().map(unconverted).collect();
    let (folded, shared) = fold.finish(&outcomes);
    let parts = [
        ("ng_model_call_capture", folded.capture),
        ("ng_agent_observations", folded.observations),
        ("ng_trajectory", folded.trajectory),
        ("ng_perf", folded.perf),
    ];
    let members = parts.into_iter().filter_map(|(name, change)| match change {
        Change::Set(value) => Some((Key::Name(name), value)),
        _ => None,
    });
    (Value::Object(members.collect()), shared)
}

fn unconverted(job: &Job<'_>) -> Outcome {
    match job {
        Job::System(id) | Job::Message(id) => Outcome::Items(vec![*id]),
        Job::Content(_) => Outcome::Decided {
            items: Vec::new(),
            answer: Vec::new(),
            reasoning: None,
            tool_calls: 1,
        },
    }
}
