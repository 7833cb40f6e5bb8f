"""The files of a run, each append-only: what was dispatched, what came of it."""

import asyncio
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rollfold import _core, identity
from rollfold.collect.latest import rollout_key
from rollfold.collect.plan import InputError, Plan
from rollfold.dispatch.attempt import FAILURE_CLASS, NEVER_STARTED, OMITTED
from rollfold.errors import RollfoldError, RolloutIdError

BATCH: Final = 128
"""Lines that share one fsync at most."""

STRANGER: Final = "recorded_as_sha256"
"""Key of a note in the dispatched file, see `stranger_line`."""

Decode = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a run's files are, all beside its output.

    Args:
        output: one record a line for each rollout that has a result.
    """

    output: Path

    @property
    def inputs(self) -> Path:
        """The rows that the run dispatches, stamped."""
        return self._beside("_materialized_inputs")

    @property
    def failures(self) -> Path:
        """One record a line for each attempt without a result."""
        return self._beside("_failures")

    @property
    def dispatched(self) -> Path:
        """One line for each dispatch, written before it, after a first line about the run."""
        return self._beside("_dispatched")

    @property
    def late(self) -> Path:
        """Records made again because calls came while their captures were being deleted."""
        return self._beside("_late")

    def _beside(self, suffix: str) -> Path:
        return self.output.with_name(f"{self.output.stem}{suffix}.jsonl")


@dataclass(slots=True)
class Attempts:
    """What the files say of one rollout."""

    dispatched: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    never_started: set[int] = field(default_factory=set)
    succeeded: bool = False

    @property
    def lost(self) -> list[int]:
        """Attempts that were dispatched and left no outcome."""
        return sorted(self.dispatched - self.finished)

    @property
    def last_failure(self) -> int | None:
        """The latest attempt, where it failed."""
        last = max(self.dispatched | self.finished, default=None)
        return last if last in self.failed else None

    def next(self, first: int, retries: int) -> int | None:
        """Give the attempt that is to run now, None where the rollout is done.

        Args:
            first: the number of the rollout's first attempt.
            retries: failed attempts that are followed by another one.
        """
        if self.succeeded:
            return None
        last = max(self.dispatched | self.finished, default=None)
        if last is None:
            return first
        if last in self.failed and len(self.failed) > retries:
            return None
        return last + 1


def heal(path: Path) -> int:
    """Move a torn last line aside, to `<name>.torn`; end a whole one that lacks its newline.

    Returns:
        How many bytes were moved, 0 where the file was sound or is not there.
    """
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return 0
    with file:
        size = file.seek(0, os.SEEK_END)
        start = _last_line(file, size)
        if start == size:
            return 0
        file.seek(start)
        tail = file.read()
        try:
            whole = isinstance(_core.loads(tail), dict)
        except ValueError:
            whole = False
        if whole:
            file.write(b"\n")
            return 0
        with path.with_name(f"{path.name}.torn").open("ab") as aside:
            aside.write(tail + b"\n")
            aside.flush()
            os.fsync(aside.fileno())
        file.truncate(start)
        return len(tail)


def _last_line(file: Any, size: int) -> int:
    """Give the place where the last line starts; the end where a newline ends the file."""
    position = size
    while position > 0:
        step = min(1 << 16, position)
        file.seek(position - step)
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            return int(position - step + newline + 1)
        position -= step
    return 0


def read_lines(path: Path, decode: Decode) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """Read a file's lines: number, text, record; the record is None where the line is none."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = decode(line)
            except (ValueError, RollfoldError):
                record = None
            yield number, line, record if isinstance(record, dict) else None


class History:
    """What an earlier part of the run left.

    Args:
        paths: the run's files; torn lines are moved aside.
        plan: what the run is to do.
        decode: an output line's record.
        see: gets every record of a result and its rollout, for the summary.

    Raises:
        InputError: the files are of another run.
    """

    def __init__(
        self, paths: Paths, plan: Plan, decode: Decode, see: Callable[[dict[str, Any], str], None]
    ) -> None:
        self.notes: list[str] = []
        self.rollouts: dict[str, Attempts] = {}
        self._paths = paths
        self._strangers: dict[str, tuple[str, int]] = {}
        for path in (paths.output, paths.failures, paths.dispatched):
            moved = heal(path)
            if moved:
                self.notes.append(
                    f"{path}: a torn last line ({moved} bytes) moved to {path.name}.torn"
                )
        keys = {rollout_key(row) or "" for row in plan.rows()}
        self._read_dispatched(plan, keys)
        for where, _, record in self._records(paths.failures, _core.loads):
            self._outcome(self._known(where, record, keys), record)
        for where, line, record in self._records(paths.output, decode):
            stranger = self._strangers.get(line_digest(line)) if self._strangers else None
            key, attempt = stranger or (
                self._known(where, record, keys),
                identity.attempt_index(record),
            )
            attempts = self._attempts(key)
            if attempts.succeeded:
                self.notes.append(f"{where}: {key} has two results")
                continue
            attempts.succeeded = True
            attempts.finished.add(attempt)
            see(record, key)

    def _read_dispatched(self, plan: Plan, keys: set[str]) -> None:
        lines = self._records(self._paths.dispatched, _core.loads)
        _, _, first = next(lines, (None, None, None))
        if first is None:
            if self._paths.output.exists() or self._paths.failures.exists():
                self.notes.append(
                    f"{self._paths.dispatched}: missing, so what had started is not known"
                )
            return
        if first.get("run_id") != plan.run_id:
            raise InputError(
                f"{self._paths.dispatched}: belongs to the run {first.get('run_id')}, "
                f"these inputs are the run {plan.run_id}"
            )
        for where, _, line in lines:
            key, attempt = self._known(where, line, keys), identity.attempt_index(line)
            self._attempts(key).dispatched.add(attempt)
            if isinstance(line.get(STRANGER), str):
                self._strangers[line[STRANGER]] = (key, attempt)

    def _records(self, path: Path, decode: Decode) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
        for number, line, record in read_lines(path, decode):
            if record is None:
                self.notes.append(f"{path}: line {number} cannot be read")
            else:
                yield f"{path}: line {number}", line, record

    def _known(self, where: str, record: Mapping[str, Any], keys: set[str]) -> str:
        """Give a record's rollout, which must be one of this run."""
        try:
            key = rollout_key(record)
        except RolloutIdError as error:
            raise InputError(f"{where}: {error}") from error
        if key is None or key not in keys:
            raise InputError(f"{where}: {key} is no rollout of these inputs")
        return key

    def _attempts(self, key: str) -> Attempts:
        return self.rollouts.setdefault(key, Attempts())

    def _outcome(self, key: str, record: Mapping[str, Any]) -> None:
        attempts, attempt = self._attempts(key), identity.attempt_index(record)
        if record.get(OMITTED) == NEVER_STARTED:
            attempts.never_started.add(attempt)
            return  # it never ran: the same attempt is still to run
        attempts.finished.add(attempt)
        if record.get(FAILURE_CLASS) is not None:
            attempts.failed[attempt] = str(record[FAILURE_CLASS])


class Appender:
    """Appends lines to a run's files from a thread of its own; many lines share an fsync.

    Each file is opened at its first line.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._files: dict[Path, int] = {}
        self._thread: threading.Thread | None = None

    async def append(self, path: Path, encode: Callable[[], bytes]) -> None:
        """Write one line and wait until it is on the disk.

        Args:
            path: the file.
            encode: gives the line without its newline; called in the writing thread.

        Raises:
            OSError: it could not be written; the file ends with the line before.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="rollfold-append", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._queue.put(_Line(path, encode, loop, done))
        await asyncio.shield(done)

    def note(self, path: Path, line: bytes) -> None:
        """Write one line at once, without waiting for the disk: it survives this process."""
        _write_all(self._open(path), line + b"\n")

    def close(self) -> None:
        """Finish what is queued and close the files."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _open(self, path: Path) -> int:
        descriptor = self._files.get(path)
        if descriptor is None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._files[path] = descriptor
        return descriptor

    def _work(self) -> None:
        ending = False
        while not ending:
            batch: list[_Line] = []
            taken = self._queue.get()
            while taken is not None:
                batch.append(taken)
                if len(batch) == BATCH:
                    break
                try:
                    taken = self._queue.get_nowait()
                except queue.Empty:
                    break
            ending = taken is None
            errors = [self._write(line) for line in batch]
            for descriptor, numbers in _by_file(batch, errors, self._files).items():
                try:
                    os.fsync(descriptor)
                except OSError as error:
                    for number in numbers:
                        errors[number] = error
            for line, failed in zip(batch, errors, strict=True):
                line.loop.call_soon_threadsafe(_settle, line.done, failed)

    def _write(self, line: "_Line") -> Exception | None:
        try:
            descriptor = self._open(line.path)
            data = line.encode() + b"\n"
            start = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, data)
            except OSError:
                os.ftruncate(descriptor, start)
                raise
        except Exception as error:  # noqa: BLE001 (raised where the line came from)
            return error
        return None


@dataclass(slots=True)
class _Line:
    path: Path
    encode: Callable[[], bytes]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


def header(plan: Plan) -> bytes:
    """Give the first line of the dispatched file."""
    return bytes(
        _core.dumps({"run_id": plan.run_id, "rollouts": plan.total, "started_at": time.time()})
    )


def dispatch_line(row: Mapping[str, Any], rollout_id: str | None) -> bytes:
    """Give the line that notes a dispatch."""
    note = {**_stamp(row), "rollout_id": rollout_id, "dispatched_at": time.time()}
    return _core.dumps(note)


def stranger_line(row: Mapping[str, Any], line: bytes) -> bytes:
    """Give the note that an output line is of this row, though its record says otherwise.

    A result may bring identity keys of its own, and what is there stays (contract, section
    2); a resume still has to know whose result it is.
    """
    return _core.dumps({**_stamp(row), STRANGER: line_digest(line)})


def line_digest(line: bytes) -> str:
    """Give a hash of a line, without its newline."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def _stamp(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        identity.TASK_INDEX,
        identity.ROLLOUT_INDEX,
        identity.ATTEMPT_INDEX,
        identity.ROLLOUT_ID,
    )
    return {key: row[key] for key in keys if row.get(key) is not None}


def _by_file(
    batch: list[_Line], errors: list[Exception | None], files: Mapping[Path, int]
) -> dict[int, list[int]]:
    """Give the lines of each file that were written, by their place in the batch."""
    found: dict[int, list[int]] = {}
    for number, line in enumerate(batch):
        if errors[number] is None:
            found.setdefault(files[line.path], []).append(number)
    return found


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
