"""Any bytes, any cuts: the same strict JSON; and what a stream costs in memory."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams.chat import CHAT
from streams.messages import MESSAGES
from streams.responses import streams

from rollfold import _core

SAMPLES = [*CHAT.values(), *MESSAGES.values(), *(events for _, events in streams())]
DIALECTS = st.sampled_from(["chat", "messages", "responses", None])


def refuse(constant: str) -> None:
    raise AssertionError(constant)


def lines(event: object, end: str) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event)
    return f"data: {text}{end}{end}".encode()


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Give events of real streams, shuffled, repeated, mutilated and mixed with noise."""
    events = draw(st.lists(st.sampled_from(SAMPLES).flatmap(st.sampled_from), max_size=12))
    end = draw(st.sampled_from(["\n", "\r", "\r\n"]))
    body = bytearray(b"".join(lines(event, end) for event in events))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        if draw(st.booleans()):
            body[at:at] = draw(st.binary(max_size=4))
        else:
            del body[at : at + draw(st.integers(1, 30))]
    return bytes(body)


@given(body=bodies(), dialect=DIALECTS, data=st.data())
def test_cuts_never_matter_and_what_comes_out_is_strict_json(
    body: bytes, dialect: str | None, data: st.DataObject
) -> None:
    whole = _core.assemble_stream(dialect, body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    assembler = _core.StreamAssembler(dialect)
    first_tokens = terminals = 0
    for start, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        progress = assembler.feed(body[start:stop])
        first_tokens += progress.first_token
        if progress.terminal_offset is not None:
            terminals += 1
            assert 0 <= progress.terminal_offset <= stop - start
    assert assembler.finish() == whole
    assert first_tokens <= 1
    assert terminals <= 1
    if whole[0] is not None:
        assert isinstance(json.loads(whole[0], parse_constant=refuse), dict)


@given(st.binary(max_size=200), DIALECTS)
def test_noise_is_taken(body: bytes, dialect: str | None) -> None:
    _core.assemble_stream(dialect, b"data: " + body + b"\n\n")


def test_an_unknown_dialect_and_a_finished_stream_are_refused() -> None:
    with pytest.raises(ValueError, match="dialect: \"smoke\" is none of 'chat'"):
        _core.StreamAssembler("smoke")
    assembler = _core.StreamAssembler("chat")
    assert assembler.finish() == (None, "stream_truncated")
    for again in (assembler.finish, lambda: assembler.feed(b"")):
        with pytest.raises(ValueError, match="finished before"):
            again()


MEASURE = """
    import json, re, sys
    from rollfold import _core

    def sse(event):
        return f"event: {event.get('type', 'x')}\\ndata: {json.dumps(event)}\\n\\n".encode()

    def chat(index):
        logprob = {"token": "word", "logprob": -0.123456789, "bytes": [119, 111]}
        entry = logprob | {"top_logprobs": [logprob] * 3}
        choice = {"index": 0, "delta": {"content": "word "}, "logprobs": {"content": [entry]}}
        return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}

    def responses():
        text = "lorem ipsum " * 27_000
        item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]}
        for at in range(0, len(text), 600):
            delta = text[at : at + 600]
            yield {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": delta}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": {"id": "r", "output": [item]}}

    shape = sys.argv[1]
    events = {
        "chat": lambda: map(chat, range(2_500)),
        "responses": responses,
        "one event": lambda: [{"choices": [{"index": 0, "delta": {"content": "x" * 1_000_000}}]}],
    }[shape]()
    body = b"".join(map(sse, events))
    step = int(sys.argv[2])

    def peak():
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

    def record(body):
        recording = _core.Recording("chat" if shape != "responses" else shape)
        recording.start_response(True)
        for at in range(0, len(body), step):
            recording.feed_response(body[at : at + step])
        ended = recording.end(
            model_call_id="a", started_at=1.0, completed_at=2.0, latency_ms=1.0, status_code=200
        )
        return ended.compose()

    # Code and arenas that any stream touches are there before the count starts.
    record(body[:200_000])
    del events
    open("/proc/self/clear_refs", "w").write("5")
    before = peak()
    line = record(body)
    peak = peak() - before
    print(json.dumps([len(body), len(bytes(line)), peak]))
"""


@pytest.mark.parametrize("step", [16_000, 10_000_000])
@pytest.mark.parametrize("shape", ["chat", "responses", "one event"])
def test_a_stream_of_a_megabyte_stays_near_its_text(shape: str, step: int) -> None:
    """The peak of a recorded stream stays under 2.5 times its text, its line included."""
    command = [sys.executable, "-c", textwrap.dedent(MEASURE), shape, str(step)]
    # Large pieces go back to the system at once: what is held counts, not what the
    # allocator keeps for later.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    size, line, peak = json.loads(done.stdout)
    assert line > size
    assert peak < 2.5 * size, f"peak {peak / size:.2f} of the text"
