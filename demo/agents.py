"""Three agents that loop over tool calls through the official SDK clients."""

import json
import time
from typing import Any

import anthropic
import openai

from demo.observe import Observer
from demo.script import MODEL, SUMMARISE

TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
STEPS = 8
SYSTEM = "You compute. Use the tools, then answer with the number alone."

Json = dict[str, Any]


def _user(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


def _carry_out(name: str, arguments: Json) -> str:
    return str(TOOLS[name](**arguments))


async def chat(base_url: str, task: str, observer: Observer) -> str:
    """Solve a task over chat completions, streamed; a cut stream is asked for again, whole."""
    invocation = observer.invocation("root")
    invocation.said(_user(task))
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS
    ]
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0)
    async with client:
        for _ in range(STEPS):
            asked: Json = {"model": MODEL, "messages": messages, "tools": tools}
            message = await _chat_stream(client, asked, invocation)
            if message is None:
                whole = await client.chat.completions.create(**asked)
                invocation.called(whole.id)
                message = whole.choices[0].message.model_dump(exclude_none=True)
            messages.append(message)
            calls = message.get("tool_calls") or ()
            for call in calls:
                begun = time.time()
                function = call["function"]
                invocation.said(
                    {
                        "type": "function_call",
                        "call_id": call["id"],
                        "name": function["name"],
                        "arguments": function["arguments"],
                    }
                )
                output = _carry_out(function["name"], json.loads(function["arguments"]))
                invocation.tool(call["id"], function["name"], begun, output)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            if not calls:
                answer = message.get("content") or ""
                invocation.said({"type": "message", "role": "assistant", "content": answer})
                invocation.done()
                return answer
    raise RuntimeError("too many steps")


async def _chat_stream(client: Any, asked: Json, invocation: Any) -> Json | None:
    """Stream one answer; None where the stream ended before its finish reason."""
    text, calls, finish, response_id = "", {}, None, None
    options = {"include_usage": True}
    async for chunk in await client.chat.completions.create(
        **asked, stream=True, stream_options=options
    ):
        response_id = chunk.id
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for part in choice.delta.tool_calls or ():
                call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
    if response_id is not None:
        invocation.called(response_id)
    if finish is None:
        return None
    message: Json = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls.values()
        ]
    return message


async def responses(base_url: str, task: str, observer: Observer) -> str:
    """Solve a task over Responses; a subagent does the sum."""
    client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0)
    async with client:
        tools = [_function("delegate", {"question": {"type": "string"}}), _function("multiply")]
        return await _respond(client, observer, task, "root", tools)


async def _respond(
    client: Any, observer: Observer, task: str, name: str, tools: list[Json], **about: Any
) -> str:
    invocation = observer.invocation(name, **about)
    items: list[Json] = [_user(task)]
    invocation.said(*items)
    for step in range(STEPS):
        asked: Json = {"model": MODEL, "instructions": SYSTEM, "input": items, "tools": tools}
        if step % 2:
            response = await client.responses.create(**asked)
        else:
            async for event in await client.responses.create(**asked, stream=True):
                if event.type == "response.completed":
                    response = event.response
        invocation.called(response.id)
        made = [item.model_dump(exclude_none=True) for item in response.output]
        items = [*items, *made]
        invocation.said(*made)
        calls = [item for item in made if item["type"] == "function_call"]
        for call in calls:
            begun = time.time()
            arguments = json.loads(call["arguments"])
            if call["name"] == "delegate":
                output = await _respond(
                    client,
                    observer,
                    arguments["question"],
                    f"{name}/helper",
                    [_function("add")],
                    parent_invocation_id=name,
                    spawned_by_tool_call_id=call["call_id"],
                )
            else:
                output = _carry_out(call["name"], arguments)
            invocation.tool(call["call_id"], call["name"], begun, output)
            items.append(
                {"type": "function_call_output", "call_id": call["call_id"], "output": output}
            )
        if not calls:
            invocation.done()
            return str(response.output_text)
    raise RuntimeError("too many steps")


def _function(name: str, properties: Json | None = None) -> Json:
    schema = SCHEMA if properties is None else {"type": "object", "properties": properties}
    return {"type": "function", "name": name, "parameters": schema, "strict": False}


async def messages(base_url: str, task: str, observer: Observer) -> str:
    """Solve a task over Messages, streamed; after the first tool call the context is compacted."""
    invocation = observer.invocation("root")
    invocation.said(_user(task))
    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in TOOLS]
    history: list[Any] = [{"role": "user", "content": task}]
    compacted = False
    client = anthropic.AsyncAnthropic(base_url=base_url, api_key="none", max_retries=0)
    async with client:
        for _ in range(STEPS):
            asked: Json = {"model": MODEL, "max_tokens": 1000, "system": SYSTEM, "tools": tools}
            async with client.messages.stream(**asked, messages=history) as stream:
                message = await stream.get_final_message()
            invocation.called(message.id)
            content = [block.model_dump(exclude_none=True) for block in message.content]
            history = [*history, {"role": "assistant", "content": content}]
            results = []
            for block in content:
                if block["type"] != "tool_use":
                    continue
                begun = time.time()
                invocation.said(
                    {
                        "type": "function_call",
                        "call_id": block["id"],
                        "name": block["name"],
                        "arguments": json.dumps(block["input"]),
                    }
                )
                output = _carry_out(block["name"], block["input"])
                invocation.tool(block["id"], block["name"], begun, output)
                results.append(
                    {"type": "tool_result", "tool_use_id": block["id"], "content": output}
                )
            if not results:
                answer = "".join(block.get("text", "") for block in content)
                invocation.said({"type": "message", "role": "assistant", "content": answer})
                invocation.done()
                return answer
            history.append({"role": "user", "content": results})
            if not compacted:
                compacted = True
                asking = [*history, {"role": "user", "content": SUMMARISE}]
                summary = await client.messages.create(**asked, messages=asking)
                text = "".join(getattr(block, "text", "") for block in summary.content)
                invocation.compacted(summary.id, text, message.id)
                history = [{"role": "user", "content": f"{task}\n{text}"}]
    raise RuntimeError("too many steps")


AGENTS = {"chat": chat, "responses": responses, "messages": messages}
