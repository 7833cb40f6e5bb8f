//! What a recorded stream holds at most: under 2.5 times its size, in every dialect, for
//! one big event as for many small ones, fed in small chunks as whole.

use rollfold_core::store::{Body, Facts, Response, Stream, compose};
use rollfold_core::stream::Dialect;
use serde_json::{Value, json};

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

const SIZE: usize = 1_000_000;

/// Text as models write it: lines, quotes, other scripts.
fn text(len: usize) -> String {
    "He said: \"é 的 😀\"\n\tand went on and on and on. "
        .chars()
        .cycle()
        .take(len)
        .collect()
}

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn chat(delta: &Value) -> String {
    data(
        &json!({"id": "c", "object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
    )
}

/// The streams of a dialect: what is said comes in `count` pieces.
fn streams(count: usize) -> Vec<(String, Dialect, String)> {
    let mut streams = Vec::new();
    let piece = text(SIZE / count);
    let mut add = |name: &str, dialect, body: String| {
        streams.push((format!("{name} in {count}"), dialect, body));
    };
    for (name, delta) in [
        ("content", json!({"content": piece})),
        ("reasoning", json!({"reasoning_content": piece})),
        ("refusal", json!({"refusal": piece})),
        (
            "arguments",
            json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": piece}}]}),
        ),
    ] {
        add(
            name,
            Dialect::Chat,
            chat(&delta).repeat(count) + "data: [DONE]\n\n",
        );
    }
    let block = |kind: &str, delta: &Value| {
        data(&json!({"type": "message_start", "message": {"id": "m", "content": []}}))
            + &data(
                &json!({"type": "content_block_start", "index": 0, "content_block": {"type": kind}}),
            )
            + &data(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
                .repeat(count)
            + &data(&json!({"type": "message_stop"}))
    };
    add(
        "text",
        Dialect::Messages,
        block("text", &json!({"type": "text_delta", "text": piece})),
    );
    add(
        "thinking",
        Dialect::Messages,
        block(
            "thinking",
            &json!({"type": "thinking_delta", "thinking": piece}),
        ),
    );
    add(
        "broken input",
        Dialect::Messages,
        block(
            "tool_use",
            &json!({"type": "input_json_delta", "partial_json": piece}),
        ),
    );
    let input = serde_json::to_string(&json!({"text": text(SIZE)})).unwrap();
    let chars: Vec<char> = input.chars().collect();
    let pieces = chars.chunks(chars.len().div_ceil(count)).map(|piece| {
        let piece: String = piece.iter().collect();
        data(&json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}))
    });
    let start =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}});
    add(
        "input",
        Dialect::Messages,
        data(&start) + &pieces.collect::<String>() + &data(&json!({"type": "message_stop"})),
    );
    let delta = json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": piece});
    add("cut off", Dialect::Responses, data(&delta).repeat(count));
    let delta = json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece});
    add("arguments", Dialect::Responses, data(&delta).repeat(count));
    let item = |text: &str| {
        json!({"type": "message", "id": "i", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    let items: Vec<Value> = (0..count).map(|_| item(&piece)).collect();
    let done = json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": items}});
    add("completed", Dialect::Responses, data(&done));
    streams
}

/// One body with everything a Responses stream says again and again.
fn said_again(count: usize) -> String {
    let piece = text(SIZE / 5 / count);
    let whole = piece.repeat(count);
    let at = |kind: &str, more: Value| {
        let mut event =
            json!({"type": kind, "output_index": 0, "content_index": 0, "item_id": "i"});
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        data(&event)
    };
    let part = json!({"type": "output_text", "text": whole, "annotations": []});
    let item = json!({"type": "message", "id": "i", "role": "assistant", "content": [part]});
    at(
        "response.output_item.added",
        json!({"item": {"type": "message", "id": "i", "content": []}}),
    ) + &at("response.output_text.delta", json!({"delta": piece})).repeat(count)
        + &at("response.output_text.done", json!({"text": whole}))
        + &at("response.content_part.done", json!({"part": part}))
        + &at("response.output_item.done", json!({"item": item}))
        + &data(
            &json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}}),
        )
}

fn logprobs(count: usize) -> String {
    let token = json!({"token": "word", "logprob": -0.25, "bytes": [119, 111, 114, 100],
        "top_logprobs": [{"token": "word", "logprob": -0.25, "bytes": null}]});
    let each = SIZE / token.to_string().len() / count;
    let tokens = vec![token; each];
    data(&json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "w"}, "logprobs": {"content": tokens}}]}))
        .repeat(count)
        + "data: [DONE]\n\n"
}

#[test]
fn a_stream_peaks_under_two_and_a_half_times_its_size() {
    let mut cases = Vec::new();
    for count in [1, 3, 500] {
        cases.extend(streams(count));
        cases.push((
            format!("said again in {count}"),
            Dialect::Responses,
            said_again(count),
        ));
        cases.push((
            format!("logprobs in {count}"),
            Dialect::Chat,
            logprobs(count),
        ));
    }
    let facts = Facts {
        model_call_id: "a",
        dialect: "chat",
        status_code: Some(200),
        ..Facts::default()
    };
    let mut over = Vec::new();
    for (name, dialect, body) in &cases {
        let whole = body.len();
        for (chunk, bound) in [(997, None), (997, Some(whole)), (whole, None)] {
            let profiler = dhat::Profiler::builder()
                .testing()
                .trim_backtraces(Some(1))
                .build();
            let mut stream = Stream::new(Some(*dialect), bound);
            for chunk in body.as_bytes().chunks(chunk) {
                stream.push(chunk);
            }
            let line = compose(&facts, Body::new(None), Response::Stream(Box::new(stream)));
            let peak = dhat::HeapStats::get().max_bytes;
            drop((line, profiler));
            if peak * 2 > whole * 5 {
                over.push(format!(
                    "{name}, {whole} bytes by {chunk}, bound {bound:?}: {peak}"
                ));
            }
        }
    }
    assert!(over.is_empty(), "\n{}", over.join("\n"));
}
