"""One interface to a turn's content, whatever the dialect (contract, section 8)."""

import copy

import pytest

from rollfold.dialects import DIALECTS, NoDecisionError, anthropic, chat, responses, turn_content

CALL = {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": []}
TOOL_CALLS = [{"id": "t", "function": {"name": "f", "arguments": "{}"}}]

EXAMPLES = {
    "responses": (
        {"instructions": "S", "input": [{"role": "user", "content": "q"}, CALL]},
        {"output": [THOUGHT, {"role": "assistant", "content": "a"}, 5, CALL]},
        (
            [
                {"type": "message", "role": "system", "content": "S"},
                {"type": "message", "role": "user", "content": "q"},
                CALL,
            ],
            [{"type": "message", "role": "assistant", "content": "a"}, CALL],
            [THOUGHT],
            1,
        ),
    ),
    "chat": (
        {"messages": [{"role": "user", "content": "q"}]},
        {
            "choices": [
                {"index": 1, "message": {"content": "other"}},
                {
                    "index": 0,
                    "message": {"content": None, "reasoning": "r", "tool_calls": TOOL_CALLS},
                },
            ]
        },
        (
            [{"role": "user", "content": "q"}],
            {"content": None, "tool_calls": TOOL_CALLS},
            "r",
            1,
        ),
    ),
    "messages": (
        {"system": "S", "messages": [{"role": "user", "content": "q"}]},
        {"content": [{"type": "tool_use", "id": "t", "name": "f"}]},
        (
            [
                {"type": "message", "role": "system", "content": "S"},
                {"type": "message", "role": "user", "content": "q"},
            ],
            [{**CALL, "id": "t", "status": "completed"}],
            None,
            1,
        ),
    ),
}
MODULES = {"responses": responses, "chat": chat, "messages": anthropic}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("given", ["it", None, "later"])
def test_each_dialect_by_name_and_by_shape(dialect, given):
    request, response, want = EXAMPLES[dialect]
    before = copy.deepcopy((request, response))
    got = turn_content(request, response, dialect if given == "it" else given)
    assert tuple(got) == want
    assert got.tool_calls == got[3]
    assert MODULES[dialect].turn_content(request, response) == got
    assert (request, response) == before


@pytest.mark.parametrize("dialect", [*DIALECTS, None, "later"])
@pytest.mark.parametrize("response", [{}, {"error": {}}, {"output": "x", "choices": 5}])
def test_an_error_body_is_no_decision(dialect, response):
    with pytest.raises(NoDecisionError, match="no list") as caught:
        turn_content({}, response, dialect)
    assert isinstance(caught.value, ValueError)


def test_the_dialects_own_list_decides():
    with pytest.raises(NoDecisionError):
        turn_content({}, {"output": []}, "chat")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("request_body", [None, {}])
def test_a_request_that_is_not_known(dialect, request_body):
    key, _ = DIALECTS[dialect]
    got = turn_content(request_body, {key: []}, dialect)
    assert got.tool_calls == 0
    assert got.reasoning_content is None


@pytest.mark.parametrize(
    ("request_body", "question"),
    [
        ({"input": "q"}, "q"),
        ({"instructions": "S", "input": "q"}, EXAMPLES["responses"][2][0][:2]),
        ({"instructions": None, "input": [CALL]}, [CALL]),
    ],
)
def test_a_string_input(request_body, question):
    assert responses.turn_content(request_body, {"output": []}).question == question
