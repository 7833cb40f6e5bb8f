//! Items that were reported, cut off or numbered anew.

use super::{item, named, run, says};
use crate::stream::Dialect;
use serde_json::{Value, json};

#[test]
fn fault_17_reported_items_are_put_back_in_order() {
    let reasoning = json!({"type": "reasoning", "id": "rs", "summary": []});
    for output in [
        json!([]),
        json!(null),
        json!([says("m", "42")]),
        json!([reasoning]),
        json!([reasoning, says("m", "42")]),
    ] {
        let body = named(&[
            json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}),
            item(0, reasoning.clone()),
            item(1, says("m", "42")),
            json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output, "usage": {"input_tokens": 1}}}),
        ]);
        let (response, category) = run(Dialect::Responses, &body);
        assert_eq!(
            response,
            json!({"id": "r", "status": "completed", "output": [reasoning, says("m", "42")], "usage": {"input_tokens": 1}})
        );
        assert_eq!(category, None);
    }
}

#[test]
fn items_that_the_final_response_numbers_anew_are_not_doubled() {
    let body = |done: Value, last: Value| {
        named(&[
            item(0, done),
            json!({"type": "response.completed", "response": {"status": "completed", "output": [last]}}),
        ])
    };
    let (response, _) = run(Dialect::Responses, &body(says("a", "x"), says("b", "x")));
    assert_eq!(response["output"], json!([says("b", "x")]));
    let (response, _) = run(Dialect::Responses, &body(says("", "x"), says("b", "y")));
    assert_eq!(response["output"], json!([says("b", "y")]));
    let (response, _) = run(Dialect::Responses, &body(says("a", "x"), says("b", "y")));
    assert_eq!(response["output"], json!([says("a", "x"), says("b", "y")]));
    let mut poor = says("a", "");
    poor["content"] = json!([]);
    let (response, _) = run(Dialect::Responses, &body(says("a", "x"), poor));
    assert_eq!(response["output"], json!([says("a", "x")]));
}

#[test]
fn fault_18_what_a_cut_stream_added_up_to() {
    let created = json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": [], "usage": null}});
    let delta = json!({"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "item_id": "m2", "delta": "par"});
    let added = json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "m2", "role": "assistant", "status": "in_progress", "content": []}});
    for events in [
        vec![
            created.clone(),
            item(0, says("m", "42")),
            added,
            delta.clone(),
        ],
        vec![created, item(0, says("m", "42")), delta],
    ] {
        let (response, category) = run(Dialect::Responses, &named(&events));
        assert_eq!(category, Some("stream_truncated"));
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["usage"], json!(null));
        assert_eq!(response["output"][0], says("m", "42"));
        assert_eq!(
            response["output"][1],
            json!({
                "type": "message", "id": "m2", "role": "assistant", "status": "incomplete",
                "content": [{"type": "output_text", "text": "par"}],
            })
        );
    }
}
