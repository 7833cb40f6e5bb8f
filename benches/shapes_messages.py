"""The shapes of Anthropic Messages agents: histories that grow by appending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from invented import Writer
    from shapes import Recorder


def content_blocks(writer: Writer, said: int) -> list[dict[str, Any]]:
    """Return what one response holds: thinking, a sentence, one tool call; `said` bytes in all."""
    return [
        {
            "type": "thinking",
            "thinking": writer.prose(said // 2),
            "signature": writer.key("EqQB", 160),
        },
        {"type": "text", "text": writer.prose(said // 6)},
        {
            "type": "tool_use",
            "id": writer.key("toolu_01"),
            "name": "str_replace_editor",
            "input": {
                "command": "str_replace",
                "path": f"/testbed/src/{writer.random.choice('abcdef')}/models.py",
                "old_str": writer.code(said // 6),
            },
        },
    ]


def message_tools(writer: Writer, count: int, size: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"tool_{number}",
            "description": writer.prose(size // 2),
            "input_schema": writer.schema(size // 2),
        }
        for number in range(count)
    ]


def event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {orjson.dumps(data).decode()}\n\n"


def event_stream(response: dict[str, Any]) -> str:
    """Return the stream that adds up to `response`, a few characters a delta as servers send it."""
    start = {**response, "content": [], "stop_reason": None}
    lines = [event("message_start", {"type": "message_start", "message": start})]
    for index, block in enumerate(response["content"]):
        if block["type"] == "tool_use":
            first = {**block, "input": {}}
            kind, field, text = "input_json_delta", "partial_json", orjson.dumps(block["input"])
            pieces = text.decode()
        elif block["type"] == "thinking":
            first = {"type": "thinking", "thinking": "", "signature": ""}
            kind, field, pieces = "thinking_delta", "thinking", block["thinking"]
        else:
            first = {"type": "text", "text": ""}
            kind, field, pieces = "text_delta", "text", block["text"]
        lines.append(
            event(
                "content_block_start",
                {"type": "content_block_start", "index": index, "content_block": first},
            )
        )
        deltas: list[dict[str, Any]] = [
            {"type": kind, field: pieces[at : at + 4]} for at in range(0, len(pieces), 4)
        ]
        if block["type"] == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        lines += [
            event(
                "content_block_delta",
                {"type": "content_block_delta", "index": index, "delta": delta},
            )
            for delta in deltas
        ]
        lines.append(
            event("content_block_stop", {"type": "content_block_stop", "index": index}),
        )
    lines.append(
        event(
            "message_delta",
            {
                "type": "message_delta",
                "delta": {"stop_reason": response["stop_reason"], "stop_sequence": None},
                "usage": {"output_tokens": response["usage"]["output_tokens"]},
            },
        )
    )
    lines.append(event("message_stop", {"type": "message_stop"}))
    return "".join(lines)


def mark_cache(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a cache breakpoint on the last block of the last two user ones.

    Coding agents move these marks on with every call, so the end of a history changes.
    """
    marked = list(messages)
    users = [at for at, message in enumerate(marked) if message["role"] == "user"]
    for at in users[-2:]:
        content = [dict(block) for block in marked[at]["content"]]
        content[-1]["cache_control"] = {"type": "ephemeral"}
        marked[at] = {**marked[at], "content": content}
    return marked


def conversation(
    recorder: Recorder,
    *,
    calls: int,
    system: int,
    tools: tuple[int, int],
    said: int,
    result: int,
    streamed: bool = False,
    marked: bool = False,
) -> None:
    """Record one agent's conversation.

    Sizes in bytes: the system prompt, (number, size) of the tools, what the model says and what
    a tool returns in each turn.
    """
    writer = recorder.writer
    system_blocks = [
        {
            "type": "text",
            "text": writer.prose(system),
            "cache_control": {"type": "ephemeral"},
        }
    ]
    tool_list = message_tools(writer, *tools)
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": writer.prose(1_200)}]},
    ]
    prompt = (system + tools[0] * tools[1]) // 4
    for _ in range(calls):
        blocks = content_blocks(writer, said)
        request: dict[str, Any] = {
            "model": "policy",
            "max_tokens": 32_000,
            "system": system_blocks,
            "messages": mark_cache(messages) if marked else list(messages),
            "tools": tool_list,
        }
        if streamed:
            request["stream"] = True
        response = {
            "id": writer.key("msg_01"),
            "type": "message",
            "role": "assistant",
            "model": "policy",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": (said + result) // 4,
                "cache_read_input_tokens": prompt,
                "output_tokens": said // 4,
            },
        }
        prompt += (said + result) // 4
        recorder.record("messages", request, response, event_stream(response) if streamed else None)
        messages.append({"role": "assistant", "content": blocks})
        messages.append(
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": blocks[2]["id"],
                        "content": writer.code(result),
                    }
                ],
            }
        )


def agentic(recorder: Recorder, scale: int) -> int:
    """Messages with tools, 30 calls, the history grows by 3 KB a turn."""
    for _ in range(scale):
        conversation(recorder, calls=30, system=3_000, tools=(6, 800), said=1_000, result=1_450)
    return scale


def swe(recorder: Recorder, scale: int) -> int:
    """Messages with tools, 120 calls, a history of up to 400 KB."""
    for _ in range(scale):
        conversation(recorder, calls=120, system=14_000, tools=(14, 1_400), said=750, result=1_750)
    return scale


def marked(recorder: Recorder, scale: int) -> int:
    """Swe with cache breakpoints that move: the last messages of a history change."""
    for _ in range(scale):
        conversation(
            recorder,
            calls=120,
            system=14_000,
            tools=(14, 1_400),
            said=750,
            result=1_750,
            marked=True,
        )
    return scale


def streamed(recorder: Recorder, scale: int) -> int:
    """Agentic, each record with its event stream in `response_raw`."""
    for _ in range(scale):
        conversation(
            recorder,
            calls=30,
            system=3_000,
            tools=(6, 800),
            said=1_000,
            result=1_450,
            streamed=True,
        )
    return scale


def long_history(recorder: Recorder, scale: int) -> int:
    """Agentic with `scale` times as many calls in one growing history."""
    conversation(recorder, calls=30 * scale, system=3_000, tools=(6, 800), said=1_000, result=1_450)
    return 1
