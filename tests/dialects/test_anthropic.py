"""The Anthropic converter, sentence by sentence of contract section 8."""

import copy
import json
import logging
import subprocess
import sys

import pytest

from rollfold.dialects import Unconverted, anthropic
from rollfold.dialects.anthropic import (
    convert_batch,
    convert_content,
    convert_message,
    convert_system,
)

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PNG_PART = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}
LINK_PART = {"type": "input_image", "image_url": "https://example.com/a?b=1", "detail": "auto"}


def text(value):
    return {"type": "text", "text": value}


def image(source):
    return {"type": "image", "source": source}


def tool_use(call_id="t1", name="Bash", **more):
    return {"type": "tool_use", "id": call_id, "name": name, **more}


def tool_result(call_id="t1", **more):
    return {"type": "tool_result", "tool_use_id": call_id, **more}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def without_ids(items):
    return [
        {k: v for k, v in item.items() if k != "id" or item["type"] == "function_call"}
        for item in items
    ]


# --- messages -------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "system", "assistant", "developer", "", "tool"])
@pytest.mark.parametrize("content", ["hi", "", "a\u2028b \U0001f600"])
def test_string_content_stays_a_string(role, content):
    assert convert_message({"role": role, "content": content}) == [
        {"type": "message", "role": role, "content": content}
    ]


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_empty_list_gives_no_item(role):
    assert convert_message({"role": role, "content": []}) == []


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_parts_of_what_was_not_said_by_the_assistant(role):
    blocks = [
        text("a"),
        image(PNG),
        image({"type": "url", "url": LINK_PART["image_url"]}),
        text(""),
    ]
    assert convert_message({"role": role, "content": blocks}) == [
        {
            "type": "message",
            "role": role,
            "content": [
                {"type": "input_text", "text": "a"},
                PNG_PART,
                LINK_PART,
                {"type": "input_text", "text": ""},
            ],
        }
    ]


def test_runs_between_other_blocks_form_one_message_each():
    items = convert_message(
        assistant(text("1"), text("2"), tool_use(), text("3"), tool_use("t2"), text("4"), text("5"))
    )
    assert [item["type"] for item in items] == [
        "message",
        "function_call",
        "message",
        "function_call",
        "message",
    ]
    assert [[part["text"] for part in item.get("content", ())] for item in items] == [
        ["1", "2"],
        [],
        ["3"],
        [],
        ["4", "5"],
    ]
    assert without_ids(items)[2] == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "3", "annotations": []}],
        "status": "completed",
    }


def test_runs_of_a_user_message_keep_the_order_of_its_tool_results():
    items = convert_message(user(text("a"), tool_result(content="r"), text("b"), image(PNG)))
    assert items == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call_output", "call_id": "t1", "output": "r"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "b"}, PNG_PART],
        },
    ]


def test_unknown_keys_of_a_block_are_no_part_of_the_item():
    marked = {**text("a"), "cache_control": {"type": "ephemeral"}, "citations": None}
    assert convert_message(user(marked)) == convert_message(user(text("a")))
    assert convert_message(assistant(marked)) == convert_message(assistant(text("a")))


def test_system_in_the_middle_of_a_conversation():
    assert convert_message({"role": "system", "content": [text("plan mode")]}) == [
        {
            "type": "message",
            "role": "system",
            "content": [{"type": "input_text", "text": "plan mode"}],
        }
    ]


# --- reasoning ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "encrypted"),
    [({"signature": "s"}, "s"), ({"signature": None}, None), ({}, None)],
)
def test_thinking(more, encrypted):
    (item,) = convert_message(assistant({"type": "thinking", "thinking": "why", **more}))
    assert item.pop("id").startswith("rs_")
    assert item == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "why"}],
        "encrypted_content": encrypted,
    }


def test_redacted_thinking():
    (item,) = convert_message(assistant({"type": "redacted_thinking", "data": "x=="}))
    assert item.pop("id").startswith("rs_")
    assert item == {"type": "reasoning", "summary": [], "encrypted_content": "x=="}


# --- tools ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, "{}"),
        ({"input": None}, "{}"),
        ({"input": {}}, "{}"),
        ({"input": ""}, "{}"),
        ({"input": {"a": [1, 2.5, None, True], "é": "\u2028\x00"}}, None),
        ({"input": {"big": 18446744073709551616}}, '{"big":18446744073709551616}'),
        ({"input": {"big": -(10**40)}}, '{"big":-1' + 40 * "0" + "}"),
        ({"input": [1]}, "[1]"),
        ({"input": 0}, "0"),
        ({"input": False}, "false"),
    ],
)
def test_tool_use(more, arguments):
    (item,) = convert_message(assistant(tool_use("t9", "Read", **more)))
    got = item.pop("arguments")
    assert item == {
        "type": "function_call",
        "id": "t9",
        "call_id": "t9",
        "name": "Read",
        "status": "completed",
    }
    if arguments is None:
        assert json.loads(got) == more["input"]
        assert got == json.dumps(more["input"], separators=(",", ":"), ensure_ascii=False)
    else:
        assert got == arguments


def test_deep_input_is_written_whole():
    value: object = []
    for _ in range(900):
        value = [value]
    (item,) = convert_message(assistant(tool_use(input={"deep": value})))
    assert item["arguments"] == '{"deep":' + "[" * 901 + "]" * 901 + "}"


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ({}, ""),
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": []}, ""),
        ({"content": "ok"}, "ok"),
        ({"content": [text("one")]}, "one"),
        ({"content": [text("one"), text(""), text("two")]}, "one\n\ntwo"),
        (
            {"content": [text(""), image(PNG), text("b")]},
            [{"type": "input_text", "text": ""}, PNG_PART, {"type": "input_text", "text": "b"}],
        ),
        ({"content": [image(PNG)]}, [PNG_PART]),
    ],
)
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({}, {}),
        ({"is_error": True}, {"status": "incomplete"}),
        ({"is_error": False}, {}),
        ({"is_error": None}, {}),
        ({"is_error": 1}, {}),
        ({"is_error": "true"}, {}),
    ],
)
def test_tool_result(more, output, error, status):
    assert convert_message(user(tool_result(**more, **error))) == [
        {"type": "function_call_output", "call_id": "t1", "output": output, **status}
    ]


# --- what does not convert ------------------------------------------------------------

BAD_BLOCKS = [
    ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, "server_tool_use"),
    ({"type": "document", "source": {}}, "document"),
    ({"type": 5}, "unknown"),
    ({"type": None}, "unknown"),
    ({"type": ""}, "unknown"),
    ({"type": ["text"]}, "unknown"),
    ({}, "unknown"),
    ("a string", "unknown"),
    (None, "unknown"),
    (5, "unknown"),
    ([], "unknown"),
    ({"type": "text"}, "text"),
    ({"type": "text", "text": None}, "text"),
    ({"type": "text", "text": 5}, "text"),
    ({"type": "thinking"}, "thinking"),
    ({"type": "thinking", "thinking": None, "signature": "s"}, "thinking"),
    ({"type": "redacted_thinking"}, "redacted_thinking"),
    ({"type": "redacted_thinking", "data": 1}, "redacted_thinking"),
    ({"type": "tool_use", "name": "Bash"}, "tool_use"),
    ({"type": "tool_use", "id": None, "name": "Bash"}, "tool_use"),
    ({"type": "tool_use", "id": "t"}, "tool_use"),
    ({"type": "tool_use", "id": "t", "name": 5}, "tool_use"),
    ({"type": "tool_result", "content": "x"}, "tool_result"),
    ({"type": "tool_result", "tool_use_id": 5}, "tool_result"),
    ({"type": "tool_result", "tool_use_id": "t", "content": {}}, "tool_result"),
    ({"type": "tool_result", "tool_use_id": "t", "content": 5}, "tool_result"),
    (tool_result(content=[text("a"), {"type": "document"}]), "tool_result"),
    (tool_result(content=["a"]), "tool_result"),
    (tool_result(content=[{"type": "text"}]), "text"),
    (tool_result(content=[image({"type": "file"})]), "image"),
    ({"type": "image"}, "image"),
    (image(None), "image"),
    (image({"type": "file", "file_id": "f"}), "image"),
    (image({"type": "url"}), "image"),
    (image({"type": "url", "url": 5}), "image"),
    (image({"type": "base64", "data": "aGk="}), "image"),
    (image({"type": "base64", "media_type": "image/png"}), "image"),
]


@pytest.mark.parametrize(("block", "kind"), BAD_BLOCKS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_block_that_does_not_convert_is_named(block, kind, role):
    with pytest.raises(Unconverted) as caught:
        convert_message({"role": role, "content": [text("fine"), block, {"type": "later"}]})
    assert caught.value.block_type == kind


@pytest.mark.parametrize(
    "message",
    [
        None,
        "hi",
        5,
        [],
        {},
        {"content": "no role"},
        {"role": None, "content": "x"},
        {"role": 5, "content": "x"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": {"type": "text", "text": "x"}},
        {"role": "user", "content": 5},
    ],
)
def test_a_malformed_message(message):
    with pytest.raises(Unconverted) as caught:
        convert_message(message)
    assert caught.value.block_type == "unknown"


def test_a_message_of_another_dialect_is_named():
    with pytest.raises(Unconverted) as caught:
        convert_message({"type": "function_call_output", "call_id": "c", "output": "o"})
    assert caught.value.block_type == "function_call_output"


# --- system ---------------------------------------------------------------------------


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system(system):
    assert convert_system(system) == []


def test_system_string_and_blocks():
    assert convert_system("S") == [{"type": "message", "role": "system", "content": "S"}]
    blocks = [text("S"), {**text("T"), "cache_control": {"type": "ephemeral"}}]
    assert convert_system(blocks) == [
        {
            "type": "message",
            "role": "system",
            "content": [{"type": "input_text", "text": "S"}, {"type": "input_text", "text": "T"}],
        }
    ]


@pytest.mark.parametrize("system", [5, {"type": "text", "text": "S"}, [{"type": "audio"}]])
def test_system_that_does_not_convert(system):
    with pytest.raises(Unconverted):
        convert_system(system)


# --- responses ------------------------------------------------------------------------


def test_content_is_split_as_for_responses():
    response = {
        "content": [
            {"type": "thinking", "thinking": "r1", "signature": "s"},
            text("a"),
            tool_use("t1", input={"x": 1}),
            {"type": "redacted_thinking", "data": "d"},
            tool_use("t2"),
        ]
    }
    answer, reasoning, calls = convert_content(response)
    assert [item["type"] for item in answer] == ["message", "function_call", "function_call"]
    assert [item["encrypted_content"] for item in reasoning] == ["s", "d"]
    assert calls == 2


def test_content_without_reasoning():
    assert convert_content({"content": []}) == ([], None, 0)


@pytest.mark.parametrize("response", [{}, {"content": None}, {"content": "x"}, None])
def test_a_response_without_a_list(response):
    with pytest.raises(Unconverted):
        convert_content(response)


# --- ids ------------------------------------------------------------------------------


def ids(message):
    return [item["id"] for item in convert_message(message) if "id" in item]


def test_ids_are_of_their_kind_and_differ_by_position_and_content():
    thinking = {"type": "thinking", "thinking": "r"}
    message = assistant(thinking, text("a"), tool_use(), text("a"), thinking)
    found = ids(message)
    assert [one.split("_")[0] for one in found] == ["rs", "msg", "t1", "msg", "rs"]
    assert len(set(found)) == 5
    assert not set(ids(assistant(text("a")))) & set(ids(assistant(text("b"))))
    assert not set(found) - {"t1"} & set(ids(assistant(thinking, text("a"), tool_use(), text("b"))))


def test_an_answer_has_the_ids_it_has_in_the_next_history():
    blocks = [{"type": "thinking", "thinking": "r"}, text("a"), tool_use(input={"n": 10**30})]
    answer, reasoning, _ = convert_content({"content": blocks})
    marked = copy.deepcopy(blocks)
    marked[1]["cache_control"] = {"type": "ephemeral"}
    assert [*reasoning, *answer] == convert_message(assistant(*marked))


def test_ids_are_the_same_in_another_process():
    message = assistant(text("né\u2028"), {"type": "thinking", "thinking": "r"})
    program = (
        "import json,sys; from rollfold.dialects.anthropic import convert_message;"
        "print(json.dumps(convert_message(json.load(sys.stdin))))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(message),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert {json.dumps(convert_message(message)) + "\n"} == runs


def test_a_half_surrogate_of_a_caller_costs_nothing():
    assert convert_message(assistant(text("\ud83d")))[0]["content"][0]["text"] == "\ud83d"


# --- in bulk --------------------------------------------------------------------------


def test_batch_gives_each_outcome_in_order_and_logs_what_stays(caplog):
    caplog.set_level(logging.DEBUG, "rollfold.dialects")
    jobs = [
        ("system", "S"),
        ("message", user(text("a"))),
        ("message", user({"type": "document"})),
        ("response", {"content": [text("b")]}),
        ("response", {"content": [{"type": "mcp_tool_use"}]}),
        ("message", assistant(tool_use(input={"x": {1, 2}}))),
    ]
    outcomes = convert_batch(jobs)
    assert outcomes[0] == convert_system("S")
    assert outcomes[1] == convert_message(jobs[1][1])
    assert outcomes[3] == convert_content(jobs[3][1])
    assert [outcomes[i].block_type for i in (2, 4, 5)] == ["document", "mcp_tool_use", "tool_use"]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert ["Unconverted" in line for line in lines] == [True, True, False]
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def test_an_error_that_was_caught_holds_no_payload_alive():
    (outcome,) = convert_batch([("message", user({"type": "document"}))])
    assert outcome.__traceback__ is None


# --- one turn -------------------------------------------------------------------------


def test_turn_content_of_interleaved_blocks():
    request = {"system": "S", "messages": [{"role": "user", "content": "q"}]}
    response = {"content": [text("one"), tool_use("t1"), text("two")]}
    turn = anthropic.turn_content(request, response)
    assert turn.question == [
        {"type": "message", "role": "system", "content": "S"},
        {"type": "message", "role": "user", "content": "q"},
    ]
    assert [item["type"] for item in turn.answer] == ["message", "function_call", "message"]
    assert (turn.reasoning_content, turn.tool_calls) == (None, 1)


@pytest.mark.parametrize("place", ["system", "messages", "content"])
def test_turn_content_keeps_what_came(place):
    bad = {"type": "document"}
    request = {
        "system": [text("S"), *([bad] if place == "system" else [])],
        "messages": [user(text("q"), *([bad] if place == "messages" else []))],
    }
    thinking = {"type": "thinking", "thinking": "r"}
    blocks = [thinking, tool_use("a"), tool_use("b"), *([bad] if place == "content" else [])]
    turn = anthropic.turn_content(request, {"content": blocks})
    assert turn.question == [
        {"role": "system", "content": request["system"]},
        *request["messages"],
    ]
    assert turn == (turn.question, blocks, None, 2)


def test_turn_content_without_a_request():
    assert anthropic.turn_content(None, {"content": []}) == ([], [], None, 0)
