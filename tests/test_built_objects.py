"""Python objects built from JSON text: keys that are kept, containers large and small."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollfold import dumps
from rollfold._core import loads
from tests.rollouts import capture, chat, enrich

INTEGERS = st.integers(-(10**30), 10**30) | st.integers(-5, 5)
SCALARS = INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=20,
)


def exactly(value):
    """A value in which 1, 1.0 and True, 0.0 and -0.0 are not the same."""
    return json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(0, 600), st.sampled_from([0, 1]))
def test_large_containers_say_what_their_text_says(value, padding, spaces):
    text = json.dumps([value, [0.5] * padding, value], indent=spaces or None)
    assert exactly(loads(text.encode())) == exactly(json.loads(text))
    assert exactly(json.loads(dumps(loads(text.encode())))) == exactly(json.loads(text))


@pytest.mark.parametrize("number", [10**18, 2**63 - 1, 2**63, 2**64, 10**19, -(10**19), 10**400])
@pytest.mark.parametrize("numbers", [1, 3000])
def test_integers_of_any_size_keep_their_digits_in_a_large_payload(tmp_path, number, numbers):
    request = {"messages": [{"role": "user", "content": "?", "ids": [7] * numbers + [number]}]}
    response = {"choices": [], "token_ids": [number] + [-1] * numbers, "mean": 0.1}
    capture(tmp_path, chat("c", request=request, response=response))
    (call,) = enrich(tmp_path)["ng_trajectory"]["model_calls"]
    assert exactly(call["request"]) == exactly(request)
    assert exactly(call["response"]) == exactly(response)


def test_keys_that_share_a_place_are_told_apart():
    # The same length, the same first and last eight bytes.
    keys = [f"beginning{n:04}the ending" for n in range(3000)]
    keys += [f"k{n}" for n in range(2000)] + ["k" * n for n in range(80)]
    for _ in range(2):
        for start in range(0, len(keys), 7):
            value = {key: {key: 1} for key in keys[start : start + 20]}
            assert loads(json.dumps(value).encode()) == value


@pytest.mark.parametrize("key", ["", "\\", '"', "a\\", "\u00e9", "\U0001f600", "\n", "type", "\0"])
def test_a_key_is_what_it_says_however_it_is_escaped(key):
    escaped = "".join(f"\\u{ord(c):04x}" for c in key if ord(c) < 0x10000)
    spelled = [json.dumps(key), json.dumps(key, ensure_ascii=False)]
    spelled += [f'"{escaped}"'] if len(escaped) == 6 * len(key) else []
    for text in spelled * 2:
        assert loads(f"[{{{text}:1}},{{{text}:2}}]".encode()) == [{key: 1}, {key: 2}]
