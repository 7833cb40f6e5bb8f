"""Assembled streams against what the official SDKs accumulate from the same bytes.

Real clients read each stream from a real server on loopback; our assembler gets it whole
and cut in two at every byte. The results must be equal field by field, except where
`EXPECTED` says how they differ; docs/streams.md says why.
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from streams.chat import CHAT
from streams.differences import EXPECTED, REASONS
from streams.messages import BETA, MESSAGES
from streams.responses import streams

from rollfold import _core

RESPONSES = dict(streams())


def body_of(dialect: str, events: list[Any]) -> bytes:
    lines = []
    for number, event in enumerate(events):
        # Half of the streams' non-ASCII text goes as escapes, as many servers send it.
        text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=number % 2 == 0)
        name = f"event: {event['type']}\n" if dialect != "chat" else ""
        lines.append(f"{name}data: {text}\n\n")
    return "".join(lines).encode()


BODIES: dict[str, bytes] = {
    **{f"chat/{name}": body_of("chat", events) for name, events in CHAT.items()},
    **{f"messages/{name}": body_of("messages", events) for name, events in MESSAGES.items()},
    **{f"beta/{name}": body_of("messages", events) for name, events in BETA.items()},
    **{f"responses/{name}": body_of("responses", events) for name, events in RESPONSES.items()},
}


class Handler(BaseHTTPRequestHandler):
    """Streams the body that the request's model names, in small chunks."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = BODIES[request["model"]]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), 97):
            piece = body[at : at + 97]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that met an error event closes its connection early."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    http = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


def dumped(model: Any) -> Any:
    return json.loads(json.dumps(model.to_dict(mode="json", warnings=False)))


@pytest.fixture(scope="module")
def clients(server: str) -> Iterator[tuple[anthropic.Anthropic, openai.OpenAI]]:
    with (
        anthropic.Anthropic(base_url=server, api_key="none", max_retries=0) as claude,
        openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as gpt,
    ):
        yield claude, gpt


def sdk_accumulates(name: str, claude: anthropic.Anthropic, gpt: openai.OpenAI) -> Any:
    """Give what the SDK holds when the stream is over, however it ended."""
    dialect = name.partition("/")[0]
    turn = [{"role": "user", "content": "q"}]
    if dialect in {"messages", "beta"}:
        api = claude.messages if dialect == "messages" else claude.beta.messages
        with api.stream(model=name, max_tokens=9, messages=turn) as stream:
            with contextlib.suppress(anthropic.APIError):
                stream.until_done()
            snapshot = stream._current_snapshot_or_none()
            return None if snapshot is None else dumped(snapshot)
    if dialect == "chat":
        with gpt.chat.completions.stream(model=name, messages=turn) as stream:
            with contextlib.suppress(openai.APIError):
                stream.until_done()
            return dumped(stream.current_completion_snapshot)
    with gpt.responses.stream(model=name, input="q") as stream:
        last = None
        with contextlib.suppress(openai.APIError):
            for event in stream:
                if event.type in {"response.incomplete", "response.failed"}:
                    last = event.response
        state = stream._state
        held = state._completed_response or last
        return dumped(held or state._ResponseStreamState__current_snapshot)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Give the paths at which the two differ; null and absence are the same."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from differences(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{path}.{index}")
    elif ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
        yield path


def assembled(name: str) -> tuple[Any, str | None]:
    dialect = name.partition("/")[0].replace("beta", "messages")
    response, category = _core.assemble_stream(dialect, BODIES[name], 200)
    return json.loads(response or b"null"), category


@pytest.mark.parametrize("name", BODIES)
def test_equal_to_the_sdk_field_by_field(
    name: str, clients: tuple[anthropic.Anthropic, openai.OpenAI]
) -> None:
    ours, _ = assembled(name)
    theirs = sdk_accumulates(name, *clients)
    found = set(differences(ours, theirs))
    assert found == set(EXPECTED.get(name, {})), json.dumps([ours, theirs], indent=1)


@pytest.mark.parametrize("name", BODIES)
def test_cut_at_every_byte_it_is_the_same(name: str) -> None:
    dialect = name.partition("/")[0].replace("beta", "messages")
    body = BODIES[name]
    whole = _core.assemble_stream(dialect, body, 200)
    # The long ones are the short ones in a row; a prime step meets every place in an event.
    for cut in range(0, len(body) + 1, 1 if len(body) < 9000 else 23):
        assembler = _core.StreamAssembler(dialect)
        parts = [assembler.feed(body[:cut]), assembler.feed(body[cut:])]
        assert assembler.finish(200) == whole
        assert sum(part.first_token for part in parts) <= 1
        ends = [part.terminal_offset for part in parts if part.terminal_offset is not None]
        assert len(ends) <= 1


def test_categories() -> None:
    ended_early = {"left open", "truncated"}
    categories = {
        "error": "upstream_error",
        "error first": "upstream_error",
        "failed": "upstream_error",
        "incomplete": "incomplete",
    }
    for name in BODIES:
        kind = name.partition("/")[2]
        early = any(kind.endswith(word) for word in ended_early)
        expected = "stream_truncated" if early else categories.get(kind)
        assert assembled(name)[1] == expected, name


def test_every_difference_has_its_reason_and_every_reason_is_in_the_docs() -> None:
    used = {reason for paths in EXPECTED.values() for reason in paths.values()}
    assert used == set(REASONS)
    assert set(EXPECTED) <= set(BODIES)
    docs = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
    for reason, text in REASONS.items():
        assert f"| {reason} |" in docs, reason
        assert text in docs, reason
