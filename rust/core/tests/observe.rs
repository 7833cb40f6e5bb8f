//! Observations, their join and the projection: the golden cases, and properties that
//! hold for any JSON (contract, sections 6 and 7).

use std::io::Read;
use std::path::Path;

use proptest::prelude::*;
use rollfold_core::capture::Capture;
use rollfold_core::exchange::ScanState;
use rollfold_core::fold::{Change, Fold, Sections, Source, Task};
use rollfold_core::intern::Interner;
use rollfold_core::json::{self, Raw};
use rollfold_core::observe::{Bundle, NonFinite, attach_compactions, join, parse_verifiers};
use rollfold_core::render::render;
use rollfold_core::trajectory::{Observations, Producer, Projection, Sent};
use rollfold_core::value::Value;
use serde_json::{Value as Json, json};

/// The gaps that are ours alone (tests/golden/README.md), and those of turns, which are
/// made elsewhere.
const OURS: [&str; 4] = [
    "rollout_identity_unavailable",
    "rollout_identity_conflict",
    "tool_call_output_ambiguous",
    "turns_unavailable",
];

fn golden() -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/cases.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn as_json(value: &Value<'_>, shared: &Interner<'_>) -> Json {
    let mut text = Vec::new();
    render(value, shared, &mut text);
    serde_json::from_slice(&text).unwrap()
}

/// Numbers compare as numbers: 5 equals 5.0.
fn plain(value: &Json) -> Json {
    match value {
        Json::Number(number) => json!(number.as_f64()),
        Json::Array(list) => list.iter().map(plain).collect(),
        Json::Object(map) => Json::Object(map.iter().map(|(k, v)| (k.clone(), plain(v))).collect()),
        other => other.clone(),
    }
}

fn without_ours(gaps: &Json) -> Json {
    let kept = gaps
        .as_array()
        .unwrap()
        .iter()
        .filter(|gap| !OURS.contains(&gap["code"].as_str().unwrap()));
    kept.map(plain).collect()
}

fn redacts(value: &Json) -> bool {
    let gaps = value["gaps"].as_array();
    gaps.is_some_and(|gaps| {
        gaps.iter()
            .any(|gap| gap["code"] == "multimodal_history_redacted")
    })
}

#[test]
fn the_golden_cases() {
    let (mut joined, mut projected) = (0, 0);
    for case in golden() {
        let name = &case["name"];
        let result = &case["result"];
        let expected = &case["expected"];
        let files = case["files"].as_object().unwrap();
        let capture_text: String = files
            .iter()
            .filter(|(file, _)| file.ends_with(".capture.jsonl"))
            .map(|(_, text)| text.as_str().unwrap())
            .collect();
        let sent_text = result["ng_trajectory"].to_string();
        let observed_text = result["ng_agent_observations"].to_string();

        let mut state = ScanState::default();
        let mut capture = Capture::default();
        capture.read(capture_text.as_bytes(), &mut state, None);
        if redacts(&result["ng_agent_observations"]) || redacts(&result["ng_trajectory"]) {
            for call in &mut capture.calls {
                call.withhold_payloads();
            }
        }

        let raw = json::parse(observed_text.as_bytes()).unwrap();
        let bundle = (!raw.is_null()).then(|| Bundle::parse(raw, NonFinite::default()));
        let bundle = bundle.map(|bundle| {
            bundle.map(|mut bundle| {
                attach_compactions(&mut bundle, &capture.calls);
                let _ = join(&mut bundle, &[], &capture.calls);
                bundle
            })
        });
        let observations = match &bundle {
            None => Observations::None,
            Some(Err(_)) => Observations::Malformed,
            Some(Ok(bundle)) => {
                joined += 1;
                let got = as_json(&bundle.to_value(), &state.shared);
                let want = &expected["ng_agent_observations"];
                assert_eq!(plain(&got["records"]), plain(&want["records"]), "{name}");
                assert_eq!(
                    without_ours(&got["gaps"]),
                    without_ours(&want["gaps"]),
                    "{name}"
                );
                assert_eq!(got["source"], want["source"]);
                Observations::Good(bundle)
            }
        };

        let Some(want) = expected["ng_trajectory"].as_object() else {
            continue;
        };
        projected += 1;
        let raw = json::parse(sent_text.as_bytes()).unwrap();
        let sent = if raw.is_null() {
            Sent::Nothing
        } else {
            match Producer::parse(raw, NonFinite::default(), false) {
                Ok(producer) => Sent::Good(Box::new(producer)),
                Err(_) => Sent::Malformed,
            }
        };
        let ids = [&want["task_id"], &want["rollout_id"]].map(|id| id.as_str().unwrap_or_default());
        let projection = Projection::new(
            Some(ids[0].into()),
            ids[1].into(),
            sent,
            &observations,
            &capture.calls,
        );
        let none = Vec::new();
        let capture_gaps = expected["ng_model_call_capture"]["gaps"]
            .as_array()
            .unwrap_or(&none);
        let later = capture_gaps.iter().map(|gap| rollfold_core::value::Gap {
            code: gap["code"].as_str().unwrap().into(),
            invocation_id: None,
            detail: gap["detail"].as_str().map(Into::into),
        });
        let got = as_json(&projection.finish(Vec::new(), later), &state.shared);
        for key in [
            "invocations",
            "model_calls",
            "tool_calls",
            "task_id",
            "rollout_id",
        ] {
            assert_eq!(plain(&got[key]), plain(&want[key]), "{name} {key}");
        }
        assert_eq!(
            without_ours(&got["gaps"]),
            without_ours(&want["gaps"]),
            "{name}"
        );
    }
    assert_eq!((joined, projected), (237, 300));
}

/// JSON of the shape that agents send, some of it wrong.
fn bundles() -> impl Strategy<Value = Json> {
    let id = || prop::sample::select(vec!["", "a", "b", "c"]);
    let reference = (id(), id(), any::<bool>()).prop_map(|(call, response, model)| {
        let model = model.then(|| json!({"type": "responses_api_models", "name": "m"}));
        json!({"model_call_id": call, "model_ref": model, "response_id": response, "x": 1})
    });
    let references = move || prop::collection::vec(reference.clone(), 0..4);
    let other = prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(-1)),
        Just(json!(2.5)),
        Just(json!("completed")),
        Just(json!([{"type": "function_call_output", "call_id": "a", "output": [1]}])),
    ];
    let invocation =
        (id(), id(), references(), other.clone()).prop_map(|(id, parent, calls, other)| {
            json!({"kind": "agent_invocation", "invocation_id": id, "parent_invocation_id": parent,
               "model_calls": calls, "conversation": other, "later": {"k": [null]}})
        });
    let compaction =
        (id(), references(), references(), other.clone()).prop_map(|(id, calls, around, other)| {
            json!({"kind": "context_compaction", "invocation_id": id, "model_calls": calls,
                   "before_model_call": around.first(), "after_model_call": around.last(),
                   "summary": "s", "outcome": other})
        });
    let tool = (id(), id(), other.clone()).prop_map(|(id, call, other)| {
        json!({"kind": "tool_call", "invocation_id": id, "tool_call_id": call, "duration_ms": other})
    });
    let unknown = other
        .clone()
        .prop_map(|other| json!({"kind": "new_kind", "v": other}));
    let record = prop_oneof![4 => invocation, 2 => compaction, 1 => tool, 1 => unknown];
    (prop::collection::vec(record, 0..6), other, any::<bool>()).prop_map(
        |(records, gaps, claude)| {
            let source = if claude { "claude_code" } else { "some_agent" };
            let gaps = if gaps.is_array() {
                json!([{"code": "g", "later": 1}, {"code": "model_call_reference_conflict"}])
            } else {
                json!(null)
            };
            json!({"source": source, "records": records, "gaps": gaps, "later": [1]})
        },
    )
}

/// A capture of calls whose ids collide now and then.
fn captures() -> impl Strategy<Value = String> {
    let id = || prop::sample::select(vec![None, Some(""), Some("a"), Some("b"), Some("c")]);
    let call = (id(), id(), id(), any::<bool>()).prop_map(|(call, response, session, model)| {
        let model = model.then(|| json!({"type": "responses_api_models", "name": "m"}));
        let response = json!({"id": response, "output": []});
        json!({"model_call_id": call, "client_session_id": session, "model_ref": model,
               "dialect": "responses", "response": response})
        .to_string()
    });
    prop::collection::vec(call, 0..6).prop_map(|calls| calls.join("\n"))
}

fn joined(text: &str, capture: &str) -> Option<(String, Vec<Option<usize>>)> {
    let raw: Raw<'_> = json::parse(text.as_bytes()).unwrap();
    let mut state = ScanState::default();
    let mut read = Capture::default();
    read.read(capture.as_bytes(), &mut state, None);
    let mut bundle = Bundle::parse(raw, NonFinite::default()).ok()?;
    attach_compactions(&mut bundle, &read.calls);
    let owners = join(&mut bundle, &[], &read.calls).owners;
    let mut out = Vec::new();
    render(&bundle.to_value(), &state.shared, &mut out);
    Some((String::from_utf8(out).unwrap(), owners))
}

proptest! {
    #[test]
    fn joining_twice_is_joining_once(bundle in bundles(), capture in captures()) {
        if let Some(once) = joined(&bundle.to_string(), &capture) {
            let twice = joined(&once.0, &capture).expect("what we write is well-formed");
            prop_assert_eq!(once, twice);
        }
    }

    #[test]
    fn nothing_that_nobody_knows_is_lost(bundle in bundles()) {
        let Some((text, _)) = joined(&bundle.to_string(), "") else { return Ok(()) };
        let got: Json = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&got["later"], &bundle["later"]);
        for (got, sent) in got["records"].as_array().unwrap().iter()
            .zip(bundle["records"].as_array().unwrap())
        {
            for (key, value) in sent.as_object().unwrap() {
                prop_assert!(value.is_null() || &got[key] == value, "{}", key);
            }
        }
        if bundle["gaps"].is_array() {
            prop_assert_eq!(&got["gaps"][0]["later"], &json!(1));
        }
    }

    #[test]
    fn any_json_is_read_or_refused(bundle in bundles(), key in "source|records|gaps", value in any_json()) {
        let mut bundle = bundle;
        bundle[key] = value.clone();
        let _ = joined(&bundle.to_string(), "{}");
        let _ = joined(&value.to_string(), "{}");
        let text = value.to_string();
        let raw = json::parse(text.as_bytes()).unwrap();
        let _ = parse_verifiers(Some(raw), NonFinite::default());
        let _ = Producer::parse(raw, NonFinite::default(), false);
    }
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        "[a-z\u{0}\"]{0,4}".prop_map(Json::from),
    ];
    let key = "kind|records|model_calls|invocation_id|code|x";
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

/// Folds a result with a capture; gives the parts that the result gets.
fn enriched(result: &Json, capture: &str) -> Json {
    let mut result = result.clone();
    let part = |key: &str| {
        result
            .get(key)
            .filter(|v| !v.is_null())
            .map(Json::to_string)
    };
    let texts = [
        "ng_agent_observations",
        "ng_trajectory",
        "ng_model_call_capture",
    ]
    .map(part);
    let raws = [0, 1, 2].map(|n| {
        texts[n]
            .as_ref()
            .map(|t| json::parse(t.as_bytes()).unwrap())
    });
    let source = match result["_ng_trajectory_source"].as_str() {
        Some("agent") => Some(Source::Agent),
        Some(_) => Some(Source::Captures),
        None => None,
    };
    let fold = Fold::scan(Task {
        rollout_id: "1-0",
        task_id: Some("1"),
        texts: [b"", capture.as_bytes()],
        captured: true,
        has_files: true,
        sections: Sections {
            observations: raws[0],
            trajectory: raws[1],
            capture: raws[2],
            source,
            ..Sections::default()
        },
        payloads: true,
        observability: true,
        ..Task::default()
    });
    assert!(fold.jobs().is_empty());
    let (folded, shared) = fold.finish(&[]);
    let source = folded.source.map(|source| match source {
        Source::Agent => "agent",
        Source::Captures => "captures",
    });
    let parts = [
        ("ng_agent_observations", folded.observations),
        ("ng_trajectory", folded.trajectory),
        ("ng_model_call_capture", folded.capture),
        ("ng_perf", folded.perf),
    ];
    let mut set = Vec::new();
    for (key, change) in parts {
        match change {
            Change::Set(value) => set.push((key, Some(as_json(&value, &shared)))),
            Change::Remove => set.push((key, None)),
            Change::Keep => {}
        }
    }
    for (key, value) in set {
        match value {
            Some(value) => result[key] = value,
            None => drop(result.as_object_mut().unwrap().remove(key)),
        }
    }
    result["_ng_trajectory_source"] = json!(source);
    result
}

/// A trajectory that an agent sends: its own invocations, calls and tool calls.
fn sent() -> impl Strategy<Value = Json> {
    let id = || prop::sample::select(vec!["a", "b", "c"]);
    let ids = move || prop::collection::btree_set(id(), 0..3);
    (ids(), ids(), ids(), any::<bool>()).prop_map(|(invocations, calls, tools, idless)| {
        let invocations: Vec<_> = invocations
            .iter()
            .map(|id| json!({"kind": "agent_invocation", "invocation_id": id, "x": 1}))
            .collect();
        let mut calls: Vec<_> = calls
            .iter()
            .map(|id| json!({"model_call_id": id, "request": {"own": id}}))
            .collect();
        if idless {
            calls.insert(0, json!({"model_call_id": null, "response": "own"}));
        }
        let tools: Vec<_> = tools
            .iter()
            .map(|id| json!({"invocation_id": id, "tool_call_id": id, "output": 1}))
            .collect();
        json!({"rollout_id": "1-0", "task_id": "1", "invocations": invocations, "turns": [],
               "model_calls": calls, "tool_calls": tools, "gaps": [{"code": "own", "x": 1}]})
    })
}

proptest! {
    #[test]
    fn enriching_twice_is_enriching_once(
        bundle in prop::option::of(bundles()),
        trajectory in prop::option::of(sent()),
        capture in captures(),
    ) {
        // Error bodies alone: turns need converters.
        let capture = capture.replace("\"output\":[]", "\"error\":1");
        let result = json!({"ng_agent_observations": bundle, "ng_trajectory": trajectory});
        let once = enriched(&result, &capture);
        let twice = enriched(&once, &capture);
        prop_assert_eq!(once, twice);
    }
}

#[test]
fn tool_calls_count_for_the_trajectorys_invocations() {
    let tool = |id: &str| json!({"kind": "tool_call", "invocation_id": id, "tool_call_id": "t"});
    let invocation = json!({"kind": "agent_invocation", "invocation_id": "a"});
    let bundle = json!({"source": "s", "records": [invocation, tool("a"), tool("elsewhere")]});
    let got = enriched(&json!({"ng_agent_observations": bundle}), "");
    assert_eq!(
        got["ng_trajectory"]["tool_calls"].as_array().unwrap().len(),
        2
    );
    assert_eq!(got["ng_perf"]["num_tool_calls"], 1);
}
