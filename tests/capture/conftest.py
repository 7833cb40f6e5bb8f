import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

SSE = {
    "chat": [
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""},
                      "finish_reason": None}]},
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"content": "for"}, "finish_reason": None}]},
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"content": "ty-two"}, "finish_reason": "stop"}]},
        "[DONE]",
    ],
    "messages": [
        {"type": "message_start", "message": {
            "id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": "forty-two"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ],
    "responses": [
        {"type": "response.created", "sequence_number": 0,
         "response": {"id": "r1", "object": "response", "status": "in_progress", "output": []}},
        {"type": "response.output_text.delta", "sequence_number": 1, "item_id": "i1",
         "output_index": 0, "content_index": 0, "delta": "forty-two"},
        {"type": "response.completed", "sequence_number": 2, "response": {
            "id": "r1", "object": "response", "status": "completed", "model": "m", "output": [
                {"type": "message", "id": "i1", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": "forty-two", "annotations": []}]}]}},
    ],
}  # fmt: skip

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}


def sse_chunks(dialect: str) -> list[bytes]:
    """Give the stream's events as they go over the wire."""
    chunks = []
    for event in SSE[dialect]:
        data = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        chunks.append(f"{name}data: {data}\n\n".encode())
    return chunks


ANSWER = b'{\n "id": "c1",\n "object": "chat.completion",\n "big": 18446744073709551616,\n "choices": []\n}\n'


class ModelServer:
    """An ASGI model server whose request bodies say how it behaves (key `mode`)."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.go_on = threading.Event()
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.seen.append(scope)
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        try:
            request = json.loads(body)
        except ValueError:
            request = {}
        mode = request.get("mode", "stream" if request.get("stream") else "plain")
        await getattr(self, mode)(scope, receive, send, request)

    async def _start(  # an ASGI message
        self, send: Any, kind: bytes = b"application/json", status: int = 200, *more: Any
    ) -> None:
        headers = [(b"content-type", kind), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, send: Any, body: bytes, more: bool = False) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def plain(self, _s: Any, _r: Any, send: Any, request: Any) -> None:
        answer = request.get("answer", ANSWER.decode()).encode()
        await self._start(send)
        half = len(answer) // 2
        await self._body(send, answer[:half], True)
        await self._body(send, answer[half:])

    async def slow(self, scope: Any, receive: Any, send: Any, request: Any) -> None:
        await asyncio.sleep(request["seconds"])
        await self.plain(scope, receive, send, request)

    async def status(self, _s: Any, _r: Any, send: Any, request: Any) -> None:
        await self._start(send, b"application/json", request["status"])
        await self._body(send, b'{"error": {"message": "no"}}')

    async def stream(self, scope: Any, _r: Any, send: Any, request: Any) -> None:
        """Send the events; waits for `go_on` before each but the first where asked to."""
        dialect = {path: name for name, path in PATHS.items()}[scope["path"]]
        await self._start(send, b"text/event-stream; charset=utf-8")
        for number, chunk in enumerate(sse_chunks(dialect)):
            if request.get("wait") and number:
                while not self.go_on.is_set():  # noqa: ASYNC110 - another thread sets it
                    await asyncio.sleep(0.002)
                self.go_on.clear()
            await self._body(send, chunk, True)
        if request.get("never_end"):
            await asyncio.sleep(30)
        await self._body(send, b"")

    async def big(self, _s: Any, _r: Any, send: Any, request: Any) -> None:
        await self._start(send, b"text/event-stream")
        event = {"choices": [{"index": 0, "delta": {"content": "x" * 1000}}]}
        chunk = f"data: {json.dumps(event)}\n\n".encode()
        for _ in range(request["events"]):
            await self._body(send, chunk, True)
        await self._body(send, b"data: [DONE]\n\n")

    async def cut(self, _s: Any, _r: Any, send: Any, _q: Any) -> None:
        await self._start(send, b"text/event-stream")
        await self._body(send, b"".join(sse_chunks("chat")[:2]))

    async def dead(self, _s: Any, _r: Any, send: Any, _q: Any) -> None:
        await self._start(send, b"text/event-stream")
        await self._body(send, b"".join(sse_chunks("chat")[:2]), True)
        raise RuntimeError("the engine died")

    async def crash(self, _s: Any, _r: Any, _send: Any, request: Any) -> None:
        raise {
            "timeout": TimeoutError("too slow"),
            "connection": ConnectionResetError("gone"),
            "exception": RuntimeError("bug"),
        }[request["error"]]

    async def hang(self, _s: Any, receive: Any, send: Any, _q: Any) -> None:
        await self._start(send, b"text/event-stream")
        await self._body(send, sse_chunks("chat")[1], True)
        while (await receive())["type"] != "http.disconnect":
            pass

    async def redirect(self, _s: Any, _r: Any, send: Any, request: Any) -> None:
        await self._start(send, b"text/plain", 307, (b"location", request["location"].encode()))
        await self._body(send, b"")

    async def zipped(self, _s: Any, _r: Any, send: Any, request: Any) -> None:
        plain = b"".join(sse_chunks("chat")) if request.get("sse") else ANSWER
        kind = b"text/event-stream" if request.get("sse") else b"application/json"
        await self._start(send, kind, 200, (b"content-encoding", b"gzip"))
        packed = gzip.compress(plain)
        await self._body(send, packed[:20], True)
        await self._body(send, packed[20:])

    async def html(self, _s: Any, _r: Any, send: Any, _q: Any) -> None:
        await self._start(send, b"text/html")
        await self._body(send, b"<html>\xff</html>")


class Served:
    """A running server, whose application changes from test to test."""

    def __init__(self) -> None:
        self.app: Any = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(
            self._dispatch,
            interface="asgi3",
            log_level="critical",
            lifespan="off",
            ws="none",
            http="h11",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}
        )
        self._thread.start()
        wait_until(lambda: self._server.started, 30)

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(30)
        self._listener.close()
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def idle_servers() -> Iterator[list[Served]]:
    idle: list[Served] = []
    yield idle
    for server in idle:
        server.stop()


@pytest.fixture
def serve(idle_servers: list[Served]) -> Iterator[Callable[[Any], str]]:
    """Serve an ASGI application on loopback in a thread; gives its base URL."""
    used: list[Served] = []

    def start(app: Any) -> str:
        server = idle_servers.pop() if idle_servers else Served()
        used.append(server)
        server.app = app
        return server.url

    yield start
    idle_servers.extend(used)


@pytest.fixture
def model() -> ModelServer:
    return ModelServer()


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    return tmp_path / "captures"


def lines(captures: Path, rollout_id: str) -> list[dict[str, Any]]:
    """Give an attempt's exchanges, each line parsed on its own."""
    path = captures / f"{rollout_id}.capture.jsonl"
    if not path.exists():
        return []
    text = path.read_bytes()
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait for something that other threads bring about."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)
    return found


@pytest.fixture
def read_lines() -> Callable[[Path, str], list[dict[str, Any]]]:
    return lines


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_until


@pytest.fixture(scope="session")
def wire() -> Any:
    """Give the streams and answers that the model server sends."""

    class Wire:
        answer = ANSWER
        paths = PATHS
        chunks = staticmethod(sse_chunks)

    return Wire
