"""The stages after the merge, alone, against the whole of them."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rollfold import (
    dumps,
    enrich_run_result,
    join_model_call_observations,
    merge_model_call_capture_into_record,
)
from rollfold.identity import copy_identity
from rollfold.trajectory import (
    attach_ng_perf,
    attach_trajectory_record,
    build_trajectory_record,
    has_observation_gap,
    trajectory_identity,
    turns_from_model_calls,
)

GOLDEN = Path(__file__).parent / "golden" / "cases.jsonl.gz"


def cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN) as lines:
        return [json.loads(line) for line in lines]


def plain(value: object) -> Any:
    return json.loads(dumps(value))


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> list[tuple[dict, dict, dict]]:
    """Each case enriched whole, and merged alone."""
    done = []
    for case in cases()[:120]:
        root = tmp_path_factory.mktemp("captures")
        for name, text in case["files"].items():
            (root / name).write_bytes(text.encode())
        whole = enrich_run_result(
            case["row"], copy.deepcopy(case["result"]), capture_dirs=[root], **case["args"]
        )
        merged = copy.deepcopy(case["result"])
        copy_identity(case["row"], merged)
        merge_model_call_capture_into_record(merged, [root], include_payloads=True)
        done.append((case, whole, merged))
    return done


def test_the_merge_alone_keeps_bodies_and_touches_nothing_else(steps):
    for case, whole, merged in steps:
        capture, full = merged["ng_model_call_capture"], whole["ng_model_call_capture"]
        assert capture["metrics"] == full["metrics"]
        assert len(capture["calls"]) == len(full["calls"])
        assert all("request" in call for call in capture["calls"])
        assert merged.get("ng_trajectory") == case["result"].get("ng_trajectory")
        assert merged.get("ng_agent_observations") == case["result"].get("ng_agent_observations")


def test_the_stages_after_it_give_what_the_whole_gives(steps):
    for case, whole, merged in steps:
        if has_observation_gap(whole, "multimodal_history_redacted"):
            continue
        record = copy.deepcopy(merged)
        built = build_trajectory_record(case["row"], record)
        for key in ("turns", "model_calls", "invocations", "tool_calls"):
            assert plain(built[key]) == plain(whole["ng_trajectory"][key]), case["name"]
        attach_trajectory_record(case["row"], record)
        assert all("request" not in call for call in record["ng_model_call_capture"]["calls"])
        attach_ng_perf(record, **case["args"])
        assert plain(record.get("ng_perf")) == plain(whole.get("ng_perf")), case["name"]


def test_the_join_alone_gives_the_observations_of_the_whole(steps):
    for case, whole, merged in steps:
        bundle = case["result"].get("ng_agent_observations")
        if bundle is None:
            continue
        calls = merged["ng_model_call_capture"]["calls"]
        if any(
            gap["code"] == "agent_observation_join_failed"
            for gap in whole["ng_model_call_capture"].get("gaps", [])
        ):
            with pytest.raises(ValueError, match="ng_agent_observations"):
                join_model_call_observations(bundle, calls)
        elif not has_observation_gap(whole, "multimodal_history_redacted"):
            joined = join_model_call_observations(bundle, calls)
            assert plain(joined) == plain(whole["ng_agent_observations"]), case["name"]


def test_turns_from_the_model_calls_of_a_trajectory(steps):
    for case, whole, _ in steps:
        trajectory = whole["ng_trajectory"]
        if whole.get("_ng_trajectory_source") != "captures":
            continue
        records = (whole.get("ng_agent_observations") or {}).get("records", [])
        if not isinstance(records, list):
            continue
        compactions = [r for r in records if r.get("kind") == "context_compaction"]
        turns = turns_from_model_calls(
            trajectory["task_id"],
            trajectory["rollout_id"],
            trajectory["invocations"],
            trajectory["model_calls"],
            whole.get("resolved") if isinstance(whole.get("resolved"), bool) else None,
            compactions=compactions,
        )
        assert plain(turns) == plain(trajectory["turns"]), case["name"]


def test_attaching_never_raises_and_says_what_went_wrong():
    result: dict[str, Any] = {"reward": 1.0, "ng_agent_observations": {"source": "a", "gaps": []}}
    attach_trajectory_record({"_ng_rollout_id": "../x"}, result)
    (gap,) = result["ng_agent_observations"]["gaps"]
    assert gap["code"] == "trajectory_projection_failed"
    assert gap["detail"] == "RolloutIdError"
    bare: dict[str, Any] = {"reward": 1.0}
    attach_trajectory_record({}, bare)
    assert bare["ng_trajectory"]["gaps"][0]["detail"] == "ValueError"


def test_identity_of_a_trajectory():
    row = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}
    assert trajectory_identity(row) == ("3", "3-1-a2")


@pytest.mark.parametrize("odd", [None, 5, "x", [], {}, {"response_metadata": 5, "response": 5}])
def test_malformed_parts_give_no_turns_and_no_error(odd):
    call = {"model_call_id": "a", "response": {"choices": []}, "response_metadata": odd}
    invocation = {"invocation_id": "root", "model_calls": [{"model_call_id": "a"}]}
    one = turns_from_model_calls("t", "3-1", [invocation], [odd, call], None)
    assert [turn["turn_no"] for turn in one] == [1]
    assert turns_from_model_calls("t", "3-1", [odd], [call], None) == []
    assert turns_from_model_calls("t", "3-1", [invocation], [call], None, (), [odd]) == []
    assert len(turns_from_model_calls("t", "3-1", [invocation], [call], None, [odd])) == 1
