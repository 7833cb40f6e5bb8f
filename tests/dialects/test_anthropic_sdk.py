"""The Anthropic converter between the two SDKs: messages of one, items of the other."""

import json

import orjson
from anthropic.types import (
    ImageBlockParam,
    Message,
    RedactedThinkingBlock,
    RedactedThinkingBlockParam,
    TextBlock,
    TextBlockParam,
    ThinkingBlock,
    ThinkingBlockParam,
    ToolResultBlockParam,
    ToolUseBlock,
    ToolUseBlockParam,
    Usage,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import (
    EasyInputMessage,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from openai.types.responses.response_input_item import FunctionCallOutput
from pydantic import TypeAdapter

from rollfold.dialects.anthropic import convert_batch, convert_content, convert_message

OUTPUT = TypeAdapter(ResponseOutputItem)
PARAMS = {
    "text": TypeAdapter(TextBlockParam),
    "image": TypeAdapter(ImageBlockParam),
    "tool_use": TypeAdapter(ToolUseBlockParam),
    "tool_result": TypeAdapter(ToolResultBlockParam),
    "thinking": TypeAdapter(ThinkingBlockParam),
    "redacted_thinking": TypeAdapter(RedactedThinkingBlockParam),
}

texts = st.text(max_size=20)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
inputs = st.dictionaries(texts, json_values, max_size=3)
cache_marks = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])


@st.composite
def text_blocks(draw):
    return {"type": "text", "text": draw(texts), **draw(cache_marks)}


@st.composite
def image_blocks(draw):
    source = draw(
        st.sampled_from(
            [
                {"type": "base64", "media_type": "image/png", "data": "aGk="},
                {"type": "url", "url": "https://example.com/a.png"},
            ]
        )
    )
    return {"type": "image", "source": source, **draw(cache_marks)}


@st.composite
def tool_results(draw):
    content = draw(
        st.sampled_from([{}, {"content": "out"}])
        | st.lists(text_blocks() | image_blocks(), max_size=3).map(lambda c: {"content": c})
    )
    error = draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
    return {"type": "tool_result", "tool_use_id": draw(names), **content, **error}


@st.composite
def tool_uses(draw):
    return {"type": "tool_use", "id": draw(names), "name": draw(names), "input": draw(inputs)}


@st.composite
def thoughts(draw):
    if draw(st.booleans()):
        return {"type": "redacted_thinking", "data": draw(texts)}
    return {"type": "thinking", "thinking": draw(texts), "signature": draw(texts)}


user_messages = st.builds(
    lambda content: {"role": "user", "content": content},
    texts | st.lists(text_blocks() | image_blocks() | tool_results(), max_size=5),
)
assistant_messages = st.builds(
    lambda content: {"role": "assistant", "content": content},
    texts | st.lists(text_blocks() | tool_uses() | thoughts(), max_size=6),
)
messages = user_messages | assistant_messages


def checked(model, item):
    """The item as the other SDK's model reads it: nothing refused, nothing unknown."""
    read = model.model_validate(item)
    assert not read.model_extra
    assert read.model_dump(exclude_unset=True) == item


def check_item(item):
    kind = item["type"]
    if kind == "message":
        said = item["role"] == "assistant" and isinstance(item["content"], list)
        checked(ResponseOutputMessage if said else EasyInputMessage, item)
    elif kind == "function_call_output":
        checked(FunctionCallOutput, item)
    else:
        model = {"function_call": ResponseFunctionToolCall, "reasoning": ResponseReasoningItem}
        checked(model[kind], item)


def texts_of(value):
    """Every text of a message or of items, in order."""
    if isinstance(value, dict):
        keys = ("text", "thinking", "output", "content", "summary")
        return [found for key in keys if key in value for found in texts_of(value[key])]
    if isinstance(value, list):
        return [found for one in value for found in texts_of(one)]
    return [value] if isinstance(value, str) else []


@given(messages)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_messages_of_one_sdk_are_items_of_the_other(message):
    if isinstance(message["content"], list):
        for block in message["content"]:
            read = PARAMS[block["type"]].validate_python(block)
            if isinstance(block.get("content"), list):  # read lazily by the SDK's type
                read = {**read, "content": list(read["content"])}
            assert read == block
    before = serialised(message)
    items = convert_message(message)
    assert serialised(message) == before
    for item in items:
        check_item(item)
    assert items == convert_message(json.loads(json.dumps(message)))
    found = "".join(texts_of(items)).replace("\n", "")
    assert found == "".join(texts_of(message)).replace("\n", "")
    identifiers = [
        item["id"] for item in items if item["type"] in {"message", "reasoning"} if "id" in item
    ]
    assert len(set(identifiers)) == len(identifiers)


@given(messages)
@settings(max_examples=60)
def test_cache_marks_and_bulk_change_nothing(message):
    content = message["content"]
    bare = message
    if isinstance(content, list):
        blocks = [{k: v for k, v in b.items() if k != "cache_control"} for b in content]
        bare = {**message, "content": blocks}
    assert convert_batch([("message", bare), ("message", message)]) == [
        convert_message(message),
        convert_message(bare),
    ]


@given(st.lists(text_blocks() | tool_uses() | thoughts(), max_size=6))
@settings(max_examples=60)
def test_a_response_of_one_sdk_is_output_of_the_other(blocks):
    models = {
        "text": TextBlock,
        "tool_use": ToolUseBlock,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedThinkingBlock,
    }
    response = Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude",
        content=[models[block["type"]].model_validate(block) for block in blocks],
        stop_reason="end_turn",
        usage=Usage(input_tokens=1, output_tokens=1),
    )
    answer, reasoning, calls = convert_content(response.model_dump(mode="python"))
    for item in [*answer, *(reasoning or [])]:
        check_item(item)
        OUTPUT.validate_python(item)
    uses = [block for block in blocks if block["type"] == "tool_use"]
    assert calls == len(uses)
    made = [item for item in answer if item["type"] == "function_call"]
    assert [json.loads(item["arguments"]) for item in made] == [use["input"] for use in uses]
    assert (reasoning is None) == (not any("thinking" in block["type"] for block in blocks))


def serialised(value):
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
