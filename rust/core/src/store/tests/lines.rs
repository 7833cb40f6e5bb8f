//! Lines of a capture, from the bodies of its calls.

use super::super::*;
use crate::json;
use crate::stream::Dialect;
use proptest::prelude::*;

fn body(text: &[u8]) -> Body {
    let mut body = Body::new(None);
    body.push(text);
    body
}

fn facts() -> Facts<'static> {
    Facts {
        model_call_id: "c\"1",
        dialect: "chat",
        server_name: Some("policy"),
        started_at: 1_700_000_000.25,
        completed_at: 1_700_000_001.5,
        latency_ms: 1250.0,
        status_code: Some(200),
        ..Facts::default()
    }
}

fn line(facts: &Facts<'_>, request: &[u8], response: &[u8]) -> Vec<u8> {
    compose(facts, body(request), Response::Whole(body(response))).joined()
}

fn get(line: &[u8], key: &str) -> String {
    let value = json::parse(line).expect("strict").get(key);
    value.map_or_else(
        || "absent".into(),
        |v| String::from_utf8_lossy(v.bytes()).into_owned(),
    )
}

#[test]
fn good_bodies_keep_their_bytes() {
    let written = line(
        &facts(),
        b" {\"n\": 18446744073709551616,\r\n \"f\": 1.10} ",
        b"{}\n",
    );
    let expected = concat!(
        r#"{"model_call_id":"c\"1","dialect":"chat","model_ref":{"type":"responses_api_models","#,
        r#""name":"policy"},"started_at":1700000000.25,"completed_at":1700000001.5,"#,
        r#""latency_ms":1250.0,"latency_ttft_ms":null,"status_code":200,"error_category":null,"#,
        r#""request":{"n": 18446744073709551616,   "f": 1.10},"response":{}}"#
    );
    assert_eq!(String::from_utf8(written).unwrap(), expected);
}

#[test]
fn what_json_does_not_know_is_mended_and_kept_as_it_came() {
    let odd = [
        (
            &br#"{"p":NaN,"q":[-Infinity,1e999]}"#[..],
            r#"{"p":null,"q":[null,null]}"#,
        ),
        (br#"{"t":"a\ud83d"}"#, "{\"t\":\"a\u{fffd}\"}"),
        (b"{\"t\":\"\xff\"}", "{\"t\":\"\u{fffd}\"}"),
    ];
    for (text, mended) in odd {
        let written = line(&facts(), text, text);
        for side in ["request", "response"] {
            assert_eq!(get(&written, side), mended);
            let raw = json::parse(&written)
                .unwrap()
                .get(&format!("{side}_raw"))
                .unwrap();
            assert_eq!(raw.as_str().unwrap(), String::from_utf8_lossy(text));
        }
        assert_eq!(get(&written, "error_category"), "null");
    }
}

#[test]
fn what_is_no_object_is_kept_raw() {
    let deep = [b"{\"a\":".repeat(1023), b"[]".to_vec(), b"}".repeat(1023)].concat();
    for text in [&b"<html>"[..], b"[1]", b"{},{}", b"{}]", b"{\"a\":", &deep] {
        let written = line(&facts(), b"{}", text);
        assert_eq!(get(&written, "response"), "null");
        assert_eq!(get(&written, "error_category"), "\"capture_parse_error\"");
        let raw = json::parse(&written).unwrap().get("response_raw").unwrap();
        assert_eq!(raw.as_str().unwrap().as_bytes(), text);
    }
    let written = line(
        &Facts {
            status_code: Some(502),
            ..facts()
        },
        b"{}",
        b"<html>",
    );
    assert_eq!(get(&written, "error_category"), "\"upstream_error\"");
    let written = line(&facts(), b"", b"");
    assert_eq!(get(&written, "request_raw"), "absent");
    assert_eq!(get(&written, "error_category"), "null");
    let just = [b"{\"a\":".repeat(1022), b"[]".to_vec(), b"}".repeat(1022)].concat();
    assert_ne!(get(&line(&facts(), b"{}", &just), "response"), "null");
}

#[test]
fn bounds_keep_the_beginning() {
    let mut request = Body::new(Some(4));
    request.push(b"{\"a\"");
    request.push(b":1}");
    let mut stream = Stream::new(Some(Dialect::Chat), Some(10));
    assert_eq!(
        stream.push(b"data: {\"choices\":[]}\n\n").terminal_offset,
        None
    );
    assert_eq!(
        stream.push(b"data: x\n\ndata: [DONE]\n\n").terminal_offset,
        Some(9)
    );
    let written = compose(&facts(), request, Response::Stream(Box::new(stream))).joined();
    assert_eq!(get(&written, "truncated"), r#"["request","response"]"#);
    assert_eq!(get(&written, "request_raw"), r#""{\"a\"""#);
    assert_eq!(get(&written, "response_raw"), r#""data: {\"ch""#);
    assert_eq!(
        get(&written, "response") + &get(&written, "request"),
        "nullnull"
    );
    assert_eq!(get(&written, "error_category"), "null");
}

#[test]
fn a_stream_without_its_content_type_is_seen() {
    let text = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let written = line(&facts(), b"{}", text);
    assert!(get(&written, "response").contains("\"hi\""));
    assert_eq!(get(&written, "error_category"), "null");
}

proptest! {
    #[test]
    fn any_bodies_make_one_strict_line(
        request in prop::collection::vec(any::<u8>(), 0..60),
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
        bound in prop::option::of(0usize..50),
    ) {
        let mut stream = Stream::new(Some(Dialect::Messages), bound);
        for chunk in &chunks {
            stream.push(chunk);
        }
        let written =
            compose(&facts(), body(&request), Response::Stream(Box::new(stream))).joined();
        prop_assert!(json::parse(&written).is_ok());
        prop_assert!(!written.contains(&b'\n'));
        let whole = chunks.concat();
        if bound.is_none() && !whole.is_empty() {
            let raw = json::parse(&written).unwrap().get("response_raw").unwrap();
            let raw = raw.as_str().unwrap().into_owned();
            prop_assert_eq!(raw, String::from_utf8_lossy(&whole));
        }
    }

    #[test]
    fn text_cut_anywhere_is_the_text(text in "\\PC{0,30}", cuts in prop::collection::vec(1usize..5, 40)) {
        let mut stream = Stream::new(None, None);
        let mut rest = text.as_bytes();
        for cut in cuts {
            let (chunk, left) = rest.split_at(cut.min(rest.len()));
            stream.push(chunk);
            rest = left;
        }
        stream.push(rest);
        let written =
            compose(&facts(), body(b"{}"), Response::Stream(Box::new(stream))).joined();
        let raw = json::parse(&written).unwrap().get("response_raw");
        let raw = raw.map(|raw| raw.as_str().unwrap().into_owned()).unwrap_or_default();
        prop_assert_eq!(raw, text);
    }
}
