"""Faults of turns (contract, section 8): each is a decision, whole and in order."""

import copy
import itertools
import json

import pytest

from tests.rollouts import (
    ROLLOUT_ID,
    calls_of,
    capture,
    chat,
    codes,
    enrich,
    messages,
    observed,
    responses,
    result_of,
    turns_of,
)

# 25 --- Messages


def text(value):
    return {"type": "text", "text": value}


def test_25_blocks_keep_their_order_and_system_comes_first(tmp_path):
    request = {"system": "S", "messages": [{"role": "user", "content": "q"}]}
    content = [text("one"), {"type": "tool_use", "id": "t1", "name": "f"}, text("two")]
    capture(tmp_path, messages("a", content, request=request))
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert [item["type"] for item in turn["answer"]] == ["message", "function_call", "message"]
    assert [item["content"] for item in turn["question"]] == ["S", "q"]
    assert turn["reasoning_content"] is None


@pytest.mark.parametrize("place", ["system", "messages", "content"])
def test_an_unknown_block_keeps_what_came_and_says_so(tmp_path, place):
    bad = {"type": "document", "source": {"n": 2**70}}
    request = {
        "system": [text("S"), *([bad] if place == "system" else [])],
        "messages": [
            {"role": "user", "content": [text("q"), *([bad] if place == "messages" else [])]}
        ],
    }
    content = [
        {"type": "thinking", "thinking": "r", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        *([bad] if place == "content" else []),
    ]
    after = [text("fine")]
    capture(tmp_path, messages("a", content, request=request), messages("b", after))
    result = enrich(tmp_path, result_of("a", "b"))
    first, second = turns_of(result)
    assert first["question"] == [
        {"role": "system", "content": request["system"]},
        *request["messages"],
    ]
    assert first["answer"] == content
    assert first["reasoning_content"] is None
    assert second["step_count"] == 1
    assert second["answer"][0]["content"][0]["text"] == "fine"
    assert [gap for gap in result["ng_trajectory"]["gaps"] if "unconverted" in gap["code"]] == [
        {"code": "turn_content_unconverted", "invocation_id": "root", "detail": "document"}
    ]


def test_the_first_bad_block_is_named_question_before_answer(tmp_path):
    request = {"messages": [{"role": "user", "content": [{"text": "no type"}]}]}
    capture(tmp_path, messages("a", [{"type": "later"}], request=request))
    result = enrich(tmp_path, result_of("a"))
    details = [g["detail"] for g in result["ng_trajectory"]["gaps"] if "unconverted" in g["code"]]
    assert details == ["unknown"]


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "x"}]])
@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": 5}])
def test_a_message_without_role_is_none_also_where_the_model_said_the_same(tmp_path, content, role):
    asked = [{**role, "content": content}]
    capture(tmp_path, messages("a", content), messages("b", [], request={"messages": asked}))
    result = enrich(tmp_path, result_of("a", "b"))
    assert turns_of(result)[1]["question"] == asked
    assert "turn_content_unconverted" in codes(result["ng_trajectory"])


@pytest.mark.parametrize("blanks", [0, 40, 60, 5000])
@pytest.mark.parametrize("empty", ["[%s]", "{%s}"])
def test_an_empty_system_is_none_however_it_is_written(tmp_path, blanks, empty):
    call = json.dumps(messages("a", [{"type": "text", "text": "x"}], request={"messages": []}))
    system = empty % (" " * blanks)
    call = call.replace('"messages": []', f'"system": {system}, "messages": []')
    bad = call.replace('"a"', '"b"').replace('"messages": []', '"messages": [5]')
    (tmp_path / f"{ROLLOUT_ID}.capture.jsonl").write_text(f"{call}\n{bad}\n")
    result = enrich(tmp_path, result_of("a", "b"))
    assert [turn["question"] for turn in turns_of(result)] == [[], [5]]


def test_a_history_that_repeats_is_the_same_in_every_turn(tmp_path):
    history = [{"role": "user", "content": "q"}]
    exchanges = []
    for number, call_id in enumerate("abcd"):
        content = [
            {"type": "thinking", "thinking": f"r{number}", "signature": "s"},
            text("same"),
            {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {"n": number}},
        ]
        exchanges.append(messages(call_id, content, request={"messages": copy.deepcopy(history)}))
        history.append({"role": "assistant", "content": content})
        output = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "ok"}
        history.append({"role": "user", "content": [output]})
    capture(tmp_path, *exchanges)
    turns = turns_of(enrich(tmp_path, result_of(*"abcd")))
    for before, after in itertools.pairwise(turns):
        grown = [*before["question"], *before["reasoning_content"], *before["answer"]]
        assert after["question"][: len(grown)] == grown
        assert after["question"][len(grown) :] == [
            {
                "type": "function_call_output",
                "call_id": before["answer"][-1]["call_id"],
                "output": "ok",
            }
        ]
    assert [turn["step_count"] for turn in turns] == [0, 1, 2, 3]


# 26 --- Responses


def test_26_instructions_come_first_and_messages_are_typed(tmp_path):
    request = {"instructions": "S", "input": [{"role": "user", "content": "q"}]}
    capture(tmp_path, responses("a", request, [{"role": "assistant", "content": "a"}]))
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert turn["question"] == [
        {"type": "message", "role": "system", "content": "S"},
        {"type": "message", "role": "user", "content": "q"},
    ]
    assert turn["answer"] == [{"type": "message", "role": "assistant", "content": "a"}]


def test_instructions_beside_a_string_input(tmp_path):
    capture(
        tmp_path,
        responses("a", {"instructions": "S", "input": "q"}, []),
        responses("b", {"input": "q"}, []),
    )
    first, second = turns_of(enrich(tmp_path, result_of("a", "b")))
    assert first["question"] == [
        {"type": "message", "role": "system", "content": "S"},
        {"type": "message", "role": "user", "content": "q"},
    ]
    assert second["question"] == "q"


def test_output_is_split_and_what_is_no_object_is_dropped(tmp_path):
    call = {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    output = [thought, 5, call, "x", {"type": "later"}, None, thought]
    capture(tmp_path, responses("a", {"input": []}, output), responses("b", {"input": [call]}, []))
    first, second = turns_of(enrich(tmp_path, result_of("a", "b")))
    assert first["reasoning_content"] == [thought, thought]
    assert first["answer"] == [call, {"type": "later"}]
    assert (second["answer"], second["reasoning_content"]) == ([], None)
    assert second["question"] == [call]
    assert second["step_count"] == 1


def test_a_failed_response_with_its_list_is_a_decision(tmp_path):
    exchange = responses("a", {"input": "q"}, [])
    exchange["response"]["status"] = "failed"
    capture(tmp_path, exchange)
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert turn["answer"] == []


# 27 --- Chat


def completion(message, **more):
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": message}], **more}


def test_27_a_refusal_stays_a_refusal(tmp_path):
    message = {"role": "assistant", "content": None, "refusal": "no"}
    capture(tmp_path, chat("a", response=completion(message)), chat("b"))
    first, second = turns_of(enrich(tmp_path, result_of("a", "b")))
    assert first["answer"] == message
    assert first["reasoning_content"] is None
    assert second["step_count"] == 0


@pytest.mark.parametrize(
    ("message", "answer", "reasoning"),
    [
        ({"content": "a", "reasoning_content": "r"}, {"content": "a"}, "r"),
        ({"content": "a", "reasoning_content": "", "reasoning": "r"}, {"content": "a"}, "r"),
        ({"content": "a", "reasoning_content": "r", "reasoning": "s"}, {"content": "a"}, "r"),
        ({"content": "a", "reasoning": ""}, {"content": "a"}, ""),
        ({"content": "a", "reasoning": None}, {"content": "a"}, None),
        ({"content": "a"}, {"content": "a"}, None),
        ({}, {}, None),
        (None, {}, None),
        ("x", {}, None),
    ],
)
def test_a_chat_message_and_its_reasoning(tmp_path, message, answer, reasoning):
    capture(tmp_path, chat("a", response=completion(message)))
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert (turn["answer"], turn["reasoning_content"]) == (answer, reasoning)


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        ([], None),
        ([5, "x", None], None),
        (
            [{"index": 1, "message": {"content": "1"}}, {"index": 0, "message": {"content": "0"}}],
            "0",
        ),
        ([{"index": 1, "message": {"content": "1"}}, {"index": 2, "message": {}}], "1"),
        ([None, {"message": {"content": "first"}}, {"message": {"content": "second"}}], "first"),
    ],
)
def test_the_choice_with_index_0_else_the_first(tmp_path, choices, answer):
    capture(tmp_path, chat("a", response={"choices": choices}))
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert turn["answer"] == (None if answer is None else {"content": answer})


def test_minus_zero_is_zero(tmp_path):
    choices = [{"index": 1, "message": {"content": "1"}}, {"index": 0, "message": {"content": "0"}}]
    call = json.dumps(chat("a", response={"choices": choices})).replace('"index": 0', '"index": -0')
    (tmp_path / f"{ROLLOUT_ID}.capture.jsonl").write_text(call + "\n")
    (turn,) = turns_of(enrich(tmp_path, result_of("a")))
    assert turn["answer"] == {"content": "0"}


def test_14_finish_reason_of_the_choice_with_index_0(tmp_path):
    choices = [{"index": 1, "finish_reason": "length"}, {"index": 0, "finish_reason": "stop"}]
    capture(tmp_path, chat("a", response={"choices": choices}))
    assert calls_of(enrich(tmp_path))[0]["finish_reason"] == "stop"


# 28 --- no decision

ERROR = {"error": {"type": "server_error", "message": "boom"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response": None, "response_raw": "<html>boom</html>"},
        {"response": ERROR},
        {"response": {"choices": None}},
        {"response": {"output": []}},
        {"response": {"content": "text"}},
    ],
)
def test_28_an_error_body_is_no_turn(tmp_path, fields):
    failed = {**chat("a"), "status_code": 500, "error_category": "server_error", **fields}
    capture(tmp_path, failed, chat("b"))
    result = enrich(tmp_path, result_of("a", "b"))
    (turn,) = turns_of(result)
    assert turn["model_calls"][0]["model_call_id"] == "b"
    assert turn["turn_no"] == 1
    calls = result["ng_trajectory"]["model_calls"]
    assert [call["model_call_id"] for call in calls] == ["a", "b"]
    assert calls[0]["response"] == (fields["response"] or fields.get("response_raw"))


@pytest.mark.parametrize("dialect", [None, "later"])
@pytest.mark.parametrize(
    "body",
    [{"choices": []}, {"output": []}, {"content": []}],
    ids=["chat", "responses", "messages"],
)
def test_a_dialect_nobody_knows_lets_the_shape_decide(tmp_path, dialect, body):
    capture(tmp_path, {**chat("a"), "dialect": dialect, "response": body})
    assert len(turns_of(enrich(tmp_path, result_of("a")))) == 1


def test_a_judge_and_an_auxiliary_call_are_no_turns(tmp_path):
    capture(tmp_path, chat("a"), chat("j"), chat("x"))
    verifiers = [{"invocation_id": "v", "verifier": "j", "model_calls": [{"model_call_id": "j"}]}]
    result = enrich(tmp_path, result_of("a", ng_verifier_invocations=verifiers))
    assert [turn["model_calls"][0]["model_call_id"] for turn in turns_of(result)] == ["a"]
    assert result["ng_verifier_invocations"] == verifiers


def test_a_call_that_agent_and_verifier_claim_is_no_turn(tmp_path):
    capture(tmp_path, chat("a"), chat("b"))
    verifiers = [{"invocation_id": "v", "verifier": "j", "model_calls": [{"model_call_id": "b"}]}]
    result = enrich(tmp_path, result_of("a", "b", ng_verifier_invocations=verifiers))
    assert [turn["model_calls"][0]["model_call_id"] for turn in turns_of(result)] == ["a"]
    owned = result["ng_agent_observations"]["records"][0]["model_calls"]
    assert [reference["model_call_id"] for reference in owned] == ["a", "b"]


def test_a_compactions_call_is_no_turn_but_counts(tmp_path):
    capture(tmp_path, chat("a"), chat("b"), chat("c"))
    compaction = {
        "kind": "context_compaction",
        "invocation_id": "root",
        "model_calls": [{"model_call_id": "b"}],
    }
    bundle = observed("a", "b", "c", more=[compaction])
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle))
    assert [turn["turn_no"] for turn in turns_of(result)] == [1, 2]
    assert [turn["model_calls"][0]["model_call_id"] for turn in turns_of(result)] == ["a", "c"]
    assert result["ng_perf"]["prompt_tokens"] == 30
    assert codes(result["ng_agent_observations"]) == []


def test_without_payloads_there_are_no_turns(tmp_path):
    capture(tmp_path, chat("a"))
    result = enrich(tmp_path, result_of("a"), include_payloads=False)
    assert turns_of(result) == []
    assert not {"request", "response", "request_raw", "response_raw"} & set(calls_of(result)[0])


def test_each_invocation_counts_its_own_turns(tmp_path):
    capture(tmp_path, chat("a"), chat("b"), chat("c"), chat("d"))
    sub = observed("b", "d", invocation_id="sub", parent_invocation_id="root")["records"][0]
    bundle = observed("a", "c", more=[sub])
    result = enrich(tmp_path, result_of(ng_agent_observations=bundle, resolved=True))
    got = [(turn["invocation_id"], turn["turn_no"], turn["resolved"]) for turn in turns_of(result)]
    assert sorted(got) == [("root", 1, None), ("root", 2, None), ("sub", 1, None), ("sub", 2, True)]


@pytest.mark.parametrize(
    ("times", "timestamp"),
    [
        ({"started_at": 5, "completed_at": 6}, 5),
        ({"started_at": None, "completed_at": 6}, 6),
        ({"started_at": None, "completed_at": None}, 0.0),
    ],
)
def test_a_turns_timestamp(tmp_path, times, timestamp):
    capture(tmp_path, chat("a", **times))
    assert turns_of(enrich(tmp_path, result_of("a")))[0]["timestamp"] == timestamp


def test_a_call_that_the_server_answered_itself_is_a_turn_and_says_so(tmp_path):
    capture(tmp_path, chat("a", response_source="local", local_response_reason="budget"))
    result = enrich(tmp_path, result_of("a"))
    assert len(turns_of(result)) == 1
    metadata = result["ng_trajectory"]["model_calls"][0]["response_metadata"]
    assert metadata["response_source"] == "local"
    assert metadata["local_response_reason"] == "budget"
