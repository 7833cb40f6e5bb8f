"""The trajectory (contract, section 7) and perf (section 9), rule by rule."""

import copy

import pytest

from tests.rollouts import (
    ROLLOUT_ID,
    calls_of,
    capture,
    capture_gaps,
    chat,
    codes,
    enrich,
    observed,
    result_of,
    turns_of,
)

KEYS = [
    "schema_version",
    "task_id",
    "rollout_id",
    "invocations",
    "turns",
    "model_calls",
    "tool_calls",
    "gaps",
]


def gaps_of(result):
    return [(gap["code"], gap["detail"]) for gap in result["ng_trajectory"]["gaps"]]


def producer(**more):
    return {
        "schema_version": "1.0",
        "task_id": "3",
        "rollout_id": ROLLOUT_ID,
        "invocations": [],
        "turns": [],
        "model_calls": [],
        "tool_calls": [],
        "gaps": [],
        **more,
    }


def own_turn(invocation_id="root", turn_no=1, **more):
    return {
        "invocation_id": invocation_id,
        "task_id": "x",
        "rollout_id": "x",
        "turn_no": turn_no,
        "timestamp": 1.0,
        "question": "q",
        "answer": "a",
        "reasoning_content": None,
        "resolved": None,
        "step_count": 0,
        "model_calls": [],
        **more,
    }


def test_exactly_these_keys(tmp_path):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, result_of("a"))
    assert sorted(result["ng_trajectory"]) == sorted(KEYS)
    assert result["ng_trajectory"]["schema_version"] == "1.0"
    assert result["_ng_trajectory_source"] == "captures"


def test_payloads_live_in_the_trajectory_alone(tmp_path):
    exchange = chat("a", request_raw="raw", response_raw="raw")
    capture(tmp_path, exchange, chat("b"))
    result = enrich(tmp_path, result_of("a", "b"))
    payloads = {"request", "response", "request_raw", "response_raw"}
    assert all(not payloads & set(call) for call in calls_of(result))
    first = result["ng_trajectory"]["model_calls"][0]
    assert (first["request"], first["response"]) == (exchange["request"], exchange["response"])


@pytest.mark.parametrize(
    ("row", "result", "task"),
    [
        ({"task_id": "t", "instance_id": "i"}, {}, "t"),
        ({"task_id": None, "problem_id": "p"}, {}, "p"),
        ({"instance_id": 5}, {}, "5"),
        ({}, {}, "3"),
    ],
)
def test_the_task_id(tmp_path, row, result, task):
    capture(tmp_path, chat("a"))
    row = {"_ng_task_index": 3, "_ng_rollout_index": 1, **row}
    assert enrich(tmp_path, result_of(**result), row=row)["ng_trajectory"]["task_id"] == task


def test_an_unknown_task_is_null_and_schema_1_1(tmp_path):
    capture(tmp_path, chat("a"), rollout_id="9f3c")
    result = enrich(tmp_path, result_of("a"), row={"_ng_rollout_id": "9f3c"})
    assert result["ng_trajectory"]["task_id"] is None
    assert result["ng_trajectory"]["schema_version"] == "1.1"
    assert turns_of(result)[0]["task_id"] is None


def test_without_identity_there_is_no_trajectory_but_a_gap(tmp_path):
    result = enrich(tmp_path, result_of("a"), row={"agent_ref": {"name": "x"}})
    assert "ng_trajectory" not in result
    assert "rollout_identity_unavailable" in codes(result["ng_agent_observations"])


def test_a_negative_or_huge_time_costs_nothing(tmp_path):
    capture(tmp_path, chat("a", started_at=-5.0, latency_ms=-1.0, latency_ttft_ms=-2))
    (call,) = enrich(tmp_path, result_of("a"))["ng_trajectory"]["model_calls"]
    assert (call["started_at"], call["duration_ms"]) == (None, None)
    assert call["response_metadata"]["latency_ttft_ms"] is None


@pytest.mark.parametrize(
    ("files", "result", "want"),
    [
        (False, {}, ["model_call_capture_no_records", "model_calls_unavailable"]),
        (True, {}, []),
    ],
)
def test_what_is_unavailable_is_said_last(tmp_path, files, result, want):
    if files:
        capture(tmp_path, chat("a"))
    enriched = enrich(tmp_path, result_of(**result))
    got = [code for code, _ in gaps_of(enriched)]
    assert got == [*want, "turns_unavailable", "conversation_unavailable"]


# --- an agent's own trajectory


def test_an_agent_owns_its_turns(tmp_path):
    capture(tmp_path, chat("a"))
    own = producer(turns=[own_turn(turn_no=2, timestamp=9.0), own_turn(later=1)])
    result = enrich(tmp_path, result_of("a", ng_trajectory=own))
    assert result["_ng_trajectory_source"] == "agent"
    got = turns_of(result)
    assert [turn["turn_no"] for turn in got] == [1, 2]
    assert {(turn["task_id"], turn["rollout_id"]) for turn in got} == {("3", ROLLOUT_ID)}
    assert got[0]["later"] == 1
    assert "turns_unavailable" not in [code for code, _ in gaps_of(result)]


@pytest.mark.parametrize(
    ("ids", "detail"),
    [
        ({"task_id": "other"}, "task_id"),
        ({"rollout_id": "9-9"}, "rollout_id"),
        ({"task_id": "other", "rollout_id": "9-9"}, "task_id,rollout_id"),
    ],
)
def test_ids_unlike_ours_are_said(tmp_path, ids, detail):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, result_of("a", ng_trajectory=producer(**ids)))
    assert gaps_of(result)[0] == ("producer_trajectory_identity_mismatch", detail)
    assert result["ng_trajectory"]["rollout_id"] == ROLLOUT_ID
    assert turns_of(result) == []


@pytest.mark.parametrize(
    "own",
    [
        5,
        [],
        producer(turns="none"),
        producer(turns=[own_turn(turn_no=0)]),
        producer(turns=[own_turn(timestamp=None)]),
        producer(turns=[own_turn(), own_turn()]),
        producer(turns=[own_turn(step_count="0")]),
        producer(model_calls=[{"model_call_id": "x"}, {"model_call_id": "x"}]),
        producer(invocations=[{"kind": "agent_invocation"}]),
        producer(gaps=[{}]),
    ],
    ids=lambda own: repr(own)[-50:],
)
def test_a_malformed_one_still_counts_as_sent(tmp_path, own):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, result_of("a", ng_trajectory=own))
    assert gaps_of(result)[0] == ("producer_trajectory_invalid", "ValidationError")
    assert turns_of(result) == []
    assert result["_ng_trajectory_source"] == "agent"
    assert len(result["ng_trajectory"]["model_calls"]) == 1


def test_the_captures_known_values_win_in_the_agents_own_call(tmp_path):
    own_call = {
        "model_call_id": "a",
        "started_at": 1.0,
        "duration_ms": 7.0,
        "request": {"mine": 1},
        "response_metadata": {"model": "mine", "error_category": "mine", "later": 1},
        "token_stats": {"prompt_tokens": 1, "reasoning_tokens": 5},
        "later": 1,
    }
    capture(tmp_path, chat("a", latency_ms=None))
    own = producer(model_calls=[own_call, {"model_call_id": "theirs"}])
    result = enrich(tmp_path, result_of("a", ng_trajectory=own))
    first, second = result["ng_trajectory"]["model_calls"]
    assert first["started_at"] == chat("a")["started_at"]
    assert first["duration_ms"] == 7.0
    assert first["request"] == chat("a")["request"]
    assert first["response_metadata"]["model"] == "m-1"
    assert first["response_metadata"]["error_category"] == "mine"
    assert first["response_metadata"]["later"] == 1
    assert first["token_stats"]["prompt_tokens"] == 10
    assert first["token_stats"]["reasoning_tokens"] == 5
    assert first["later"] == 1
    assert second["model_call_id"] == "theirs"


# --- tool calls


def output(call_id, text):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def tool_call(call_id="t", **more):
    return {"kind": "tool_call", "invocation_id": "root", "tool_call_id": call_id, **more}


def test_an_output_comes_from_the_conversation(tmp_path):
    capture(tmp_path, chat("a"))
    bundle = observed(
        "a",
        conversation=[output("t", "one"), output("u", [{"type": "input_text", "text": "x"}])],
        more=[tool_call("t", duration_ms=5), tool_call("u"), tool_call("v")],
    )
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle))
    calls = result["ng_trajectory"]["tool_calls"]
    assert [call["output"] for call in calls] == [
        "one",
        [{"type": "input_text", "text": "x"}],
        None,
    ]
    assert result["ng_perf"]["num_tool_calls"] == 3


def test_one_id_again_and_again_pairs_up(tmp_path):
    capture(tmp_path, chat("a"))
    bundle = observed(
        "a",
        conversation=[output("t", "1"), output("t", "2"), output("u", "3")],
        more=[tool_call("t"), tool_call("u"), tool_call("t", status="failed")],
    )
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle))
    got = [
        (c["tool_call_id"], c["output"], c["status"]) for c in result["ng_trajectory"]["tool_calls"]
    ]
    assert got == [("t", "1", "unknown"), ("u", "3", "unknown"), ("t", "2", "failed")]
    assert "tool_call_output_ambiguous" not in [code for code, _ in gaps_of(result)]


@pytest.mark.parametrize(("outputs", "observations"), [(1, 2), (2, 1), (3, 2)])
def test_numbers_that_differ_stay_unassigned_and_are_said(tmp_path, outputs, observations):
    capture(tmp_path, chat("a"))
    bundle = observed(
        "a",
        conversation=[output("t", str(number)) for number in range(outputs)],
        more=[tool_call("t") for _ in range(observations)],
    )
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle))
    assert [call["output"] for call in result["ng_trajectory"]["tool_calls"]] == [
        None
    ] * observations
    assert ("tool_call_output_ambiguous", "t") in gaps_of(result)


def test_an_observation_merges_into_the_agents_own(tmp_path):
    own = tool_call("t", status="completed", tool_name="mine", output="own", later=1)
    bundle = observed(more=[tool_call("t", tool_name="seen", duration_ms=3.5)])
    result = enrich(
        tmp_path,
        result_of(ng_agent_observations=bundle, ng_trajectory=producer(tool_calls=[own])),
    )
    (call,) = result["ng_trajectory"]["tool_calls"]
    assert (call["status"], call["tool_name"], call["duration_ms"]) == ("completed", "seen", 3.5)
    assert (call["output"], call["later"]) == ("own", 1)


# --- redaction (section 13)


@pytest.mark.parametrize("where", ["observations", "trajectory", "malformed"])
def test_a_redacted_result_gets_its_calls_without_payloads(tmp_path, where):
    path = capture(tmp_path, chat("a"))
    gap = {"code": "multimodal_history_redacted"}
    if where == "trajectory":
        result = result_of("a", ng_trajectory=producer(gaps=[gap]))
    else:
        more = [5] if where == "malformed" else []
        result = result_of(ng_agent_observations=observed("a", gaps=[gap], more=more))
    result = enrich(tmp_path, result, delete_capture=True)
    (call,) = result["ng_trajectory"]["model_calls"]
    assert (call["request"], call["response"]) == (None, None)
    assert not {"request", "response"} & set(calls_of(result)[0])
    assert turns_of(result) == []
    assert path.exists()


# --- perf (section 9)


def test_observability_off_withholds_perf_alone(tmp_path):
    capture(tmp_path, chat("a"))
    with_perf = enrich(tmp_path, result_of("a"))
    without = enrich(tmp_path, result_of("a"), observability_enabled=False)
    assert "ng_perf" not in without
    del with_perf["ng_perf"]
    assert without == with_perf


def test_no_invocations_no_perf(tmp_path):
    capture(tmp_path, chat("a"))
    assert "ng_perf" not in enrich(tmp_path, result_of())


@pytest.mark.parametrize("latency", [None, 0, 61234.5])
def test_latency_is_the_given_one(tmp_path, latency):
    capture(tmp_path, chat("a"))
    perf = enrich(tmp_path, result_of("a"), rollout_latency_ms=latency)["ng_perf"]
    assert perf.get("total_latency_ms") == latency


def test_a_verifiers_call_does_not_count(tmp_path):
    capture(tmp_path, chat("a"), chat("j"))
    verifiers = [{"invocation_id": "v", "verifier": "j", "model_calls": [{"model_call_id": "j"}]}]
    result = enrich(tmp_path, result_of("a", "j", ng_verifier_invocations=verifiers))
    assert result["ng_perf"]["prompt_tokens"] == 10


def test_nothing_nested_is_mutated(tmp_path):
    capture(tmp_path, chat("a"))
    result = result_of("a", ng_trajectory=producer(turns=[own_turn()]))
    parts = {key: (value, copy.deepcopy(value)) for key, value in result.items()}
    enrich(tmp_path, result)
    for before, value in parts.values():
        assert before == value
    assert capture_gaps(result) == []
