"""The golden cases: what goes in, what today's readers get (tests/golden/README.md)."""

import copy
import json

import orjson
import pytest

from rollfold import enrich_run_result
from tests import golden_cases
from tests.golden_cases import comparable, differences

CASES = golden_cases.cases()
MESSAGES = golden_cases.messages_cases()


def enriched(case, directory):
    row, result = golden_cases.lay_out(case, directory)
    back = enrich_run_result(row, result, capture_dirs=[directory], **case["args"])
    assert back is result
    return orjson.loads(orjson.dumps(result))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case, tmp_path):
    got = comparable(enriched(case, tmp_path), case["masks"])
    want = comparable(case["expected"], case["masks"])
    assert differences(got, want) == []


def without_ids(value):
    """Content as the Messages cases hold it: no ids of items, arguments parsed."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    kept = {}
    for key, inner in value.items():
        if key == "id" and kind in {"message", "reasoning"}:
            continue
        parse = key == "arguments" and kind == "function_call"
        kept[key] = json.loads(inner) if parse else without_ids(inner)
    return kept


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case["name"])
def test_golden_messages(case, tmp_path):
    turns = enriched(case, tmp_path)["ng_trajectory"]["turns"]
    keys = ("question", "answer", "reasoning_content", "step_count")
    got = [{key: turn[key] for key in keys} for turn in turns]
    assert differences(without_ids(got), without_ids(case["turns"]), "turns") == []


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case["name"])
def test_golden_messages_ids_are_stable(case, tmp_path):
    """Equal messages are equal items, in every turn and in every run."""
    first = enriched(case, tmp_path)["ng_trajectory"]["turns"]
    assert enriched(case, tmp_path)["ng_trajectory"]["turns"] == first
    for turn in first:
        made = [
            item
            for part in ("question", "answer", "reasoning_content")
            for item in turn[part] or []
            if isinstance(item, dict) and isinstance(item.get("id"), str)
        ]
        for item in made:
            if item.get("type") == "reasoning":
                assert item["id"].startswith("rs_")
            elif item.get("type") == "message" and isinstance(item.get("content"), list):
                assert item["id"].startswith("msg_")


@pytest.mark.parametrize("case", CASES[::7] + MESSAGES[::5], ids=lambda case: case["name"])
def test_golden_enriched_twice_is_golden_enriched_once(case, tmp_path):
    row, result = golden_cases.lay_out(case, tmp_path)
    enrich_run_result(row, result, capture_dirs=[tmp_path], **case["args"])
    once = copy.deepcopy(result)
    enrich_run_result(row, result, capture_dirs=[tmp_path], **case["args"])
    assert differences(result, once) == []
