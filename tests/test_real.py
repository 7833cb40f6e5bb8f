"""Real rollouts: equal to what an older collector attached, where its keys exist."""

import json
from pathlib import Path

import pytest

from rollfold import enrich_run_result
from tests.golden_cases import differences

REAL = Path(__file__).parent / "data" / "real" / "deepagents"


def lines(name):
    return [json.loads(line) for line in (REAL / name).read_text("utf-8").splitlines()]


def only_keys_of(value, pattern):
    """`value` cut down to the keys that `pattern` has, to any depth."""
    if isinstance(value, dict) and isinstance(pattern, dict):
        return {key: only_keys_of(value[key], pattern[key]) for key in pattern if key in value}
    if isinstance(value, list) and isinstance(pattern, list) and len(value) == len(pattern):
        return [only_keys_of(one, like) for one, like in zip(value, pattern, strict=True)]
    return value


@pytest.mark.parametrize("number", range(3))
def test_deepagents(number):
    row, result, want = (
        lines(name)[number] for name in ("rows.jsonl", "results.jsonl", "expected.jsonl")
    )
    before = json.dumps(result)
    enrich_run_result(row, result, capture_dirs=[REAL / "captures"], observability_enabled=True)
    got = {key: result[key] for key in want}
    assert differences(only_keys_of(got, want), want) == []
    untouched = {key: result[key] for key in json.loads(before)}
    assert json.dumps(untouched) == before
