//! Streams as servers send them that do not do as the reference says.

use super::{calls, chat, item, message, named, run, says, sse, stop};
use crate::stream::{Assembler, Dialect, assemble};
use serde_json::{Value, json};

fn choice(members: Value) -> Value {
    json!({"id": "c", "choices": [members]})
}

fn content(body: &str) -> (Value, Option<&'static str>) {
    let (response, category) = run(Dialect::Chat, body);
    (
        response["choices"][0]["message"]["content"].clone(),
        category,
    )
}

#[test]
fn comments_marks_and_odd_fields() {
    let text = json!({"choices": [{"index": 0, "delta": {"content": "x"}}]});
    for body in [
        format!("\u{feff}data: {text}\n\ndata: [DONE]\n\n"),
        format!(": OPENROUTER PROCESSING\n\n: again\ndata:{text}\n\ndata:[DONE]\n\n"),
        format!("event: ping\n\nid: 7\nretry: 10\ndata: {text}\n\n\n\ndata: [DONE]"),
        format!("data: {text}\n\nevent: message\ndata: \"[DONE]\"\n\n"),
        format!("data: {text}\n\ndata:\n\ndata\n\ndata:  [DONE] \n\n"),
        format!("data: {text}  \ndata: [DONE]\n\n"),
    ] {
        assert_eq!(content(&body), (json!("x"), None), "{body}");
    }
}

#[test]
fn a_null_delta_or_message_is_none() {
    let body = sse(&[
        choice(
            json!({"index": 0, "delta": {"role": "assistant", "content": "x"}, "message": null}),
        ),
        choice(json!({"index": 0, "delta": null, "finish_reason": "stop"})),
    ]);
    assert_eq!(
        run(Dialect::Chat, &body),
        (
            json!({"id": "c", "object": "chat.completion", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}),
            None
        )
    );
    let body = sse(&[json!({"id": "c", "choices": null})]);
    assert_eq!(run(Dialect::Chat, &body).0["choices"], json!([]));
}

#[test]
fn a_whole_message_fills_in_and_does_not_repeat() {
    let whole = json!({"role": "assistant", "content": "xy", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]});
    let body = sse(&[
        choice(json!({"index": 0, "delta": {"content": "xy"}})),
        choice(json!({"index": 0, "message": whole, "finish_reason": "stop"})),
    ]);
    let found = run(Dialect::Chat, &body).0["choices"][0]["message"].clone();
    assert_eq!(found["content"], "xy");
    assert_eq!(found["tool_calls"], whole["tool_calls"]);
}

#[test]
fn content_in_parts() {
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    let text = |text: &str| json!({"type": "text", "text": text});
    let found = message(&[
        json!({"content": ""}),
        json!({"content": [thinking]}),
        json!({"content": [text("a")]}),
        json!({"content": [text("b")]}),
        json!({"content": "c"}),
    ]);
    assert_eq!(found["content"], json!([thinking, text("abc")]));
    let found = message(&[json!({"content": "a"}), json!({"content": [thinking]})]);
    assert_eq!(found["content"], json!([text("a"), thinking]));
}

#[test]
fn members_that_gateways_add() {
    let details =
        |text: &str| json!([{"type": "reasoning.text", "text": text, "index": 0, "format": "f"}]);
    let found = message(&[
        json!({"role": "assistant", "reasoning": "a", "reasoning_details": details("a")}),
        json!({"role": "assistant", "reasoning": "b", "reasoning_details": details("b")}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "enc", "index": 0}]}),
        json!({"images": [{"type": "image_url", "index": 0, "image_url": {"url": "data:1"}}]}),
        json!({"images": [{"type": "image_url", "index": 0, "image_url": {"url": "data:2"}}]}),
    ]);
    assert_eq!(found["reasoning"], "ab");
    assert_eq!(found["role"], "assistant");
    assert_eq!(
        found["reasoning_details"],
        json!([
            {"type": "reasoning.text", "text": "ab", "index": 0, "format": "f"},
            {"type": "reasoning.encrypted", "data": "enc", "index": 0},
        ])
    );
    assert_eq!(found["images"][1]["image_url"]["url"], "data:2");
    let found = calls(&[
        json!({"tool_calls": {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{"}}}),
        json!({"tool_calls": {"index": 0, "function": {"name": null, "arguments": "}"}}}),
    ]);
    assert_eq!(found, [(json!("t"), json!("f"), json!("{}"))]);
    let signed = json!({"id": "t", "function": {"name": "f", "arguments": {"a": 1}}, "extra_content": {"google": {"thought_signature": "s"}}});
    assert_eq!(
        message(&[json!({"tool_calls": [signed]})])["tool_calls"],
        json!([signed])
    );
}

#[test]
fn token_ids_of_all_chunks() {
    let chunk =
        |ids: Value| choice(json!({"index": 0, "delta": {"content": "a"}, "token_ids": ids}));
    let body = sse(&[
        chunk(json!(null)),
        chunk(json!([5])),
        chunk(json!([5])),
        chunk(json!([6, 7])),
        chunk(json!(null)),
    ]);
    assert_eq!(
        run(Dialect::Chat, &body).0["choices"][0]["token_ids"],
        json!([5, 5, 6, 7])
    );
}

#[test]
fn usage_in_odd_places_counts_where_there_is_no_other() {
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 2});
    for last in [
        choice(json!({"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage})),
        json!({"choices": [], "x_groq": {"id": "r", "usage": usage}}),
    ] {
        let body = sse(&[
            choice(json!({"index": 0, "delta": {"content": "x"}})),
            last.clone(),
        ]);
        assert_eq!(run(Dialect::Chat, &body).0["usage"], usage);
        let top = json!({"choices": [], "usage": {"prompt_tokens": 9}});
        let body = sse(&[top, last]);
        assert_eq!(
            run(Dialect::Chat, &body).0["usage"],
            json!({"prompt_tokens": 9})
        );
    }
}

#[test]
fn errors_in_every_form() {
    let text = choice(json!({"index": 0, "delta": {"content": "x"}}));
    for error in [
        json!({"error": {"message": "m"}}).to_string(),
        json!({"error": "m"}).to_string(),
        json!({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}).to_string(),
        json!({"id": "c", "error": {"message": "m"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}).to_string(),
    ] {
        let body = format!("{}data: {error}\n\ndata: [DONE]\n\n", sse(std::slice::from_ref(&text)));
        let (response, category) = run(Dialect::Chat, &body);
        assert_eq!(category, Some("upstream_error"), "{error}");
        assert_eq!(response["choices"][0]["message"]["content"], "x");
        assert!(response["error"].to_string().contains('m'), "{response}");
    }
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let body = "event: error\ndata: Internal Server Error\n\n";
        assert_eq!(
            run(dialect, body),
            (
                json!({"message": "Internal Server Error"}),
                Some("upstream_error")
            )
        );
        let mut assembler = Assembler::new(Some(dialect));
        assert_eq!(assembler.feed(body.as_bytes()).terminal_offset, Some(0));
    }
    let null = sse(&[
        choice(json!({"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"})),
        json!({"error": null, "choices": []}),
    ]);
    assert_eq!(run(Dialect::Chat, &null).1, None);
    let step =
        json!({"type": "response.mcp_call.failed", "item_id": "m", "error": {"message": "tool"}});
    assert_eq!(
        run(Dialect::Responses, &named(&[step])).1,
        Some("stream_truncated")
    );
}

#[test]
fn blocks_that_were_never_started_or_share_an_index() {
    let delta = |index: Value, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let text = |text: &str| json!({"type": "text_delta", "text": text});
    let (response, _) = run(
        Dialect::Messages,
        &named(&[
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
            delta(json!(0), json!({"type": "thinking_delta", "thinking": "t"})),
            delta(json!(0), text("a")),
            delta(json!(null), text("b")),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "c"}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "c"}}),
            delta(
                json!(5),
                json!({"type": "input_json_delta", "partial_json": "{}"}),
            ),
            stop(),
        ]),
    );
    assert_eq!(
        response["content"],
        json!([
            {"type": "thinking", "thinking": "t"},
            {"type": "text", "text": "ab"},
            {"type": "text", "text": "c"},
            {"type": "tool_use", "input": {}},
        ])
    );
    let start = json!({"type": "message_start", "message": {"id": "m", "content": "hi"}});
    assert_eq!(
        run(Dialect::Messages, &named(&[start])).0["content"],
        json!([{"type": "text", "text": "hi"}])
    );
}

#[test]
fn events_without_names_and_with_a_mark_at_the_end() {
    let body = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[]}}\n\ndata: [DONE]\n\n";
    assert_eq!(
        run(Dialect::Messages, body),
        (json!({"id": "m", "content": []}), None)
    );
    let completed =
        "event: response.completed\ndata: {\"response\":{\"id\":\"r\",\"output\":[]}}\n\n";
    assert_eq!(
        run(Dialect::Responses, completed),
        (json!({"id": "r", "output": []}), None)
    );
    let (response, category) = run(Dialect::Responses, "data: [DONE]\n\n");
    assert_eq!(
        (response, category),
        (json!(null), Some("stream_truncated"))
    );
}

#[test]
fn the_first_event_tells_an_unknown_dialect() {
    for (body, key) in [
        (
            sse(&[json!({"choices": [{"delta": {"content": "x"}}]})]),
            "choices",
        ),
        (
            named(&[json!({"type": "message_start", "message": {"content": []}})]),
            "content",
        ),
        (named(&[item(0, says("m", "x"))]), "output"),
    ] {
        let response = assemble(None, body.as_bytes(), None).response.unwrap();
        let response: Value = serde_json::from_slice(&response.into_vec()).unwrap();
        assert!(response[key].is_array(), "{response}");
    }
}

#[test]
fn items_that_share_an_index_or_have_no_ids() {
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let completed =
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let (response, _) = run(
        Dialect::Responses,
        &named(&[item(0, call("a")), item(0, call("b")), completed.clone()]),
    );
    assert_eq!(response["output"], json!([call("a"), call("b")]));
    let added = |id: &str| json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "call_id": id, "name": "f", "arguments": ""}});
    let events = [
        added("a"),
        item(0, call("a")),
        added("b"),
        item(0, call("b")),
        completed,
    ];
    let (response, _) = run(Dialect::Responses, &named(&events));
    assert_eq!(response["output"], json!([call("a"), call("b")]));
}

#[test]
fn events_that_name_another_id_than_their_item() {
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "A", "role": "assistant", "content": []}});
    let delta = |text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "B", "delta": text});
    let whole = json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "item_id": "B", "text": "xy"});
    let completed = |output: Value| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    for (output, id) in [(json!([]), "C"), (json!([says("D", "xy")]), "D")] {
        let events = [
            added.clone(),
            delta("x"),
            delta("y"),
            whole.clone(),
            item(0, says("C", "xy")),
            whole.clone(),
            completed(output),
        ];
        let (response, _) = run(Dialect::Responses, &named(&events));
        assert_eq!(response["output"], json!([says(id, "xy")]));
    }
    // No index either: the deltas are an item of their own, but say nothing new.
    let loose = json!({"type": "response.output_text.delta", "item_id": "B", "delta": "xy"});
    let (response, _) = run(
        Dialect::Responses,
        &named(&[added, loose, completed(json!([says("D", "xy")]))]),
    );
    assert_eq!(response["output"], json!([says("D", "xy")]));
}

#[test]
fn a_huge_event_and_a_deep_one() {
    let text = "é".repeat(300_000);
    let body = sse(&[choice(
        json!({"index": 0, "delta": {"content": text}, "finish_reason": "stop"}),
    )]);
    let mut assembler = Assembler::new(Some(Dialect::Chat));
    for chunk in body.as_bytes().chunks(1000) {
        assembler.feed(chunk);
    }
    let response: Value =
        serde_json::from_slice(&assembler.finish(None).response.unwrap().into_vec()).unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], text);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let (_, category) = chat(&[json!({"content": "x"})]);
    assert_eq!(category, None);
    let body = format!("data: {{\"x\":{deep}}}\n\ndata: [DONE]\n\n");
    assert_eq!(run(Dialect::Chat, &body).1, Some("capture_parse_error"));
}
