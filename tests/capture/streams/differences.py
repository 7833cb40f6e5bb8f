"""Where an assembled response differs from what the official SDKs accumulate, and why.

Each reason is a row of the table in docs/streams.md. A path is of the response.
"""

REASONS = {
    "stream index": "a tool call's `index` is the stream's, not the completion's",
    "no place": "the SDK's model has no place for it; we keep it",
    "repeated": "a role, id or name that a server repeats is repeated, not continued",
    "reasoning once": "the same reasoning under two names counts once",
    "opened by id": "an id not seen before opens a call, whatever its index",
    "last that counts": "a later chunk that does not say it does not take it back",
    "greatest": "usage is cumulative: the greatest count, where the SDK takes the last",
    "pieces": "pieces of a signature join, where the SDK keeps the last",
    "raw input": "input that is not whole JSON is kept as text under `_raw`, not guessed at",
    "ended early": "what a stream that ended early added up to says so in its status",
    "all deltas": "the SDK follows only texts and function arguments before the last event",
    "put back": "items reported done but missing at the end are put back",
    "error event": "what an error event said is kept beside what came before",
}

_INDEX = {"choices.0.message.tool_calls.0.index": "stream index"}
_OPEN = {"output.0.status": "ended early", "status": "ended early"}


def _open(*paths: str) -> dict[str, str]:
    return _OPEN | dict.fromkeys((f"output.0.{path}" for path in paths), "all deltas")


EXPECTED: dict[str, dict[str, str]] = {
    "chat/text": {"system_fingerprint": "last that counts"},
    "chat/tool calls": _INDEX | {"choices.0.message.tool_calls.1.index": "stream index"},
    "chat/custom tool call": _INDEX,
    "chat/reasoning twice": {"choices.0.message.reasoning": "reasoning once"},
    "chat/token ids": {
        "choices.0.stop_reason": "no place",
        "choices.0.token_ids": "no place",
    },
    "chat/role and id repeated": _INDEX
    | {
        "choices.0.message.role": "repeated",
        "choices.0.message.tool_calls.0.function.name": "repeated",
        "choices.0.message.tool_calls.0.id": "repeated",
    },
    "chat/calls of one index": {"choices.0.message.tool_calls": "opened by id"},
    "chat/usage before the end": {"usage": "last that counts"},
    "chat/filters": {
        "choices.0.content_filter_results": "no place",
        "prompt_filter_results": "no place",
    },
    "chat/error": {"error": "error event"},
    "chat/truncated": _INDEX,
    "messages/usage zero": {"usage.input_tokens": "greatest"},
    "messages/stop reason kept": {"stop_reason": "last that counts"},
    "messages/signature in pieces": {"content.0.signature": "pieces"},
    "messages/unknown block and event": {
        "content.0.shape_text": "no place",
        "unknown_events": "no place",
    },
    "messages/error": {"error": "error event"},
    "messages/error first": {"": "error event"},
    "messages/truncated": {"content.1.input._raw": "raw input"},
    "responses/message, left open": _open("content.0.annotations", "content.0.logprobs"),
    "responses/refusal, left open": _open("content.0.refusal"),
    "responses/reasoning, left open": _open("content", "summary"),
    "responses/function_call, left open": _open(),
    "responses/custom_tool_call, left open": _open("input"),
    "responses/mcp_call, left open": _open("arguments"),
    "responses/mcp_list_tools, left open": _open(),
    "responses/code_interpreter_call, left open": _open("code"),
    "responses/web_search_call, left open": _open(),
    "responses/file_search_call, left open": _open(),
    "responses/image_generation_call, left open": _OPEN
    | {"output.0.partial_image_b64": "no place"},
    "responses/shell_call, left open": _open("action.commands"),
    "responses/shell_call_output, left open": _open("output"),
    "responses/failed": {"output": "put back"},
    "responses/error": {
        "error": "error event",
        "status": "ended early",
        "output.0.status": "all deltas",
        "output.0.content.0.annotations": "all deltas",
        "output.0.content.0.logprobs": "all deltas",
    },
    "responses/audio": {"audio": "no place"},
    "responses/unknown event": {"unknown_events": "no place"},
}
