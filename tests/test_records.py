"""The models of records: what the contract allows passes, what it refuses does not."""

import copy
import json

import pytest
from pydantic import ValidationError

from rollfold.records import (
    Capture,
    CapturedToolCall,
    CaptureGapCode,
    EnrichedResult,
    Exchange,
    FailureRecord,
    Observations,
    OmittedRecord,
    Perf,
    Reference,
    Trajectory,
    Turn,
    VerifierInvocation,
)
from tests import golden_cases

REF = {"type": "responses_api_models", "name": "policy"}


def code_of(case):
    gaps = case["expected"]["ng_model_call_capture"].get("gaps", [])
    return {gap["code"] for gap in gaps}


@pytest.mark.parametrize("case", golden_cases.cases(), ids=lambda case: case["name"])
def test_every_golden_result_validates(case):
    expected = copy.deepcopy(case["expected"])
    trajectory = expected.get("ng_trajectory", {})
    for turn in trajectory.get("turns", []):
        turn.setdefault("step_count", 0)  # masked where Rollfold counts Anthropic tool calls
    if ["ng_trajectory", "schema_version"] in case["masks"] and trajectory:
        trajectory["schema_version"] = "1.0" if trajectory.get("task_id") else "1.1"
    observations = expected.get("ng_agent_observations")
    if "agent_observation_join_failed" in code_of(case):
        del expected["ng_agent_observations"]
        with pytest.raises(ValidationError):
            Observations.model_validate(observations)
    result = EnrichedResult.model_validate(expected)
    assert result.model_dump(exclude_unset=True)["reward"] == expected["reward"]
    assert result.ng_model_call_capture.metrics.num_calls == len(
        expected["ng_model_call_capture"]["calls"]
    )
    for call in result.ng_model_call_capture.calls:
        assert not call.model_extra
    assert {gap.code for gap in result.ng_model_call_capture.gaps} <= set(CaptureGapCode.__args__)
    assert EnrichedResult.model_validate_json(json.dumps(expected)) == result


@pytest.mark.parametrize(
    "case",
    [
        *(
            c
            for c in golden_cases.cases()
            if "model_call_capture_records_unreadable" not in code_of(c)
        ),
        *golden_cases.messages_cases(),
    ],
    ids=lambda case: case["name"],
)
def test_every_line_of_a_readable_capture_is_an_exchange(case):
    for text in case["files"].values():
        for line in filter(str.strip, text.split("\n")):
            value = json.loads(line)
            assert Exchange.model_validate(value).model_call_id == value.get("model_call_id")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model_call_id": None, "dialect": None, "model_ref": None, "latency_ms": None},
        {"latency_ms": 5, "started_at": 1},
        {"dialect": "later", "unheard_of": {"a": 1}},
        {"request": [1], "response": "x", "request_raw": 5, "response_raw": {}},
    ],
)
def test_an_exchange_that_is_read(fields):
    read = Exchange.model_validate(fields)
    assert read.request is None
    assert read.response_raw is None


@pytest.mark.parametrize(
    "fields",
    [
        {"model_call_id": 5},
        {"latency_ms": "5"},
        {"latency_ms": True},
        {"latency_ms": float("nan")},
        {"started_at": float("inf")},
        {"status_code": 200.0},
        {"status_code": "200"},
        {"status_code": True},
        {"response_source": "cache"},
        {"upstream_attempted": 1},
        {"model_ref": {**REF, "url": "x"}},
        {"model_ref": {"name": "policy"}},
        {"model_ref": {**REF, "type": "other"}},
        {"model_ref": "policy"},
        {"dialect": 5},
    ],
)
def test_an_exchange_that_is_unreadable(fields):
    with pytest.raises(ValidationError):
        Exchange.model_validate(fields)


@pytest.mark.parametrize(
    "reference",
    [
        {"model_call_id": "a"},
        {"model_ref": REF, "response_id": "r"},
        {"model_call_id": "a", "response_id": "r", "model_ref": None},
        {"model_call_id": "a", "later": 1},
    ],
)
def test_a_reference(reference):
    assert Reference.model_validate(reference)


@pytest.mark.parametrize(
    "reference",
    [
        {},
        {"model_call_id": None},
        {"model_call_id": ""},
        {"response_id": "r"},
        {"model_ref": REF},
        {"model_ref": REF, "response_id": ""},
        {"model_call_id": 5},
        "a",
    ],
)
def test_a_reference_without_a_key(reference):
    with pytest.raises(ValidationError):
        Reference.model_validate(reference)


def invocation(invocation_id="root", **more):
    return {"kind": "agent_invocation", "invocation_id": invocation_id, **more}


def tool_call(**more):
    return {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t", **more}


def compaction(**more):
    return {"kind": "context_compaction", "invocation_id": "root", **more}


@pytest.mark.parametrize(
    "records",
    [
        [],
        [invocation()],
        [invocation(status=None, model_calls=None, conversation=None)],
        [invocation(parent_invocation_id="not in the bundle")],
        [invocation("child", parent_invocation_id="root"), invocation()],
        [invocation(later=[1], duration_ms=0)],
        [tool_call(started_at=1, completed_at=1)],
        [tool_call(started_at=2.5), tool_call(completed_at=1)],
        [compaction(tokens_before=0, before_model_call={"model_call_id": "a"})],
        [{"kind": "sandbox", "role": "verifier", "exit_code": -9}],
        [{"kind": "weather", "invocation_id": 5}],
    ],
)
def test_observations(records):
    bundle = Observations.model_validate({"source": "s", "records": records})
    assert [record.kind for record in bundle.records] == [record["kind"] for record in records]


@pytest.mark.parametrize(
    "records",
    [
        ["x"],
        [{}],
        [{"kind": 5}],
        [{"kind": "agent_invocation"}],
        [invocation(7)],
        [invocation(None)],
        [invocation(status="done")],
        [invocation(duration_ms=-1)],
        [invocation(duration_ms="5")],
        [invocation(duration_ms=True)],
        [invocation(duration_ms=float("nan"))],
        [invocation(duration_ms=float("inf"))],
        [invocation(conversation="hi")],
        [invocation(model_calls=[{"response_id": "only"}])],
        [invocation(model_calls=({"model_call_id": "a"},))],
        [invocation(), invocation()],
        [invocation("a", parent_invocation_id="a")],
        [
            invocation("a", parent_invocation_id="b"),
            invocation("b", parent_invocation_id="c"),
            invocation("c", parent_invocation_id="a"),
        ],
        [tool_call(tool_call_id=None)],
        [tool_call(status="aborted")],
        [tool_call(timing_source="clock")],
        [tool_call(started_at=5.0, completed_at=4.0)],
        [tool_call(started_at="5")],
        [compaction(outcome="timeout")],
        [compaction(tokens_before=-1)],
        [compaction(tokens_after=1.0)],
        [compaction(tokens_after=True)],
        [compaction(after_model_call={})],
        [{"kind": "sandbox"}],
        [{"kind": "sandbox", "role": "judge"}],
        [{"kind": "sandbox", "role": "agent", "exit_code": 1.0}],
        [{"kind": "sandbox", "role": "agent", "cpu_time_s": -0.5}],
    ],
)
def test_malformed_observations(records):
    with pytest.raises(ValidationError):
        Observations.model_validate({"source": "s", "records": records})


@pytest.mark.parametrize(
    "bundle",
    [
        {},
        {"source": None},
        {"source": 5},
        {"source": "s", "records": {}},
        {"source": "s", "gaps": [{}]},
        {"source": "s", "gaps": [{"code": 5}]},
    ],
)
def test_a_malformed_bundle(bundle):
    with pytest.raises(ValidationError):
        Observations.model_validate(bundle)


def test_unknown_keys_and_kinds_stay():
    records = [invocation(later={"a": None}), {"kind": "weather", "wind": None}]
    bundle = Observations.model_validate({"source": "s", "records": records, "when": 1})
    assert bundle.model_extra == {"when": 1}
    assert bundle.records[0].model_extra == {"later": {"a": None}}
    assert bundle.records[1].model_dump() == records[1]


def test_a_long_chain_of_parents_is_no_cycle():
    chain = [invocation(str(n), parent_invocation_id=str(n + 1)) for n in range(5000)]
    assert len(Observations.model_validate({"source": "s", "records": chain}).records) == 5000


def turn(**more):
    return {
        "invocation_id": "root",
        "rollout_id": "0-0",
        "turn_no": 1,
        "timestamp": 0.0,
        "step_count": 0,
        **more,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": [turn(turn_no=0)]},
        {"turns": [turn(turn_no="1")]},
        {"turns": [turn(timestamp=None)]},
        {"turns": [turn(step_count=-1)]},
        {"turns": [turn(), turn()]},
        {"turns": "none"},
        {"model_calls": [{"model_call_id": "a"}, {"model_call_id": "a"}]},
        {"model_calls": [{"duration_ms": -1.0}]},
        {"invocations": [invocation(), invocation()]},
        {"rollout_id": None},
        {"task_id": None},
        {"task_id": 5},
        {"schema_version": "2.0"},
    ],
)
def test_a_malformed_trajectory(fields):
    with pytest.raises(ValidationError):
        Trajectory.model_validate({"task_id": "0", "rollout_id": "0-0", **fields})


def test_a_trajectory_of_an_unknown_task():
    read = Trajectory.model_validate(
        {"schema_version": "1.1", "task_id": None, "rollout_id": "0-0", "turns": [turn()]}
    )
    assert read.task_id is None
    assert read.turns == [Turn.model_validate(turn())]


def test_calls_without_an_id_may_repeat():
    calls = [{"model_call_id": None}, {"model_call_id": None}, {"response": "raw"}]
    read = Trajectory.model_validate({"task_id": "0", "rollout_id": "0-0", "model_calls": calls})
    assert len(read.model_calls) == 3


def test_the_rest():
    assert Perf.model_validate(
        {"num_turns": 1, "num_tool_calls": 0, "token_observability_coverage": 1}
    )
    with pytest.raises(ValidationError):
        Perf.model_validate(
            {"num_turns": 1, "num_tool_calls": 0, "token_observability_coverage": 2}
        )
    with pytest.raises(ValidationError):
        VerifierInvocation.model_validate({"invocation_id": "v", "status": "passed"})
    with pytest.raises(ValidationError):
        Capture.model_validate({"rollout_id": "0-0", "metrics": {}, "calls": []})
    assert OmittedRecord.model_validate({"_ng_omitted_rollout": "interrupted"})
    with pytest.raises(ValidationError):
        OmittedRecord.model_validate({"_ng_omitted_rollout": "lost"})
    assert FailureRecord.model_validate({"_ng_failure_class": "timeout"}).failure_class == "timeout"


def test_a_tool_call_whose_arguments_are_null():
    """A string that is parsed may be any JSON value (section 4)."""
    tool = {"call_id": "t1", "name": "f", "arguments": None}
    assert CapturedToolCall.model_validate(tool).arguments is None
