"""The Anthropic Messages dialect, mapped onto Responses items (contract, section 8).

Every function here is pure and looks at one message (or one system prompt, or one
response), so the fold calls it once per distinct message of a batch. Nothing that goes
in is changed, and no container that goes in is part of what comes out.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from json import dumps as _dumps_ascii
from typing import Any, cast

import orjson

from rollfold import _core
from rollfold.dialects.content import TurnContent
from rollfold.errors import RollfoldError

_log = logging.getLogger("rollfold.dialects")

Item = dict[str, Any]


class Unconverted(RollfoldError, ValueError):  # noqa: N818 -- a message's state: nobody erred
    """A message that holds a block the converter does not know, or a malformed one.

    `block_type` is the type of the first such block, `unknown` where it has none.
    """

    def __init__(self, block_type: str) -> None:
        super().__init__(block_type)
        self.block_type = block_type


def convert_message(message: object) -> list[Item]:
    """Map one entry of a request's `messages` onto Responses input items.

    Raises `Unconverted` where a block is unknown or malformed.
    """
    return _named(_message_items(message))


def _message_items(message: object) -> list[Item]:
    if not isinstance(message, dict):
        raise Unconverted("unknown")
    role = message.get("role")
    content = message.get("content")
    if isinstance(role, str):
        if isinstance(content, str):
            return [{"type": "message", "role": role, "content": content}]
        if isinstance(content, list):
            return _convert_blocks(role, content)
    raise Unconverted(_type_of(message))


def convert_system(system: object) -> list[Item]:
    """Map a request's `system` (a string or a list of blocks) onto its one message item.

    Empty and null give no item. Raises `Unconverted` as `convert_message` does.
    """
    return _named(_system_items(system))


def _system_items(system: object) -> list[Item]:
    if isinstance(system, str):
        return [{"type": "message", "role": "system", "content": system}] if system else []
    if isinstance(system, list):
        return _convert_blocks("system", system)
    if system is None:
        return []
    raise Unconverted("unknown")


def convert_content(response: object) -> tuple[list[Item], list[Item] | None, int]:
    """Map a response's `content` onto (answer, reasoning or None, number of tool calls).

    Raises `Unconverted` as `convert_message` does, and where `content` is no list.
    """
    content = response.get("content") if isinstance(response, dict) else None
    if not isinstance(content, list):
        raise Unconverted("unknown")
    answer = []
    reasoning = []
    tool_calls = 0
    for item in _named(_convert_blocks("assistant", content)):
        kind = item["type"]
        if kind == "reasoning":
            reasoning.append(item)
            continue
        answer.append(item)
        if kind == "function_call":
            tool_calls += 1
    return answer, reasoning or None, tool_calls


_CONVERTERS: dict[str, Callable[[object], object]] = {
    "message": convert_message,
    "system": convert_system,
    "response": convert_content,
}

_UNNAMED: dict[str, Callable[[object], list[Item]]] = {
    "message": _message_items,
    "system": _system_items,
}


def convert_batch(jobs: Iterable[tuple[str, object]]) -> list[object]:
    """Convert many messages in one call; a job is ("message" | "system" | "response", value).

    Each outcome, in order, is what the job's converter returns, or the `Unconverted` that
    it raised: one message never costs another.
    """
    outcomes: list[object] = []
    for kind, value in jobs:
        try:
            outcomes.append(_CONVERTERS[kind](value))
        except Unconverted as error:
            _say_unconverted(kind, error)
            outcomes.append(error.with_traceback(None))  # its frames keep the payloads alive
    return outcomes


def convert_batch_json(jobs: Iterable[tuple[str, object]]) -> list[bytes | str]:
    """Convert messages and systems as `convert_batch` does, each into a JSON array of items.

    What does not convert gives the type of the block at fault. The core, which calls this,
    has short stand-ins in the place of long texts; it puts the texts back, and then the hash
    into the ids that lack it (rust/core/src/convert.rs).
    """
    outcomes: list[bytes | str] = []
    for kind, value in jobs:
        try:
            outcomes.append(orjson.dumps(_UNNAMED[kind](value)))
        except Unconverted as error:
            _say_unconverted(kind, error)
            outcomes.append(error.block_type)
    return outcomes


def _say_unconverted(kind: str, error: Unconverted) -> None:
    name = type(error.__cause__ or error).__name__
    _log.debug("%s in a %s: %s stays as it came", name, kind, error.block_type)


def turn_content(request: Mapping[str, Any] | None, response: Mapping[str, Any]) -> TurnContent:
    """Give the turn of one call; where a block does not convert, what came stays as it is.

    Args:
        request: the body of the request, None where it is not known.
        response: the body of the response, with its `content` list.
    """
    system = request.get("system") if request else None
    messages = request.get("messages") if request else None
    entries = messages if isinstance(messages, list) else [] if messages is None else [messages]
    jobs = [
        ("system", system),
        *(("message", entry) for entry in entries),
        ("response", response),
    ]
    outcomes = convert_batch(jobs)
    if not any(isinstance(outcome, Unconverted) for outcome in outcomes):
        *question, (answer, reasoning, tool_calls) = cast("list[Any]", outcomes)
        return TurnContent(
            [item for items in question for item in items], answer, reasoning, tool_calls
        )
    first = [{"role": "system", "content": system}] if system else []
    blocks = response.get("content")
    uses = [block for block in blocks or () if _type_of(block) == "tool_use"]
    return TurnContent([*first, *entries], blocks, None, len(uses))


def _convert_blocks(role: str, blocks: list[Any]) -> list[Item]:
    """Map one message's blocks: each run of text and images between others is one item.

    The ids of message and reasoning items lack the hash that `_named` puts in.
    """
    said = role == "assistant"
    items: list[Item] = []
    run: list[Item] | None = None
    for position, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            run = None
            items.append(_function_call_output(block))
            continue
        if kind == "text":
            text = block.get("text")
            if not isinstance(text, str):
                raise Unconverted(kind)
            if said:
                part = {"type": "output_text", "text": text, "annotations": []}
            else:
                part = {"type": "input_text", "text": text}
        elif kind == "image":
            part = _image_part(block)
        else:
            run = None
            items.append(
                _function_call(block) if kind == "tool_use" else _reasoning(block, kind, position)
            )
            continue
        if run is not None:
            run.append(part)
            continue
        run = [part]
        items.append(
            {
                "type": "message",
                "id": f"msg_{position}",
                "role": role,
                "content": run,
                "status": "completed",
            }
            if said
            else {"type": "message", "role": role, "content": run}
        )
    return items


def _named(items: list[Item]) -> list[Item]:
    """Put the hash of all items into the ids that are ours.

    Hashed as converted, so that a cache mark that moves on changes no id, and an answer has
    the ids that it will have in the next call's history.
    """
    ours = [item for item in items if "id" in item and item["type"] != "function_call"]
    if ours:
        digest = _core.digest(_serialised(items))
        for item in ours:
            kind, position = item["id"].split("_")
            item["id"] = f"{kind}_{digest}_{position}"
    return items


def _image_part(block: Item) -> Item:
    source = block.get("source")
    if isinstance(source, dict):
        kind = source.get("type")
        if kind == "base64":
            media_type, data = source.get("media_type"), source.get("data")
            if isinstance(media_type, str) and isinstance(data, str):
                url = f"data:{media_type};base64,{data}"
                return {"type": "input_image", "image_url": url, "detail": "auto"}
        elif kind == "url":
            link = source.get("url")
            if isinstance(link, str):
                return {"type": "input_image", "image_url": link, "detail": "auto"}
    raise Unconverted("image")


def _function_call(block: Item) -> Item:
    call_id = block.get("id")
    name = block.get("name")
    if not (isinstance(call_id, str) and isinstance(name, str)):
        raise Unconverted("tool_use")
    arguments = block.get("input")
    return {
        "type": "function_call",
        "id": call_id,
        "call_id": call_id,
        "name": name,
        "arguments": _json_text(arguments) if arguments or arguments not in _NO_INPUT else "{}",
        "status": "completed",
    }


_NO_INPUT: tuple[object, ...] = (None, {}, "", [])


def _json_text(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # orjson stops at 64 bits and at 254 levels
        try:
            text: str = _core.dumps(value).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unconverted("tool_use") from error
        return text


def _function_call_output(block: Item) -> Item:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        raise Unconverted("tool_result")
    content = block.get("content")
    if content is None:
        output: object = ""
    elif isinstance(content, str):
        output = content
    elif isinstance(content, list):
        output = _output_parts(content)
    else:
        raise Unconverted("tool_result")
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    if block.get("is_error") is True:
        item["status"] = "incomplete"
    return item


def _output_parts(content: list[Any]) -> str | list[Item]:
    """Map a tool result's blocks: text alone is one string, beside images each is a part."""
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            text = part.get("text")
            if not isinstance(text, str):
                raise Unconverted("text")
            texts.append(text)
        elif kind != "image":
            raise Unconverted("tool_result")
    if len(texts) == len(content):
        return "\n".join(texts)
    return [
        {"type": "input_text", "text": part["text"]}
        if part["type"] == "text"
        else _image_part(part)
        for part in content
    ]


def _reasoning(block: Any, kind: object, position: int) -> Item:
    """Map a thinking block; any block that reaches this and is none is unknown."""
    encrypted: object
    if kind == "thinking":
        text = block.get("thinking")
        if not isinstance(text, str):
            raise Unconverted("thinking")
        signature = block.get("signature")
        summary = [{"type": "summary_text", "text": text}]
        encrypted = signature if isinstance(signature, str) else None
    elif kind == "redacted_thinking":
        encrypted = block.get("data")
        if not isinstance(encrypted, str):
            raise Unconverted("redacted_thinking")
        summary = []
    else:
        raise Unconverted(_type_of(block))
    return {
        "type": "reasoning",
        "id": f"rs_{position}",
        "summary": summary,
        "encrypted_content": encrypted,
    }


def _type_of(block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind if isinstance(kind, str) and kind else "unknown"


def _serialised(items: list[Item]) -> bytes:
    try:
        return orjson.dumps(items)
    except TypeError:  # half surrogates: no capture holds one, a caller's own message may
        return _dumps_ascii(items).encode()
