"""Responses streams as the API's reference and servers of its kind send them.

Each kind of output item is a final item and the events that lead to it; a stream is a
list of them between `response.created` and a terminal event.
"""

import copy
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
Part = tuple[Json, Json, list[Json]]


def response(status: str, output: list[Json] | None, **extra: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1760000000,
        "status": status,
        "model": "gpt-test",
        "instructions": None,
        "error": None,
        "incomplete_details": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        **({} if output is None else {"output": output}),
        **extra,
    }


USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 14,
}
LOGPROB = {"token": "Hel", "logprob": -0.1, "top_logprobs": [{"token": "Hel", "logprob": -0.1}]}
CITATION = {
    "type": "url_citation",
    "url": "https://a.example",
    "title": "A",
    "start_index": 0,
    "end_index": 3,
}


def event(kind: str, **members: Any) -> Json:
    return {"type": f"response.{kind}", **members}


def message() -> Part:
    text = {
        "type": "output_text",
        "text": "Hello 😀",
        "annotations": [CITATION],
        "logprobs": [LOGPROB, LOGPROB],
    }
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    at = {"item_id": "msg_1", "content_index": 0}
    empty = text | {"text": "", "annotations": [], "logprobs": []}
    return (
        item,
        item | {"status": "in_progress", "content": []},
        [
            event("content_part.added", **at, part=empty),
            event("output_text.delta", **at, delta="Hello", logprobs=[LOGPROB]),
            event("output_text.delta", **at, delta=" 😀", logprobs=[LOGPROB]),
            event("output_text.annotation.added", **at, annotation_index=0, annotation=CITATION),
            event("output_text.done", **at, text="Hello 😀", logprobs=[LOGPROB, LOGPROB]),
            event("content_part.done", **at, part=text),
        ],
    )


def refusal() -> Part:
    part = {"type": "refusal", "refusal": "I cannot."}
    item = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    at = {"item_id": "msg_2", "content_index": 0}
    return (
        item,
        item | {"status": "in_progress", "content": []},
        [
            event("content_part.added", **at, part={"type": "refusal", "refusal": ""}),
            event("refusal.delta", **at, delta="I can"),
            event("refusal.delta", **at, delta="not."),
            event("refusal.done", **at, refusal="I cannot."),
            event("content_part.done", **at, part=part),
        ],
    )


def reasoning() -> Part:
    summaries = [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": summaries,
        "content": [{"type": "reasoning_text", "text": "hmm"}],
        "encrypted_content": "enc",
    }
    events = []
    for index, part in enumerate(summaries):
        at = {"item_id": "rs_1", "summary_index": index}
        events += [
            event("reasoning_summary_part.added", **at, part={"type": "summary_text", "text": ""}),
            event("reasoning_summary_text.delta", **at, delta=part["text"][:2]),
            event("reasoning_summary_text.delta", **at, delta=part["text"][2:]),
            event("reasoning_summary_text.done", **at, text=part["text"]),
            event("reasoning_summary_part.done", **at, part=part),
        ]
    at = {"item_id": "rs_1", "content_index": 0}
    events += [
        event("reasoning_text.delta", **at, delta="h"),
        event("reasoning_text.delta", **at, delta="mm"),
        event("reasoning_text.done", **at, text="hmm"),
    ]
    return item, {"id": "rs_1", "type": "reasoning", "summary": []}, events


def _pieces(kind: str, member: str, item: Json, **done: Any) -> Part:
    """Give an item whose `member` comes in two deltas and a done event."""
    text = item[member]
    at = {"item_id": item["id"]}
    half = len(text) // 2
    return (
        item,
        item | {"status": "in_progress", member: ""},
        [
            event(f"{kind}.delta", **at, delta=text[:half]),
            event(f"{kind}.delta", **at, delta=text[half:]),
            event(f"{kind}.done", **at, **{member: text}, **done),
        ],
    )


def function_call() -> Part:
    item = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "f",
        "arguments": '{"a": 1.50}',
        "status": "completed",
    }
    return _pieces("function_call_arguments", "arguments", item, name="f")


def custom_tool_call() -> Part:
    item = {
        "id": "ctc_1",
        "type": "custom_tool_call",
        "call_id": "call_2",
        "name": "sh",
        "input": "ls -l",
        "status": "completed",
    }
    return _pieces("custom_tool_call_input", "input", item)


def mcp_call() -> Part:
    item = {
        "id": "mcp_1",
        "type": "mcp_call",
        "server_label": "s",
        "name": "f",
        "arguments": '{"q":1}',
        "output": "ok",
        "error": None,
        "status": "completed",
    }
    final, added, events = _pieces("mcp_call_arguments", "arguments", item)
    at = {"item_id": "mcp_1"}
    return (
        final,
        added | {"output": None},
        [event("mcp_call.in_progress", **at), *events, event("mcp_call.completed", **at)],
    )


def mcp_list_tools() -> Part:
    item = {
        "id": "mcpl_1",
        "type": "mcp_list_tools",
        "server_label": "s",
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    }
    at = {"item_id": "mcpl_1"}
    return (
        item,
        item | {"tools": []},
        [event("mcp_list_tools.in_progress", **at), event("mcp_list_tools.completed", **at)],
    )


def code_interpreter_call() -> Part:
    item = {
        "id": "ci_1",
        "type": "code_interpreter_call",
        "code": "print(1)",
        "container_id": "c",
        "outputs": [{"type": "logs", "logs": "1"}],
        "status": "completed",
    }
    final, added, events = _pieces("code_interpreter_call_code", "code", item)
    at = {"item_id": "ci_1"}
    return (
        final,
        added | {"outputs": None},
        [
            event("code_interpreter_call.in_progress", **at),
            *events,
            event("code_interpreter_call.interpreting", **at),
            event("code_interpreter_call.completed", **at),
        ],
    )


def _search(kind: str, item: Json) -> Part:
    steps = ("in_progress", "searching", "completed")
    return (
        item,
        {"id": item["id"], "type": kind, "status": "in_progress"},
        [event(f"{kind}.{step}", item_id=item["id"]) for step in steps],
    )


def web_search_call() -> Part:
    return _search(
        "web_search_call",
        {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "a"},
        },
    )


def file_search_call() -> Part:
    return _search(
        "file_search_call",
        {
            "id": "fs_1",
            "type": "file_search_call",
            "status": "completed",
            "queries": ["a"],
            "results": None,
        },
    )


def image_generation_call() -> Part:
    item = {
        "id": "ig_1",
        "type": "image_generation_call",
        "status": "completed",
        "result": "iVBOR",
        "output_format": "png",
    }
    at = {"item_id": "ig_1"}
    return (
        item,
        {"id": "ig_1", "type": "image_generation_call", "status": "in_progress", "result": None},
        [
            event("image_generation_call.in_progress", **at),
            event("image_generation_call.generating", **at),
            event(
                "image_generation_call.partial_image",
                **at,
                partial_image_index=0,
                partial_image_b64="iV",
            ),
            event("image_generation_call.completed", **at),
        ],
    )


def shell_call() -> Part:
    item = {
        "id": "sh_1",
        "type": "shell_call",
        "call_id": "call_3",
        "action": {"commands": ["ls -l", "pwd"], "timeout_ms": None, "max_output_length": None},
        "status": "completed",
    }
    added = copy.deepcopy(item) | {"status": "in_progress"}
    added["action"]["commands"] = []
    events = []
    for index, command in enumerate(item["action"]["commands"]):
        events += [
            event("shell_call_command.added", command_index=index, command=""),
            event("shell_call_command.delta", command_index=index, delta=command[:1]),
            event("shell_call_command.delta", command_index=index, delta=command[1:]),
            event("shell_call_command.done", command_index=index, command=command),
        ]
    return item, added, events


def shell_call_output() -> Part:
    output = [{"stdout": "a\nb", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    item = {
        "id": "sho_1",
        "type": "shell_call_output",
        "call_id": "call_3",
        "output": output,
        "max_output_length": None,
        "status": "completed",
    }
    at = {"item_id": "sho_1", "command_index": 0}
    return (
        item,
        item | {"output": [], "status": "in_progress"},
        [
            event("shell_call_output_content.delta", **at, delta={"stdout": "a\n"}),
            event("shell_call_output_content.delta", **at, delta={"stdout": "b"}),
            event("shell_call_output_content.done", **at, output=output),
        ],
    )


ITEMS = [
    message, refusal, reasoning, function_call, custom_tool_call, mcp_call, mcp_list_tools,
    code_interpreter_call, web_search_call, file_search_call, image_generation_call, shell_call,
    shell_call_output,
]  # fmt: skip


def stream(parts: list[Part], *last: Json, leave_open: bool = False) -> list[Json]:
    """Put the items' events between the created event and `last`."""
    events = [
        event("created", response=response("in_progress", [])),
        event("in_progress", response=response("in_progress", [])),
    ]
    for index, (final, added, pieces) in enumerate(parts):
        events.append(event("output_item.added", output_index=index, item=added))
        events += [piece | {"output_index": index} for piece in pieces]
        if not (leave_open and index == len(parts) - 1):
            events.append(event("output_item.done", output_index=index, item=final))
    return [{**found, "sequence_number": number} for number, found in enumerate([*events, *last])]


def completed(output: list[Json] | None) -> Json:
    return event("completed", response=response("completed", output, usage=USAGE))


def streams() -> Iterator[tuple[str, list[Json]]]:
    """Give each stream with its name."""
    for make in ITEMS:
        final, *_ = part = make()
        name = make.__name__
        yield name, stream([part], completed([final]))
        yield f"{name}, left open", stream([part], leave_open=True)
    every = [make() for make in ITEMS]
    yield "every item", stream(every, completed([final for final, *_ in every]))
    yield "output null", stream(every, completed(None))
    partial = event(
        "incomplete",
        response=response(
            "incomplete",
            [message()[0]],
            incomplete_details={"reason": "max_output_tokens"},
            usage=USAGE,
        ),
    )
    yield "incomplete", stream([message()], partial)
    error = {"code": "server_error", "message": "boom"}
    yield (
        "failed",
        stream([message()], event("failed", response=response("failed", [], error=error))),
    )
    yield "error", stream([message()], {"type": "error", **error, "param": None})
    yield (
        "queued",
        [
            event("created", response=response("queued", [])),
            event("queued", response=response("queued", [])),
            *stream([message()], completed([message()[0]]))[1:],
        ],
    )
    yield (
        "audio",
        stream(
            [message()],
            event("audio.delta", delta="AA"),
            event("audio.transcript.delta", delta="hi"),
            event("audio.transcript.done"),
            event("audio.done"),
            completed([message()[0]]),
        ),
    )
    yield (
        "unknown event",
        stream(
            [message()],
            event("hologram.delta", item_id="h", shape="cube"),
            event("compaction.compacting", item_id="cmp"),
            completed([message()[0]]),
        ),
    )
