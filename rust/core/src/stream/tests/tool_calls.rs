//! Tool calls of a chat stream, whose pieces find their call.

use super::*;

#[test]
fn fault_13_tool_calls_open_by_id() {
    let two = vec![
        (json!("t1"), json!("ft1"), json!("{\"a\":1}")),
        (json!("t2"), json!("ft2"), json!("{\"b\":2}")),
    ];
    for (one, other) in [
        (json!("none"), json!("none")),
        (json!(0), json!(0)),
        (json!(null), json!(1)),
        (json!(1), json!(0)),
    ] {
        let (first, second) = (open("t1", one, "{\"a\":1}"), open("t2", other, "{\"b\":2}"));
        assert_eq!(calls(&[json!({"tool_calls": [first, second]})]), two);
        assert_eq!(
            calls(&[
                json!({"tool_calls": [first]}),
                json!({"tool_calls": [second]})
            ]),
            two
        );
    }
    let rest = json!({"index": 0, "function": {"arguments": "1}"}});
    let one = [(json!("t1"), json!("ft1"), json!("{\"a\":1}"))];
    assert_eq!(
        calls(&[json!({"tool_calls": [open("t1", json!(0), "{\"a\":"), rest]})]),
        one
    );
    for id in [json!(null), json!(""), json!("t1")] {
        let mut rest = rest.clone();
        rest["id"] = id;
        assert_eq!(
            calls(&[json!({"tool_calls": [open("t1", json!(0), "{\"a\":"), rest]})]),
            one
        );
    }
}

#[test]
fn pieces_find_their_call() {
    let piece = |index: Value, text: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
    let found = calls(&[
        json!({"tool_calls": [open("t1", json!(0), "")]}),
        json!({"tool_calls": [open("t2", json!(1), "")]}),
        piece(json!(0), "{}"),
        piece(json!(1), "[1"),
        piece(json!(null), "]"),
        piece(json!(7), " "),
    ]);
    assert_eq!(found[0].2, "{}");
    assert_eq!(found[1].2, "[1] ");
}

#[test]
fn calls_without_ids_stay_apart() {
    let call = |name: &str| json!({"index": 0, "id": "", "type": "function", "function": {"name": name, "arguments": "{\"x\":1}"}});
    assert_eq!(
        calls(&[json!({"tool_calls": [call("f"), call("g")]})]).len(),
        2
    );
    assert_eq!(
        calls(&[
            json!({"tool_calls": [call("f")]}),
            json!({"tool_calls": [call("f")]})
        ])
        .len(),
        2
    );
    let opened = json!({"index": 1, "function": {"name": "g", "arguments": ""}});
    assert_eq!(
        calls(&[json!({"tool_calls": [call("f"), opened]})]).len(),
        2
    );
}

#[test]
fn a_name_in_pieces_is_joined_and_one_repeated_is_not() {
    let named = |name: &str, arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]});
    let found = calls(&[
        json!({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "get_", "arguments": ""}}]}),
        named("weather", ""),
        named("get_weather", "{\"a\""),
        named("get_weather", ":1}"),
    ]);
    assert_eq!(
        found,
        [(json!("t"), json!("get_weather"), json!("{\"a\":1}"))]
    );
}
