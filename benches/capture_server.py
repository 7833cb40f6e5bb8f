"""The server that `capture_cost.py` loads: one ASGI application, plain or recorded.

Runs by itself, also where Rollfold is not installed: `capture_server.py KIND DIRECTORY
[DURABILITY]` with KIND `plain`, `rollfold` or `peer`; prints its port.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import Any

import uvicorn

ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * 360},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 400, "completion_tokens": 360, "total_tokens": 760},
    }
).encode()


def event(path: str, text: str) -> bytes:
    """Return an event with that text as it goes over the wire, in the path's dialect."""
    said: dict[str, Any]
    if path == "/v1/messages":
        delta = {"type": "text_delta", "text": text}
        said = {"type": "content_block_delta", "index": 0, "delta": delta}
    elif path == "/v1/responses":
        said = {"type": "response.output_text.delta", "output_index": 0, "delta": text}
    else:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        said = {"id": "c", "model": "m", "choices": [choice]}
    return f"data: {json.dumps(said)}\n\n".encode()


ENDS = {
    "/v1/chat/completions": b"data: [DONE]\n\n",
    "/v1/messages": b'data: {"type": "message_stop"}\n\n',
    "/v1/responses": b'data: {"type": "response.completed", "response": {"id": "r"}}\n\n',
}


def used_so_far() -> bytes:
    """Return what the process has used as JSON, and start its peak anew."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    said = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_kb": int(status["VmRSS"].split()[0]),
        "peak_kb": int(status["VmHWM"].split()[0]),
    }
    Path("/proc/self/clear_refs").write_text("5")
    return json.dumps(said).encode()


async def stats(send: Any) -> None:
    """Answer with what the process has used."""
    body = used_so_far()
    await send({"type": "http.response.start", "status": 200, "headers": length(body)})
    await send({"type": "http.response.body", "body": body})


def length(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of a JSON body."""
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, or stream as the request says: {"events", "size", "pause_s"}."""
    if scope["path"] == "/stats":
        await stats(send)
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request = json.loads(body)
    if "events" not in request:
        await send({"type": "http.response.start", "status": 200, "headers": length(ANSWER)})
        await send({"type": "http.response.body", "body": ANSWER})
        return
    kind = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": kind})
    # The plain server gets its paths with their prefix.
    path = scope["path"][scope["path"].index("/v1/") :]
    chunk = event(path, "x" * request["size"])
    for _ in range(request["events"]):
        # One large event goes out in several messages where the request says so.
        step = request.get("chunk") or len(chunk)
        for at in range(0, len(chunk), step):
            part = chunk[at : at + step]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(request["pause_s"])
    end = ENDS[path]
    await send({"type": "http.response.body", "body": end, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def recorded(kind: str, directory: str, durability: str) -> Any:
    """Return the application with the recorder of that kind around it."""
    if kind == "plain":
        return application
    if kind == "rollfold":
        from rollfold.capture import CaptureMiddleware  # noqa: PLC0415

        return CaptureMiddleware(
            application, root=directory, server_name="bench", durability=durability
        )
    from nemo_gym.base_responses_api_model import (  # noqa: PLC0415
        CaptureStore,
        _CaptureMiddleware,
    )

    return _CaptureMiddleware(application, store=CaptureStore(directory), model_server_name="bench")


async def main() -> None:
    """Serve until killed."""
    kind, directory, *rest = sys.argv[1:]
    app = recorded(kind, directory, *(rest or ["record"]))
    config = uvicorn.Config(
        app, port=0, log_level="error", lifespan="off", ws="none", http="h11", backlog=2048
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await task


if __name__ == "__main__":
    asyncio.run(main())
