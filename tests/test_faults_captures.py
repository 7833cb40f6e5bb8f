"""Faults of capture files (contract, section 3): what is broken costs itself alone."""

import json
import math

import orjson
import pytest

from rollfold import dumps
from rollfold.capture import CaptureStore
from tests.rollouts import (
    ROLLOUT_ID,
    calls_of,
    capture,
    capture_gaps,
    chat,
    codes,
    enrich,
    ids_of,
    line,
    observed,
    result_of,
    turns_of,
)

UNREADABLE = "model_call_capture_records_unreadable"


def one_unreadable(result):
    return (UNREADABLE, "count=1") in capture_gaps(result)


# 1 --- a torn tail


@pytest.mark.parametrize(
    "tail",
    [
        b'{"model_call_id":"b","dia',
        b'{"model_call_id":"b","x":"caf\xc3',
        b'{"model_call_id":"b","x":"\xf0\x9f\x98',
        b'{"model_call_id":"b"',
        b"{",
        b'"',
    ],
)
def test_a_torn_tail_costs_itself(tmp_path, tail):
    path = capture(tmp_path, chat("a"), tail, end=b"")
    CaptureStore(tmp_path).record(ROLLOUT_ID, chat("c"))
    result = enrich(tmp_path, delete_capture=True)
    assert ids_of(result) == [("a", 0), ("c", 2)]
    assert one_unreadable(result)
    assert path.exists()


def test_a_torn_tail_that_nobody_healed(tmp_path):
    capture(tmp_path, chat("a"), line(chat("b"))[:-7], end=b"")
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0)]
    assert one_unreadable(result)


def test_a_last_line_without_its_newline_that_parses_is_whole(tmp_path):
    capture(tmp_path, chat("a"), chat("b"), end=b"")
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 1)]
    assert capture_gaps(result) == []


# 2 --- a crash's padding


def test_nul_padding_after_a_line(tmp_path):
    path = tmp_path / f"{ROLLOUT_ID}.capture.jsonl"
    nul = b"\0" * 40
    path.write_bytes(line(chat("a")) + b"\n" + nul + line(chat("b")) + b"\n" + nul)
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 1)]
    assert one_unreadable(result)


def test_nul_padding_at_a_lines_end_and_on_a_line_alone(tmp_path):
    capture(tmp_path, line(chat("a")) + b"\0\0", b"\0" * 4096, chat("b"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 2)]
    assert one_unreadable(result)


# 3 --- objects back to back


@pytest.mark.parametrize("between", [b"", b" ", b"\t"])
def test_two_objects_on_a_line(tmp_path, between):
    capture(tmp_path, line(chat("b")) + between + line(chat("c")), chat("d"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("b", 0), ("c", 1), ("d", 2)]
    assert capture_gaps(result) == []


def test_whole_objects_then_a_broken_one(tmp_path):
    capture(tmp_path, line(chat("b")) + line(chat("c")) + b'{"model_call_id":"d', chat("e"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("b", 0), ("c", 1), ("e", 3)]
    assert one_unreadable(result)


def test_whole_objects_up_to_the_first_without_an_id_are_kept(tmp_path):
    capture(tmp_path, line(chat("b")) + line(chat(None)) + line(chat("c")) + b'{"x', chat("e"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("b", 0), ("e", 2)]
    assert one_unreadable(result)


@pytest.mark.parametrize("rest", [b"x", b"[]", b"1", b'"x"', b"}", b","])
def test_an_object_followed_by_anything_else_is_one_unreadable_record(tmp_path, rest):
    capture(tmp_path, line(chat("b")) + rest, chat("e"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("e", 1)]
    assert one_unreadable(result)


# 4 --- integers of any size

BIG = 18446744073709551616


@pytest.mark.parametrize("number", [BIG, -BIG, 10**400, 2**63, -(2**63) - 1])
def test_integers_keep_their_digits(tmp_path, number):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": number}}}
    request = {"messages": [], "tools": [{"name": "t", "input_schema": schema}]}
    CaptureStore(tmp_path).record(ROLLOUT_ID, chat("a", request=request))
    text = (tmp_path / f"{ROLLOUT_ID}.capture.jsonl").read_text()
    assert f'"maximum":{number}' in text.replace(" ", "")
    result = enrich(tmp_path, result_of("a"))
    body = result["ng_trajectory"]["model_calls"][0]["request"]
    assert body == request
    assert type(body["tools"][0]["input_schema"]["properties"]["n"]["maximum"]) is int
    assert f'"maximum":{number}' in dumps(result).decode().replace(" ", "")


def test_an_integer_of_too_many_digits_costs_its_line(tmp_path):
    kept, lost = "1" * 4300, "1" * 4301
    capture(
        tmp_path,
        b'{"model_call_id":"a","request":{"n":' + kept.encode() + b"}}",
        b'{"model_call_id":"b","request":{"n":' + lost.encode() + b"}}",
        chat("c"),
    )
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("c", 2)]
    assert one_unreadable(result)
    assert result["ng_trajectory"]["model_calls"][0]["request"] == {"n": int(kept)}


# 5 --- what is not JSON


def test_a_nan_that_reaches_the_writer_is_kept_as_text(tmp_path):
    response = chat("a")["response"]
    response["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": float("nan")}]}
    CaptureStore(tmp_path).record(ROLLOUT_ID, chat("a", response=response))
    (written,) = (tmp_path / f"{ROLLOUT_ID}.capture.jsonl").read_bytes().splitlines()
    exchange = orjson.loads(written)
    logprobs = exchange["response"]["choices"][0]["logprobs"]
    assert logprobs["content"][0]["logprob"] is None
    assert "NaN" in exchange["response_raw"]
    assert ids_of(enrich(tmp_path)) == [("a", 0)]


@pytest.mark.parametrize(
    "bad",
    [
        b'"latency_ms": NaN',
        b'"latency_ms": Infinity',
        b'"latency_ms": -Infinity',
        b'"latency_ms": 1e999',
        b'"latency_ms": 01',
        b'"latency_ms": +1',
        b'"latency_ms": .5',
        b'"latency_ms": "5"',
        b'"latency_ms": true',
        b'"status_code": 200.0',
        b'"status_code": "200"',
        b'"model_call_id": 5',
        b'"model_ref": "policy"',
        b'"model_ref": {"type": "responses_api_models", "name": "p", "url": "u"}',
        b'"response_source": "cache"',
        b'"upstream_attempted": 1',
        b'"request": {"x": "\\ud83d"}',
        b'"request": {"x": "\\ude00\\ud83d"}',
        b'"request": {"x": "\xff"}',
        b'"request": {"x": "\xed\xa0\xbd"}',
        b'"request": {"x": "\xc0\xaf"}',
        b'"request": {"x": "a\tb"}',
        b'"request": {"x": "\\x41"}',
        b'"request": {"x": "\\u00g1"}',
        b'"request": {"x": 1,}',
        b'"request": {"x": 1 "y": 2}',
        b"\"request\": {'x': 1}",
        b'"request": nul',
        b'"request": {"x": [1 2]}',
    ],
)
def test_a_line_that_is_not_strict_json_or_of_wrong_types_costs_itself(tmp_path, bad):
    capture(tmp_path, chat("a"), b'{"model_call_id":"b",' + bad + b"}", chat("c"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("c", 2)]
    assert one_unreadable(result)


@pytest.mark.parametrize(
    "bad", [b"[]", b"5", b"null", b'"x"', b"x", b"{}}", b"{", b"\xef\xbb\xbf{}"]
)
def test_a_line_that_is_no_object_costs_itself(tmp_path, bad):
    capture(tmp_path, chat("a"), bad, chat("c"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("c", 2)]
    assert one_unreadable(result)


@pytest.mark.parametrize(
    "good",
    [
        b"{}",
        b'{"later":[1e-300]}',
        b'{"request":[1],"response":"x"}',
        b'{"request_raw":5,"response_raw":{}}',
        b'{"latency_ms":5,"started_at":0}',
        b'{"latency_ms":-1.5}',
        b'{"dialect":"later"}',
        b' {"model_call_id" : null } ',
        b'{"request":{"x":"\\ud83d\\ude00\\u0000\x7f"}}',
        b'{"model_ref":{"name":"p","type":"responses_api_models"}}',
    ],
)
def test_a_line_that_says_little_is_a_call(tmp_path, good):
    capture(tmp_path, chat("a"), good, chat("c"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), (None, 1), ("c", 2)]
    assert capture_gaps(result) == []


def test_duplicate_keys_the_last_wins(tmp_path):
    capture(tmp_path, b'{"model_call_id":"a","request":{"x":1,"x":2},"model_call_id":"b"}')
    result = enrich(tmp_path)
    assert ids_of(result) == [("b", 0)]
    assert result["ng_trajectory"]["model_calls"][0]["request"] == {"x": 2}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"x":NaN}', {"_raw": '{"x":NaN}'}),
        ('{"x":1}', {"x": 1}),
        ('{"x":1', {"_raw": '{"x":1'}),
        ("", {"_raw": ""}),
        ("[1]", [1]),
        ("5", 5),
        ("null", None),
        (f'{{"x":{BIG}}}', {"x": BIG}),
        ('{"x":"\\ud83d"}', {"_raw": '{"x":"\\ud83d"}'}),
        ({"x": 1}, {"x": 1}),
        (None, {}),
        (5, {}),
        ([], {}),
    ],
)
def test_arguments_of_a_tool_call(tmp_path, text, arguments):
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": text}}],
    }
    response = {"choices": [{"index": 0, "message": message}]}
    capture(tmp_path, chat("a", response=response))
    (call,) = calls_of(enrich(tmp_path))
    assert call["tool_calls"] == [{"call_id": "t", "name": "f", "arguments": arguments}]


def test_whatever_is_emitted_is_strict_json(tmp_path):
    capture(tmp_path, chat("a"), b'{"latency_ms": NaN}', chat("b", latency_ms=1e308))
    capture(tmp_path, chat("c", latency_ms=1e308), chat("d", latency_ms=1e308), rollout_id="5-5")
    result = enrich(tmp_path, result_of("a"), rollout_latency_ms=1.0)
    json.loads(dumps(result), parse_constant=pytest.fail)
    other = enrich(tmp_path, row={"_ng_task_index": 5, "_ng_rollout_index": 5})
    latency = other["ng_model_call_capture"]["metrics"]["latency_total_ms"]
    assert latency is None or math.isfinite(latency)


# 6 --- nesting


@pytest.mark.parametrize(("depth", "read"), [(300, True), (1000, True), (100_000, False)])
def test_nesting(tmp_path, depth, read):
    deep = b'{"model_call_id":"b","request":{"x":' + b"[" * depth + b"]" * depth + b"}}"
    capture(tmp_path, chat("a"), deep, chat("c"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), *([("b", 1)] if read else []), ("c", 2)]
    assert one_unreadable(result) is not read


@pytest.mark.parametrize(("depth", "read"), [(1022, True), (1023, False)])
def test_the_deepest_nesting_that_is_read(tmp_path, depth, read):
    """Two objects around the arrays: 1,024 levels are read, 1,025 are not."""
    deep = b'{"model_call_id":"b","request":{"x":' + b"[" * depth + b"]" * depth + b"}}"
    capture(tmp_path, deep)
    result = enrich(tmp_path)
    assert one_unreadable(result) is not read
    if read:
        dumps(result["ng_trajectory"]["model_calls"][0]["request"])


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_a_hundred_thousand_open_brackets(tmp_path, opening):
    capture(tmp_path, opening * 100_000, chat("c"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("c", 1)]


# 7 --- line ends


def test_one_crlf_among_lf(tmp_path):
    capture(tmp_path, line(chat("a")) + b"\r", chat("b"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 1)]
    assert capture_gaps(result) == []


@pytest.mark.parametrize("split", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_no_other_character_ends_a_line(tmp_path, split):
    request = {"messages": [{"role": "user", "content": f"a{split}b"}]}
    text = json.dumps(chat("a", request=request), ensure_ascii=split < " ").encode()
    capture(tmp_path, text, chat("b"))
    result = enrich(tmp_path, result_of("a"))
    assert ids_of(result) == [("a", 0), ("b", 1)]
    assert turns_of(result)[0]["question"] == request["messages"]


def test_blank_lines_take_no_index_and_a_bom_is_dropped(tmp_path):
    capture(tmp_path, b"\xef\xbb\xbf" + line(chat("a")), b"", b" \t\r", b"\r", chat("b"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 1)]
    assert capture_gaps(result) == []


# 8 --- a record appended after the merge


def test_a_record_appended_after_the_merge(tmp_path):
    capture(tmp_path, chat("a"), chat("b"))
    result = result_of("a", "b", "c")
    early = enrich(tmp_path, json.loads(json.dumps(result)))
    assert "model_call_reference_unmatched" in codes(early["ng_agent_observations"])
    CaptureStore(tmp_path).record(ROLLOUT_ID, chat("c"))
    twice = enrich(tmp_path, early)
    once = enrich(tmp_path, result)
    assert dumps(twice) == dumps(once)
    assert len(turns_of(once)) == 3


# 9 --- two calls of one response id


def test_a_response_id_that_agent_and_judge_share(tmp_path):
    shared = chat("a")["response"]
    capture(tmp_path, chat("a", response=shared), chat("j", response=shared))
    result = enrich(tmp_path, result_of("a"))
    assert [turn["model_calls"][0]["model_call_id"] for turn in turns_of(result)] == ["a"]
    unowned = [
        gap["detail"]
        for gap in result["ng_agent_observations"]["gaps"]
        if gap["code"] == "model_call_ownership_unavailable"
    ]
    assert unowned == ["capture:j:call_index=1"]


def test_a_response_id_that_two_calls_share_names_neither(tmp_path):
    shared = chat("a")["response"]
    capture(tmp_path, chat("a", response=shared), chat("j", response=shared))
    reference = {"model_ref": chat("a")["model_ref"], "response_id": shared["id"]}
    bundle = observed()
    bundle["records"][0]["model_calls"] = [reference]
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle))
    assert turns_of(result) == []
    assert codes(result["ng_agent_observations"]) == [
        "model_call_reference_ambiguous",
        "model_call_ownership_unavailable",
        "model_call_ownership_unavailable",
    ]


# 10 --- a capture that nobody claims


@pytest.mark.parametrize("rollout_id", ["9f3c", "3-10", "3-1-a1", "03-1", "3-1.old"])
def test_a_capture_of_another_rollout(tmp_path, rollout_id):
    path = capture(tmp_path, chat("a"), rollout_id=rollout_id)
    result = enrich(tmp_path, delete_capture=True)
    assert capture_gaps(result) == [("model_call_capture_no_records", None)]
    assert calls_of(result) == []
    assert path.exists()


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "directory missing",
        "empty",
        "blank",
        "marker",
        "marker beside calls",
        "unreadable",
    ],
)
def test_what_a_capture_without_calls_says(tmp_path, kind):
    path = tmp_path / f"{ROLLOUT_ID}.capture.jsonl"
    marker = tmp_path / f"{ROLLOUT_ID}.capture.incomplete"
    directory = tmp_path
    if kind == "directory missing":
        directory = tmp_path / "not there"
    elif kind == "empty":
        path.touch()
    elif kind == "blank":
        path.write_bytes(b"\n \n\r\n")
    elif kind == "unreadable":
        path.mkdir()
    elif kind.startswith("marker"):
        marker.touch()
        if kind != "marker":
            capture(tmp_path, chat("a"))
    want = {"marker": "incomplete", "marker beside calls": "incomplete", "unreadable": "unreadable"}
    code = f"model_call_capture_{want.get(kind, 'no_records')}"
    assert capture_gaps(enrich(directory)) == [(code, None)]


# replayed records


def test_a_replayed_record_is_dropped_and_said_once(tmp_path):
    capture(tmp_path, chat("a"), chat("a"), chat("b"), chat("a"))
    result = enrich(tmp_path)
    assert ids_of(result) == [("a", 0), ("b", 2)]
    assert capture_gaps(result) == [("model_call_duplicate", "a")]


def test_a_record_that_differs_is_kept_without_its_id(tmp_path):
    path = capture(tmp_path, chat("a"), chat("a", answer="other"), chat("a"))
    result = enrich(tmp_path, result_of("a"), delete_capture=True)
    assert ids_of(result) == [("a", 0), (None, 1)]
    assert capture_gaps(result) == [("model_call_duplicate", "a")]
    assert len(turns_of(result)) == 1
    assert path.exists()


def test_stale_records_go_first_and_keep_their_index(tmp_path):
    old = chat("a", started_at=5.0)
    capture(tmp_path, old, chat("a"), chat("b", started_at=None), chat("c"))
    result = enrich(tmp_path, not_before=10.0)
    assert ids_of(result) == [("a", 1), ("b", 2), ("c", 3)]
    assert capture_gaps(result) == [("model_call_capture_stale_records", "count=1")]
