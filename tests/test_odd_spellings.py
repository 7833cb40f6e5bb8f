"""Escaped and duplicate keys, numbers at their limits: the text decides nothing (section 3).

A result that comes as text may spell a key in any way that JSON allows; what is made of
it is what is made of the same result as a dict.
"""

import json
import math

import pytest

from rollfold import dumps, enrich_run_result_json, unpack
from tests.rollouts import (
    ROW,
    calls_of,
    capture,
    chat,
    codes,
    enrich,
    line,
    messages,
    observed,
    result_of,
    turns_of,
)

FORMS = ["full", "packed"]


def escaped(text):
    """Give the text of a JSON string with every character escaped."""
    return '"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"'


def respelled(value, key):
    """Give JSON text in which a key, wherever it stands, is escaped."""
    return json.dumps(value).replace(f'"{key}":', f"{escaped(key)}:").encode()


def spelled_with_junk_first(value, key):
    """Give JSON text in which a key comes twice, the first time with junk."""
    return json.dumps(value).replace(f'"{key}":', f'"{key}": "junk", {escaped(key)}:').encode()


def as_text(directory, text, form):
    made = enrich_run_result_json(
        dict(ROW), text, form=form, capture_dirs=[directory], observability_enabled=True
    )
    return json.loads(made) if form == "full" else unpack(made)


def whole_result():
    output = {"type": "function_call_output", "call_id": "t1", "output": "out"}
    tool = {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t1"}
    compaction = {"kind": "context_compaction", "invocation_id": "root", "outcome": "completed"}
    return result_of(
        ng_agent_observations=observed("a", conversation=[output], more=[tool, compaction]),
        ng_verifier_invocations=[{"invocation_id": "judge", "model_calls": []}],
        ng_trajectory={"task_id": "3", "model_calls": [{"model_call_id": "own"}]},
        resolved=True,
    )


KEYS = [
    "ng_agent_observations",
    "ng_verifier_invocations",
    "ng_trajectory",
    "resolved",
    "source",
    "records",
    "kind",
    "type",
    "call_id",
    "output",
    "invocation_id",
    "tool_call_id",
    "model_call_id",
    "conversation",
    "reward",
]


@pytest.mark.parametrize("spelling", [respelled, spelled_with_junk_first])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("form", FORMS)
def test_a_results_keys_in_any_spelling(tmp_path, key, spelling, form):
    capture(tmp_path, chat("a"), chat("b"))
    want = enrich(tmp_path, whole_result())
    assert as_text(tmp_path, spelling(whole_result(), key), form) == want


@pytest.mark.parametrize("key", ["messages", "system", "model", "content", "usage", "id"])
@pytest.mark.parametrize("spelling", [respelled, spelled_with_junk_first])
def test_an_exchanges_keys_in_any_spelling(tmp_path, key, spelling):
    request = {"model": "m", "system": "S", "messages": [{"role": "user", "content": "q"}]}
    exchange = messages("a", [{"type": "text", "text": "one"}], request=request)
    del exchange["response"]["role"]
    plain, odd = tmp_path / "plain", tmp_path / "odd"
    for directory, text in ((plain, line(exchange)), (odd, spelling(exchange, key))):
        directory.mkdir()
        capture(directory, text)
    assert enrich(odd, result_of("a")) == enrich(plain, result_of("a"))


@pytest.mark.parametrize("form", ["dict", *FORMS])
def test_messages_that_are_no_list_stay_as_they_came(tmp_path, form):
    for asked in (5, "q", {"content": "q"}, [5]):
        request = {"system": "S", "messages": asked}
        capture(tmp_path, messages("a", [{"type": "text", "text": "one"}], request=request))
        result = result_of("a")
        if form == "dict":
            enrich(tmp_path, result)
        else:
            result = as_text(tmp_path, json.dumps(result).encode(), form)
        (turn,) = turns_of(result)
        kept = asked if isinstance(asked, list) else [asked]
        assert turn["question"] == [{"role": "system", "content": "S"}, *kept]
        assert turn["answer"] == [{"type": "text", "text": "one"}]
        assert codes(result["ng_trajectory"]).count("turn_content_unconverted") == 1


@pytest.mark.parametrize(
    ("count", "good"),
    [(0, True), (10**400, True), (-1, False), (-(10**400), False), (1.0, False), (True, False)],
)
def test_a_count_of_any_length(tmp_path, count, good):
    compaction = {"kind": "context_compaction", "invocation_id": "root", "tokens_before": count}
    result = enrich(tmp_path, result_of(ng_agent_observations=observed(more=[compaction])))
    assert ("agent_observations_invalid" in codes(result["ng_trajectory"])) is not good


def test_turn_numbers_that_one_double_cannot_tell_apart(tmp_path):
    turn = {"invocation_id": "root", "timestamp": 1.0, "step_count": 0}
    turns = [{**turn, "turn_no": number} for number in (2**53, 2**53 + 1)]
    result = enrich(tmp_path, result_of(ng_trajectory={"turns": turns}))
    assert [turn["turn_no"] for turn in turns_of(result)] == [2**53, 2**53 + 1]


@pytest.mark.parametrize("response_id", ["r1", None])
def test_an_empty_call_id_is_no_id_in_perf_too(tmp_path, response_id):
    exchange = chat("", response={"id": response_id, "choices": [], "usage": {"prompt_tokens": 7}})
    capture(tmp_path, exchange)
    reference = {"model_ref": exchange["model_ref"], "response_id": "r1"}
    observations = observed(model_calls=[reference])
    result = enrich(tmp_path, result_of(ng_agent_observations=observations))
    assert len(calls_of(result)) == 1
    assert result["ng_perf"].get("prompt_tokens") == (7 if response_id else None)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_json_has_no_word_for_is_there_in_every_form(tmp_path, number):
    capture(tmp_path, chat("a"))
    result = result_of("a", _ng_task_index=number)
    want = json.loads(dumps(enrich(tmp_path, dict(result))))
    assert want["_ng_task_index"] is None
    for form in FORMS:
        assert as_text(tmp_path, result, form) == want


@pytest.mark.parametrize("value", [{1}, object(), {"x": b""}])
@pytest.mark.parametrize("form", FORMS)
def test_what_json_has_no_word_for_is_told_with_its_key(tmp_path, value, form):
    options = {"form": form, "capture_dirs": [tmp_path], "observability_enabled": True}
    for row, result, told in (
        (ROW, result_of(other=value), "result: other: "),
        ({**ROW, "agent_ref": value}, result_of(), "row: agent_ref: "),
    ):
        with pytest.raises(TypeError, match=f"^{told}"):
            enrich_run_result_json(row, result, **options)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("ending", [{}, {"_ng_omitted_rollout": "never_started"}])
@pytest.mark.parametrize("form", FORMS)
def test_a_body_in_several_lines_gives_a_record_in_one(tmp_path, end, ending, form):
    capture(tmp_path, chat("a"))
    result = whole_result() | ending | {"other": {"deep": [1, {"x": "a\nb\r"}]}}
    text = json.dumps(result, indent=1).replace("\n", end).encode()
    options = {"capture_dirs": [tmp_path], "observability_enabled": True}
    made = enrich_run_result_json(dict(ROW), text, form=form, **options)
    assert not {b"\n"[0], b"\r"[0]} & set(made)
    assert as_text(tmp_path, text, form) == enrich(tmp_path, result)


@pytest.mark.parametrize("text", [b'{"a":"x\ny"}', b'{"a":1\n2}', b'{\n"a":1}}'])
def test_a_break_where_none_may_be_is_an_error_still(text):
    with pytest.raises(ValueError, match=r"^result: "):
        enrich_run_result_json(dict(ROW), text, capture_dirs=[], observability_enabled=True)


@pytest.mark.parametrize("others", [0, 10, 30, 50_000])
@pytest.mark.parametrize("again", [1, 3])
def test_of_many_keys_the_last_of_two_wins_at_the_firsts_place(tmp_path, others, again):
    """Also where there are more than one would look through one by one."""
    members = [f'"key{number}":{number}' for number in range(others)]
    members += [f'{escaped("model")}:"m{number}"' for number in range(again)]
    text = '{"model":"first",' + ",".join(members) + "}"
    want = json.loads(text)
    request = line(chat("a", request={"here": 0})).replace(b'{"here": 0}', text.encode())
    capture(tmp_path, request)
    body = f'{{"reward":1.0,"other":{text},{text[1:]}'.encode()
    made = as_text(tmp_path, body, "full")
    assert made["ng_trajectory"]["model_calls"][0]["request"] == want
    assert list(made)[:3] == ["reward", "other", "model"]
    assert made["model"] == want["model"] == f"m{again - 1}"
    assert as_text(tmp_path, body, "packed") == made
    assert calls_of(enrich(tmp_path, json.loads(body)))[0]["model"] == "m-1"
