import asyncio
import http.client

import aiohttp
import httpx
import pytest

from rollfold.capture import CaptureMiddleware
from rollfold.capture import middleware as middleware_module
from rollfold.capture.recorder import category_of_exception

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("does", "status", "category"),
    [
        ("nothing", None, "exception"),
        ("starts", 200, "exception"),
        ("starts a stream", 200, "stream_truncated"),
        ("sends half", 200, "exception"),
        ("refuses", 503, "upstream_error"),
    ],
)
def test_a_handler_that_returns_without_an_end(does, status, category, captures, read_lines):
    async def app(scope, receive, send):
        await receive()
        kind = b"text/event-stream" if does == "starts a stream" else b"application/json"
        if does != "nothing":
            start = {"type": "http.response.start", "status": status}
            await send(start | {"headers": [(b"content-type", kind)]})
        if does == "sends half":
            await send({"type": "http.response.body", "body": b'{"a": 1}', "more_body": True})

    sent = call_with(app, captures, [{"type": "http.request", "body": b'{"a": 1}'}])
    assert len(sent) == {"nothing": 0, "sends half": 2}.get(does, 1)
    [exchange] = read_lines(captures, "0-0")
    assert (exchange["status_code"], exchange["error_category"]) == (status, category)
    assert exchange["request"] == {"a": 1}


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (httpx.ReadError("gone"), "connection"),
        (httpx.RemoteProtocolError("gone"), "connection"),
        (httpx.ConnectError("none"), "connection"),
        (httpx.ReadTimeout("slow"), "timeout"),
        (aiohttp.ClientPayloadError("gone"), "connection"),
        (aiohttp.ServerDisconnectedError(), "connection"),
        (asyncio.IncompleteReadError(b"", 3), "connection"),
        (http.client.IncompleteRead(b""), "connection"),
        (BrokenPipeError(), "connection"),
        (ValueError("payload too large"), "exception"),
    ],
)
def test_what_clients_raise_has_its_category(error, category):
    assert category_of_exception(error) == category


def test_a_request_that_was_not_read_to_its_end_says_so(captures, read_lines):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 413, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    half = {"type": "http.request", "body": b'{"model": "m", "mess', "more_body": True}
    call_with(app, captures, [half, {"type": "http.request", "body": b'ages": []}'}])
    call_with(app, captures, [half | {"body": b'{"model": "m"}'}, {"type": "http.request"}])
    whole = {"type": "http.request", "body": b'{"model": "m"}'}
    call_with(app, captures, [whole])
    found = read_lines(captures, "0-0")
    assert [exchange["request"] for exchange in found] == [None, None, {"model": "m"}]
    assert [exchange.get("truncated") for exchange in found] == [["request"], ["request"], None]
    assert found[0]["request_raw"] == '{"model": "m", "mess'


def call_with(app, captures, messages):
    """Make a call through the middleware, without a server, of these messages."""
    sent, left = [], list(messages)

    async def receive():
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": f"/ng-rollout/0-0{CHAT}", "headers": []}
    asyncio.run(CaptureMiddleware(app, root=captures)(scope, receive, send))
    return sent


def test_what_waits_is_not_changed_by_its_sender_and_does_not_grow_without_bound(captures, wire):
    buffer = bytearray(b"x" * 200_000)
    held = []

    async def app(scope, receive, send):
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        end = wire.chunks("chat")[-1]
        await send({"type": "http.response.body", "body": end, "more_body": True})
        for number in range(20):
            buffer[:] = bytes([number]) * len(buffer)
            await send({"type": "http.response.body", "body": buffer, "more_body": True})
            held.append((number + 1) * len(buffer) - sum(map(len, sent[1:])))
        await send({"type": "http.response.body"})

    sent = []

    async def call():
        async def receive():
            return {"type": "http.request", "body": b"{}"}

        async def send(message):
            sent.append(bytes(message.get("body", b"")))

        scope = {"type": "http", "method": "POST", "path": f"/ng-rollout/0-0{CHAT}", "headers": []}
        await CaptureMiddleware(app, root=captures)(scope, receive, send)

    asyncio.run(call())
    expected = b"".join(bytes([number]) * len(buffer) for number in range(20))
    assert b"".join(sent) == wire.chunks("chat")[-1] + expected
    assert max(held) <= middleware_module.HELD_MOST
