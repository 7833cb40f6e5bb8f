//! How a stream ends: terminal events, errors, and what the progress says of them.

use super::*;

#[test]
fn errors_keep_what_came_before() {
    let text = json!({"choices": [{"index": 0, "delta": {"content": "x"}}]});
    let (response, category) = run(
        Dialect::Chat,
        &sse(&[text, json!({"error": {"message": "boom"}})]),
    );
    assert_eq!(response["choices"][0]["message"]["content"], "x");
    assert_eq!(response["error"]["message"], "boom");
    assert_eq!(category, Some("upstream_error"));
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "later"}});
    let (response, category) = run(Dialect::Messages, &named(std::slice::from_ref(&overloaded)));
    assert_eq!((response, category), (overloaded, Some("upstream_error")));
    let body = named(&[
        json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "error": null}}),
        json!({"type": "error", "code": "server_error", "message": "m", "param": null, "sequence_number": 3}),
    ]);
    let (response, category) = run(Dialect::Responses, &body);
    assert_eq!(
        response["error"],
        json!({"code": "server_error", "message": "m", "param": null})
    );
    assert_eq!(
        (&response["status"], category),
        (&json!("failed"), Some("upstream_error"))
    );
}

#[test]
fn terminal_events_and_their_categories() {
    for (kind, category) in [
        ("response.completed", None),
        ("response.incomplete", Some("incomplete")),
        ("response.failed", Some("upstream_error")),
    ] {
        let status = kind.rsplit_once('.').unwrap().1;
        let event = json!({"type": kind, "response": {"status": status, "output": []}});
        let (response, found) = run(Dialect::Responses, &named(&[event]));
        assert_eq!(
            (response["status"].as_str().unwrap(), found),
            (status, category)
        );
    }
    for (status, category) in [
        (408, "timeout"),
        (504, "timeout"),
        (429, "rate_limit"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (400, "client_error"),
        (500, "upstream_error"),
    ] {
        let found = assemble(Some(Dialect::Chat), b"data: [DONE]\n\n", Some(status));
        assert_eq!(found.error_category, Some(category));
    }
}

#[test]
fn unreadable_events_are_remembered_only_where_nothing_better_is_known() {
    let good = r#"data: {"choices":[{"index":0,"delta":{"content":"x"}}]}"#;
    let found = run(
        Dialect::Chat,
        &format!("data: {{oops\n\n{good}\n\ndata: [DONE]\n\n"),
    );
    assert_eq!(
        (
            found.0["choices"][0]["message"]["content"].as_str(),
            found.1
        ),
        (Some("x"), Some("capture_parse_error"))
    );
    assert_eq!(
        run(Dialect::Chat, &format!("data: {{oops\n\n{good}\n\n")).1,
        Some("stream_truncated")
    );
    // No blank line between events.
    let found = run(Dialect::Chat, &format!("{good}\n{good}\ndata: [DONE]\n\n"));
    assert_eq!(
        (
            found.0["choices"][0]["message"]["content"].as_str(),
            found.1
        ),
        (Some("xx"), None)
    );
}

#[test]
fn progress_names_the_first_token_and_the_terminal_event() {
    let first = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    );
    let text = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": "x"}}]})
    );
    let mut assembler = Assembler::new(Some(Dialect::Chat));
    assert_eq!(assembler.feed(first.as_bytes()), Progress::default());
    assert_eq!(
        assembler.feed(text.as_bytes()),
        Progress {
            first_token: true,
            terminal_offset: None
        }
    );
    let last = format!("{text}data: [DONE]\n\n");
    let offset = Some(text.len());
    assert_eq!(
        assembler.feed(last.as_bytes()),
        Progress {
            first_token: false,
            terminal_offset: offset
        }
    );
    assert_eq!(assembler.feed(b"data: [DONE]\n\n"), Progress::default());

    let mut assembler = Assembler::new(Some(Dialect::Messages));
    assert_eq!(
        assembler
            .feed(b"event: message_stop\ndata: {\"type\":")
            .terminal_offset,
        None
    );
    assert_eq!(
        assembler.feed(b"\"message_stop\"}\n").terminal_offset,
        Some(0)
    );
    assert_eq!(assembler.feed(b"\n").terminal_offset, None);
    assert_eq!(assembler.finish(Some(200)).error_category, None);
}
