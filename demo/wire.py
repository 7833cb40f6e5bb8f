"""The three dialects of the model server: a request read, a decision written, events streamed."""

import json
import time
from collections.abc import Iterator
from typing import Any

from demo.script import MODEL, Conversation, Decision, identifier, tokens

Json = dict[str, Any]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or () if isinstance(part, dict))


class Chat:
    """Chat completions."""

    path = "/v1/chat/completions"

    @staticmethod
    def read(request: Json) -> Conversation:
        """Read a request."""
        seen = Conversation(stream=bool(request.get("stream")))
        for message in request["messages"]:
            if message["role"] == "tool":
                seen.results.append(_text(message["content"]))
                continue
            seen.text += _text(message.get("content")) + "\n"
            if message["role"] == "user":
                seen.last_user = _text(message["content"])
        seen.tools = [tool["function"]["name"] for tool in request.get("tools") or ()]
        return seen

    @staticmethod
    def write(decision: Decision, body: bytes) -> Json:
        """Write a whole response."""
        message: Json = {
            "role": "assistant",
            "content": decision.text or None,
            "reasoning_content": decision.reasoning,
        }
        if decision.tool:
            function = {"name": decision.tool, "arguments": json.dumps(decision.arguments)}
            call = {"id": identifier("call", body), "type": "function", "function": function}
            message["tool_calls"] = [call]
        used, made = tokens(body.decode()), tokens(json.dumps(message))
        return {
            "id": identifier("chatcmpl", body),
            "object": "chat.completion",
            "created": int(time.time()),
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if decision.tool else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": used,
                "completion_tokens": made,
                "total_tokens": used + made,
                "prompt_tokens_details": {"cached_tokens": used // 2},
            },
        }

    @staticmethod
    def stream(response: Json) -> Iterator[str]:
        """Write a response as events."""
        choice = response["choices"][0]
        message = choice["message"]
        head = {key: response[key] for key in ("id", "created", "model")}
        head["object"] = "chat.completion.chunk"

        def chunk(delta: Json, finish: str | None = None) -> str:
            part = {"index": 0, "delta": delta, "finish_reason": finish}
            return f"data: {json.dumps({**head, 'choices': [part]})}\n\n"

        yield chunk({"role": "assistant", "content": ""})
        for word in message["reasoning_content"].split():
            yield chunk({"reasoning_content": f"{word} "})
        for letter in message["content"] or "":
            yield chunk({"content": letter})
        for number, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            opening = {**call, "index": number, "function": {**function, "arguments": ""}}
            yield chunk({"tool_calls": [opening]})
            for letter in function["arguments"]:
                yield chunk({"tool_calls": [{"index": number, "function": {"arguments": letter}}]})
        yield chunk({}, choice["finish_reason"])
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': response['usage']})}\n\n"
        yield "data: [DONE]\n\n"


class Responses:
    """Responses."""

    path = "/v1/responses"

    @staticmethod
    def read(request: Json) -> Conversation:
        """Read a request."""
        seen = Conversation(stream=bool(request.get("stream")))
        given = request["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        for item in items:
            if item.get("type") == "function_call_output":
                seen.results.append(item["output"])
            elif "role" in item:
                seen.text += _text(item["content"]) + "\n"
                if item["role"] == "user":
                    seen.last_user = _text(item["content"])
        seen.tools = [tool["name"] for tool in request.get("tools") or ()]
        return seen

    @staticmethod
    def write(decision: Decision, body: bytes) -> Json:
        """Write a whole response."""
        output: list[Json] = [
            {
                "type": "reasoning",
                "id": identifier("rs", body),
                "summary": [{"type": "summary_text", "text": decision.reasoning}],
            }
        ]
        if decision.tool:
            output.append(
                {
                    "type": "function_call",
                    "id": identifier("fc", body),
                    "call_id": identifier("call", body),
                    "name": decision.tool,
                    "arguments": json.dumps(decision.arguments),
                    "status": "completed",
                }
            )
        else:
            part = {"type": "output_text", "text": decision.text, "annotations": []}
            output.append(
                {
                    "type": "message",
                    "id": identifier("msg", body),
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        used, made = tokens(body.decode()), tokens(json.dumps(output))
        return {
            "id": identifier("resp", body),
            "object": "response",
            "created_at": int(time.time()),
            "model": MODEL,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "output": output,
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": {
                "input_tokens": used,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": made,
                "output_tokens_details": {"reasoning_tokens": tokens(decision.reasoning)},
                "total_tokens": used + made,
            },
        }

    @staticmethod
    def stream(response: Json) -> Iterator[str]:
        """Write a response as events."""
        number = 0

        def event(kind: str, **fields: Any) -> str:
            nonlocal number
            data = {"type": kind, "sequence_number": number, **fields}
            number += 1
            return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        yield event("response.created", response=begun)
        for index, item in enumerate(response["output"]):
            started = {**item, "content": []} if item["type"] == "message" else item
            if item["type"] == "function_call":
                started = {**item, "arguments": "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=index, item=started)
            where = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                part = item["content"][0]
                empty = {**part, "text": ""}
                yield event("response.content_part.added", **where, content_index=0, part=empty)
                for letter in part["text"]:
                    yield event(
                        "response.output_text.delta",
                        **where,
                        content_index=0,
                        delta=letter,
                        logprobs=[],
                    )
                yield event("response.content_part.done", **where, content_index=0, part=part)
            if item["type"] == "function_call":
                for letter in item["arguments"]:
                    yield event("response.function_call_arguments.delta", **where, delta=letter)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=response)


class Messages:
    """Anthropic Messages."""

    path = "/v1/messages"

    @staticmethod
    def read(request: Json) -> Conversation:
        """Read a request."""
        seen = Conversation(text=_text(request.get("system")), stream=bool(request.get("stream")))
        for message in request["messages"]:
            content = message["content"]
            seen.text += _text(content) + "\n"
            if message["role"] == "user":
                seen.last_user = _text(content).strip()
            if isinstance(content, list):
                seen.results += [
                    _text(block["content"]) for block in content if block["type"] == "tool_result"
                ]
        seen.tools = [tool["name"] for tool in request.get("tools") or ()]
        return seen

    @staticmethod
    def write(decision: Decision, body: bytes) -> Json:
        """Write a whole response."""
        thought = {"type": "thinking", "thinking": decision.reasoning, "signature": "c2lnbmVk"}
        content: list[Json] = [thought]
        if decision.text:
            content.append({"type": "text", "text": decision.text})
        if decision.tool:
            content.append(
                {
                    "type": "tool_use",
                    "id": identifier("toolu", body),
                    "name": decision.tool,
                    "input": decision.arguments,
                }
            )
        used = tokens(body.decode())
        return {
            "id": identifier("msg", body),
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content,
            "stop_reason": "tool_use" if decision.tool else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": used - used // 2,
                "cache_read_input_tokens": used // 2,
                "cache_creation_input_tokens": 0,
                "output_tokens": tokens(json.dumps(content)),
            },
        }

    @staticmethod
    def stream(response: Json) -> Iterator[str]:
        """Write a response as events."""

        def event(kind: str, **fields: Any) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

        usage = response["usage"]
        begun = {**response, "content": [], "stop_reason": None}
        begun["usage"] = {**usage, "output_tokens": 1}
        yield event("message_start", message=begun)
        for index, block in enumerate(response["content"]):
            kind = block["type"]
            if kind == "thinking":
                start: Json = {"type": kind, "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            elif kind == "text":
                start = {"type": kind, "text": ""}
                deltas = [{"type": "text_delta", "text": letter} for letter in block["text"]]
            else:
                start = {**block, "input": {}}
                text = json.dumps(block["input"])
                deltas = [{"type": "input_json_delta", "partial_json": letter} for letter in text]
            yield event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        stop = {"stop_reason": response["stop_reason"], "stop_sequence": None}
        out = {"output_tokens": usage["output_tokens"]}
        yield event("message_delta", delta=stop, usage=out)
        yield event("message_stop")


DIALECTS = (Chat, Responses, Messages)
