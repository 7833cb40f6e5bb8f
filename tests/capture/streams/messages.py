"""Messages streams as the API's reference and servers of its kind send them."""

from typing import Any

Json = dict[str, Any]


def start(**usage: Any) -> Json:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 310, "cache_read_input_tokens": 50, "output_tokens": 1, **usage},
    }
    return {"type": "message_start", "message": message}


def block(index: int, content_block: Json, *deltas: Json) -> list[Json]:
    pieces = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [
        {"type": "content_block_start", "index": index, "content_block": content_block},
        *pieces,
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[Json]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def tool(index: int, *pieces: str, kind: str = "tool_use", **extra: Any) -> list[Json]:
    held = {"type": kind, "id": f"toolu_{index}", "name": "search", "input": {}, **extra}
    return block(index, held, *({"type": "input_json_delta", "partial_json": p} for p in pieces))


def end(reason: str | None = "end_turn", **extra: Any) -> list[Json]:
    usage = extra.pop("usage", {"output_tokens": 42})
    outer = {
        key: extra.pop(key)
        for key in list(extra)
        if key in {"context_management", "input_transformations"}
    }
    delta = {"stop_reason": reason, "stop_sequence": None, **extra}
    return [
        {"type": "message_delta", "delta": delta, "usage": usage, **outer},
        {"type": "message_stop"},
    ]


PING: Json = {"type": "ping"}
ERROR: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
CITATION = {
    "type": "web_search_result_location",
    "url": "https://a.example",
    "title": "A",
    "encrypted_index": "e",
    "cited_text": "c",
}
SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "toolu_0",
    "content": [
        {
            "type": "web_search_result",
            "title": "A",
            "url": "https://a.example",
            "encrypted_content": "x",
            "page_age": None,
        }
    ],
}
EXECUTION_RESULT = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "toolu_0",
    "content": {
        "type": "bash_code_execution_result",
        "stdout": "1\n",
        "stderr": "",
        "return_code": 0,
        "content": [],
    },
}


def thought(value: str) -> Json:
    return {"type": "thinking_delta", "thinking": value}


MESSAGES: dict[str, list[Json]] = {
    "text": [start(), PING, *text(0, "Hel", "lo 😀\u2028"), *end()],
    "thinking and tools": [
        start(),
        *block(
            0,
            THINKING,
            thought("one"),
            thought(" more"),
            {"type": "signature_delta", "signature": "sig="},
        ),
        *block(1, {"type": "redacted_thinking", "data": "xyz"}),
        *block(2, THINKING, thought("two")),
        *text(3, "hi"),
        *tool(4, "", '{"q": ', '"x", "n": [1.50, 12345678901234567890]}'),
        *tool(5, ""),
        *end("tool_use"),
    ],
    "server tools": [
        start(),
        *tool(0, '{"query"', ': "a"}', kind="server_tool_use"),
        *block(1, SEARCH_RESULT),
        *block(
            2,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "cited"},
            {"type": "citations_delta", "citation": CITATION},
            {"type": "citations_delta", "citation": CITATION | {"title": "B"}},
        ),
        *end(
            usage={
                "output_tokens": 42,
                "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
            }
        ),
    ],
    "code execution": [
        start(),
        *tool(0, '{"command": "ls"}', kind="server_tool_use"),
        *block(1, EXECUTION_RESULT),
        *block(2, {"type": "container_upload", "file_id": "file_1"}),
        *end("pause_turn", container={"id": "cont_1", "expires_at": "2026-01-01T00:00:00Z"}),
    ],
    "refused": [
        start(),
        *text(0, "I"),
        *end("refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "no"}),
    ],
    "stop sequence": [start(), *text(0, "a"), *end("stop_sequence", stop_sequence="END")],
    "usage with details": [
        start(
            cache_creation={"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 0},
            service_tier="standard",
        ),
        *text(0, "a"),
        *end(
            usage={
                "input_tokens": 400,
                "output_tokens": 42,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 3},
            }
        ),
    ],
    "usage null": [
        start(),
        *text(0, "a"),
        *end(usage={"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 42}),
    ],
    "usage zero": [start(), *text(0, "a"), *end(usage={"input_tokens": 0, "output_tokens": 42})],
    "stop reason kept": [
        start(),
        *text(0, "a"),
        end("end_turn")[0],
        *end(None),
    ],
    "signature in pieces": [
        start(),
        *block(
            0,
            THINKING,
            thought("a"),
            *({"type": "signature_delta", "signature": s} for s in ("si", "g=")),
        ),
        *end(),
    ],
    "unknown block and event": [
        start(),
        {"type": "budget", "remaining": 12},
        *block(
            0,
            {"type": "hologram", "shape": {"a": 1}},
            {"type": "hologram_delta", "shape_text": "cube"},
        ),
        *text(1, "x"),
        *end(),
    ],
    "error": [start(), *text(0, "Hel")[:2], ERROR],
    "error first": [ERROR],
    "truncated": [start(), *text(0, "Hello"), *tool(1, '{"q": "cut')[:2]],
}

BETA: dict[str, list[Json]] = {
    "mcp": [
        start(),
        *tool(0, '{"q"', ":1}", kind="mcp_tool_use", server_name="srv"),
        *block(
            1,
            {
                "type": "mcp_tool_result",
                "tool_use_id": "toolu_0",
                "is_error": False,
                "content": [{"type": "text", "text": "ok", "citations": None}],
            },
        ),
        *end(),
    ],
    "compaction": [
        start(),
        *block(
            0,
            {"type": "compaction", "content": None, "encrypted_content": None},
            {"type": "compaction_delta", "content": "sum", "encrypted_content": "enc"},
        ),
        *text(1, "x"),
        *end(
            context_management={"applied_edits": []},
            usage={
                "output_tokens": 42,
                "iterations": [
                    {
                        "type": "message",
                        "input_tokens": 1,
                        "output_tokens": 2,
                        "cache_read_input_tokens": 0,
                        "cache_creation_input_tokens": 0,
                    }
                ],
            },
        ),
    ],
    "fallback": [
        start(),
        *block(
            0,
            {
                "type": "fallback",
                "from": {"model": "claude-test"},
                "to": {"model": "claude-other"},
                "trigger": {"type": "refusal", "category": None},
            },
        ),
        *text(1, "x"),
        *end(),
    ],
    "transformations": [
        start(),
        *text(0, "x"),
        *end(
            input_transformations=[
                {"type": "thinking_dropped", "message_index": 1, "block_index": 0}
            ]
        ),
    ],
}
