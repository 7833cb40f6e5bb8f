"""A reverse proxy that records: for model servers that one cannot change.

Needs the extra `collect` (aiohttp).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    hdrs,
    web,
)
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rollfold.capture.middleware import END_WAIT_S, invalid_id_body
from rollfold.capture.recorder import Call, Recorder, category_of_exception
from rollfold.capture.routing import DIALECTS, Route, split_path, split_raw_path

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # Each side's own: where it connects, and what it has answered already.
        "host",
        "expect",
    }
)
"""Headers of one connection, not of the message (RFC 9110, section 7.6.1)."""

KEEPALIVE_S: Final = 4.0
"""Idle upstream connections are closed before the usual server's five seconds are up: a
POST on one that the server is just closing could not be sent again."""


DRAIN_UPLOAD_S: Final = 5.0
"""How long a request whose upstream is not there may still come in, for its record."""


class CaptureProxy:
    """Forwards everything to one upstream and records its model calls.

    Bytes go on unchanged, both ways and as they come: a slow client slows the upstream
    down rather than filling memory. What the middleware does with the prefix
    `/ng-rollout/<id>/` holds here too. `/healthz` answers for the proxy itself.

    Args:
        upstream: the server's base URL; a `/v1` at its end is taken as part of the API's
            own paths.
        recorder: where calls go.
        connect_timeout_s: the longest wait for a connection to the upstream.
        read_timeout_s: the longest silence of the upstream; None for no bound.
        drain_s: how long `stop` waits for calls in flight before it cuts them off.

    Raises:
        ValueError: the upstream is no http(s) URL.
    """

    def __init__(
        self,
        upstream: str,
        recorder: Recorder,
        *,
        connect_timeout_s: float = 10.0,
        read_timeout_s: float | None = 600.0,
        drain_s: float = 60.0,
    ) -> None:
        parts = urlsplit(upstream)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"upstream: expected http(s)://host[:port][/path], got {upstream!r}")
        self._base = upstream.rstrip("/").removesuffix("/v1")
        self._recorder = recorder
        self._timeout = ClientTimeout(
            total=None, sock_connect=connect_timeout_s, sock_read=read_timeout_s
        )
        self._drain_s = drain_s
        self._session: ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._in_flight = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; gives the port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=self._timeout,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            skip_auto_headers=(
                hdrs.USER_AGENT,
                hdrs.ACCEPT,
                hdrs.ACCEPT_ENCODING,
                hdrs.CONTENT_TYPE,
            ),
        )
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            shutdown_timeout=self._drain_s,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=2048)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Accept nothing more, finish what is in flight, write its records."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()
        await asyncio.to_thread(self._recorder.close)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw, _, query = request.raw_path.partition("?")
        if raw == "/healthz":
            counts = dict(self._recorder.counts)
            return web.json_response({"status": "ok", "in_flight": self._in_flight, **counts})
        route = split_path(unquote(raw, errors="replace"))
        if route is None:
            return await self._pass(request, raw, query, None, None)
        if not route.valid:
            body = invalid_id_body(route.rollout_id)
            return web.Response(status=404, body=body, content_type="application/json")
        raw = split_raw_path(raw.encode(), route).decode()
        dialect = DIALECTS.get(route.path)
        if dialect is None or request.method != "POST":
            return await self._pass(request, raw, query, route, None)
        sessions = request.headers.getall("x-session-id", [])
        session = sessions[0] if len(sessions) == 1 and sessions[0] else None
        call = self._recorder.begin(route.rollout_id, dialect, client_session_id=session)
        call.request_encoding(request.headers.get(hdrs.CONTENT_ENCODING, ""))
        call.add_facts({"upstream_attempted": True})
        self._in_flight += 1
        try:
            return await self._pass(request, raw, query, route, call)
        except asyncio.CancelledError:
            # The client is gone, or the drain is over: the record is written regardless.
            call.finish("cancelled")
            raise
        finally:
            call.finish("exception")
            self._in_flight -= 1

    async def _pass(
        self, request: web.Request, raw: str, query: str, route: Route | None, call: Call | None
    ) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101 - `start` made it
        url = URL(f"{self._base}{raw}{'?' + query if query else ''}", encoded=True)
        upload = _Upload(request, call) if request.can_read_body else None
        try:
            answer = await self._session.request(
                request.method,
                url,
                headers=_forwarded(request.headers),
                data=None if upload is None else upload.chunks(),
                allow_redirects=False,
            )
        except (ClientError, TimeoutError, OSError) as error:
            if upload is not None and upload.client_gone:
                if call is not None:
                    await call.settle("cancelled")
                raise
            if upload is not None and call is not None:
                await upload.drain()
            return await _local_answer(error, call)
        async with answer:
            return await self._answer(request, answer, route, call)

    async def _answer(
        self,
        request: web.Request,
        answer: ClientResponse,
        route: Route | None,
        call: Call | None,
    ) -> web.StreamResponse:
        headers = _forwarded(answer.headers)
        if route is not None and hdrs.LOCATION in headers:
            headers[hdrs.LOCATION] = self._with_prefix(headers[hdrs.LOCATION], route)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        if call is not None:
            call.add_facts({"response_source": "upstream", "upstream_status_code": answer.status})
            call.start(
                answer.status,
                answer.headers.get(hdrs.CONTENT_TYPE, ""),
                answer.headers.get(hdrs.CONTENT_ENCODING, ""),
            )
        try:
            await response.prepare(request)
            if call is None:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            else:
                await _pump(answer, response, call)
            await response.write_eof()
        except ConnectionResetError:
            # Ours is the client's side: aiohttp's client raises ClientError for the other.
            if call is not None:
                await call.settle("cancelled")
            raise
        except (ClientError, TimeoutError) as error:
            if call is not None:
                await call.settle(category_of_exception(error))
            # The client must see that the body was cut off.
            if request.transport is not None:
                request.transport.close()
        return response

    def _with_prefix(self, location: str, route: Route) -> str:
        """Keep redirects to the upstream's own origin on the proxy, under their prefix."""
        base, parts = urlsplit(self._base), urlsplit(location)
        if parts.netloc and (parts.scheme or base.scheme, parts.netloc) != base[:2]:
            return location
        if not parts.path.startswith(base.path + "/"):
            return location
        inner = parts.path[len(base.path) :]
        if not inner.startswith(route.prefix + "/"):
            inner = route.prefix + inner
        return urlunsplit(("", "", inner, parts.query, parts.fragment))


class _Upload:
    """The request's body on its way up."""

    def __init__(self, request: web.Request, call: Call | None) -> None:
        self._request = request
        self._call = call
        self.client_gone = False

    async def drain(self) -> None:
        """Take what the upstream did not, for the record."""
        with contextlib.suppress(TimeoutError, OSError, web.RequestPayloadError):
            async with asyncio.timeout(DRAIN_UPLOAD_S):
                async for _ in self.chunks():
                    pass

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._request.content.iter_any():
                if self._call is not None:
                    self._call.request(chunk, more=not self._request.content.is_eof())
                yield chunk
            if self._call is not None:
                self._call.request(b"")
        except (ConnectionResetError, web.RequestPayloadError):
            self.client_gone = True
            raise


async def _pump(answer: ClientResponse, response: web.StreamResponse, call: Call) -> None:
    """Pass a recorded body on; its end, or terminal event, waits for the record."""
    chunks = answer.content.iter_any()
    held = b""
    try:
        async for chunk in chunks:
            offset = call.response(chunk)
            if offset is not None:
                if offset:
                    await response.write(chunk[:offset])
                held = chunk[offset:]
                break
            if call.streaming:
                await response.write(chunk)
            else:
                # Which chunk is the last is known once the next has come.
                if held:
                    await response.write(held)
                held = chunk
        else:
            await call.settle()
            if held:
                await response.write(held)
            return
    except (ClientError, TimeoutError) as error:
        if not isinstance(error, ConnectionResetError):
            await call.settle(category_of_exception(error))
            if held:
                await response.write(held)
        raise
    # What follows a terminal event is little, and it need not come.
    with contextlib.suppress(TimeoutError, ClientError):
        async with asyncio.timeout(END_WAIT_S):
            async for chunk in chunks:
                call.response(chunk)
                held += chunk
    await call.settle()
    await response.write(held)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)


async def _local_answer(error: Exception, call: Call | None) -> web.Response:
    """Answer in the upstream's place: 504 where it was too slow, else 502."""
    slow = isinstance(error, TimeoutError)
    status, reason = (504, "upstream_timeout") if slow else (502, "upstream_connection")
    body = json.dumps(
        {"error": {"type": reason, "message": f"no answer from the upstream: {error}"}}
    ).encode()
    if call is not None:
        call.add_facts({"response_source": "local", "local_response_reason": reason})
        call.start(status, "application/json")
        call.response(body)
        await call.settle("timeout" if slow else "connection")
    return web.Response(status=status, body=body, content_type="application/json")


def _forwarded(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    dropped: Iterable[str] = headers.getall(hdrs.CONNECTION, [])
    named = {name.strip().lower() for value in dropped for name in value.split(",")}
    kept = CIMultiDict[str]()
    for name, value in headers.items():
        if name.lower() not in HOP_BY_HOP and name.lower() not in named:
            kept.add(name, value)
    return kept
