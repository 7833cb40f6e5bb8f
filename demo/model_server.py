"""The model server: a script behind three APIs, with the capture middleware around it.

python -m demo.model_server --port 8100 --captures captures
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from demo.script import CUT, MODEL, decide
from demo.wire import DIALECTS
from rollfold.capture import CaptureMiddleware

SERVER_NAME = "demo_model"
PAUSE_S = 0.002


def endpoint(dialect: Any) -> Route:
    """Make the route of one dialect."""

    async def answer(request: Request) -> Response:
        body = await request.body()
        seen = dialect.read(json.loads(body))
        response = dialect.write(decide(seen), body)
        if not seen.stream:
            return JSONResponse(response)
        events = list(dialect.stream(response))
        if CUT in seen.text and not seen.results:
            events = events[: len(events) // 2]

        async def paced() -> AsyncIterator[str]:
            for event in events:
                await asyncio.sleep(PAUSE_S)
                yield event

        return StreamingResponse(paced(), media_type="text/event-stream")

    return Route(dialect.path, answer, methods=["POST"])


async def health(_request: Request) -> Response:
    """Say what this is."""
    return JSONResponse({"model": MODEL})


def build(captures: str) -> Any:
    """Make the application, with the middleware that records what it answers."""
    app = Starlette(routes=[Route("/healthz", health), *map(endpoint, DIALECTS)])
    return CaptureMiddleware(app, root=captures, server_name=SERVER_NAME)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--captures", required=True)
    options = parser.parse_args()
    uvicorn.run(build(options.captures), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
