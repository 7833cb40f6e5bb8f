"""Rollout id, task id, and who wins where row and result disagree (contract, section 2)."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollfold import identity
from rollfold.errors import RollfoldError, RolloutIdError


def ids(task=None, rollout=None, attempt=None, given_id=None):
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "_ng_attempt_index": attempt,
        "_ng_rollout_id": given_id,
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, None),
        (ids(), None),
        (ids(task=3), None),
        (ids(rollout=True), None),  # the other index is missing: no id, so no error either
        (ids(3, 1), "3-1"),
        (ids(0, 0), "0-0"),
        (ids("train.7", 1), "train.7-1"),
        (ids(3, 1, 0), "3-1"),
        (ids(3, 1, 2), "3-1-a2"),
        (ids(3, 1, "03"), "3-1-a3"),
        (ids(3, 1, "000"), "3-1"),
        (ids(3, 1, ""), "3-1"),
        (ids(3, 1, -2), "3-1"),
        (ids(3, 1, True), "3-1"),
        (ids(3, 1, 2.0), "3-1"),
        (ids(3, 1, "x"), "3-1"),
        (ids(3, 1, "٣"), "3-1"),
        (ids(3, 1, "+3"), "3-1"),
        (ids(given_id="9f3c"), "9f3c"),
        (ids(3, 1, 4, "9f3c"), "9f3c-a4"),
        (ids(object(), None, None, "a.b_c-d"), "a.b_c-d"),
        (ids(given_id="x" * 200), "x" * 200),
        (ids(given_id="x" * 197, attempt=1), "x" * 197 + "-a1"),
    ],
)
def test_rollout_id(row, expected):
    assert identity.rollout_id(row) == expected


@pytest.mark.parametrize(
    ("row", "key"),
    [
        (ids(given_id=""), "_ng_rollout_id"),
        (ids(given_id=7), "_ng_rollout_id"),
        (ids(given_id="../etc"), "_ng_rollout_id"),
        (ids(given_id=".hidden"), "_ng_rollout_id"),
        (ids(given_id="a\n"), "_ng_rollout_id"),
        (ids(given_id="a/b"), "_ng_rollout_id"),
        (ids(given_id="é"), "_ng_rollout_id"),
        (ids(given_id="x" * 201), "_ng_rollout_id"),
        (ids(given_id="x" * 200, attempt=1), "_ng_rollout_id"),
        (ids(-1, 0), "_ng_task_index"),
        (ids(True, 0), "_ng_task_index"),
        (ids(1.0, 0), "_ng_task_index"),
        (ids(0, "a b"), "_ng_rollout_index"),
        (ids(0, []), "_ng_rollout_index"),
        (ids(10**5000, 0), "_ng_task_index"),
        (ids("x" * 150, "y" * 150), "_ng_task_index"),
        (ids(0, 0, 10**5000), "_ng_attempt_index"),
        (ids(0, 0, "9" * 5000), "_ng_attempt_index"),
    ],
)
def test_a_bad_id_names_its_key_and_value_on_one_line(row, key):
    with pytest.raises(RolloutIdError) as caught:
        identity.rollout_id(row)
    assert isinstance(caught.value, RollfoldError)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert message.startswith(f"{key}: ")
    assert len(message) < 400
    assert "\n" not in message
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.key, str(again)) == (key, message)


@given(st.text(max_size=30))
def test_no_id_ever_leaves_its_directory(text):
    try:
        given_id = identity.rollout_id(ids(given_id=text))
    except RolloutIdError:
        return
    assert given_id is not None
    assert identity.is_rollout_id(given_id)
    assert "/" not in given_id
    assert not given_id.startswith(".")


@pytest.mark.parametrize(
    ("row", "result", "expected"),
    [
        ({}, {}, None),
        ({"_ng_task_index": 0}, {}, "0"),
        ({"task_id": None, "problem_id": 7}, {}, "7"),
        ({"instance_id": "i", "problem_id": "p"}, {}, "p"),
        ({"_ng_task_index": 0}, {"instance_id": "i"}, "i"),
        ({"task_id": "mine"}, {"task_id": "other"}, "mine"),
        ({"_ng_rollout_id": "r"}, {}, None),
    ],
)
def test_task_id(row, result, expected):
    assert identity.task_id(row, result) == expected


def test_identity_fills_what_is_missing_and_nothing_else():
    row = {"_ng_task_index": 1, "agent_ref": {"name": "a"}, "skills_ref": None, "prompt": "p"}
    result = {"_ng_task_index": None, "agent_ref": {"name": "b"}, "reward": 1.0}
    identity.copy_identity(row, result)
    assert result == {"_ng_task_index": 1, "agent_ref": {"name": "b"}, "reward": 1.0}


@pytest.mark.parametrize(
    ("row", "result", "expected"),
    [
        (ids(3, 1), {}, ("3-1", None)),
        (ids(3, 1), ids(3, 1), ("3-1", None)),
        (ids(3, 1), ids(3, 2), ("3-1", "3-1,3-2")),
        (ids(3, 1), ids(3, 1, 1), ("3-1", "3-1,3-1-a1")),
        (ids(3, 1), ids(given_id="r"), ("3-1", "3-1,r")),
        (ids(3, 1), ids(given_id="not/valid"), ("3-1", None)),
        (ids(3), ids(rollout=2), ("3-2", None)),
        ({}, ids(given_id="r"), ("r", None)),
        ({}, {}, (None, None)),
    ],
)
def test_the_row_decides_and_a_disagreement_is_said(row, result, expected):
    assert identity.resolve(row, result) == expected


def test_a_bad_row_is_an_error_and_a_bad_result_only_where_it_decides():
    with pytest.raises(RolloutIdError):
        identity.resolve(ids(given_id="a b"), ids(3, 1))
    with pytest.raises(RolloutIdError):
        identity.resolve({}, ids(given_id="a b"))


@given(st.integers(min_value=0, max_value=10**9))
def test_the_attempt_of_an_id(number):
    assert identity.attempt_index(ids(attempt=number)) == number
    assert identity.attempt_index(ids(attempt=f"00{number}")) == number


class Lines:
    def __repr__(self):
        return "one\ntwo"


class Broken:
    def __repr__(self):
        raise RuntimeError


def nested():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("make", [nested, Lines, Broken, lambda: -(10**5000), lambda: "x" * 9999])
def test_any_bad_value_is_told_on_one_line(make):
    with pytest.raises(RolloutIdError) as raised:
        identity.rollout_id({"_ng_rollout_id": make()})
    told = str(raised.value)
    assert told.startswith("_ng_rollout_id: ")
    assert "\n" not in told
    assert len(told) < 400


@pytest.mark.parametrize("make", [nested, lambda: 10**5000])
def test_a_task_id_that_is_no_text_is_an_error_that_names_its_key(make):
    with pytest.raises(RolloutIdError, match="task_id: cannot be given as a string"):
        identity.task_id({"task_id": make()})


def test_half_a_surrogate_in_a_task_id():
    assert identity.task_id({"task_id": "a\ud800\ud83d\ude00"}) == "a\ufffd\U0001f600"
