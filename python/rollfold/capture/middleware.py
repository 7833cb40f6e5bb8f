"""ASGI middleware that records a model server's calls as they pass."""

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from rollfold.capture.recorder import (
    Call,
    Durability,
    Recorder,
    Redact,
    category_of_exception,
    category_of_status,
)
from rollfold.capture.routing import DIALECTS, Route, keep_prefix, split_path, split_raw_path

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

END_WAIT_S: Final = 5.0
"""How long a stream's terminal event waits for the body's end before it goes out."""

PART: Final = 64 * 1024
"""How much of a message that was taken apart goes on at once, in bytes: no second copy of a
large one is made."""

HELD_MOST: Final = 1024 * 1024
"""How much of what follows a terminal event is held, in bytes."""

STATE_KEY: Final = "rollfold_exchange"
"""A handler may put exchange fields that only it knows into `request.state` under this
name: a dict with `upstream_attempted`, `response_source`, `upstream_status_code`,
`local_response_reason`."""


class CaptureMiddleware:
    """Records POSTs to the three model APIs that come under `/ng-rollout/<id>/`.

    Works around any ASGI application on asyncio: `app.add_middleware(CaptureMiddleware,
    root=...)` in FastAPI and Starlette, `CaptureMiddleware(app, root=...)` elsewhere. The
    prefix is taken off the path; what comes without one passes as it is and is not
    recorded. Bytes go on unchanged and at once; only a response's end (a stream's
    terminal event) waits until the record is on disk, so a rollout that has ended has
    its records. No header is recorded, but `x-session-id` where there is exactly one.

    Args:
        app: the application.
        root: the capture directory.
        server_name: the name in every exchange's `model_ref`.
        redact: see `Recorder`, as for the rest.
        max_body_bytes: the most bytes of each body that are kept; None for all.
        durability: `record`, `batch` or `none`.
        file_mode: permissions of the capture files.
        dir_mode: permissions of the directory if it is made.
        write_wait_s: the longest wait of a response's end for its record, in seconds.
        recorder: one to share with others, in place of all the options above.
    """

    def __init__(
        self,
        app: App,
        *,
        root: str | os.PathLike[str] | None = None,
        server_name: str | None = None,
        redact: Redact | None = None,
        max_body_bytes: int | None = None,
        durability: Durability = "record",
        file_mode: int = 0o600,
        dir_mode: int = 0o700,
        write_wait_s: float = 10.0,
        recorder: Recorder | None = None,
    ) -> None:
        if recorder is None:
            if root is None:
                raise TypeError("CaptureMiddleware needs root= or recorder=")
            recorder = Recorder(
                root,
                server_name=server_name,
                redact=redact,
                max_body_bytes=max_body_bytes,
                durability=durability,
                file_mode=file_mode,
                dir_mode=dir_mode,
                write_wait_s=write_wait_s,
            )
        self.app = app
        self.recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        root = str(scope.get("root_path") or "").rstrip("/")
        if not (root and path.startswith(root + "/")):
            root = ""
        route = split_path(path[len(root) :])
        if route is None:
            await self.app(scope, receive, send)
            return
        if not route.valid:
            await _refuse(send, route)
            return
        inner = {**scope, "path": root + route.path}
        raw = scope.get("raw_path")
        if raw is not None:
            before = root.encode()
            if raw.startswith(before):
                inner["raw_path"] = before + split_raw_path(raw[len(before) :], route)
        send = _redirects_kept(scope, root, route, send)
        dialect = DIALECTS.get(route.path)
        if dialect is None or scope["method"] != "POST":
            await self.app(inner, receive, send)
            return
        inner["state"] = scope.get("state", {})
        headers = scope["headers"]
        sessions = [value for name, value in headers if name.lower() == b"x-session-id"]
        session = sessions[0].decode("latin-1") if len(sessions) == 1 and sessions[0] else None
        call = self.recorder.begin(route.rollout_id, dialect, client_session_id=session)
        encoding = _header(headers, b"content-encoding")
        if encoding:
            call.request_encoding(encoding)
        await _Passage(call, inner["state"], receive, send).run(self.app, inner)


def invalid_id_body(rollout_id: str) -> bytes:
    """Give the body of the 404 that an invalid rollout id gets."""
    reason = (
        f"invalid rollout id {rollout_id[:200]!r}: expected [A-Za-z0-9][A-Za-z0-9._-]* "
        "of at most 200 characters"
    )
    return json.dumps({"error": {"type": "invalid_rollout_id", "message": reason}}).encode()


async def _refuse(send: Send, route: Route) -> None:
    body = invalid_id_body(route.rollout_id)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _unchanging(body: bytes | bytearray | memoryview) -> bytes:
    """Give what waits as bytes that its sender cannot change meanwhile."""
    return body if isinstance(body, bytes) else bytes(body)


def _header(headers: Any, name: bytes) -> str:
    for key, value in headers:
        if key.lower() == name:
            return str(value.decode("latin-1"))
    return ""


def _redirects_kept(scope: Scope, root: str, route: Route, send: Send) -> Send:
    async def forward(message: Message) -> None:
        if message["type"] == "http.response.start" and 300 <= message["status"] < 400:
            host = _header(scope["headers"], b"host")
            headers = []
            for name, value in message.get("headers") or ():
                if name.lower() == b"location":
                    location = keep_prefix(
                        value.decode("latin-1"),
                        scheme=scope.get("scheme", "http"),
                        host=host,
                        root=root,
                        prefix=route.prefix,
                    )
                    headers.append((name, location.encode("latin-1")))
                else:
                    headers.append((name, value))
            message = {**message, "headers": headers}
        await send(message)

    return forward


class _Passage:
    """One recorded call's way through: what it receives, what it sends, what waits."""

    def __init__(self, call: Call, state: Any, receive: Receive, send: Send) -> None:
        self._call = call
        self._state = state
        self._receive = receive
        self._send = send
        self._client_gone = False
        self._ended = False
        """The response is whole: its last message or its terminal event was seen."""
        self._held: list[Message] = []
        self._held_size = 0
        self._holding = False
        """From the first message that waits for the record until the last has gone out."""
        self._order = asyncio.Lock()
        self._patience: asyncio.TimerHandle | None = None
        self._release_task: asyncio.Task[None] | None = None

    async def run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            # The record is written whatever else happens to this task; the client still
            # gets what it would have got.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._release(self._category(error))
            raise
        await self._release(self._category(None))

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._call.request(message.get("body", b""), more=message.get("more_body", False))
        elif message["type"] == "http.disconnect":
            # It follows a response that went out whole, too; that one has ended.
            self._client_gone = True
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            headers = message.get("headers") or ()
            encoding = _header(headers, b"content-encoding")
            self._call.start(message["status"], _header(headers, b"content-type"), encoding)
        body = message.get("body", b"")
        last = kind == "http.response.body" and not message.get("more_body", False)
        offset = self._call.response(body) if body else None
        self._ended |= last or offset is not None
        if self._holding:
            self._held.append({**message, "body": _unchanging(body)} if body else message)
            self._held_size += len(body)
            if self._held_size > HELD_MOST and not last:
                await self._release(None)
        elif last:
            self._hold(message)
        elif offset is not None:
            whole = memoryview(_unchanging(body))
            if offset:
                await self._forward({**message, "body": whole[:offset]})
            self._hold({**message, "body": whole[offset:]})
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(END_WAIT_S, self._release_anyway)
        else:
            await self._forward(message)
        if last and self._holding:
            await self._release(None)

    async def _forward(self, message: Message) -> None:
        body = message.get("body")
        try:
            if not isinstance(body, memoryview):
                await self._send(message)
                return
            more = message.get("more_body", False)
            for at in range(0, max(len(body), 1), PART):
                part = bytes(body[at : at + PART])
                going_on = more or at + PART < len(body)
                await self._send({**message, "body": part, "more_body": going_on})
        except OSError:
            self._client_gone = True
            raise

    def _hold(self, message: Message) -> None:
        self._held.append(message)
        self._holding = True

    def _release_anyway(self) -> None:
        """Let the client have a terminal event whose body does not end."""
        self._release_task = asyncio.create_task(self._release_quietly())

    async def _release_quietly(self) -> None:
        with contextlib.suppress(OSError):
            await self._release(None)

    async def _release(self, category: str | None) -> None:
        """Write the record, then let go what waited for it."""
        if self._patience is not None:
            self._patience.cancel()
        if not self._call.finished and isinstance(self._state, dict):
            facts = self._state.get(STATE_KEY)
            if isinstance(facts, Mapping):
                self._call.add_facts(facts)
        await self._call.settle(category)
        if not self._holding:
            return
        async with self._order:
            while self._held:
                await self._forward(self._held.pop(0))
            self._holding = False

    def _category(self, error: BaseException | None) -> str | None:
        if self._ended:
            return None
        if self._client_gone:
            return "cancelled"
        if error is None:
            # It returned without an end: a server breaks such a response off. What a stream
            # lacks says its own category.
            return None if self._call.streaming else "exception"
        status = getattr(error, "status_code", None)
        if not isinstance(status, int):
            status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool):
            # An HTTP client's error: what the upstream said.
            self._call.add_facts({"upstream_status_code": status})
            return category_of_status(status) or category_of_exception(error)
        return category_of_exception(error)
