"""Chat completion streams as the API's reference and servers of its kind send them."""

from typing import Any

Json = dict[str, Any]


def chunk(delta: Json | None, *, index: int = 0, finish: str | None = None, **extra: Any) -> Json:
    """Give one chunk; `delta=None` gives one without choices. Keys `choice_*` go to the choice."""
    choice_extra = {key[7:]: extra.pop(key) for key in list(extra) if key.startswith("choice_")}
    choices = [{"index": index, "delta": delta, "finish_reason": finish, **choice_extra}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": "gpt-test",
        "choices": [] if delta is None else choices,
        **extra,
    }


def call(index: int, arguments: str, name: str | None = None, call_id: str | None = None) -> Json:
    entry: Json = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        entry |= {"id": call_id, "type": "function"}
        entry["function"] = {"name": name, "arguments": arguments}
    return {"tool_calls": [entry]}


def token(text: str, logprob: float) -> Json:
    raw = list(text.encode())
    top = [{"token": text, "logprob": logprob, "bytes": raw}]
    return {"token": text, "logprob": logprob, "bytes": raw, "top_logprobs": top}


def logprobs(kind: str, *tokens: tuple[str, float]) -> Json:
    return {"content": None, "refusal": None, kind: [token(*entry) for entry in tokens]}


ROLE = {"role": "assistant", "content": ""}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DETAILED = USAGE | {
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0},
}
URL = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A"}}
MODERATION: Json = {"input": {"type": "error", "code": "c", "message": "m"}}

CHAT: dict[str, list[Json | str]] = {
    "text": [
        chunk(ROLE, system_fingerprint="fp_1", service_tier="default"),
        chunk({"content": "Hello"}, choice_logprobs=logprobs("content", ("Hello", -0.1))),
        chunk({"content": " 😀\u2028é"}, choice_logprobs=logprobs("content", (" 😀", -1.5e-7))),
        chunk({}, finish="stop"),
        chunk(None, usage=DETAILED),
        "[DONE]",
    ],
    "usage without details": [
        chunk(ROLE, usage=None),
        chunk({"content": "Hi"}, usage=None),
        chunk({}, finish="length", usage=None),
        chunk(None, usage=USAGE),
        "[DONE]",
    ],
    "no usage": [chunk({**ROLE, "content": "Hi"}), chunk({}, finish="stop"), "[DONE]"],
    "refusal": [
        chunk({"role": "assistant", "content": None, "refusal": ""}),
        chunk({"refusal": "I can"}, choice_logprobs=logprobs("refusal", ("I can", -0.5))),
        chunk({"refusal": "not."}, choice_logprobs=logprobs("refusal", ("not.", -0.25))),
        chunk({}, finish="stop"),
        "[DONE]",
    ],
    "tool calls": [
        chunk({"role": "assistant", "content": None}),
        chunk(call(0, "", "get_weather", "call_a")),
        chunk(call(0, '{"city":')),
        chunk(call(1, "", "get_time", "call_b")),
        chunk(call(1, "{}")),
        chunk(call(0, '"Paris"}')),
        chunk({}, finish="tool_calls"),
        "[DONE]",
    ],
    "custom tool call": [
        chunk({"role": "assistant", "content": None}),
        chunk(
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_c",
                        "type": "custom",
                        "custom": {"name": "sh", "input": ""},
                    }
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "ls"}}]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": " -l"}}]}),
        chunk({}, finish="tool_calls"),
        "[DONE]",
    ],
    "function call": [
        chunk(
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "get_weather", "arguments": ""},
            }
        ),
        chunk({"function_call": {"arguments": '{"city": '}}),
        chunk({"function_call": {"arguments": '"Paris"}'}}),
        chunk({}, finish="function_call"),
        "[DONE]",
    ],
    "audio": [
        chunk({"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hel"}}),
        chunk({"audio": {"data": "AAAA"}}),
        chunk({"audio": {"transcript": "lo"}}),
        chunk({"audio": {"data": "BBBB"}}),
        chunk({}, finish="stop"),
        chunk({"audio": {"expires_at": 1760003600}}),
        "[DONE]",
    ],
    "two choices": [
        chunk(ROLE, index=0),
        chunk(ROLE, index=1),
        chunk({"content": "A"}, index=0),
        chunk({"content": "B"}, index=1),
        chunk({"content": "1"}, index=1),
        chunk({"content": "0"}, index=0),
        chunk({}, index=1, finish="length"),
        chunk({}, index=0, finish="stop"),
        "[DONE]",
    ],
    "annotations": [
        chunk(ROLE),
        chunk({"content": "See A."}),
        chunk({"annotations": [URL]}),
        chunk({}, finish="stop"),
        "[DONE]",
    ],
    "moderation and padding": [
        chunk(ROLE, obfuscation="aZ"),
        chunk({"content": "x"}, obfuscation="kD83"),
        chunk({}, finish="content_filter", obfuscation="p"),
        chunk(None, moderation=MODERATION | {"output": MODERATION["input"]}),
        "[DONE]",
    ],
    "reasoning": [
        chunk({"role": "assistant", "content": "", "reasoning_content": ""}),
        chunk({"reasoning_content": "Let me"}),
        chunk({"reasoning_content": " think."}),
        chunk({"content": "42"}),
        chunk({}, finish="stop"),
        "[DONE]",
    ],
    "reasoning twice": [
        chunk(ROLE),
        chunk({"reasoning": "Let me", "reasoning_content": "Let me"}),
        chunk({"reasoning": " think.", "reasoning_content": " think."}),
        chunk({"content": "42"}, finish="stop"),
        "[DONE]",
    ],
    "token ids": [
        chunk({"role": "assistant", "content": ""}, prompt_token_ids=[1, 2, 3]),
        chunk({"content": "a"}, choice_token_ids=[5], choice_stop_reason=None),
        chunk({"content": "a"}, choice_token_ids=[5]),
        chunk({}, finish="stop", choice_token_ids=[7], choice_stop_reason=7),
        "[DONE]",
    ],
    "role and id repeated": [
        chunk({"role": "assistant", "content": "a"}),
        chunk({"role": "assistant", **call(0, "{", "f", "t1")}),
        chunk({"role": "assistant", **call(0, "}", "f", "t1")}, finish="tool_calls"),
        "[DONE]",
    ],
    "calls of one index": [
        chunk({"role": "assistant", "content": None}),
        chunk(call(0, '{"a":1}', "f", "t1")),
        chunk(call(0, '{"b":2}', "g", "t2"), finish="tool_calls"),
        "[DONE]",
    ],
    "usage before the end": [
        chunk(ROLE, usage=USAGE | {"completion_tokens": 0, "total_tokens": 9}),
        chunk({"content": "x"}, finish="stop", usage=USAGE),
        chunk(None, usage=None),
        "[DONE]",
    ],
    "filters": [
        {
            "id": "",
            "object": "",
            "created": 0,
            "model": "",
            "choices": [],
            "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
        },
        chunk({**ROLE, "content": "Hi"}),
        chunk({}, finish="stop", choice_content_filter_results={"hate": {"filtered": False}}),
        "[DONE]",
    ],
    "error": [
        chunk(ROLE),
        chunk({"content": "Hel"}),
        {"error": {"message": "overloaded", "type": "server_error", "param": None, "code": "x"}},
        "[DONE]",
    ],
    "truncated": [
        chunk(ROLE),
        chunk({"content": "Hel"}),
        chunk(call(0, '{"a', "f", "t1")),
    ],
}
