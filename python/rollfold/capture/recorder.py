"""What the middleware and the proxy share: one call's recording, from accept to disk."""

import asyncio
import atexit
import contextlib
import itertools
import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary, WeakSet

from rollfold import _core
from rollfold.capture import inflight
from rollfold.capture.encoding import Decoder, decoder

logger = logging.getLogger("rollfold.capture")

Durability = Literal["record", "batch", "none"]
Exchange = dict[str, Any]
Redact = Callable[[Exchange], Exchange | None]

THREADS: Final = 16
"""Writers at once; an fsync waits for the disk, not for a core."""

BATCH_INTERVAL_S: Final = 1.0
"""How long a record of durability `batch` may wait for its fsync."""

WARN_INTERVAL_S: Final = 60.0
"""The least time between two warnings of one kind, in seconds."""

BROKEN_OFF: Final = frozenset(
    {
        "clientpayloaderror",
        "incompleteread",
        "incompletereaderror",
        "readerror",
        "remoteprotocolerror",
        "writeerror",
    }
)
"""What HTTP clients raise where the other side goes away within a body (aiohttp, http.client,
asyncio, httpx), in lower case."""

UPSTREAM_KEYS: Final = {
    "upstream_attempted": bool,
    "response_source": str,
    "upstream_status_code": int,
    "local_response_reason": str,
}
"""Exchange fields that only the server can know, and their types."""


def category_of_status(status: int) -> str | None:
    """Give the error category of an HTTP status; None below 400."""
    if status < 400:
        return None
    known = {408: "timeout", 504: "timeout", 429: "rate_limit", 401: "auth", 403: "auth"}
    if status == 404:
        return "not_found"
    return known.get(status, "client_error" if status < 500 else "upstream_error")


def category_of_exception(error: BaseException) -> str:
    """Give the error category of what a call raised, told by its class and its bases.

    HTTP clients have classes of their own; their names say what happened.
    """
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    names = [kind.__name__.lower() for kind in type(error).__mro__]
    if any("timeout" in name for name in names):
        return "timeout"
    if BROKEN_OFF.intersection(names) or any(
        "connect" in name or "brokenpipe" in name for name in names
    ):
        return "connection"
    return "exception"


class Recorder:
    """Records calls into one directory. Recording never fails a call.

    Args:
        root: the capture directory; made, 0700, when the first call comes.
        server_name: the name in every exchange's `model_ref`; None for no reference.
        redact: takes each exchange (a dict, as contract section 3 lists it) before it is
            written and returns what to write; None means it changed its argument. Where
            it raises, the call is not recorded and its attempt marked incomplete. Runs
            on another thread than the event loop's.
        max_body_bytes: how much of each body is kept (contract, section 3, and
            `truncated`); None for all.
        durability: `record`, `batch` or `none`; docs/capture.md says what each may lose.
        file_mode: permissions of the files.
        dir_mode: permissions of the directory if it is made.
        write_wait_s: how long, in seconds, the end of a response waits for its record.

    Raises:
        ValueError: the durability is none of the three.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        server_name: str | None = None,
        redact: Redact | None = None,
        max_body_bytes: int | None = None,
        durability: Durability = "record",
        file_mode: int = 0o600,
        dir_mode: int = 0o700,
        write_wait_s: float = 10.0,
    ) -> None:
        self.root = Path(root)
        self.server_name = server_name
        self.redact = redact
        self.max_body_bytes = max_body_bytes
        self.durability = durability
        self.modes = {"file_mode": file_mode, "dir_mode": dir_mode}
        self.write_wait_s = write_wait_s
        self.counts: Counter[str] = Counter()
        """Calls recorded, and why others were not."""
        self._lock = threading.Lock()
        self._warned: dict[str, float] = {}
        self._flush: threading.Timer | None = None
        self._reset()
        _recorders.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self.writer = _core.CaptureWriter(self.root, durability=self.durability, **self.modes)
        self._queue = _core.CaptureQueue(self.writer, threads=THREADS)
        self._pool: ThreadPoolExecutor | None = None
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopSide] = WeakKeyDictionary()

    def begin(
        self, rollout_id: str, dialect: str, *, client_session_id: str | None = None
    ) -> "Call":
        """Accept a call of a valid rollout id: from now on it is announced as in flight."""
        if self._pid != os.getpid():
            # Threads do not survive a fork; a queue of the parent's would never work.
            self._reset()
        return Call(self, rollout_id, dialect, client_session_id, self._announce(rollout_id))

    def close(self, timeout_s: float = 60.0) -> None:
        """Wait until everything that has ended is written, for a bounded time."""
        if self._pid != os.getpid():
            return
        if not self._queue.drain(timeout_s):
            self.complain("close", f"calls were still being written after {timeout_s:g} s")
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
        self.sync()

    def sync(self) -> None:
        """Bring what was written under durability `batch` to the disk."""
        try:
            self.writer.sync()
        except OSError as error:
            self.complain("sync", f"captures may not survive a crash of the machine: {error}")

    def submit(self, call: "Call", ended: _core.EndedCall) -> None:
        """Write a call on another thread; the running loop hears when it is on disk."""
        loop = asyncio.get_running_loop()
        if self.redact is None:
            side = self._loops.get(loop)
            if side is None:
                side = self._loops[loop] = _LoopSide(self, loop)
            self._queue.submit(
                call.rollout_id,
                ended,
                announcer=call.announcer,
                completions=side.completions,
                number=side.expect(call),
            )
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rollfold-redact")

        def write() -> None:
            try:
                self.write(call, ended)
            finally:
                # A loop that is closed by now has nobody waiting.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(call.written)

        self._pool.submit(write)

    def write(self, call: "Call", ended: _core.EndedCall) -> None:
        """Write a call on this thread; what goes wrong is counted and said, never raised."""
        outcome, problem = "failed", None
        try:
            line = ended.compose()
            if self.redact is None:
                outcome = self.writer.write(call.rollout_id, line)
            else:
                redacted = self._redacted(call.rollout_id, line)
                if redacted is None:
                    return
                outcome = self.writer.append(call.rollout_id, redacted)
        except Exception as error:  # noqa: BLE001 - a record must not cost the call
            problem = str(error)
        finally:
            if call.announcer is not None:
                call.announcer.leave(call.rollout_id)
        self.account(call.rollout_id, outcome, problem)

    def _redacted(self, rollout_id: str, line: _core.ComposedLine) -> bytes | None:
        assert self.redact is not None  # noqa: S101 - for the type checker
        try:
            exchange = _core.loads(bytes(line))
            redacted = self.redact(exchange)
            return _core.dumps(exchange if redacted is None else redacted)
        except Exception as error:  # noqa: BLE001 - what could not be redacted must not be written
            self.count("redact_failed")
            self.complain("redact", f"redact failed, the call is not captured: {error!r}")
        try:
            self.writer.mark_incomplete(rollout_id)
        except OSError as error:
            self.complain("marker", f"cannot mark {rollout_id} incomplete: {error}")
        return None

    def account(self, rollout_id: str, outcome: str, problem: str | None) -> None:
        """Count what became of a call, and say what is wrong."""
        if problem is not None:
            self.count("failed")
            self.complain("write", f"model calls are not captured: {problem}")
            return
        self.count("recorded")
        if outcome == "timed_out":
            self.count("lock_timed_out")
            self.complain(
                "lock",
                f"written without its lock, which another holds: {rollout_id} in {self.root}",
            )
        elif outcome == "unavailable":
            self.count("lock_unavailable")
            self.complain("no_lock", f"the file system of {self.root} gives no locks")
        if self.durability == "batch":
            self._flush_soon()

    def _announce(self, rollout_id: str) -> _core.InflightAnnouncer | None:
        found = inflight.announcer(self.root, **self.modes)
        try:
            found.enter(rollout_id)
        except OSError as error:
            self.count("announce_failed")
            self.complain("announce", f"readers cannot wait for calls in flight: {error}")
            return None
        return found

    def count(self, what: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self.counts[what] += 1

    def complain(self, kind: str, message: str) -> None:
        """Warn once per kind, not once a call; again after a minute if it goes on."""
        now = time.monotonic()
        with self._lock:
            last = self._warned.get(kind)
            if last is not None and now - last < WARN_INTERVAL_S:
                return
            self._warned[kind] = now
        logger.warning("%s", message)

    def _flush_soon(self) -> None:
        with self._lock:
            if self._flush is not None and self._flush.is_alive():
                return
            self._flush = threading.Timer(BATCH_INTERVAL_S, self.sync)
            self._flush.daemon = True
            self._flush.start()


_recorders: WeakSet[Recorder] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Let no call that has ended go with its process."""
    for recorder in list(_recorders):
        recorder.close()


class _LoopSide:
    """One event loop's view of a recorder: the calls whose records it waits for."""

    def __init__(self, recorder: Recorder, loop: asyncio.AbstractEventLoop) -> None:
        self._recorder = recorder
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count()
        self.completions = _core.Completions()
        loop.add_reader(self.completions.fileno(), self._take)

    def expect(self, call: "Call") -> int:
        number = next(self._numbers)
        self._calls[number] = call
        return number

    def _take(self) -> None:
        for number, outcome, problem in self.completions.take():
            call = self._calls.pop(number)
            self._recorder.account(call.rollout_id, outcome, problem)
            call.written()


class Call:
    """One call, from accept until its record is on disk.

    Its methods are called from one thread (the event loop's) in the order of the call:
    `request` and `start`, `response`, and `settle` or `finish` at the end.
    """

    def __init__(
        self,
        recorder: Recorder,
        rollout_id: str,
        dialect: str,
        client_session_id: str | None,
        announcer: _core.InflightAnnouncer | None,
    ) -> None:
        self.started_at = time.time()
        self._start = time.perf_counter()
        self._recorder = recorder
        self.rollout_id = rollout_id
        self._client_session_id = client_session_id
        self.announcer = announcer
        self._recording = _core.Recording(dialect, recorder.max_body_bytes)
        self._decode_request: Decoder | None = None
        self._decode_response: Decoder | None = None
        self._request_open = False
        self.status: int | None = None
        self.streaming = False
        self._ttft_ms: float | None = None
        self._facts: dict[str, Any] = {}
        self.finished = False
        self._on_disk = False
        self._waiting: list[asyncio.Future[None]] = []

    def request_encoding(self, encoding: str) -> None:
        """Say the request's content encoding."""
        self._decode_request = self._decoder(encoding)[0]

    def _decoder(self, encoding: str) -> tuple[Decoder | None, bool]:
        """Give what undoes an encoding, and whether there is nothing to undo any more."""
        try:
            return decoder(encoding), True
        except LookupError as error:
            self._recorder.complain(encoding, f"bodies are recorded as they come: {error}")
            return None, False

    def request(self, chunk: bytes, *, more: bool = False) -> None:
        """Take the request body's next bytes, as they came over the wire.

        Args:
            chunk: the bytes.
            more: whether others follow; a call that ends before they do says that its
                request was cut.
        """
        if self.finished:
            return
        self._request_open = more
        if not chunk:
            return
        try:
            chunk = _exactly_bytes(chunk)
            decode = self._decode_request
            for piece in (chunk,) if decode is None else decode.feed(chunk):
                self._recording.feed_request(piece)
        except Exception as error:  # noqa: BLE001 - a record must not cost the call
            self._recorder.complain("request", f"a request is not recorded: {error!r}")

    def start(self, status: int, content_type: str, content_encoding: str = "") -> None:
        """Begin the response."""
        if self.finished:
            return
        self.status = status
        kind = content_type.partition(";")[0].strip().lower()
        self.streaming = kind == "text/event-stream"
        self._decode_response, readable = self._decoder(content_encoding)
        self._recording.start_response(self.streaming and readable)

    def response(self, chunk: bytes) -> int | None:
        """Take the response body's next bytes, as they came over the wire.

        Returns:
            The offset in the chunk from which on it should wait for the record: that of
            the stream's first terminal event. None where none is in it.
        """
        if not chunk or self.finished:
            return None
        first_token, end = False, None
        try:
            chunk = _exactly_bytes(chunk)
            decode = self._decode_response
            for piece in (chunk,) if decode is None else decode.feed(chunk):
                said, offset = self._recording.feed_response(piece)
                first_token |= said
                # Offsets in a decoded chunk are none in the encoded one: all of it waits.
                if offset is not None:
                    end = offset if decode is None else 0
        except Exception as error:  # noqa: BLE001 - a record must not cost the call
            self._recorder.complain("response", f"a response is not recorded: {error!r}")
        if first_token:
            self._ttft_ms = (time.perf_counter() - self._start) * 1000
        return end

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Take exchange fields that only the server knows; ill-typed ones are left out."""
        for key, kind in UPSTREAM_KEYS.items():
            value = facts.get(key)
            if type(value) is kind and (key != "response_source" or value in ("upstream", "local")):
                self._facts[key] = value

    def finish(self, error_category: str | None = None) -> None:
        """End the call and have its record written on another thread, in a running loop.

        A second call changes nothing.
        """
        if self.finished:
            return
        ended = self._end(error_category)
        try:
            self._recorder.submit(self, ended)
        except (OSError, RuntimeError, NotImplementedError) as error:
            # No descriptor for a pipe, no thread: better late than not at all.
            self._recorder.complain("submit", f"records are written on the event loop: {error}")
            self._recorder.write(self, ended)
            self.written()

    def finish_here(self, error_category: str | None = None) -> None:
        """End the call and write its record on this thread, without an event loop."""
        if not self.finished:
            self._recorder.write(self, self._end(error_category))
            self.written()

    async def settle(self, error_category: str | None = None) -> None:
        """End the call and wait until its record is on disk, for a bounded time.

        The record is written whether or not this wait is cancelled.
        """
        self.finish(error_category)
        if self._on_disk:
            return
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append(waiting)
        patience = loop.call_later(self._recorder.write_wait_s, self._give_up, waiting)
        try:
            await waiting
        finally:
            patience.cancel()

    def written(self) -> None:
        """Let go those who wait for the record."""
        self._on_disk = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _give_up(self, waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            self._recorder.count("late")
            self._recorder.complain(
                "late", f"a response went out before its record was on disk: {self._recorder.root}"
            )
            waiting.set_result(None)

    def _end(self, error_category: str | None) -> _core.EndedCall:
        self.finished = True
        ttft_ms = self._ttft_ms
        return self._recording.end(
            model_call_id=secrets.token_hex(16),
            server_name=self._recorder.server_name,
            started_at=self.started_at,
            completed_at=time.time(),
            latency_ms=round((time.perf_counter() - self._start) * 1000, 3),
            latency_ttft_ms=None if ttft_ms is None else round(ttft_ms, 3),
            status_code=self.status,
            error_category=error_category,
            client_session_id=self._client_session_id,
            request_cut=self._request_open,
            **self._facts,
        )


def _exactly_bytes(chunk: bytes | bytearray | memoryview) -> bytes:
    """Give what servers also let applications send as what the core takes."""
    return chunk if type(chunk) is bytes else bytes(chunk)
