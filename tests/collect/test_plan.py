"""Stamping rows, and one record per rollout."""

import json

import pytest

from rollfold.collect.latest import latest_executed
from rollfold.collect.plan import InputError, materialize


def plan(tmp_path, rows, **options):
    source = tmp_path / "tasks.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = materialize(source, tmp_path / "inputs.jsonl", default_agent="a", **options)
    return made, list(made.rows())


def indices(rows):
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def test_equal_rows_share_a_task_and_given_indices_stay(tmp_path):
    rows = [
        {"p": "x"},
        {"p": "y"},
        {"p": "x"},
        {"p": "z", "_ng_task_index": 0},
        {"p": "z"},
        {"p": "w", "_ng_task_index": 1, "_ng_rollout_index": 5},
    ]
    made, stamped = plan(tmp_path, rows)
    assert indices(stamped) == [(2, 0), (3, 0), (2, 1), (0, 0), (0, 1), (1, 5)]
    assert made.total == 6
    assert all(row["agent_ref"] == {"name": "a"} for row in stamped)


def test_repeats_count_up_within_a_task(tmp_path):
    _, stamped = plan(tmp_path, [{"p": 1}, {"p": 2, "_ng_rollout_index": 1}], repeats=3)
    assert indices(stamped) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 0), (1, 2)]


def test_the_same_input_is_the_same_run(tmp_path):
    rows = [{"p": n} for n in range(5)]
    first, _ = plan(tmp_path, rows)
    assert plan(tmp_path, rows)[0].run_id == first.run_id
    assert plan(tmp_path, rows, repeats=2)[0].run_id != first.run_id
    assert plan(tmp_path, rows, limit=4)[0].run_id != first.run_id
    assert plan(tmp_path, rows, limit=2)[0].total == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', "line 2: "),
        ('{"a": 1}\n[1]\n', "line 2: not a JSON object"),
        ('{"a": NaN}\n', "line 1: "),
        ('{"_ng_rollout_id": "a/b"}\n', "line 1: _ng_rollout_id"),
        ('{"_ng_task_index": -1}\n', "line 1: _ng_task_index"),
        ('{"_ng_rollout_id": "x"}\n{"_ng_rollout_id": "x"}\n', "line 2: another row"),
    ],
)
def test_an_input_that_cannot_be_run_names_the_line(tmp_path, text, message):
    source = tmp_path / "tasks.jsonl"
    source.write_text(text)
    with pytest.raises(InputError) as caught:
        materialize(source, tmp_path / "inputs.jsonl", default_agent="a")
    assert str(caught.value).startswith(f"{source}: {message}")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_other_inputs_that_cannot_be_run(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        materialize(tmp_path / "none.jsonl", tmp_path / "inputs.jsonl")
    (tmp_path / "tasks.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(InputError, match=r"line 1: agent_ref\.name"):
        materialize(tmp_path / "tasks.jsonl", tmp_path / "inputs.jsonl")
    (tmp_path / "tasks.jsonl").write_text('{"_ng_rollout_id": "x"}\n')
    with pytest.raises(InputError, match="cannot be repeated"):
        materialize(
            tmp_path / "tasks.jsonl", tmp_path / "inputs.jsonl", default_agent="a", repeats=2
        )


def record(task, attempt=None, **keys):
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "_ng_attempt_index": attempt, **keys}


def test_latest_executed():
    never = {"_ng_omitted_rollout": "never_started"}
    drained = {"_ng_dispatch_drained": True}
    records = [
        record(0, 2, **never),
        record(0, 1, reward=1.0),
        record(0, reward=0.0),
        record(1, **never),
        record(2, 1, _ng_failure_class="agent_run_error"),
        record(2, "0", reward=1.0),
        record(3, 1, **drained),
        record(3, reward=0.5),
        {"reward": 7},
        {"reward": 8},
        {"_ng_rollout_id": "a b"},
        record(4, 1, _ng_omitted_rollout="interrupted"),
        record(4, reward=1.0),
    ]
    expected = [records[n] for n in (1, 3, 4, 7, 8, 9, 10, 11)]
    found = latest_executed(iter(records))
    assert [id(one) for one in found] == [id(one) for one in expected]
    assert latest_executed([]) == []
