"""What the middleware and the proxy share: one call's recording, from accept to disk."""

import asyncio
import logging
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

from rollfold import _core
from rollfold.capture import inflight

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
    if any("connect" in name or "brokenpipe" in name for name in names):
        return "connection"
    return "exception"


class Recorder:
    """Records calls into one directory. Recording never fails a call.

    Args:
        root: the capture directory; made, 0700, when the first call comes.
        server_name: the name in every exchange's `model_ref`; None for no reference.
        redact: takes each exchange (a dict, as contract section 3 lists it) before it is
            written and returns what to write; None means it changed its argument. Where
            it raises, the call is not recorded and its attempt marked incomplete.
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
        self.writer = _core.CaptureWriter(self.root, durability=durability, **self.modes)
        self.counts: Counter[str] = Counter()
        """Calls recorded, and why others were not: written under the pool's threads."""
        self._lock = threading.Lock()
        self._warned: dict[str, float] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0
        self._flush: threading.Timer | None = None

    def begin(
        self, rollout_id: str, dialect: str, *, client_session_id: str | None = None
    ) -> "Call":
        """Accept a call of a valid rollout id: from now on it is announced as in flight."""
        return Call(self, rollout_id, dialect, client_session_id)

    def close(self) -> None:
        """Wait until everything accepted is on disk."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
        self.sync()

    def sync(self) -> None:
        """Bring what was written under durability `batch` to the disk."""
        try:
            self.writer.sync()
        except OSError as error:
            self.complain("sync", f"captures may not survive a crash of the machine: {error}")

    def submit(self, write: Callable[[], None]) -> Future[None]:
        """Run a write on a thread of this process."""
        with self._lock:
            pid = os.getpid()
            if self._pool is None or self._pool_pid != pid:
                # Threads do not survive a fork; a pool of the parent's would never work.
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="rollfold-capture")
                self._pool_pid = pid
            return self._pool.submit(write)

    def write(self, rollout_id: str, line: _core.ComposedLine) -> None:
        """Write one line; what goes wrong is counted and said, never raised."""
        try:
            if self.redact is None:
                outcome = self.writer.write(rollout_id, line)
            else:
                outcome = self.writer.append(rollout_id, self._redacted(rollout_id, line))
        except _RedactError:
            return
        except Exception as error:  # noqa: BLE001 - a record must not cost the call
            self.count("failed")
            self.complain("write", f"model calls are not captured: {error}")
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

    def _redacted(self, rollout_id: str, line: _core.ComposedLine) -> bytes:
        assert self.redact is not None  # noqa: S101 - for the type checker
        try:
            exchange = _core.loads(bytes(line))
            redacted = self.redact(exchange)
            return _core.dumps(exchange if redacted is None else redacted)
        except Exception as error:
            # What could not be redacted must not be written.
            self.count("redact_failed")
            self.mark_incomplete(rollout_id)
            self.complain("redact", f"redact failed, the call is not captured: {error!r}")
            raise _RedactError from error

    def mark_incomplete(self, rollout_id: str) -> None:
        """Leave the marker, if that can be done."""
        try:
            self.writer.mark_incomplete(rollout_id)
        except OSError as error:
            self.complain("marker", f"cannot mark {rollout_id} incomplete: {error}")

    def announce(self, rollout_id: str) -> bool:
        """Announce a call in flight; False where the file system cannot."""
        try:
            inflight.enter(self.root, rollout_id, **self.modes)
        except OSError as error:
            self.count("announce_failed")
            self.complain("announce", f"readers cannot wait for calls in flight: {error}")
            return False
        return True

    def withdraw(self, rollout_id: str) -> None:
        """Take an announcement back."""
        inflight.leave(self.root, rollout_id, **self.modes)

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


class _RedactError(Exception):
    """Said and counted already."""


class Call:
    """One call, from accept until its record is on disk.

    Its methods are called from one thread (the event loop's) in the order of the call:
    `request` and `start`, `response`, and `finish` at the end, once.
    """

    def __init__(
        self, recorder: Recorder, rollout_id: str, dialect: str, client_session_id: str | None
    ) -> None:
        self._recorder = recorder
        self.rollout_id = rollout_id
        self.client_session_id = client_session_id
        self.started_at = time.time()
        self._start = time.perf_counter()
        self._recording = _core.Recording(dialect, recorder.max_body_bytes)
        self._announced = recorder.announce(rollout_id)
        self._decode_request: Decode | None = None
        self._decode_response: Decode | None = None
        self.status: int | None = None
        self.streaming = False
        self._ttft_ms: float | None = None
        self.facts: dict[str, Any] = {}
        self._done: Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._done is not None

    def request_encoding(self, encoding: str) -> None:
        """Say the request's content encoding."""
        self._decode_request = decoder(encoding)

    def request(self, chunk: bytes) -> None:
        """Take the request body's next bytes, as they came over the wire."""
        if self._done is None and chunk:
            decode = self._decode_request
            self._recording.feed_request(decode(chunk) if decode else chunk)

    def start(self, status: int, content_type: str, content_encoding: str = "") -> None:
        """Begin the response."""
        if self._done is not None:
            return
        self.status = status
        kind = content_type.partition(";")[0].strip().lower()
        self.streaming = kind == "text/event-stream"
        self._decode_response = decoder(content_encoding)
        self._recording.start_response(self.streaming)

    def response(self, chunk: bytes) -> int | None:
        """Take the response body's next bytes, as they came over the wire.

        Returns:
            The offset in the chunk from which on it should wait for the record: that of
            the stream's first terminal event. None where none is in it.
        """
        if self._done is not None or not chunk:
            return None
        decode = self._decode_response
        first_token, offset = self._recording.feed_response(decode(chunk) if decode else chunk)
        if first_token:
            self._ttft_ms = (time.perf_counter() - self._start) * 1000
        # Offsets in a decoded chunk are none in the encoded one: all of it waits.
        return 0 if decode and offset is not None else offset

    def finish(self, error_category: str | None = None) -> Future[None]:
        """End the call and write its record on another thread; a second call changes nothing."""
        if self._done is not None:
            return self._done
        facts = {
            "model_call_id": uuid4().hex,
            "server_name": self._recorder.server_name,
            "started_at": self.started_at,
            "completed_at": time.time(),
            "latency_ms": round((time.perf_counter() - self._start) * 1000, 3),
            "latency_ttft_ms": None if self._ttft_ms is None else round(self._ttft_ms, 3),
            "status_code": self.status,
            "error_category": error_category,
            "client_session_id": self.client_session_id,
            **self.facts,
        }
        try:
            self._done = self._recorder.submit(lambda: self._write(facts))
        except RuntimeError:
            # The interpreter is going down and starts no threads any more.
            self._done = Future()
            self._write(facts)
            self._done.set_result(None)
        return self._done

    def _write(self, facts: Mapping[str, Any]) -> None:
        recorder = self._recorder
        try:
            recorder.write(self.rollout_id, self._recording.compose(**facts))
        except Exception as error:  # noqa: BLE001 - a record must not cost the call
            recorder.count("failed")
            recorder.mark_incomplete(self.rollout_id)
            recorder.complain("compose", f"a model call is not captured: {error!r}")
        finally:
            if self._announced:
                recorder.withdraw(self.rollout_id)

    async def settle(self, error_category: str | None = None) -> None:
        """End the call and wait until its record is on disk, for a bounded time.

        The record is written whether or not this wait is cancelled.
        """
        done = asyncio.wrap_future(self.finish(error_category))
        _, late = await asyncio.wait({done}, timeout=self._recorder.write_wait_s)
        if late:
            self._recorder.count("late")
            self._recorder.complain(
                "late", f"a response went out before its record was on disk: {self._recorder.root}"
            )

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Take exchange fields that only the server knows; ill-typed ones are left out."""
        for key, kind in UPSTREAM_KEYS.items():
            value = facts.get(key)
            if type(value) is kind and (key != "response_source" or value in ("upstream", "local")):
                self.facts[key] = value


Decode = Callable[[bytes], bytes]


def decoder(encoding: str) -> Decode | None:
    """Give what undoes a content encoding for the record; the wire keeps its bytes.

    gzip and deflate are undone; of others the record gets the bytes as they are, which
    are no JSON: `response_raw` and `capture_parse_error` say so.
    """
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return None
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    broken = False

    def decode(chunk: bytes) -> bytes:
        nonlocal broken
        if broken:
            return b""
        try:
            return inflate.decompress(chunk)
        except zlib.error:
            broken = True
            return b""

    return decode
