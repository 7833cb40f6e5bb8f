//! The faults of the field as small inputs.

#![allow(clippy::format_collect, clippy::needless_pass_by_value)] // small bodies, read more often than run

use super::{Assembled, Assembler, Dialect, Progress, assemble};
use serde_json::{Value, json};

fn sse(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

fn named(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn run(dialect: Dialect, body: &str) -> (Value, Option<&'static str>) {
    let Assembled {
        response,
        error_category,
    } = assemble(Some(dialect), body.as_bytes(), Some(200));
    let response = response.map_or(Value::Null, |json| {
        serde_json::from_slice(&json.into_vec()).unwrap()
    });
    (response, error_category)
}

fn chat(deltas: &[Value]) -> (Value, Option<&'static str>) {
    let chunks: Vec<Value> = deltas
        .iter()
        .map(|delta| json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}))
        .collect();
    run(Dialect::Chat, &(sse(&chunks) + "data: [DONE]\n\n"))
}

fn message(deltas: &[Value]) -> Value {
    chat(deltas).0["choices"][0]["message"].clone()
}

#[test]
fn fault_11_halves_of_a_surrogate_pair_join_across_chunks() {
    let body = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"content":"hi \ud83d"}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"content":"\ude00!"}}]}"#,
        "\n\n",
        "data: [DONE]\n\n",
    );
    let (response, category) = run(Dialect::Chat, body);
    assert_eq!(response["choices"][0]["message"]["content"], "hi 😀!");
    assert_eq!(category, None);
    let (response, category) = run(Dialect::Chat, &body.replace("\\ude00", ""));
    assert_eq!(response["choices"][0]["message"]["content"], "hi \u{fffd}!");
    assert_eq!(category, None);
    let delta = |kind: &str, member: &str, text: &str| {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{{\"type\":\"{kind}\",\"{member}\":\"{text}\"}}}}\n\n"
        )
    };
    for (kind, member) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
        let body = delta(kind, member, "\\ud83d") + &delta(kind, member, "\\ude00");
        assert_eq!(run(Dialect::Messages, &body).0["content"][0][member], "😀");
    }
    let delta = |text: &str| {
        format!(
            "data: {{\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"{text}\"}}\n\n"
        )
    };
    let (response, _) = run(Dialect::Responses, &(delta("\\ud83d") + &delta("\\ude00")));
    assert_eq!(response["output"][0]["content"][0]["text"], "😀");
}

#[test]
fn fault_12_only_cr_and_lf_end_lines() {
    let body =
        sse(&[json!({"choices": [{"index": 0, "delta": {"content": "a\u{2028}b\u{85}c"}}]})])
            + "data: [DONE]\n\n";
    for body in [
        body.clone(),
        body.replace('\n', "\r"),
        body.replace('\n', "\r\n"),
    ] {
        let (response, category) = run(Dialect::Chat, &body);
        assert_eq!(
            response["choices"][0]["message"]["content"],
            "a\u{2028}b\u{85}c"
        );
        assert_eq!(category, None);
    }
}

fn calls(deltas: &[Value]) -> Vec<(Value, Value, Value)> {
    let message = message(deltas);
    let calls = message["tool_calls"].as_array().unwrap();
    calls
        .iter()
        .map(|call| {
            (
                call["id"].clone(),
                call["function"]["name"].clone(),
                call["function"]["arguments"].clone(),
            )
        })
        .collect()
}

fn open(id: &str, index: Value, arguments: &str) -> Value {
    let mut call = json!({"id": id, "type": "function", "function": {"name": format!("f{id}"), "arguments": arguments}});
    if index != json!("none") {
        call["index"] = index;
    }
    call
}

#[test]
fn fault_14_each_choice_has_its_own() {
    let chunk = |index: i64, text: &str, finish: Value| json!({"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]});
    let body = sse(&[
        chunk(0, "A", json!(null)),
        chunk(1, "B", json!(null)),
        chunk(1, "1", json!("length")),
        chunk(0, "0", json!("stop")),
    ]);
    let (response, category) = run(Dialect::Chat, &body);
    assert_eq!(
        category, None,
        "every choice finished: complete without [DONE]"
    );
    let choices = response["choices"].as_array().unwrap();
    let brief: Vec<_> = choices
        .iter()
        .map(|choice| {
            (
                &choice["index"],
                &choice["message"]["content"],
                &choice["finish_reason"],
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            (&json!(0), &json!("A0"), &json!("stop")),
            (&json!(1), &json!("B1"), &json!("length"))
        ]
    );
    let cut = sse(&[chunk(0, "A", json!("stop")), chunk(1, "B", json!(null))]);
    assert_eq!(run(Dialect::Chat, &cut).1, Some("stream_truncated"));
}

fn block(index: i64, block: Value, deltas: &[Value]) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
    for delta in deltas {
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

fn stop() -> Value {
    json!({"type": "message_stop"})
}

fn input(json: &str) -> Value {
    json!({"type": "input_json_delta", "partial_json": json})
}

#[test]
fn fault_15_inputs_in_pieces() {
    for kind in ["tool_use", "server_tool_use", "mcp_tool_use"] {
        let start = json!({"type": kind, "id": "t", "name": "search", "input": {}});
        let mut events = block(0, start.clone(), &[input("{\"q\":"), input("\"x\"}")]);
        events.extend(block(1, start.clone(), &[input("")]));
        events.extend(block(2, start.clone(), &[]));
        events.extend(block(3, start.clone(), &[input("{\"q\": \"cut")]));
        events.extend(block(4, start, &[input("{\"q\": NaN}")]));
        events.push(stop());
        let (response, category) = run(Dialect::Messages, &named(&events));
        let inputs: Vec<_> = response["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| &block["input"])
            .collect();
        assert_eq!(
            inputs,
            [
                &json!({"q": "x"}),
                &json!({}),
                &json!({}),
                &json!({"_raw": "{\"q\": \"cut"}),
                &json!({"_raw": "{\"q\": NaN}"}),
            ]
        );
        assert_eq!(category, None);
    }
}

#[test]
fn fault_16_blocks_keep_to_themselves() {
    let thinking = |text: &str| json!({"type": "thinking_delta", "thinking": text});
    let mut events = block(
        0,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            thinking("one"),
            json!({"type": "signature_delta", "signature": "sig"}),
        ],
    );
    events.extend(block(
        1,
        json!({"type": "redacted_thinking", "data": "xyz"}),
        &[],
    ));
    events.extend(block(
        2,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[thinking("two")],
    ));
    events.extend(block(
        3,
        json!({"type": "text", "text": ""}),
        &[json!({"type": "text_delta", "text": "hi"})],
    ));
    events.push(stop());
    let (response, _) = run(Dialect::Messages, &named(&events));
    assert_eq!(
        response["content"],
        json!([
            {"type": "thinking", "thinking": "one", "signature": "sig"},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "thinking", "thinking": "two", "signature": ""},
            {"type": "text", "text": "hi"},
        ])
    );
}

fn item(index: i64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn says(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[test]
fn fault_19_the_same_reasoning_twice_counts_once() {
    let both = |text: &str| json!({"reasoning": text, "reasoning_content": text});
    assert_eq!(
        message(&[both("a"), both("b")]),
        json!({"reasoning_content": "ab"})
    );
    assert_eq!(
        message(&[json!({"reasoning": "a"}), json!({"reasoning": "b"})]),
        json!({"reasoning": "ab"})
    );
    assert_eq!(
        message(&[json!({"reasoning": "a", "reasoning_content": ""})]),
        json!({"reasoning": "a"})
    );
    assert_eq!(
        message(&[json!({"reasoning": "a", "reasoning_content": "b"})]),
        json!({"reasoning": "a", "reasoning_content": "b"})
    );
}

#[test]
fn fault_22_usage_is_cumulative() {
    for (delta, expected) in [
        (
            json!({"input_tokens": 0, "output_tokens": 42}),
            (310, 50, 42),
        ),
        (
            json!({"input_tokens": null, "cache_read_input_tokens": null, "output_tokens": 42}),
            (310, 50, 42),
        ),
        (
            json!({"input_tokens": 400, "output_tokens": 42}),
            (400, 50, 42),
        ),
    ] {
        let body = named(&[
            json!({"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 310, "cache_read_input_tokens": 50, "output_tokens": 1}}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": delta}),
            stop(),
        ]);
        let (response, category) = run(Dialect::Messages, &body);
        let count = |key: &str| response["usage"][key].as_i64().unwrap();
        let found = (
            count("input_tokens"),
            count("cache_read_input_tokens"),
            count("output_tokens"),
        );
        assert_eq!(found, expected);
        assert_eq!(response["stop_reason"], "end_turn");
        assert_eq!(category, None);
    }
}

#[test]
fn chat_usage_is_the_last_with_counts() {
    let body = sse(&[
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}], "usage": null}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
        json!({"choices": [], "usage": {}}),
    ]);
    assert_eq!(
        run(Dialect::Chat, &body).0["usage"],
        json!({"prompt_tokens": 3, "completion_tokens": 2})
    );
}

mod cuts;
mod ends;
mod items;
mod parse;
mod servers;
mod tool_calls;
