"""The shapes of OpenAI dialects: Responses and Chat Completions, token arrays, two extremes."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

import orjson

from invented import EPOCH, WORDS

if TYPE_CHECKING:
    from invented import Writer
    from shapes import Recorder


def chat_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": prompt * 3 // 4},
        "completion_tokens_details": {"reasoning_tokens": completion // 3},
    }


def chat_response(writer: Writer, choice: dict[str, Any], prompt: int) -> dict[str, Any]:
    return {
        "id": writer.key("chatcmpl-"),
        "object": "chat.completion",
        "created": int(EPOCH),
        "model": "policy",
        "choices": [{"index": 0, **choice}],
        "usage": chat_usage(prompt, 320),
    }


def chat_tools(writer: Writer, count: int, size: int) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": writer.prose(size // 3),
                "parameters": writer.schema(size * 2 // 3),
            },
        }
        for number in range(count)
    ]


def small(recorder: Recorder, scale: int) -> int:
    """Responses, three short calls of one conversation."""
    writer = recorder.writer
    for _ in range(scale):
        items: list[dict[str, Any]] = [
            {"role": "user", "content": writer.prose(1_500), "type": "message"},
        ]
        for number in range(3):
            output = [
                {
                    "id": writer.key("rs_"),
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": writer.prose(900)}],
                },
                {
                    "id": writer.key("fc_"),
                    "type": "function_call",
                    "call_id": writer.key("call_"),
                    "name": "search",
                    "arguments": orjson.dumps({"query": writer.prose(80)}).decode(),
                    "status": "completed",
                },
            ]
            request = {
                "model": "policy",
                "instructions": "You are a careful assistant.",
                "input": list(items),
                "temperature": 1.0,
            }
            response = {
                "id": writer.key("resp_"),
                "object": "response",
                "created_at": int(EPOCH),
                "model": "policy",
                "status": "completed",
                "output": output,
                "usage": {
                    "input_tokens": 600 + 400 * number,
                    "input_tokens_details": {"cached_tokens": 400 * number},
                    "output_tokens": 250,
                    "output_tokens_details": {"reasoning_tokens": 200},
                    "total_tokens": 850 + 400 * number,
                },
            }
            recorder.record("responses", request, response)
            items += output
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": output[1]["call_id"],
                    "output": writer.code(2_300),
                }
            )
    return scale


def chat(recorder: Recorder, scale: int) -> int:
    """Chat Completions, 15 calls with tools and reasoning."""
    writer = recorder.writer
    for _ in range(scale):
        tools = chat_tools(writer, 5, 900)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": writer.prose(3_000)},
            {"role": "user", "content": writer.prose(1_200)},
        ]
        for number in range(15):
            call = {
                "id": writer.key("call_"),
                "type": "function",
                "function": {
                    "name": f"tool_{number % 5}",
                    "arguments": orjson.dumps({"path": writer.prose(60), "limit": 40}).decode(),
                },
            }
            message = {
                "role": "assistant",
                "content": writer.prose(160),
                "reasoning_content": writer.prose(700),
                "tool_calls": [call],
            }
            request = {"model": "policy", "messages": list(messages), "tools": tools, "n": 1}
            choice = {"message": message, "finish_reason": "tool_calls", "logprobs": None}
            recorder.record("chat", request, chat_response(writer, choice, 2_000 + 700 * number))
            messages.append(message)
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": writer.code(1_000)},
            )
    return scale


def tokens(recorder: Recorder, scale: int) -> int:
    """Chat with token ids and log probabilities: five calls, arrays of 4k to 16k numbers."""
    writer = recorder.writer
    for _ in range(scale):
        messages: list[dict[str, Any]] = [{"role": "user", "content": writer.prose(2_000)}]
        for number in range(5):
            generated = writer.logprobs(4_000)
            message = {
                "role": "assistant",
                "content": writer.prose(2_400),
                "prompt_token_ids": writer.token_ids(4_000 + 3_000 * number),
                "generation_token_ids": writer.token_ids(4_000),
                "generation_log_probs": generated,
            }
            content = [
                {"token": word, "logprob": value, "bytes": list(word.encode()), "top_logprobs": []}
                for word, value in zip(writer.random.choices(WORDS, k=320), generated, strict=False)
            ]
            choice = {
                "message": message,
                "finish_reason": "stop",
                "logprobs": {"content": content},
            }
            request = {
                "model": "policy",
                "messages": list(messages),
                "logprobs": True,
                "return_tokens_as_token_ids": True,
            }
            recorder.record("chat", request, chat_response(writer, choice, 4_000 + 3_000 * number))
            messages.append({"role": "assistant", "content": message["content"]})
            messages.append({"role": "user", "content": writer.prose(600)})
    return scale


def data_url(recorder: Recorder, scale: int) -> int:
    """30 chat turns whose first message carries a picture of 1 MB as a data URL."""
    writer = recorder.writer
    alphabet = string.ascii_letters + string.digits + "+/"
    picture = "".join(writer.random.choices(alphabet, k=1_000_000))
    first = {
        "role": "user",
        "content": [
            {"type": "text", "text": writer.prose(300)},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
        ],
    }
    messages: list[dict[str, Any]] = [first]
    for number in range(30 * scale):
        message = {"role": "assistant", "content": writer.prose(400)}
        choice = {"message": message, "finish_reason": "stop", "logprobs": None}
        request = {"model": "policy", "messages": list(messages)}
        recorder.record("chat", request, chat_response(writer, choice, 1_500 + 200 * number))
        messages += [message, {"role": "user", "content": writer.prose(400)}]
    return 1


def many_calls(recorder: Recorder, scale: int) -> int:
    """45,000 short calls in one rollout."""
    writer = recorder.writer
    system = {"role": "system", "content": writer.prose(200)}
    for number in range(45_000 * scale):
        message = {"role": "assistant", "content": writer.prose(120)}
        choice = {"message": message, "finish_reason": "stop", "logprobs": None}
        request = {
            "model": "policy",
            "messages": [system, {"role": "user", "content": f"{number}: {writer.prose(100)}"}],
        }
        recorder.record("chat", request, chat_response(writer, choice, 90))
    return 1
