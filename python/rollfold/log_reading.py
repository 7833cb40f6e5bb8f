"""Reading rollout logs: lazily in order, or one record by its rollout id."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rollfold import _core
from rollfold.errors import RolloutLogError
from rollfold.packed import is_packed, unpack, unpack_json

ReadAs = Literal["dict", "full", "line"]
OnDamage = Callable[[Path, int, int, str], None]


class RolloutLogWarning(UserWarning):
    """A part of a log could not be read; names the file and the byte offset."""


class LogEntry(NamedTuple):
    """Where one record lies."""

    rollout_id: str | None
    never_started: bool
    file: Path
    place: tuple[int, int, int]
    """Offset and length of its line or frame, and which line of the frame it is."""


def log_files(path: str | os.PathLike[str]) -> list[Path]:
    """Give the files of a log in the order they are read: itself, or a directory's by name."""
    root = Path(path)
    if not root.is_dir():
        return [root]
    return sorted(
        file
        for file in root.iterdir()
        if file.name.endswith((".jsonl", ".jsonl.zst"))
        and not file.name.startswith(".")
        # A gym may keep its captures in the same place.
        and not file.name.endswith((".capture.jsonl", ".capture.late.jsonl"))
    )


def read_log(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    form: ReadAs = "dict",
    on_damage: OnDamage | None = None,
) -> Iterator[Any]:
    """Read records lazily, in the order they were written, a frame in memory at a time.

    Full and packed records, plain and compressed files may be mixed. A line or frame that
    cannot be read is reported once and the rest is read; so is a torn end, unless its
    writer is at work on it just now.

    Args:
        path: a file, a directory, or several of them, read one after the other.
        form: `dict` for records as dicts (equal parts of a packed one are one object:
            read-only), `full` for their whole JSON text, `line` for the text as it lies
            in the file.
        on_damage: called with the file, the byte offset, the number of bytes (0 where a
            line in a frame is bad) and the reason, instead of a `RolloutLogWarning`.

    Raises:
        RolloutLogError: a file cannot be opened or read.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    return _read(paths, form, on_damage or _warn)


def _read(paths: list[str | os.PathLike[str]], form: ReadAs, on_damage: OnDamage) -> Iterator[Any]:
    for path in paths:
        for file in log_files(path):
            for line, place in _lines(file, on_damage):
                try:
                    record = _as(line, form)
                except ValueError as error:
                    length = 0 if file.suffix == ".zst" else place[1]
                    where = f", line {place[2]} of its frame" if file.suffix == ".zst" else ""
                    on_damage(file, place[0], length, f"{error}{where}")
                else:
                    yield record


def _lines(file: Path, on_damage: OnDamage) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    try:
        reader = _core.LogReader(file)
        for batch in reader:
            if isinstance(batch, list):
                for line, *place in batch:
                    yield line, (place[0], place[1], place[2])
            elif not (batch.tail and _core.log_writer_at_work(file)):
                on_damage(file, batch.offset, batch.length, batch.reason)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RolloutLogError(error.errno, reason, os.fspath(file)) from None


def _as(line: bytes, form: ReadAs) -> Any:
    """Give a line in the form that was asked for; `ValueError` where it is no record."""
    packed = is_packed(line)
    if form == "dict":
        record = unpack(line) if packed else _core.loads(line)
        if not isinstance(record, dict):
            raise ValueError("the record is no object")
        return record
    if form == "full" and packed:
        return unpack_json(line)
    if form in ("full", "line"):
        _core.log_record_key(line)
        return line
    raise ValueError(f"form: {form!r} is none of 'dict', 'full', 'line'")


def _warn(file: Path, offset: int, length: int, reason: str) -> None:
    size = f" ({length} bytes)" if length else ""
    message = f"{file}: unreadable at byte {offset}{size}: {reason}"
    warnings.warn(message, RolloutLogWarning, stacklevel=4)


class LogIndex:
    """Random access to a log by rollout id, beside whoever writes it.

    Takes no lock. What is appended later is seen: a file that has grown is looked at
    again.

    Args:
        path: a file or a directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._files: dict[Path, tuple[tuple[int, int], list[LogEntry]]] = {}
        self._latest: dict[str, LogEntry] = {}

    def entries(self) -> list[LogEntry]:
        """Say where every record lies, in the order they are read.

        Raises:
            RolloutLogError: a file cannot be read.
        """
        self._refresh()
        return [entry for _, entries in self._files.values() for entry in entries]

    def ids(self) -> list[str]:
        """Give the rollout ids in the order of their first records.

        Raises:
            RolloutLogError: a file cannot be read.
        """
        found = (entry.rollout_id for entry in self.entries())
        return list(dict.fromkeys(name for name in found if name is not None))

    def get(self, rollout_id: str) -> Any:
        """Give a rollout's record as a dict, None where there is none.

        Of several records of one id the last counts, but one that never started does not
        hide one that was executed (contract, section 11). Attempts are ids of their own.

        Raises:
            RolloutLogError: a file cannot be read.
        """
        self._refresh()
        entry = self._latest.get(rollout_id)
        if entry is None:
            return None
        line = _at(entry) or _by_reading(entry.file, rollout_id)
        return None if line is None else _as(line, "dict")

    def _refresh(self) -> None:
        files = {}
        changed = False
        for file in log_files(self.path):
            try:
                stat = file.stat()
                state = (stat.st_ino, stat.st_size)
                known = self._files.get(file)
                if known is None or known[0] != state:
                    changed = True
                    known = (state, _entries_of(file))
            except OSError as error:
                reason = error.strerror or str(error)
                raise RolloutLogError(error.errno, reason, os.fspath(file)) from None
            files[file] = known
        if not changed and files.keys() == self._files.keys():
            return
        self._files = files
        latest: dict[str, LogEntry] = {}
        for _, entries in files.values():
            for entry in entries:
                if entry.rollout_id is not None:
                    before = latest.get(entry.rollout_id)
                    if before is None or before.never_started or not entry.never_started:
                        latest[entry.rollout_id] = entry
        self._latest = latest


def _entries_of(file: Path) -> list[LogEntry]:
    return [
        LogEntry(rollout_id, never_started, file, place)
        for rollout_id, never_started, place in _core.load_log_index(file)
    ]


def _at(entry: LogEntry) -> bytes | None:
    """Read the line at an entry, None where it is another rollout's or none."""
    try:
        line = _core.read_log_record(entry.file, entry.place)
        found, _ = _core.log_record_key(line)
    except (OSError, ValueError):
        return None
    return line if found == entry.rollout_id else None


def _by_reading(file: Path, rollout_id: str) -> bytes | None:
    """Find a record without an index: what it said did not hold."""
    Path(f"{file}.index").unlink(missing_ok=True)
    best: tuple[bool, bytes] | None = None
    for line in read_log(file, form="line", on_damage=lambda *_: None):
        found, never_started = _core.log_record_key(line)
        if found == rollout_id and (best is None or best[0] or not never_started):
            best = (never_started, line)
    return None if best is None else best[1]
