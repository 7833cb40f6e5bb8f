"""What holds of the fold for any input."""

import copy
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollfold import dumps, enrich_run_result
from rollfold.errors import RolloutIdError
from tests import golden_cases
from tests.rollouts import (
    ROLLOUT_ID,
    ROW,
    capture,
    capture_gaps,
    chat,
    enrich,
    ids_of,
    line,
    result_of,
)

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def directory():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


# --- any bytes as a capture file

good = st.sampled_from([line(chat(name)) for name in "abc"])
noise = st.binary(max_size=40) | st.sampled_from(
    [b"{", b"}", b"{}", b"[", b'"', b"\\", b"\0", b"\r", b" ", b"NaN", b"\xef\xbb\xbf", b'{"a":1}']
)
fragments = st.lists(good | noise | good.map(lambda g: g[: len(g) // 2]), max_size=12)


@given(st.binary(max_size=300) | fragments.map(b"".join) | fragments.map(b"\n".join))
@quick
def test_any_bytes_are_read(data):
    with directory() as path:
        file = path / f"{ROLLOUT_ID}.capture.jsonl"
        file.write_bytes(data)
        result = enrich(path, result_of("a"))
        json.loads(dumps(result))
        assert result["reward"] == 1.0
        assert file.read_bytes() == data


@given(st.lists(st.tuples(st.binary(max_size=30), st.booleans()), max_size=6))
@quick
def test_no_good_line_is_lost(noises):
    """Between noise of any bytes, each good line of its own is a call."""
    with directory() as path:
        lines = []
        wanted = []
        for number, (noise_line, crlf) in enumerate(noises):
            lines.append(noise_line)
            call_id = f"good-{number}"
            wanted.append(call_id)
            lines.append(line(chat(call_id)) + (b"\r" if crlf else b""))
        capture(path, *lines)
        result = enrich(path)
        got = [call_id for call_id, _ in ids_of(result) if call_id]
        assert [call_id for call_id in got if call_id.startswith("good-")] == wanted
        indices = [index for _, index in ids_of(result)]
        assert indices == sorted(set(indices))


@given(st.integers(0, 2000), st.sampled_from("abc"))
@quick
def test_a_cut_anywhere_costs_the_last_line_alone(cut, name):
    whole = line(chat(name))
    with directory() as path:
        capture(path, chat("x"), whole[: cut % len(whole)], chat("y"))
        result = enrich(path)
        assert [i for i, _ in ids_of(result)] == ["x", "y"]
        lost = cut % len(whole) > 0
        assert capture_gaps(result) == (
            [("model_call_capture_records_unreadable", "count=1")] if lost else []
        )


# --- enriching twice equals once

case_numbers = st.integers(0, len(golden_cases.cases()) - 1)


@given(case_numbers)
@quick
def test_enriching_twice_is_enriching_once(number):
    case = golden_cases.cases()[number]
    with directory() as path:
        row, result = golden_cases.lay_out(case, path)
        enrich_run_result(row, result, capture_dirs=[path], **case["args"])
        once = copy.deepcopy(result)
        enrich_run_result(row, result, capture_dirs=[path], **case["args"])
        assert golden_cases.differences(result, once) == []


@given(case_numbers)
@quick
def test_a_result_that_went_through_json_enriches_the_same(number):
    case = golden_cases.cases()[number]
    with directory() as path:
        row, result = golden_cases.lay_out(case, path)
        enrich_run_result(row, result, capture_dirs=[path], **case["args"])
        read = json.loads(dumps(result))
        again = enrich_run_result(row, read, capture_dirs=[path], **case["args"])
        assert golden_cases.differences(again, json.loads(dumps(result))) == []


# --- nothing touched


@given(case_numbers)
@quick
def test_a_shallow_copys_original_is_unchanged_deeply(number):
    case = golden_cases.cases()[number]
    with directory() as path:
        row, original = golden_cases.lay_out(case, path)
        before_row, before = copy.deepcopy(row), copy.deepcopy(original)
        shallow = dict(original)
        enrich_run_result(row, shallow, capture_dirs=[path], **case["args"])
        assert original == before
        assert list(original) == list(before)
        assert row == before_row
        for key in original:
            if not key.startswith(("ng_", "_ng_")):
                assert shallow[key] is original[key]


# --- payloads

json_texts = st.text(max_size=30)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(json_texts, json_values, max_size=4), json_values)
@quick
def test_payloads_come_back_as_they_were(extra, content):
    request = {**extra, "messages": [{"role": "user", "content": content}]}
    with directory() as path:
        capture(path, chat("a", request=request, response={**extra, "choices": []}))
        result = enrich(path, result_of("a"))
        (call,) = result["ng_trajectory"]["model_calls"]
        assert same(call["request"], request)
        assert same(call["response"], {**extra, "choices": []})
        assert same(result["ng_trajectory"]["turns"][0]["question"], request["messages"])
        assert same(
            json.loads(dumps(result))["ng_trajectory"]["model_calls"][0]["request"], request
        )


@given(json_texts)
@quick
def test_raw_text_comes_back_byte_for_byte(text):
    raw = text + "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") + "\0\u2028\r\n"
    with directory() as path:
        capture(path, chat("a", response_raw=raw, response=None) | {"response": None})
        (call,) = enrich(path, result_of("a"))["ng_trajectory"]["model_calls"]
        assert call["response"].encode() == raw.encode()


def same(left, right):
    """Equal, with the types of numbers and the sign of zero."""
    return json.dumps(left) == json.dumps(right)


# --- identity

keys = st.sampled_from(
    ["_ng_task_index", "_ng_rollout_index", "_ng_attempt_index", "_ng_rollout_id", "task_id"]
)
odd = st.none() | st.booleans() | st.integers(-2, 2**65) | st.floats() | st.text(max_size=5)


@given(st.dictionaries(keys, odd, max_size=5), st.dictionaries(keys, odd, max_size=3))
@quick
def test_any_identity_is_enriched_or_refused_by_name(row, more):
    with directory() as path:
        result = result_of("a", **more)
        before = copy.deepcopy(result)
        refused = None
        try:
            enrich_run_result(row, result, capture_dirs=[path], observability_enabled=True)
        except RolloutIdError as error:
            refused = str(error)
        if refused is None:
            dumps(result["ng_agent_observations"])
        else:
            assert refused.startswith("_ng_")
            assert "\n" not in refused
            assert repr(result) == repr(before)


def test_the_row_of_these_tests_is_not_touched():
    assert set(ROW) == {"_ng_task_index", "_ng_rollout_index", "agent_ref"}
