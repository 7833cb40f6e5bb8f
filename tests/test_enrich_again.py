"""Enriching again, omitted rows and deletion (contract, sections 5, 11 and 12)."""

import copy
import itertools
import json
import logging
from collections import OrderedDict

import pytest

from rollfold import dumps, enrich_run_result
from rollfold.capture import CaptureStore
from rollfold.trajectory import attach_ng_perf
from tests.rollouts import (
    ROLLOUT_ID,
    ROW,
    calls_of,
    capture,
    capture_gaps,
    chat,
    codes,
    enrich,
    ids_of,
    observed,
    result_of,
    turns_of,
)


def again(directory, result):
    return enrich(directory, json.loads(dumps(result)))


def test_without_a_directory_nothing_is_merged_or_joined():
    result = result_of("a")
    before = copy.deepcopy(result["ng_agent_observations"])
    enrich_run_result(dict(ROW), result, capture_dirs=[], observability_enabled=True)
    assert "ng_model_call_capture" not in result
    assert result["ng_agent_observations"] == before
    assert result["_ng_task_index"] == 3
    assert result["ng_trajectory"]["rollout_id"] == ROLLOUT_ID


def test_calls_that_the_files_lack_stay_as_they_are(tmp_path):
    path = capture(tmp_path, chat("a"), chat("b"))
    first = enrich(tmp_path, result_of("a", "b"))
    capture(tmp_path, chat("b"), chat("c"), chat("d"))
    second = again(tmp_path, first)
    assert ids_of(second) == [("a", 0), ("b", 1)]
    assert second["ng_trajectory"]["model_calls"] == first["ng_trajectory"]["model_calls"]
    assert capture_gaps(second) == [("model_call_capture_late_records", "count=2")]
    path.unlink()
    third = again(tmp_path, second)
    assert ids_of(third) == [("a", 0), ("b", 1)]
    assert turns_of(third) == turns_of(first)
    assert third["ng_perf"] == first["ng_perf"]


def test_a_file_that_is_gone_changes_nothing_whatever_the_marker(tmp_path):
    path = capture(tmp_path, chat("a"))
    first = enrich(tmp_path, result_of("a"))
    path.unlink()
    CaptureStore(tmp_path).mark_incomplete(ROLLOUT_ID)
    second = again(tmp_path, first)
    for key in ("ng_trajectory", "ng_perf"):
        assert second[key] == first[key]
    assert calls_of(second) == calls_of(first)


@pytest.mark.parametrize("dirs", [None, []])
@pytest.mark.parametrize("own", [None, {"turns": []}], ids=["captures", "agent"])
def test_without_a_directory_what_was_captured_stays(tmp_path, dirs, own):
    path = capture(tmp_path, chat("a"), chat("b"))
    parts = {} if own is None else {"ng_trajectory": own}
    first = enrich(tmp_path, result_of("a", **parts), delete_capture=True)
    assert not path.exists()
    assert len(first["ng_trajectory"]["model_calls"]) == 2
    second = json.loads(dumps(first))
    enrich_run_result(dict(ROW), second, capture_dirs=dirs, observability_enabled=True)
    assert second == json.loads(dumps(first))


def test_one_of_the_agents_is_not_doubled(tmp_path):
    capture(tmp_path, chat("a"), chat(None))
    own = {
        "schema_version": "1.0",
        "task_id": "3",
        "rollout_id": ROLLOUT_ID,
        "turns": [],
        "invocations": [],
        "model_calls": [{"model_call_id": "mine"}],
        "tool_calls": [],
        "gaps": [{"code": "theirs"}],
    }
    first = enrich(tmp_path, result_of("a", ng_trajectory=own))
    second = again(tmp_path, first)
    assert second["ng_trajectory"] == json.loads(dumps(first["ng_trajectory"]))
    assert len(second["ng_trajectory"]["model_calls"]) == 3


def test_times_that_cannot_be_do_not_double_a_call_without_an_id(tmp_path):
    odd = {"started_at": -5, "completed_at": -1.5, "latency_ms": -3, "latency_ttft_ms": 10**400}
    capture(tmp_path, chat("a") | odd | {"model_call_id": None})
    result = result_of("a", ng_trajectory={"model_calls": [{"model_call_id": "own"}]})
    first = enrich(tmp_path, result)
    second = again(tmp_path, first)
    assert len(first["ng_trajectory"]["model_calls"]) == 2
    assert second == first


def test_a_call_of_the_agents_own_is_not_taken_for_a_captured_one_that_says_as_little(tmp_path):
    capture(tmp_path, {}, chat("a"), {})
    own = [{"request": {"own": number}} for number in range(3)]
    first = enrich(tmp_path, result_of("a", ng_trajectory={"model_calls": own}))
    second = again(tmp_path, first)
    assert [call["request"] for call in first["ng_trajectory"]["model_calls"][:3]] == [
        {"own": number} for number in range(3)
    ]
    assert second == first


OWN = {
    "invocations": [{"invocation_id": "root", "parent_invocation_id": "sub"}],
    "tool_calls": [{"invocation_id": "root", "tool_call_id": "t1", "started_at": 9.0}],
    "turns": [{"invocation_id": "root", "turn_no": 1, "timestamp": 1.0, "step_count": 0}],
}
CHILD = observed("a", invocation_id="sub", parent_invocation_id="root")
TOOL = {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t1", "completed_at": 3.0}


@pytest.mark.parametrize(
    ("observations", "call"),
    [
        (CHILD, {}),
        (observed("a", invocation_id="sub", more=[TOOL]), {}),
        (observed("a"), {"started_at": 9.0, "completed_at": 3.0}),
        (observed("a"), {"started_at": 1e9}),
    ],
    ids=["parents in a circle", "a tool call's times", "a call's times", "the call's in the own"],
)
def test_what_two_sides_say_of_one_another_does_not_void_the_agents_own(
    tmp_path, observations, call
):
    """Each was good before they met; the agent's turns stay, however often it is enriched."""
    capture(tmp_path, {**chat("a"), **call})
    own = {**OWN, "model_calls": [{"model_call_id": "a", "completed_at": 5.0}]}
    first = enrich(tmp_path, result_of(ng_agent_observations=observations, ng_trajectory=own))
    second = again(tmp_path, first)
    assert len(turns_of(first)) == 1
    assert second == first
    perf = first.pop("ng_perf")
    attach_ng_perf(first, observability_enabled=True)
    assert first["ng_perf"] == perf


@pytest.mark.parametrize("shared", ["mine", "x", "y", "model_call_reference_unmatched"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_observations_gaps_keep_their_place(tmp_path, shared, order):
    """Also without a capture directory, where nothing renews those of a join."""
    gaps = [{"code": "model_call_reference_unmatched"}, {"code": "x"}, {"code": "y"}]
    gaps = [gaps[at] for at in order]
    own = {"gaps": [{"code": "mine"}, {"code": shared}]}
    result = result_of(ng_agent_observations=observed(gaps=gaps), ng_trajectory=own)
    for dirs in ([], [tmp_path]):
        first = enrich_run_result(
            dict(ROW), dict(result), capture_dirs=dirs, observability_enabled=True
        )
        second = enrich_run_result(
            dict(ROW), dict(first), capture_dirs=dirs, observability_enabled=True
        )
        assert second == first


def test_gaps_that_cannot_be_found_out_again_stay(tmp_path):
    capture(tmp_path, chat("a"))
    own = {"task_id": "other", "rollout_id": ROLLOUT_ID}
    first = enrich(tmp_path, result_of("a", ng_trajectory=own))
    assert codes(first["ng_trajectory"])[0] == "producer_trajectory_identity_mismatch"
    assert again(tmp_path, first)["ng_trajectory"] == json.loads(dumps(first["ng_trajectory"]))


def test_identity_that_differs_is_said_and_nothing_is_deleted(tmp_path):
    path = capture(tmp_path, chat("a"))
    result = result_of("a", _ng_task_index=4, _ng_rollout_index=1)
    enrich(tmp_path, result, delete_capture=True)
    assert ("rollout_identity_conflict", "3-1,4-1") in capture_gaps(result)
    assert result["_ng_task_index"] == 4
    assert result["ng_trajectory"]["rollout_id"] == "3-1"
    assert path.exists()


@pytest.mark.parametrize("marker", ["_ng_omitted_rollout", "_ng_dispatch_drained"])
def test_a_row_that_never_started_gets_its_identity_alone(tmp_path, marker):
    capture(tmp_path, chat("a"))
    value = "never_started" if marker == "_ng_omitted_rollout" else True
    result = enrich(tmp_path, {marker: value})
    assert {key for key in result if not key.startswith("_ng_")} == {"agent_ref"}
    assert result["_ng_task_index"] == 3


def test_an_interrupted_row_keeps_its_evidence(tmp_path):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, {"_ng_omitted_rollout": "interrupted"})
    assert ids_of(result) == [("a", 0)]
    assert capture_gaps(result) == [("rollout_interrupted", None)]
    assert len(result["ng_trajectory"]["model_calls"]) == 1
    assert "reward" not in result


def test_a_failed_run_is_folded_like_an_interrupted_one(tmp_path):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, {"_ng_failure_class": "timeout"})
    assert ids_of(result) == [("a", 0)]
    assert capture_gaps(result) == []
    assert len(result["ng_trajectory"]["model_calls"]) == 1


def test_a_failed_run_without_a_call_has_its_capture_alone(tmp_path):
    result = enrich(tmp_path, {"_ng_failure_class": "connection"})
    assert capture_gaps(result) == [("model_call_capture_no_records", None)]
    assert "ng_trajectory" not in result
    assert "ng_perf" not in result


def test_deletion_after_the_merge(tmp_path):
    path = capture(tmp_path, chat("a"))
    CaptureStore(tmp_path).mark_incomplete("3-2")
    enrich(tmp_path, result_of("a"), delete_capture=True)
    assert not path.exists()
    assert sorted(one.name for one in tmp_path.iterdir() if "3-1" in one.name) == []
    assert CaptureStore(tmp_path).is_incomplete("3-2")


def test_deletion_without_payloads_is_refused_before_anything(tmp_path):
    path = capture(tmp_path, chat("a"))
    result = result_of("a")
    before = copy.deepcopy(result)
    with pytest.raises(ValueError, match="include_payloads"):
        enrich(tmp_path, result, delete_capture=True, include_payloads=False)
    assert result == before
    assert path.exists()


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ([chat("a"), b"{"], {}),
        ([chat("a"), chat("a", answer="other")], {}),
        ([chat("a", started_at=1.0), chat("b")], {"not_before": 10.0}),
    ],
    ids=["unreadable", "duplicate that differs", "stale"],
)
def test_what_is_not_all_in_the_record_is_kept_with_a_warning(tmp_path, caplog, lines, more):
    caplog.set_level(logging.WARNING)
    path = capture(tmp_path, *lines)
    enrich(tmp_path, result_of("a"), delete_capture=True, **more)
    assert path.exists()
    assert any(
        path.name in record.getMessage() or ROLLOUT_ID in record.getMessage()
        for record in caplog.records
    )


def test_a_plain_duplicate_is_no_reason_to_keep(tmp_path):
    path = capture(tmp_path, chat("a"), chat("a"))
    enrich(tmp_path, result_of("a"), delete_capture=True)
    assert not path.exists()


def test_deleted_and_enriched_again_nothing_is_lost(tmp_path):
    capture(tmp_path, chat("a"))
    first = enrich(tmp_path, result_of("a"), delete_capture=True)
    second = again(tmp_path, first)
    assert second["ng_trajectory"] == json.loads(dumps(first["ng_trajectory"]))
    assert ids_of(second) == [("a", 0)]


def test_late_records_are_read_before_the_captures(tmp_path):
    capture(tmp_path, chat("a"))
    (tmp_path / f"{ROLLOUT_ID}.capture.jsonl").rename(tmp_path / f"{ROLLOUT_ID}.capture.late.jsonl")
    capture(tmp_path, chat("b"))
    result = enrich(tmp_path, result_of("a", "b"))
    assert [name for name, _ in ids_of(result)] == ["a", "b"]


def test_the_first_directory_with_the_file_wins(tmp_path):
    one, two, three = (tmp_path / name for name in "123")
    for directory in (one, two, three):
        directory.mkdir()
    CaptureStore(one).mark_incomplete(ROLLOUT_ID)
    capture(two, chat("b"))
    capture(three, chat("c"))
    result = result_of("b")
    enrich_run_result(dict(ROW), result, capture_dirs=[one, two, three], observability_enabled=True)
    assert ids_of(result) == [("b", 0)]
    only_marker = result_of()
    enrich_run_result(dict(ROW), only_marker, capture_dirs=[one], observability_enabled=True)
    assert capture_gaps(only_marker) == [("model_call_capture_incomplete", None)]


def test_identity_is_copied_where_the_result_lacks_it(tmp_path):
    row = {**ROW, "_ng_attempt_index": "01", "task_source": "t", "skills_ref": {"a": 1}}
    capture(tmp_path, chat("a"), rollout_id="3-1-a1")
    result = enrich(tmp_path, result_of("a", agent_ref={"name": "there"}), row=row)
    assert result["agent_ref"] == {"name": "there"}
    assert result["_ng_attempt_index"] == "01"
    assert result["task_source"] == "t"
    assert result["ng_model_call_capture"]["rollout_id"] == "3-1-a1"


def test_the_rest_is_the_very_same_objects(tmp_path):
    capture(tmp_path, chat("a"))
    result = result_of("a", extra={"x": []})
    kept = {key: result[key] for key in ("reward", "response", "extra")}
    assert enrich(tmp_path, result) is result
    assert all(result[key] is value for key, value in kept.items())
    assert observed("a")["source"] == "harness"


def test_a_mapping_that_keeps_an_order_of_its_own_shows_what_it_got(tmp_path):
    capture(tmp_path, chat("a"))
    plain = enrich(tmp_path, result_of("a"))
    ordered = enrich(tmp_path, OrderedDict(result_of("a")))
    assert list(ordered) == list(plain)
    assert dict(ordered.items()) == plain
