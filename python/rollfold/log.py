"""The rollout log: every record a trainer keeps, written as it comes (docs/log.md)."""

import os
import re
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from rollfold import _core
from rollfold.errors import RecordFormatError, RolloutLogError, RolloutLogLockedError
from rollfold.log_reading import LogIndex, RolloutLogWarning, log_files, read_log

__all__ = ["LogIndex", "RolloutLog", "RolloutLogWarning", "merge_logs", "read_log"]

Form = Literal["packed", "full"]
Compression = Literal["zstd"]
Fsync = Literal["append", "rotate", "never"]

SUFFIXES: Final = (".jsonl", ".jsonl.zst")
_SHARD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBERED: Final = re.compile(r"-(\d{6,})(?:-step(\d+))?\.jsonl(?:\.zst)?$")


class RolloutLog:
    """Appends records to a file, or to a directory of numbered files.

    An append returns when its records are in the file: a kill of the process at any byte
    loses nothing that was appended before, and what it tears is moved to the file's
    `.torn` by the next writer. Threads may share one log. A file has one writer: a second
    one, of this or of another process, gets `RolloutLogLockedError` for a single file and
    a file of its own in a directory.

    Args:
        path: a file ending in `.jsonl` or `.jsonl.zst`, or else a directory, which is made
            where there is none. In a directory the files are `{shard}-{number}.jsonl[.zst]`.
        form: how records are written, whatever form they come in.
        compression: `zstd` or None. A single file's name decides: None, or not given, for
            `.jsonl`, `zstd` for `.jsonl.zst`.
        level: of the compression.
        rotate_bytes: in a directory, begin a new file once one has this size.
        rotate_steps: in a directory, begin a new file every so many steps (`append`'s
            `step`); the files are `{shard}-{number}-step{first step}.jsonl[.zst]`.
        shard: the beginning of this writer's file names, such as a rank; files of one
            shard are read in the order they were written.
        fsync: what survives a crash of the machine, too: every `append`, what was written
            before the last rotation or close (`rotate`), or what the kernel got to
            (`never`).

    Raises:
        RolloutLogLockedError: another writer has the file.
        RolloutLogError: the file or directory cannot be made, opened or healed.
        ValueError: an argument does not fit.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        form: Form = "packed",
        compression: Compression | Literal["by name"] | None = "by name",
        *,
        level: int = 3,
        rotate_bytes: int | None = None,
        rotate_steps: int | None = None,
        shard: str = "rollouts",
        fsync: Fsync = "rotate",
    ) -> None:
        self.path = Path(path)
        self._single = self.path.name.endswith(SUFFIXES)
        if form not in ("packed", "full"):
            raise ValueError(f"form: {form!r} is none of 'packed', 'full'")
        if fsync not in ("append", "rotate", "never"):
            raise ValueError(f"fsync: {fsync!r} is none of 'append', 'rotate', 'never'")
        if _SHARD.fullmatch(shard) is None:
            raise ValueError(f"shard: {shard!r} must match [A-Za-z0-9][A-Za-z0-9._-]*")
        for name, value in (("rotate_bytes", rotate_bytes), ("rotate_steps", rotate_steps)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: {value} is less than 1")
            if value is not None and self._single:
                raise ValueError(f"{name}: rotating needs a directory, not {self.path.name}")
        if compression == "by name":
            compression = "zstd" if not self._single or self.path.suffix == ".zst" else None
        if compression not in ("zstd", None):
            raise ValueError(f"compression: {compression!r} is none of 'zstd', None")
        if self._single and (compression == "zstd") != (self.path.suffix == ".zst"):
            raise ValueError(f"compression: {compression!r} does not fit {self.path.name}")
        self.form: Form = form
        self.compression: Compression | None = compression
        self._level = level if compression else None
        self._rotate_bytes = rotate_bytes
        self._rotate_steps = rotate_steps
        self._shard = shard
        self._fsync = fsync
        self._index = LogIndex(self.path)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._writer: _core.LogWriter | None = None
        self._first_step: int | None = None
        try:
            (self.path.parent if self._single else self.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _log_error(error, self.path) from None
        if rotate_steps is None:
            self._writer = self._open(None)
        _LOGS.add(self)

    def append(
        self,
        record: Mapping[str, Any] | bytes,
        *,
        step: int | None = None,
        rollout_id: str | None = None,
    ) -> None:
        """Append one record.

        Args:
            record: a dict, or the record's JSON text, full or packed. Text that has the
                log's form goes through as it is, checked but not built.
            step: the trainer's step, for `rotate_steps`.
            rollout_id: whose record it is, where the caller knows and the text is to be
                trusted: then it is not looked at.

        Raises:
            RecordFormatError: the text is no record: not strict JSON, no object, or packed
                and malformed. Nothing is written.
            RolloutLogError: the file could not be written; it is as it was before.
            TypeError, ValueError: the dict holds what JSON has no word for, or the log is
                closed.
        """
        key = None if rollout_id is None else (rollout_id, _never_started(record))
        self._append([_text(record)], step, key)

    def append_many(
        self, records: Iterable[Mapping[str, Any] | bytes], *, step: int | None = None
    ) -> int:
        """Append a batch, in order and with nothing in between; give their number.

        In a compressed log smaller records share frames of a megabyte of text, so a batch
        takes less room than its records one by one.

        Raises:
            RecordFormatError: some are no records; names them by their place in the batch,
                from 0. The others are written.
            RolloutLogError: the file could not be written; it is as it was before.
        """
        return self._append([_text(record) for record in records], step, None)

    def append_enriched(
        self,
        row: Mapping[str, Any],
        result: bytes | dict[str, Any],
        *,
        step: int | None = None,
        **options: Any,
    ) -> None:
        """Enrich a result and append its record: from the core's buffers to the file.

        The record never becomes a Python object, neither its payloads nor its text.
        Captures are not deleted here: `clear_model_call_captures_for_rollouts` does that,
        once `flush` has brought the record to the disk.

        Args:
            row: the row as it was dispatched.
            result: the body of `/run` as it came, or a dict; neither is changed.
            step: the trainer's step, for `rotate_steps`.
            options: `capture_dirs`, `observability_enabled` and the other options of
                `enrich_run_result_json`, but `form`, which is the log's, and
                `delete_capture`.

        Raises:
            RolloutIdError: the row's identity keys are not valid.
            RolloutLogError: the file could not be written; it is as it was before.
            ValueError: the result is no strict JSON object, or the log is closed.
        """
        from rollfold.enrich import prepare_enriched  # noqa: PLC0415 -- readers need none of it

        frames = prepare_enriched(row, result, self.form, self._level, **options)
        self.append_frames(frames, step=step)

    def append_frames(self, frames: _core.LogFrames, *, step: int | None = None) -> None:
        """Append what was prepared in the core, without its bytes becoming an object.

        Raises:
            RolloutLogError: the file could not be written; it is as it was before.
            ValueError: the log is closed, or `rotate_steps` is set and the step missing.
        """
        if self._rotate_steps is not None and step is None:
            raise ValueError("step: is needed in a log that rotates by steps")
        with self._lock:
            writer = self._writer_for(step)
            try:
                writer.append(frames, self._fsync == "append")
            except OSError as error:
                raise _log_error(error, writer.path) from None

    def _append(
        self, texts: list[bytes], step: int | None, key: tuple[str | None, bool] | None
    ) -> int:
        frames, refused = _core.prepare_log(texts, key, self.form, self._level)
        if frames.records:
            self.append_frames(frames, step=step)
        if refused:
            if len(texts) == 1:
                raise RecordFormatError(refused[0][1])
            told = "; ".join(f"record {number}: {reason}" for number, reason in refused[:5])
            more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
            raise RecordFormatError(told + more)
        return frames.records

    def flush(self) -> None:
        """Bring everything that was appended to the disk.

        Raises:
            RolloutLogError: the system could not.
        """
        with self._lock:
            if self._writer is not None and self._pid == os.getpid():
                self._sync(self._writer)

    def close(self) -> None:
        """Let the next writer in; a second time does nothing.

        Raises:
            RolloutLogError: what was appended could not be brought to the disk.
        """
        with self._lock:
            self._closed = True
            writer, self._writer = self._writer, None
            if writer is not None and self._pid == os.getpid():
                self._retire(writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def files(self) -> list[Path]:
        """The log's files in the order they are read, those of other shards included."""
        return log_files(self.path)

    def __iter__(self) -> Iterator[Any]:
        """Read the records back as dicts; see `read_log`."""
        return read_log(self.path)

    def get(self, rollout_id: str) -> Any:
        """Give a rollout's record as a dict, None where there is none.

        Of several records of one id the last counts, but one that never started does not
        hide one that was executed (contract, section 11). Attempts are ids of their own.
        """
        return self._index.get(rollout_id)

    def ids(self) -> list[str]:
        """Give the rollout ids of the log in the order of their first records."""
        return self._index.ids()

    def _writer_for(self, step: int | None) -> _core.LogWriter:
        if self._closed:
            raise ValueError("the log is closed")
        if self._pid != os.getpid():
            # The parent's file and lock: dropped without unlocking, which would be for both.
            self._pid, self._writer = os.getpid(), None
        writer = self._writer
        if writer is not None and self._is_full(writer, step):
            self._writer = None
            self._retire(writer)
            writer = None
        if writer is None:
            writer = self._writer = self._open(step)
        return writer

    def _is_full(self, writer: _core.LogWriter, step: int | None) -> bool:
        if self._rotate_bytes is not None and writer.size >= self._rotate_bytes:
            return True
        return self._is_other_step(self._first_step, step)

    def _is_other_step(self, first: int | None, step: int | None) -> bool:
        if self._rotate_steps is None or step is None or first is None:
            return False
        return step // self._rotate_steps != first // self._rotate_steps

    def _retire(self, writer: _core.LogWriter) -> None:
        try:
            if self._fsync != "never":
                self._sync(writer)
        finally:
            writer.close()

    def _sync(self, writer: _core.LogWriter) -> None:
        try:
            writer.sync()
        except OSError as error:
            raise _log_error(error, writer.path) from None

    def _open(self, step: int | None) -> _core.LogWriter:
        if self._single:
            return _open_file(self.path)
        number, last = 0, None
        for file in self.path.iterdir():
            named = _NUMBERED.search(file.name)
            if named is None or file.name[: named.start()] != self._shard:
                continue
            if int(named[1]) >= number:
                number, last = int(named[1]), file
        if last is not None and self._continues(last, step):
            try:
                writer = _open_file(last)
            except RolloutLogLockedError:
                pass
            else:
                if self._rotate_bytes is None or writer.size < self._rotate_bytes:
                    self._first_step = _step_of(last)
                    return writer
                writer.close()
        # Each writer that looks at the same time takes the next number that is free.
        while True:
            number += 1
            suffix = ".jsonl.zst" if self.compression else ".jsonl"
            first = None
            if self._rotate_steps is not None and step is not None:
                first = step // self._rotate_steps * self._rotate_steps
            stepped = "" if first is None else f"-step{first}"
            file = self.path / f"{self._shard}-{number:06d}{stepped}{suffix}"
            try:
                writer = _open_file(file)
            except RolloutLogLockedError:
                continue
            self._first_step = first
            return writer

    def _continues(self, file: Path, step: int | None) -> bool:
        """Whether records of this step may go on in a file that is there."""
        if (file.suffix == ".zst") != (self.compression == "zstd"):
            return False
        first = _step_of(file)
        if self._rotate_steps is None:
            return first is None
        return first is not None and not self._is_other_step(first, step)


def merge_logs(
    sources: Iterable[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    form: Form = "packed",
    latest: bool = False,
) -> int:
    """Write the records of several logs into one file; give their number.

    The destination appears when it is complete; killed before, the merge leaves only a
    `.merging` file, which the next merge overwrites. Broken parts of a source are warned
    about and left out, as `read_log` does.

    Args:
        sources: files or directories, read one after the other.
        destination: a file ending in `.jsonl` or `.jsonl.zst` that does not exist.
        form: how the records are written.
        latest: keep one record for each rollout id: the last that was executed, else the
            last (contract, section 11). Records without an id all stay.

    Raises:
        FileExistsError: the destination is there already.
        RolloutLogError: a source cannot be read, or the destination not be written.
        ValueError: the destination has another suffix.
    """
    target = Path(destination)
    if not target.name.endswith(SUFFIXES):
        raise ValueError(f"destination: {target.name} does not end in .jsonl or .jsonl.zst")
    if target.exists():
        raise FileExistsError(f"{target} exists")
    paths = [Path(source) for source in sources]
    suffix = ".jsonl.zst" if target.suffix == ".zst" else ".jsonl"
    part = target.with_name(f".{target.name.removesuffix(suffix)}.merging{suffix}")
    for left in (part, Path(f"{part}.index")):
        left.unlink(missing_ok=True)
    chosen = _latest_lines(paths) if latest else None
    count = 0
    with RolloutLog(part, form) as log:
        batch: list[bytes] = []
        size = 0
        for number, line in enumerate(read_log(paths, form="line")):
            if chosen is not None and number not in chosen:
                continue
            batch.append(line)
            size += len(line)
            if size >= 1 << 20:
                count += log.append_many(batch)
                batch, size = [], 0
        if batch:
            count += log.append_many(batch)
    try:
        Path(f"{part}.index").replace(f"{target}.index")
        part.rename(target)
    except OSError as error:
        raise _log_error(error, target) from None
    return count


def _latest_lines(paths: list[Path]) -> set[int]:
    """Give the numbers of the lines to keep, counted over all that are read."""
    best: dict[str, tuple[bool, int]] = {}
    kept: set[int] = set()
    for number, line in enumerate(read_log(paths, form="line", on_damage=lambda *_: None)):
        rollout_id, never_started = _core.log_record_key(line)
        if rollout_id is None:
            kept.add(number)
        else:
            best[rollout_id] = max(best.get(rollout_id, (False, -1)), (not never_started, number))
    kept.update(number for _, number in best.values())
    return kept


def _text(record: Mapping[str, Any] | bytes) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, bytearray | memoryview):
        return bytes(record)
    return _core.dumps(record)


def _never_started(record: Mapping[str, Any] | bytes) -> bool:
    if not isinstance(record, Mapping):
        return False
    return (
        record.get("_ng_omitted_rollout") == "never_started"
        or record.get("_ng_dispatch_drained") is True
    )


def _step_of(file: Path) -> int | None:
    named = _NUMBERED.search(file.name)
    return None if named is None or named[2] is None else int(named[2])


def _open_file(path: Path) -> _core.LogWriter:
    try:
        return _core.LogWriter(path)
    except BlockingIOError as error:
        message = f"{path} is open in another RolloutLog or process"
        raise RolloutLogLockedError(error.errno, message, str(path)) from None
    except OSError as error:
        raise _log_error(error, path) from None


def _log_error(error: OSError, path: str | os.PathLike[str]) -> RolloutLogError:
    return RolloutLogError(error.errno, error.strerror or str(error), os.fspath(path))


_LOGS: "weakref.WeakSet[RolloutLog]" = weakref.WeakSet()


def _after_fork() -> None:
    """Free the locks that threads of the parent may have held."""
    for log in _LOGS:
        log._lock = threading.Lock()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
